//! File descriptors: whether there are enough for more engines.

use crate::model::error::{Error, ErrorKind, Result};

/// What an engine takes: lock, WAL, MANIFEST, its folder twice, and the first SSTs.
const PER_ENGINE: u64 = 7;
/// One in so many stays free: for connections, and for the files that engines open as they grow.
const RESERVE_SHARE: u64 = 4;

/// Fails when so many more engines would leave too few descriptors. An engine that runs out of them
/// in the middle of a write does more harm than a container that is not made.
pub fn check_room(engines: u64) -> Result<()> {
    match usage() {
        Some((open, limit)) => check(open, limit, engines),
        None => Ok(()),
    }
}

fn check(open: u64, limit: u64, engines: u64) -> Result<()> {
    let usable = limit - limit / RESERVE_SHARE;
    let needed = engines.saturating_mul(PER_ENGINE);
    if open.saturating_add(needed) <= usable {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Forbidden,
        format!(
            "{engines} more shards need about {needed} file descriptors, and the node has {open} of {limit} open, of which a quarter \
             is kept free: raise the limit (ulimit -n, LimitNOFILE= of systemd), or ask for less throughput"
        ),
    ))
}

/// Returns how many descriptors are open, and how many may be; none where the system does not tell.
#[cfg(target_os = "linux")]
fn usage() -> Option<(u64, u64)> {
    const OPEN: &str = "/proc/self/fd";
    // Since Linux 6.2 the folder's size is their number; before that it is 0, and counting takes as long as there are many.
    let open = match std::fs::metadata(OPEN).ok()?.len() {
        0 => std::fs::read_dir(OPEN).ok()?.count() as u64,
        open => open,
    };
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limits.current.map(|limit| (open, limit))
}

#[cfg(not(target_os = "linux"))]
fn usage() -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_leave_a_quarter_of_the_descriptors_free() {
        assert!(check(68, 1_024, 100).is_ok());
        let error = check(68, 1_024, 101).unwrap_err();
        assert_eq!(error.status(), 403);
        assert!(error.message.contains("68 of 1024"), "{error}");
        assert!(check(0, u64::MAX, u64::MAX).is_err());
        assert!(check(10, 0, 0).is_err());
    }

    #[test]
    fn the_system_tells_what_is_open() {
        if let Some((open, limit)) = usage() {
            assert!(open > 0 && open <= limit, "{open} of {limit}");
        }
    }
}
