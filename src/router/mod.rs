//! The router: an actor on each gateway worker's thread. It knows the routing table, forwards operations to the shard that owns
//! their key, and reads feeds over the shards of a container. Queries are above it, in [`query`](crate::query).

pub mod actor;
pub mod budget;
pub mod continuation;
pub mod session;
pub mod table;

pub use actor::{Answer, Router};
pub use table::{ContainerRoute, RoutingTable};
