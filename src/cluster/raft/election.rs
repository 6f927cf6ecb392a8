//! When a replica campaigns. The replicas of a group take turns, so no two campaign at the same
//! time and nothing is random.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use crate::cluster::{GroupId, NodeId};

/// Ticks for which a replica that hears from its leader votes for nobody else.
pub const LEASE_TICKS: usize = 20;
/// Ticks without a heartbeat after which the first replica campaigns. By then the others have
/// missed the leader, too.
const SILENCE_TICKS: usize = LEASE_TICKS + 4;
/// Ticks between two turns: enough for an election.
const TURN_TICKS: usize = 5;
/// Replicas beyond this one share the last turn.
const TURNS_MAX: usize = 9;
/// All election timeouts are below this.
pub const TICKS_MAX: usize = SILENCE_TICKS + TURNS_MAX * TURN_TICKS + 1;

/// Returns the turn of a replica in a term; `without` is a voter that is known to be gone. Turns
/// change with the term and the group: a replica that cannot win is not first for ever, and the
/// groups of a node that dies spread over the others.
fn turn(
    group: GroupId,
    term: u64,
    node: NodeId,
    voters: &[NodeId],
    without: Option<NodeId>,
) -> usize {
    let count = voters.len().max(1) as u64;
    let first = hash(&(group, term)) % count;
    let rank = |at: usize| (at as u64 + first) % count;
    let own = voters.iter().position(|voter| *voter == node);
    let own = own.map_or(count, rank);
    let before = voters
        .iter()
        .enumerate()
        .filter(|(at, voter)| rank(*at) < own && Some(**voter) != without);
    before.count().min(TURNS_MAX)
}

/// Returns the election timeout: ticks without a heartbeat after which a replica campaigns.
pub fn timeout(group: GroupId, term: u64, node: NodeId, voters: &[NodeId]) -> usize {
    SILENCE_TICKS + turn(group, term, node, voters, None) * TURN_TICKS
}

/// Returns the election timeout after the connection to the leader broke: a process that was killed
/// is replaced at once.
pub fn timeout_without(
    group: GroupId,
    term: u64,
    node: NodeId,
    voters: &[NodeId],
    leader: NodeId,
) -> usize {
    1 + turn(group, term, node, voters, Some(leader)) * TURN_TICKS
}

/// Returns the ticks after which a replica campaigns again: all others have had a turn.
pub fn retry_timeout(voters: &[NodeId]) -> usize {
    voters.len().clamp(2, TURNS_MAX) * TURN_TICKS
}

/// Hashes a value the same way on every node, which the standard map's hash does not.
fn hash(value: &impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_replicas_of_a_group_campaign_at_the_same_time() {
        for voters in [vec![1, 2, 3], vec![2, 5, 7, 8, 9]] {
            for (container, term) in (0..50).flat_map(|one| (0..20).map(move |two| (one, two))) {
                let group = GroupId {
                    container,
                    range: 0,
                };
                let timeouts = voters
                    .iter()
                    .map(|node| timeout(group, term, *node, &voters));
                let timeouts: BTreeSet<usize> = timeouts.collect();
                assert_eq!(timeouts.len(), voters.len());
                assert!(
                    timeouts
                        .iter()
                        .all(|ticks| (LEASE_TICKS..TICKS_MAX).contains(ticks))
                );
                let gone = voters[0];
                let early = voters[1..]
                    .iter()
                    .map(|node| timeout_without(group, term, *node, &voters, gone));
                let early: BTreeSet<usize> = early.collect();
                assert_eq!(early.len(), voters.len() - 1);
                assert_eq!(early.first(), Some(&1), "one campaigns at once");
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
            let timeouts = [2, 3].map(|node| timeout_without(group, 4, node, &voters, 1));
            usize::from(timeouts[0] < timeouts[1])
        });
        let second: usize = firsts.sum();
        assert!((100..200).contains(&second), "node 2 takes {second} of 300");
    }
}
