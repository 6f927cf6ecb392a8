//! From a request to its handler: path, signature, verb.

use std::sync::Arc;

use actix::Addr;
use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method,
        header::{AUTHORIZATION, DATE, HeaderValue},
    },
    web,
};
use arc_swap::ArcSwap;

use super::{
    auth::{Access, AuthHeaders, Authenticator},
    batch, catalog, feeds, forward, headers, items,
    operation::operation,
    query,
    request::{self, text},
    resource_path::ResourcePath,
    respond::Response,
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
    router::{ContainerRoute, Router, RoutingTable},
    telemetry::{
        labels::{Operation, Throttle},
        requests::{InFlight, Watch},
    },
};

/// What all workers share.
pub struct Shared {
    pub table: Arc<ArcSwap<RoutingTable>>,
    pub coordinator: Addr<Coordinator>,
    /// `None`: everybody may do everything.
    pub authenticator: Option<Arc<Authenticator>>,
    pub clock: Clock,
    pub account: String,
    pub region: String,
    /// The account's level; a request may ask for a weaker one.
    pub consistency: Consistency,
    pub scheme: &'static str,
    /// In a cluster: what this node cannot answer goes to others.
    pub member: Option<Arc<Member>>,
}

/// One gateway worker: what is shared, and the router on its thread.
pub struct Worker {
    pub shared: Arc<Shared>,
    pub router: Addr<Router>,
    pub in_flight: InFlight,
}

/// A request with all that its handler needs.
pub struct Call<'a> {
    pub worker: &'a Worker,
    pub request: &'a HttpRequest,
    pub watch: Watch<'a>,
}

impl Call<'_> {
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
pub async fn entry(
    request: HttpRequest,
    payload: web::Payload,
    worker: web::Data<Worker>,
) -> HttpResponse {
    let activity = activity_id(&request);
    let call = Call {
        worker: &worker,
        request: &request,
        watch: Watch::start(&worker.in_flight),
    };
    let answered = match &worker.shared.member {
        None => answer(&call, payload).await,
        Some(member) => forward::answer(&call, payload, member).await,
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
            Response::error(&error, activity.to_str().unwrap_or_default())
        }
    };
    call.watch.answered(response.status, response.charge, || {
        worker.shared.clock.now()
    });
    let response = response.finish(activity);
    if request.method() == Method::GET {
        // Other reads that were taken in are worked out first: answers that leave together wake their clients together, and
        // waking is what costs. Answers to writes leave together anyway, after their fsync.
        tokio::task::yield_now().await;
    }
    response
}

pub(super) async fn answer(call: &Call<'_>, payload: web::Payload) -> Result<Response> {
    let path = ResourcePath::parse(call.request.uri().path())?;
    let operation = operation(call.request, &path);
    call.watch.operation(operation);
    let access = authenticate(call, &path)?;
    request::check_version(call.request)?;
    if access == Access::ReadOnly && is_write(call.request, &path) {
        return Err(Error::new(
            ErrorKind::Forbidden,
            "the key that signed the request is read-only",
        ));
    }
    route(call, &path, operation, payload).await
}

fn authenticate(call: &Call<'_>, path: &ResourcePath<'_>) -> Result<Access> {
    let Some(authenticator) = &call.worker.shared.authenticator else {
        return Ok(Access::Full);
    };
    let headers = AuthHeaders {
        authorization: text(call.request, &AUTHORIZATION),
        x_ms_date: text(call.request, &headers::DATE),
        date: text(call.request, &DATE),
    };
    authenticator.authenticate(
        call.request.method().as_str(),
        path,
        &headers,
        call.worker.shared.clock.now(),
    )
}

/// Queries and plans are POSTs that read; so is a batch that only reads, which is not looked into.
fn is_write(request: &HttpRequest, path: &ResourcePath<'_>) -> bool {
    match *request.method() {
        Method::GET | Method::HEAD => false,
        Method::POST => {
            matches!(path, ResourcePath::PartitionKeyDelete { .. }) || !query::is_query(request)
        }
        _ => true,
    }
}

async fn route(
    call: &Call<'_>,
    path: &ResourcePath<'_>,
    operation: Operation,
    payload: web::Payload,
) -> Result<Response> {
    use ResourcePath as P;
    let method = call.request.method();
    match (path, method.as_str()) {
        (P::Account, "GET") => Ok(account(call)),
        (P::Databases, "GET") => catalog::list_databases(call),
        (P::Databases, "POST") if query::is_query(call.request) => {
            catalog::query_databases(call, payload).await
        }
        (P::Databases, "POST") => catalog::create_database(call, payload).await,
        (P::Database { db }, "GET") => catalog::read_database(call, db),
        (P::Database { db }, "DELETE") => catalog::delete_database(call, db).await,
        (P::Containers { db }, "GET") => catalog::list_containers(call, db),
        (P::Containers { db }, "POST") if query::is_query(call.request) => {
            catalog::query_containers(call, db, payload).await
        }
        (P::Containers { db }, "POST") => catalog::create_container(call, db, payload).await,
        (P::Container { db, coll }, "GET") => catalog::read_container(call, db, coll),
        (P::Container { db, coll }, "PUT") => {
            catalog::replace_container(call, db, coll, payload).await
        }
        (P::Container { db, coll }, "DELETE") => catalog::delete_container(call, db, coll).await,
        (P::PartitionKeyRanges { db, coll }, "GET") => catalog::list_ranges(call, db, coll),
        (P::Offers, "GET") => catalog::list_offers(call),
        (P::Offers, "POST") => catalog::query_offers(call, payload).await,
        (P::Offer { rid }, "GET") => catalog::read_offer(call, rid),
        (P::Offer { rid }, "PUT") => catalog::replace_offer(call, rid, payload).await,
        (P::Items { db, coll }, "GET" | "POST") => match operation {
            Operation::ChangeFeed => feeds::changes(call, db, coll).await,
            Operation::ReadFeed => feeds::read(call, db, coll).await,
            Operation::QueryPlan => query::plan(call, db, coll, payload).await,
            Operation::Batch => batch::batch(call, db, coll, payload).await,
            Operation::Query => query::query(call, db, coll, payload).await,
            _ => items::create(call, db, coll, payload).await,
        },
        (P::Item { db, coll, id }, "GET") => items::read(call, db, coll, id).await,
        (P::Item { db, coll, id }, "PUT") => items::replace(call, db, coll, id, payload).await,
        (P::Item { db, coll, id }, "PATCH") => items::patch(call, db, coll, id, payload).await,
        (P::Item { db, coll, id }, "DELETE") => items::delete(call, db, coll, id).await,
        (P::PartitionKeyDelete { db, coll }, "POST") => {
            items::delete_partition(call, db, coll).await
        }
        (P::Conflicts { db, coll }, "GET" | "POST") => catalog::list_conflicts(call, db, coll),
        (P::Conflict { db, coll, id }, "GET" | "DELETE") => {
            catalog::missing_conflict(call, db, coll, id)
        }
        (P::Unknown { path }, _) => Err(Error::not_found(format!(
            "there is no resource at the path '{path}'"
        ))),
        (
            P::Scripts { .. }
            | P::Script { .. }
            | P::Users { .. }
            | P::User { .. }
            | P::Permissions { .. }
            | P::Permission { .. },
            _,
        ) => Err(Error::new(
            ErrorKind::NotImplemented,
            format!(
                "'{}' is not offered: Bolide has no server-side scripts, users and permissions",
                call.request.path()
            ),
        )),
        _ => Err(Error::new(
            ErrorKind::MethodNotAllowed,
            format!(
                "the path '{}' does not take the method {method}",
                call.request.path()
            ),
        )),
    }
}

/// The account, with an endpoint that the client can reach: the one it has just used.
fn account(call: &Call<'_>) -> Response {
    let shared = &call.worker.shared;
    let connection = call.request.connection_info();
    let endpoint = format!(
        "{}://{}/",
        if connection.scheme() == "https" {
            "https"
        } else {
            shared.scheme
        },
        connection.host()
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
fn activity_id(request: &HttpRequest) -> HeaderValue {
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
