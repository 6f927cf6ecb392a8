//! Applies committed entries to the state machines, and makes and installs snapshots, on threads of
//! their own.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
};

use tracing::{error, info, warn};

use super::{
    input::{Input, MadeSnapshot},
    state_machine::{StateMachine, StateMachineError},
};
use crate::cluster::{GroupId, raft::group::Committed, snapshots::Snapshots};

/// After so many applied entries the state machine is synced and the log released.
const RELEASE_ENTRIES: u64 = 4096;
/// Or after so many bytes of them.
const RELEASE_BYTES: usize = 16 * 1024 * 1024;

/// Work for the state machine of a group.
pub struct Job {
    pub group: GroupId,
    pub machine: Arc<dyn StateMachine>,
    pub task: Task,
}

pub enum Task {
    Apply(Vec<Committed>),
    /// Makes a snapshot that followers may fetch under this id.
    MakeSnapshot(u64),
    /// Installs the snapshot of this index, which was fetched.
    Install(u64),
    /// Forgets a replica that is gone. A later one of that name is another matter.
    Forget,
}

/// What an applier knows of a group.
#[derive(Default)]
struct AppliedGroup {
    /// The last applied entry; 0 until one is applied after the start.
    applied: u64,
    unreleased_entries: u64,
    unreleased_bytes: usize,
}

/// Starts a thread that does jobs one after the other, and reports their results to the event loop.
pub fn start(inputs: Sender<Input>, snapshots: Arc<Snapshots>) -> Sender<Job> {
    let (jobs, waiting) = channel::<Job>();
    let thread = std::thread::Builder::new().name("apply".to_owned());
    let started = thread.spawn(move || {
        let mut failed = HashSet::new();
        let mut groups: BTreeMap<GroupId, AppliedGroup> = BTreeMap::new();
        for job in waiting {
            let group = job.group;
            if matches!(job.task, Task::Forget) {
                failed.remove(&group);
                groups.remove(&group);
                continue;
            }
            // What follows an entry that could not be applied cannot be applied either.
            if failed.contains(&group) {
                continue;
            }
            let applied = groups.entry(group).or_default();
            let machine = Arc::clone(&job.machine);
            if let Err(failure) = run(job, applied, &inputs, &snapshots) {
                error!(%group, %failure, "replica halted until the node is restarted");
                machine.halted(&format!(
                    "this node's replica stands still until the node is restarted: {failure}"
                ));
                failed.insert(group);
            }
        }
    });
    if let Err(failure) = started {
        error!(%failure, "cannot start a thread that applies entries");
    }
    jobs
}

fn run(
    job: Job,
    group_state: &mut AppliedGroup,
    inputs: &Sender<Input>,
    snapshots: &Snapshots,
) -> Result<(), StateMachineError> {
    let Job {
        group,
        machine,
        task,
    } = job;
    match task {
        Task::Apply(entries) => {
            let Some(last) = entries.last().map(|entry| entry.index) else {
                return Ok(());
            };
            group_state.unreleased_entries += entries.len() as u64;
            let bytes = entries.iter().map(|entry| entry.data.len());
            group_state.unreleased_bytes += bytes.sum::<usize>();
            machine.apply(entries)?;
            group_state.applied = last;
            let _ = inputs.send(Input::Applied(group, last));
            if group_state.unreleased_entries >= RELEASE_ENTRIES
                || group_state.unreleased_bytes >= RELEASE_BYTES
            {
                group_state.unreleased_entries = 0;
                group_state.unreleased_bytes = 0;
                machine.sync()?;
                let _ = inputs.send(Input::Durable(group, last));
            }
        }
        Task::MakeSnapshot(id) => {
            let made = make_snapshot(group, id, &*machine, group_state.applied, snapshots);
            let _ = inputs.send(Input::SnapshotMade { group, made });
        }
        Task::Install(index) => {
            machine.install(&snapshots.files(group), index)?;
            snapshots.discard(group);
            group_state.applied = index;
            info!(%group, index, "snapshot installed");
            let _ = inputs.send(Input::Applied(group, index));
        }
        // The thread has handled it.
        Task::Forget => {}
    }
    Ok(())
}

fn make_snapshot(
    group: GroupId,
    id: u64,
    machine: &dyn StateMachine,
    index: u64,
    snapshots: &Snapshots,
) -> Option<MadeSnapshot> {
    if index == 0 {
        warn!(%group, "no snapshot yet: nothing was applied since the start");
        return None;
    }
    if let Err(failure) = machine.snapshot_to(&snapshots.outgoing(group, id)) {
        warn!(%group, %failure, "cannot make a snapshot");
        return None;
    }
    info!(%group, index, "snapshot made");
    snapshots.publish(group, id);
    Some(MadeSnapshot { index, id })
}
