//! The router: an actor on each gateway worker's thread. It knows the routing table, forwards operations to the shard that owns
//! their key, and fans feeds and queries out over the shards of a container.

pub mod actor;
pub mod budget;
pub mod continuation;
pub mod query;
pub mod session;
pub mod table;

pub use actor::{Answer, Router};
pub use table::{ContainerRoute, RoutingTable};
