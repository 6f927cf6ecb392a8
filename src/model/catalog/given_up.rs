//! What the catalog itself says to be gone. Numbers are given once: a container that was numbered
//! and is not there was deleted.

use super::Catalog;
use crate::model::rid::ContainerRid;

impl Catalog {
    /// Returns whether the catalog records that a range is gone: its container was deleted, it was
    /// split, or it has moved away from this node of a cluster. A range that the catalog has never
    /// heard of is not gone.
    pub fn has_given_up(&self, rid: ContainerRid, range: u32, node: Option<u64>) -> bool {
        if rid.database.0 > self.last_database {
            return false;
        }
        let mut databases = self.databases.values();
        let Some(database) = databases.find(|database| database.rid == rid.database) else {
            return true;
        };
        if rid.ordinal > database.last_container {
            return false;
        }
        let mut containers = database.containers.values();
        let Some(container) = containers.find(|container| container.rid == rid) else {
            return true;
        };
        match container.ranges.iter().find(|known| known.id == range) {
            Some(known) => node.is_some_and(|node| !known.is_here(node)),
            None => {
                let mut ranges = container.ranges.iter();
                ranges.any(|known| known.parents.contains(&range))
            }
        }
    }

    /// The highest number that a node of the cluster ever had.
    pub fn highest_node(&self) -> u64 {
        let named = self.nodes.keys().copied().max().unwrap_or(0);
        self.last_node.max(named)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{container::ContainerDefinition, epk::Epk, rid::DatabaseRid};

    fn create(catalog: &mut Catalog, database: &str, id: &str) -> ContainerRid {
        let body = json!({"id": id, "partitionKey": {"paths": ["/pk"], "version": 2}});
        let definition = ContainerDefinition::from_json(body.as_object().unwrap()).unwrap();
        let made = catalog.create_container(database, definition, None, 1, 1);
        made.unwrap().rid
    }

    #[test]
    fn only_what_was_deleted_split_or_moved_is_given_up() {
        let mut catalog = Catalog::default();
        catalog.create_database("d", None, 1).unwrap();
        let kept = create(&mut catalog, "d", "kept");
        let older = catalog.clone();
        let deleted = create(&mut catalog, "d", "deleted");
        catalog.delete_container("d", "deleted", None).unwrap();
        catalog.create_database("e", None, 1).unwrap();
        let with_its_database = create(&mut catalog, "e", "c");
        catalog.delete_database("e", None).unwrap();
        catalog
            .split_range(kept, 0, &Epk::from_hex("10").unwrap())
            .unwrap();

        for (rid, range) in [(deleted, 0), (with_its_database, 0), (kept, 0)] {
            assert!(catalog.has_given_up(rid, range, None), "{rid} {range}");
            assert!(!older.has_given_up(rid, range, None), "{rid} {range}");
        }
        let unknown = ContainerRid {
            database: DatabaseRid(9),
            ordinal: 1,
        };
        for (rid, range) in [(kept, 1), (kept, 2), (kept, 3), (unknown, 0)] {
            assert!(!catalog.has_given_up(rid, range, None), "{rid} {range}");
        }
        assert!(!catalog.has_given_up(kept, 1, Some(1)), "on every node");
        let container = catalog.container_mut(kept).unwrap();
        container.ranges[0].replicas = vec![2, 3];
        assert!(catalog.has_given_up(kept, 1, Some(1)), "moved away");
        assert!(!catalog.has_given_up(kept, 1, Some(2)));
    }
}
