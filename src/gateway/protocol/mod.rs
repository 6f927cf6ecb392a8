//! Requests and answers of the Cosmos DB protocol, whatever carries them: the resource that a path
//! names, the operation, the rights that it needs, fields, bodies, status and charge.

pub mod body;
mod header;
pub mod operation;
pub mod resource_path;
pub mod response;
pub mod rights;

pub use header::Header;
pub use operation::{Operation, Target};
pub use response::Response;
