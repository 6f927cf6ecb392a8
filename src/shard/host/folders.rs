//! The folders of the shards: what they are called, whose they are, and what a start does with
//! those that no range of the catalog owns.

use std::{
    collections::HashSet,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::{error, info, warn};

use super::ShardHost;
use crate::{
    cluster::NodeId,
    model::{catalog::Catalog, rid::ContainerRid},
    shard::facts::ShardFacts,
    store::{
        Engine, EngineError, SharedResources,
        checked_file::{self, Magic, sync_folder},
        engine::{check_exists, is_blank},
        identity::Identity,
        recorded_sequences::RecordedSequences,
        removed::{self, Removed},
        shard_id::{FolderId, ShardId},
        verify,
        wal_check::Expected,
    },
};

const SHARDS: &str = "shards";
/// The folder of a part that is being made.
const UNFINISHED: &str = "new";
/// RocksDB makes a checkpoint in a folder of this name first.
const UNFINISHED_CHECKPOINT: &str = "new.tmp";
/// The folder of a replica that a snapshot has replaced.
const REPLACED: &str = "old";
/// A file of this extension says that this node is making or replacing the copies beside it.
const COPYING: &str = "copying";
const COPYING_MAGIC: Magic = *b"BOLIDEC1";

/// The shards' part of the data folder.
pub struct ShardFolders {
    data: PathBuf,
    id: FolderId,
    sequences: Arc<RecordedSequences>,
    /// Folders that the catalog does not name yet, as far as their own ids say.
    unnamed: Mutex<Vec<(PathBuf, ShardId)>>,
    removed: Mutex<Vec<Removed>>,
}

impl ShardFolders {
    pub fn new(data: &Path, sequences: Arc<RecordedSequences>) -> io::Result<Self> {
        let id = Identity::folder_id(data)?;
        Ok(Self::with_id(data, id, sequences))
    }

    fn with_id(data: &Path, id: FolderId, sequences: Arc<RecordedSequences>) -> Self {
        Self {
            data: data.to_owned(),
            id,
            sequences,
            unnamed: Mutex::default(),
            removed: Mutex::default(),
        }
    }

    pub fn of(&self, facts: &ShardFacts) -> PathBuf {
        self.shards()
            .join(folder_name(facts.container, facts.range_id))
    }

    fn shards(&self) -> PathBuf {
        self.data.join(SHARDS)
    }

    fn unnamed(&self) -> MutexGuard<'_, Vec<(PathBuf, ShardId)>> {
        self.unnamed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Folders that were set aside, as of the start and since.
    pub fn removed(&self) -> Vec<Removed> {
        let removed = self.removed.lock();
        removed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves a folder out of the way, where an operator finds it.
    fn set_aside(&self, folder: &Path, second: i64, why: &str) -> io::Result<()> {
        let moved = removed::set_aside(&self.data, folder, second)?;
        self.sequences.forget(&sequence_name(folder));
        let (name, bytes) = (&moved.name, moved.bytes);
        warn!(folder = %folder.display(), to = %format!("removed/{name}"), bytes, why, "a folder is set aside");
        let removed = self.removed.lock();
        removed.unwrap_or_else(PoisonError::into_inner).push(moved);
        Ok(())
    }

    /// Makes a shard's engine. Its folder says whose it is before anything else is in it.
    pub fn make(
        &self,
        facts: &ShardFacts,
        shared: &SharedResources,
        second: i64,
    ) -> Result<Engine, EngineError> {
        let folder = self.of(facts);
        self.clear_way(&folder, second)?;
        fs::create_dir_all(&folder)?;
        sync_folder(&self.shards())?;
        let id = self.mark(&folder, facts)?;
        let engine = Engine::open(&folder, shared)?;
        let name = sequence_name(&folder);
        self.sequences
            .follow(&name, id.incarnation, engine.durable());
        Ok(engine)
    }

    /// Makes sure that a folder can be made.
    pub fn clear_way(&self, folder: &Path, second: i64) -> io::Result<()> {
        match is_blank(folder) {
            Ok(true) => Ok(()),
            _ => self.set_aside(folder, second, "another one is made in its place"),
        }
    }

    /// Has a folder say that it is that of a shard, in a new incarnation.
    pub fn mark(&self, folder: &Path, facts: &ShardFacts) -> io::Result<ShardId> {
        let id = ShardId::new(self.id, facts.container.to_text(), facts.range_id);
        id.write(folder)?;
        self.unnamed().push((self.of(facts), id.clone()));
        Ok(id)
    }

    /// Opens the engine of a shard that was made before.
    pub fn open(
        &self,
        facts: &ShardFacts,
        shared: &SharedResources,
        has_raft_log: bool,
    ) -> Result<Engine, EngineError> {
        let folder = self.of(facts);
        check_exists(&folder)?;
        let id = self.check_owner(&folder, facts)?;
        let name = sequence_name(&folder);
        let expected = Expected {
            sequence: self.sequences.sequence(&name, id.incarnation),
            has_raft_log,
        };
        let engine = Engine::open_existing(&folder, shared, expected)?;
        self.sequences
            .follow(&name, id.incarnation, engine.durable());
        Ok(engine)
    }

    fn check_owner(&self, folder: &Path, facts: &ShardFacts) -> Result<ShardId, EngineError> {
        let id = ShardId::read(folder)?.ok_or_else(|| ownerless(folder))?;
        id.check(&self.id, &facts.container.to_text(), facts.range_id)?;
        Ok(id)
    }

    /// Returns the incarnation of a folder by its name; 0 in the layout before folders said whose
    /// they are.
    fn incarnation(&self, folder: &Path, is_upgraded: bool) -> Result<u64, EngineError> {
        check_exists(folder)?;
        let id = ShardId::read(folder)?;
        if id.is_none() && !is_upgraded {
            return Ok(0);
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let (rid, range) = parse_name(&name).ok_or_else(|| ownerless(folder))?;
        let id = id.ok_or_else(|| ownerless(folder))?;
        id.check(&self.id, &rid.to_text(), range)?;
        Ok(id.incarnation)
    }

    /// Forgets a folder that was removed on purpose.
    pub fn forget(&self, facts: &ShardFacts) {
        let folder = self.of(facts);
        self.unnamed().retain(|(path, _)| *path != folder);
        self.sequences.forget(&sequence_name(&folder));
    }

    /// Records how far all shards are, and which of the new ones the catalog names by now.
    pub fn record(&self, catalog: &Catalog) {
        let mut unnamed = self.unnamed();
        let owned = match unnamed.is_empty() {
            true => HashSet::new(),
            false => owned(catalog, None),
        };
        unnamed.retain_mut(|(folder, id)| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            if !owned.contains(name.as_ref()) {
                return true;
            }
            id.catalog = Some(catalog.version);
            match id.write(folder) {
                Ok(()) => false,
                // Removed meanwhile, with its container.
                Err(failure) if failure.kind() == io::ErrorKind::NotFound => false,
                Err(failure) => {
                    error!(folder = %folder.display(), %failure, "the catalog's version cannot be recorded");
                    true
                }
            }
        });
        drop(unnamed);
        self.sequences.record(catalog.version);
    }

    /// Looks at every folder at a start. What the catalog records as deleted, split or moved is
    /// deleted; what it does not know is set aside. Fails if the catalog is older than a shard.
    fn sort_out(&self, catalog: &Catalog, node: Option<NodeId>, second: i64) -> io::Result<()> {
        let entries = self.entries()?;
        self.check_age(catalog, &entries)?;
        let owned = owned(catalog, node);
        for entry in &entries {
            match self.plan_for(entry, &owned, catalog, node) {
                Plan::Open => self.note_unnamed(entry),
                Plan::Keep => {}
                Plan::Delete(why) => {
                    info!(folder = %entry.path.display(), why, "deleting a folder");
                    self.sequences.forget(&sequence_name(&entry.path));
                    fs::remove_dir_all(&entry.path)?;
                }
                Plan::SetAside(why) => self.set_aside(&entry.path, second, why)?,
                Plan::Ignore => warn!(path = %entry.path.display(), "not a shard; left alone"),
            }
        }
        self.forget_copies()?;
        *self.removed.lock().unwrap_or_else(PoisonError::into_inner) = removed::list(&self.data)?;
        Ok(())
    }

    /// Decides what a start does with a folder. Only what proves itself to be given up or unfinished
    /// is deleted: a name alone proves nothing, people rename and copy folders.
    fn plan_for(
        &self,
        entry: &Entry,
        owned: &HashSet<String>,
        catalog: &Catalog,
        node: Option<NodeId>,
    ) -> Plan {
        if owned.contains(&entry.name) {
            return Plan::Open;
        }
        let is_copy = || self.is_being_copied(&entry.path);
        match &entry.kind {
            EntryKind::Shard(rid, range) => {
                if node.is_some() && is_ahead(catalog, *rid, *range) {
                    return Plan::Keep;
                }
                let id = entry.id.as_ref();
                let is_itself =
                    id.is_some_and(|id| id.check(&self.id, &rid.to_text(), *range).is_ok());
                match catalog.has_given_up(*rid, *range, node) && is_itself {
                    true => Plan::Delete("the catalog has given this shard up"),
                    false => Plan::SetAside("no container owns it"),
                }
            }
            EntryKind::Unfinished if is_copy() => Plan::Delete("a crash has left this of a split"),
            EntryKind::Unfinished => Plan::SetAside("no split of this node has made it"),
            // The snapshot took its place: the log goes on from there.
            EntryKind::Replaced if is_copy() && entry.path.with_extension("").exists() => {
                Plan::Delete("a snapshot has replaced it")
            }
            EntryKind::Replaced => Plan::SetAside("no snapshot has replaced it"),
            EntryKind::Foreign => Plan::Ignore,
        }
    }

    /// Notes that the copies of a shard's folder beside it are made by this node, so that a start
    /// after a crash may delete them.
    pub fn begin_copy(&self, folder: &Path) -> io::Result<()> {
        checked_file::replace(&folder.with_extension(COPYING), &COPYING_MAGIC, &self.id)
    }

    /// Ends what [`Self::begin_copy`] has begun, when no copy is left.
    pub fn end_copy(&self, folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.with_extension(COPYING)) {
            Err(failure) if failure.kind() != io::ErrorKind::NotFound => Err(failure),
            _ => Ok(()),
        }
    }

    /// Returns whether a crash has interrupted this node while it made or replaced the copy.
    fn is_being_copied(&self, copy: &Path) -> bool {
        let name = copy.file_name().unwrap_or_default().to_string_lossy();
        let shard = name.split('.').next().unwrap_or_default();
        let note = self.shards().join(shard).with_extension(COPYING);
        let noted = checked_file::read(&note, &COPYING_MAGIC);
        noted.is_ok_and(|noted| noted.is_some_and(|id| id == self.id))
    }

    /// Removes the notes of copies, which a start has dealt with.
    fn forget_copies(&self) -> io::Result<()> {
        let entries = match fs::read_dir(self.shards()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == COPYING)
                && path.is_file()
            {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Puts a folder in the place of a shard's. After a crash in between there is at least one of
    /// them, and whoever looks for the second finds it.
    pub fn replace(&self, facts: &ShardFacts, new: &Path) -> io::Result<()> {
        let place = self.of(facts);
        let old = place.with_extension(REPLACED);
        let shards = self.shards();
        fs::create_dir_all(&shards)?;
        self.begin_copy(&place)?;
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        if place.exists() {
            fs::rename(&place, &old)?;
        }
        fs::rename(new, &place)?;
        sync_folder(&shards)?;
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        self.end_copy(&place)
    }

    /// Fails if the catalog is lost, or older than a shard.
    fn check_age(&self, catalog: &Catalog, entries: &[Entry]) -> io::Result<()> {
        // A folder full of shards without a catalog is not garbage: the catalog is lost.
        let is_shard = |entry: &Entry| !matches!(entry.kind, EntryKind::Foreign);
        if catalog.version == 0 && entries.iter().any(is_shard) {
            return Err(invalid(format!(
                "{} holds shards, but there is no catalog beside it: restore the whole data folder from a copy",
                self.shards().display()
            )));
        }
        let together = "the catalog and the shards belong together: restore the whole data folder from one copy";
        let known = self.sequences.catalog();
        if catalog.version < known {
            return Err(invalid(format!(
                "the catalog has version {}, but version {known} was in effect: {together}",
                catalog.version
            )));
        }
        for entry in entries {
            let made = entry.id.as_ref().and_then(|id| id.catalog).unwrap_or(0);
            let is_ours = entry
                .id
                .as_ref()
                .is_some_and(|id| id.data_folder == self.id);
            if is_ours && made > catalog.version {
                return Err(invalid(format!(
                    "the catalog has version {}, but the shard {} knows version {made}: {together}",
                    catalog.version, entry.name
                )));
            }
        }
        Ok(())
    }

    /// A crash may have come before the folder of a shard was told of the catalog.
    fn note_unnamed(&self, entry: &Entry) {
        if let Some(id) = entry.id.clone().filter(|id| id.catalog.is_none()) {
            self.unnamed().push((entry.path.clone(), id));
        }
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let entries = match fs::read_dir(self.shards()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry?;
            all.push(Entry::new(
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            ));
        }
        all.retain(|entry| entry.path.is_dir());
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }
}

/// Has every shard folder of the layout before identities say whose it is.
pub fn upgrade(data: &Path, id: FolderId) -> io::Result<()> {
    let folders = ShardFolders::with_id(data, id, RecordedSequences::open(data));
    for entry in folders.entries()? {
        if let (EntryKind::Shard(rid, range), None) = (&entry.kind, &entry.id) {
            ShardId::new(id, rid.to_text(), *range).write(&entry.path)?;
        }
    }
    Ok(())
}

/// A folder's name, and what is right or wrong with it.
type Verdict = (String, Result<String, String>);

/// Verifies every shard that a catalog names, as far as it is on this node, without changing
/// anything: see [`verify::engine`]. `id` is that of the data folder; none in the layout before
/// ids.
pub fn verify(
    data: &Path,
    id: Option<FolderId>,
    sequences: &Arc<RecordedSequences>,
    catalog: &Catalog,
    scratch: &Path,
) -> Vec<io::Result<Verdict>> {
    let folders = ShardFolders::with_id(data, id.unwrap_or_default(), Arc::clone(sequences));
    let identity = Identity::read(data).ok().flatten();
    let node = identity.and_then(|identity| Some(identity.member?.node));
    let is_member = node.is_some() || !catalog.nodes.is_empty();
    let entries = match folders.entries() {
        Ok(entries) => entries,
        Err(failure) => return vec![Err(failure)],
    };
    let age = folders.check_age(catalog, &entries);
    let mut verdicts = vec![(
        "catalog".to_owned(),
        age.map(|()| format!("version {}", catalog.version))
            .map_err(|failure| failure.to_string()),
    )];
    let owned = owned(catalog, node);
    let mut names: Vec<_> = owned.iter().cloned().collect();
    names.sort();
    for name in &names {
        let folder = folders.shards().join(name);
        // A replica that is missing is filled again by the others.
        if is_member && is_blank(&folder).unwrap_or(false) {
            verdicts.push((name.clone(), Ok("missing, to be filled".to_owned())));
            continue;
        }
        let verified = folders.incarnation(&folder, id.is_some()).and_then(|one| {
            let sequence = sequences.sequence(&sequence_name(&folder), one);
            verify::engine(&folder, scratch, sequence, is_member)
        });
        let outcome = verified
            .map(|found| found.to_string())
            .map_err(|failure| failure.to_string());
        verdicts.push((name.clone(), outcome));
    }
    for entry in entries.iter().filter(|entry| !names.contains(&entry.name)) {
        let plan = folders.plan_for(entry, &owned, catalog, node);
        verdicts.push((entry.name.clone(), Ok(plan.to_string())));
    }
    verdicts.into_iter().map(Ok).collect()
}

/// A folder among those of the shards.
struct Entry {
    name: String,
    path: PathBuf,
    kind: EntryKind,
    /// Whose it says that it is; none where it cannot be read.
    id: Option<ShardId>,
}

/// What a start does with a folder.
enum Plan {
    Open,
    /// A cluster's log may be ahead of its catalog.
    Keep,
    Delete(&'static str),
    SetAside(&'static str),
    Ignore,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("opened by a start"),
            Self::Keep => f.write_str("newer than the catalog; kept by a start"),
            Self::Delete(why) => write!(f, "deleted by a start: {why}"),
            Self::SetAside(why) => write!(f, "moved to removed/ by a start: {why}"),
            Self::Ignore => f.write_str("not a shard; left alone by a start"),
        }
    }
}

enum EntryKind {
    Shard(ContainerRid, u32),
    Unfinished,
    Replaced,
    /// Not one of ours: a mount point has a `lost+found`, people leave notes.
    Foreign,
}

impl Entry {
    fn new(name: String, path: PathBuf) -> Self {
        let (shard, extension) = name.split_once('.').unwrap_or((&name, ""));
        let kind = match (parse_name(shard), extension) {
            (Some((rid, range)), "") => EntryKind::Shard(rid, range),
            (Some(_), UNFINISHED | UNFINISHED_CHECKPOINT) => EntryKind::Unfinished,
            (Some(_), REPLACED) => EntryKind::Replaced,
            _ => EntryKind::Foreign,
        };
        Self {
            id: ShardId::read(&path).ok().flatten(),
            name,
            path,
            kind,
        }
    }
}

impl ShardHost {
    /// Looks at every shard folder at a start: see [`ShardFolders::sort_out`].
    pub fn sort_out_folders(&self, catalog: &Catalog, node: Option<NodeId>) -> io::Result<()> {
        self.folders.sort_out(catalog, node, self.clock.now())
    }

    /// Records how far all shards are. Waits for the disk.
    pub fn record(&self, catalog: &Catalog) {
        self.folders.record(catalog);
    }

    /// Folders that were set aside.
    pub fn removed(&self) -> Vec<Removed> {
        self.folders.removed()
    }

    /// Returns why the recorded sequence numbers could not be read at start.
    pub fn lost_sequences(&self) -> Option<&str> {
        self.folders.sequences.lost()
    }
}

fn ownerless(folder: &Path) -> EngineError {
    EngineError::Damaged(format!(
        "the folder {} does not say whose it is",
        folder.display()
    ))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Returns the names of the folders that ranges of the catalog own, on a node of a cluster those of
/// its own replicas.
fn owned(catalog: &Catalog, node: Option<NodeId>) -> HashSet<String> {
    let containers = catalog.containers();
    containers
        .flat_map(|container| {
            let ranges = container.ranges.iter();
            ranges
                .filter(move |range| node.is_none_or(|node| range.is_here(node)))
                .map(|range| folder_name(container.rid, range.id))
        })
        .collect()
}

fn sequence_name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    format!("{SHARDS}/{name}")
}

/// A resource id has no slash; its padding is left out.
pub fn folder_name(container: ContainerRid, range_id: u32) -> String {
    format!("{}-{range_id}", container.to_text().trim_end_matches('='))
}

fn parse_name(name: &str) -> Option<(ContainerRid, u32)> {
    let (container, range) = name.rsplit_once('-')?;
    let padding = "=".repeat((4 - container.len() % 4) % 4);
    let rid = ContainerRid::parse(&format!("{container}{padding}"))?;
    let range = range.parse().ok()?;
    (folder_name(rid, range) == name).then_some((rid, range))
}

/// Returns whether a range is one which the catalog does not know yet: this node's replica was
/// split, and the catalog that says so has not arrived.
fn is_ahead(catalog: &Catalog, rid: ContainerRid, range: u32) -> bool {
    let known = catalog.container_by_rid(rid);
    known.is_some_and(|known| range > known.highest_range())
}
