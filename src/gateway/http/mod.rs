//! HTTP as the transport of the protocol: from a request to its call, and from an answer to its
//! headers; what other nodes must answer is forwarded to them.

mod dispatch;
pub mod forward;
pub mod names;
mod reached;
mod respond;
pub mod server;
pub mod tls;
