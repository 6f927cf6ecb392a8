//! Replicas on the move. The catalog says who is to have what; the groups see to it; what is done is noted, and what is next begun, by whoever leads the catalog. A new leader
//! goes on from the catalog.

use std::{collections::BTreeMap, sync::Arc};

use actix::{fut, prelude::*};
use tracing::{info, warn};

use super::Coordinator;
use crate::{
    model::{
        catalog::{Catalog, Standing},
        error::{Error, Result},
    },
    shard::host::group_of_range,
};

/// A node is to give its replicas away; it may be stopped when it is off the list.
#[derive(Message)]
#[rtype(result = "Result<()>")]
pub struct Drain(pub u64);

/// A node wants to come in, under this number (0: any) and address. Its number, and the addresses of all nodes.
#[derive(Message)]
#[rtype(result = "Result<(u64, BTreeMap<u64, String>)>")]
pub struct Admit(pub u64, pub String);

/// Asks whether a node was a member of the cluster and is not any more. Numbers are given once, so
/// a catalog that has given the number and does not name it says so for good.
#[derive(Message)]
#[rtype(result = "bool")]
pub struct IsTakenOut(pub u64);

impl Handler<IsTakenOut> for Coordinator {
    type Result = bool;

    fn handle(&mut self, IsTakenOut(node): IsTakenOut, _: &mut Self::Context) -> bool {
        let catalog = &self.catalog;
        !catalog.nodes.is_empty()
            && !catalog.nodes.contains_key(&node)
            && node <= catalog.highest_node()
    }
}

impl Handler<Admit> for Coordinator {
    type Result = AtomicResponse<Self, Result<(u64, BTreeMap<u64, String>)>>;

    fn handle(&mut self, Admit(node, address): Admit, _: &mut Self::Context) -> Self::Result {
        let Some(meta) = &self.meta else {
            let alone = Error::bad_request("this node is on its own");
            return AtomicResponse::new(Box::pin(fut::ready(Err(alone))));
        };
        let mut catalog = Catalog::clone(&self.catalog);
        meta.name_nodes(&mut catalog);
        let admitted = meta
            .check_leads()
            .and_then(|()| catalog.admit_node(node, &address));
        let node = match admitted {
            Ok(node) => node,
            Err(error) => return AtomicResponse::new(Box::pin(fut::ready(Err(error)))),
        };
        let nodes = catalog.nodes.iter();
        let nodes = nodes
            .map(|(node, record)| (*node, record.address.clone()))
            .collect();
        if catalog.version == self.catalog.version {
            return AtomicResponse::new(Box::pin(fut::ready(Ok((node, nodes)))));
        }
        info!(node, %address, "a node comes in");
        AtomicResponse::new(Box::pin(
            self.store(catalog)
                .map(move |stored, _, _| stored.map(|()| (node, nodes))),
        ))
    }
}

impl Handler<Drain> for Coordinator {
    type Result = AtomicResponse<Self, Result<()>>;

    fn handle(&mut self, Drain(node): Drain, _: &mut Self::Context) -> Self::Result {
        let refuse = |error: Error| -> AtomicResponse<Self, Result<()>> {
            AtomicResponse::new(Box::pin(fut::ready(Err(error))))
        };
        let Some(meta) = &self.meta else {
            return refuse(Error::bad_request("this node is on its own"));
        };
        let mut catalog = Catalog::clone(&self.catalog);
        meta.name_nodes(&mut catalog);
        let drained = meta.check_leads().and_then(|()| catalog.drain_node(node));
        match drained {
            Ok(()) => {
                info!(node, "the node is drained");
                AtomicResponse::new(self.store(catalog))
            }
            Err(error) => refuse(error),
        }
    }
}

impl Coordinator {
    /// Looks how far moves are, if there are any and this node leads the catalog.
    pub(super) fn look_after_moves(&mut self, context: &mut Context<Self>) {
        let Some(meta) = self.meta.clone() else {
            return;
        };
        if self.looking_after_moves || !self.catalog.is_moving() || meta.check_leads().is_err() {
            return;
        }
        self.looking_after_moves = true;
        let member = Arc::clone(&meta.member);
        let asked = async move { member.group_members().await };
        context.spawn(asked.into_actor(self).map(|members, coordinator, context| {
            coordinator.looking_after_moves = false;
            let mut catalog = Catalog::clone(&coordinator.catalog);
            let changed = catalog.advance_moves(|container, range| {
                let members = members.get(&group_of_range(container, range))?;
                Some(Standing {
                    voters: members.voters.clone(),
                    learners: members.learners.clone(),
                })
            });
            if changed {
                context.wait(coordinator.store(catalog).map(|stored, _, _| {
                    if let Err(failure) = stored {
                        warn!(%failure, "moves could not be recorded yet");
                    }
                }));
            }
        }));
    }
}
