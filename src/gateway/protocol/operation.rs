//! The operation that a request asks for: decided once, from path, verb and headers. Dispatch
//! routes on it, rights follow from it, and metrics are labelled by it.

use super::resource_path::ResourcePath;
use crate::telemetry::labels;

/// What headers can make of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    QueryPlan,
    Batch,
    Query,
    Upsert,
    ChangeFeed,
}

/// A container, by names or RIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    pub db: &'a str,
    pub coll: &'a str,
}

/// Everything that a request can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    ReadAccount,
    ListDatabases,
    QueryDatabases,
    CreateDatabase,
    ReadDatabase(&'a str),
    DeleteDatabase(&'a str),
    ListContainers(&'a str),
    QueryContainers(&'a str),
    CreateContainer(&'a str),
    ReadContainer(Target<'a>),
    ReplaceContainer(Target<'a>),
    DeleteContainer(Target<'a>),
    ListRanges(Target<'a>),
    ListOffers,
    QueryOffers,
    ReadOffer(&'a str),
    ReplaceOffer(&'a str),
    ListConflicts(Target<'a>),
    QueryConflicts(Target<'a>),
    ReadConflict(Target<'a>, &'a str),
    DeleteConflict(Target<'a>, &'a str),
    ReadItem(Target<'a>, &'a str),
    ReplaceItem(Target<'a>, &'a str),
    PatchItem(Target<'a>, &'a str),
    DeleteItem(Target<'a>, &'a str),
    CreateItem(Target<'a>),
    UpsertItem(Target<'a>),
    Batch(Target<'a>),
    QueryItems(Target<'a>),
    PlanQuery(Target<'a>),
    ReadFeed(Target<'a>),
    ReadChangeFeed(Target<'a>),
    DeletePartition(Target<'a>),
    /// Scripts, users and permissions, whatever the verb: 501.
    Unsupported,
    /// A resource that does not take the verb: 405.
    WrongVerb,
    /// A path that addresses nothing: 404.
    Missing(&'a str),
}

impl<'a> Operation<'a> {
    /// The container whose shards must be open for the operation.
    pub fn needs_shards_of(&self) -> Option<Target<'a>> {
        match *self {
            Self::ReadContainer(target)
            | Self::ReplaceContainer(target)
            | Self::ReadItem(target, _)
            | Self::ReplaceItem(target, _)
            | Self::PatchItem(target, _)
            | Self::DeleteItem(target, _)
            | Self::CreateItem(target)
            | Self::UpsertItem(target)
            | Self::Batch(target)
            | Self::QueryItems(target)
            | Self::ReadFeed(target)
            | Self::ReadChangeFeed(target)
            | Self::DeletePartition(target) => Some(target),
            _ => None,
        }
    }

    /// Returns whether the operation stays within the partition key that its header names.
    pub fn stays_within_key(&self) -> bool {
        matches!(
            self,
            Self::ReadItem(..)
                | Self::ReplaceItem(..)
                | Self::PatchItem(..)
                | Self::DeleteItem(..)
                | Self::CreateItem(_)
                | Self::UpsertItem(_)
                | Self::Batch(_)
                | Self::DeletePartition(_)
        )
    }

    /// Decides what is asked for. `marked` says whether a header makes the request one of a kind;
    /// it is called only where the answer matters.
    pub fn of(verb: &str, path: &'a ResourcePath<'_>, marked: impl Fn(Mark) -> bool) -> Self {
        use ResourcePath as P;
        match path {
            P::Account => match verb {
                "GET" => Self::ReadAccount,
                _ => Self::WrongVerb,
            },
            P::Databases => match verb {
                "GET" => Self::ListDatabases,
                "POST" if marked(Mark::Query) => Self::QueryDatabases,
                "POST" => Self::CreateDatabase,
                _ => Self::WrongVerb,
            },
            P::Database { db } => match verb {
                "GET" => Self::ReadDatabase(db),
                "DELETE" => Self::DeleteDatabase(db),
                _ => Self::WrongVerb,
            },
            P::Containers { db } => match verb {
                "GET" => Self::ListContainers(db),
                "POST" if marked(Mark::Query) => Self::QueryContainers(db),
                "POST" => Self::CreateContainer(db),
                _ => Self::WrongVerb,
            },
            P::Container { db, coll } => match verb {
                "GET" => Self::ReadContainer(Target { db, coll }),
                "PUT" => Self::ReplaceContainer(Target { db, coll }),
                "DELETE" => Self::DeleteContainer(Target { db, coll }),
                _ => Self::WrongVerb,
            },
            P::Items { db, coll } => Self::of_items(verb, Target { db, coll }, marked),
            P::Item { db, coll, id } => match verb {
                "GET" => Self::ReadItem(Target { db, coll }, id),
                "PUT" => Self::ReplaceItem(Target { db, coll }, id),
                "PATCH" => Self::PatchItem(Target { db, coll }, id),
                "DELETE" => Self::DeleteItem(Target { db, coll }, id),
                _ => Self::WrongVerb,
            },
            P::PartitionKeyRanges { db, coll } => match verb {
                "GET" => Self::ListRanges(Target { db, coll }),
                _ => Self::WrongVerb,
            },
            P::PartitionKeyDelete { db, coll } => match verb {
                "POST" => Self::DeletePartition(Target { db, coll }),
                _ => Self::WrongVerb,
            },
            P::Conflicts { db, coll } => match verb {
                "GET" => Self::ListConflicts(Target { db, coll }),
                "POST" if marked(Mark::Query) => Self::QueryConflicts(Target { db, coll }),
                _ => Self::WrongVerb,
            },
            P::Conflict { db, coll, id } => match verb {
                "GET" => Self::ReadConflict(Target { db, coll }, id),
                "DELETE" => Self::DeleteConflict(Target { db, coll }, id),
                _ => Self::WrongVerb,
            },
            P::Offers => match verb {
                "GET" => Self::ListOffers,
                // Nobody creates offers: every POST is a query, marked or not.
                "POST" => Self::QueryOffers,
                _ => Self::WrongVerb,
            },
            P::Offer { rid } => match verb {
                "GET" => Self::ReadOffer(rid),
                "PUT" => Self::ReplaceOffer(rid),
                _ => Self::WrongVerb,
            },
            P::Scripts { .. }
            | P::Script { .. }
            | P::Users { .. }
            | P::User { .. }
            | P::Permissions { .. }
            | P::Permission { .. } => Self::Unsupported,
            P::Unknown { path } => Self::Missing(path),
        }
    }

    /// `POST …/docs` is five operations in one; the order of the questions is the protocol's.
    fn of_items(verb: &str, target: Target<'a>, marked: impl Fn(Mark) -> bool) -> Self {
        match verb {
            "GET" if marked(Mark::ChangeFeed) => Self::ReadChangeFeed(target),
            "GET" => Self::ReadFeed(target),
            "POST" if marked(Mark::QueryPlan) => Self::PlanQuery(target),
            "POST" if marked(Mark::Batch) => Self::Batch(target),
            "POST" if marked(Mark::Query) => Self::QueryItems(target),
            "POST" if marked(Mark::Upsert) => Self::UpsertItem(target),
            "POST" => Self::CreateItem(target),
            _ => Self::WrongVerb,
        }
    }

    /// How metrics name it.
    pub fn label(&self) -> labels::Operation {
        use labels::Operation as L;
        match self {
            Self::ReadItem(..) => L::Read,
            Self::CreateItem(_) => L::Create,
            Self::UpsertItem(_) => L::Upsert,
            Self::ReplaceItem(..) => L::Replace,
            Self::PatchItem(..) => L::Patch,
            Self::DeleteItem(..) => L::Delete,
            Self::DeletePartition(_) => L::DeletePartition,
            Self::Batch(_) => L::Batch,
            Self::QueryItems(_) => L::Query,
            Self::PlanQuery(_) => L::QueryPlan,
            Self::ReadFeed(_) => L::ReadFeed,
            Self::ReadChangeFeed(_) => L::ChangeFeed,
            Self::ReadAccount
            | Self::ListDatabases
            | Self::QueryDatabases
            | Self::ReadDatabase(_)
            | Self::ListContainers(_)
            | Self::QueryContainers(_)
            | Self::ReadContainer(_)
            | Self::ListRanges(_)
            | Self::ListOffers
            | Self::QueryOffers
            | Self::ReadOffer(_)
            | Self::ListConflicts(_)
            | Self::QueryConflicts(_)
            | Self::ReadConflict(..) => L::CatalogRead,
            Self::CreateDatabase
            | Self::DeleteDatabase(_)
            | Self::CreateContainer(_)
            | Self::ReplaceContainer(_)
            | Self::DeleteContainer(_)
            | Self::ReplaceOffer(_)
            | Self::DeleteConflict(..) => L::CatalogWrite,
            Self::Unsupported | Self::WrongVerb | Self::Missing(_) => L::Unknown,
        }
    }
}
