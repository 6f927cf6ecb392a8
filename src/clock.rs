//! The one door to time. `_ts` and expiry come from here, and it never goes backwards, not even over a restart.

pub mod kept_floor;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tracing::{error, warn};

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

impl Clock {
    /// The machine's clock, not before `floor`, guarded against jumps.
    pub fn system(floor: i64, bound: Duration, hold: Duration) -> Self {
        let guard = JumpGuard::new(bound, hold, wall_seconds(), Duration::ZERO);
        Self::from_source(Source::System, floor, Some(Mutex::new(guard)))
    }

    /// A clock that a test drives by hand.
    pub fn manual(now: i64) -> Self {
        Self::from_source(Source::Manual(AtomicI64::new(now)), now, None)
    }

    fn from_source(source: Source, floor: i64, guard: Option<Mutex<JumpGuard>>) -> Self {
        Self {
            machine: Arc::new(Machine {
                source,
                issued: AtomicI64::new(floor),
                purging_paused: AtomicBool::new(false),
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

    /// Whether the clock is suspect, so that nothing may be destroyed on its word. Reads both clocks, so that no
    /// jump slips through between two looks.
    pub fn purging_paused(&self) -> bool {
        if let Some(guard) = &self.machine.guard
            && let Ok(mut guard) = guard.lock()
        {
            let verdict = guard.observe(wall_seconds(), self.machine.started.elapsed());
            // After a jump that was taken back, the time already issued is still ahead.
            let ahead_seconds = self.issued() - wall_seconds();
            let suspect = ahead_seconds > whole_seconds(guard.bound);
            drop(guard);
            self.heed(if suspect {
                Verdict::Suspect { ahead_seconds }
            } else {
                verdict
            });
        }
        self.machine.purging_paused.load(Ordering::Relaxed)
    }

    fn heed(&self, verdict: Verdict) {
        let paused = match verdict {
            Verdict::Suspect { .. } => true,
            Verdict::Steady | Verdict::Settled => false,
        };
        if self.machine.purging_paused.swap(paused, Ordering::Relaxed) == paused {
            return;
        }
        match verdict {
            Verdict::Suspect { ahead_seconds } => {
                crate::telemetry::expiry::clock_jumped();
                warn!(
                    ahead_seconds,
                    "the clock jumped forward; purging is paused until it is confirmed or has lasted"
                );
            }
            Verdict::Steady | Verdict::Settled => {
                warn!("the clock is trusted again; purging goes on")
            }
        }
    }

    /// The operator's word that the time is right.
    pub fn confirm(&self) {
        if let Some(guard) = &self.machine.guard
            && let Ok(mut guard) = guard.lock()
        {
            guard.confirm(wall_seconds(), self.machine.started.elapsed());
        }
        self.heed(Verdict::Settled);
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

/// Notices when the wall clock runs away from the monotonic one.
///
/// A jump forward pauses purging until an operator confirms it or it has lasted: a broken clock must not destroy data.
pub struct JumpGuard {
    bound: Duration,
    hold: Duration,
    /// Wall seconds minus monotonic seconds, as trusted.
    offset: i64,
    suspect_since: Option<Duration>,
}

/// What the guard found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Steady,
    /// The wall clock is this many seconds ahead of where it should be.
    Suspect {
        ahead_seconds: i64,
    },
    /// A suspect jump has lasted long enough to be believed, or went away.
    Settled,
}

impl JumpGuard {
    pub fn new(bound: Duration, hold: Duration, wall: i64, monotonic: Duration) -> Self {
        Self {
            bound,
            hold,
            offset: wall - whole_seconds(monotonic),
            suspect_since: None,
        }
    }

    /// Takes one reading of both clocks.
    pub fn observe(&mut self, wall: i64, monotonic: Duration) -> Verdict {
        let offset = wall - whole_seconds(monotonic);
        let ahead_seconds = offset - self.offset;
        if ahead_seconds <= whole_seconds(self.bound) {
            // Small corrections are followed, so that they do not add up to a jump.
            self.offset = offset;
            return if self.suspect_since.take().is_some() {
                Verdict::Settled
            } else {
                Verdict::Steady
            };
        }
        let since = *self.suspect_since.get_or_insert(monotonic);
        if monotonic.saturating_sub(since) >= self.hold {
            self.confirm(wall, monotonic);
            return Verdict::Settled;
        }
        Verdict::Suspect { ahead_seconds }
    }

    /// An operator says that the time is right.
    pub fn confirm(&mut self, wall: i64, monotonic: Duration) {
        self.offset = wall - whole_seconds(monotonic);
        self.suspect_since = None;
    }
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Keeps a node's highest issued time on disk.
pub struct ClockKeeper {
    clock: Clock,
    file: PathBuf,
    stored: AtomicI64,
}

impl ClockKeeper {
    /// Opens the clock of the data folder: it starts no earlier than the highest time that was ever issued there.
    pub fn open(folder: &Path, bound: Duration, hold: Duration) -> io::Result<Self> {
        let file = folder.join("clock");
        let floor = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map_err(|_| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{} holds {text:?}, not a number of seconds", file.display()),
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let wall = wall_seconds();
        if floor > wall {
            warn!(
                behind_seconds = floor - wall,
                "the machine's clock is behind the time already issued; waiting for it there"
            );
        }
        Ok(Self {
            clock: Clock::system(floor, bound, hold),
            file,
            stored: AtomicI64::new(floor),
        })
    }

    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Keeps the highest issued time, so that the next start does not go back behind it. To be called about once a second, off the event
    /// loop because it may write. A suspect time is not kept: a restart with a mended clock brings everything back.
    pub fn store(&self) {
        let issued = self.clock.issued();
        if issued <= self.stored.load(Ordering::Relaxed) || self.clock.purging_paused() {
            return;
        }
        let next = self.file.with_extension("next");
        match fs::write(&next, issued.to_string()).and_then(|()| fs::rename(&next, &self.file)) {
            Ok(()) => self.stored.store(issued, Ordering::Relaxed),
            Err(error) => error!(%error, "the highest issued time could not be stored"),
        }
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
    fn starts_no_earlier_than_the_time_issued_before_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let ahead = wall_seconds() + 1_000;
        fs::write(folder.path().join("clock"), ahead.to_string()).unwrap();
        let keeper = ClockKeeper::open(
            folder.path(),
            Duration::from_secs(60),
            Duration::from_secs(300),
        )
        .unwrap();
        assert_eq!(keeper.clock().now(), ahead);
    }

    #[test]
    fn a_damaged_clock_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("clock"), "yesterday").unwrap();
        let error = ClockKeeper::open(
            folder.path(),
            Duration::from_secs(60),
            Duration::from_secs(300),
        )
        .err()
        .unwrap();
        assert!(error.to_string().contains("yesterday"), "{error}");
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

    fn guard() -> JumpGuard {
        JumpGuard::new(
            Duration::from_secs(60),
            Duration::from_secs(300),
            1_000,
            Duration::ZERO,
        )
    }

    #[test]
    fn a_jump_is_suspect_until_it_has_lasted() {
        let mut guard = guard();
        let seconds = Duration::from_secs;
        assert_eq!(guard.observe(1_010, seconds(10)), Verdict::Steady);
        assert_eq!(
            guard.observe(1_111, seconds(11)),
            Verdict::Suspect { ahead_seconds: 100 }
        );
        assert_eq!(
            guard.observe(1_400, seconds(300)),
            Verdict::Suspect { ahead_seconds: 100 }
        );
        assert_eq!(guard.observe(1_411, seconds(311)), Verdict::Settled);
        assert_eq!(guard.observe(1_412, seconds(312)), Verdict::Steady);
    }

    #[test]
    fn a_jump_that_is_taken_back_or_confirmed_settles() {
        let mut guard = guard();
        let seconds = Duration::from_secs;
        assert!(matches!(
            guard.observe(9_000, seconds(1)),
            Verdict::Suspect { .. }
        ));
        assert_eq!(guard.observe(1_002, seconds(2)), Verdict::Settled);
        assert!(matches!(
            guard.observe(9_000, seconds(3)),
            Verdict::Suspect { .. }
        ));
        guard.confirm(9_001, seconds(4));
        assert_eq!(guard.observe(9_002, seconds(5)), Verdict::Steady);
    }

    #[test]
    fn small_corrections_do_not_add_up_to_a_jump() {
        let mut guard = guard();
        for step in 1..100 {
            assert_eq!(
                guard.observe(1_000 + step * 31, Duration::from_secs(step as u64)),
                Verdict::Steady
            );
        }
    }
}
