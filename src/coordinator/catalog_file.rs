//! The catalog on disk: one small file, replaced as a whole.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `BOLIDEC2`: the version of the data folder's layout, shards included |
//! | 32 | SHA-256 of the rest |
//! | rest | the catalog in MessagePack, fields by name |

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::model::catalog::Catalog;

const MAGIC: &[u8; 8] = b"BOLIDEC2";
/// Before keys of items held their partition keys.
const MAGIC_BEFORE: &[u8; 8] = b"BOLIDEC1";
const FILE: &str = "catalog";

/// Reads the catalog of a data folder; a folder without one has an empty catalog.
pub fn load(folder: &Path) -> io::Result<Catalog> {
    let path = folder.join(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Catalog::default()),
        Err(error) => return Err(error),
    };
    decode(&bytes).map_err(|what| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is damaged: {what}", path.display()),
        )
    })
}

/// Replaces the catalog; after a crash either the old or the new one is there.
pub fn store(folder: &Path, catalog: &Catalog) -> io::Result<()> {
    let next = folder.join("catalog.next");
    let mut file = File::create(&next)?;
    file.write_all(&encode(catalog)?)?;
    file.sync_all()?;
    fs::rename(&next, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

fn encode(catalog: &Catalog) -> io::Result<Vec<u8>> {
    let body = rmp_serde::to_vec_named(catalog).map_err(io::Error::other)?;
    Ok([MAGIC.as_slice(), Sha256::digest(&body).as_slice(), &body].concat())
}

fn decode(bytes: &[u8]) -> Result<Catalog, String> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or("it is too short")?;
    let (digest, body) = rest.split_first_chunk::<32>().ok_or("it is too short")?;
    if magic == MAGIC_BEFORE {
        return Err(
            "it was written by an older version, whose layout is not read any more".to_owned(),
        );
    }
    if magic != MAGIC {
        return Err(format!(
            "it begins with {:?}",
            String::from_utf8_lossy(magic)
        ));
    }
    if Sha256::digest(body).as_slice() != digest {
        return Err("its checksum does not match".to_owned());
    }
    rmp_serde::from_slice(body).map_err(|error| error.to_string())
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

    #[test]
    fn what_is_stored_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path()).unwrap().databases.is_empty());
        store(folder.path(), &sample()).unwrap();
        let loaded = load(folder.path()).unwrap();
        assert_eq!(encode(&loaded).unwrap(), encode(&sample()).unwrap());
        assert_eq!(loaded.container("d", "c").unwrap().ranges.len(), 3);
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
            container.unwrap().definition.indexing_policy.path_key = expected;
            let loaded = decode(&encode(&catalog).unwrap()).unwrap();
            let policy = &loaded
                .container("d", "c")
                .unwrap()
                .definition
                .indexing_policy;
            assert_eq!(policy.path_key, expected);
        }
    }

    #[test]
    fn any_damaged_byte_is_noticed() {
        let whole = encode(&sample()).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
        assert!(decode(&whole[..whole.len() - 1]).is_err());
    }
}
