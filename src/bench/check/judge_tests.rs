use super::*;

const ITEM: u64 = 12;
const ITEM_BYTES: usize = 200;
/// The second in which the item was written.
const WRITTEN: u64 = 500;

fn item(ttl: Option<u32>) -> String {
    let known = KnownItem {
        number: ITEM,
        version: 1,
        ttl: ttl.map(u64::from),
        bytes: ITEM_BYTES,
    };
    let mut body = Vec::new();
    known.write(&mut body);
    let text = String::from_utf8(body).unwrap();
    format!("{},\"_ts\":{WRITTEN}}}", text.trim_end_matches('}'))
}

fn exchange(status: u16, body: &str, answered: f64) -> Exchange<'_> {
    Exchange {
        request: b"GET /dbs/d/colls/c/docs/i000000012",
        answer: RawAnswer {
            status,
            head: b"HTTP/1.1",
            body: body.as_bytes(),
        },
        answered,
    }
}

/// A checker that knows one item, which inherits its time to live.
fn checker(default: DefaultSeconds) -> Checker {
    let checker = Checker::new(ServerClock::own(), default, ITEM_BYTES);
    let sent = WRITTEN as f64 + 0.1;
    let ticket = checker.begin(ITEM, Lifetime::Inherits, sent);
    let body = item(None);
    checker.written(ticket, sent, &exchange(201, &body, sent + 0.1));
    checker
}

/// Judges a read of the item, sent and answered at these moments, that found it or not.
fn read(checker: &Checker, sent: f64, answered: f64, status: u16) -> AnswerVerdict {
    let expected = checker.model.expect(ITEM, sent);
    checker.read(&expected, &exchange(status, &item(None), answered))
}

/// A default that was lowered and whose answer came at 567.700.
fn lowered() -> Checker {
    let checker = checker(None);
    checker.default_sent(Some(5), 567.650);
    checker.default_answered(567.700);
    checker
}

#[test]
fn a_read_in_flight_while_a_lowered_default_is_answered_may_see_the_item_or_not() {
    let checker = lowered();
    assert_eq!(read(&checker, 567.673, 567.724, 200), AnswerVerdict::Right);
    assert_eq!(read(&checker, 567.673, 567.724, 404), AnswerVerdict::Gone);
    assert_eq!(checker.violations.total(), 0);
}

#[test]
fn a_read_sent_after_the_answer_must_not_see_the_item_even_in_the_same_second() {
    let checker = lowered();
    assert_eq!(read(&checker, 567.701, 567.724, 200), AnswerVerdict::Wrong);
    assert_eq!(checker.violations.count(ViolationKind::ExpiredSeen), 1);
}

#[test]
fn a_read_answered_before_the_change_was_sent_must_see_the_item() {
    let checker = lowered();
    assert_eq!(read(&checker, 567.600, 567.640, 404), AnswerVerdict::Wrong);
    assert_eq!(checker.violations.count(ViolationKind::LiveMissing), 1);
    assert_eq!(read(&checker, 567.600, 567.660, 404), AnswerVerdict::Gone);
}

#[test]
fn a_create_in_flight_while_a_lowered_default_is_answered_may_find_the_item() {
    for (sent, verdict) in [
        (567.673, AnswerVerdict::Right),
        (567.701, AnswerVerdict::Wrong),
    ] {
        let checker = lowered();
        let expected = checker.model.expect(ITEM, sent);
        let ticket = checker.begin(ITEM, Lifetime::Inherits, sent);
        let conflict = exchange(409, "", sent + 0.05);
        let found = checker.found(&expected, ticket.version, &conflict);
        assert_eq!(found, verdict, "sent at {sent}");
    }
}

#[test]
fn an_item_with_a_time_to_live_of_its_own_is_gone_at_its_second() {
    let checker = Checker::new(ServerClock::own(), None, ITEM_BYTES);
    let ticket = checker.begin(ITEM, Lifetime::After(60), 500.1);
    let body = item(Some(60));
    checker.written(ticket, 500.1, &exchange(201, &body, 500.2));
    for (sent, verdict) in [
        (559.999, AnswerVerdict::Right),
        (560.0, AnswerVerdict::Wrong),
    ] {
        let expected = checker.model.expect(ITEM, sent);
        let read = checker.read(&expected, &exchange(200, &body, sent + 0.5));
        assert_eq!(read, verdict, "sent at {sent}");
    }
}
