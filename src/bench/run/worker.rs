//! What one connection of a run does: an operation after the other, each checked.

use std::sync::Arc;
use std::time::Duration;

use super::shared::{RunState, retry_after};
use crate::bench::check::{
    AnswerVerdict, Exchange, Expectation, Lifetime, Seen, Ticket, seen_items,
};
use crate::bench::item::{self, Random};
use crate::bench::load::{Script, Scripts, scripts};
use crate::bench::request::{write_body, write_header, write_query_body, write_start};
use crate::bench::workload::{ItemChooser, PARTITION_ITEMS, WorkloadOperation};
use crate::client::connection::RawAnswer;
use crate::client::{Signed, Signer, unix_time};

/// An old version is looked at this often again before the write counts as lost.
const READS_AGAIN_MAX: u32 = 10;
const READ_AGAIN_INTERVAL: Duration = Duration::from_millis(100);

pub struct RunWorker {
    shared: Arc<RunState>,
    signer: Signer,
    /// Which endpoint it speaks to.
    endpoint: usize,
    random: Random,
    chooser: ItemChooser,
    operation: usize,
    step: Step,
    /// What the operation still has to do.
    rest: Option<Rest>,
    wait: Option<Duration>,
    sent: f64,
    path: String,
    key: String,
    body: Vec<u8>,
    request: Vec<u8>,
}

/// What a request is, on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Read,
    Create,
    Upsert,
    Replace,
    Delete,
    Query,
}

/// The request that is in flight.
enum Step {
    Nothing,
    Read(Expectation),
    Write(WorkloadOperation, Expectation, Ticket),
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

impl RunWorker {
    /// One script for each connection; the signers are theirs, with the endpoint of each.
    pub fn spread(shared: &Arc<RunState>, signers: &[(usize, Signer)], seed: u64) -> Scripts {
        let mut seeds = Random::new(seed);
        scripts(signers, |(endpoint, signer)| Self {
            shared: Arc::clone(shared),
            signer: signer.clone(),
            endpoint: *endpoint,
            random: Random::new(seeds.next()),
            chooser: ItemChooser::new(&shared.workload.keys),
            operation: 0,
            step: Step::Nothing,
            rest: None,
            wait: None,
            sent: 0.0,
            path: String::new(),
            key: String::new(),
            body: Vec::new(),
            request: Vec::new(),
        })
    }

    fn choose_operation(&mut self) -> WorkloadOperation {
        let mut left = self.random.below(self.shared.shares_sum);
        for (index, (operation, share)) in self.shared.shares().enumerate() {
            if left < share {
                self.operation = index;
                return operation;
            }
            left -= share;
        }
        WorkloadOperation::Read
    }

    fn choose_item(&mut self) -> u64 {
        let inserted = &self.shared.inserted;
        self.chooser
            .choose(&mut self.random, inserted, self.sent as u64)
    }

    fn begin(&mut self, operation: WorkloadOperation) {
        match operation {
            WorkloadOperation::Read | WorkloadOperation::ReadModifyWrite => {
                let number = self.choose_item();
                self.read(number);
            }
            WorkloadOperation::Scan => {
                let number = self.choose_item();
                self.scan(number);
            }
            WorkloadOperation::Insert => {
                let number = self.shared.inserted.next();
                self.write(operation, number);
            }
            WorkloadOperation::Update | WorkloadOperation::Upsert | WorkloadOperation::Delete => {
                let number = self.choose_item();
                self.write(operation, number);
            }
        }
    }

    fn read(&mut self, number: u64) {
        let expected = self.shared.expect(number, self.sent);
        self.send(RequestKind::Read, &expected);
        self.step = Step::Read(expected);
    }

    fn write(&mut self, operation: WorkloadOperation, number: u64) {
        let shared = Arc::clone(&self.shared);
        let expected = shared.expect(number, self.sent);
        let ttl = shared.workload.items.ttl;
        let life = match (operation, ttl) {
            (WorkloadOperation::Delete, _) => Lifetime::Absent,
            (_, Some(ttl)) => Lifetime::After(ttl),
            (_, None) => Lifetime::Inherits,
        };
        let ticket = shared.begin(number, life, self.sent);
        self.body.clear();
        if operation != WorkloadOperation::Delete {
            let item = shared.item(number, ticket.version, ttl.map(u64::from));
            item.write(&mut self.body);
        }
        let kind = match operation {
            WorkloadOperation::Insert => RequestKind::Create,
            WorkloadOperation::Upsert => RequestKind::Upsert,
            WorkloadOperation::Delete => RequestKind::Delete,
            _ => RequestKind::Replace,
        };
        self.send(kind, &expected);
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
        let Some(at_first) = expected.first() else {
            return;
        };
        // One token is enough: all of them are of one partition key.
        let latest = expected
            .iter()
            .filter_map(|expected| expected.token.clone());
        let mut addressed = at_first.clone();
        addressed.token = latest.max_by_key(|token| lsn_of(token));
        self.send(RequestKind::Query, &addressed);
        self.step = Step::Scan(expected, limit);
    }

    /// Puts the request together, in the room that the last one had.
    fn send(&mut self, kind: RequestKind, expected: &Expectation) {
        let shared = &self.shared;
        let (verb, verb_lower, is_of_item) = match kind {
            RequestKind::Read => ("GET", "get", true),
            RequestKind::Replace => ("PUT", "put", true),
            RequestKind::Delete => ("DELETE", "delete", true),
            RequestKind::Create | RequestKind::Upsert | RequestKind::Query => {
                ("POST", "post", false)
            }
        };
        self.path.clear();
        for part in ["/", &shared.link, "/docs"] {
            self.path.push_str(part);
        }
        if is_of_item {
            self.path.push('/');
            item::push_id(&mut self.path, expected.item);
        }
        // Signatures call an item by its path, and what is done to all by the container's.
        let link = match is_of_item {
            true => self.path.strip_prefix('/').unwrap_or_default(),
            false => &shared.link,
        };
        let signed = Signed {
            verb_lower,
            resource_type: "docs",
            link,
        };
        let target = &mut self.request;
        target.clear();
        write_start(target, &self.signer, verb, &self.path);
        self.signer.write_headers(target, &signed, self.sent as u64);
        self.key.clear();
        self.key.push_str("[\"");
        item::push_partition_key(&mut self.key, expected.item);
        self.key.push_str("\"]");
        write_header(target, "x-ms-documentdb-partitionkey", &self.key);
        if let Some(token) = &expected.token {
            write_header(target, "x-ms-session-token", token);
        }
        match kind {
            RequestKind::Query => {
                write_header(target, "x-ms-documentdb-isquery", "True");
                write_header(target, "x-ms-max-item-count", "100");
                write_query_body(target, &self.body);
            }
            RequestKind::Upsert => {
                write_header(target, "x-ms-documentdb-is-upsert", "True");
                write_body(target, &self.body);
            }
            RequestKind::Create | RequestKind::Replace => write_body(target, &self.body),
            RequestKind::Read | RequestKind::Delete => write_body(target, b""),
        }
    }

    fn judge(&mut self, exchange: &Exchange<'_>) -> AnswerVerdict {
        let shared = Arc::clone(&self.shared);
        let checker = &shared.checker;
        match std::mem::replace(&mut self.step, Step::Nothing) {
            Step::Nothing => AnswerVerdict::Failed,
            Step::Read(expected) => {
                let verdict = checker.read(&expected, exchange);
                match verdict {
                    AnswerVerdict::Older => self.doubt(expected, exchange),
                    AnswerVerdict::Right if self.is_read_modify_write() => {
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
        self.shared.operations.get(self.operation) == Some(&WorkloadOperation::ReadModifyWrite)
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
    fn look_again(&mut self, mut doubt: Doubt, exchange: &Exchange<'_>) -> AnswerVerdict {
        doubt.looks += 1;
        let seen = Seen::of(exchange.answer.body).filter(|_| exchange.answer.status == 200);
        let is_old = seen.is_some_and(|seen| seen.version <= doubt.version);
        if is_old && doubt.looks < READS_AGAIN_MAX {
            self.wait = Some(READ_AGAIN_INTERVAL);
            self.rest = Some(Rest::Look(doubt));
            return AnswerVerdict::Older;
        }
        let first = Exchange {
            request: &doubt.request,
            answer: RawAnswer {
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
    operation: WorkloadOperation,
    expected: &'a Expectation,
    ticket: Ticket,
}

impl Written<'_> {
    fn judge(&self, shared: &RunState, exchange: &Exchange<'_>) -> AnswerVerdict {
        let checker = &shared.checker;
        let (expected, own) = (self.expected, self.ticket.version);
        let status = exchange.answer.status;
        let creates = matches!(
            self.operation,
            WorkloadOperation::Insert | WorkloadOperation::Upsert
        );
        match status {
            200 | 201 | 204 => {
                let verdict = match status {
                    201 => match checker.missed(expected, own, exchange) {
                        AnswerVerdict::Gone => AnswerVerdict::Right,
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
            409 if self.operation == WorkloadOperation::Insert => {
                let verdict = checker.found(expected, own, exchange);
                checker.model.refused(self.ticket);
                match verdict {
                    AnswerVerdict::Right => AnswerVerdict::Failed,
                    wrong => wrong,
                }
            }
            // These say that nothing was done.
            400..=407 | 409..=448 => {
                checker.model.refused(self.ticket);
                AnswerVerdict::Failed
            }
            _ => {
                checker.unknown(self.ticket, exchange.answered);
                AnswerVerdict::Failed
            }
        }
    }
}

fn judge_scan(
    shared: &RunState,
    expected: &[Expectation],
    limit: u32,
    exchange: &Exchange<'_>,
) -> AnswerVerdict {
    if exchange.answer.status != 200 {
        return AnswerVerdict::Failed;
    }
    let Some(items) = seen_items(exchange.answer.body) else {
        return AnswerVerdict::Failed;
    };
    let sent = expected.first().map_or(0.0, |expected| expected.sent);
    let mut verdict = AnswerVerdict::Right;
    for seen in &items {
        let one = shared.checker.listed(seen, sent, exchange);
        if one != AnswerVerdict::Right {
            verdict = one;
        }
    }
    // A full page, or one that goes on, says nothing of what comes after its last item.
    let is_cut =
        items.len() >= limit as usize || exchange.answer.header("x-ms-continuation").is_some();
    let end = match (is_cut, items.last()) {
        (true, Some(last)) => last.number,
        (true, None) => return verdict,
        (false, _) => u64::MAX,
    };
    for expected in expected.iter().filter(|expected| expected.item <= end) {
        if items.iter().all(|seen| seen.number != expected.item)
            && shared.checker.missed(expected, u32::MAX, exchange) == AnswerVerdict::Wrong
        {
            verdict = AnswerVerdict::Wrong;
        }
    }
    verdict
}

impl Script for RunWorker {
    fn next(&mut self) -> Option<&[u8]> {
        self.sent = unix_time();
        match self.rest.take() {
            None => {
                let operation = self.choose_operation();
                self.begin(operation);
            }
            Some(Rest::Update(number)) => self.write(WorkloadOperation::Update, number),
            Some(Rest::Look(doubt)) => {
                self.send(RequestKind::Read, &doubt.expected);
                self.step = Step::Look(doubt);
            }
        }
        Some(&self.request)
    }

    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool {
        let request = std::mem::take(&mut self.request);
        let exchange = Exchange {
            request: &request,
            answer,
            answered: unix_time(),
        };
        self.shared.learn(self.endpoint, self.sent, &exchange);
        let verdict = match self.shared.is_checked {
            true => self.judge(&exchange),
            false if answer.status < 300 || answer.status == 404 => AnswerVerdict::Right,
            false => AnswerVerdict::Failed,
        };
        self.request = request;
        if answer.status == 429 {
            self.wait = Some(retry_after(&answer));
        }
        verdict != AnswerVerdict::Failed
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::check::{Checker, ServerClock};
    use crate::bench::workload::find;
    use crate::client::EMULATOR_KEY;

    /// Request lines and bodies of the first requests of some connections.
    fn requests(seed: u64) -> Vec<String> {
        let (_, workload) = find("ycsb-a").unwrap();
        let checker = Checker::new(ServerClock::own(), None, workload.items.bytes);
        let shared = RunState::new(workload, "dbs/d/colls/c".to_owned(), checker, false);
        shared.inserted.start(1_000);
        let signer = Signer::new(EMULATOR_KEY).unwrap();
        let signers = vec![(0, signer); 3];
        let mut workers = RunWorker::spread(&Arc::new(shared), &signers, seed);
        let mut requests = Vec::new();
        for _ in 0..50 {
            for worker in &mut workers {
                let bytes = worker.next().unwrap().to_vec();
                let text = String::from_utf8(bytes).unwrap();
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                requests.push(format!("{} {body}", head.lines().next().unwrap()));
                let status = 200;
                assert!(worker.accepts(RawAnswer {
                    status,
                    ..RawAnswer::default()
                }));
            }
        }
        requests
    }

    #[test]
    fn a_seed_gives_the_same_requests_again_and_another_one_others() {
        let first = requests(7);
        assert_eq!(first, requests(7));
        assert_ne!(first, requests(8));
        for verb in ["GET /dbs/d/colls/c/docs/i", "PUT /dbs/d/colls/c/docs/i"] {
            assert!(
                first.iter().any(|request| request.starts_with(verb)),
                "{verb}"
            );
        }
    }
}
