//! From a request to its handler: path, signature, verb.

use std::{rc::Rc, sync::Arc};

use actix::Addr;
use actix_http::{HttpMessage as _, Payload, Request};
use actix_web::{
    dev::Response as HttpResponse,
    http::{
        Method,
        header::{AUTHORIZATION, DATE, HOST, HeaderValue},
    },
};
use arc_swap::ArcSwap;
use bytes::Bytes;

use super::{
    auth::{Access, AuthHeaders, Authenticator},
    batch, catalog, feeds, forward, headers,
    host_policy::HostPolicy,
    items,
    operation::{Mark, Operation, Target},
    query,
    reached::Reached,
    request::{self, flag, text},
    resource_path::ResourcePath,
    respond::Response,
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
    telemetry::{
        labels::Throttle,
        requests::{InFlight, Watch},
    },
};

/// What all workers share.
pub struct Shared {
    pub table: Arc<ArcSwap<RoutingTable>>,
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

/// The one entry point of the REST port.
pub async fn entry(worker: Rc<Worker>, mut request: Request) -> HttpResponse<Bytes> {
    let payload = request.take_payload();
    let call = Call {
        worker: &worker,
        request: &request,
        watch: Watch::start(&worker.in_flight),
        activity: activity_id(&request),
    };
    let answered = match (check_host(&call), &worker.shared.member) {
        (Err(foreign), _) => Err(foreign),
        (Ok(()), None) => answer(&call, payload).await,
        (Ok(()), Some(member)) => Box::pin(forward::answer(&call, payload, member)).await,
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
    let response = response.finish(call.activity);
    if request.method() == Method::GET {
        // Other reads that were taken in are worked out first: answers that leave together wake their clients together, and
        // waking is what costs. Answers to writes leave together anyway, after their fsync.
        tokio::task::yield_now().await;
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
        .map(HeaderValue::as_bytes)
        .chain(authority.map(|authority| authority.as_str().as_bytes()));
    shared.hosts.check(hosts)
}

pub(super) async fn answer(call: &Call<'_>, payload: Payload) -> Result<Response> {
    let path = ResourcePath::parse(call.request.uri().path())?;
    let operation = Operation::of(call.request.method().as_str(), &path, |mark| {
        marked(call.request, mark)
    });
    call.watch.operation(operation.label());
    let access = authenticate(call, &path)?;
    request::check_version(call.request)?;
    rights::check(access, &operation)?;
    route(call, operation, payload).await
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
        call.worker.shared.clock.now(),
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
async fn route(call: &Call<'_>, operation: Operation<'_>, payload: Payload) -> Result<Response> {
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
