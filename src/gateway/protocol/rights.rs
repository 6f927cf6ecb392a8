//! What a key may do: decided from the operation that will be carried out, and from nothing else.

use super::Operation;
use crate::model::error::{Error, ErrorKind, Result};

/// What the key that signed a request allows. Whether an operation is a write is for the caller
/// to say: a query is a POST that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Full,
    ReadOnly,
}

/// Returns whether the operation can change anything. There is no wildcard arm: a new operation does not
/// compile until somebody has decided. A batch counts as a write; it is not looked into.
pub const fn writes(operation: &Operation<'_>) -> bool {
    use Operation as O;
    match operation {
        O::CreateDatabase
        | O::DeleteDatabase(_)
        | O::CreateContainer(_)
        | O::ReplaceContainer(_)
        | O::DeleteContainer(_)
        | O::ReplaceOffer(_)
        | O::DeleteConflict(..)
        | O::ReplaceItem(..)
        | O::PatchItem(..)
        | O::DeleteItem(..)
        | O::CreateItem(_)
        | O::UpsertItem(_)
        | O::Batch(_)
        | O::DeletePartition(_) => true,
        O::ReadAccount
        | O::ListDatabases
        | O::QueryDatabases
        | O::ReadDatabase(_)
        | O::ListContainers(_)
        | O::QueryContainers(_)
        | O::ReadContainer(_)
        | O::ListRanges(_)
        | O::ListOffers
        | O::QueryOffers
        | O::ReadOffer(_)
        | O::ListConflicts(_)
        | O::QueryConflicts(_)
        | O::ReadConflict(..)
        | O::ReadItem(..)
        | O::QueryItems(_)
        | O::PlanQuery(_)
        | O::ReadFeed(_)
        | O::ReadChangeFeed(_) => false,
        // Refused for everybody, with a status that says why.
        O::Unsupported | O::WrongVerb | O::Missing(_) => false,
    }
}

/// Fails with 403 unless a key with this access may carry out the operation.
pub fn check(access: Access, operation: &Operation<'_>) -> Result<()> {
    match access {
        Access::Full => Ok(()),
        Access::ReadOnly if !writes(operation) => Ok(()),
        Access::ReadOnly => Err(Error::new(
            ErrorKind::Forbidden,
            "the key that signed the request is read-only",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{operation::Mark, resource_path::ResourcePath};
    use super::*;

    const MARKS: [Mark; 5] = [
        Mark::QueryPlan,
        Mark::Batch,
        Mark::Query,
        Mark::Upsert,
        Mark::ChangeFeed,
    ];
    const VERBS: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW",
    ];
    const PATHS: [&str; 20] = [
        "/",
        "/dbs",
        "/dbs/d",
        "/dbs/d/colls",
        "/dbs/d/colls/c",
        "/dbs/d/colls/c/docs",
        "/dbs/d/colls/c/docs/i",
        "/dbs/d/colls/c/pkranges",
        "/dbs/d/colls/c/operations/partitionkeydelete",
        "/dbs/d/colls/c/conflicts",
        "/dbs/d/colls/c/conflicts/i",
        "/dbs/d/colls/c/sprocs",
        "/dbs/d/colls/c/triggers/i",
        "/dbs/d/users",
        "/dbs/d/users/u",
        "/dbs/d/users/u/permissions",
        "/dbs/d/users/u/permissions/p",
        "/offers",
        "/offers/r",
        "/nowhere",
    ];

    /// The label of an operation is a second opinion on whether it changes anything.
    fn label_writes(operation: &Operation<'_>) -> bool {
        use crate::telemetry::labels::Operation as L;
        match operation.label() {
            L::Create
            | L::Upsert
            | L::Replace
            | L::Patch
            | L::Delete
            | L::DeletePartition
            | L::Batch
            | L::CatalogWrite => true,
            L::Read
            | L::Query
            | L::QueryPlan
            | L::ReadFeed
            | L::ChangeFeed
            | L::CatalogRead
            | L::Unknown => false,
        }
    }

    #[test]
    fn a_read_only_key_gets_no_operation_that_writes() {
        for path in PATHS {
            let path = ResourcePath::parse(path).unwrap();
            for verb in VERBS {
                for set in 0..1_u32 << MARKS.len() {
                    let marked = |mark| set & (1 << (mark as u32)) != 0;
                    let operation = Operation::of(verb, &path, marked);
                    let what = format!("{verb} {path:?} {set:05b}: {operation:?}");
                    assert_eq!(check(Access::Full, &operation), Ok(()), "{what}");
                    let refused = check(Access::ReadOnly, &operation).is_err();
                    assert_eq!(refused, label_writes(&operation), "{what}");
                    // No header turns these verbs into reads.
                    if matches!(verb, "PUT" | "PATCH" | "DELETE") {
                        let taken = operation.label().text() != "unknown";
                        assert_eq!(refused, taken, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_batch_that_calls_itself_a_query_is_a_batch() {
        let path = ResourcePath::parse("/dbs/d/colls/c/docs").unwrap();
        let both = |mark| matches!(mark, Mark::Batch | Mark::Query);
        let operation = Operation::of("POST", &path, both);
        assert!(matches!(operation, Operation::Batch(_)), "{operation:?}");
        assert_eq!(
            check(Access::ReadOnly, &operation).unwrap_err().status(),
            403
        );
    }
}
