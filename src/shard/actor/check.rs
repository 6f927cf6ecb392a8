//! The actor's part in a check of all replicas.

use actix::prelude::*;
use tokio::sync::oneshot;

use super::Shard;
use crate::{
    model::error::Result,
    shard::{
        commit::{Reply, Waiting},
        state::command::Change,
    },
};

/// Asks all replicas for a digest, by a number that nobody else uses.
#[derive(Message)]
#[rtype(result = "()")]
pub struct BeginCheck {
    pub number: u64,
    pub reply: oneshot::Sender<Result<Reply>>,
}

impl Handler<BeginCheck> for Shard {
    type Result = ();

    fn handle(&mut self, request: BeginCheck, context: &mut Self::Context) {
        if let Err(error) = self.check_writable() {
            let _ = request.reply.send(Err(error));
            return;
        }
        let at = self.view.clock.now().max(self.decided.ts);
        self.stage(at, vec![Change::Check(request.number)]);
        self.next.waiting.push(Waiting {
            reply: request.reply,
            results: Vec::new(),
            lsn: self.decided.lsn,
            range_id: self.view.facts.range_id,
        });
        self.commit(context);
    }
}
