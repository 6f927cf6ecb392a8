//! The connections between the nodes of a cluster: one TCP connection a pair, authenticated, with
//! bounded queues. A message that cannot be sent now is dropped: Raft repeats it.

mod accept;
pub mod calls;
pub mod connections;
mod dial;
pub mod frame;
pub mod handshake;
pub mod join;
pub mod message;
pub mod peers;
mod send_queue;
mod wire;
