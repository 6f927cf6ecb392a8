//! A node: puts the rooms together, serves, and stops in order.

mod banner;
mod descriptors;
mod exit_code;
mod hosts;
mod identity;
mod membership;
pub mod offline;
mod privacy;
mod quorum;
mod service_manager;
mod stop;

use std::{
    fs::{self, File},
    io::{self, IsTerminal},
    net::TcpListener,
    path::Path,
    sync::Arc,
    time::Duration,
};

use actix::{Actor, Arbiter};
use arc_swap::ArcSwap;
pub use exit_code::ExitCode;
use hosts::{check_host, listen};
use identity::DataFolder;
use membership::{Joined, begin_catalog, is_member, join_cluster, taken_out};
use tracing::{error, info, warn};

use crate::{
    clock::ClockKeeper,
    config::{LogFormat, Protocol, Settings, Storage},
    coordinator::{
        Coordinator,
        actor::Policy,
        meta::{Meta, Own, initialized_at},
    },
    gateway::{
        auth::{
            host_policy::HostPolicy,
            keys::{KeyOrigin, KeySource, is_loopback},
        },
        call::{Shared, Unsent},
        health::{self, Health, Running, order_auth::OrderAuth},
        http::{server, tls::CertificateFiles},
        protocol::body::BodyBounds,
    },
    memory::{self, MemoryBounds},
    model::error::Error,
    output,
    query::QueryScheduler,
    router::RoutingTable,
    server::{ByteBudget, Deadlines, Listening},
    shard::{
        answer,
        host::{Admission, ClusterContext, ShardHost, folders::ShardFolders},
        set_document_cache_bytes_max,
    },
    store::{
        EngineOptions, SharedResources, recorded_sequences::RecordedSequences, reserve::Reserve,
    },
    telemetry::{self, Exporter},
};

/// How often the clock is read and kept.
const CLOCK_TICK: Duration = Duration::from_secs(1);

/// How often it is looked whether a full disk has room for the reserve again.
const RESERVE_TICK: Duration = Duration::from_secs(1);

/// What the listeners may take beyond the time that requests have.
const LISTENERS_MARGIN: Duration = Duration::from_secs(1);

/// How often histograms are tidied.
const METRICS_TICK: Duration = Duration::from_secs(1);

/// Between these the number of connections follows from the descriptors.
const CONNECTIONS_LEAST: usize = 16;
const CONNECTIONS_MOST: usize = 20_000;

/// Why a node could not start.
#[derive(Debug)]
pub struct Failure {
    pub code: ExitCode,
    pub message: String,
}

impl Failure {
    pub fn new(code: ExitCode, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    /// Of reading or writing the data folder.
    fn data(what: &str, path: &Path, failure: &io::Error) -> Self {
        let code = match failure.kind() {
            io::ErrorKind::InvalidData => ExitCode::DataDamaged,
            io::ErrorKind::StorageFull => ExitCode::DiskFull,
            io::ErrorKind::WouldBlock => ExitCode::DataInUse,
            _ => ExitCode::Failure,
        };
        Self::new(code, format!("{what} '{}': {failure}", path.display()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(ExitCode::Configuration, error.message)
    }
}

/// Serves until SIGINT or SIGTERM.
pub fn run(mut settings: Settings) -> Result<(), Failure> {
    start_log(&settings);
    privacy::create_private_files();
    descriptors::raise_limit();
    let metrics =
        Exporter::install().map_err(|failure| Failure::new(ExitCode::Failure, failure))?;
    telemetry::register_node();
    let bounds = bound_memory(&mut settings);
    actix::System::new().block_on(serve(settings, bounds, metrics))
}

/// Returns the sizes of the engines, as the settings have them.
fn engine_options(storage: &Storage) -> EngineOptions {
    EngineOptions {
        block_cache_mb: storage.block_cache_mb,
        write_buffer_mb: storage.write_buffer_mb,
        wal_mb_max: storage.journal_mb_max,
    }
}

/// Works out what follows from the memory, and says so.
fn bound_memory(settings: &mut Settings) -> MemoryBounds {
    let memory = memory::detect();
    let bounds = MemoryBounds::new(settings, &memory, is_member(settings));
    bounds.log(&memory);
    telemetry::queries::limit(memory.bytes);
    bounds.fill_in(settings);
    memory::allocator::tune(&memory);
    set_document_cache_bytes_max(bounds.recent_documents);
    answer::set_in_flight_bytes_max(bounds.answers);
    bounds
}

fn start_log(settings: &Settings) {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter = EnvFilter::try_new(&settings.log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // A second node in one process keeps the first one's log.
    let _ = match settings.log.format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
}

async fn serve(settings: Settings, bounds: MemoryBounds, metrics: Exporter) -> Result<(), Failure> {
    let server = &settings.server;
    check_host(&server.host)?;
    let keys = if settings.auth.enabled {
        let key_file = settings.auth.key_file.as_deref();
        let keys = KeySource::open(key_file, &server.host, server.emulator)?;
        warn_of_readable_keys(keys.origin());
        Some(keys)
    } else {
        refuse_open_network(&settings)?;
        None
    };
    banner::warn_of_emulator(&settings, keys.as_ref());
    let data = &settings.storage.data_path;
    // Held until the process ends.
    let _lock = lock_folder(data)?;
    let data_folder = DataFolder::read(data)?;
    data_folder.check_settings(&settings, is_member(&settings))?;
    let sequences = RecordedSequences::open(data);
    let tls = match server.protocol {
        Protocol::Http => None,
        Protocol::Https => Some(certificates(&settings)?.server_config()?),
    };
    let clock = open_clock(&settings);
    let rest_listener = listen(&server.host, server.port, "--port")?;
    let health_listener = listen(&server.host, server.health_port, "--health-port")?;
    let health_port = port_of(&health_listener);
    let endpoint = server.endpoint(port_of(&rest_listener));
    let orders = OrderAuth::new(
        keys.as_ref().map(KeySource::authenticator),
        HostPolicy::new(&server.allowed_hosts),
    );
    let health = Arc::new(Health::new(Arc::clone(&clock), metrics.clone(), orders));
    // It says that the node is starting, however long that takes.
    let health_server = health::port::serve(health_listener, Arc::clone(&health))
        .map_err(|failure| Failure::new(ExitCode::Failure, failure))?;
    let member = match is_member(&settings) {
        false => {
            data_folder.settle(None)?;
            None
        }
        true => Some(join_cluster(&settings, data_folder, &sequences, clock.clock()).await?),
    };
    let reserve = open_reserve(&settings).await?;
    watch_reserve(Arc::clone(&reserve));
    let resources = SharedResources::new(engine_options(&settings.storage)).with_reserve(reserve);
    let coordinator =
        open_coordinator(&settings, &clock, sequences, resources, member.as_ref()).await?;
    let host = coordinator.host();
    let table = coordinator.table();
    let meta = coordinator.meta();
    let coordinator = coordinator.start();
    if let Some(meta) = &meta {
        if let Some(joined) = &member {
            begin_catalog(meta, coordinator.clone(), joined);
        }
        actix::spawn(Arc::clone(meta).keep_lease(Arc::clone(&table)));
    }

    let shared = Arc::new(Shared {
        table: Arc::clone(&table),
        openings: Arc::clone(host.openings()),
        coordinator: coordinator.clone(),
        authenticator: keys.as_ref().map(KeySource::authenticator),
        hosts: HostPolicy::new(&server.allowed_hosts),
        trust_forwarded: server.trust_forwarded,
        clock: clock.clock(),
        account: server.account.clone(),
        region: server.region.clone(),
        consistency: server.consistency,
        scheme: server.protocol.scheme(),
        member: member.as_ref().map(|joined| Arc::clone(&joined.member)),
        queries: Arc::new(QueryScheduler::new(
            settings.limits.query_bytes_max,
            settings.limits.queries_bytes_max,
        )),
        bodies: BodyBounds {
            bytes: ByteBudget::new(settings.limits.node_inflight_bytes_max),
            parsed: ByteBudget::new(bounds.parsed_bodies),
            deadline: Duration::from_secs(server.body_seconds),
        },
        unsent: Unsent {
            large: ByteBudget::new(settings.limits.node_inflight_bytes_max),
            small: ByteBudget::new(settings.limits.node_inflight_bytes_max),
        },
    });
    let health_member = shared.member.clone();
    if let Some(member) = &health_member {
        quorum::watch(Arc::clone(member));
    }
    let driver = shared.member.as_ref().map(|member| member.driver.clone());
    let mut log = None;
    let mut ends = None;
    if let Some(joined) = member {
        let node = joined.member.node;
        let meta = meta.clone();
        ends = meta.map(|meta| {
            (
                node,
                joined.member_check.until_taken_out(joined.member, meta),
            )
        });
        log = Some(joined.log);
        server::for_nodes(joined.sent_on, Arc::clone(&shared));
    }
    let listening = Listening {
        listener: rest_listener,
        tls,
        workers: worker_count(&settings),
        connections_max: connections_max(&settings),
        deadlines: Deadlines {
            header: Duration::from_secs(server.header_seconds),
            idle: Duration::from_secs(server.idle_seconds),
            write: Duration::from_secs(server.write_seconds),
        },
    };
    let rest = server::rest(listening, shared)
        .map_err(|failure| Failure::new(ExitCode::Failure, failure))?;

    let banner = banner::text(&endpoint, health_port, &settings, keys.as_ref());
    watch_clock(Arc::clone(&clock));
    record_progress(Arc::clone(&host), Arc::clone(&table));
    tidy_metrics(metrics);
    if let Some(keys) = keys {
        watch_keys(
            keys,
            Duration::from_secs(settings.auth.key_file_poll_seconds),
        );
    }
    health.started(Running {
        table: Arc::clone(&table),
        host: Arc::clone(&host),
        coordinator: coordinator.clone(),
        cluster: health_member.zip(meta),
    });
    output::show(&banner);
    let mut signals =
        stop::Signals::new().map_err(|failure| Failure::new(ExitCode::Failure, failure))?;
    service_manager::notify("READY=1");
    let ended = tokio::select! {
        () = signals.next() => Ok(()),
        failure = ended_by_others(&settings, ends) => Err(failure),
    };
    info!("stopping");
    service_manager::notify("STOPPING=1");
    health.stopping();
    let shutdown = Duration::from_secs(server.shutdown_seconds);
    let requests = async move {
        rest.stop(shutdown).await;
        health_server.stop(Duration::ZERO).await;
    };
    let closing = stop::Closing {
        driver,
        coordinator,
        clock,
        shutdown: shutdown + LISTENERS_MARGIN,
        record: Box::new(move || {
            let sealed = log.map_or(Ok(()), |log| log.seal());
            host.record(&table.load().catalog);
            if let Err(failure) = sealed {
                warn!(%failure, "the Raft log could not be handed to the disk as a whole; its WAL has everything");
            }
        }),
    };
    stop::stop(requests, closing, signals).await?;
    ended
}

/// Waits until the other nodes say that this one has no place in the cluster any more; for ever on
/// a standalone node.
async fn ended_by_others(
    settings: &Settings,
    ends: Option<(u64, impl Future<Output = ()>)>,
) -> Failure {
    match ends {
        None => std::future::pending().await,
        Some((node, end)) => {
            end.await;
            taken_out(settings, node)
        }
    }
}

/// Fails when everybody in the network could do everything and nobody has said that this is meant.
fn refuse_open_network(settings: &Settings) -> Result<(), Failure> {
    let host = &settings.server.host;
    if is_loopback(host) || settings.auth.allow_open_network {
        return Ok(());
    }
    Err(Failure::new(
        ExitCode::Configuration,
        format!(
            "refusing to listen on {host} with authentication off: everybody who reaches the port \
             could read and delete everything; leave auth.enabled on and give a --key-file, listen \
             on 127.0.0.1, or say that it is meant with --set auth.allow_open_network=true"
        ),
    ))
}

/// Makes the data folder, and takes it for this process alone.
fn lock_folder(folder: &Path) -> Result<File, Failure> {
    if folder.is_file() {
        return Err(Failure::new(
            ExitCode::Configuration,
            format!(
                "the data folder '{}' is a file: --data-path names a folder, which is made if it is missing",
                folder.display()
            ),
        ));
    }
    let open = || -> io::Result<File> {
        fs::create_dir_all(folder)?;
        privacy::close_folder(folder)?;
        File::create(folder.join("lock"))
    };
    let lock =
        open().map_err(|failure| Failure::data("cannot use the data folder", folder, &failure))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(Failure::new(
            ExitCode::DataInUse,
            format!(
                "the data folder '{}' is in use by another process",
                folder.display()
            ),
        )),
        Err(fs::TryLockError::Error(failure)) => Err(Failure::data(
            "cannot lock the data folder",
            folder,
            &failure,
        )),
    }
}

fn certificates(settings: &Settings) -> Result<CertificateFiles, Failure> {
    let configured =
        CertificateFiles::configured(settings.tls.cert.as_deref(), settings.tls.key.as_deref())?;
    match configured {
        Some(files) => Ok(files),
        None => {
            let server = &settings.server;
            let hosts: Vec<&str> = server.allowed_hosts.split(',').collect();
            let hosts = [&[server.host.as_str()], &hosts[..]].concat();
            let data = &settings.storage.data_path;
            Ok(CertificateFiles::development(data, &hosts)?)
        }
    }
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().map_or(0, |address| address.port())
}

fn open_clock(settings: &Settings) -> Arc<ClockKeeper> {
    let bound = Duration::from_secs(settings.ttl.clock_jump_bound_seconds);
    let hold = Duration::from_secs(settings.ttl.clock_jump_hold_seconds);
    Arc::new(ClockKeeper::open(&settings.storage.data_path, bound, hold))
}

/// Sets disk space aside for purging. Waits for the disk.
async fn open_reserve(settings: &Settings) -> Result<Arc<Reserve>, Failure> {
    let (folder, megabytes) = (&settings.storage.data_path, settings.storage.reserve_mb);
    let (folder, bytes) = (folder.clone(), megabytes.saturating_mul(1024 * 1024));
    tokio::task::spawn_blocking(move || Reserve::open(&folder, bytes))
        .await
        .map_err(|failure| Failure::new(ExitCode::Failure, failure))
}

fn watch_reserve(reserve: Arc<Reserve>) {
    actix::spawn(async move {
        loop {
            tokio::time::sleep(RESERVE_TICK).await;
            if reserve.is_released() {
                let reserve = Arc::clone(&reserve);
                let _ = tokio::task::spawn_blocking(move || reserve.restore()).await;
            }
        }
    });
}

async fn open_coordinator(
    settings: &Settings,
    clock: &ClockKeeper,
    sequences: Arc<RecordedSequences>,
    shared: SharedResources,
    joined: Option<&Joined>,
) -> Result<Coordinator, Failure> {
    let folder = settings.storage.data_path.clone();
    let arbiters = (0..worker_count(settings))
        .map(|_| Arbiter::new().handle())
        .collect();
    let admission = Admission {
        shard_requests_max: settings.limits.shard_queue_max,
        node_bytes_max: settings.limits.node_inflight_bytes_max,
    };
    let groups = joined.map(|joined| {
        let member = Arc::clone(&joined.member);
        ClusterContext {
            driver: joined.member.driver.clone(),
            snapshots: Arc::clone(&joined.snapshots),
            time: Arc::clone(&joined.time),
            connected: Box::new(move |node| member.is_connected(node)),
            initialized_at: {
                let folder = folder.clone();
                Box::new(move || initialized_at(&folder))
            },
        }
    });
    let meta = joined.map(|joined| {
        let own = Own {
            node: joined.member.node,
            members: joined.founders.clone(),
            replication: settings.cluster.replication,
        };
        let member = Arc::clone(&joined.member);
        let snapshots = Arc::clone(&joined.snapshots);
        let disk = Arc::clone(&joined.log) as _;
        Meta::new(own, folder.clone(), member, disk, snapshots)
    });
    if let Some(meta) = &meta {
        let recovered = meta.recover();
        recovered.map_err(|failure| Failure::new(ExitCode::DataDamaged, failure))?;
    }
    let broken = |failure| Failure::data("cannot open the data folder", &folder, &failure);
    let folders = ShardFolders::new(&folder, sequences).map_err(broken)?;
    let host = ShardHost::new(arbiters, shared, clock.clock(), folders, admission, groups);
    let policy = Policy {
        shards_per_container: settings.limits.shards_per_container,
        shard_bytes_max: settings.limits.shard_bytes_max,
        enforce_throughput: settings.limits.enforce_throughput,
    };
    let opened = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || Coordinator::open(folder, host, policy, meta)
    });
    match opened.await {
        Ok(Ok(coordinator)) => Ok(coordinator),
        Ok(Err(failure)) => Err(broken(failure)),
        Err(failure) => Err(Failure::new(ExitCode::Failure, failure)),
    }
}

fn worker_count(settings: &Settings) -> usize {
    match settings.server.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Connections that clients may have open: half of the descriptors, unless it is set. The other
/// half is the engine's and the cluster's.
fn connections_max(settings: &Settings) -> usize {
    match settings.server.connections_max {
        0 => {
            let half = usize::try_from(descriptors::limit() / 2).unwrap_or(usize::MAX);
            half.clamp(CONNECTIONS_LEAST, CONNECTIONS_MOST)
        }
        count => count,
    }
}

fn watch_clock(clock: Arc<ClockKeeper>) {
    actix::spawn(async move {
        loop {
            tokio::time::sleep(CLOCK_TICK).await;
            let clock = Arc::clone(&clock);
            // It may write a file.
            let _ = tokio::task::spawn_blocking(move || clock.store()).await;
        }
    });
}

/// Records once a second how far the shards are, where their WAL is not.
fn record_progress(host: Arc<ShardHost>, table: Arc<ArcSwap<RoutingTable>>) {
    actix::spawn(async move {
        loop {
            tokio::time::sleep(CLOCK_TICK).await;
            let (host, table) = (Arc::clone(&host), table.load_full());
            let _ = tokio::task::spawn_blocking(move || host.record(&table.catalog)).await;
        }
    });
}

/// Histograms keep every value until they are tidied.
fn tidy_metrics(metrics: Exporter) {
    actix::spawn(async move {
        loop {
            tokio::time::sleep(METRICS_TICK).await;
            let metrics = metrics.clone();
            let _ = tokio::task::spawn_blocking(move || metrics.tidy()).await;
        }
    });
}

fn warn_of_readable_keys(origin: &KeyOrigin) {
    if let KeyOrigin::File(path) = origin {
        privacy::warn_of_readable_secret("account key file", path);
    }
}

fn watch_keys(keys: KeySource, every: Duration) {
    actix::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            match keys.reload_if_changed() {
                Ok(true) => {
                    info!("the account keys were replaced");
                    warn_of_readable_keys(keys.origin());
                }
                Ok(false) => {}
                Err(failure) => {
                    error!(%failure, "the new key file is not usable; the old keys stay")
                }
            }
        }
    });
}
