//! From a request to its handler: path, signature, verb.

use std::{rc::Rc, slice, sync::Arc};

use actix::Addr;
use arc_swap::ArcSwap;
use http::{
    Method,
    header::{AUTHORIZATION, DATE, HOST, HeaderValue},
};

use super::{
    auth::{Access, AuthHeaders, Authenticator},
    batch, catalog, feeds, forward, headers,
    host_policy::HostPolicy,
    items,
    operation::{Mark, Operation, Target},
    query,
    reached::Reached,
    request::{self, Payload, Request, flag, text},
    request_body::BodyBounds,
    resource_path::ResourcePath,
    respond::{self, Response},
    rights,
};
use crate::{
    clock::Clock,
    cluster::member::Member,
    coordinator::Coordinator,
    model::{
        account, charge,
        consistency::Consistency,
        error::{Error, ErrorKind, Result},
    },
    router::{ContainerRoute, Router, RoutingTable, query::QueryRoom},
    server::{Answer, ByteBudget, Handler, RequestBody, Reserved},
    shard::host::Openings,
    telemetry::{
        labels::Throttle,
        requests::{InFlight, Watch},
    },
};

/// What all workers share.
pub struct Shared {
    pub table: Arc<ArcSwap<RoutingTable>>,
    /// Shards that are opened behind the start of the node.
    pub openings: Arc<Openings>,
    pub coordinator: Addr<Coordinator>,
    /// `None`: everybody may do everything.
    pub authenticator: Option<Arc<Authenticator>>,
    pub hosts: HostPolicy,
    pub trust_forwarded: bool,
    pub clock: Clock,
    pub account: String,
    pub region: String,
    /// The account's level; a request may ask for a weaker one.
    pub consistency: Consistency,
    pub scheme: &'static str,
    /// In a cluster: what this node cannot answer goes to others.
    pub member: Option<Arc<Member>>,
    /// What all queries of the node share.
    pub queries: Arc<QueryRoom>,
    pub bodies: BodyBounds,
    /// Bytes of large answers that their clients have not taken yet.
    pub unsent: Arc<ByteBudget>,
}

/// One gateway worker: what is shared, and the router on its thread.
pub struct Worker {
    pub shared: Arc<Shared>,
    pub router: Addr<Router>,
    /// What the router's queries share with those that never get to it.
    pub queries: Arc<QueryRoom>,
    /// Where it listens, for clients that do not say how they have reached it.
    pub address: String,
    pub in_flight: InFlight,
}

/// A request with all that its handler needs.
pub struct Call<'a> {
    pub worker: &'a Worker,
    pub request: &'a Request,
    pub watch: Watch<'a>,
    /// The client's own id for the request, or one of ours.
    pub activity: HeaderValue,
}

impl Call<'_> {
    pub fn activity_text(&self) -> &str {
        self.activity.to_str().unwrap_or_default()
    }

    pub fn table(&self) -> arc_swap::Guard<Arc<RoutingTable>> {
        self.worker.shared.table.load()
    }

    /// The container that the path names, if it is still the one that the client believes in.
    pub fn container(&self, database: &str, id: &str) -> Result<Arc<ContainerRoute>> {
        let table = self.table();
        let container = table.container(database, id)?;
        self.watch.container(&container.series);
        match text(self.request, &headers::INTENDED_CONTAINER_RID) {
            Some(rid) if container.rid_text != rid => Err(Error::new(
                ErrorKind::ContainerRidMismatch,
                format!(
                    "the container '{}' is not '{rid}' any more but '{}'",
                    container.name_path, container.rid_text
                ),
            )),
            _ => Ok(Arc::clone(container)),
        }
    }
}

/// Answers below this are not counted: there are as many as there are requests.
const LARGE_ANSWER_BYTES: usize = 64 * 1024;
/// When a client whose answer did not fit into the node's bound should try again.
const UNSENT_RETRY_MS: u32 = 100;

impl Handler for Worker {
    fn answer(
        self: &Rc<Self>,
        request: Request,
        body: RequestBody,
    ) -> impl Future<Output = Answer> + use<> {
        entry(Rc::clone(self), request, body)
    }
}

/// The one entry point of the REST port.
async fn entry(worker: Rc<Worker>, request: Request, body: RequestBody) -> Answer {
    let answer = respond_to(&worker, &request, body).await;
    let is_read = request.method() == Method::GET;
    respond::recycle(request.into_headers());
    if is_read {
        // Other reads that were taken in are worked out first: answers that leave together wake their clients together, and
        // waking is what costs. Answers to writes leave together anyway, after their fsync.
        tokio::task::yield_now().await;
    }
    answer
}

async fn respond_to(worker: &Worker, request: &Request, body: RequestBody) -> Answer {
    let call = Call {
        worker,
        request,
        watch: Watch::start(&worker.in_flight),
        activity: activity_id(request),
    };
    // Its bytes count until the request is answered.
    let (payload, _held) = Payload::new(body, &worker.shared.bodies);
    let answered = match (check_host(&call), &worker.shared.member) {
        (Err(foreign), _) => Err(foreign),
        (Ok(()), None) => answer(&call, payload).await,
        (Ok(()), Some(member)) => Box::pin(forward::answer(&call, payload, member)).await,
    };
    let reserved = match &answered {
        Ok(response) if response.body.len() >= LARGE_ANSWER_BYTES => {
            Some(reserve_answer(&call, response.body.len()))
        }
        _ => None,
    };
    let (answered, reserved) = match reserved.transpose() {
        Ok(reserved) => (answered, reserved),
        Err(error) => (Err(error), None),
    };
    let response = match answered {
        Ok(response) => response,
        Err(error) => {
            if error.kind == ErrorKind::Internal {
                tracing::error!(message = error.message, "request failed by a bug of ours");
            }
            match error.kind {
                ErrorKind::TooManyRequests => call.watch.throttled(Throttle::Throughput),
                ErrorKind::Overloaded => call.watch.throttled(Throttle::Queue),
                _ => {}
            }
            Response::error(&error, call.activity_text())
        }
    };
    call.watch.answered(response.status, response.charge, || {
        worker.shared.clock.now()
    });
    let mut response = response.finish(call.activity);
    if let Some(reserved) = reserved {
        response.extensions_mut().insert(Arc::new(reserved));
    }
    response
}

/// Fails with 403 if anybody could have made a browser send this request: it addresses the node by
/// a foreign name, and no secret keeps strangers out.
fn check_host(call: &Call<'_>) -> Result<()> {
    let shared = &call.worker.shared;
    let secret = shared.authenticator.as_ref();
    if secret.is_some_and(|authenticator| !authenticator.takes_well_known_key()) {
        return Ok(());
    }
    let headers = call.request.headers().get_all(&HOST);
    let authority = call.request.uri().authority();
    let hosts = headers
        .iter()
        .map(HeaderValue::as_bytes)
        .chain(authority.map(|authority| authority.as_str().as_bytes()));
    shared.hosts.check(hosts)
}

/// Counts a large answer until its client has taken it. Reads are refused while too many bytes
/// wait for slow clients; what was written is told in any case.
fn reserve_answer(call: &Call<'_>, bytes: usize) -> Result<Reserved> {
    let unsent = &call.worker.shared.unsent;
    let path = ResourcePath::parse(call.request.path())?;
    if rights::writes(&operation_of(call.request, &path)) {
        return Ok(unsent.take_beyond(bytes));
    }
    unsent.take(bytes).ok_or_else(|| {
        let mut error = Error::new(
            ErrorKind::Overloaded,
            "answers that their clients do not take fill the memory that limits.node_inflight_bytes_max allows",
        );
        error.retry_after_ms = Some(UNSENT_RETRY_MS);
        error
    })
}

pub(super) async fn answer(call: &Call<'_>, payload: Payload) -> Result<Response> {
    let path = ResourcePath::parse(call.request.path())?;
    let operation = check(call, &path)?;
    let payload = match payload {
        Payload::Whole(_) => payload,
        // Read even for a request that is refused (429, 404): a connection whose body is left unread
        // must be closed, and a client that still sends would lose the answer.
        Payload::Incoming(..) => Box::pin(request::body(payload)).await?.into(),
    };
    if call.worker.shared.openings.left() > 0 {
        Box::pin(open_first(call, &operation)).await?;
    }
    carry_out(call, operation, payload).await
}

/// Waits for shards that are opened behind the start of the node.
async fn open_first(call: &Call<'_>, operation: &Operation<'_>) -> Result<()> {
    let Some(Target { db, coll }) = operation.needs_shards_of() else {
        return Ok(());
    };
    let Ok(route) = call.table().container(db, coll).cloned() else {
        // What is missing is said by the operation itself.
        return Ok(());
    };
    let key = match operation.stays_within_key() {
        true => items::partition_key(call, &route).ok(),
        false => None,
    };
    let shards = match key {
        Some(key) => slice::from_ref(route.shard_of(&items::place(&route, &key))?),
        None => &route.shards,
    };
    call.worker.shared.openings.wait_for(shards).await
}

fn operation_of<'a>(request: &Request, path: &'a ResourcePath<'_>) -> Operation<'a> {
    Operation::of(request.method().as_str(), path, |mark| {
        marked(request, mark)
    })
}

/// Decides what the request asks for, and whether it may: before anything of its body is read.
pub(super) fn check<'a>(call: &Call<'_>, path: &'a ResourcePath<'_>) -> Result<Operation<'a>> {
    let operation = operation_of(call.request, path);
    call.watch.operation(operation.label());
    let access = authenticate(call, path)?;
    request::check_version(call.request)?;
    rights::check(access, &operation)?;
    Ok(operation)
}

fn authenticate(call: &Call<'_>, path: &ResourcePath<'_>) -> Result<Access> {
    let Some(authenticator) = &call.worker.shared.authenticator else {
        return Ok(Access::Full);
    };
    let x_ms_date = text(call.request, &headers::DATE);
    let headers = AuthHeaders {
        authorization: text(call.request, &AUTHORIZATION),
        x_ms_date,
        // Signed only where the other is missing.
        date: match x_ms_date {
            Some(_) => None,
            None => text(call.request, &DATE),
        },
    };
    authenticator.authenticate(
        call.request.method().as_str(),
        path,
        &headers,
        call.worker.shared.clock.wall_seconds(),
    )
}

/// Whether a header makes the request one of a kind.
fn marked(request: &Request, mark: Mark) -> bool {
    match mark {
        Mark::QueryPlan => flag(request, &headers::QUERY_PLAN),
        Mark::Batch => flag(request, &headers::BATCH_REQUEST),
        Mark::Query => query::is_query(request),
        Mark::Upsert => flag(request, &headers::IS_UPSERT),
        Mark::ChangeFeed => request.headers().contains_key(&headers::A_IM),
    }
}

/// Carries the operation out. Neither path, verb nor headers are asked a second time what the
/// request is: what the rights were decided from is what is done.
pub(super) async fn carry_out(
    call: &Call<'_>,
    operation: Operation<'_>,
    payload: Payload,
) -> Result<Response> {
    use Operation as O;
    // A future has the size of the largest that it waits for, and is moved when it is made. That of a point read stays small: the others are kept apart.
    match operation {
        O::ReadItem(Target { db, coll }, id) => items::read(call, db, coll, id).await,
        O::ReplaceItem(Target { db, coll }, id) => {
            Box::pin(items::replace(call, db, coll, id, payload)).await
        }
        O::PatchItem(Target { db, coll }, id) => {
            Box::pin(items::patch(call, db, coll, id, payload)).await
        }
        O::DeleteItem(Target { db, coll }, id) => Box::pin(items::delete(call, db, coll, id)).await,
        O::CreateItem(target) => Box::pin(items::create(call, target, false, payload)).await,
        O::UpsertItem(target) => Box::pin(items::create(call, target, true, payload)).await,
        O::Batch(Target { db, coll }) => Box::pin(batch::batch(call, db, coll, payload)).await,
        O::QueryItems(Target { db, coll }) => Box::pin(query::query(call, db, coll, payload)).await,
        O::PlanQuery(Target { db, coll }) => Box::pin(query::plan(call, db, coll, payload)).await,
        O::ReadFeed(Target { db, coll }) => Box::pin(feeds::read(call, db, coll)).await,
        O::ReadChangeFeed(Target { db, coll }) => Box::pin(feeds::changes(call, db, coll)).await,
        O::DeletePartition(Target { db, coll }) => {
            Box::pin(items::delete_partition(call, db, coll)).await
        }
        O::ReadAccount => Ok(account(call)),
        O::ListDatabases => catalog::list_databases(call),
        O::QueryDatabases => Box::pin(catalog::query_databases(call, payload)).await,
        O::CreateDatabase => Box::pin(catalog::create_database(call, payload)).await,
        O::ReadDatabase(db) => catalog::read_database(call, db),
        O::DeleteDatabase(db) => Box::pin(catalog::delete_database(call, db)).await,
        O::ListContainers(db) => catalog::list_containers(call, db),
        O::QueryContainers(db) => Box::pin(catalog::query_containers(call, db, payload)).await,
        O::CreateContainer(db) => Box::pin(catalog::create_container(call, db, payload)).await,
        O::ReadContainer(Target { db, coll }) => catalog::read_container(call, db, coll),
        O::ReplaceContainer(Target { db, coll }) => {
            Box::pin(catalog::replace_container(call, db, coll, payload)).await
        }
        O::DeleteContainer(Target { db, coll }) => {
            Box::pin(catalog::delete_container(call, db, coll)).await
        }
        O::ListRanges(Target { db, coll }) => catalog::list_ranges(call, db, coll),
        O::ListOffers => catalog::list_offers(call),
        O::QueryOffers => Box::pin(catalog::query_offers(call, payload)).await,
        O::ReadOffer(rid) => catalog::read_offer(call, rid),
        O::ReplaceOffer(rid) => Box::pin(catalog::replace_offer(call, rid, payload)).await,
        O::ListConflicts(Target { db, coll }) => catalog::list_conflicts(call, db, coll),
        O::QueryConflicts(Target { db, coll }) => catalog::query_conflicts(call, db, coll),
        O::ReadConflict(Target { db, coll }, id) | O::DeleteConflict(Target { db, coll }, id) => {
            catalog::missing_conflict(call, db, coll, id)
        }
        O::Missing(path) => Err(Error::not_found(format!(
            "there is no resource at the path '{path}'"
        ))),
        O::Unsupported => Err(Error::new(
            ErrorKind::NotImplemented,
            format!(
                "'{}' is not offered: Bolide has no server-side scripts, users and permissions",
                call.request.path()
            ),
        )),
        O::WrongVerb => Err(Error::new(
            ErrorKind::MethodNotAllowed,
            format!(
                "the path '{}' does not take the method {}",
                call.request.path(),
                call.request.method()
            ),
        )),
    }
}

/// The account, with an endpoint that the client can reach: the one it has just used.
fn account(call: &Call<'_>) -> Response {
    let shared = &call.worker.shared;
    let reached = Reached::by(call.request, shared.trust_forwarded);
    let endpoint = format!(
        "{}://{}/",
        if reached.scheme == Some("https") {
            "https"
        } else {
            shared.scheme
        },
        reached.host.unwrap_or(&call.worker.address)
    );
    Response::json(
        200,
        &account::account_json(
            &shared.account,
            &endpoint,
            &shared.region,
            shared.consistency,
        ),
        charge::CATALOG_READ,
    )
}

/// The client's own id for the request, or one of ours.
pub(super) fn activity_id(request: &Request) -> HeaderValue {
    if let Some(id) = request.headers().get(&headers::ACTIVITY_ID) {
        return id.clone();
    }
    // A GUID of random digits, written by hand: it is made for every request.
    let mut digits = rand::random::<u128>();
    let mut text = *b"00000000-0000-0000-0000-000000000000";
    for place in text.iter_mut().filter(|place| **place == b'0') {
        *place = b"0123456789abcdef"[(digits & 0xf) as usize];
        digits >>= 4;
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
}
