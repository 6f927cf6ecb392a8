//! The shard: the state machine of one partition-key range, its expiry queue, and the actor that owns them.
