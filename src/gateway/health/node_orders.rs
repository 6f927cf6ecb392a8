//! Orders about the cluster: of the operator, and of nodes that want to come in. Any node takes them; the one that leads the catalog carries them out.

use std::{collections::BTreeMap, sync::Arc};

use actix::Addr;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    cluster::{
        NodeId,
        member::Member,
        transport::{
            join::{JoinRequest, JoinResponse, Welcome},
            message::{PeerRequest, Reply},
        },
    },
    coordinator::{
        Coordinator,
        moves::{Admit, Drain, IsTakenOut},
    },
    model::error::{Error, ErrorKind, Result},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    Drain(NodeId),
    Admit(NodeId, String),
}

/// What became of an order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Done {
    Draining,
    Admitted(NodeId, BTreeMap<NodeId, String>),
}

/// Status and message of a refusal.
pub type Refusal = (u16, String);

fn refusal(error: Error) -> Refusal {
    (error.status(), error.message)
}

async fn carry_out(coordinator: &Addr<Coordinator>, order: Order) -> Result<Done> {
    let gone = |_| Error::unavailable("the node is stopping");
    match order {
        Order::Drain(node) => {
            let drained = coordinator.send(Drain(node)).await.map_err(gone)?;
            drained.map(|()| Done::Draining)
        }
        Order::Admit(node, address) => {
            let admitted = coordinator.send(Admit(node, address)).await.map_err(gone)?;
            admitted.map(|(node, nodes)| Done::Admitted(node, nodes))
        }
    }
}

/// Carries an order out here or, where that cannot be, by the node that leads the catalog.
pub async fn give(
    member: &Member,
    coordinator: &Addr<Coordinator>,
    order: Order,
) -> Result<Done, Refusal> {
    let leader = match carry_out(coordinator, order.clone()).await {
        Err(Error {
            kind: ErrorKind::NotLeader(Some(leader)),
            ..
        }) if leader != member.node => leader,
        done => return done.map_err(refusal),
    };
    let order = rmp_serde::to_vec(&order).unwrap_or_default();
    let answer = member.call(leader, PeerRequest::Order(order.into())).await;
    let answer = answer.map_err(|_| {
        refusal(Error::unavailable(format!(
            "node {leader}, which leads the catalog, does not answer"
        )))
    })?;
    rmp_serde::from_slice(&answer)
        .unwrap_or_else(|failure| Err((500, format!("node {leader} answered garbage: {failure}"))))
}

/// Answers another node that passes an order on.
pub async fn obey(coordinator: Addr<Coordinator>, order: Bytes, reply: Reply) {
    let done = match rmp_serde::from_slice(&order) {
        Ok(order) => carry_out(&coordinator, order).await,
        Err(failure) => Err(Error::bad_request(format!(
            "an order cannot be read: {failure}"
        ))),
    };
    let done: Result<Done, Refusal> = done.map_err(refusal);
    reply(rmp_serde::to_vec(&done).unwrap_or_default().into());
}

/// Answers a node that wants to come in.
pub async fn admit(
    member: Arc<Member>,
    coordinator: Addr<Coordinator>,
    request: JoinRequest,
    reply: Reply,
) {
    if request.asks_only {
        let verdict = match coordinator.send(IsTakenOut(request.node)).await {
            Ok(true) => JoinResponse::Removed,
            Ok(false) | Err(_) => JoinResponse::Later("nothing else is known".to_owned()),
        };
        return reply(verdict.encode());
    }
    let order = Order::Admit(request.node, request.address);
    let verdict = match give(&member, &coordinator, order).await {
        Ok(Done::Admitted(node, nodes)) => JoinResponse::Welcome(Welcome { node, nodes }),
        Ok(Done::Draining) => JoinResponse::Later("the cluster answered something else".to_owned()),
        Err((400..500, why)) => JoinResponse::Refused(why),
        Err((_, why)) => JoinResponse::Later(why),
    };
    reply(verdict.encode());
}
