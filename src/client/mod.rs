//! How programs outside a node speak to it: connections, signatures, and small requests to the
//! health port.

pub mod connection;
pub mod endpoint;
pub mod health_port;
pub mod signer;

pub use health_port::HealthPort;
pub use signer::{EMULATOR_KEY, Signed, Signer, unix_seconds, unix_time};
