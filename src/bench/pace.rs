//! When requests are sent: as soon as the last is answered, or at a constant rate whatever the
//! server does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How the connections of a load take their turns.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Closed loop.
    AnswerByAnswer,
    /// Open loop.
    Scheduled(Arc<Schedule>),
}

impl Pace {
    /// A closed loop, or this many operations a second from now on.
    pub fn new(rate: Option<f64>) -> Self {
        match rate {
            None => Self::AnswerByAnswer,
            Some(rate) => Self::Scheduled(Arc::new(Schedule::new(rate, Instant::now()))),
        }
    }
}

/// The moments at which operations should be sent. Each connection takes the next free one;
/// when all are busy, operations are late, and their lateness is part of their latency.
#[derive(Debug)]
pub struct Schedule {
    begun: Instant,
    nanoseconds_between: f64,
    taken: AtomicU64,
}

impl Schedule {
    fn new(rate: f64, begun: Instant) -> Self {
        Self {
            begun,
            nanoseconds_between: 1e9 / rate,
            taken: AtomicU64::new(0),
        }
    }

    /// When the next operation should be sent: in the past, if the load is behind.
    pub fn take(&self) -> Instant {
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        self.begun + Duration::from_nanos((index as f64 * self.nanoseconds_between) as u64)
    }

    /// Operations that should have been sent by this moment and that no connection had taken.
    pub fn unsent(&self, by: Instant) -> u64 {
        let elapsed = by.saturating_duration_since(self.begun).as_nanos() as f64;
        let due = (elapsed / self.nanoseconds_between) as u64 + 1;
        due.saturating_sub(self.taken.load(Ordering::Relaxed))
    }
}

/// A timer of one connection. The event loop's own has steps of a millisecond, which would send
/// requests in bursts.
pub struct Alarm {
    #[cfg(target_os = "linux")]
    timer: tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Alarm {
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe; an owned descriptor is what both ask for"
    )]
    pub fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self {
            timer: tokio::io::unix::AsyncFd::new(timer)?,
        })
    }

    pub async fn sleep(&mut self, duration: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            // A timer of nothing would be switched off.
            tv_nsec: i64::from(duration.subsec_nanos()).max(1),
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
        loop {
            let mut guard = self.timer.readable().await?;
            let read = guard.try_io(|timer| {
                let mut expirations = [0; 8];
                Ok(rustix::io::read(timer.get_ref(), &mut expirations)?)
            });
            if let Ok(outcome) = read {
                return outcome.map(drop);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    pub async fn sleep(&mut self, duration: Duration) -> io::Result<()> {
        tokio::time::sleep(duration).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_evenly_apart_and_given_out_once() {
        let begun = Instant::now();
        let schedule = Schedule::new(1_000.0, begun);
        let moments: Vec<Instant> = (0..5).map(|_| schedule.take()).collect();
        for (index, moment) in moments.iter().enumerate() {
            assert_eq!(*moment, begun + Duration::from_millis(index as u64));
        }
        // Due at 0 to 9 ms are ten, of which five are taken.
        assert_eq!(schedule.unsent(begun + Duration::from_micros(9_500)), 5);
        assert_eq!(schedule.unsent(begun), 0);
    }

    #[tokio::test]
    async fn an_alarm_never_rings_early() {
        let mut alarm = Alarm::new().unwrap();
        for micros in [0, 1, 300] {
            let (begun, duration) = (Instant::now(), Duration::from_micros(micros));
            alarm.sleep(duration).await.unwrap();
            assert!(begun.elapsed() >= duration);
        }
    }
}
