//! One test binary: linking the SDK once is slow enough.

mod account;
mod batch;
mod catalog;
mod change_feed;
mod items;
mod keys;
mod patch;
mod queries;
mod query_table;
mod ttl;
