//! Queries over the items of a container: a query and a scope enter, one page of rows and a token for the next one leave.
//!
//! A page is worked on in slices on the blocking pool: a short query is over in its first one, long ones take turns. One that looks for a value and
//! finds few items is over before that, on the router's own thread, as a point read is. [`scope`] says what must be
//! looked into, [`run`] walks over it, [`modes`] are the three ways to rows, [`position`] and [`token`] say where the next page begins, and [`room`]
//! is what the queries of a node share.

mod modes;
mod position;
mod room;
mod rows;
mod run;
mod scope;
mod token;
mod top;

use std::sync::{Arc, Weak};

use actix::prelude::*;

pub use position::Position;
pub use room::QueryRoom;
pub use rows::Rows;
pub use run::{QueryPage, Work};
pub use scope::key_ranges;
pub use token::{Fingerprint, Token};

use self::run::{Progress, Run};
use super::{
    Answer, ContainerRoute, Router,
    actor::{PageBounds, SPLITS_MET_MAX, Scope, off_the_event_loop},
    session::SessionToken,
};
use crate::{
    model::error::{Error, ErrorKind, Result},
    sql::Query,
};

/// Runs a query; answers with one page of rows.
#[derive(Clone, Message)]
#[rtype(result = "Result<Answer<QueryPage>>")]
pub struct RunQuery {
    pub container: Arc<ContainerRoute>,
    pub query: Arc<Query>,
    pub fingerprint: Fingerprint,
    pub scope: Scope,
    pub token: Option<Token>,
    /// Where the rows of an ORDER BY begin.
    pub resume: Option<Position>,
    pub bounds: PageBounds,
    pub session: Option<SessionToken>,
    /// Whether a container without an index may be scanned.
    pub scan_allowed: bool,
    /// Held by whoever waits for the answer; when it is gone the work stops.
    pub alive: Weak<()>,
}

impl Handler<RunQuery> for Router {
    type Result = ResponseFuture<Result<Answer<QueryPage>>>;

    fn handle(&mut self, request: RunQuery, _: &mut Self::Context) -> Self::Result {
        let room = Arc::clone(&self.queries);
        Box::pin(async move {
            let names_no_range = request.scope.range_id.is_none();
            for _ in 1..SPLITS_MET_MAX {
                match page(request.clone(), &room).await {
                    // A split has cut it off: it begins again, in what the range was split into.
                    Err(error) if error.kind == ErrorKind::RangeGone && names_no_range => {}
                    answered => return answered,
                }
            }
            page(request, &room).await
        })
    }
}

async fn page(request: RunQuery, room: &Arc<QueryRoom>) -> Result<Answer<QueryPage>> {
    let mut run = match Run::new(request, room)?.glance()? {
        Progress::Page(page) => return Ok(*page),
        Progress::More(unfinished) => unfinished,
    };
    let mut first = true;
    loop {
        let turn = room.turn(first).await?;
        if run.is_abandoned() {
            return Err(Error::unavailable("nobody waits for the query any more"));
        }
        let progress = off_the_event_loop(move || run.slice()).await?;
        drop(turn);
        match progress {
            Progress::Page(page) => return Ok(*page),
            Progress::More(unfinished) => run = unfinished,
        }
        first = false;
    }
}
