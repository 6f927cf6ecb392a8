//! Whose data folder it is: the version of its layout, its own id, and the node of a cluster that
//! it belongs to. Written at the first start; every later start compares.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    checked_file::{self, Magic},
    shard_id::FolderId,
};

const FILE: &str = "identity";
const MAGIC: Magic = *b"BOLIDEI1";
/// The layout that this build reads and writes. The catalog's magic says the same to older builds.
pub const FORMAT: u32 = 3;

/// The node of a cluster that a data folder belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub cluster: String,
    pub node: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub format: u32,
    /// Random.
    pub folder: FolderId,
    /// None: a standalone node.
    pub member: Option<Membership>,
}

impl Identity {
    /// `None`: the folder is new, or was written before there were identities. Damage is an error
    /// of kind `InvalidData`, and so is a layout that this build does not know.
    pub fn read(data: &Path) -> io::Result<Option<Self>> {
        let path = data.join(FILE);
        let contents = match fs::read(&path) {
            Ok(contents) => contents,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (magic, contents) =
            checked_file::decode(&contents).map_err(|what| checked_file::damaged(&path, &what))?;
        let newer = |what: String| {
            let message = format!(
                "{} was written by a newer version of Bolide ({what}); this one reads formats up to {FORMAT}",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        if magic != MAGIC {
            return Err(newer(String::from_utf8_lossy(&magic).into_owned()));
        }
        let identity: Self = serde_json::from_slice(contents)
            .map_err(|failure| checked_file::damaged(&path, &failure.to_string()))?;
        if identity.format > FORMAT {
            return Err(newer(format!("format {}", identity.format)));
        }
        Ok(Some(identity))
    }

    pub fn exists(data: &Path) -> bool {
        data.join(FILE).exists()
    }

    pub fn write(&self, data: &Path) -> io::Result<()> {
        let contents = serde_json::to_vec(self)?;
        checked_file::replace(&data.join(FILE), &MAGIC, &contents)
    }

    /// Returns the id of a data folder; zeroes where it has no identity.
    pub fn folder_id(data: &Path) -> FolderId {
        let identity = Self::read(data).ok().flatten();
        identity.map_or_else(FolderId::default, |identity| identity.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_lasts_and_a_newer_one_is_called_newer() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(Identity::read(data.path()).unwrap(), None);
        let mut identity = Identity {
            format: FORMAT,
            folder: [7; 16],
            member: Some(Membership {
                cluster: "bolide".to_owned(),
                node: 2,
            }),
        };
        identity.write(data.path()).unwrap();
        assert_eq!(Identity::read(data.path()).unwrap(), Some(identity.clone()));
        assert_eq!(Identity::folder_id(data.path()), [7; 16]);
        identity.format = FORMAT + 1;
        identity.write(data.path()).unwrap();
        let newer = Identity::read(data.path()).unwrap_err().to_string();
        assert!(newer.contains("newer version"), "{newer}");
        fs::write(data.path().join(FILE), b"garbage").unwrap();
        let damaged = Identity::read(data.path()).unwrap_err().to_string();
        assert!(damaged.contains("is damaged"), "{damaged}");
    }
}
