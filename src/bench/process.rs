//! Server processes and what the system says of them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::connection::Connection;
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

/// Clock ticks a second in which Linux shows CPU times to programs, whatever the kernel uses.
const TICKS_PER_SECOND: u64 = 100;
/// Blocks in which file sizes on disk are counted, in bytes.
const BLOCK_BYTES: u64 = 512;
/// How long a server may take to answer its first request.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a server may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a server that starts or ends is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A folder for one run, removed with all it holds.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn create(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = parent.join(format!("bolide-bench-{}", std::process::id()));
        let made = fs::create_dir_all(&path).and_then(|()| path.canonicalize());
        let path = made.map_err(|error| cannot_make(&path, &error))?;
        Ok(Self { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).map_err(|error| cannot_make(&path, &error))?;
        Ok(path)
    }
}

fn cannot_make(folder: &Path, error: &io::Error) -> Error {
    Error::bad_request(format!(
        "cannot make the folder '{}': {error}",
        folder.display()
    ))
}

/// The program with this name in these folders or on the path.
pub fn find_binary(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path);
    let folders = folders.iter().cloned().chain(on_path);
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a folder that stays; its name tells the process.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A server of this same binary in a process of its own, killed when it is dropped.
pub struct ServerProcess {
    name: &'static str,
    child: Child,
    started: Instant,
    log: PathBuf,
    pub port: u16,
}

impl ServerProcess {
    /// Starts this binary with these arguments. It runs in a scratch folder, so that it finds no
    /// config file, and its messages go to a file there.
    pub fn spawn(
        name: &'static str,
        folder: &Path,
        arguments: &[String],
        port: u16,
    ) -> Result<Self> {
        let cannot = |error| Error::unavailable(format!("cannot start the {name}: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.args(arguments);
        Self::spawn_command(name, folder, command, port)
    }

    /// Starts any server in a folder, where its messages go to a file.
    pub fn spawn_command(
        name: &'static str,
        folder: &Path,
        mut command: Command,
        port: u16,
    ) -> Result<Self> {
        let cannot = |error| Error::unavailable(format!("cannot start the {name}: {error}"));
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).map_err(cannot)?;
        let messages = output.try_clone().map_err(cannot)?;
        let started = Instant::now();
        let child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(messages)
            // Ctrl-C is for the driver, which still has to ask the server for its report.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        Ok(Self {
            name,
            child,
            started,
            log,
            port,
        })
    }

    /// Waits until the server answers this request with 200; the time since its start.
    pub async fn answering(&mut self, request: &[u8]) -> Result<Duration> {
        self.answering_at(&Endpoint::local(self.port), request)
            .await
    }

    /// The same for a server that speaks something else.
    pub async fn answering_at(&mut self, endpoint: &Endpoint, request: &[u8]) -> Result<Duration> {
        let mut last = None;
        while self.started.elapsed() < START_TIMEOUT {
            if let Ok(mut connection) = Connection::open_to(endpoint).await
                && let Ok(answer) = connection.exchange(request).await
            {
                let elapsed = self.started.elapsed();
                if answer.status == 200 {
                    return Ok(elapsed);
                }
                last = Some(answer.status);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failure(&format!("ended at its start ({status})")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let last = last.map_or_else(String::new, |status| format!(", but {status}"));
        let seconds = START_TIMEOUT.as_secs();
        Err(self.failure(&format!("did not answer with 200 within {seconds} s{last}")))
    }

    fn failure(&self, what: &str) -> Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.unwrap_or("it logged nothing");
        Error::unavailable(format!("the {} {what}: {last}", self.name))
    }

    /// User and system time of the whole process so far.
    pub fn cpu(&self) -> Result<Duration> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(path).map_err(|_| self.failure("is gone"))?;
        cpu_ticks(&text)
            .map(time_of)
            .ok_or_else(|| self.failure("has an unreadable stat file"))
    }

    /// Resident memory, in bytes: now, and the most it ever was.
    pub fn resident_bytes(&self) -> Result<(u64, u64)> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = fs::read_to_string(path).map_err(|_| self.failure("is gone"))?;
        let field = |name| kilobytes(&text, name).map(|kilobytes| kilobytes * 1_024);
        field("VmRSS:")
            .zip(field("VmHWM:"))
            .ok_or_else(|| self.failure("is gone"))
    }

    /// How many file descriptors it has open.
    pub fn descriptors(&self) -> Result<u64> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.map(|open| open.count() as u64)
            .map_err(|_| self.failure("is gone"))
    }

    /// Asks the server to end and waits until it has; how long it took.
    pub async fn stop(mut self) -> Result<Duration> {
        let asked = Instant::now();
        // The standard library can only kill; the shell can ask.
        let command = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &command]).status();
        if !sent.is_ok_and(|status| status.success()) {
            return Err(self.failure("could not be asked to end"));
        }
        while asked.elapsed() < STOP_TIMEOUT {
            if let Ok(Some(status)) = self.child.try_wait() {
                return match status.success() {
                    true => Ok(asked.elapsed()),
                    false => Err(self.failure(&format!("did not end cleanly ({status})"))),
                };
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(self.failure(&format!("did not end within {} s", STOP_TIMEOUT.as_secs())))
    }
}

impl Drop for ServerProcess {
    /// `kill -9`: also how a case makes a node crash.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns user and system time of this process; zero where the system does not show it.
pub fn own_cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_ticks(&text).map_or(Duration::ZERO, time_of)
}

/// Returns the time that all cores together were busy since the system's start.
pub fn machine_cpu() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(&text).map_or(Duration::ZERO, time_of)
}

fn time_of(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

/// Returns a port of 127.0.0.1 that is free now.
pub fn free_port() -> Result<u16> {
    std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::unavailable(format!("no port is free: {error}")))
}

/// What a folder takes on disk, in bytes. Files that vanish meanwhile count nothing.
pub fn disk_bytes(folder: &Path) -> u64 {
    let mut folders = vec![folder.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => bytes += metadata.blocks() * BLOCK_BYTES,
                Err(_) => {}
            }
        }
    }
    bytes
}

/// User and system ticks of a stat file. The name in it, in parentheses, can hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The first line of the machine's stat file without what it calls idle and waiting, and without
/// guests, which are in the others already. Time stolen by other machines counts as busy.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks = fields.split_whitespace().map(|field| field.parse().ok());
    let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
    let busy = ticks.iter().take(8).enumerate();
    Some(
        busy.filter(|(column, _)| !matches!(column, 3 | 4))
            .map(|(_, ticks)| ticks)
            .sum(),
    )
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_understood() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 9 0 1 2 3";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("12 (a) S 1"), None);
        let stat = "cpu  1 2 4 8000 16000 32 64 128 256 512\ncpu0 1 1 1";
        assert_eq!(busy_ticks(stat), Some(1 + 2 + 4 + 32 + 64 + 128));
        assert!(machine_cpu() >= own_cpu());
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(kilobytes(status, "VmRSS:"), Some(1_024));
        assert_eq!(kilobytes(status, "VmSwap:"), None);
        assert!(cpu_ticks(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }

    #[test]
    fn a_folders_files_are_added_up_at_every_depth() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("x"), vec![1; 100_000]).unwrap();
        fs::write(folder.path().join("y"), vec![1; 50_000]).unwrap();
        let bytes = disk_bytes(folder.path());
        assert!((150_000..300_000).contains(&bytes), "{bytes}");
        assert_eq!(disk_bytes(&inner.join("none")), 0);
    }
}
