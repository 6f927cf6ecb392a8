//! What an index alone answers.

use crate::{
    query::{access::ResumePoint, plan::IndexUse},
    sql::Partial,
};

/// What the query comes to in this shard, worked out from the index alone.
pub struct IndexAnswer {
    /// To be absorbed by an execution of the same query.
    pub partial: Partial,
    /// Present when the budget was used up before the end: the rest is to be asked for.
    pub resume: Option<ResumePoint>,
    pub examined: usize,
    pub used: IndexUse,
}
