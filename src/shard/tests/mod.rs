//! Tests of the shard: by hand (`bench`: the actor's own code, with commits and time under the test's control) and as a whole
//! (`node`: actors on arbiters, as in a running node).

mod actors;
mod aggregate_cache;
mod backlog;
mod bench;
mod commits;
mod damage;
mod document_cache;
mod feeds;
mod guards;
mod histories;
mod index_changes;
mod index_queries;
mod index_reads;
mod model;
mod node;
mod partings;
mod purging;
mod replicas;
mod splits;
mod ttl;
mod unique_keys;
mod weights;
