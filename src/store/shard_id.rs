//! Whose folder an engine's folder is: every folder of a shard says it of itself.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    EngineError,
    checked_file::{self, Magic},
};

pub const FILE: &str = "shard.id";
const MAGIC: Magic = *b"BOLIDES1";

/// The id of a data folder: random, made at its first start.
pub type FolderId = [u8; 16];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardId {
    /// The data folder that it was made in.
    pub data_folder: FolderId,
    /// The resource id of the container.
    pub container: String,
    pub range: u32,
    /// Random: another one when the files are replaced as a whole.
    pub incarnation: u64,
    /// The version of the catalog that has named the shard first, as far as is known; none while
    /// it is being made.
    pub catalog: Option<u64>,
}

impl ShardId {
    pub fn new(data_folder: FolderId, container: String, range: u32) -> Self {
        Self {
            data_folder,
            container,
            range,
            incarnation: rand::random(),
            catalog: None,
        }
    }

    /// `None`: the folder does not say.
    pub fn read(folder: &Path) -> Result<Option<Self>, EngineError> {
        let contents = match checked_file::read(&folder.join(FILE), &MAGIC) {
            Ok(Some(contents)) => contents,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(EngineError::Damaged(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let id = rmp_serde::from_slice(&contents);
        id.map(Some)
            .map_err(|failure| EngineError::Damaged(format!("{FILE} cannot be read: {failure}")))
    }

    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let contents = rmp_serde::to_vec_named(self).map_err(io::Error::other)?;
        checked_file::replace(&folder.join(FILE), &MAGIC, &contents)
    }

    /// Fails if the folder is that of another shard, or of another data folder.
    pub fn check(
        &self,
        data_folder: &FolderId,
        container: &str,
        range: u32,
    ) -> Result<(), EngineError> {
        if self.data_folder != *data_folder {
            return Err(EngineError::Damaged(
                "the folder comes from another data folder".to_owned(),
            ));
        }
        if self.container != container || self.range != range {
            return Err(EngineError::Damaged(format!(
                "the folder is that of range {} of the container {}",
                self.range, self.container
            )));
        }
        Ok(())
    }
}
