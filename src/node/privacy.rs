//! Keeps the data of a node from other users of its machine.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use rustix::{fs::Mode, process::umask};
use tracing::{info, warn};

/// The rights of a data folder: its owner's alone.
const FOLDER_MODE: u32 = 0o700;
/// The rights of group and others.
const FOREIGN_BITS: u32 = 0o077;

/// Makes every file that this process creates its owner's alone: folders 0700, files 0600.
pub fn create_private_files() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Takes the rights of group and others from a data folder. Its files need not be touched: nobody
/// reaches them. A folder of another user (a volume that a container is given) stays as it is, with
/// a warning.
pub fn close_folder(folder: &Path) -> io::Result<()> {
    let found = fs::metadata(folder)?.permissions().mode() & 0o7777;
    if found & FOREIGN_BITS == 0 {
        return Ok(());
    }
    match fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE)) {
        Err(failure) if failure.kind() == io::ErrorKind::PermissionDenied => {
            warn!(
                folder = %folder.display(),
                mode = format!("{found:o}"),
                "the data folder belongs to another user, and others may look into it"
            );
            return Ok(());
        }
        done => done?,
    }
    info!(
        folder = %folder.display(),
        found = format!("{found:o}"),
        now = format!("{FOLDER_MODE:o}"),
        "took the rights of other users from the data folder"
    );
    Ok(())
}

/// Warns when other users of the machine can read a file that holds a secret.
pub fn warn_of_readable_secret(what: &str, path: &Path) {
    if let Some(mode) = foreign_mode(path) {
        warn!(
            path = %path.display(),
            mode = format!("{mode:o}"),
            "the {what} can be read by other users of this machine: chmod 600 closes it"
        );
    }
}

/// The mode of a file that group or others have rights to.
fn foreign_mode(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & FOREIGN_BITS != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_open_folder_is_closed_and_a_closed_one_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for (before, after) in [
            (0o755, 0o700),
            (0o750, 0o700),
            (0o500, 0o500),
            (0o700, 0o700),
        ] {
            set(folder.path(), before);
            close_folder(folder.path()).unwrap();
            let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, after, "{before:o}");
        }
        assert!(close_folder(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn secrets_that_others_can_read_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "secret").unwrap();
        for (mode, found) in [
            (0o644, true),
            (0o640, true),
            (0o604, true),
            (0o600, false),
            (0o400, false),
        ] {
            set(&path, mode);
            assert_eq!(foreign_mode(&path).is_some(), found, "{mode:o}");
        }
        assert_eq!(foreign_mode(&folder.path().join("missing")), None);
    }
}
