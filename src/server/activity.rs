//! What a connection waits for, and since when. Connections note it in cells, by a coarse clock of
//! their worker; the worker looks at all of them a few times a second. So no request sets a timer.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};

use crate::telemetry::labels::Refusal;

/// How often a worker looks at its connections: the step of its coarse clock.
pub const TICK: Duration = Duration::from_millis(100);
/// How long a closed connection may go on to send what nobody reads, so that its answer arrives.
const LINGER_TICKS: u32 = 20;

/// A point in time of a worker's coarse clock.
pub type Tick = u32;

/// Returns how many ticks there are in a time.
pub fn ticks(time: Duration) -> Tick {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

/// How long a connection may wait for its peer.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For the first byte, for the TLS handshake, and for each head from its first byte on.
    pub header: Duration,
    /// Between an answer and the next request.
    pub idle: Duration,
    /// For a peer that takes nothing of an answer.
    pub write: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was received yet, or the TLS handshake goes on.
    Opening,
    /// The head of a request has begun.
    Head,
    /// Requests are in flight.
    Busy,
    /// All requests were answered.
    Idle,
    /// The last answer was sent; the peer is to close.
    Closing,
}

/// What a connection is told from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Finish the requests in flight, then close.
    Finish,
    /// Close at once.
    Close,
}

/// The state of one connection that others look at.
pub struct Activity {
    clock: Rc<Cell<Tick>>,
    phase: Cell<Phase>,
    since: Cell<Tick>,
    requests: Cell<usize>,
    /// Since when the socket takes no more bytes.
    blocked_since: Cell<Option<Tick>>,
    /// HTTP/2: when something of each unsent answer was last sent.
    answers: RefCell<Vec<Rc<Cell<Tick>>>>,
    is_http2: Cell<bool>,
    /// The request's body was not read to its end.
    unread: Cell<bool>,
    finishing: Cell<bool>,
    order: Cell<Option<Order>>,
    waker: RefCell<Option<Waker>>,
    ended: Cell<bool>,
}

impl Activity {
    pub fn new(clock: Rc<Cell<Tick>>) -> Self {
        let now = clock.get();
        Self {
            clock,
            phase: Cell::new(Phase::Opening),
            since: Cell::new(now),
            requests: Cell::new(0),
            blocked_since: Cell::new(None),
            answers: RefCell::default(),
            is_http2: Cell::new(false),
            unread: Cell::new(false),
            finishing: Cell::new(false),
            order: Cell::new(None),
            waker: RefCell::new(None),
            ended: Cell::new(false),
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.get());
    }

    /// The TLS handshake is over: the peer has as long again for its first byte.
    pub fn is_secured(&self) {
        self.enter(Phase::Opening);
    }

    /// The connection speaks HTTP/1.1, and the first bytes of a head are here if `has_begun`.
    pub fn speaks_http1(&self, has_begun: bool) {
        if has_begun {
            self.enter(Phase::Head);
        }
    }

    pub fn speaks_http2(&self) {
        self.is_http2.set(true);
        self.enter(Phase::Idle);
    }

    pub fn is_http2(&self) -> bool {
        self.is_http2.get()
    }

    /// Bytes were received. On HTTP/2 they may be a ping, which is no request.
    pub fn received(&self) {
        let waits = matches!(self.phase.get(), Phase::Idle | Phase::Opening);
        if waits && !self.is_http2.get() {
            self.enter(Phase::Head);
        }
    }

    /// The socket took bytes, or takes none at the moment.
    pub fn wrote(&self, is_blocked: bool) {
        if !is_blocked {
            self.blocked_since.set(None);
        } else if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(self.clock.get()));
        }
    }

    /// A request has begun; it ends with the guard.
    pub fn begin(self: &Rc<Self>) -> InFlight {
        self.requests.set(self.requests.get() + 1);
        self.unread.set(false);
        self.phase.set(Phase::Busy);
        InFlight {
            activity: Rc::clone(self),
            progress: None,
        }
    }

    fn end(&self) {
        self.requests.set(self.requests.get().saturating_sub(1));
        if self.requests.get() == 0 {
            self.enter(match self.finishing.get() {
                false => Phase::Idle,
                true => Phase::Closing,
            });
        }
    }

    pub fn leaves_body_unread(&self) {
        self.unread.set(true);
    }

    /// Returns whether the connection cannot go on to a next request: a body lies in its way.
    pub fn must_close(&self) -> bool {
        self.unread.get() && !self.is_http2.get()
    }

    /// The connection sends nothing more. Returns whether the peer may still send what nobody
    /// reads: closed at once, the system would take back the answer that it has not read yet.
    pub fn close(&self) -> bool {
        let is_mid_request = self.unread.get() || self.phase.get() == Phase::Head;
        if self.phase.get() != Phase::Closing {
            self.enter(Phase::Closing);
        }
        is_mid_request
    }

    /// The connection is gone.
    pub fn set_ended(&self) {
        self.ended.set(true);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Tells the connection what to do.
    pub fn give(&self, order: Order) {
        if order == Order::Finish {
            self.finishing.set(true);
            if self.requests.get() == 0 {
                self.enter(Phase::Closing);
            }
        }
        self.order.set(Some(order));
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Returns what the connection was told, and sees to it that the task wakes for the next order.
    pub fn poll_order(&self, context: &Context<'_>) -> Option<Order> {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        self.order.take()
    }

    /// Returns for how long the connection has been without a request, if it may be closed for
    /// another one: one that has never sent a whole request first, then the longest idle.
    pub fn spare_rank(&self) -> Option<(bool, Tick)> {
        let age = self.clock.get().wrapping_sub(self.since.get());
        match self.phase.get() {
            Phase::Opening | Phase::Head => Some((age >= ticks(Duration::from_secs(1)), age)),
            Phase::Idle => Some((false, age)),
            Phase::Busy | Phase::Closing => None,
        }
    }

    /// Returns what must happen to the connection now, and why it is refused if its peer is at
    /// fault.
    pub fn judge(&self, deadlines: &Deadlines) -> Option<(Order, Option<Refusal>)> {
        let now = self.clock.get();
        let is_over = |since: Tick, time: Duration| now.wrapping_sub(since) > ticks(time);
        let stalled = |since: &Tick| is_over(*since, deadlines.write);
        if self.blocked_since.get().as_ref().is_some_and(stalled)
            || (self.answers.borrow().iter()).any(|sent| stalled(&sent.get()))
        {
            return Some((Order::Close, Some(Refusal::StalledReader)));
        }
        let since = self.since.get();
        match self.phase.get() {
            Phase::Opening if is_over(since, deadlines.header) => {
                Some((Order::Close, Some(Refusal::Silent)))
            }
            Phase::Head if is_over(since, deadlines.header) => {
                Some((Order::Close, Some(Refusal::SlowHeaders)))
            }
            Phase::Idle if is_over(since, deadlines.idle) => Some((Order::Finish, None)),
            Phase::Closing if now.wrapping_sub(since) > LINGER_TICKS => Some((Order::Close, None)),
            _ => None,
        }
    }
}

/// A request from its head until the last byte of its answer was sent.
pub struct InFlight {
    activity: Rc<Activity>,
    progress: Option<Rc<Cell<Tick>>>,
}

impl InFlight {
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The answer is there and waits for the peer. On HTTP/1.1 the socket alone can be in its way;
    /// a stream of HTTP/2 has a window of its own.
    pub fn is_answered(&mut self) {
        if self.activity.is_http2() {
            let progress = Rc::new(Cell::new(self.activity.clock.get()));
            let mut answers = self.activity.answers.borrow_mut();
            answers.push(Rc::clone(&progress));
            self.progress = Some(progress);
        }
    }

    /// Some of the answer was sent.
    pub fn advance(&self) {
        if let Some(progress) = &self.progress {
            progress.set(self.activity.clock.get());
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            let mut answers = self.activity.answers.borrow_mut();
            if let Some(place) = answers.iter().position(|one| Rc::ptr_eq(one, progress)) {
                answers.swap_remove(place);
            }
        }
        self.activity.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINES: Deadlines = Deadlines {
        header: Duration::from_secs(30),
        idle: Duration::from_secs(120),
        write: Duration::from_secs(10),
    };

    struct Bench {
        clock: Rc<Cell<Tick>>,
        activity: Rc<Activity>,
    }

    impl Bench {
        fn new() -> Self {
            let clock = Rc::new(Cell::new(u32::MAX - 100));
            let activity = Rc::new(Activity::new(Rc::clone(&clock)));
            Self { clock, activity }
        }

        fn pass(&self, seconds: u64) {
            let passed = ticks(Duration::from_secs(seconds));
            self.clock.set(self.clock.get().wrapping_add(passed));
        }

        fn check(&self, expected: Option<(Order, Option<Refusal>)>) {
            assert_eq!(self.activity.judge(&DEADLINES), expected);
        }
    }

    #[test]
    fn a_connection_that_says_nothing_is_closed() {
        let bench = Bench::new();
        bench.pass(30);
        bench.check(None);
        bench.pass(1);
        bench.check(Some((Order::Close, Some(Refusal::Silent))));
    }

    #[test]
    fn a_head_has_its_time_from_its_first_byte_on_the_second_one_too() {
        let bench = Bench::new();
        for _ in 0..2 {
            bench.pass(29);
            bench.activity.received();
            bench.pass(20);
            bench.activity.received();
            bench.check(None);
            bench.pass(11);
            bench.check(Some((Order::Close, Some(Refusal::SlowHeaders))));
            let request = bench.activity.begin();
            bench.pass(1_000);
            bench.check(None);
            drop(request);
        }
        bench.pass(121);
        bench.check(Some((Order::Finish, None)));
    }

    #[test]
    fn a_reader_must_take_something_now_and_then() {
        let bench = Bench::new();
        let request = bench.activity.begin();
        bench.activity.wrote(true);
        bench.pass(9);
        bench.activity.wrote(true);
        bench.pass(2);
        bench.check(Some((Order::Close, Some(Refusal::StalledReader))));
        bench.activity.wrote(false);
        bench.check(None);
        drop(request);
        bench.check(None);
    }

    #[test]
    fn each_stream_of_http2_is_looked_at_by_itself() {
        let bench = Bench::new();
        bench.activity.speaks_http2();
        let (mut first, mut second) = (bench.activity.begin(), bench.activity.begin());
        first.is_answered();
        second.is_answered();
        bench.pass(9);
        bench.activity.received();
        first.advance();
        bench.pass(2);
        bench.check(Some((Order::Close, Some(Refusal::StalledReader))));
        drop(second);
        bench.check(None);
        drop(first);
        assert!(bench.activity.answers.borrow().is_empty());
        bench.pass(121);
        bench.check(Some((Order::Finish, None)));
    }

    #[test]
    fn whoever_is_told_to_finish_finishes_its_requests_and_is_then_closed() {
        let bench = Bench::new();
        let request = bench.activity.begin();
        bench.activity.give(Order::Finish);
        bench.pass(60);
        bench.check(None);
        drop(request);
        bench.pass(3);
        bench.check(Some((Order::Close, None)));
    }

    #[test]
    fn strangers_are_spared_first_then_the_longest_idle_and_never_a_busy_one() {
        let bench = Bench::new();
        bench.pass(2);
        assert!(bench.activity.spare_rank() > Some((false, 1_000_000)));
        let request = bench.activity.begin();
        assert_eq!(bench.activity.spare_rank(), None);
        drop(request);
        bench.pass(1);
        assert_eq!(bench.activity.spare_rank(), Some((false, 10)));
    }
}
