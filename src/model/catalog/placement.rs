//! Which nodes of a cluster have replicas of what. Pure: what is decided here is stored with the catalog, and the leaders of the groups carry it out.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Catalog, Container, Range};
use crate::model::{
    error::{Error, ErrorKind, Result},
    rid::ContainerRid,
};

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

    /// The same; a range of a version that placed nothing is everywhere.
    pub fn is_here(&self, node: u64) -> bool {
        self.replicas.is_empty() || self.is_on(node)
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

    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        let databases = self.databases.values();
        databases.flat_map(|database| database.containers.values())
    }

    pub fn ranges_mut(&mut self) -> impl Iterator<Item = &mut Range> {
        let databases = self.databases.values_mut();
        databases
            .flat_map(|database| database.containers.values_mut())
            .flat_map(|container| &mut Arc::make_mut(container).ranges)
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

    /// Who should lead each range, so that every node leads about as many: the same wherever it is asked.
    pub fn leaders(&self) -> BTreeMap<(ContainerRid, u32), u64> {
        let mut leads: BTreeMap<u64, usize> = self.takers().map(|node| (node, 0)).collect();
        let mut leaders = BTreeMap::new();
        for container in self.containers() {
            for range in &container.ranges {
                let fit = range
                    .replicas
                    .iter()
                    .filter(|node| leads.contains_key(node));
                let Some(leader) = fit.min_by_key(|node| leads.get(node)).copied() else {
                    continue;
                };
                *leads.entry(leader).or_default() += 1;
                leaders.insert((container.rid, range.id), leader);
            }
        }
        leaders
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
        for range in &mut Arc::make_mut(container).ranges {
            range.replicas = least_loaded(&loads, replication);
            range.begun = Some(version);
            for node in &range.replicas {
                *loads.entry(*node).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Puts a node that comes to a running cluster on the list: under the number that it wants or, where it wants none (0), under the one that it has or the next one.
    pub fn admit_node(&mut self, wanted: u64, address: &str) -> Result<u64> {
        let known = self.nodes.iter().find(|(_, one)| one.address == address);
        let refuse = |why: String| Err(Error::new(ErrorKind::Conflict, why));
        match known {
            Some((node, record)) if record.state == NodeState::Draining => {
                return refuse(format!("node {node} at {address} is being drained"));
            }
            Some((&node, _)) if wanted == 0 || wanted == node => return Ok(node),
            Some((node, _)) => return refuse(format!("{address} is the address of node {node}")),
            None => {}
        }
        if let Some(record) = self.nodes.get(&wanted) {
            return refuse(format!(
                "the number {wanted} is taken by the node at {}",
                record.address
            ));
        }
        let last = self
            .last_node
            .max(self.nodes.keys().copied().max().unwrap_or(0));
        if wanted != 0 && wanted <= last {
            return refuse(format!(
                "the number {wanted} cannot be given: numbers up to {last} have been, and none is given twice"
            ));
        }
        let node = wanted.max(last + 1);
        self.put_node(node, address);
        Ok(node)
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

/// Ranges whose replicas move at a time.
const MOVES_MAX: usize = 4;

/// Who has replicas of a range, as its group says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
}

impl Catalog {
    /// From now on the node gives its replicas away.
    pub fn drain_node(&mut self, node: u64) -> Result<()> {
        if self.takers().all(|taker| taker == node) {
            return Err(Error::bad_request(format!(
                "node {node} cannot be drained: no other node takes replicas"
            )));
        }
        let Some(record) = self.nodes.get_mut(&node) else {
            let known: Vec<String> = self.nodes.keys().map(u64::to_string).collect();
            return Err(Error::not_found(format!(
                "there is no node {node} in the cluster; its nodes are {}",
                known.join(", ")
            )));
        };
        record.state = NodeState::Draining;
        self.version += 1;
        Ok(())
    }

    /// Whether there is something to move, or to end.
    pub fn is_moving(&self) -> bool {
        let mut ranges = self.containers().flat_map(|container| &container.ranges);
        let draining = |record: &NodeRecord| record.state == NodeState::Draining;
        ranges.any(|range| !range.leaving.is_empty())
            || self.nodes.values().any(draining)
            || self.imbalance().is_some()
    }

    /// The node with most replicas and the one with fewest, if one more on the latter would be better.
    fn imbalance(&self) -> Option<(u64, u64)> {
        let loads = self.loads();
        let (least, fewest) = loads.iter().min_by_key(|(_, load)| **load)?;
        let (most, load) = loads.iter().max_by_key(|(_, load)| **load)?;
        (*load > fewest + 1).then_some((*most, *least))
    }

    /// Ends moves that are done, begins new ones, and strikes nodes off the list that have nothing left. Whether anything has changed.
    pub fn advance_moves(
        &mut self,
        standing: impl Fn(ContainerRid, u32) -> Option<Standing>,
    ) -> bool {
        let mut changed = self.end_moves(&standing);
        let mut moving = self
            .ranges_mut()
            .filter(|one| !one.leaving.is_empty())
            .count();
        let draining = self
            .nodes
            .iter()
            .filter(|(_, record)| record.state == NodeState::Draining);
        let draining: Vec<u64> = draining.map(|(node, _)| *node).collect();
        for node in draining {
            while moving < MOVES_MAX && self.move_one(node, None) {
                moving += 1;
                changed = true;
            }
            if self.ranges_mut().all(|range| !range.is_on(node)) {
                self.nodes.remove(&node);
                changed = true;
            }
        }
        while moving < MOVES_MAX
            && let Some((from, to)) = self.imbalance()
            && self.move_one(from, Some(to))
        {
            moving += 1;
            changed = true;
        }
        self.version += u64::from(changed);
        changed
    }

    fn end_moves(&mut self, standing: impl Fn(ContainerRid, u32) -> Option<Standing>) -> bool {
        let mut ended = false;
        let databases = self.databases.values_mut();
        for container in databases.flat_map(|database| database.containers.values_mut()) {
            if container
                .ranges
                .iter()
                .all(|range| range.leaving.is_empty())
            {
                continue;
            }
            let rid = container.rid;
            for range in &mut Arc::make_mut(container).ranges {
                let Some(Standing { voters, learners }) = standing(rid, range.id) else {
                    continue;
                };
                let arrived = range.replicas.iter().all(|node| voters.contains(node));
                let left = |node: &u64| !voters.contains(node) && !learners.contains(node);
                if !range.leaving.is_empty() && arrived && range.leaving.iter().all(left) {
                    range.leaving.clear();
                    ended = true;
                }
            }
        }
        ended
    }

    /// Moves a replica of some range, none of which is moving or being split, away from a node: to that other one, or to the one with fewest, or to none where all have it.
    fn move_one(&mut self, from: u64, to: Option<u64>) -> bool {
        let loads = self.loads();
        let mut ranges = self.ranges_mut().filter(|range| {
            let free = to.is_none_or(|to| !range.replicas.contains(&to));
            let rests = range.leaving.is_empty() && range.cut.is_none();
            free && rests && range.replicas.contains(&from)
        });
        let Some(range) = ranges.next() else {
            return false;
        };
        let others = loads
            .iter()
            .filter(|(node, _)| !range.replicas.contains(node));
        let to = to.or_else(|| others.min_by_key(|(_, load)| **load).map(|(node, _)| *node));
        let stay = range.replicas.iter().filter(|node| **node != from);
        let mut replicas: Vec<u64> = stay.copied().chain(to).collect();
        replicas.sort_unstable();
        if replicas.is_empty() {
            return false;
        }
        range.move_to(replicas);
        true
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
    fn every_node_leads_its_share_and_one_that_is_drained_nothing() {
        let mut catalog = catalog(3, 8, 3);
        let shares = |catalog: &Catalog| {
            let mut shares: BTreeMap<u64, usize> = BTreeMap::new();
            for leader in catalog.leaders().into_values() {
                *shares.entry(leader).or_default() += 1;
            }
            shares.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(shares(&catalog), [(1, 3), (2, 3), (3, 2)]);
        catalog.drain_node(1).unwrap();
        assert_eq!(shares(&catalog), [(2, 4), (3, 4)]);
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
        assert_eq!(catalog.admit_node(0, "host2:1"), Ok(2));
        assert_eq!(catalog.admit_node(2, "host2:1"), Ok(2));
        assert_eq!(catalog.admit_node(0, "new:1"), Ok(4));
        catalog.nodes.remove(&4);
        assert_eq!(catalog.admit_node(0, "newer:1"), Ok(5));
        assert_eq!(catalog.admit_node(9, "newest:1"), Ok(9));
    }

    #[test]
    fn a_number_or_an_address_that_is_taken_is_refused_by_name() {
        let mut catalog = catalog(3, 1, 3);
        catalog.drain_node(3).unwrap();
        let mut refused =
            |node, address: &str| catalog.admit_node(node, address).unwrap_err().message;
        assert!(refused(2, "new:1").contains("2 is taken by the node at host2:1"));
        assert!(refused(4, "host1:1").contains("host1:1 is the address of node 1"));
        assert!(refused(0, "host3:1").contains("being drained"));
        catalog.nodes.remove(&3);
        let gone = catalog.admit_node(3, "host3:1").unwrap_err().message;
        assert!(gone.contains("the number 3 cannot be given"), "{gone}");
    }

    /// The groups do at once what they are told.
    fn follow(catalog: &mut Catalog) -> usize {
        let mut rounds = 0;
        loop {
            let ranges = catalog.container("d", "c").unwrap().ranges.clone();
            let moved = catalog.advance_moves(|_, id| {
                let range = ranges.iter().find(|range| range.id == id);
                range.map(|range| Standing {
                    voters: range.replicas.clone(),
                    learners: Vec::new(),
                })
            });
            if !moved {
                return rounds;
            }
            rounds += 1;
            assert!(rounds < 100);
            let moving = catalog.ranges_mut().filter(|one| !one.leaving.is_empty());
            assert!(moving.count() <= MOVES_MAX);
        }
    }

    #[test]
    fn a_node_that_is_drained_gives_everything_away_and_leaves_the_list() {
        let mut catalog = catalog(5, 10, 3);
        catalog.drain_node(2).unwrap();
        assert!(catalog.is_moving());
        let rounds = follow(&mut catalog);
        assert!(rounds > 1, "{rounds}");
        assert!(!catalog.nodes.contains_key(&2) && !catalog.is_moving());
        for range in replicas(&catalog) {
            assert!(range.len() == 3 && !range.contains(&2), "{range:?}");
        }
        let loads = catalog.loads();
        assert!(
            loads.values().all(|load| (7..=8).contains(load)),
            "{loads:?}"
        );
        assert!(catalog.drain_node(2).is_err());
    }

    #[test]
    fn where_nobody_can_take_its_place_a_drained_node_leaves_a_gap_and_the_last_one_stays() {
        let mut catalog = catalog(2, 1, 3);
        catalog.drain_node(1).unwrap();
        follow(&mut catalog);
        assert_eq!(replicas(&catalog), [[2]]);
        assert!(catalog.drain_node(2).is_err());
    }

    #[test]
    fn a_move_is_not_over_while_the_group_has_who_should_leave() {
        let mut catalog = catalog(4, 1, 3);
        catalog.drain_node(1).unwrap();
        let slow = |voters: Vec<u64>| {
            move |_: ContainerRid, _: u32| {
                Some(Standing {
                    voters: voters.clone(),
                    learners: vec![4],
                })
            }
        };
        assert!(catalog.advance_moves(slow(vec![1, 2, 3])));
        assert!(!catalog.advance_moves(slow(vec![1, 2, 3])));
        assert!(!catalog.advance_moves(|_, _| None));
        assert!(catalog.nodes.contains_key(&1));
        follow(&mut catalog);
        assert_eq!(replicas(&catalog), [[2, 3, 4]]);
    }

    #[test]
    fn a_node_that_is_new_gets_its_share() {
        let mut catalog = catalog(3, 8, 3);
        catalog.admit_node(0, "new:1").unwrap();
        follow(&mut catalog);
        assert_eq!(catalog.loads().into_values().collect::<Vec<_>>(), [6; 4]);
    }
}
