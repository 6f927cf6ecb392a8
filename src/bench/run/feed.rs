//! Readers of the change feed beside a run: they must see every live item and no expired one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared::{RunState, retry_after};
use crate::bench::check::{AnswerVerdict, Exchange, seen_items};
use crate::bench::load::{Script, Scripts, scripts};
use crate::bench::request::CosmosRequest;
use crate::client::connection::RawAnswer;
use crate::client::{Signer, unix_time};

/// Items of a page.
const PAGE_ITEMS: &str = "500";
/// How long a reader that has seen everything waits before it asks again.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

pub struct FeedReader {
    shared: Arc<RunState>,
    signer: Signer,
    ranges: Vec<Range>,
    turn: usize,
    sent: f64,
    /// The request was sent when nothing was written any more.
    asked_in_drain: bool,
    wait: Option<Duration>,
    request: Vec<u8>,
}

#[derive(Clone)]
struct Range {
    id: String,
    /// Where it goes on.
    etag: Option<String>,
    /// Its last page, asked for when nothing was written any more, was empty.
    is_drained: bool,
}

impl FeedReader {
    /// One script for each reader; each reads all ranges.
    pub fn spread(shared: &Arc<RunState>, signers: &[Signer], range_ids: &[String]) -> Scripts {
        let range = |id: &String| Range {
            id: id.clone(),
            etag: None,
            is_drained: false,
        };
        scripts(signers, |signer| Self {
            shared: Arc::clone(shared),
            signer: signer.clone(),
            ranges: range_ids.iter().map(range).collect(),
            turn: 0,
            sent: 0.0,
            asked_in_drain: false,
            wait: None,
            request: Vec::new(),
        })
    }
}

impl Script for FeedReader {
    fn next(&mut self) -> Option<&[u8]> {
        if self.ranges.iter().all(|range| range.is_drained) {
            return None;
        }
        self.turn = (self.turn + 1) % self.ranges.len();
        let range = self.ranges.get(self.turn)?;
        let mut request = CosmosRequest::below("GET", &self.shared.link, "docs")
            .header("a-im", "Incremental Feed")
            .header("x-ms-max-item-count", PAGE_ITEMS)
            .header("x-ms-documentdb-partitionkeyrangeid", range.id.as_str());
        if let Some(etag) = &range.etag {
            request = request.header("if-none-match", etag.as_str());
        }
        // An empty page is the end of the feed only for a request sent after the last write.
        self.asked_in_drain = self.shared.drains.load(Ordering::Acquire);
        self.sent = unix_time();
        self.request.clear();
        request.write(&mut self.request, &self.signer, self.sent as u64);
        Some(&self.request)
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        let exchange = Exchange {
            request: &self.request,
            answer,
            answered: unix_time(),
        };
        let Some(range) = self.ranges.get_mut(self.turn) else {
            return false;
        };
        if let Some(etag) = answer.header("etag") {
            range.etag = Some(etag.to_owned());
        }
        match answer.status {
            200 => {
                let Some(items) = seen_items(answer.body) else {
                    return false;
                };
                let mut verdict = AnswerVerdict::Right;
                for seen in items.iter().filter(|_| self.shared.is_checked) {
                    verdict = self.shared.checker.fed(seen, self.sent, &exchange);
                }
                verdict != AnswerVerdict::Failed
            }
            304 => {
                range.is_drained = self.asked_in_drain;
                self.wait = (!self.asked_in_drain).then_some(IDLE_INTERVAL);
                true
            }
            429 => {
                self.wait = Some(retry_after(&answer));
                false
            }
            _ => false,
        }
    }

    fn pause(&mut self) -> Option<Duration> {
        self.wait.take()
    }

    fn unanswered(&mut self) -> bool {
        true
    }
}
