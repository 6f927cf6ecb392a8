//! Applies what is committed to the state machines, and copies and replaces them, away from the thread that drives the groups.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
};

use tracing::{error, info, warn};

use super::{
    GroupId,
    driver::{Input, StateMachine},
    group::Committed,
    snapshots::Snapshots,
};
use crate::store::EngineError;

/// After so many applied entries the state machine is made durable and the log given free.
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
    /// Make a copy that others may fetch under this id.
    Copy(u64),
    /// Go on from the snapshot of this index, which was fetched.
    Install(u64),
    /// The replica is gone; another one of that name is another matter.
    Forget,
}

/// What an applier knows of a group.
#[derive(Default)]
struct Standing {
    /// The last entry that was applied.
    applied: u64,
    unreleased_entries: u64,
    unreleased_bytes: usize,
}

/// Starts a thread that does jobs one after the other, and tells what came of them.
pub fn start(inputs: Sender<Input>, snapshots: Arc<Snapshots>) -> Sender<Job> {
    let (jobs, waiting) = channel::<Job>();
    let thread = std::thread::Builder::new().name("apply".to_owned());
    let started = thread.spawn(move || {
        let mut failed = HashSet::new();
        let mut standings: BTreeMap<GroupId, Standing> = BTreeMap::new();
        for job in waiting {
            let group = job.group;
            if matches!(job.task, Task::Forget) {
                failed.remove(&group);
                standings.remove(&group);
                continue;
            }
            // What follows an entry that could not be applied cannot be applied either.
            if failed.contains(&group) {
                continue;
            }
            let standing = standings.entry(group).or_default();
            let machine = Arc::clone(&job.machine);
            if let Err(failure) = carry_out(job, standing, &inputs, &snapshots) {
                error!(%group, %failure, "this node's replica stands still until the node is restarted");
                machine.halted(&format!(
                    "this node's replica stands still until the node is restarted: {failure}"
                ));
                failed.insert(group);
            }
        }
    });
    if let Err(failure) = started {
        error!(%failure, "a thread that applies entries cannot be started");
    }
    jobs
}

fn carry_out(
    job: Job,
    standing: &mut Standing,
    inputs: &Sender<Input>,
    snapshots: &Snapshots,
) -> Result<(), EngineError> {
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
            standing.unreleased_entries += entries.len() as u64;
            let bytes = entries.iter().map(|entry| entry.data.len());
            standing.unreleased_bytes += bytes.sum::<usize>();
            machine.apply(entries)?;
            standing.applied = last;
            let _ = inputs.send(Input::Applied(group, last));
            if standing.unreleased_entries >= RELEASE_ENTRIES
                || standing.unreleased_bytes >= RELEASE_BYTES
            {
                standing.unreleased_entries = 0;
                standing.unreleased_bytes = 0;
                machine.sync()?;
                let _ = inputs.send(Input::Durable(group, last));
            }
        }
        Task::Copy(id) => {
            let index = standing.applied;
            let copied = match index {
                // Nothing was applied since the start; what it has is found out when something is.
                0 => Err(EngineError::Io("nothing was applied yet".into())),
                _ => machine.copy_to(&snapshots.outgoing(group, id)),
            };
            match copied {
                Ok(()) => {
                    info!(%group, index, "a snapshot is offered");
                    snapshots.offer(group, id);
                    let _ = inputs.send(Input::Copied(group, index, id));
                }
                Err(failure) => {
                    warn!(%group, %failure, "a snapshot cannot be made");
                    let _ = inputs.send(Input::Copied(group, 0, 0));
                }
            }
        }
        Task::Install(index) => {
            machine.install(&snapshots.files(group), index)?;
            snapshots.discard(group);
            standing.applied = index;
            info!(%group, index, "a snapshot is installed");
            let _ = inputs.send(Input::Applied(group, index));
        }
        // Whoever takes jobs has seen to it.
        Task::Forget => {}
    }
    Ok(())
}
