//! The processes of a cluster on this machine, and the file that remembers them.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{hints, status};
use crate::{
    client::HealthPort,
    model::error::{Error, Result},
};

/// Between the ports of two nodes.
const PORTS_PER_NODE: u16 = 10;
const KEY_FILE_VARIABLE: &str = "BOLIDE_AUTH__KEY_FILE";
const FILE: &str = "cluster.json";
const CLUSTER_KEY: &str = "cluster.key";
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
pub struct LocalNode {
    pub id: u16,
    pid: u32,
    pub port: u16,
    pub health_port: u16,
    /// The file with the account's keys; none: the well-known key.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

impl LocalNode {
    pub fn health(&self) -> HealthPort {
        HealthPort::local(self.health_port)
    }
}

fn cannot(what: &str) -> impl Fn(std::io::Error) -> Error + '_ {
    move |failure| Error::unavailable(format!("cannot {what}: {failure}"))
}

/// The nodes that `up` has started.
pub fn load(folder: &Path) -> Result<Vec<LocalNode>> {
    let path = folder.join(FILE);
    let text = fs::read(&path).map_err(|_| {
        let (shown, up) = (folder.display(), hints::command("up", folder));
        // The key is made before the first start, and stays.
        Error::bad_request(match folder.join(CLUSTER_KEY).exists() {
            true => format!("the cluster in '{shown}' is down; '{up}' starts it"),
            false => format!("there is no cluster in '{shown}': '{up}' starts one"),
        })
    })?;
    serde_json::from_slice(&text)
        .map_err(|failure| Error::bad_request(format!("'{}': {failure}", path.display())))
}

/// A process that runs and is a node of this cluster.
fn is_running(folder: &Path, node: &LocalNode) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", node.pid)).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    line.contains(&*folder.join(format!("node{}", node.id)).to_string_lossy())
}

pub fn up(folder: &Path, count: u16, port: u16, key_file: Option<&Path>) -> Result<()> {
    let key_file = account_key_file(key_file)?;
    fs::create_dir_all(folder).map_err(cannot("make the folder of the cluster"))?;
    let folder = &folder.canonicalize().map_err(cannot("find the folder"))?;
    if let Ok(nodes) = load(folder)
        && nodes.iter().any(|node| is_running(folder, node))
    {
        return Err(Error::conflict(format!(
            "a cluster runs in '{}' already: '{}' ends it",
            folder.display(),
            hints::command("down", folder)
        )));
    }
    let cluster_key = folder.join(CLUSTER_KEY);
    make_key(&cluster_key)?;
    let ports = |id: u16| port + (id - 1) * PORTS_PER_NODE;
    let members: Vec<String> = (1..=count)
        .map(|id| format!("{id}=127.0.0.1:{}", ports(id) + 1))
        .collect();
    let members = members.join(",");
    let (mut nodes, mut children) = (Vec::new(), Vec::new());
    for id in 1..=count {
        let settings = [
            ("server.port", ports(id).to_string()),
            ("server.health_port", (ports(id) - 1).to_string()),
            ("cluster.node", id.to_string()),
            ("cluster.members", members.clone()),
            ("cluster.key_file", cluster_key.display().to_string()),
            (
                "auth.key_file",
                key_file
                    .as_deref()
                    .unwrap_or(Path::new(""))
                    .display()
                    .to_string(),
            ),
        ];
        let child = spawn(folder, id, &settings)?;
        nodes.push(LocalNode {
            id,
            pid: child.id(),
            port: ports(id),
            health_port: ports(id) - 1,
            key_file: key_file.clone(),
        });
        children.push(child);
        let text = serde_json::to_vec_pretty(&nodes).unwrap_or_default();
        fs::write(folder.join(FILE), text).map_err(cannot("remember the nodes"))?;
        println!("node {id} starts: http://127.0.0.1:{}/", ports(id));
    }
    let waited = wait_for_leader(folder, &nodes, &mut children);
    if waited.is_err() {
        let _ = down(folder);
    }
    waited?;
    println!("the cluster serves; any node answers any request");
    println!("  data   {}", folder.display());
    println!("  status {}", hints::command("status", folder));
    println!("  end    {}", hints::command("down", folder));
    Ok(())
}

/// The file with the account's keys that the nodes are to use: given, or set in the environment,
/// which the nodes inherit.
fn account_key_file(given: Option<&Path>) -> Result<Option<PathBuf>> {
    let set = std::env::var_os(KEY_FILE_VARIABLE).filter(|path| !path.is_empty());
    let Some(path) = given.map(Path::to_owned).or(set.map(PathBuf::from)) else {
        return Ok(None);
    };
    // The nodes work in folders of their own.
    let absolute = path.canonicalize().map_err(|failure| {
        Error::bad_request(format!(
            "cannot read the key file '{}': {failure}",
            path.display()
        ))
    })?;
    Ok(Some(absolute))
}

fn make_key(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let digits: [u8; 32] = rand::random();
    let key: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.write(true).create_new(true).open(path);
    file.and_then(|mut file| writeln!(file, "{key}"))
        .map_err(cannot("make the key of the cluster"))
}

fn spawn(folder: &Path, id: u16, settings: &[(&str, String)]) -> Result<Child> {
    let cannot = cannot("start a node");
    let data = folder.join(format!("node{id}"));
    fs::create_dir_all(&data).map_err(&cannot)?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join(format!("node{id}.log")))
        .map_err(&cannot)?;
    let mut command = Command::new(std::env::current_exe().map_err(&cannot)?);
    command.args(["serve", "--data-path"]).arg(&data);
    for (name, value) in settings {
        command.args(["--set", &format!("{name}={value}")]);
    }
    command
        .current_dir(&data)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(&cannot)?)
        .stderr(log)
        .spawn()
        .map_err(&cannot)
}

fn wait_for_leader(folder: &Path, nodes: &[LocalNode], children: &mut [Child]) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        for (node, child) in nodes.iter().zip(&mut *children) {
            if let Ok(Some(ended)) = child.try_wait() {
                let log = folder.join(format!("node{}.log", node.id));
                let text = fs::read_to_string(&log).unwrap_or_default();
                let last = text.lines().next_back().unwrap_or("it logged nothing");
                return Err(Error::unavailable(format!(
                    "node {} ended ({ended}): {last}",
                    node.id
                )));
            }
        }
        let led = |node: &LocalNode| {
            node.health()
                .get("/status")
                .is_some_and(|status| status::catalog_leader(&status).is_some())
        };
        if nodes.iter().all(led) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::unavailable(format!(
                "the nodes have not found each other within {} s; '{}' has their logs",
                START_TIMEOUT.as_secs(),
                folder.display()
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

pub fn down(folder: &Path) -> Result<()> {
    let folder = &folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let nodes = load(folder)?;
    let running = || nodes.iter().filter(|node| is_running(folder, node));
    for node in running() {
        println!("node {} ends", node.id);
        let _ = Command::new("kill").arg(node.pid.to_string()).status();
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while running().next().is_some() {
        if Instant::now() > deadline {
            return Err(Error::unavailable("some nodes do not end"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    fs::remove_file(folder.join(FILE)).map_err(cannot("forget the nodes"))?;
    println!("the cluster is down; its data is in '{}'", folder.display());
    Ok(())
}
