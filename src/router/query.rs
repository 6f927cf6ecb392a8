//! Runs a query over the items in its scope. Rows of a streaming query leave page by page as the items are read; others are
//! worked out whole and handed out in pages.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actix::prelude::*;
use serde_json::Value;

use super::{
    Answer, ContainerRoute, Router,
    actor::{ItemsPage, PageBounds, ReadPage, Scope, off_the_event_loop},
    continuation::{KeyContinuation, Resume},
    session::SessionToken,
};
use crate::{
    model::error::{Error, Result},
    sql::{Flow, Query},
};

/// Items read from the shards at a time.
const READ_ITEMS: usize = 256;
/// How long one page may work before it is handed out, full or not.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);

/// Runs a query; answers with one page of rows.
#[derive(Message)]
#[rtype(result = "Result<Answer<QueryPage>>")]
pub struct RunQuery {
    pub container: Arc<ContainerRoute>,
    pub query: Query,
    pub scope: Scope,
    pub continuation: Option<KeyContinuation>,
    pub bounds: PageBounds,
    pub session: Option<SessionToken>,
}

#[derive(Debug, Default)]
pub struct QueryPage {
    /// Rows as JSON.
    pub rows: Vec<Vec<u8>>,
    pub continuation: Option<KeyContinuation>,
    pub examined: usize,
}

impl Handler<RunQuery> for Router {
    type Result = ResponseFuture<Result<Answer<QueryPage>>>;

    fn handle(&mut self, request: RunQuery, _: &mut Self::Context) -> Self::Result {
        Box::pin(off_the_event_loop(move || {
            if request.query.is_streaming() && request.query.reads_items() {
                request.stream()
            } else {
                request.run_whole()
            }
        }))
    }
}

impl RunQuery {
    fn next_items(
        &self,
        continuation: Option<KeyContinuation>,
        items_max: usize,
    ) -> Result<Answer<ItemsPage>> {
        let page = ReadPage {
            container: Arc::clone(&self.container),
            scope: self.scope.clone(),
            continuation,
            bounds: PageBounds {
                items_max,
                bytes_max: self.bounds.bytes_max,
            },
            session: self.session.clone(),
        };
        page.read()
    }

    /// The window of rows, of all that the query finds, that the client wants.
    fn window(&self) -> (u64, u64) {
        let (mut first, mut last) = (0, u64::MAX);
        if let Some(window) = self.query.offset_limit() {
            first = window.offset;
            last = window.offset.saturating_add(window.limit);
        }
        (
            first,
            self.query
                .top()
                .map_or(last, |top| last.min(first.saturating_add(top))),
        )
    }

    fn stream(&self) -> Result<Answer<QueryPage>> {
        let (first, last) = self.window();
        let started = Instant::now();
        let mut page = QueryPage::default();
        let mut bytes = 0;
        let mut continuation = self.continuation.clone();
        let mut found = continuation.as_ref().map_or(0, |from| from.rows);
        let mut skip = continuation.as_ref().map_or(0, |from| from.within);
        loop {
            let wanted = (self.bounds.items_max - page.rows.len()).min(READ_ITEMS);
            let Answer {
                value: items,
                range_id,
                lsn,
            } = self.next_items(continuation, wanted)?;
            for item in items.items {
                let value = parse(item.stored.body())?;
                page.examined += 1;
                let mut within = 0;
                let flow = self.query.project_each(&value, &mut |row| {
                    if within >= skip {
                        if found >= last {
                            return Ok(Flow::Enough);
                        }
                        if found >= first {
                            let row = row.to_string().into_bytes();
                            if !page.rows.is_empty()
                                && (page.rows.len() >= self.bounds.items_max
                                    || bytes + row.len() > self.bounds.bytes_max)
                            {
                                return Ok(Flow::Enough);
                            }
                            bytes += row.len();
                            page.rows.push(row);
                        }
                        found += 1;
                    }
                    within += 1;
                    Ok(Flow::More)
                })?;
                if flow == Flow::Enough {
                    let here = KeyContinuation {
                        range_id: item.range_id,
                        resume: Resume::at(item.key),
                        rows: found,
                        within,
                    };
                    page.continuation = Some(here).filter(|_| found < last);
                    return Ok(Answer {
                        value: page,
                        range_id,
                        lsn,
                    });
                }
                skip = 0;
            }
            continuation = items.continuation.map(|next| KeyContinuation {
                rows: found,
                ..next
            });
            let full = page.rows.len() >= self.bounds.items_max
                || bytes >= self.bounds.bytes_max
                || started.elapsed() > PAGE_TIME_MAX;
            if found >= last || continuation.is_none() || full {
                page.continuation = continuation.filter(|_| found < last);
                return Ok(Answer {
                    value: page,
                    range_id,
                    lsn,
                });
            }
        }
    }

    fn run_whole(&self) -> Result<Answer<QueryPage>> {
        let mut execution = self.query.start();
        let mut examined = 0;
        let mut continuation = None;
        let (range_id, lsn) = loop {
            let Answer {
                value: items,
                range_id,
                lsn,
            } = self.next_items(continuation, READ_ITEMS)?;
            if !self.query.reads_items() {
                execution.push(&Value::Null)?;
                break (range_id, lsn);
            }
            let mut flow = Flow::More;
            for item in &items.items {
                examined += 1;
                flow = execution.push(&parse(item.stored.body())?)?;
                if flow == Flow::Enough {
                    break;
                }
            }
            continuation = items.continuation;
            if continuation.is_none() || flow == Flow::Enough {
                break (range_id, lsn);
            }
        };
        let skip = self
            .continuation
            .as_ref()
            .map_or(0, |continuation| continuation.rows);
        let mut page = QueryPage {
            examined,
            ..QueryPage::default()
        };
        let mut bytes = 0;
        let all = execution.finish()?;
        let rest = all.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX));
        for (handed_out, row) in (skip..).zip(rest) {
            if page.rows.len() >= self.bounds.items_max || bytes >= self.bounds.bytes_max {
                page.continuation = Some(KeyContinuation {
                    rows: handed_out,
                    ..KeyContinuation::at(range_id, Resume::Start)
                });
                break;
            }
            let row = row.to_string().into_bytes();
            bytes += row.len();
            page.rows.push(row);
        }
        Ok(Answer {
            value: page,
            range_id,
            lsn,
        })
    }
}

fn parse(body: &[u8]) -> Result<Value> {
    serde_json::from_slice(body).map_err(|_| Error::internal("a stored item is not JSON"))
}
