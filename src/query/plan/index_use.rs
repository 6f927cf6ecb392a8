//! Which index a query used, and which would have helped.

/// Which index a selection used, and which would have helped; for the index metrics of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexUse {
    /// Paths as a policy writes them: `/a/?`, `/tags/[]/?`.
    pub utilized: Vec<String>,
    pub potential: Vec<String>,
    /// Columns as `/a ASC`.
    pub utilized_composite: Vec<Vec<String>>,
    pub potential_composite: Vec<Vec<String>>,
}
