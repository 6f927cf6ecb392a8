//! Queries over the items of a container: a query and a scope enter, one page of rows and a token for the next one leave.
//!
//! A page is worked on in slices on the blocking pool: a short query is over in its first one, long ones take turns. One that looks for a value and
//! finds few items is over before that, on the thread that took the request in, as a point read is. [`scope`] says what must be
//! looked into, [`run`] walks over it, [`modes`] are the three ways to rows, [`position`] and [`token`] say where the next page begins, and [`room`]
//! is what the queries of a node share. [`meter`] counts the memory of a query, [`memory`] bounds that of all.

mod memory;
mod meter;
mod modes;
mod position;
mod room;
mod rows;
mod run;
mod scope;
mod token;
mod top;

use std::sync::Arc;

use actix::prelude::*;

pub use meter::QueryMeter;
pub use position::Position;
pub use room::QueryRoom;
pub use rows::Rows;
pub use run::{Progress, QueryPage, Run, Work};
pub use scope::key_ranges;
pub use token::{Fingerprint, Token};

use super::{
    Answer, ContainerRoute, Router,
    actor::{PageBounds, Scope, off_the_event_loop},
    session::SessionToken,
};
use crate::{model::error::Result, sql::Query};

/// A query to be run, up to one page of rows.
#[derive(Clone)]
pub struct RunQuery {
    pub container: Arc<ContainerRoute>,
    pub query: Arc<Query>,
    pub scope: Scope,
    pub token: Option<Token>,
    /// Where the rows of an ORDER BY begin.
    pub resume: Option<Position>,
    pub bounds: PageBounds,
    pub session: Option<SessionToken>,
    /// Whether a container without an index may be scanned.
    pub scan_allowed: bool,
    /// Its memory so far; knows whether anybody waits for the answer.
    pub meter: Arc<QueryMeter>,
}

/// Works on a query that was not over at [first glance](Run::glance); answers with one page of rows.
#[derive(Message)]
#[rtype(result = "Result<Answer<QueryPage>>")]
pub struct GoOn(pub Box<Run>);

impl Handler<GoOn> for Router {
    type Result = ResponseFuture<Result<Answer<QueryPage>>>;

    fn handle(&mut self, GoOn(mut run): GoOn, _: &mut Self::Context) -> Self::Result {
        let room = Arc::clone(&self.queries);
        Box::pin(async move {
            let mut first = true;
            loop {
                let turn = room.turn(first).await?;
                let progress = off_the_event_loop(move || run.slice(turn)).await?;
                match progress {
                    Progress::Page(page) => return Ok(*page),
                    Progress::More(unfinished) => run = unfinished,
                }
                first = false;
            }
        })
    }
}
