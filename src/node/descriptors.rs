//! The file descriptors of the process: the soft limit is raised to the hard one at start.

use tracing::{info, warn};

/// Below this a node with a few hundred shards or connections runs out of descriptors.
const LIMIT_SMALL: u64 = 4_096;
/// What systems grant that name no hard limit.
const LIMIT_UNBOUNDED: u64 = 10_240;

/// Raises the soft limit of file descriptors to the hard one. Returns the limit in force.
pub fn raise_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let wanted = before.maximum.unwrap_or(LIMIT_UNBOUNDED);
    if before.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: before.maximum,
        };
        if let Err(failure) = setrlimit(Resource::Nofile, raised) {
            warn!(wanted, %failure, "the limit of file descriptors cannot be raised");
        }
    }
    let limit = limit();
    if limit < LIMIT_SMALL {
        warn!(
            limit,
            recommended = LIMIT_SMALL,
            "few file descriptors: raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd)"
        );
    } else {
        info!(limit, "file descriptors");
    }
    limit
}

/// Returns how many file descriptors the process may have open.
pub fn limit() -> u64 {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limits.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_limit();
        assert_eq!(raised, limit());
        let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(Some(raised), limits.maximum.or(Some(raised)));
    }
}
