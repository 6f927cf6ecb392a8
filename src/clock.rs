//! The one door to time. `_ts` and expiry come from here, and it never goes backwards, not even over a restart.

mod jump_guard;
mod keeper;
pub mod kept_floor;

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sha2::{Digest as _, Sha256};
use tracing::warn;

use jump_guard::{JumpGuard, Verdict};
pub use keeper::ClockKeeper;

/// Whole seconds since the epoch. A node has one of its own; in a cluster each group that it has a replica of has another, because its time is what its members agree on.
#[derive(Clone)]
pub struct Clock {
    machine: Arc<Machine>,
    hand: Arc<Hand>,
    /// The node's own, for the clock of a group.
    node: Option<Arc<Hand>>,
}

/// What all clocks of a node rest on.
struct Machine {
    source: Source,
    /// The highest second that anybody was told by any of them.
    issued: AtomicI64,
    purging_paused: AtomicBool,
    /// Whether the stored second could not be read.
    has_lost_floor: bool,
    /// Absent for clocks that a test drives.
    guard: Option<Mutex<JumpGuard>>,
    started: Instant,
}

struct Hand {
    /// The highest second that it has told anybody.
    issued: AtomicI64,
    /// In a cluster: what to add to the monotonic milliseconds, or [`UNSTEERED`].
    offset: OnceLock<Arc<AtomicI64>>,
}

impl Hand {
    fn new(issued: i64) -> Arc<Self> {
        Arc::new(Self {
            issued: AtomicI64::new(issued),
            offset: OnceLock::new(),
        })
    }

    fn issued(&self) -> i64 {
        self.issued.load(Ordering::Relaxed)
    }

    fn steering(&self) -> Steering {
        match self
            .offset
            .get()
            .map(|offset| offset.load(Ordering::Relaxed))
        {
            None => Steering::Alone,
            Some(UNSTEERED) => Steering::Awaited,
            Some(offset) => Steering::By(offset),
        }
    }
}

/// There is no agreement on the time yet.
const UNSTEERED: i64 = i64::MIN;

/// An offset that is not known yet.
pub fn unsteered() -> Arc<AtomicI64> {
    Arc::new(AtomicI64::new(UNSTEERED))
}

enum Steering {
    /// No cluster steers the clock.
    Alone,
    /// A cluster will, but there is no agreement yet.
    Awaited,
    By(i64),
}

enum Source {
    System,
    Manual(AtomicI64),
}

/// What a node knows of the time when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing: its data folder is new. The wall clock is trusted.
    New,
    /// The second that was stored last.
    At(i64),
    /// The stored second cannot be read. The wall clock is suspect.
    Lost,
}

/// Why nothing may be destroyed on the word of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// The wall clock is ahead of where it should be.
    Ahead { seconds: i64, hold_left: Duration },
    /// The time already issued is ahead of the wall clock.
    Behind { seconds: i64 },
}

impl Suspicion {
    /// Returns how many seconds the time must still last to be believed.
    pub fn trusted_in_seconds(self) -> Option<u64> {
        match self {
            Self::Ahead { hold_left, .. } => Some(hold_left.as_secs()),
            Self::Behind { seconds } => u64::try_from(seconds).ok(),
        }
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ahead { seconds, .. } => {
                write!(
                    f,
                    "the machine's clock is {seconds} s ahead of the trusted time"
                )
            }
            Self::Behind { seconds } => {
                write!(
                    f,
                    "the machine's clock is {seconds} s behind the time already issued"
                )
            }
        }
    }
}

impl Clock {
    /// The machine's clock, not before what a node knows at start, guarded against jumps.
    pub fn system(start: Start, bound: Duration, hold: Duration) -> Self {
        let (floor, expected) = match start {
            Start::New => (0, wall_seconds()),
            Start::At(second) => (second, second),
            Start::Lost => (0, 0),
        };
        let guard = JumpGuard::new(bound, hold, expected, Duration::ZERO);
        let lost = start == Start::Lost;
        Self::from_source(Source::System, floor, lost, Some(Mutex::new(guard)))
    }

    /// A clock that a test drives by hand.
    pub fn manual(now: i64) -> Self {
        Self::from_source(Source::Manual(AtomicI64::new(now)), now, false, None)
    }

    fn from_source(
        source: Source,
        floor: i64,
        has_lost_floor: bool,
        guard: Option<Mutex<JumpGuard>>,
    ) -> Self {
        Self {
            machine: Arc::new(Machine {
                source,
                issued: AtomicI64::new(floor),
                purging_paused: AtomicBool::new(false),
                has_lost_floor,
                guard,
                started: Instant::now(),
            }),
            hand: Hand::new(floor),
            node: None,
        }
    }

    /// A clock of a group: the monotonic clock and this offset, in milliseconds. Until there is one it is the node's.
    pub fn of_group(&self, offset: Arc<AtomicI64>) -> Self {
        let hand = Hand::new(i64::MIN);
        let _ = hand.offset.set(offset);
        Self {
            machine: Arc::clone(&self.machine),
            hand,
            node: Some(Arc::clone(&self.hand)),
        }
    }

    /// From now on the time is the monotonic clock and this offset, in milliseconds, as soon as there is one: the nodes of a cluster agree on it. Should that be
    /// earlier than what was given out, it stands still.
    pub fn steer_by(&self, offset: Arc<AtomicI64>) {
        let _ = self.hand.offset.set(offset);
    }

    pub fn now(&self) -> i64 {
        let hand = &self.hand;
        let now = match hand.steering() {
            Steering::Alone => self.source_seconds(),
            // Nobody is bound by what this node takes for the time on its own.
            Steering::Awaited => return self.meanwhile().max(hand.issued()),
            Steering::By(offset) => self.seconds_at(offset),
        };
        let issued = hand.issued();
        if now <= issued {
            return issued;
        }
        self.machine.issued.fetch_max(now, Ordering::Relaxed);
        hand.issued.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// The time of a clock that waits for agreement.
    fn meanwhile(&self) -> i64 {
        let Some(node) = &self.node else {
            return self.source_seconds();
        };
        let now = match node.steering() {
            Steering::By(offset) => self.seconds_at(offset),
            Steering::Alone | Steering::Awaited => self.source_seconds(),
        };
        now.max(node.issued())
    }

    fn seconds_at(&self, offset: i64) -> i64 {
        (self.monotonic_millis() + offset).div_euclid(1_000)
    }

    /// Another clock that this one must not be behind has told this second.
    pub fn raise(&self, second: i64) {
        self.machine.issued.fetch_max(second, Ordering::Relaxed);
        self.hand.issued.fetch_max(second, Ordering::Relaxed);
    }

    /// Milliseconds since this clock was made.
    pub fn monotonic_millis(&self) -> i64 {
        i64::try_from(self.machine.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Moves a manual clock; the machine's is left alone.
    pub fn set(&self, now: i64) {
        if let Source::Manual(seconds) = &self.machine.source {
            seconds.store(now, Ordering::Relaxed);
        }
    }

    /// Makes a test's clock suspect.
    #[cfg(test)]
    pub fn set_purging_paused(&self, paused: bool) {
        self.machine.purging_paused.store(paused, Ordering::Relaxed);
    }

    /// Returns whether the clock is suspect, so that nothing may be destroyed on its word. Reads both clocks, so that no
    /// jump slips through between two looks.
    pub fn purging_paused(&self) -> bool {
        if self.machine.guard.is_some() {
            self.heed(self.suspicion());
        }
        self.machine.purging_paused.load(Ordering::Relaxed)
    }

    /// The first look: says nothing, because the caller knows more.
    fn purging_paused_at_start(&self) -> bool {
        let suspect = self.suspicion().is_some();
        let known = &self.machine.purging_paused;
        if suspect && !known.swap(true, Ordering::Relaxed) {
            crate::telemetry::expiry::clock_jumped();
        }
        suspect
    }

    /// Returns why the clock is suspect, if it is.
    pub fn suspicion(&self) -> Option<Suspicion> {
        let Some(guard) = &self.machine.guard else {
            // A test says so.
            let paused = self.machine.purging_paused.load(Ordering::Relaxed);
            return paused.then_some(Suspicion::Behind { seconds: 0 });
        };
        let mut guard = guard.lock().ok()?;
        let (wall, monotonic) = (wall_seconds(), self.machine.started.elapsed());
        let verdict = guard.observe(wall, monotonic);
        // After a jump that was taken back, the time already issued is still ahead.
        let behind = self.issued() - wall;
        if behind > guard.bound_seconds() {
            return Some(Suspicion::Behind { seconds: behind });
        }
        match verdict {
            Verdict::Suspect { ahead_seconds } => Some(Suspicion::Ahead {
                seconds: ahead_seconds,
                hold_left: guard.hold_left(monotonic).unwrap_or_default(),
            }),
            Verdict::Steady | Verdict::Settled => None,
        }
    }

    fn heed(&self, suspicion: Option<Suspicion>) {
        let paused = suspicion.is_some();
        if self.machine.purging_paused.swap(paused, Ordering::Relaxed) == paused {
            return;
        }
        match suspicion {
            Some(suspicion) => {
                crate::telemetry::expiry::clock_jumped();
                warn!(
                    now = %date(wall_seconds()), issued = %date(self.issued()), %suspicion,
                    "the clock jumped; purging is paused until the time is confirmed or has lasted"
                );
            }
            None => warn!("the clock is trusted again; purging goes on"),
        }
    }

    /// The operator's word that the machine's clock is right.
    pub fn confirm(&self) {
        if let Some(guard) = &self.machine.guard
            && let Ok(mut guard) = guard.lock()
        {
            guard.confirm(wall_seconds(), self.machine.started.elapsed());
        }
        self.heed(self.suspicion());
    }

    /// Returns whether the stored second could not be read at start, so that the shards' newest writes stand in for it.
    pub fn has_lost_floor(&self) -> bool {
        self.machine.has_lost_floor
    }

    /// Returns what the machine's clock shows, which may go back. Dates of signatures are held against this: whoever signs
    /// reads a clock that is set right after a jump, too.
    pub fn wall_seconds(&self) -> i64 {
        self.source_seconds()
    }

    /// How long ago a second began; zero when it has not.
    pub fn seconds_since(&self, second: i64) -> f64 {
        let fraction = match (&self.machine.source, self.hand.steering()) {
            (Source::System, Steering::By(offset)) => {
                let millis = (self.monotonic_millis() + offset).rem_euclid(1_000);
                millis as f64 / 1e3
            }
            (Source::System, _) => f64::from(wall().subsec_nanos()) / 1e9,
            (Source::Manual(_), _) => 0.0,
        };
        ((self.now() - second) as f64 + fraction).max(0.0)
    }

    /// The highest second that any clock of the node has told, in this life or an earlier one.
    pub fn issued(&self) -> i64 {
        self.machine.issued.load(Ordering::Relaxed)
    }

    fn source_seconds(&self) -> i64 {
        match &self.machine.source {
            Source::System => wall_seconds(),
            Source::Manual(seconds) => seconds.load(Ordering::Relaxed),
        }
    }
}

/// The machine's clock as it is, which may jump. A clock before 1970 counts as 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the door to the wall clock"
)]
pub fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
}

fn wall_seconds() -> i64 {
    whole_seconds(wall())
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Bytes of a digest that tell damage apart.
const CHECKSUM_BYTES: usize = 8;

/// Returns the first bytes of a text's SHA-256, in hexadecimal digits.
fn checksum(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bytes = digest.iter().take(CHECKSUM_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a line of a small file: the text and its checksum.
fn checked_line(text: &str) -> String {
    format!("{text} {}\n", checksum(text))
}

/// A second as people write it.
fn date(second: i64) -> String {
    let since_epoch = Duration::from_secs(u64::try_from(second).unwrap_or(0));
    match UNIX_EPOCH.checked_add(since_epoch) {
        // What follows is beyond the year 9999.
        Some(time) if second < 253_402_300_800 => httpdate::fmt_http_date(time),
        _ => format!("second {second}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_backwards() {
        let clock = Clock::manual(100);
        assert_eq!(clock.now(), 100);
        clock.set(90);
        assert_eq!(clock.now(), 100);
        clock.set(101);
        assert_eq!(clock.now(), 101);
    }

    #[test]
    fn signatures_are_judged_by_a_clock_that_goes_back() {
        let clock = Clock::manual(100);
        clock.set(3_700);
        assert_eq!((clock.now(), clock.wall_seconds()), (3_700, 3_700));
        clock.set(102);
        assert_eq!((clock.now(), clock.wall_seconds()), (3_700, 102));
        // In a cluster as well, whatever the nodes agree on.
        clock.steer_by(Arc::new(AtomicI64::new(9_000_000)));
        assert_eq!((clock.now(), clock.wall_seconds()), (9_000, 102));
    }

    #[test]
    fn dates_that_nobody_can_write_are_shown_as_seconds() {
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date(i64::MAX), format!("second {}", i64::MAX));
    }

    #[test]
    fn a_steered_clock_follows_its_cluster_and_never_goes_back() {
        let clock = Clock::manual(1_000);
        let offset = unsteered();
        clock.steer_by(Arc::clone(&offset));
        clock.set(2_000);
        assert_eq!(clock.now(), 2_000);
        // What it took for the time before there was agreement binds nobody.
        offset.store(1_500_000, Ordering::Relaxed);
        assert_eq!(clock.now(), 1_500);
        offset.store(1_400_000, Ordering::Relaxed);
        assert_eq!(clock.now(), 1_500);
    }

    #[test]
    fn the_clock_of_a_group_is_its_own_once_there_is_agreement() {
        let clock = Clock::manual(1_000);
        clock.steer_by(Arc::new(AtomicI64::new(3_000_000)));
        let offset = unsteered();
        let group = clock.of_group(Arc::clone(&offset));
        assert_eq!(group.now(), 3_000, "the node's, for the time being");
        offset.store(2_000_000, Ordering::Relaxed);
        assert_eq!((group.now(), clock.now()), (2_000, 3_000));
        group.raise(2_500);
        assert_eq!((group.now(), clock.now()), (2_500, 3_000));
        offset.store(4_000_000, Ordering::Relaxed);
        assert_eq!((group.now(), clock.now()), (4_000, 3_000));
        assert_eq!(clock.issued(), 4_000, "that is what a restart begins with");
    }
}
