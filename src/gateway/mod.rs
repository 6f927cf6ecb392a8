//! The gateway: the surface of the Cosmos DB protocol. It authenticates, reads fields and bodies, hands
//! operations to the router or the coordinator, and maps answers and errors to the wire.
//!
//! [`protocol`] is the model of requests and answers, whatever carries them; [`auth`] checks
//! signatures; [`call`] is a request with all that its handler needs; [`resources`] has a file for each
//! resource; [`http`] is the transport above them; [`health`] is a port of its own.

pub mod auth;
pub mod call;
pub mod health;
pub mod http;
pub mod protocol;
mod resources;
