//! The router: finds the shard of a request and forwards it; fans feeds and queries out.
