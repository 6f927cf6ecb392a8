//! The gateway: the Cosmos DB REST surface. It authenticates, reads headers and bodies, hands operations to the router or the
//! coordinator, and maps answers and errors to the wire. It knows HTTP and nothing of storage.

pub mod auth;
mod batch;
mod batch_answer;
mod catalog;
mod consistency;
pub mod dispatch;
mod feeds;
mod forward;
mod headers;
pub mod health;
mod health_orders;
pub mod host_policy;
mod items;
pub mod keys;
mod operation;
pub mod order_auth;
pub mod orders;
mod query;
mod reached;
mod ready;
mod request;
pub mod request_body;
pub mod resource_path;
mod respond;
mod rights;
mod scrape;
pub mod server;
pub mod tls;
