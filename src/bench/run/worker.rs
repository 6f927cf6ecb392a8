//! What one connection of a run does: an operation after the other, each checked.

use std::sync::Arc;
use std::time::Duration;

use super::shared::{Shared, retry_after};
use crate::bench::check::{Exchange, Expectation, Life, Seen, Ticket, Verdict, seen_items};
use crate::bench::connection::Answer;
use crate::bench::item::{self, Random};
use crate::bench::load::Script;
use crate::bench::request::{Request, partition_key_header};
use crate::bench::signer::{Signer, unix_time};
use crate::bench::workload::{Chooser, Operation, PARTITION_ITEMS};

/// An old version is looked at this often again before the write counts as lost.
const LOOKS_MAX: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(100);

pub struct Worker {
    shared: Arc<Shared>,
    signer: Signer,
    /// Which endpoint it speaks to.
    endpoint: usize,
    random: Random,
    chooser: Chooser,
    operation: usize,
    step: Step,
    /// What the operation still has to do.
    rest: Option<Rest>,
    wait: Option<Duration>,
    sent: f64,
    body: Vec<u8>,
    request: Vec<u8>,
}

/// The request that is under way.
enum Step {
    Nothing,
    Read(Expectation),
    Write(Operation, Expectation, Ticket),
    Scan(Vec<Expectation>, u32),
    /// A second look at an item that showed an old version.
    Look(Doubt),
}

/// Another request of the same operation.
enum Rest {
    /// The write of a read-modify-write.
    Update(u64),
    Look(Doubt),
}

/// An answer that showed an old version, kept until it is clear what it means.
struct Doubt {
    expected: Expectation,
    version: u32,
    looks: u32,
    request: Vec<u8>,
    head: Vec<u8>,
    body: Vec<u8>,
    answered: f64,
}

impl Worker {
    /// One script for each connection; the signers are theirs, with the endpoint of each.
    pub fn spread(
        shared: &Arc<Shared>,
        signers: &[(usize, Signer)],
        seed: u64,
    ) -> Vec<Box<dyn Script>> {
        let mut seeds = Random::new(seed);
        let script = |(endpoint, signer): &(usize, Signer)| {
            Box::new(Self {
                shared: Arc::clone(shared),
                signer: signer.clone(),
                endpoint: *endpoint,
                random: Random::new(seeds.next()),
                chooser: Chooser::new(&shared.workload.keys),
                operation: 0,
                step: Step::Nothing,
                rest: None,
                wait: None,
                sent: 0.0,
                body: Vec::new(),
                request: Vec::new(),
            }) as Box<dyn Script>
        };
        signers.iter().map(script).collect()
    }

    fn choose_operation(&mut self) -> Operation {
        let shares = &self.shared.workload.operations;
        let mut left = self.random.below(shares.values().sum());
        let operations = self.shared.operations.iter().enumerate();
        for (index, operation) in operations {
            let share = shares.get(operation).copied().unwrap_or(0);
            if left < share {
                self.operation = index;
                return *operation;
            }
            left -= share;
        }
        Operation::Read
    }

    fn choose_item(&mut self) -> u64 {
        let inserted = &self.shared.inserted;
        self.chooser
            .choose(&mut self.random, inserted, self.sent as u64)
    }

    fn begin(&mut self, operation: Operation) {
        match operation {
            Operation::Read | Operation::ReadModifyWrite => {
                let number = self.choose_item();
                self.read(number);
            }
            Operation::Scan => {
                let number = self.choose_item();
                self.scan(number);
            }
            Operation::Insert => {
                let number = self.shared.inserted.next();
                self.write(operation, number);
            }
            Operation::Update | Operation::Upsert | Operation::Delete => {
                let number = self.choose_item();
                self.write(operation, number);
            }
        }
    }

    fn read(&mut self, number: u64) {
        let expected = self.shared.expect(number, self.sent);
        self.write_read(&expected);
        self.step = Step::Read(expected);
    }

    fn write_read(&mut self, expected: &Expectation) {
        let path = self.item_path(expected.item);
        self.send("GET", &path, expected, &[]);
    }

    fn write(&mut self, operation: Operation, number: u64) {
        let shared = Arc::clone(&self.shared);
        let expected = shared.expect(number, self.sent);
        let ttl = shared.workload.items.ttl;
        let life = match (operation, ttl) {
            (Operation::Delete, _) => Life::Absent,
            (_, Some(ttl)) => Life::After(ttl),
            (_, None) => Life::Inherits,
        };
        let ticket = shared.begin(number, life, self.sent);
        self.body.clear();
        if operation != Operation::Delete {
            let item = shared.item(number, ticket.version, ttl.map(u64::from));
            item.write(&mut self.body);
        }
        match operation {
            Operation::Insert | Operation::Upsert => {
                let path = format!("/{}/docs", shared.link);
                let upsert = [("x-ms-documentdb-is-upsert", "True")];
                let headers: &[_] = if operation == Operation::Upsert {
                    &upsert
                } else {
                    &[]
                };
                self.send("POST", &path, &expected, headers);
            }
            Operation::Delete => {
                let path = self.item_path(number);
                self.send("DELETE", &path, &expected, &[]);
            }
            _ => {
                let path = self.item_path(number);
                self.send("PUT", &path, &expected, &[]);
            }
        }
        self.step = Step::Write(operation, expected, ticket);
    }

    /// Items of one partition key, from this one on, in the order of their ids.
    fn scan(&mut self, first: u64) {
        let end = (first / PARTITION_ITEMS + 1) * PARTITION_ITEMS;
        let limit = self.chooser.scan_items(&mut self.random);
        let expected: Vec<Expectation> = (first..end)
            .map(|number| self.shared.expect(number, self.sent))
            .collect();
        self.body.clear();
        let query = serde_json::json!({
            "query": format!(
                "SELECT * FROM c WHERE c.id >= @first ORDER BY c.id OFFSET 0 LIMIT {limit}"
            ),
            "parameters": [{ "name": "@first", "value": item::id(first) }],
        });
        self.body.extend_from_slice(query.to_string().as_bytes());
        let path = format!("/{}/docs", self.shared.link);
        let headers = [
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-max-item-count", "100"),
        ];
        let Some(at_first) = expected.first() else {
            return;
        };
        // One token is enough: all of them are of one partition key.
        let latest = expected
            .iter()
            .filter_map(|expected| expected.token.clone());
        let mut addressed = at_first.clone();
        addressed.token = latest.max_by_key(|token| lsn_of(token));
        self.send("POST", &path, &addressed, &headers);
        self.step = Step::Scan(expected, limit);
    }

    fn item_path(&self, number: u64) -> String {
        format!("/{}/docs/{}", self.shared.link, item::id(number))
    }

    /// Puts the request together.
    fn send(
        &mut self,
        verb: &'static str,
        path: &str,
        expected: &Expectation,
        more: &[(&str, &str)],
    ) {
        let key = partition_key_header(&item::partition_key(expected.item));
        let mut headers = vec![("x-ms-documentdb-partitionkey", key.as_str())];
        if let Some(token) = &expected.token {
            headers.push(("x-ms-session-token", token));
        }
        headers.extend_from_slice(more);
        let is_query = more.iter().any(|(name, _)| name.ends_with("isquery"));
        let link = match verb {
            "POST" => self.shared.link.as_str(),
            _ => path.trim_start_matches('/'),
        };
        let has_body = matches!(verb, "POST" | "PUT");
        let request = Request {
            verb,
            path,
            resource_type: "docs",
            link,
            headers,
            body: if has_body { &self.body } else { b"" },
        };
        self.request.clear();
        let (target, second) = (&mut self.request, self.sent as u64);
        match is_query {
            true => request.write_query(target, &self.signer, second),
            false => request.write(target, &self.signer, second),
        }
    }

    fn judge(&mut self, exchange: &Exchange<'_>) -> Verdict {
        let shared = Arc::clone(&self.shared);
        let checker = &shared.checker;
        match std::mem::replace(&mut self.step, Step::Nothing) {
            Step::Nothing => Verdict::Failed,
            Step::Read(expected) => {
                let verdict = checker.read(&expected, exchange);
                match verdict {
                    Verdict::Older => self.doubt(expected, exchange),
                    Verdict::Right if self.is_read_modify_write() => {
                        self.rest = Some(Rest::Update(expected.item));
                    }
                    _ => {}
                }
                verdict
            }
            Step::Write(operation, expected, ticket) => {
                let written = Written {
                    operation,
                    expected: &expected,
                    ticket,
                };
                written.judge(&shared, exchange)
            }
            Step::Scan(expected, limit) => judge_scan(&shared, &expected, limit, exchange),
            Step::Look(doubt) => self.look_again(doubt, exchange),
        }
    }

    fn is_read_modify_write(&self) -> bool {
        self.shared.operations.get(self.operation) == Some(&Operation::ReadModifyWrite)
    }

    fn doubt(&mut self, expected: Expectation, exchange: &Exchange<'_>) {
        let answer = exchange.answer;
        let version = Seen::of(answer.body).map_or(0, |seen| seen.version);
        self.rest = Some(Rest::Look(Doubt {
            expected,
            version,
            looks: 0,
            request: exchange.request.to_owned(),
            head: answer.head.to_owned(),
            body: answer.body.to_owned(),
            answered: exchange.answered,
        }));
    }

    /// The old version is still there, or it was only a stale answer.
    fn look_again(&mut self, mut doubt: Doubt, exchange: &Exchange<'_>) -> Verdict {
        doubt.looks += 1;
        let seen = Seen::of(exchange.answer.body).filter(|_| exchange.answer.status == 200);
        let is_old = seen.is_some_and(|seen| seen.version <= doubt.version);
        if is_old && doubt.looks < LOOKS_MAX {
            self.wait = Some(LOOK_PAUSE);
            self.rest = Some(Rest::Look(doubt));
            return Verdict::Older;
        }
        let first = Exchange {
            request: &doubt.request,
            answer: Answer {
                status: 200,
                head: &doubt.head,
                body: &doubt.body,
            },
            answered: doubt.answered,
        };
        let checker = &self.shared.checker;
        checker.older_confirmed(&doubt.expected, doubt.version, is_old, &first)
    }
}

/// What a session token counts, for tokens of one range.
fn lsn_of(token: &str) -> u64 {
    let lsn = token.split('#').nth(1).unwrap_or_default();
    lsn.parse().unwrap_or(0)
}

/// A write and what is known of it.
struct Written<'a> {
    operation: Operation,
    expected: &'a Expectation,
    ticket: Ticket,
}

impl Written<'_> {
    fn judge(&self, shared: &Shared, exchange: &Exchange<'_>) -> Verdict {
        let checker = &shared.checker;
        let (expected, own) = (self.expected, self.ticket.version);
        let status = exchange.answer.status;
        let creates = matches!(self.operation, Operation::Insert | Operation::Upsert);
        match status {
            200 | 201 | 204 => {
                let verdict = match status {
                    201 => match checker.missed(expected, own, exchange) {
                        Verdict::Gone => Verdict::Right,
                        wrong => wrong,
                    },
                    _ => checker.found(expected, own, exchange),
                };
                checker.written(self.ticket, expected.sent, exchange);
                verdict
            }
            404 if !creates => {
                let verdict = checker.missed(expected, own, exchange);
                checker.model.refused(self.ticket);
                verdict
            }
            409 if self.operation == Operation::Insert => {
                let verdict = checker.found(expected, own, exchange);
                checker.model.refused(self.ticket);
                match verdict {
                    Verdict::Right => Verdict::Failed,
                    wrong => wrong,
                }
            }
            // These say that nothing was done.
            400..=407 | 409..=448 => {
                checker.model.refused(self.ticket);
                Verdict::Failed
            }
            _ => {
                checker.unknown(self.ticket, exchange.answered);
                Verdict::Failed
            }
        }
    }
}

fn judge_scan(
    shared: &Shared,
    expected: &[Expectation],
    limit: u32,
    exchange: &Exchange<'_>,
) -> Verdict {
    if exchange.answer.status != 200 {
        return Verdict::Failed;
    }
    let Some(items) = seen_items(exchange.answer.body) else {
        return Verdict::Failed;
    };
    let sent = expected.first().map_or(0.0, |expected| expected.sent);
    let mut verdict = Verdict::Right;
    for seen in &items {
        let one = shared.checker.listed(seen, sent, exchange);
        if one != Verdict::Right {
            verdict = one;
        }
    }
    // A full page, or one that goes on, says nothing of what comes after its last item.
    let is_cut =
        items.len() >= limit as usize || exchange.answer.header("x-ms-continuation:").is_some();
    let end = match (is_cut, items.last()) {
        (true, Some(last)) => last.number,
        (true, None) => return verdict,
        (false, _) => u64::MAX,
    };
    for expected in expected.iter().filter(|expected| expected.item <= end) {
        if items.iter().all(|seen| seen.number != expected.item)
            && shared.checker.missed(expected, u32::MAX, exchange) == Verdict::Wrong
        {
            verdict = Verdict::Wrong;
        }
    }
    verdict
}

impl Script for Worker {
    fn next(&mut self) -> Option<&[u8]> {
        self.sent = unix_time();
        match self.rest.take() {
            None => {
                let operation = self.choose_operation();
                self.begin(operation);
            }
            Some(Rest::Update(number)) => self.write(Operation::Update, number),
            Some(Rest::Look(doubt)) => {
                self.write_read(&doubt.expected);
                self.step = Step::Look(doubt);
            }
        }
        Some(&self.request)
    }

    fn accepts(&mut self, answer: Answer<'_>) -> bool {
        let request = std::mem::take(&mut self.request);
        let exchange = Exchange {
            request: &request,
            answer,
            answered: unix_time(),
        };
        self.shared.learn(self.endpoint, self.sent, &exchange);
        let verdict = match self.shared.is_checked {
            true => self.judge(&exchange),
            false if answer.status < 300 || answer.status == 404 => Verdict::Right,
            false => Verdict::Failed,
        };
        self.request = request;
        if answer.status == 429 {
            self.wait = Some(retry_after(&answer));
        }
        verdict != Verdict::Failed
    }

    fn operation(&self) -> usize {
        self.operation
    }

    fn goes_on(&self) -> bool {
        self.rest.is_some()
    }

    fn pause(&mut self) -> Option<Duration> {
        self.wait.take()
    }

    fn unanswered(&mut self) -> bool {
        if let Step::Write(_, _, ticket) = std::mem::replace(&mut self.step, Step::Nothing)
            && self.shared.is_checked
        {
            self.shared.checker.unknown(ticket, unix_time());
        }
        self.rest = None;
        true
    }
}
