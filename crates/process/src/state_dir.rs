//! The state directory: where the local CA keeps its keys, and secrets of the installation are.
//!
//! It is made only where something is kept in it, and closed to other users. What is there already
//! is never changed, only complained about.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use offramp_net::process::UserIdentity;

use crate::error::{Error, Finding};

/// Creates `dir` with mode 0700, unless it exists. Returns warnings about it.
///
/// # Errors
/// It cannot be made or entered, or is no directory.
pub fn prepare(dir: &Path) -> Result<Vec<Finding>, Error> {
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
    // A volume that another user has filled: each file in it would be reported otherwise.
    if fs::metadata(dir.join(".")).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        let (dir, own) = (dir.display(), UserIdentity::current().numbers().0);
        return Err(Error::one(format!(
            "the state directory {dir} belongs to user {}, and Offramp runs as user {own}, who may not enter it; chown -R \
             {own} {dir}, or set `state_dir`",
            found.uid()
        )));
    }
    let open = found.permissions().mode() & 0o022 != 0;
    let warning = format!("others may write to the state directory {0}; chmod 700 {0}", dir.display());
    Ok(open.then(|| Finding::nowhere(warning)).into_iter().collect())
}

/// The size of a secret: a key of SipHash.
const SECRET_BYTES: usize = 16;

/// The secret in a file of the state directory; made where there is none yet. Of several processes that make it at
/// once, one wins, and all use its secret.
///
/// # Errors
/// It cannot be read or made, or is damaged.
pub fn secret(path: &Path) -> io::Result<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    match File::open(path) {
        Ok(file) => return whole(file),
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
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => whole(File::open(path)?),
        Err(error) => Err(error),
    }
}

fn whole(mut file: File) -> io::Result<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    match file.read_exact(&mut secret) {
        Ok(()) => Ok(secret),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let length = file.metadata().map_or(0, |found| found.len());
            let text = format!("it is damaged: it has {length} bytes, and a secret has {SECRET_BYTES}");
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
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
        io::ErrorKind::PermissionDenied => denied(dir),
        io::ErrorKind::ReadOnlyFilesystem => "; set `state_dir` to a place that can be written to".to_owned(),
        _ => String::new(),
    };
    format!("cannot create the state directory {}: {error}{advice}", dir.display())
}

/// Owner of the directory in which `dir` cannot be made, and the user who may not: in a container both are numbers only.
fn denied(dir: &Path) -> String {
    let own = UserIdentity::current().numbers().0;
    let above = dir.ancestors().skip(1).find_map(|above| Some((above, fs::metadata(above).ok()?.uid())));
    let owner = above.map(|(above, owner)| format!(" ({} belongs to user {owner})", above.display()));
    format!("; create it and give it to user {own}{}, or set `state_dir`", owner.unwrap_or_default())
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

    /// Root may enter every directory, so root gets no answer here.
    #[test]
    fn the_directory_of_another_user_is_named_with_both_users() {
        let parent = tempfile::tempdir().unwrap();
        let (own, is_root) = (UserIdentity::current().numbers().0, UserIdentity::current().numbers().0 == 0);
        for (closed, says) in
            [("a", "; create it and give it to user"), ("a/b", "who may not enter it; chown -R")]
        {
            fs::create_dir_all(parent.path().join("a/b")).unwrap();
            let closed = parent.path().join(closed);
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
            let outcome = prepare(&parent.path().join("a/b")).map_err(|error| error.to_string());
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
            match outcome {
                Ok(_) => assert!(is_root, "{says}"),
                Err(text) => {
                    assert!(text.contains(says) && text.contains(&format!("user {own}")), "{text}");
                }
            }
        }
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
