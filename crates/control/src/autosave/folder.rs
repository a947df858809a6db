//! The state directory as the autosave uses it: the lock that lets one process write, and files that are replaced whole.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use offramp_net::ownership;
use offramp_net::process::is_root;

use super::coming::{coming_path_in, forget_coming};
use super::{LARGEST, path_in, unused_path_in};
use offramp_process::state_dir;

/// The right to read and write the autosave of a state directory. The kernel takes it back when the process ends.
#[derive(Debug)]
pub(crate) struct AutosaveLock(File);

/// The reason why there is no lock.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// There is no state directory.
    NoFolder,
    /// Another process has it: this one, if it is known.
    Taken(Option<u32>),
    /// This file cannot be locked.
    Failed(PathBuf, io::Error),
}

impl fmt::Display for NotLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder => f.write_str("there is no state directory"),
            Self::Taken(Some(process)) => {
                write!(
                    f,
                    "the process {process} uses this state directory too, and saves its configuration there"
                )
            }
            Self::Taken(None) => f.write_str(
                "another process uses this state directory too, and saves its configuration there",
            ),
            Self::Failed(path, error) => write!(f, "{} cannot be locked: {error}", path.display()),
        }
    }
}

impl AutosaveLock {
    /// Takes the lock of a state directory, without waiting.
    ///
    /// # Errors
    /// Another process has it, or the file cannot be locked.
    pub(crate) fn take(folder: &Path) -> Result<Self, NotLocked> {
        let path = folder.join("running.lock");
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => NotLocked::NoFolder,
            _ => NotLocked::Failed(path.clone(), error),
        };
        let mut file = open(&path, folder).map_err(failed)?;
        if !ownership::try_lock(&file).map_err(failed)? {
            return Err(NotLocked::Taken(process_in(&path)));
        }
        // For people; the lock holds without it.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self(file))
    }

    /// False once the file was removed: another process would lock another file then.
    fn holds(&self) -> bool {
        self.0.metadata().is_ok_and(|found| found.nlink() > 0)
    }
}

/// The number of the process that a lock names.
fn process_in(path: &Path) -> Option<u32> {
    let found = ownership::read_private(path, 16).ok()?;
    std::str::from_utf8(&found.bytes).ok()?.trim().parse().ok()
}

/// Opens a file to lock it. Root follows no link of another user's to it.
fn open(path: &Path, folder: &Path) -> io::Result<File> {
    if !is_root() {
        return OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    }
    let file = ownership::append(path, 0o600)?;
    give_to_owner(&file, folder)?;
    Ok(file)
}

/// Gives a file of root to the owner of its folder.
fn give_to_owner(file: &File, folder: &Path) -> io::Result<()> {
    if is_root() {
        let owner = fs::metadata(folder)?;
        // Without the right to give files away it stays root's, which reads it in any case.
        let _ = fchown(file, Some(owner.uid()), Some(owner.gid()));
    }
    Ok(())
}

/// The autosave of a state directory as a start has found it.
#[derive(Debug, Default)]
pub(crate) struct FoundAutosave {
    /// The lock, if the start has taken it.
    pub(crate) lock: Option<AutosaveLock>,
    /// Set while the autosave has a configuration that is not in force: it gets another name before it is replaced.
    pub(crate) has_unused: bool,
}

/// The state directory of a process that saves its configuration.
#[derive(Debug)]
pub(crate) struct AutosaveFolder {
    folder: PathBuf,
    found: FoundAutosave,
    /// Set once the drafts of other processes are removed.
    is_clean: bool,
}

impl AutosaveFolder {
    pub(super) fn new(folder: PathBuf, found: FoundAutosave) -> Self {
        Self { folder, found, is_clean: false }
    }

    pub(super) fn has_unused(&self) -> bool {
        self.found.has_unused
    }

    /// Writes the autosave, whole or not at all.
    ///
    /// # Errors
    /// The reason, with the path.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.prepare(bytes)?;
        if self.found.has_unused {
            set_aside(&self.folder)?;
            self.found.has_unused = false;
        }
        replace(&path_in(&self.folder), bytes)?;
        forget_attempt(&self.folder);
        forget_coming(&self.folder);
        Ok(())
    }

    /// Writes the autosave that is to be used once the configuration's file is written.
    ///
    /// # Errors
    /// The reason, with the path.
    pub(super) fn write_coming(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.prepare(bytes)?;
        replace(&coming_path_in(&self.folder), bytes)
    }

    fn prepare(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() as u64 > LARGEST {
            return Err(format!("it would have {} MiB, which is too large", bytes.len() >> 20));
        }
        state_dir::prepare(&self.folder).map_err(|error| error.to_string())?;
        self.claim().map_err(|why| why.to_string())
    }

    fn claim(&mut self) -> Result<(), NotLocked> {
        if self.found.lock.as_ref().is_none_or(|lock| !lock.holds()) {
            (self.found.lock, self.is_clean) = (None, false);
            self.found.lock = Some(AutosaveLock::take(&self.folder)?);
        }
        if !self.is_clean {
            remove_drafts(&self.folder);
            self.is_clean = true;
        }
        Ok(())
    }
}

/// Gives an autosave that is not used another name, so that nothing is lost. A link or a pipe in its place has nothing to lose.
fn set_aside(folder: &Path) -> Result<(), String> {
    let (path, kept) = (path_in(folder), unused_path_in(folder));
    if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    match fs::rename(&path, &kept) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!(
            "{} has a configuration that is not in force, and cannot become {}: {error}; move one of them away",
            path.display(),
            kept.display()
        )),
        _ => Ok(()),
    }
}

const DRAFT: &str = ".running.toml.new";

/// Removes what processes have left that ended while they wrote; none writes beside the one that has the lock.
fn remove_drafts(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(DRAFT.as_bytes()) {
            // One that is in the way is named when it is.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Replaces an autosave. It belongs to the owner of its folder, and others cannot read it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if ownership::read_private(path, LARGEST).is_ok_and(|found| found.bytes == bytes) {
        return Ok(());
    }
    // A process of its own name each: one that hangs at an upgrade writes into no draft of another.
    let new = folder.join(format!("{DRAFT}.{}", std::process::id()));
    let at = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    let written = write_new(&new, bytes, folder)
        .map_err(at(&new))
        .and_then(|()| fs::rename(&new, path).map_err(at(path)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(at(folder))
}

fn write_new(new: &Path, bytes: &[u8], folder: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    // The umask may have taken a right away.
    file.set_permissions(Permissions::from_mode(0o600))?;
    give_to_owner(&file, folder)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The file that is there while a start uses the autosave, and stays if that start does not end well.
fn attempt_in(folder: &Path) -> PathBuf {
    folder.join("running.tried")
}

/// True if a start has used the autosave and did not end well.
pub(crate) fn was_attempted(folder: &Path) -> bool {
    fs::symlink_metadata(attempt_in(folder)).is_ok()
}

/// Notes durably that a start uses the autosave.
///
/// # Errors
/// It cannot be noted.
pub(crate) fn note_attempt(folder: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(attempt_in(folder))?;
    give_to_owner(&file, folder)?;
    File::open(folder)?.sync_all()
}

/// Forgets that a start has used the autosave.
pub(crate) fn forget_attempt(folder: &Path) {
    // It was noted by few starts.
    let _ = fs::remove_file(attempt_in(folder));
}
