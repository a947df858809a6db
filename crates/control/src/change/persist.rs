//! The file of the configuration, written anew: whole or not at all, with the owner and the mode that it had.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The greatest file that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// What a mode has beside the bits that the sandbox lets nothing have (set-user-ID, set-group-ID) and the sticky bit,
/// which say nothing of a configuration.
const PERMISSIONS: u32 = 0o777;

/// A text, and where it belongs.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    /// What is there.
    before: String,
    text: String,
}

impl File {
    /// Of a file that has the text `before`.
    pub(crate) fn new(path: PathBuf, before: String, text: String) -> Self {
        Self { path, before, text }
    }

    /// Finds out whether the file could be replaced now, and leaves it as it is.
    ///
    /// # Errors
    /// Why it could not.
    pub(crate) fn try_out(&self) -> Result<(), String> {
        let tried = whole_path(&self.path).and_then(|(path, new)| {
            let found = fs::metadata(path)?;
            let written = write_new(&new, b"", &found);
            let _ = fs::remove_file(&new);
            written
        });
        tried.map_err(|error| self.explain(&error))
    }

    /// Replaces the file, and gives its path.
    ///
    /// # Errors
    /// Why it stays as it was. It may have been changed since it was read, and the change waited to be confirmed.
    pub(crate) fn write(&self) -> Result<PathBuf, String> {
        if read(&self.path)? != self.before {
            let path = self.path.display();
            return Err(format!(
                "{path} was changed meanwhile and is not overwritten; make the change again"
            ));
        }
        replace(&self.path, self.text.as_bytes()).map_err(|error| self.explain(&error))?;
        Ok(self.path.clone())
    }

    fn explain(&self, error: &io::Error) -> String {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; the user that Offramp runs as must be able to write to its directory, and the sandbox lets it do so \
                 where that is the configuration's own (docs/sandbox.md)"
            }
            _ => "",
        };
        format!("cannot write {}: {error}{advice}", self.path.display())
    }
}

/// The text of the file.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(text)
}

/// The file without links, and the one beside it that takes its place.
fn whole_path(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    // A link stays one.
    let path = fs::canonicalize(path)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let new = path.with_file_name(name);
    Ok((path, new))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (path, new) = whole_path(path)?;
    let found = fs::metadata(&path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let written = write_new(&new, bytes, &found).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    // The name is on the disk when its directory is; where that cannot be said, the text still is in place.
    let _ = fs::File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn write_new(path: &Path, bytes: &[u8], like: &fs::Metadata) -> io::Result<()> {
    // What an earlier attempt has left.
    let _ = fs::remove_file(path);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    // Before the owner: the mode of another user's file is not ours to change.
    file.set_permissions(fs::Permissions::from_mode(like.mode() & PERMISSIONS))?;
    keep_owner(&file, like)?;
    file.sync_all()
}

/// Gives a new file the owner and the group of the old one. A process without privileges cannot give a file away: where
/// the old one was root's, the new one stays its own, as root needs no owner to use it. The group must be kept, and so must
/// another owner: both would lose their access.
fn keep_owner(file: &fs::File, like: &fs::Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    let (uid, gid) =
        ((own.uid() != like.uid()).then(|| like.uid()), (own.gid() != like.gid()).then(|| like.gid()));
    if (uid, gid) == (None, None) {
        return Ok(());
    }
    match fchown(file, uid, gid) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other,
    }
    if let Some(uid) = uid.filter(|uid| *uid != ROOT) {
        return Err(denied(format!(
            "it belongs to the user {uid}, who would lose it: give it to the user that Offramp runs as, or to root (chown)"
        )));
    }
    // Asking for no change is refused, too, where the unit of systemd denies the call.
    if gid.is_none() {
        return Ok(());
    }
    match fchown(file, None, gid) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(denied(format!(
            "its group {} cannot be kept: give it a group of the user that Offramp runs as (chgrp)",
            like.gid()
        ))),
        other => other,
    }
}

const ROOT: u32 = 0;

/// Not of the kind [`io::ErrorKind::PermissionDenied`], for which there is another advice.
fn denied(why: String) -> io::Error {
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_keeps_its_mode_and_a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.toml"), folder.path().join("link.toml"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = File::new(link.clone(), "old".to_owned(), "new".to_owned());
        assert_eq!((file.try_out(), read(&path).unwrap().as_str()), (Ok(()), "old"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the trial leaves nothing behind");
        assert_eq!(file.write(), Ok(link.clone()));
        assert_eq!(
            (read(&path).unwrap().as_str(), fs::metadata(&path).unwrap().mode() & 0o777),
            ("new", 0o640)
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
        // It has another text now than the one that it was read with.
        let late = file.write().unwrap_err();
        assert!(late.contains("was changed meanwhile"), "{late}");
        assert_eq!(read(&path).unwrap(), "new");
        let missing = File::new(folder.path().join("none/a.toml"), String::new(), String::new());
        let tried = missing.try_out().unwrap_err();
        assert!(tried.starts_with("cannot write "), "{tried}");
        let missing = missing.write().unwrap_err();
        assert!(missing.starts_with("cannot read "), "{missing}");
    }
}
