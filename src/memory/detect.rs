//! The memory that this process may use: the lowest limit of its cgroup and the cgroups around
//! it, or all memory of the machine.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// Assumed where the system does not say: every bound has its upper end with it.
const ASSUMED_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// How much memory there is, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    pub bytes: u64,
    pub source: MemorySource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// The file with the lowest limit.
    Cgroup(PathBuf),
    Machine,
    /// The system says nothing; a size was assumed.
    Assumed,
}

impl fmt::Display for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(file) => write!(f, "{}", file.display()),
            Self::Machine => f.write_str("machine"),
            Self::Assumed => f.write_str("assumed"),
        }
    }
}

/// Returns the memory that this process may use.
pub fn detect() -> Memory {
    detect_below(Path::new("/"))
}

/// As [`detect`], with `/proc` and the cgroup file systems below another root.
fn detect_below(root: &Path) -> Memory {
    let machine = machine_bytes(root);
    let group = group_limit(root).filter(|(bytes, _)| machine.is_none_or(|all| *bytes < all));
    match (group, machine) {
        (Some((bytes, file)), _) => Memory {
            bytes,
            source: MemorySource::Cgroup(file),
        },
        (None, Some(bytes)) => Memory {
            bytes,
            source: MemorySource::Machine,
        },
        (None, None) => Memory {
            bytes: ASSUMED_BYTES,
            source: MemorySource::Assumed,
        },
    }
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest limit of all cgroups of this process, with the file that holds it.
fn group_limit(root: &Path) -> Option<(u64, PathBuf)> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mut lowest: Option<(u64, PathBuf)> = None;
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(group) = groups.lines().find_map(|line| mount.group_of(line)) else {
            continue;
        };
        for file in mount.limit_files(group) {
            let text = fs::read_to_string(below(root, &file)).unwrap_or_default();
            // `max` is no limit; neither is the number near 2^63 of version 1, which is above
            // the memory of any machine.
            if let Ok(bytes) = text.trim().parse::<u64>()
                && lowest.as_ref().is_none_or(|(least, _)| bytes < *least)
            {
                lowest = Some((bytes, file));
            }
        }
    }
    lowest
}

fn below(root: &Path, absolute: &Path) -> PathBuf {
    root.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

/// A mounted cgroup hierarchy that may limit memory.
struct Mount<'m> {
    is_version_2: bool,
    /// The cgroup that is at the mount point.
    top: &'m str,
    point: &'m str,
}

impl<'m> Mount<'m> {
    /// Parses a line of `/proc/self/mountinfo`.
    fn parse(line: &'m str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (top, point) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let is_version_2 = match kind.next()? {
            "cgroup2" => true,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        Some(Self {
            is_version_2,
            top,
            point,
        })
    }

    /// The cgroup that a line of `/proc/self/cgroup` names, if it is one of this hierarchy.
    fn group_of<'l>(&self, line: &'l str) -> Option<&'l str> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let is_of_this = if self.is_version_2 {
            number == "0" && controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == "memory")
        };
        is_of_this.then_some(group)
    }

    /// The files with the limits of a cgroup and of those around it, as far as they are mounted.
    fn limit_files(&self, group: &str) -> Vec<PathBuf> {
        let name = if self.is_version_2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        // In a container the cgroup may be at the mount point itself, whatever its path is
        // called outside.
        let inside = group.strip_prefix(self.top.trim_end_matches('/'));
        let inside = Path::new(inside.unwrap_or_default().trim_start_matches('/'));
        inside
            .ancestors()
            .map(|group| Path::new(self.point).join(group).join(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:        8000000 kB\nMemFree:         1 kB\n";
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "22 21 0:9 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      25 21 0:10 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      26 21 0:11 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const UNLIMITED_V1: &str = "9223372036854771712\n";

    /// What is detected in a system of these files.
    fn detected(files: &[(&str, &str)]) -> (u64, String) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let Memory { bytes, source } = detect_below(root.path());
        (bytes, source.to_string())
    }

    #[test]
    fn lowest_limit_of_the_cgroup_and_its_parents_counts() {
        let limited = |own: &str, parent: &str| {
            detected(&[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "0::/a/b\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/a/b/memory.max", own),
                ("sys/fs/cgroup/a/memory.max", parent),
            ])
        };
        let own = (419_430_400, "/sys/fs/cgroup/a/b/memory.max".to_owned());
        assert_eq!(limited("419430400\n", "max\n"), own);
        assert_eq!(limited("419430400\n", "500000000\n"), own);
        assert_eq!(
            limited("max\n", "500000000\n"),
            (500_000_000, "/sys/fs/cgroup/a/memory.max".to_owned())
        );
        assert_eq!(
            limited("max\n", "max\n"),
            (8_192_000_000, "machine".to_owned())
        );
        assert_eq!(
            limited("9000000000\n", "max\n"),
            (8_192_000_000, "machine".to_owned())
        );
    }

    #[test]
    fn version_1_is_known_beside_version_2() {
        let groups = "9:cpu:/\n4:memory:/jobs/one\n0::/\n";
        let limited = |own: &str| {
            detected(&[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", groups),
                ("proc/self/mountinfo", V1),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED_V1),
                (
                    "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes",
                    UNLIMITED_V1,
                ),
                ("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", own),
            ])
        };
        assert_eq!(limited("268435456\n").0, 268_435_456);
        assert_eq!(limited(UNLIMITED_V1).1, "machine");
    }

    #[test]
    fn container_sees_its_cgroup_at_the_mount_point() {
        let mount = "25 21 0:10 /docker/c0ffee /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        let (bytes, _) = detected(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "4:memory:/docker/c0ffee\n"),
            ("proc/self/mountinfo", mount),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "419430400\n"),
        ]);
        assert_eq!(bytes, 419_430_400);
        let (bytes, _) = detected(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/memory.max", "419430400\n"),
        ]);
        assert_eq!(bytes, 419_430_400);
    }

    #[test]
    fn system_that_says_nothing_is_assumed_to_have_enough() {
        assert_eq!(detected(&[]), (ASSUMED_BYTES, "assumed".to_owned()));
    }
}
