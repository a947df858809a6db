//! The state directory: where the local CA keeps its keys, and secrets of the installation are.
//!
//! It is made only where something is kept in it, and closed to everybody else. What is there already
//! is never changed, only complained about.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
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

/// The size of a secret: a key of SipHash.
pub(crate) const SECRET_BYTES: usize = 16;

/// The secret in a file of the state directory; made where there is none yet. Of several processes that make it at
/// once, one wins, and all use its secret.
pub(crate) fn secret(path: &Path) -> io::Result<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    match File::open(path) {
        Ok(mut file) => {
            file.read_exact(&mut secret)?;
            return Ok(secret);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let draft = path.with_extension(format!("new{}", std::process::id()));
    // What a process of the same number has left. The file is new, and never what a link leads to: root may be at work
    // here in a folder of another user's.
    let _ = fs::remove_file(&draft);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(&secret).and_then(|()| file.sync_all()))
        .and_then(|()| fs::hard_link(&draft, path));
    // It has its name, or is of no use.
    let _ = fs::remove_file(&draft);
    match made {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            File::open(path)?.read_exact(&mut secret)?;
            Ok(secret)
        }
        Err(error) => Err(error),
    }
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
    fn a_secret_is_made_once_and_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.key");
        let made = secret(&path).unwrap();
        assert_eq!(secret(&path).unwrap(), made);
        assert_ne!(secret(&dir.path().join("y.key")).unwrap(), made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
        fs::write(&path, "short").unwrap();
        assert!(secret(&path).is_err());
    }

    #[test]
    fn a_secret_is_not_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "as it was").unwrap();
        let draft = dir.path().join(format!("hash.new{}", std::process::id()));
        std::os::unix::fs::symlink(&other, &draft).unwrap();
        secret(&dir.path().join("hash.key")).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "as it was");
        assert!(!draft.exists() && dir.path().join("hash.key").exists());
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
