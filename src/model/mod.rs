//! Pure data and rules, free of clocks, disks and actors: identifiers, partition keys and their
//! hashes, time to live, container definitions, items and errors. JSON and header text enter;
//! validated values leave.

pub mod account;
pub mod binary_json;
pub mod catalog;
pub mod charge;
pub mod checks;
pub mod consistency;
pub mod container;
pub mod epk;
pub mod error;
pub mod indexing_policy;
pub mod item;
pub mod json;
pub mod likeness;
pub mod names;
pub mod offer;
pub mod partition_key;
pub mod patch;
pub mod path;
pub mod position;
pub mod rid;
pub mod ttl;
