//! The properties that the server adds to databases and containers.

use serde_json::{Map, Value};

/// The resources that own others, and so carry links to their feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Database,
    Container,
}

impl Owner {
    fn feeds(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Database => &[("_colls", "colls/"), ("_users", "users/")],
            Self::Container => &[
                ("_docs", "docs/"),
                ("_sprocs", "sprocs/"),
                ("_triggers", "triggers/"),
                ("_udfs", "udfs/"),
                ("_conflicts", "conflicts/"),
            ],
        }
    }
}

/// Adds the system properties. `self_link` ends with its slash; `etag` includes its quotes.
pub fn with_system_properties(
    owner: Owner,
    mut resource: Map<String, Value>,
    rid: &str,
    self_link: &str,
    etag: &str,
    ts: i64,
) -> Map<String, Value> {
    resource.insert("_rid".to_owned(), rid.into());
    resource.insert("_self".to_owned(), self_link.into());
    resource.insert("_etag".to_owned(), etag.into());
    for (name, link) in owner.feeds() {
        resource.insert((*name).to_owned(), (*link).into());
    }
    resource.insert("_ts".to_owned(), ts.into());
    resource
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(id: &str) -> Map<String, Value> {
        Map::from_iter([("id".to_owned(), Value::from(id))])
    }

    #[test]
    fn a_database_as_the_protocol_has_it() {
        let etag = "\"0000-1\"";
        let database = with_system_properties(
            Owner::Database,
            named("d"),
            "AAAD6Q==",
            "dbs/AAAD6Q==/",
            etag,
            1_790_000_000,
        );
        assert_eq!(
            Value::Object(database),
            json!({"id": "d", "_rid": "AAAD6Q==", "_self": "dbs/AAAD6Q==/", "_etag": "\"0000-1\"",
                   "_colls": "colls/", "_users": "users/", "_ts": 1_790_000_000})
        );
    }

    #[test]
    fn a_container_as_the_protocol_has_it() {
        let container = with_system_properties(
            Owner::Container,
            named("c"),
            "AAAD6YAAAAE=",
            "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/",
            "\"e\"",
            7,
        );
        assert_eq!(
            Value::Object(container),
            json!({"id": "c", "_rid": "AAAD6YAAAAE=", "_self": "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/", "_etag": "\"e\"",
                   "_docs": "docs/", "_sprocs": "sprocs/", "_triggers": "triggers/", "_udfs": "udfs/",
                   "_conflicts": "conflicts/", "_ts": 7})
        );
    }
}
