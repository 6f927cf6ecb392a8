//! Plans how a group reaches its target configuration: the current members and the target in, the
//! leader's next step out.
//!
//! Members change one at a time. A new member joins as a learner and becomes a voter when it has
//! caught up. Nobody is removed before its replacement votes.

use std::collections::BTreeSet;

use super::membership::{MemberChange, Members};
use crate::cluster::NodeId;

/// The members that a group should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetConfig {
    pub voters: Vec<NodeId>,
    pub learners: Vec<NodeId>,
    /// The preferred leader.
    pub leader: Option<NodeId>,
}

/// A group as its leader knows it.
#[derive(Clone, Copy, Debug)]
pub struct LeaderView<'a> {
    pub leader: NodeId,
    pub members: &'a Members,
    /// Members that lack few entries and answer.
    pub caught_up: &'a BTreeSet<NodeId>,
    /// Members that have lost their disk. They must leave before they are restored, so that no
    /// vote and no acknowledgement from before counts.
    pub wiped: &'a BTreeSet<NodeId>,
    /// Whether leadership may move for balance: nothing is in flight, and the last change of
    /// leaders was a while ago.
    pub may_rebalance: bool,
}

/// What a leader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Change(MemberChange),
    TransferLeadership(NodeId),
}

/// Returns the next step towards the target; `None` if there is none, or if it must wait.
pub fn next_step(view: LeaderView<'_>, target: &TargetConfig) -> Option<Step> {
    change_members(view, target).or_else(|| rebalance(view, target))
}

fn change_members(view: LeaderView<'_>, target: &TargetConfig) -> Option<Step> {
    let Members {
        voters, learners, ..
    } = view.members;
    if target.voters.is_empty() {
        return None;
    }
    let mut wiped = view.wiped.iter();
    if let Some(wiped) = wiped.find(|node| view.members.contains(**node))
        && voters.len() > 1
    {
        return Some(Step::Change(MemberChange::Remove(*wiped)));
    }
    let mut wanted = target.voters.iter().chain(&target.learners);
    if let Some(new) = wanted.find(|node| !view.members.contains(**node)) {
        return Some(Step::Change(MemberChange::Learner(*new)));
    }
    let mut promotable = target.voters.iter().filter(|node| learners.contains(node));
    if let Some(ready) = promotable
        .clone()
        .find(|node| view.caught_up.contains(node))
    {
        return Some(Step::Change(MemberChange::Voter(*ready)));
    }
    if promotable.next().is_some() {
        return None;
    }
    match voters.iter().find(|node| !target.voters.contains(node)) {
        Some(node) if *node == view.leader => {
            let mut transferees = target.voters.iter().filter(|node| **node != view.leader);
            let transferee = transferees.find(|node| view.caught_up.contains(node))?;
            Some(Step::TransferLeadership(*transferee))
        }
        Some(node) if !keeps_quorum_without(view, *node) => None,
        Some(node) if target.learners.contains(node) => {
            Some(Step::Change(MemberChange::Learner(*node)))
        }
        Some(node) => Some(Step::Change(MemberChange::Remove(*node))),
        None => {
            let mut surplus = learners.iter();
            let surplus = surplus.find(|node| !target.learners.contains(node))?;
            Some(Step::Change(MemberChange::Remove(*surplus)))
        }
    }
}

/// Returns whether the voters that remain without this one can elect a leader. Voters that are
/// being restored have no vote to give.
fn keeps_quorum_without(view: LeaderView<'_>, node: NodeId) -> bool {
    let remaining = view.members.voters.iter().filter(|one| **one != node);
    let sound = remaining
        .clone()
        .filter(|one| **one == view.leader || view.caught_up.contains(one));
    2 * sound.count() > remaining.count()
}

/// Moves leadership to the preferred leader.
fn rebalance(view: LeaderView<'_>, target: &TargetConfig) -> Option<Step> {
    let transferee = target.leader.filter(|node| *node != view.leader)?;
    let is_fit = view.members.voters.contains(&transferee) && view.caught_up.contains(&transferee);
    (view.may_rebalance && is_fit).then_some(Step::TransferLeadership(transferee))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes by their numbers, one digit each.
    fn nodes(digits: &str) -> Vec<NodeId> {
        let digits = digits.chars().filter_map(|digit| digit.to_digit(10));
        digits.map(u64::from).collect()
    }

    /// Describes a step as `+4` (learner), `^4` (voter), `-4` (removed) or `>4` (leader).
    fn text(step: Option<Step>) -> String {
        match step {
            None => "wait".to_owned(),
            Some(Step::Change(MemberChange::Learner(node))) => format!("+{node}"),
            Some(Step::Change(MemberChange::Voter(node))) => format!("^{node}"),
            Some(Step::Change(MemberChange::Remove(node))) => format!("-{node}"),
            Some(Step::TransferLeadership(node)) => format!(">{node}"),
        }
    }

    /// Members and targets as `voters/learners` with `>leader` for the preferred one. Node 1 leads.
    fn check(members: &str, caught_up: &str, wiped: &str, target: &str, expected: &str) {
        let config = |text: &str| {
            let (text, leader) = text.split_once('>').unwrap_or((text, ""));
            let (voters, learners) = text.split_once('/').unwrap_or((text, ""));
            (nodes(voters), nodes(learners), nodes(leader).pop())
        };
        let (voters, learners, _) = config(members);
        let members = Members {
            since: 5,
            voters,
            learners,
        };
        let (voters, learners, leader) = config(target);
        let target = TargetConfig {
            voters,
            learners,
            leader,
        };
        let [caught_up, wiped] = [caught_up, wiped].map(|list| nodes(list).into_iter().collect());
        let view = |may_rebalance| LeaderView {
            leader: 1,
            members: &members,
            caught_up: &caught_up,
            wiped: &wiped,
            may_rebalance,
        };
        let case = format!("{members:?} to {target:?}");
        assert_eq!(text(next_step(view(true), &target)), expected, "{case}");
        if expected != "wait" && leader.is_none() {
            let busy = text(next_step(view(false), &target));
            assert_eq!(
                busy, expected,
                "only balance waits for a quiet moment: {case}"
            );
        }
    }

    #[test]
    fn each_situation_has_one_next_step() {
        // members, caught up, wiped, target, step
        for [members, caught_up, wiped, target, expected] in [
            // Nothing to do.
            ["123", "123", "", "123", "wait"],
            ["123/4", "1234", "", "123/4", "wait"],
            // No target is known.
            ["123", "123", "", "", "wait"],
            ["123", "123", "2", "", "wait"],
            // A new node joins as a learner, and votes when it has caught up.
            ["123", "123", "", "1234", "+4"],
            ["123/4", "123", "", "1234", "wait"],
            ["123/4", "1234", "", "1234", "^4"],
            ["123", "123", "", "123/4", "+4"],
            ["12", "12", "", "134", "+3"],
            ["12/3", "123", "", "134", "+4"],
            // A member leaves when its replacement votes, not before.
            ["123/4", "123", "", "124", "wait"],
            ["1234", "1234", "", "124", "-3"],
            ["123/4", "1234", "", "123", "-4"],
            // A voter becomes a learner.
            ["123", "123", "", "12/3", "+3"],
            // A leader that leaves transfers its leadership first, to one that has caught up.
            ["123", "123", "", "23", ">2"],
            ["123", "13", "", "23", ">3"],
            ["123", "1", "", "23", "wait"],
            // Those that stay must be able to elect a leader.
            ["123", "13", "", "12", "wait"],
            ["12345", "123", "", "1234", "-5"],
            ["12345", "12", "", "1234", "wait"],
            ["12", "12", "", "1", "-2"],
            // A member that has lost its disk leaves first, whatever else there is to do.
            ["123", "13", "2", "1234", "-2"],
            ["123/4", "123", "4", "1234", "-4"],
            ["13", "13", "2", "123", "+2"],
            ["1", "1", "1", "1", "wait"],
            // Leadership moves for balance when nothing else is to be done.
            ["123", "123", "", "123>3", ">3"],
            ["123", "12", "", "123>3", "wait"],
            ["123", "123", "", "123>1", "wait"],
            ["123", "123", "", "123>4", "wait"],
            ["123", "123", "", "1234>3", "+4"],
        ] {
            check(members, caught_up, wiped, target, expected);
        }
    }

    #[test]
    fn every_target_is_reached_and_no_step_leaves_the_group_without_a_quorum() {
        let mut sets: Vec<Vec<NodeId>> = Vec::new();
        for bits in 1_u64..32 {
            sets.push((1..=5).filter(|node| bits >> (node - 1) & 1 == 1).collect());
        }
        for from in sets.iter().filter(|set| set.contains(&1)) {
            for to in &sets {
                let mut members = Members {
                    since: 1,
                    voters: from.clone(),
                    learners: Vec::new(),
                };
                let target = TargetConfig {
                    voters: to.clone(),
                    ..TargetConfig::default()
                };
                let (caught_up, wiped) = ((1..=5).collect(), BTreeSet::new());
                let mut leader = 1;
                for index in 2.. {
                    assert!(index < 20, "{from:?} does not reach {to:?}: {members:?}");
                    let view = LeaderView {
                        leader,
                        members: &members,
                        caught_up: &caught_up,
                        wiped: &wiped,
                        may_rebalance: true,
                    };
                    match next_step(view, &target) {
                        None => break,
                        Some(Step::TransferLeadership(node)) => leader = node,
                        Some(Step::Change(change)) => members.apply(change, index),
                    }
                    assert!(members.voters.contains(&leader), "{from:?} to {to:?}");
                }
                assert_eq!(members.voters, *to, "from {from:?}");
                assert!(members.learners.is_empty());
            }
        }
    }
}
