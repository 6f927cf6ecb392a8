//! Folders that a start has set aside: what the catalog does not know is not deleted. It is moved
//! to `removed/<name>-<second>` in the data folder and stays there until an operator deletes it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::checked_file::sync_folder;

const FOLDER: &str = "removed";

/// A folder that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    pub name: String,
    pub bytes: u64,
    /// Seconds since 1970; 0 when its name does not tell.
    pub since: i64,
}

/// Moves a folder out of the way. Returns what it is called now.
pub fn set_aside(data: &Path, folder: &Path, second: i64) -> io::Result<Removed> {
    let aside = data.join(FOLDER);
    fs::create_dir_all(&aside)?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut second_free = second;
    while aside.join(format!("{name}-{second_free}")).exists() {
        second_free += 1;
    }
    let name = format!("{name}-{second_free}");
    fs::rename(folder, aside.join(&name))?;
    sync_folder(&aside)?;
    sync_folder(data)?;
    if let Some(parent) = folder.parent() {
        sync_folder(parent)?;
    }
    removed(aside.join(&name))
}

/// Returns all folders that were set aside, in the order of their names.
pub fn list(data: &Path) -> io::Result<Vec<Removed>> {
    let entries = match fs::read_dir(data.join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = entries
        .map(|entry| removed(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// Deletes one of them for good.
pub fn delete(data: &Path, removed: &Removed) -> io::Result<()> {
    let path = data.join(FOLDER).join(&removed.name);
    match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

fn removed(path: PathBuf) -> io::Result<Removed> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let since = name
        .rsplit_once('-')
        .and_then(|(_, second)| second.parse().ok());
    Ok(Removed {
        since: since.unwrap_or(0),
        bytes: bytes(&path)?,
        name: name.into_owned(),
    })
}

/// Returns the bytes of all files in a folder.
fn bytes(path: &Path) -> io::Result<u64> {
    let about = fs::symlink_metadata(path)?;
    if !about.is_dir() {
        return Ok(about.len());
    }
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        sum += bytes(&entry?.path())?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_listed_with_its_bytes_until_it_is_deleted() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(list(data.path()).unwrap(), []);
        for bytes in [3, 4] {
            let folder = data.path().join("shards").join("a-0");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("f"), vec![0; bytes]).unwrap();
            set_aside(data.path(), &folder, 100).unwrap();
            assert!(!folder.exists());
        }
        let listed = list(data.path()).unwrap();
        let told: Vec<_> = listed
            .iter()
            .map(|one| (one.name.as_str(), one.bytes, one.since))
            .collect();
        assert_eq!(told, [("a-0-100", 3, 100), ("a-0-101", 4, 101)]);
        delete(data.path(), &listed[0]).unwrap();
        assert_eq!(list(data.path()).unwrap().len(), 1);
    }
}
