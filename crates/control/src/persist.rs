//! The file of the configuration, written anew: whole or not at all, with the owner, the mode, the access control list and
//! the other attributes that it had.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use offramp_config::FILE_MAX;
use offramp_net::replacement::{AttributeLost, Obstacle, copy_attributes, obstacle};

/// The part of a mode beside the bits that the sandbox lets nothing have (set-user-ID, set-group-ID) and the sticky bit,
/// which say nothing of a configuration.
const PERMISSIONS: u32 = 0o777;

/// A text, and where it belongs.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    /// The text of the file when it was read.
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
            let old = Old::open(&path)?;
            let written = write_new(&new, b"", &old);
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
        replace_text(&self.path, &self.before, &self.text).map_err(|error| match error {
            ReplaceError::Unfit(why) => why,
            ReplaceError::Changed => {
                let path = self.path.display();
                format!("{path} was changed meanwhile and is not overwritten; make the change again")
            }
            ReplaceError::Unwritable(error) => self.explain(&error),
        })?;
        Ok(self.path.clone())
    }

    /// Gives the file, which was written, the text again that it had before.
    ///
    /// # Errors
    /// Why it stays as it is.
    pub(crate) fn take_back(self) -> Result<(), String> {
        let Self { path, before, text } = self;
        Self::new(path, text, before).write().map(drop)
    }

    /// The warning that another name of the file (a hard link) keeps the old text.
    pub(crate) fn other_names(&self) -> Option<String> {
        let names = fs::metadata(&self.path).ok()?.nlink();
        (names > 1).then(|| {
            let (path, others) = (self.path.display(), names - 1);
            format!("{path} is replaced by a new file: {others} hard links to it keep the old text")
        })
    }

    fn explain(&self, error: &io::Error) -> String {
        let advice = match error.kind() {
            // Of a mount point that the kernel has not shown as one.
            io::ErrorKind::ResourceBusy => BUSY,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; the user that Offramp runs as must be able to write to its directory, and the sandbox lets it do so \
                 where that is the configuration's own (docs/inside/sandbox.md)"
            }
            _ => "",
        };
        format!("cannot write {}: {error}{advice}", self.path.display())
    }
}

const BUSY: &str = "; where it is mounted by itself, as in a container, mount its folder instead";

/// The reason for which a file keeps its text.
#[derive(Debug)]
pub enum ReplaceError {
    /// It cannot be read, or the text is too large for it.
    Unfit(String),
    /// It has another text than before.
    Changed,
    /// It cannot be written, or would change its owner.
    Unwritable(io::Error),
}

/// Replaces the text `before` of a file, whole or not at all. Mode and owner stay, and so does a link to the file.
///
/// # Errors
/// The file stays as it is.
pub fn replace_text(path: &Path, before: &str, text: &str) -> Result<(), ReplaceError> {
    if read(path).map_err(ReplaceError::Unfit)? != before {
        return Err(ReplaceError::Changed);
    }
    fits(path, text).map_err(ReplaceError::Unfit)?;
    replace(path, text.as_bytes()).map_err(ReplaceError::Unwritable)
}

/// The text of the file.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    fits(path, &text)?;
    Ok(text)
}

/// Refuses a text that is larger than a configuration's file may be.
pub(crate) fn fits(path: &Path, text: &str) -> Result<(), String> {
    if text.len() as u64 <= FILE_MAX {
        return Ok(());
    }
    Err(format!(
        "{} would have {} bytes, and a configuration has {FILE_MAX} at most (16 MiB): put large bodies into files of their \
         own (`respond = {{ file = ... }}`)",
        path.display(),
        text.len()
    ))
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
    let old = Old::open(&path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let written = write_new(&new, bytes, &old).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    // The name is on the disk when its directory is; where that cannot be said, the text still is in place.
    let _ = fs::File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// The file that is to be replaced.
struct Old {
    file: fs::File,
    found: fs::Metadata,
}

impl Old {
    /// Opens the file at a path without links.
    ///
    /// # Errors
    /// It cannot be read, or not be replaced.
    fn open(path: &Path) -> io::Result<Self> {
        let file = fs::File::open(path)?;
        let found = file.metadata()?;
        match obstacle(path)? {
            None => {}
            Some(Obstacle::MountPoint) => {
                return Err(denied(
                    "it is mounted by itself, as a container mounts a single file, and cannot be replaced: mount its folder \
                     instead"
                        .to_owned(),
                ));
            }
            Some(Obstacle::Immutable) => {
                return Err(denied("it must not be changed: `chattr -i -a` allows it".to_owned()));
            }
            Some(Obstacle::Sticky) => {
                return Err(denied(
                    "its folder is sticky and it belongs to another user: give it to the user that Offramp runs as (chown)"
                        .to_owned(),
                ));
            }
        }
        if found.mode() & 0o222 == 0 {
            let mode = found.mode() & PERMISSIONS;
            return Err(denied(format!("it is write-protected (mode {mode:04o}): `chmod u+w` allows it")));
        }
        Ok(Self { file, found })
    }
}

fn write_new(path: &Path, bytes: &[u8], old: &Old) -> io::Result<()> {
    let Old { file: before, found: like } = old;
    // What an earlier attempt has left.
    let _ = fs::remove_file(path);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    // Before the owner: the mode of another user's file is not ours to change.
    file.set_permissions(fs::Permissions::from_mode(like.mode() & PERMISSIONS))?;
    copy_attributes(before, &file).map_err(|AttributeLost { name, error }| {
        denied(format!(
            "its attribute `{name}` cannot be kept ({error}): remove it (setfacl -b, setfattr -x)"
        ))
    })?;
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
