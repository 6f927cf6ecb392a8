//! Looks at the end of a run whether everything that was acknowledged is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::shared::RunState;
use crate::bench::check::{AnswerVerdict, Exchange, Expectation, Seen};
use crate::bench::load::{Script, Scripts, scripts};
use crate::bench::request::CosmosRequest;
use crate::client::connection::RawAnswer;
use crate::client::{Signer, unix_time};

/// Items that are looked at, spread over all.
const ITEMS_MAX: usize = 20_000;

/// Reads of the items that were written, each once.
pub struct Audit {
    shared: Arc<RunState>,
    signer: Signer,
    items: Arc<Vec<u64>>,
    turn: Arc<AtomicUsize>,
    expected: Option<Expectation>,
    /// The last answer showed this old version: it is looked at once more.
    doubt: Option<u32>,
    request: Vec<u8>,
}

impl Audit {
    pub fn spread(shared: &Arc<RunState>, signers: &[Signer]) -> Scripts {
        let items = shared.checker.model.items();
        let step = items.len().div_ceil(ITEMS_MAX).max(1);
        let items: Arc<Vec<u64>> = Arc::new(items.into_iter().step_by(step).collect());
        let turn = Arc::new(AtomicUsize::new(0));
        scripts(signers, |signer| Self {
            shared: Arc::clone(shared),
            signer: signer.clone(),
            items: Arc::clone(&items),
            turn: Arc::clone(&turn),
            expected: None,
            doubt: None,
            request: Vec::new(),
        })
    }
}

impl Script for Audit {
    fn next(&mut self) -> Option<&[u8]> {
        if self.doubt.is_some() {
            return Some(&self.request);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let number = *self.items.get(turn)?;
        let now = unix_time();
        let expected = self.shared.expect(number, now);
        let mut request = CosmosRequest::item(&self.shared.link, number);
        if let Some(token) = &expected.token {
            request = request.header("x-ms-session-token", &**token);
        }
        self.request.clear();
        request.write(&mut self.request, &self.signer, now as u64);
        self.expected = Some(expected);
        Some(&self.request)
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        let exchange = Exchange {
            request: &self.request,
            answer,
            answered: unix_time(),
        };
        let Some(expected) = &self.expected else {
            return false;
        };
        let checker = &self.shared.checker;
        let verdict = checker.read(expected, &exchange);
        match (verdict, self.doubt.take()) {
            (AnswerVerdict::Older, None) => {
                self.doubt = Some(Seen::of(answer.body).map_or(0, |seen| seen.version));
            }
            // All writes are over: what is old twice stays so.
            (verdict, Some(version)) => {
                let is_lost = verdict == AnswerVerdict::Older;
                checker.older_confirmed(expected, version, is_lost, &exchange);
            }
            (_, None) => {}
        }
        verdict != AnswerVerdict::Failed
    }

    fn goes_on(&self) -> bool {
        self.doubt.is_some()
    }

    fn unanswered(&mut self) -> bool {
        true
    }
}
