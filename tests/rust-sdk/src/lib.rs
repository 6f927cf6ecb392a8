//! Starts real Bolide nodes for the tests and connects the SDK to them.

use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::{ContainerProperties, PartitionKeyDefinition};
use azure_data_cosmos::options::{
    BinaryEncodingOptions, ConnectionPoolOptions, ContentResponseOnWrite, CreateContainerOptions,
    ItemWriteOptions, OperationOptions, Region, ServerCertificateValidation,
};
use azure_data_cosmos::{
    AccountReference, CosmosClient, CosmosError, CosmosRuntime, RoutingStrategy,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The key that every emulator accepts; Bolide takes it on loopback only.
pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

const READY_WAIT_MAX: Duration = Duration::from_secs(15);
const STOP_WAIT_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);

/// The binary under test: `BOLIDE_BINARY`, or the release build in cargo's target folder, which
/// is that of `tests/run` where none is given.
pub fn binary_path() -> PathBuf {
    if let Some(path) = std::env::var_os("BOLIDE_BINARY") {
        return path.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || {
            let home = std::env::var_os("HOME").expect("HOME is set");
            Path::new(&home).join(".cache/bolide/target")
        },
        PathBuf::from,
    );
    target.join("release/bolide")
}

/// A running node with a data folder of its own.
pub struct Node {
    child: Child,
    pub port: u16,
    protocol: &'static str,
    _data: TempDir,
}

impl Node {
    pub async fn start() -> Self {
        Self::start_with("http").await
    }

    pub async fn start_with(protocol: &'static str) -> Self {
        let data = tempfile::Builder::new()
            .prefix("bolide-rust-")
            .tempdir()
            .expect("a temporary folder");
        let [port, health_port] = free_ports();
        let mut command = Command::new(binary_path());
        // The node takes `BOLIDE_…` variables as settings: those of the person who runs the tests must not reach it.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BOLIDE_") {
                command.env_remove(name);
            }
        }
        let child = command
            .arg("serve")
            .arg("--data-path")
            .arg(data.path())
            .args(["--port", &port.to_string()])
            .args(["--health-port", &health_port.to_string()])
            .args(["--protocol", protocol])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", binary_path().display()));
        let mut node = Self {
            child,
            port,
            protocol,
            _data: data,
        };
        node.wait_until_ready(health_port).await;
        node
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}/", self.protocol, self.port)
    }

    async fn wait_until_ready(&mut self, health_port: u16) {
        let deadline = Instant::now() + READY_WAIT_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                let mut log = String::new();
                if let Some(stderr) = self.child.stderr.as_mut() {
                    let _ = stderr.read_to_string(&mut log);
                }
                panic!("the node ended before it was ready: {status}\n{log}");
            }
            if is_ready(health_port).await.unwrap_or(false) {
                // Nobody reads the log from here on; a full pipe must not stop the node.
                if let Some(mut stderr) = self.child.stderr.take() {
                    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
                }
                return;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("the node was not ready after {READY_WAIT_MAX:?}");
    }

    /// Stops the node as an operator would and says how it ended.
    pub async fn stop(mut self) -> ExitStatus {
        let terminated = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(terminated.success());
        let deadline = Instant::now() + STOP_WAIT_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return status;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("the node ignored SIGTERM for {STOP_WAIT_MAX:?}");
    }

    /// A client with the SDK's defaults: HTTP/2 and binary JSON.
    pub async fn connect(&self) -> CosmosClient {
        self.try_connect(WELL_KNOWN_KEY, None)
            .await
            .expect("the SDK connects")
    }

    pub async fn connect_with_text_json(&self) -> CosmosClient {
        let mut options = BinaryEncodingOptions::default();
        options.enabled = false;
        self.try_connect(WELL_KNOWN_KEY, Some(options))
            .await
            .expect("the SDK connects")
    }

    pub async fn try_connect(
        &self,
        key: &'static str,
        binary: Option<BinaryEncodingOptions>,
    ) -> azure_data_cosmos::Result<CosmosClient> {
        // A runtime for each client: the SDK's global one would outlive the event loop of the test that made it.
        let pool = ConnectionPoolOptions::builder()
            .with_server_certificate_validation(ServerCertificateValidation::RequiredUnlessEmulator)
            .build()?;
        let runtime = CosmosRuntime::builder()
            .with_connection_pool(pool)
            .build()
            .await?;
        let account = AccountReference::with_authentication_key(self.endpoint().parse()?, key);
        let mut builder = CosmosClient::builder().with_runtime(runtime);
        if let Some(binary) = binary {
            builder = builder.with_binary_encoding_options(binary);
        }
        builder
            .build(
                account,
                RoutingStrategy::ProximityTo(Region::SOUTH_CENTRAL_US),
            )
            .await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_ports() -> [u16; 2] {
    let bind = || TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    // Both are held at once, so that they differ.
    let listeners = [bind(), bind()];
    listeners.map(|listener| listener.local_addr().expect("it is bound").port())
}

async fn is_ready(health_port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", health_port)).await?;
    stream
        .write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

/// A node, a client and a database: what most tests begin with.
pub struct World {
    pub node: Node,
    pub client: CosmosClient,
    pub database: DatabaseClient,
}

impl World {
    pub async fn new() -> Self {
        let node = Node::start().await;
        let client = node.connect().await;
        client
            .create_database("db", None)
            .await
            .expect("the database is created");
        let database = client.database_client("db");
        Self {
            node,
            client,
            database,
        }
    }

    /// A container `id` with partition key `/pk`.
    pub async fn container(&self, id: &'static str) -> ContainerClient {
        self.container_with(ContainerProperties::new(id, "/pk".into()), None)
            .await
    }

    pub async fn container_keyed(
        &self,
        id: &'static str,
        key: impl Into<PartitionKeyDefinition>,
    ) -> ContainerClient {
        self.container_with(ContainerProperties::new(id, key.into()), None)
            .await
    }

    pub async fn container_with(
        &self,
        properties: ContainerProperties,
        options: Option<CreateContainerOptions>,
    ) -> ContainerClient {
        let id = properties.id.to_string();
        self.database
            .create_container(properties, options)
            .await
            .expect("the container is created");
        self.database
            .container_client(id, None)
            .await
            .expect("the container is found")
    }
}

/// Status and sub-status of a failure; a missing sub-status is 0.
pub fn status_of(error: &CosmosError) -> (u16, u16) {
    let status = error.status();
    let sub_status = status.sub_status().map_or(0, |code| code.value());
    (u16::from(status.status_code()), sub_status)
}

/// Asserts that the server (and not the SDK itself) refused with this status and sub-status.
#[track_caller]
pub fn assert_refused<T>(result: azure_data_cosmos::Result<T>, status: u16, sub_status: u16) {
    match result {
        Ok(_) => panic!("expected {status}/{sub_status}, got a success"),
        Err(error) => {
            assert_eq!(status_of(&error), (status, sub_status), "{error}");
            assert!(error.is_from_wire(), "{error}");
        }
    }
}

/// Write options that ask for the written item; the SDK's default is an empty answer.
pub fn with_body() -> ItemWriteOptions {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    ItemWriteOptions::default().with_operation_options(operation)
}

/// Waits until the second `deadline` (Unix time) has begun.
pub async fn until_second(deadline: i64) {
    let deadline =
        UNIX_EPOCH + Duration::from_secs(u64::try_from(deadline).expect("a time after 1970"));
    if let Ok(left) = deadline.duration_since(SystemTime::now()) {
        tokio::time::sleep(left).await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
}
