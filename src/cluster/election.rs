//! When a replica stands for election. Every replica of a group has its own turn, so that no two stand at the same time, and nothing is left to chance.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use super::{GroupId, NodeId};

/// Ticks for which a replica that hears from its leader votes for nobody else.
pub const LEASE_TICKS: usize = 20;
/// Ticks of silence after which the first in turn stands: by then the others have missed the leader, too.
const SILENCE_TICKS: usize = LEASE_TICKS + 4;
/// Ticks between two turns: time to be elected in.
const TURN_TICKS: usize = 5;
/// Replicas beyond this one share the last turn.
const TURNS_MAX: usize = 9;
/// A replica stands before this many ticks.
pub const TICKS_MAX: usize = SILENCE_TICKS + TURNS_MAX * TURN_TICKS + 1;

/// The place of a replica among those that may stand in a term; `without` is known to be gone. Turns change from term to term and from group to group: whoever
/// cannot win does not stand first for ever, and the groups of a node that dies spread over the others.
fn turn(
    group: GroupId,
    term: u64,
    node: NodeId,
    voters: &[NodeId],
    without: Option<NodeId>,
) -> usize {
    let count = voters.len().max(1) as u64;
    let first = hash(&(group, term)) % count;
    let place = |at: usize| (at as u64 + first) % count;
    let own = voters.iter().position(|voter| *voter == node);
    let own = own.map_or(count, place);
    let before = voters
        .iter()
        .enumerate()
        .filter(|(at, voter)| place(*at) < own && Some(**voter) != without);
    before.count().min(TURNS_MAX)
}

/// Ticks of silence after which a replica stands.
pub fn wait(group: GroupId, term: u64, node: NodeId, voters: &[NodeId]) -> usize {
    SILENCE_TICKS + turn(group, term, node, voters, None) * TURN_TICKS
}

/// Ticks after which a replica stands whose connection to the leader broke: a process that was killed is missed at once.
pub fn wait_without(
    group: GroupId,
    term: u64,
    node: NodeId,
    voters: &[NodeId],
    leader: NodeId,
) -> usize {
    1 + turn(group, term, node, voters, Some(leader)) * TURN_TICKS
}

/// Ticks after which it stands again: everybody else has had a turn.
pub fn wait_again(voters: &[NodeId]) -> usize {
    voters.len().clamp(2, TURNS_MAX) * TURN_TICKS
}

/// The same everywhere and always, which the standard map's hash is not.
fn hash(value: &impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_replicas_of_a_group_stand_at_the_same_time() {
        for voters in [vec![1, 2, 3], vec![2, 5, 7, 8, 9]] {
            for (container, term) in (0..50).flat_map(|one| (0..20).map(move |two| (one, two))) {
                let group = GroupId {
                    container,
                    range: 0,
                };
                let waits = voters.iter().map(|node| wait(group, term, *node, &voters));
                let waits: BTreeSet<usize> = waits.collect();
                assert_eq!(waits.len(), voters.len());
                assert!(
                    waits
                        .iter()
                        .all(|wait| (LEASE_TICKS..TICKS_MAX).contains(wait))
                );
                let gone = voters[0];
                let early = voters[1..]
                    .iter()
                    .map(|node| wait_without(group, term, *node, &voters, gone));
                let early: BTreeSet<usize> = early.collect();
                assert_eq!(early.len(), voters.len() - 1);
                assert_eq!(early.first(), Some(&1), "somebody stands at once");
            }
        }
    }

    #[test]
    fn the_groups_of_a_node_that_dies_spread_over_the_others() {
        let voters = [1, 2, 3];
        let firsts = (0..300).map(|container| {
            let group = GroupId {
                container,
                range: 0,
            };
            let waits = [2, 3].map(|node| wait_without(group, 4, node, &voters, 1));
            usize::from(waits[0] < waits[1])
        });
        let second: usize = firsts.sum();
        assert!((100..200).contains(&second), "node 2 takes {second} of 300");
    }
}
