//! One change of a machine: its shell command, its execution, and the change that takes it back.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use offramp_net::process;

use super::{Invocation, Reversal, Root, digest, group_id};
use crate::banner::quoted;

/// A change. Paths are those that this process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemAction {
    /// Creates a directory, with those above it.
    Folder { path: PathBuf },
    /// Writes a file, in the place of another.
    Write { path: PathBuf, text: String, mode: u32, group: Option<FileGroup> },
    /// Copies a program to a place for all users.
    Copy { from: PathBuf, to: PathBuf },
    /// Renames a file.
    Move { from: PathBuf, to: PathBuf },
    /// Removes a file, if it still has this text.
    Remove { path: PathBuf, text: String },
    /// Runs a program.
    Run(Invocation),
}

/// A group of a tree, which may be created by an action before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileGroup {
    pub(crate) root: Root,
    pub(crate) name: String,
}

impl FileGroup {
    /// The group as a word of a shell; `None` in a tree that is not root's, where no group can be given.
    fn shell(&self) -> Option<String> {
        let Self { root, name } = self;
        if root.is_machine() {
            return Some(name.clone());
        }
        // The machine may have another number for the name, or none.
        let groups = quoted(&root.join("/etc/group"));
        let number = format!("\"$(sed -n 's/^{name}:[^:]*:\\([0-9]*\\):.*/\\1/p' {groups})\"");
        process::is_root().then_some(number)
    }
}

/// Result of an action that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionOutcome {
    Done,
    /// Everything is as the action would leave it.
    Already,
}

impl SystemAction {
    /// A run of a program, by its words.
    pub(crate) fn run<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self::Run(Invocation { words, ..Invocation::default() })
    }

    /// The changes that take this one back, in their order: for directories, those that are not there yet.
    pub(crate) fn inverse(&self, root: &Root) -> Vec<Reversal> {
        match self {
            Self::Folder { path } => {
                let missing = path.ancestors().take_while(|folder| !is_there(folder));
                missing.map(|folder| Reversal::Folder { path: root.within(folder) }).collect()
            }
            Self::Write { path, text, .. } => {
                vec![Reversal::File { path: root.within(path), digests: vec![digest(text.as_bytes())] }]
            }
            Self::Copy { from, to } => {
                let digests = fs::read(from).map(|bytes| digest(&bytes)).into_iter().collect();
                vec![Reversal::File { path: root.within(to), digests }]
            }
            Self::Move { from, to } => {
                vec![Reversal::Renamed { path: root.within(from), backup: root.within(to) }]
            }
            Self::Run(_) | Self::Remove { .. } => Vec::new(),
        }
    }

    /// Returns true if the action would change nothing. Runs of programs are never known to be done.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Folder { path } => path.is_dir(),
            Self::Write { path, text, mode, group } => {
                fs::read(path).is_ok_and(|found| found == text.as_bytes())
                    && fs::metadata(path).is_ok_and(|found| {
                        use std::os::unix::fs::MetadataExt as _;
                        let wanted = group.as_ref().and_then(|group| group_id(&group.root, &group.name));
                        found.mode() & 0o777 == *mode
                            && wanted.is_none_or(|wanted| wanted == found.gid() || !process::is_root())
                    })
            }
            Self::Copy { from, to } => match (fs::read(from), fs::read(to)) {
                (Ok(from), Ok(to)) => from == to,
                _ => false,
            },
            Self::Move { from, .. } => !is_there(from),
            Self::Remove { path, .. } => !is_there(path),
            Self::Run(_) => false,
        }
    }

    /// The command of a shell that does the same.
    pub(crate) fn shell(&self) -> String {
        match self {
            Self::Folder { path } => format!("mkdir -p {}", quoted(path)),
            Self::Write { path, text, mode, group } => {
                let path = quoted(path);
                let chgrp = group.as_ref().and_then(FileGroup::shell);
                let chgrp = chgrp.map(|group| format!("chgrp {group} {path}\n")).unwrap_or_default();
                let end = heredoc_end(text);
                format!("cat > {path} <<'{end}'\n{text}{end}\n{chgrp}chmod {mode:o} {path}")
            }
            Self::Copy { from, to } => format!("install -D -m 755 {} {}", quoted(from), quoted(to)),
            Self::Move { from, to } => format!("mv {} {}", quoted(from), quoted(to)),
            Self::Remove { path, .. } => format!("rm {}", quoted(path)),
            Self::Run(run) => {
                let words: Vec<String> = run.words.iter().map(|word| quoted(Path::new(word))).collect();
                let user =
                    run.user.as_ref().map(|user| format!("sudo -H -u {} ", quoted(Path::new(&user.name))));
                user.unwrap_or_default() + &words.join(" ")
            }
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// A sentence that names the file or program, and the reason.
    pub(crate) fn perform(&self) -> Result<ActionOutcome, String> {
        if self.is_done() {
            return Ok(ActionOutcome::Already);
        }
        let failed = |what: &str, path: &Path, error: io::Error| {
            Err(format!("cannot {what} {}: {error}{}", path.display(), advice(&error)))
        };
        let done = match self {
            Self::Folder { path } => match create_folders(path) {
                Ok(()) => Ok(()),
                Err(error) => return failed("create", path, error),
            },
            Self::Write { path, text, mode, group } => {
                let written = write(path, text.as_bytes(), *mode, group.as_ref());
                return written.map(|()| ActionOutcome::Done).or_else(|error| failed("write", path, error));
            }
            Self::Copy { from, to } => {
                let bytes =
                    fs::read(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
                let written = write(to, &bytes, 0o755, None);
                return written.map(|()| ActionOutcome::Done).or_else(|error| failed("write", to, error));
            }
            Self::Move { from, to } => match fs::rename(from, to) {
                Ok(()) => Ok(()),
                Err(error) => return failed("rename", from, error),
            },
            Self::Remove { path, text } => return remove(path, |found| found == text.as_bytes()),
            Self::Run(run) => return run.perform().map(|()| ActionOutcome::Done),
        };
        done.map(|()| ActionOutcome::Done).map_err(|error: io::Error| error.to_string())
    }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run this as root, as with sudo",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the file system is mounted read-only: mount it writable, or set up another tree with --root"
        }
        io::ErrorKind::StorageFull => "; the disk is full",
        _ => "",
    }
}

/// Creates a directory with those above it. The service can read each, whatever the mask of root is.
fn create_folders(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !is_there(folder)).collect();
    for folder in missing.into_iter().rev() {
        fs::create_dir(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    if path.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Writes a file whole or not at all, with its mode and group.
fn write(path: &Path, bytes: &[u8], mode: u32, group: Option<&FileGroup>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    let file = tempfile::Builder::new().prefix(&name).tempfile_in(folder);
    // Its own message has the name of the temporary file.
    let mut file = file.map_err(|error| io::Error::from(error.kind()))?;
    file.write_all(bytes)?;
    if let Some(FileGroup { root, name }) = group.filter(|_| process::is_root()) {
        // A file of another group could not be read by the service.
        let missing = || io::Error::other(format!("there is no group {name}"));
        fchown(file.as_file(), None, Some(group_id(root, name).ok_or_else(missing)?))?;
    }
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn remove(path: &Path, is_own: impl Fn(&[u8]) -> bool) -> Result<ActionOutcome, String> {
    let failed = |error: io::Error| format!("cannot remove {}: {error}{}", path.display(), advice(&error));
    if !is_own(&fs::read(path).map_err(failed)?) {
        return Err(format!("{} was changed since, and is left as it is", path.display()));
    }
    fs::remove_file(path).map(|()| ActionOutcome::Done).map_err(failed)
}

/// A line that ends a here-document and is not in the text.
fn heredoc_end(text: &str) -> String {
    let mut end = "EOF".to_owned();
    while text.lines().any(|line| line == end) {
        end.push('_');
    }
    end
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::steps::ReversalOutcome;

    /// Actions whose commands a shell runs with the same effect.
    fn actions(folder: &Path) -> Vec<SystemAction> {
        let path = |name: &str| folder.join(name);
        fs::write(path("program"), "#!/bin/sh\n").unwrap();
        fs::write(path("old"), "old\n").unwrap();
        vec![
            SystemAction::Folder { path: path("etc/it's here") },
            SystemAction::Write {
                path: path("etc/it's here/a b.toml"),
                text: "EOF\n$HOME `x` \\ 'y'\n".to_owned(),
                mode: 0o640,
                group: None,
            },
            SystemAction::Move { from: path("old"), to: path("older") },
            SystemAction::Copy { from: path("program"), to: path("bin") },
            SystemAction::run(["touch".to_owned(), path("run").display().to_string()]),
        ]
    }

    fn files(folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                found.push((name, 0, Vec::new()));
                found.extend(files(&entry.path()));
            } else {
                found.push((name, mode, fs::read(entry.path()).unwrap()));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_shell_does_the_same_and_the_inverse_takes_it_back() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let done = actions(one.path());
        let before = files(one.path());
        let root = Root::new(one.path().to_owned());
        let inverses: Vec<Vec<Reversal>> = done.iter().map(|action| action.inverse(&root)).collect();
        for action in &done {
            assert_eq!(action.perform(), Ok(ActionOutcome::Done), "{action:?}");
        }
        let script: String = actions(other.path()).iter().map(|action| action.shell() + "\n").collect();
        let status = Command::new("sh").args(["-euc", &script]).status().unwrap();
        assert!(status.success(), "{script}");
        assert_eq!(files(one.path()), files(other.path()), "{script}");
        // What has been done is done.
        for action in done.iter().filter(|action| !matches!(action, SystemAction::Run(_))) {
            assert_eq!(action.perform(), Ok(ActionOutcome::Already), "{action:?}");
        }
        fs::remove_file(one.path().join("run")).unwrap();
        for reversal in inverses.into_iter().rev().flatten() {
            assert_eq!(reversal.perform(&root, None), Ok(ReversalOutcome::Done), "{reversal:?}");
        }
        assert_eq!(files(one.path()), before);
    }

    #[test]
    fn a_group_that_is_missing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let group = Some(FileGroup { root: Root::new(folder.path().to_owned()), name: "none".to_owned() });
        let written = SystemAction::Write { path, text: String::new(), mode: 0o640, group }.perform();
        assert_eq!(written.is_err(), process::is_root(), "{written:?}");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let failed = SystemAction::run(["sh", "-c", "echo one; echo two >&2; exit 3"]).perform().unwrap_err();
        assert!(failed.contains("exit code 3") && failed.contains("two"), "{failed}");
        let missing = SystemAction::run(["no-such-program-at-all"]).perform().unwrap_err();
        assert!(missing.contains("`no-such-program-at-all` is not installed"), "{missing}");
    }
}
