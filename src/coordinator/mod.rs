//! The coordinator: owns the catalog and broadcasts its changes to every shard.
