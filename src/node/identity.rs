//! Compares a data folder with the settings before anything in it is opened: whose it is, which
//! layout it has, and whether its catalog is its own.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use tracing::{info, warn};

use super::{ExitCode, Failure};
use crate::{
    config::Settings,
    coordinator::catalog_file::{self, Found},
    shard::host::folders,
    store::{
        identity::{FORMAT, Identity, Membership},
        recorded_sequences::RecordedSequences,
        shard_id::FolderId,
    },
};

/// The Raft logs of a node in a cluster.
pub const RAFT: &str = "raft";

/// A data folder as it was found.
pub struct DataFolder {
    path: PathBuf,
    identity: Option<Identity>,
    catalog: Option<Found>,
}

impl DataFolder {
    /// Reads the identity and the catalog. Changes nothing.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let broken = |failure| Failure::data("cannot open the data folder", path, &failure);
        let folder = Self {
            path: path.to_owned(),
            identity: Identity::read(path).map_err(broken)?,
            catalog: catalog_file::find(path).map_err(broken)?,
        };
        folder.check_catalog()?;
        Ok(folder)
    }

    fn damaged(&self, what: &str) -> Failure {
        let message = format!(
            "the data folder '{}' is damaged: {what}: restore the whole data folder from one copy",
            self.path.display()
        );
        Failure::new(ExitCode::DataDamaged, message)
    }

    fn refused(&self, what: &str) -> Failure {
        let message = format!("the data folder '{}' {what}", self.path.display());
        Failure::new(ExitCode::Configuration, message)
    }

    fn check_catalog(&self) -> Result<(), Failure> {
        let Some(identity) = &self.identity else {
            return Ok(());
        };
        match self.catalog.as_ref().map(|found| found.folder) {
            Some(Some(folder)) if folder == identity.folder => Ok(()),
            Some(Some(_)) => Err(self.damaged("its catalog comes from another data folder")),
            Some(None) => Err(self.damaged("its catalog was written by an older version")),
            None => Err(self.damaged("there is no catalog in it")),
        }
    }

    /// The folder's id. A folder that has lost its identity gets it back from its catalog.
    pub fn id(&self) -> Option<FolderId> {
        let identity = self.identity.as_ref().map(|identity| identity.folder);
        identity.or_else(|| self.catalog.as_ref()?.folder)
    }

    fn version(&self) -> u64 {
        self.catalog
            .as_ref()
            .map_or(0, |found| found.catalog.version)
    }

    /// Whether a node of a cluster has written the folder.
    fn is_of_a_member(&self) -> bool {
        match &self.identity {
            Some(identity) => identity.member.is_some(),
            None => {
                let named = self
                    .catalog
                    .as_ref()
                    .map(|found| !found.catalog.nodes.is_empty());
                named.unwrap_or(false)
                    || self.path.join(RAFT).exists()
                    || self.path.join("node").exists()
            }
        }
    }

    /// Fails if the settings are those of another node.
    pub fn check_settings(&self, settings: &Settings, is_member: bool) -> Result<(), Failure> {
        let cluster = &settings.cluster;
        let owner = self.identity.as_ref().and_then(|one| one.member.as_ref());
        let owner_text = || match owner {
            Some(owner) => format!("node {} of the cluster '{}'", owner.node, owner.cluster),
            None => "a node of a cluster".to_owned(),
        };
        match (is_member, self.is_of_a_member()) {
            (false, false) => Ok(()),
            (false, true) => Err(self.refused(&format!(
                "belongs to {}: start it with that node's cluster settings (cluster.name, cluster.node or cluster.join, cluster.members, cluster.key_file)",
                owner_text()
            ))),
            (true, false) if self.version() == 0 => Ok(()),
            (true, false) => Err(self.refused(
                "is that of a standalone node, with a catalog of its own: a node begins or joins a cluster with an empty one",
            )),
            (true, true) => self.check_member(owner, settings).and_then(|()| {
                let lost = self.version() > 0 && !self.path.join(RAFT).exists();
                match lost {
                    true => Err(self.damaged(&format!(
                        "its Raft log '{RAFT}' is missing, without which {} cannot take part (or join the cluster '{}' with an empty folder)",
                        owner_text(), cluster.name
                    ))),
                    false => Ok(()),
                }
            }),
        }
    }

    fn check_member(&self, owner: Option<&Membership>, settings: &Settings) -> Result<(), Failure> {
        let Some(owner) = owner else { return Ok(()) };
        let cluster = &settings.cluster;
        if owner.cluster != cluster.name {
            return Err(self.refused(&format!(
                "belongs to node {} of the cluster '{}', but cluster.name is '{}'",
                owner.node, owner.cluster, cluster.name
            )));
        }
        if cluster.node != 0 && cluster.node != owner.node {
            return Err(self.refused(&format!(
                "is that of node {}, but cluster.node is {}",
                owner.node, cluster.node
            )));
        }
        Ok(())
    }

    /// Gives a folder that has none its identity, and brings one of the older layout to this one.
    /// The identity comes last: after a crash the rest is done again.
    pub fn settle(self, member: Option<Membership>) -> Result<(), Failure> {
        let owner = self.identity.as_ref().and_then(|one| one.member.as_ref());
        if self.identity.is_some() && owner == member.as_ref() {
            return Ok(());
        }
        if let (Some(owner), Some(member)) = (owner, &member) {
            return Err(self.refused(&format!(
                "is that of node {}, but this is node {}",
                owner.node, member.node
            )));
        }
        let path = self.path.clone();
        self.write(member)
            .map_err(|failure| Failure::data("cannot prepare the data folder", &path, &failure))
    }

    fn write(self, member: Option<Membership>) -> std::io::Result<()> {
        let known = self.catalog.as_ref().and_then(|found| found.folder);
        let id: FolderId = match (&self.identity, known) {
            (Some(identity), _) => identity.folder,
            (None, Some(id)) => {
                warn!(folder = %self.path.display(), "the data folder has lost its identity; it gets it back from its catalog");
                id
            }
            (None, None) => rand::random(),
        };
        if known.is_none() {
            if self.version() > 0 {
                info!(folder = %self.path.display(), format = FORMAT, "the data folder gets a new layout; older versions cannot read it any more");
            }
            folders::upgrade(&self.path, id)?;
            let catalog = self.catalog.map(|found| found.catalog);
            let catalog = catalog.unwrap_or_default();
            catalog_file::store_as(&self.path, &id, &catalog)?;
        }
        // A folder with an identity has recorded sequence numbers: one that has lost them is told from a new one.
        RecordedSequences::begin(&self.path)?;
        let identity = Identity {
            format: FORMAT,
            folder: id,
            member,
        };
        identity.write(&self.path)
    }
}

impl fmt::Display for DataFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.identity.as_ref().map(|one| one.member.as_ref());
        match owner {
            None if self.catalog.is_none() => f.write_str("a new folder"),
            None if self.id().is_some() => {
                f.write_str("without its identity, which a start restores from the catalog")
            }
            None => f.write_str("of an older version"),
            Some(None) => f.write_str("of a standalone node"),
            Some(Some(owner)) => {
                write!(
                    f,
                    "of node {} of the cluster '{}'",
                    owner.node, owner.cluster
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(data: &Path, node: u64, name: &str) -> Settings {
        let mut settings = Settings::default();
        settings.storage.data_path = data.to_owned();
        settings.cluster.node = node;
        settings.cluster.name = name.to_owned();
        settings
    }

    fn member(node: u64) -> Option<Membership> {
        Some(Membership {
            cluster: "bolide".to_owned(),
            node,
        })
    }

    fn check(data: &Path, node: u64, name: &str) -> Result<(), Failure> {
        DataFolder::read(data)?.check_settings(&settings(data, node, name), node != 0)
    }

    fn assert_refused(outcome: Result<(), Failure>, code: ExitCode, says: &str) {
        let failure = outcome.expect_err(says);
        assert_eq!(failure.code, code, "{}", failure.message);
        assert!(failure.message.contains(says), "{}", failure.message);
    }

    fn used(data: &Path) {
        let mut found = catalog_file::find(data).unwrap().unwrap();
        found.catalog.create_database("d", None, 1).unwrap();
        catalog_file::store(data, &found.catalog).unwrap();
    }

    #[test]
    fn the_folder_of_a_member_is_for_that_member_only() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        check(data, 1, "bolide").unwrap();
        DataFolder::read(data).unwrap().settle(member(1)).unwrap();
        used(data);
        std::fs::create_dir(data.join(RAFT)).unwrap();
        check(data, 1, "bolide").unwrap();
        let refused = ExitCode::Configuration;
        assert_refused(
            check(data, 0, ""),
            refused,
            "node 1 of the cluster 'bolide'",
        );
        assert_refused(check(data, 1, "other"), refused, "cluster.name is 'other'");
        assert_refused(check(data, 2, "bolide"), refused, "that of node 1");
        let folder = DataFolder::read(data).unwrap();
        assert_refused(folder.settle(member(2)), refused, "this is node 2");
        std::fs::remove_dir(data.join(RAFT)).unwrap();
        assert_refused(check(data, 1, "bolide"), ExitCode::DataDamaged, "Raft log");
    }

    #[test]
    fn the_folder_of_a_standalone_node_with_data_is_for_no_cluster() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        DataFolder::read(data).unwrap().settle(None).unwrap();
        check(data, 1, "bolide").expect("nothing is in it");
        used(data);
        check(data, 0, "").unwrap();
        let refused = ExitCode::Configuration;
        assert_refused(check(data, 1, "bolide"), refused, "standalone node");
    }

    #[test]
    fn a_catalog_that_is_missing_or_foreign_is_damage() {
        let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&data, &other] {
            DataFolder::read(folder.path())
                .unwrap()
                .settle(None)
                .unwrap();
            used(folder.path());
        }
        let catalog = data.path().join("catalog");
        std::fs::copy(other.path().join("catalog"), &catalog).unwrap();
        let damaged = ExitCode::DataDamaged;
        assert_refused(check(data.path(), 0, ""), damaged, "another data folder");
        std::fs::remove_file(&catalog).unwrap();
        assert_refused(check(data.path(), 0, ""), damaged, "no catalog");
    }

    #[test]
    fn a_lost_identity_comes_back_from_the_catalog() {
        let data = tempfile::tempdir().unwrap();
        DataFolder::read(data.path()).unwrap().settle(None).unwrap();
        used(data.path());
        let before = Identity::read(data.path()).unwrap();
        std::fs::remove_file(data.path().join("identity")).unwrap();
        DataFolder::read(data.path()).unwrap().settle(None).unwrap();
        assert_eq!(Identity::read(data.path()).unwrap(), before);
    }
}
