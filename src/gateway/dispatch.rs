//! From a request to its handler: path, signature, verb.

use std::{rc::Rc, sync::Arc};

use actix::Addr;
use actix_http::{HttpMessage as _, Payload, Request};
use actix_web::{
    dev::Response as HttpResponse,
    http::{
        Method,
        header::{AUTHORIZATION, DATE, HeaderValue},
    },
};
use arc_swap::ArcSwap;
use bytes::Bytes;

use super::{
    auth::{Access, AuthHeaders, Authenticator},
    batch, catalog, feeds, forward, headers, items,
    operation::operation,
    query,
    reached::Reached,
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
    router::{ContainerRoute, Router, RoutingTable, query::QueryRoom},
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
pub async fn entry(worker: Rc<Worker>, mut request: Request) -> HttpResponse<Bytes> {
    let payload = request.take_payload();
    let activity = activity_id(&request);
    let call = Call {
        worker: &worker,
        request: &request,
        watch: Watch::start(&worker.in_flight),
    };
    let answered = match &worker.shared.member {
        None => answer(&call, payload).await,
        Some(member) => Box::pin(forward::answer(&call, payload, member)).await,
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

pub(super) async fn answer(call: &Call<'_>, payload: Payload) -> Result<Response> {
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

/// Queries and plans are POSTs that read; so is a batch that only reads, which is not looked into.
fn is_write(request: &Request, path: &ResourcePath<'_>) -> bool {
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
    payload: Payload,
) -> Result<Response> {
    use ResourcePath as P;
    let method = call.request.method();
    // A future has the size of the largest that it waits for, and is moved when it is made. That of a point read stays small: the others are kept apart.
    match (path, method.as_str()) {
        (P::Account, "GET") => Ok(account(call)),
        (P::Databases, "GET") => catalog::list_databases(call),
        (P::Databases, "POST") if query::is_query(call.request) => {
            Box::pin(catalog::query_databases(call, payload)).await
        }
        (P::Databases, "POST") => Box::pin(catalog::create_database(call, payload)).await,
        (P::Database { db }, "GET") => catalog::read_database(call, db),
        (P::Database { db }, "DELETE") => Box::pin(catalog::delete_database(call, db)).await,
        (P::Containers { db }, "GET") => catalog::list_containers(call, db),
        (P::Containers { db }, "POST") if query::is_query(call.request) => {
            Box::pin(catalog::query_containers(call, db, payload)).await
        }
        (P::Containers { db }, "POST") => {
            Box::pin(catalog::create_container(call, db, payload)).await
        }
        (P::Container { db, coll }, "GET") => catalog::read_container(call, db, coll),
        (P::Container { db, coll }, "PUT") => {
            Box::pin(catalog::replace_container(call, db, coll, payload)).await
        }
        (P::Container { db, coll }, "DELETE") => {
            Box::pin(catalog::delete_container(call, db, coll)).await
        }
        (P::PartitionKeyRanges { db, coll }, "GET") => catalog::list_ranges(call, db, coll),
        (P::Offers, "GET") => catalog::list_offers(call),
        (P::Offers, "POST") => Box::pin(catalog::query_offers(call, payload)).await,
        (P::Offer { rid }, "GET") => catalog::read_offer(call, rid),
        (P::Offer { rid }, "PUT") => Box::pin(catalog::replace_offer(call, rid, payload)).await,
        (P::Items { db, coll }, "GET" | "POST") => match operation {
            Operation::ChangeFeed => Box::pin(feeds::changes(call, db, coll)).await,
            Operation::ReadFeed => Box::pin(feeds::read(call, db, coll)).await,
            Operation::QueryPlan => Box::pin(query::plan(call, db, coll, payload)).await,
            Operation::Batch => Box::pin(batch::batch(call, db, coll, payload)).await,
            Operation::Query => Box::pin(query::query(call, db, coll, payload)).await,
            _ => Box::pin(items::create(call, db, coll, payload)).await,
        },
        (P::Item { db, coll, id }, "GET") => items::read(call, db, coll, id).await,
        (P::Item { db, coll, id }, "PUT") => {
            Box::pin(items::replace(call, db, coll, id, payload)).await
        }
        (P::Item { db, coll, id }, "PATCH") => {
            Box::pin(items::patch(call, db, coll, id, payload)).await
        }
        (P::Item { db, coll, id }, "DELETE") => Box::pin(items::delete(call, db, coll, id)).await,
        (P::PartitionKeyDelete { db, coll }, "POST") => {
            Box::pin(items::delete_partition(call, db, coll)).await
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
    let reached = Reached::by(call.request);
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
fn activity_id(request: &Request) -> HeaderValue {
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
