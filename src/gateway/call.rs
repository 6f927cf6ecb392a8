//! A request with all that its handler needs, whatever carried it to the node.

use std::sync::Arc;

use actix::{Addr, Handler, Message};
use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    auth::{Authenticator, host_policy::HostPolicy},
    protocol::{
        Header,
        body::{BodyBounds, Held, Payload, read_body},
        operation::Mark,
    },
};
use crate::{
    clock::Clock,
    cluster::member::Member,
    coordinator::Coordinator,
    model::{
        consistency::Consistency,
        error::{Error, ErrorKind, Result},
        item::EtagCondition,
        json,
    },
    query::QueryScheduler,
    router::{ContainerRoute, Router, RoutingTable, session::SessionToken},
    server::ByteBudget,
    shard::host::Openings,
    telemetry::requests::{InFlight, Watch},
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
    pub queries: Arc<QueryScheduler>,
    pub bodies: BodyBounds,
    pub unsent: Unsent,
}

/// Bytes of answers that their clients have not taken yet. Large ones do not keep small ones from
/// being sent.
pub struct Unsent {
    pub large: Arc<ByteBudget>,
    pub small: Arc<ByteBudget>,
}

/// One gateway worker: what is shared, and the router on its thread.
pub struct Worker {
    pub shared: Arc<Shared>,
    pub router: Addr<Router>,
    /// What all queries of the node share.
    pub queries: Arc<QueryScheduler>,
    /// Where it listens, for clients that do not say how they have reached it.
    pub address: String,
    pub in_flight: InFlight,
}

/// Scheme and host (with its port) of the client's URL, as far as they are known.
#[derive(Debug, PartialEq, Eq)]
pub struct Reached<'a> {
    pub scheme: Option<&'a str>,
    pub host: Option<&'a str>,
}

/// A request without its body, as a transport has received it.
pub trait Head {
    fn verb(&self) -> &str;
    fn path(&self) -> &str;
    /// Returns a field as text; one that is no text counts as absent.
    fn header(&self, header: Header) -> Option<&str>;
    /// Returns whether a field is there, text or not.
    fn has(&self, header: Header) -> bool;
    /// Returns how the client has reached the node. With `trust_forwarded` a proxy's word counts.
    fn reached(&self, trust_forwarded: bool) -> Reached<'_>;
}

/// The values of `x-ms-version` that clients have been released with.
const API_VERSIONS: &[&str] = &[
    "2014-08-21",
    "2015-04-08",
    "2015-06-03",
    "2015-08-06",
    "2015-12-16",
    "2016-05-30",
    "2016-07-11",
    "2016-11-14",
    "2017-01-19",
    "2017-02-22",
    "2017-05-03",
    "2017-11-15",
    "2018-06-18",
    "2018-08-31",
    "2018-09-17",
    "2018-12-31",
    "2020-07-15",
    "2020-11-05",
];

/// A request with all that its handler needs.
pub struct Call<'a> {
    pub worker: &'a Worker,
    pub head: &'a dyn Head,
    pub watch: Watch<'a>,
    /// The client's own id for the request, or one of ours.
    pub activity: &'a str,
    /// Memory that its body takes.
    pub held: Held<'a>,
}

impl<'a> Call<'a> {
    pub fn header(&self, header: Header) -> Option<&'a str> {
        self.head.header(header)
    }

    pub fn has(&self, header: Header) -> bool {
        self.head.has(header)
    }

    /// Reads the whole body.
    pub async fn read(&self, payload: Payload) -> Result<Bytes> {
        read_body(payload, &self.held).await
    }

    /// Parses a body that must be one object, if there is memory for what is made of it.
    pub fn parse_object(&self, body: &[u8]) -> Result<Map<String, Value>> {
        self.held.hold_parsed(body)?;
        json::parse_object(body)
    }

    /// Parses a body that must be one JSON value, if there is memory for what is made of it.
    pub fn parse_value(&self, body: &[u8]) -> Result<Value> {
        self.held.hold_parsed(body)?;
        json::parse_value(body)
    }

    /// Returns whether a field says `true` or `True`; anything else is false.
    pub fn flag(&self, header: Header) -> bool {
        self.header(header)
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    }

    /// Returns whether a field makes the request one of a kind.
    pub fn is_marked(&self, mark: Mark) -> bool {
        match mark {
            Mark::QueryPlan => self.flag(Header::QueryPlan),
            Mark::Batch => self.flag(Header::BatchRequest),
            Mark::Query => self.is_query(),
            Mark::Upsert => self.flag(Header::IsUpsert),
            Mark::ChangeFeed => self.has(Header::AIm),
        }
    }

    /// Returns whether a POST is a query rather than a create. Each SDK says so in its own way.
    fn is_query(&self) -> bool {
        self.flag(Header::QueryPlan)
            || self.flag(Header::IsQuery)
            || self.flag(Header::IsQueryGo)
            || self
                .header(Header::ContentType)
                .is_some_and(|value| value.starts_with("application/query+json"))
    }

    pub fn table(&self) -> arc_swap::Guard<Arc<RoutingTable>> {
        self.worker.shared.table.load()
    }

    /// Returns the container that the path names, if it is still the one that the client believes in.
    pub fn container(&self, database: &str, id: &str) -> Result<Arc<ContainerRoute>> {
        let table = self.table();
        let container = table.container(database, id)?;
        self.watch.container(&container.series);
        match self.header(Header::IntendedContainerRid) {
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

    /// Has the coordinator change the catalog.
    pub async fn change_catalog<M, T>(&self, change: M) -> Result<T>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Send + 'static,
        Coordinator: Handler<M>,
    {
        let changed = self.worker.shared.coordinator.send(change).await;
        changed.map_err(|_| Error::unavailable("the node is stopping"))?
    }

    pub fn check_version(&self) -> Result<()> {
        match self.header(Header::Version) {
            Some(version) if !API_VERSIONS.contains(&version) => Err(Error::bad_request(format!(
                "the API version '{}' of the header x-ms-version is not supported; the newest is {}",
                json::shorten(version),
                API_VERSIONS.last().unwrap_or(&"")
            ))),
            _ => Ok(()),
        }
    }

    /// Fails unless the body is JSON, as resources, batches and patches are. The types of patches
    /// begin like that of JSON.
    pub fn check_content_type(&self) -> Result<()> {
        match self.header(Header::ContentType) {
            Some(value)
                if !value
                    .trim_start()
                    .to_ascii_lowercase()
                    .starts_with("application/json") =>
            {
                Err(Error::bad_request(format!(
                    "the content type '{}' is not application/json; send the header 'content-type: application/json', or none",
                    json::shorten(value)
                )))
            }
            _ => Ok(()),
        }
    }

    pub fn if_match(&self) -> Option<EtagCondition> {
        self.header(Header::IfMatch).map(EtagCondition::parse)
    }

    pub fn if_none_match(&self) -> Option<EtagCondition> {
        self.header(Header::IfNoneMatch).map(EtagCondition::parse)
    }

    /// Returns whether the client wants status and headers only.
    pub fn wants_minimal(&self) -> bool {
        self.header(Header::Prefer)
            .is_some_and(|value| value.to_ascii_lowercase().contains("return=minimal"))
    }

    pub fn session(&self) -> Result<Option<SessionToken>> {
        let token = self.header(Header::SessionToken);
        token.map(SessionToken::parse).transpose()
    }

    /// Returns the page size that the client asks for; `None` leaves it to the server.
    pub fn max_item_count(&self) -> Result<Option<usize>> {
        let Some(value) = self.header(Header::MaxItemCount) else {
            return Ok(None);
        };
        match value.trim().parse::<i64>() {
            Ok(-1) => Ok(None),
            Ok(count) if count > 0 => Ok(usize::try_from(count).ok()),
            _ => Err(Error::bad_request(format!(
                "the value '{}' of x-ms-max-item-count is not -1 or a positive number",
                json::shorten(value)
            ))),
        }
    }
}
