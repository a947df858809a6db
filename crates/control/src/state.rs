//! The state directory: where the local CA keeps its keys.
//!
//! It is made only where something is kept in it, and closed to everybody else. What is there already
//! is never changed, only complained about.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Finding};

/// Creates `dir` with mode 0700, unless it exists. Returns warnings about it.
///
/// # Errors
/// It cannot be made, or is no directory.
pub(crate) fn prepare(dir: &Path) -> Result<Vec<Finding>, Error> {
    let refused = |error: &io::Error| Error::one(explain(dir, error));
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(|error| refused(&error))?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(&error)),
        Ok(()) => return Ok(Vec::new()),
    }
    let found = fs::metadata(dir).map_err(|error| refused(&error))?;
    if !found.is_dir() {
        return Err(Error::one(format!(
            "the state directory {} is not a directory; move it away, or set `state_dir`",
            dir.display()
        )));
    }
    let open = found.permissions().mode() & 0o022 != 0;
    let warning = format!("others may write to the state directory {0}; chmod 700 {0}", dir.display());
    Ok(open.then(|| Finding::nowhere(warning)).into_iter().collect())
}

/// The files of an SQLite database: itself, its log of writes, and the index of that.
pub(crate) fn database_files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        name.into()
    })
}

fn explain(dir: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; create it and give it to the user that Offramp runs as, or set `state_dir`"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; set `state_dir` to a place that can be written to",
        _ => "",
    };
    format!("cannot create the state directory {}: {error}{advice}", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_one_is_private_and_an_old_one_stays() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a/b");
        assert_eq!(prepare(&dir).unwrap(), []);
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let warnings = prepare(&dir).unwrap();
        assert!(warnings[0].text.contains("chmod 700"), "{warnings:?}");
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o777);
    }

    #[test]
    fn a_file_in_its_place_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("file");
        fs::write(&dir, "").unwrap();
        assert!(prepare(&dir).unwrap_err().to_string().contains("is not a directory"));
        assert!(prepare(&dir.join("below")).unwrap_err().to_string().contains("cannot create"));
    }
}
