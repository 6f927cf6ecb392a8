//! The catalog on disk: one small file, replaced as a whole.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `BOLIDEC3`: the version of the data folder's layout, shards included |
//! | 32 | SHA-256 of the rest |
//! | 16 | the id of the data folder that the catalog is of |
//! | rest | the catalog in MessagePack, fields by name |
//!
//! `BOLIDEC2`, the layout before data folders had identities, is the same without the id.

use std::{io, path::Path};

use crate::{
    model::catalog::Catalog,
    store::{
        checked_file::{self, Magic},
        identity::Identity,
        shard_id::FolderId,
    },
};

const MAGIC: Magic = *b"BOLIDEC3";
/// Before data folders had identities.
const MAGIC_2: Magic = *b"BOLIDEC2";
/// Before keys of items held their partition keys.
const MAGIC_1: Magic = *b"BOLIDEC1";
/// What all of them begin with; the version follows.
const MAGIC_STEM: &[u8] = b"BOLIDEC";
const FILE: &str = "catalog";

/// A catalog as it was found.
#[derive(Debug)]
pub struct Found {
    pub catalog: Catalog,
    /// The data folder that it is of; none in the layout before there were ids.
    pub folder: Option<FolderId>,
}

/// Reads the catalog of a data folder; a folder without one has an empty catalog.
pub fn load(folder: &Path) -> io::Result<Catalog> {
    Ok(find(folder)?.map_or_else(Catalog::default, |found| found.catalog))
}

/// Reads the catalog of a data folder, if there is one. Damage is an error of kind `InvalidData`.
pub fn find(folder: &Path) -> io::Result<Option<Found>> {
    let path = folder.join(FILE);
    let bytes = match checked_file::read_all(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    decode(&bytes).map(Some).map_err(|what| {
        let message = format!("{} {what}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// Replaces the catalog; after a crash either the old or the new one is there.
pub fn store(folder: &Path, catalog: &Catalog) -> io::Result<()> {
    store_as(folder, &Identity::folder_id(folder)?, catalog)
}

/// Stores the catalog of a data folder that may have no identity yet.
pub fn store_as(folder: &Path, id: &FolderId, catalog: &Catalog) -> io::Result<()> {
    checked_file::replace(&folder.join(FILE), &MAGIC, &encode(id, catalog)?)
}

fn encode(id: &FolderId, catalog: &Catalog) -> io::Result<Vec<u8>> {
    let body = rmp_serde::to_vec_named(catalog).map_err(io::Error::other)?;
    Ok([id.as_slice(), &body].concat())
}

fn decode(bytes: &[u8]) -> Result<Found, String> {
    let damaged = |what: &str| format!("is damaged: {what}");
    match bytes.first_chunk() {
        Some(&MAGIC | &MAGIC_2) => {}
        Some(&MAGIC_1) => {
            return Err(
                "was written by an older version, whose layout is not read any more".to_owned(),
            );
        }
        Some(magic) if is_newer(magic) => {
            return Err(format!(
                "was written by a newer version of Bolide: it begins with {:?}",
                String::from_utf8_lossy(magic)
            ));
        }
        Some(magic) => {
            let magic = String::from_utf8_lossy(magic);
            return Err(damaged(&format!("it begins with {magic:?}")));
        }
        None => return Err(damaged("it is too short")),
    }
    let (magic, contents) = checked_file::decode(bytes).map_err(|what| damaged(&what))?;
    let (folder, body) = match magic {
        MAGIC_2 => (None, contents),
        _ => {
            let split = contents.split_first_chunk();
            let (id, body) = split.ok_or_else(|| damaged("it is too short"))?;
            (Some(*id), body)
        }
    };
    let catalog = rmp_serde::from_slice(body).map_err(|failure| damaged(&failure.to_string()))?;
    Ok(Found { catalog, folder })
}

fn is_newer(magic: &Magic) -> bool {
    let version = magic.strip_prefix(MAGIC_STEM).unwrap_or_default();
    version
        .first()
        .is_some_and(|digit| (b'4'..=b'9').contains(digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::indexing_policy::PathKey;

    fn sample() -> Catalog {
        let mut catalog = Catalog::default();
        catalog.create_database("d", None, 7).unwrap();
        let definition = serde_json::json!({"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}, "defaultTtl": 60});
        let definition = crate::model::container::ContainerDefinition::from_json(
            definition.as_object().unwrap(),
        )
        .unwrap();
        catalog
            .create_container("d", definition, None, 3, 8)
            .unwrap();
        catalog
    }

    fn file(magic: &Magic) -> Vec<u8> {
        let contents = encode(&[9; 16], &sample()).unwrap();
        let contents = if *magic == MAGIC_2 {
            &contents[16..]
        } else {
            &contents
        };
        checked_file::encode(magic, contents)
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path()).unwrap().databases.is_empty());
        store_as(folder.path(), &[9; 16], &sample()).unwrap();
        let found = find(folder.path()).unwrap().unwrap();
        assert_eq!(found.folder, Some([9; 16]));
        assert_eq!(found.catalog.container("d", "c").unwrap().ranges.len(), 3);
        store(folder.path(), &sample()).unwrap();
        let found = find(folder.path()).unwrap().unwrap();
        assert_eq!(found.folder, Some([0; 16]), "the folder has no identity");
    }

    #[test]
    fn the_layout_before_identities_is_read() {
        let found = decode(&file(&MAGIC_2)).unwrap();
        assert_eq!(found.folder, None);
        assert_eq!(found.catalog.container("d", "c").unwrap().ranges.len(), 3);
    }

    #[test]
    fn a_container_without_a_path_key_has_none_and_one_with_a_key_keeps_it() {
        let mut catalog = sample();
        let key = PathKey::from_bytes([5; 16]);
        for expected in [None, Some(key)] {
            let container = catalog
                .databases
                .get_mut("d")
                .unwrap()
                .containers
                .get_mut("c");
            let container = std::sync::Arc::make_mut(container.unwrap());
            container.definition.indexing_policy.path_key = expected;
            let contents = encode(&[9; 16], &catalog).unwrap();
            let loaded = decode(&checked_file::encode(&MAGIC, &contents)).unwrap();
            let policy = &loaded
                .catalog
                .container("d", "c")
                .unwrap()
                .definition
                .indexing_policy;
            assert_eq!(policy.path_key, expected);
        }
    }

    #[test]
    fn any_damaged_byte_is_noticed() {
        let whole = file(&MAGIC);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&whole[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn older_and_newer_layouts_are_called_by_their_names() {
        for (magic, says) in [
            (MAGIC_1, "older version"),
            (*b"BOLIDEC4", "newer version"),
            (*b"BOLIDED4", "is damaged"),
        ] {
            let error = decode(&file(&magic)).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
