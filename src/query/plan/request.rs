//! What a query asks of one shard.

use crate::{
    model::epk::EpkRange,
    query::access::{ResumePoint, ScanBudget},
    sql::Query,
};

/// What is looked for.
#[derive(Clone, Copy)]
pub struct ScanRequest<'a> {
    pub query: &'a Query,
    /// The part of the shard in scope.
    pub keys: &'a EpkRange,
    /// Where an earlier selection of the same query stopped.
    pub resume: Option<&'a ResumePoint>,
    /// Whether the client allows a scan where the container has no index at all (`x-ms-documentdb-query-enable-scan`).
    pub scan_allowed: bool,
    pub budget: ScanBudget,
}
