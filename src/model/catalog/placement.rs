//! Which nodes of a cluster have replicas of what. Pure: what is decided here is stored with the catalog, and the leaders of the groups carry it out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Catalog, Container, Range};
use crate::model::error::{Error, Result};

/// A node of the cluster. Numbers are never used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Where the other nodes reach it.
    pub address: String,
    pub state: NodeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeState {
    /// Takes replicas.
    Member,
    /// Gives its replicas away, and is taken off the list when it has none.
    Draining,
}

impl Range {
    /// Whether this node has a replica, or is about to have one or to lose it.
    pub fn is_on(&self, node: u64) -> bool {
        self.replicas.contains(&node) || self.leaving.contains(&node)
    }

    /// Makes these nodes the ones that are to have a replica.
    pub fn move_to(&mut self, replicas: Vec<u64>) {
        let before = self.replicas.iter().chain(&self.leaving);
        let leaving = before.filter(|node| !replicas.contains(node));
        self.leaving = leaving.copied().collect();
        self.replicas = replicas;
        self.begun = None;
    }
}

impl Catalog {
    /// Nodes that take replicas.
    pub fn takers(&self) -> impl Iterator<Item = u64> {
        let members = self.nodes.iter();
        members
            .filter(|(_, record)| record.state == NodeState::Member)
            .map(|(node, _)| *node)
    }

    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        let databases = self.databases.values();
        databases.flat_map(|database| database.containers.values())
    }

    pub fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range> {
        let databases = self.databases.values_mut();
        databases
            .flat_map(|database| database.containers.values_mut())
            .flat_map(|container| &mut container.ranges)
    }

    /// How many replicas each node that takes some is to have.
    pub fn loads(&self) -> BTreeMap<u64, usize> {
        let mut loads: BTreeMap<u64, usize> = self.takers().map(|node| (node, 0)).collect();
        let ranges = self.containers().flat_map(|container| &container.ranges);
        for node in ranges.flat_map(|range| &range.replicas) {
            if let Some(load) = loads.get_mut(node) {
                *load += 1;
            }
        }
        loads
    }

    /// Gives the ranges of a new container their replicas, on the nodes that have fewest. A catalog without nodes is that of a node of its own.
    pub fn place(&mut self, database: &str, id: &str, replication: usize) -> Result<()> {
        let mut loads = self.loads();
        let version = self.version;
        let container = self
            .databases
            .get_mut(database)
            .and_then(|owner| owner.containers.get_mut(id))
            .ok_or_else(|| Error::internal("a container vanished"))?;
        for range in &mut container.ranges {
            range.replicas = least_loaded(&loads, replication);
            range.begun = Some(version);
            for node in &range.replicas {
                *loads.entry(*node).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Puts a node on the list, under the number that it has or the next one.
    pub fn add_node(&mut self, address: &str) -> u64 {
        let known = self.nodes.iter().find(|(_, one)| one.address == address);
        if let Some((&node, _)) = known {
            return node;
        }
        let node = self
            .last_node
            .max(self.nodes.keys().copied().max().unwrap_or(0))
            + 1;
        self.put_node(node, address);
        node
    }

    pub fn put_node(&mut self, node: u64, address: &str) {
        let record = NodeRecord {
            address: address.to_owned(),
            state: NodeState::Member,
        };
        self.last_node = self.last_node.max(node);
        self.nodes.insert(node, record);
        self.version += 1;
    }
}

/// The nodes with the fewest replicas; of equals the one with the lowest number.
fn least_loaded(loads: &BTreeMap<u64, usize>, count: usize) -> Vec<u64> {
    let mut nodes: Vec<(usize, u64)> = loads.iter().map(|(node, load)| (*load, *node)).collect();
    nodes.sort_unstable();
    let mut chosen: Vec<u64> = nodes.iter().take(count).map(|(_, node)| *node).collect();
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(nodes: u64, shards: u32, replication: usize) -> Catalog {
        let mut catalog = Catalog::default();
        for node in 1..=nodes {
            catalog.put_node(node, &format!("host{node}:1"));
        }
        catalog.create_database("d", None, 7).unwrap();
        let definition = serde_json::json!({"id": "c", "partitionKey": {"paths": ["/pk"]}});
        let definition = crate::model::container::ContainerDefinition::from_json(
            definition.as_object().unwrap(),
        )
        .unwrap();
        catalog
            .create_container("d", definition, None, shards, 8)
            .unwrap();
        catalog.place("d", "c", replication).unwrap();
        catalog
    }

    fn replicas(catalog: &Catalog) -> Vec<Vec<u64>> {
        let ranges = catalog.container("d", "c").unwrap().ranges.iter();
        ranges.map(|range| range.replicas.clone()).collect()
    }

    #[test]
    fn replicas_are_spread_evenly_and_never_twice_on_a_node() {
        let catalog = catalog(5, 10, 3);
        for range in replicas(&catalog) {
            assert_eq!(range.len(), 3);
            assert!(range.is_sorted_by(|one, next| one < next), "{range:?}");
        }
        assert!(catalog.loads().values().all(|load| *load == 6));
    }

    #[test]
    fn a_small_cluster_has_as_many_replicas_as_nodes_and_a_node_of_its_own_names_none() {
        assert_eq!(replicas(&catalog(2, 1, 3)), [[1, 2]]);
        assert_eq!(replicas(&catalog(0, 1, 3)), [Vec::<u64>::new()]);
    }

    #[test]
    fn who_is_to_leave_is_remembered_until_it_has_left() {
        let mut range = catalog(3, 1, 3).container("d", "c").unwrap().ranges[0].clone();
        assert!(range.begun.is_some());
        range.move_to(vec![1, 2, 4]);
        range.move_to(vec![1, 4, 5]);
        assert_eq!(
            (range.replicas.as_slice(), range.leaving.as_slice()),
            (&[1, 4, 5][..], &[2, 3][..])
        );
        assert_eq!(range.begun, None);
        assert!(range.is_on(3) && range.is_on(5) && !range.is_on(6));
    }

    #[test]
    fn a_node_keeps_its_number_and_numbers_are_not_used_again() {
        let mut catalog = catalog(3, 1, 3);
        assert_eq!(catalog.add_node("host2:1"), 2);
        assert_eq!(catalog.add_node("new:1"), 4);
        catalog.nodes.remove(&4);
        assert_eq!(catalog.add_node("newer:1"), 5);
    }
}
