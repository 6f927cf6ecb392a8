//! Orders of the operator about the cluster. Any node takes them; the one that leads the catalog carries them out.

use actix::Addr;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    cluster::{
        NodeId,
        member::{Member, Reply},
        parcel::Question,
    },
    coordinator::{Coordinator, moves::Drain},
    model::error::{Error, ErrorKind, Result},
};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    Drain(NodeId),
}

/// What became of an order on another node: why it was refused, if it was.
#[derive(Serialize, Deserialize)]
struct Obeyed(Option<(u16, String)>);

async fn carry_out(coordinator: &Addr<Coordinator>, order: Order) -> Result<()> {
    let Order::Drain(node) = order;
    let sent = coordinator.send(Drain(node)).await;
    sent.map_err(|_| Error::unavailable("the node is stopping"))?
}

/// Carries an order out here or, where that cannot be, by the node that leads the catalog. Status and message of a refusal.
pub async fn give(
    member: &Member,
    coordinator: &Addr<Coordinator>,
    order: Order,
) -> Result<(), (u16, String)> {
    let refused = |error: Error| (error.status(), error.message);
    let leader = match carry_out(coordinator, order).await {
        Err(Error {
            kind: ErrorKind::Elsewhere(Some(leader)),
            ..
        }) if leader != member.node => leader,
        done => return done.map_err(refused),
    };
    let order = rmp_serde::to_vec(&order).unwrap_or_default();
    let answer = member.ask(leader, Question::Order(order.into())).await;
    let answer = answer.map_err(|_| {
        refused(Error::unavailable(format!(
            "node {leader}, which leads the catalog, does not answer"
        )))
    })?;
    match rmp_serde::from_slice(&answer) {
        Ok(Obeyed(refused)) => refused.map_or(Ok(()), Err),
        Err(failure) => Err((500, format!("node {leader} answered garbage: {failure}"))),
    }
}

/// Answers another node that passes an order on.
pub async fn obey(coordinator: Addr<Coordinator>, order: Bytes, reply: Reply) {
    let done = match rmp_serde::from_slice(&order) {
        Ok(order) => carry_out(&coordinator, order).await,
        Err(failure) => Err(Error::bad_request(format!(
            "an order cannot be read: {failure}"
        ))),
    };
    let obeyed = Obeyed(done.err().map(|error| (error.status(), error.message)));
    reply(rmp_serde::to_vec(&obeyed).unwrap_or_default().into());
}
