//! The gateway: the Cosmos DB REST surface. Knows HTTP and nothing of storage.
