//! Small files that are replaced as a whole and verified as a whole: the catalog, the identity of
//! the data folder, recorded sequence numbers, seals and the ids of shard folders.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | magic: what the file is, and its version |
//! | 32 | SHA-256 of the rest |
//! | rest | the contents |

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

pub type Magic = [u8; 8];

/// Replaces a file. After a crash either the old or the new one is there, whole.
pub fn replace(path: &Path, magic: &Magic, contents: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let next = path.with_extension("next");
    let mut file = File::create(&next)?;
    file.write_all(&encode(magic, contents))?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    sync_folder(folder)
}

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

pub fn encode(magic: &Magic, contents: &[u8]) -> Vec<u8> {
    [
        magic.as_slice(),
        Sha256::digest(contents).as_slice(),
        contents,
    ]
    .concat()
}

/// Returns the magic and the contents of a file's bytes. Fails with what is wrong.
pub fn decode(bytes: &[u8]) -> Result<(Magic, &[u8]), String> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or("it is too short")?;
    let (digest, contents) = rest.split_first_chunk::<32>().ok_or("it is too short")?;
    if Sha256::digest(contents).as_slice() != digest {
        return Err("its checksum does not match".to_owned());
    }
    Ok((*magic, contents))
}

/// Reads a file. The error of a disk that fails names it; all others are told apart by their kind or number, which a text has not.
pub fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| name_file(path, error))
}

/// Has the error of a disk that fails name the file.
pub fn name_file(path: &Path, error: io::Error) -> io::Error {
    match error.raw_os_error() == Some(Errno::IO.raw_os_error()) {
        true => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
        false => error,
    }
}

/// Reads a file of one kind; `None` when it is not there. Damage is an error of kind `InvalidData`.
pub fn read(path: &Path, magic: &Magic) -> io::Result<Option<Vec<u8>>> {
    let bytes = match read_all(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match decode(&bytes) {
        Ok((found, contents)) if found == *magic => Ok(Some(contents.to_vec())),
        Ok((found, _)) => {
            let found = String::from_utf8_lossy(&found).into_owned();
            Err(damaged(path, &format!("it begins with {found:?}")))
        }
        Err(what) => Err(damaged(path, &what)),
    }
}

/// Returns the error of a file that was read and makes no sense.
pub fn damaged(path: &Path, what: &str) -> io::Error {
    let message = format!("{} is damaged: {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: Magic = *b"BOLIDET1";

    #[test]
    fn any_damaged_byte_and_any_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small");
        assert_eq!(read(&path, &MAGIC).unwrap(), None);
        replace(&path, &MAGIC, b"contents").unwrap();
        assert_eq!(read(&path, &MAGIC).unwrap().unwrap(), b"contents");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            for damaged in [&flipped[..], &whole[..at]] {
                fs::write(&path, damaged).unwrap();
                let error = read(&path, &MAGIC).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}");
            }
        }
        assert!(!folder.path().join("small.next").exists());
    }
}
