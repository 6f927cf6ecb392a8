//! The catalog: databases, containers, their partition key ranges and their throughput. Pure data with its rules;
//! the coordinator owns it and stores it.

mod given_up;
mod placement;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub use placement::{NodeRecord, NodeState, Standing};
use serde::{Deserialize, Serialize};

use super::{
    container::ContainerDefinition,
    epk::{Epk, EpkRange},
    error::{Error, ErrorKind, Result},
    item::EtagCondition,
    offer::{Offer, Throughput},
    rid::{ContainerRid, DatabaseRid, OfferRid},
};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// Goes up with every change; etags of catalog resources come from it.
    pub version: u64,
    pub databases: BTreeMap<String, Database>,
    pub offers: BTreeMap<u32, Arc<OfferRecord>>,
    /// The nodes of the cluster; none on a node of its own.
    #[serde(default)]
    pub nodes: BTreeMap<u64, NodeRecord>,
    last_database: u32,
    last_offer: u32,
    #[serde(default)]
    last_node: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Database {
    pub rid: DatabaseRid,
    pub etag: String,
    pub ts: i64,
    /// Shared between versions of the catalog, so that a change copies what it changes.
    pub containers: BTreeMap<String, Arc<Container>>,
    last_container: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Container {
    pub rid: ContainerRid,
    pub etag: String,
    pub ts: i64,
    pub definition: ContainerDefinition,
    /// In key order, tiling the whole key space.
    pub ranges: Vec<Range>,
}

/// A partition key range: the key space of one shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Range {
    pub id: u32,
    pub keys: EpkRange,
    /// The ranges that it came from by splits, oldest first.
    #[serde(default)]
    pub parents: Vec<u32>,
    /// The nodes of a cluster that are to have a replica.
    #[serde(default)]
    pub replicas: Vec<u64>,
    /// Nodes that still have a replica and are to lose it.
    #[serde(default)]
    pub leaving: Vec<u64>,
    /// The version of the catalog in which the range was begun, empty, on these very replicas. `None`: the replicas have changed since, and one that has
    /// nothing is filled by the others.
    #[serde(default)]
    pub begun: Option<u64>,
    /// In a cluster: it is about to be split.
    #[serde(default)]
    pub cut: Option<Cut>,
}

/// Where a range is to be split, and what its parts are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    pub at: Epk,
    pub parts: [u32; 2],
    /// The nodes of a cluster that have replicas of it, and so will have them of its parts.
    pub replicas: Vec<u64>,
    /// The version of the catalog that says so first.
    pub version: u64,
}

impl Range {
    /// On no node in particular, and of no other range.
    pub fn new(id: u32, keys: EpkRange) -> Self {
        Self {
            id,
            keys,
            parents: Vec::new(),
            replicas: Vec::new(),
            leaving: Vec::new(),
            begun: None,
            cut: None,
        }
    }
}

/// The offer of a database or a container, with its place in the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfferRecord {
    pub offer: Offer,
    pub etag: String,
    pub ts: i64,
}

impl Container {
    /// The highest id that any of its ranges ever had: a range with a higher one is not known yet.
    pub fn highest_range(&self) -> u32 {
        let ids = self.ranges.iter().map(|range| range.id);
        ids.max().unwrap_or(0)
    }

    fn range_mut(&mut self, range_id: u32) -> Result<&mut Range> {
        let mut ranges = self.ranges.iter_mut();
        ranges
            .find(|range| range.id == range_id)
            .ok_or_else(|| no_range(range_id))
    }
}

/// That a container has no range of that id.
pub fn no_range(range_id: u32) -> Error {
    Error::not_found(format!(
        "there is no partition key range '{range_id}' in the container"
    ))
}

impl Range {
    /// What it is to be split into.
    pub fn parts(&self) -> Option<[Self; 2]> {
        let Cut {
            at,
            parts,
            replicas,
            ..
        } = self.cut.as_ref()?;
        let [left, right] = self.keys.cut(at);
        let lineage: Vec<u32> = self.parents.iter().copied().chain([self.id]).collect();
        let part = |id, keys| Self {
            parents: lineage.clone(),
            replicas: replicas.clone(),
            ..Self::new(id, keys)
        };
        Some([part(parts[0], left), part(parts[1], right)])
    }
}

impl Catalog {
    pub fn database(&self, id: &str) -> Result<&Database> {
        self.databases.get(id).ok_or_else(|| {
            Error::not_found(format!("Resource Not Found: there is no database '{id}'"))
        })
    }

    /// A database that owns what the request addresses.
    pub fn owner(&self, database: &str) -> Result<&Database> {
        let missing = || {
            Error::new(
                ErrorKind::OwnerNotFound,
                format!("Owner resource does not exist: there is no database '{database}'"),
            )
        };
        self.databases.get(database).ok_or_else(missing)
    }

    /// A container that the request addresses itself.
    pub fn container(&self, database: &str, id: &str) -> Result<&Arc<Container>> {
        self.owner(database)?.containers.get(id).ok_or_else(|| {
            Error::not_found(format!(
                "Resource Not Found: there is no container '{id}' in the database '{database}'"
            ))
        })
    }

    pub fn container_by_rid(&self, rid: ContainerRid) -> Option<&Arc<Container>> {
        self.containers().find(|container| container.rid == rid)
    }

    pub fn create_database(
        &mut self,
        id: &str,
        throughput: Option<Throughput>,
        ts: i64,
    ) -> Result<()> {
        if self.databases.contains_key(id) {
            return Err(Error::conflict(format!(
                "Resource with specified id or name already exists: the database '{id}'"
            )));
        }
        self.last_database += 1;
        let rid = DatabaseRid(self.last_database);
        let etag = self.next_etag(ts);
        let database = Database {
            rid,
            etag,
            ts,
            containers: BTreeMap::new(),
            last_container: 0,
        };
        self.databases.insert(id.to_owned(), database);
        if let Some(throughput) = throughput {
            self.add_offer(rid.self_link(), rid.to_text(), throughput, ts);
        }
        Ok(())
    }

    /// Removes a database; gives back its containers, whose shards must go too.
    pub fn delete_database(
        &mut self,
        id: &str,
        if_match: Option<&EtagCondition>,
    ) -> Result<Database> {
        check_etag(&self.database(id)?.etag, if_match)?;
        let database = self
            .databases
            .remove(id)
            .ok_or_else(|| Error::internal("a database vanished"))?;
        let link = database.rid.self_link();
        self.offers
            .retain(|_, record| !record.offer.resource.starts_with(&link));
        self.version += 1;
        Ok(database)
    }

    pub fn create_container(
        &mut self,
        database: &str,
        definition: ContainerDefinition,
        throughput: Option<Throughput>,
        shards: u32,
        ts: i64,
    ) -> Result<&Arc<Container>> {
        let id = definition.id.clone();
        let link = self.owner(database)?.rid.self_link();
        let mut offers = self.offers.values();
        let shared_throughput = offers.any(|record| record.offer.resource == link);
        if self.owner(database)?.containers.contains_key(&id) {
            return Err(Error::conflict(format!(
                "Resource with specified id or name already exists: the container '{id}'"
            )));
        }
        let etag = self.next_etag(ts);
        let owner = self
            .databases
            .get_mut(database)
            .ok_or_else(|| Error::internal("a database vanished"))?;
        owner.last_container += 1;
        let rid = ContainerRid {
            database: owner.rid,
            ordinal: owner.last_container,
        };
        let ranges = EpkRange::split_evenly(shards, definition.partition_key.version)
            .into_iter()
            .zip(0..)
            .map(|(keys, id)| Range::new(id, keys))
            .collect();
        owner.containers.insert(
            id.clone(),
            Arc::new(Container {
                rid,
                etag,
                ts,
                definition,
                ranges,
            }),
        );
        match throughput {
            Some(throughput) => self.add_offer(rid.self_link(), rid.to_text(), throughput, ts),
            None if !shared_throughput => {
                self.add_offer(rid.self_link(), rid.to_text(), Throughput::default(), ts)
            }
            None => {}
        }
        self.container(database, &id)
    }

    pub fn replace_container(
        &mut self,
        database: &str,
        id: &str,
        definition: ContainerDefinition,
        if_match: Option<&EtagCondition>,
        ts: i64,
    ) -> Result<()> {
        check_etag(&self.container(database, id)?.etag, if_match)?;
        let etag = self.next_etag(ts);
        let container = self
            .databases
            .get_mut(database)
            .and_then(|owner| owner.containers.get_mut(id))
            .ok_or_else(|| Error::internal("a container vanished"))?;
        let container = Arc::make_mut(container);
        container.definition = definition;
        container.etag = etag;
        container.ts = ts;
        Ok(())
    }

    pub fn delete_container(
        &mut self,
        database: &str,
        id: &str,
        if_match: Option<&EtagCondition>,
    ) -> Result<Arc<Container>> {
        check_etag(&self.container(database, id)?.etag, if_match)?;
        let container = self
            .databases
            .get_mut(database)
            .and_then(|owner| owner.containers.remove(id))
            .ok_or_else(|| Error::internal("a container vanished"))?;
        let link = container.rid.self_link();
        self.offers
            .retain(|_, record| record.offer.resource != link);
        self.version += 1;
        Ok(container)
    }

    /// Puts two ranges in the place of one; they meet at an EPK.
    pub fn split_range(
        &mut self,
        rid: ContainerRid,
        range_id: u32,
        at: &Epk,
    ) -> Result<[Range; 2]> {
        self.plan_cut(rid, range_id, at, &[])?;
        self.carry_out_cut(rid, range_id)
    }

    /// Says where a range is to be split. The ids of its parts are above all that the container ever had, because the highest one is always among its ranges,
    /// or among those to come. A range that is on no node in particular is on `everywhere`.
    pub fn plan_cut(
        &mut self,
        rid: ContainerRid,
        range_id: u32,
        at: &Epk,
        everywhere: &[u64],
    ) -> Result<Cut> {
        let version = self.version + 1;
        let container = self.container_mut(rid)?;
        let ranges = container.ranges.iter();
        let planned = ranges.filter_map(|range| range.cut.as_ref());
        let highest = planned.flat_map(|cut| cut.parts).max();
        let next = container.highest_range().max(highest.unwrap_or(0)) + 1;
        let range = container.range_mut(range_id)?;
        if range.cut.is_some() {
            return Err(Error::conflict(format!(
                "the partition key range '{range_id}' is being split already"
            )));
        }
        if *at <= range.keys.min || *at >= range.keys.max {
            return Err(Error::bad_request(format!(
                "the partition key range '{range_id}' cannot be split at '{}': that is not inside it",
                at.to_hex()
            )));
        }
        if !range.leaving.is_empty() {
            return Err(Error::unavailable(format!(
                "replicas of the partition key range '{range_id}' are on the move; try again when that is done"
            )));
        }
        let cut = Cut {
            at: at.clone(),
            parts: [next, next + 1],
            replicas: match range.replicas.as_slice() {
                [] => everywhere.to_vec(),
                replicas => replicas.to_vec(),
            },
            version,
        };
        range.cut = Some(cut.clone());
        self.version = version;
        Ok(cut)
    }

    /// Puts the parts of a range in its place, as was planned.
    pub fn carry_out_cut(&mut self, rid: ContainerRid, range_id: u32) -> Result<[Range; 2]> {
        let container = self.container_mut(rid)?;
        let parent = container.range_mut(range_id)?.clone();
        let parts = parent.parts().ok_or_else(|| {
            Error::internal(format!(
                "no split of the partition key range '{range_id}' was planned"
            ))
        })?;
        let at = container
            .ranges
            .partition_point(|range| range.keys.min < parent.keys.min);
        container.ranges.splice(at..=at, parts.clone());
        self.version += 1;
        Ok(parts)
    }

    fn container_mut(&mut self, rid: ContainerRid) -> Result<&mut Container> {
        let owners = self.databases.values_mut();
        let mut containers = owners.flat_map(|owner| owner.containers.values_mut());
        containers
            .find(|container| container.rid == rid)
            .map(Arc::make_mut)
            .ok_or_else(|| Error::not_found(format!("there is no container '{rid}' any more")))
    }

    pub fn replace_offer(
        &mut self,
        rid: OfferRid,
        offer: Offer,
        if_match: Option<&EtagCondition>,
        ts: i64,
    ) -> Result<()> {
        check_etag(&self.offer(rid)?.etag, if_match)?;
        let etag = self.next_etag(ts);
        let record = self
            .offers
            .get_mut(&rid.0)
            .ok_or_else(|| Error::internal("an offer vanished"))?;
        *record = Arc::new(OfferRecord { offer, etag, ts });
        Ok(())
    }

    pub fn offer(&self, rid: OfferRid) -> Result<&OfferRecord> {
        let missing = || Error::not_found(format!("Resource Not Found: there is no offer '{rid}'"));
        Ok(self.offers.get(&rid.0).ok_or_else(missing)?)
    }

    /// The offers by the resources that have them for themselves.
    pub fn offers_by_resource(&self) -> HashMap<&str, &Offer> {
        let offers = self.offers.values().map(|record| &record.offer);
        offers.map(|offer| (&*offer.resource, offer)).collect()
    }

    fn add_offer(
        &mut self,
        resource: String,
        resource_rid: String,
        throughput: Throughput,
        ts: i64,
    ) {
        self.last_offer += 1;
        let offer = Offer {
            rid: OfferRid(self.last_offer).to_text(),
            resource,
            resource_rid,
            throughput,
        };
        let etag = self.next_etag(ts);
        self.offers
            .insert(self.last_offer, Arc::new(OfferRecord { offer, etag, ts }));
    }

    fn next_etag(&mut self, ts: i64) -> String {
        self.version += 1;
        format!("\"{:08x}-0000-0000-0000-{:012x}\"", self.version, ts)
    }
}

fn check_etag(etag: &str, if_match: Option<&EtagCondition>) -> Result<()> {
    match if_match {
        Some(condition) if !condition.matches(etag) => Err(Error::precondition_failed(format!(
            "Operation cannot be performed because one of the specified precondition is not met: the etag is {etag}"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A catalog with one container of so many ranges.
    fn catalog(shards: u32) -> (Catalog, ContainerRid) {
        let mut catalog = Catalog::default();
        let body =
            json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
        let definition = ContainerDefinition::from_json(body.as_object().unwrap()).unwrap();
        catalog.create_database("d", None, 1).unwrap();
        let made = catalog.create_container("d", definition, None, shards, 1);
        let rid = made.unwrap().rid;
        (catalog, rid)
    }

    fn ids(catalog: &Catalog) -> Vec<u32> {
        let ranges = &catalog.container("d", "c").unwrap().ranges;
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].keys.max, pair[1].keys.min, "ranges tile the keys");
        }
        ranges.iter().map(|range| range.id).collect()
    }

    #[test]
    fn versions_of_the_catalog_share_the_containers_that_a_change_leaves_alone() {
        let (before, rid) = catalog(1);
        let mut after = before.clone();
        let mut definition = before.container("d", "c").unwrap().definition.clone();
        definition.id = "e".to_owned();
        after.create_container("d", definition, None, 1, 2).unwrap();
        let known = before.container("d", "c").unwrap();
        assert!(Arc::ptr_eq(known, after.container("d", "c").unwrap()));
        let half = after.container_by_rid(rid).unwrap().ranges[0].keys.clone();
        let at = Epk::from_hex("1F").unwrap();
        assert!(half.contains(&at));
        after.split_range(rid, 0, &at).unwrap();
        assert_eq!(known.ranges.len(), 1);
        assert_eq!(after.container("d", "c").unwrap().ranges.len(), 2);
    }

    #[test]
    fn a_planned_split_reserves_its_ids_and_changes_nothing_until_it_is_carried_out() {
        let (mut catalog, rid) = catalog(2);
        let half = catalog.container("d", "c").unwrap().ranges[0]
            .keys
            .max
            .clone();
        let at = |hex| Epk::from_hex(hex).unwrap();
        let before = catalog.version;
        let first = catalog.plan_cut(rid, 0, &at("10"), &[1, 2]).unwrap();
        let second = catalog.plan_cut(rid, 1, &at("30"), &[1, 2]).unwrap();
        assert_eq!((first.parts, second.parts), ([2, 3], [4, 5]));
        assert_eq!(ids(&catalog), [0, 1]);
        assert_eq!(
            catalog
                .plan_cut(rid, 0, &at("08"), &[1, 2])
                .unwrap_err()
                .status(),
            409
        );
        assert_eq!(
            catalog
                .plan_cut(rid, 7, &at("08"), &[1, 2])
                .unwrap_err()
                .status(),
            404
        );
        catalog.carry_out_cut(rid, 1).unwrap();
        assert_eq!(ids(&catalog), [0, 4, 5]);
        assert!(catalog.carry_out_cut(rid, 1).is_err(), "it is done once");
        catalog.carry_out_cut(rid, 0).unwrap();
        assert_eq!(ids(&catalog), [2, 3, 4, 5]);
        assert_eq!(catalog.version, before + 4);
        let ranges = &catalog.container("d", "c").unwrap().ranges;
        assert_eq!((&ranges[1].keys.max, &ranges[1].parents), (&half, &vec![0]));
        let placed = |range: &Range| range.cut.is_none() && range.replicas == [1, 2];
        assert!(ranges.iter().all(placed));
        assert_eq!(
            catalog.plan_cut(rid, 2, &half, &[]).unwrap_err().status(),
            400
        );
        let moving = &mut catalog.container_mut(rid).unwrap().ranges[0];
        moving.move_to(vec![2, 3]);
        let refused = catalog.plan_cut(rid, 2, &at("08"), &[]).unwrap_err();
        assert!(refused.message.contains("on the move"), "{refused}");
    }
}
