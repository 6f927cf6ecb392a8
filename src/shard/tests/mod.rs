//! Tests of the shard: by hand (`bench`: the actor's own code, with commits and time under the test's control) and as a whole
//! (`node`: actors on arbiters, as in a running node).

mod actors;
mod backlog;
mod bench;
mod commits;
mod damage;
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
mod recent;
mod replicas;
mod splits;
mod sums;
mod ttl;
mod unique_keys;
mod weights;
