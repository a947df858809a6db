//! Changes that take a step of `setup` back: kinds with paths within the tree, never commands, so that a record can do no
//! more than `setup` does. Each may be repeated: a thing that is missing is gone.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use offramp_net::process;
use serde_json::{Value, json};

use super::{Account, Root, SystemAction, digest, group_id};

/// Change that takes another one back. Paths are those within the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reversal {
    /// Removes a file that has still one of these digests (SHA-256).
    File { path: PathBuf, digests: Vec<String> },
    /// Gives a renamed file its name again, if that is free.
    Renamed { path: PathBuf, backup: PathBuf },
    /// Removes a directory, if it is empty.
    Folder { path: PathBuf },
    /// Has systemd read its units again.
    Units,
    /// Deletes the user of the service, if it has still the number that setup gave it; `None` until that is known.
    User { uid: Option<u32>, gid: Option<u32>, has_own_group: bool },
    /// Disables or stops the service.
    Service { enabled: bool, started: bool },
}

/// Result of a reversal that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReversalOutcome {
    Done,
    Already,
    /// The thing is not as setup left it; with the reason.
    Kept(String),
}

/// User and unit of the service.
pub(crate) const USER: &str = "offramp";
/// State of the service within the tree.
pub(crate) const STATE: &str = "/var/lib/offramp";

impl Reversal {
    /// Returns true if the other takes back the same thing.
    pub(super) fn has_target_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { path, .. }, Self::File { path: other, .. })
            | (Self::Renamed { path, .. }, Self::Renamed { path: other, .. })
            | (Self::Folder { path }, Self::Folder { path: other }) => path == other,
            (Self::Units, Self::Units)
            | (Self::User { .. }, Self::User { .. })
            | (Self::Service { .. }, Self::Service { .. }) => true,
            _ => false,
        }
    }

    /// Adds a later one of the same thing. Until the later change is finished, the file may be the one or the other.
    pub(super) fn merge(&mut self, later: &Self) {
        match (self, later) {
            (Self::File { digests, .. }, Self::File { digests: later, .. }) => {
                digests.retain(|digest| !later.contains(digest));
                digests.extend(later.iter().cloned());
            }
            (Self::User { uid, gid, has_own_group }, Self::User { has_own_group: later, .. }) => {
                (*uid, *gid) = (None, None);
                *has_own_group |= later;
            }
            (Self::Service { enabled, started }, Self::Service { enabled: enables, started: starts }) => {
                *enabled |= enables;
                *started |= starts;
            }
            _ => {}
        }
    }

    /// Notes what is known only after the change.
    pub(super) fn finish(&mut self, root: &Root) {
        match self {
            Self::File { digests, .. } => {
                digests.drain(..digests.len().saturating_sub(1));
            }
            Self::User { uid, gid, .. } => {
                *uid = Account::find(root, USER).map(|user| user.uid);
                *gid = group_id(root, USER);
            }
            _ => {}
        }
    }

    /// Does it. Files that stay are taken from the group `leaving`, whose number another group will get.
    ///
    /// # Errors
    /// A sentence that names the file or program, and the reason.
    pub(crate) fn perform(&self, root: &Root, leaving: Option<u32>) -> Result<ReversalOutcome, String> {
        match self {
            Self::File { path, digests } => remove(&root.place(path)?, digests, leaving),
            Self::Renamed { path, backup } => rename(&root.place(backup)?, &root.place(path)?),
            Self::Folder { path } => remove_folder(&root.place(path)?),
            Self::Units => {
                if is_systemd(root) {
                    SystemAction::run(["systemctl", "daemon-reload"]).perform()?;
                }
                Ok(ReversalOutcome::Already)
            }
            Self::User { uid, gid, has_own_group } => {
                super::user::delete(root, *uid, gid.filter(|_| *has_own_group))
            }
            Self::Service { enabled, started } => stop(root, *enabled, *started),
        }
    }

    /// Has a service that ran before setup, and runs on, read the configuration that has come back. Returns why it could not.
    pub(crate) fn reload_what_still_runs(root: &Root) -> Option<String> {
        let runs = |action: SystemAction| match action {
            SystemAction::Run(run) => run.output().is_ok_and(|output| output.status.success()),
            _ => false,
        };
        if !is_systemd(root) || !runs(SystemAction::run(["systemctl", "is-active", "--quiet", USER])) {
            return None;
        }
        SystemAction::run(RELOAD).perform().err()
    }

    /// The same as a command of a shell; `None` where no service can run.
    pub(crate) fn shell_of_reload(root: &Root) -> Option<String> {
        let reload = RELOAD.join(" ");
        is_systemd(root).then(|| format!("! systemctl is-active --quiet {USER} || {reload}"))
    }

    /// The commands of a shell that do the same, with the same care.
    pub(crate) fn shell(&self, root: &Root, leaving: Option<u32>) -> Result<String, String> {
        let quoted = |path: &Path| root.place(path).map(|path| crate::banner::quoted(&path));
        Ok(match self {
            Self::File { path, digests } => {
                let (path, known) = (quoted(path)?, digests.join("' '*|"));
                let leave =
                    leaving.map(|gid| format!(" [ $(stat -c %g {path}) != {gid} ] || chgrp 0 {path};"));
                let leave = leave.unwrap_or_default();
                format!(
                    "[ ! -e {path} ] || case $(sha256sum < {path}) in ({known}' '*) rm {path};; \
                     (*) echo {path} was changed since, and stays >&2;{leave}; esac"
                )
            }
            Self::Renamed { path, backup } => {
                let (path, backup) = (quoted(path)?, quoted(backup)?);
                format!("[ -e {path} ] || [ ! -e {backup} ] || mv {backup} {path}")
            }
            Self::Folder { path } => format!("rmdir {} 2>/dev/null || :", quoted(path)?),
            Self::Units if is_systemd(root) => "systemctl daemon-reload".to_owned(),
            Self::Units => ":".to_owned(),
            Self::User { uid, gid, has_own_group } => {
                super::user::shell(root, *uid, gid.filter(|_| *has_own_group))?
            }
            Self::Service { enabled, started } => {
                let actions = stop_actions(root, *enabled, *started);
                super::shell(&actions).trim_end().to_owned()
            }
        })
    }

    /// The change as JSON, for the record.
    pub(super) fn to_json(&self) -> Option<Value> {
        Some(match self {
            Self::File { path, digests } => {
                json!({"kind": "file", "path": path.to_str()?, "sha256": digests})
            }
            Self::Renamed { path, backup } => {
                json!({"kind": "renamed", "path": path.to_str()?, "backup": backup.to_str()?})
            }
            Self::Folder { path } => json!({"kind": "directory", "path": path.to_str()?}),
            Self::Units => json!({"kind": "units"}),
            Self::User { uid, gid, has_own_group } => {
                json!({"kind": "user", "uid": uid, "gid": gid, "has_own_group": has_own_group})
            }
            Self::Service { enabled, started } => {
                json!({"kind": "service", "enabled": enabled, "started": started})
            }
        })
    }

    /// Reads a change of [`Reversal::to_json`].
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let path = |key: &str| {
            let path = PathBuf::from(value.get(key)?.as_str()?);
            let mut parts = path.components();
            let is_plain = parts.next() == Some(Component::RootDir)
                && parts.all(|part| matches!(part, Component::Normal(_)));
            is_plain.then_some(path)
        };
        let flag = |key: &str| value.get(key)?.as_bool();
        let number = |key: &str| match value.get(key)? {
            Value::Null => Some(None),
            number => Some(Some(u32::try_from(number.as_u64()?).ok()?)),
        };
        Some(match value.get("kind")?.as_str()? {
            "file" => {
                let digests = value.get("sha256")?.as_array()?.iter();
                let is_digest =
                    |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let digests = digests.map(|digest| digest.as_str().filter(is_digest).map(str::to_owned));
                Self::File { path: path("path")?, digests: digests.collect::<Option<_>>()? }
            }
            "renamed" => Self::Renamed { path: path("path")?, backup: path("backup")? },
            "directory" => Self::Folder { path: path("path")? },
            "units" => Self::Units,
            "user" => {
                Self::User { uid: number("uid")?, gid: number("gid")?, has_own_group: flag("has_own_group")? }
            }
            "service" => Self::Service { enabled: flag("enabled")?, started: flag("started")? },
            _ => return None,
        })
    }
}

/// Returns true if systemd runs the machine whose tree this is (sd_booted(3)).
fn is_systemd(root: &Root) -> bool {
    root.is_machine() && Path::new("/run/systemd/system").is_dir()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}{}", path.display(), super::advice(error))
}

fn remove(path: &Path, digests: &[String], leaving: Option<u32>) -> Result<ReversalOutcome, String> {
    use std::os::unix::fs::MetadataExt as _;
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if is_gone(&error) => return Ok(ReversalOutcome::Already),
        Err(error) => return Err(failed("read", path, &error)),
    };
    let is_own = found.is_file() && {
        let bytes = fs::read(path).map_err(|error| failed("read", path, &error))?;
        digests.contains(&digest(&bytes))
    };
    if is_own {
        fs::remove_file(path).map_err(|error| failed("remove", path, &error))?;
        return Ok(ReversalOutcome::Done);
    }
    if leaving == Some(found.gid()) && process::is_root() {
        std::os::unix::fs::lchown(path, None, Some(0)).map_err(|error| failed("change", path, &error))?;
    }
    Ok(ReversalOutcome::Kept(format!("{} was changed since, and is left as it is", path.display())))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn rename(backup: &Path, path: &Path) -> Result<ReversalOutcome, String> {
    if backup.symlink_metadata().is_err_and(|error| is_gone(&error)) {
        return Ok(ReversalOutcome::Already);
    }
    if path.symlink_metadata().is_ok() {
        return Ok(ReversalOutcome::Kept(format!("the file from before is {}", backup.display())));
    }
    fs::rename(backup, path).map_err(|error| failed("rename", backup, &error))?;
    Ok(ReversalOutcome::Done)
}

fn remove_folder(path: &Path) -> Result<ReversalOutcome, String> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(ReversalOutcome::Done),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ReversalOutcome::Already),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Ok(ReversalOutcome::Kept(format!("{} is not empty", path.display())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Ok(ReversalOutcome::Kept(format!("{} is a directory no more", path.display())))
        }
        Err(error) => Err(failed("remove", path, &error)),
    }
}

fn stop_actions(root: &Root, enabled: bool, started: bool) -> Vec<SystemAction> {
    let tree = (!root.is_machine()).then(|| format!("--root={}", root.path().display()));
    let run = |word: &str| {
        let words = ["systemctl".to_owned()].into_iter().chain(tree.clone());
        SystemAction::run(words.chain([word.to_owned(), USER.to_owned()]))
    };
    let stop = (started && is_systemd(root)).then(|| run("stop"));
    stop.into_iter().chain(enabled.then(|| run("disable"))).collect()
}

/// Loses no connection; a configuration that is refused leaves the one in force.
const RELOAD: [&str; 3] = ["systemctl", "reload-or-restart", USER];

/// Places of the unit within a tree.
const UNITS: [&str; 5] = [
    "/etc/systemd/system/offramp.service",
    "/run/systemd/system/offramp.service",
    "/usr/local/lib/systemd/system/offramp.service",
    "/usr/lib/systemd/system/offramp.service",
    "/lib/systemd/system/offramp.service",
];

fn stop(root: &Root, enabled: bool, started: bool) -> Result<ReversalOutcome, String> {
    // Without a unit there is nothing that systemctl could disable, and it fails.
    if !UNITS.iter().any(|place| root.join(place).symlink_metadata().is_ok()) {
        return Ok(ReversalOutcome::Already);
    }
    let actions = stop_actions(root, enabled, started);
    if actions.is_empty() {
        return Ok(ReversalOutcome::Already);
    }
    actions.iter().try_for_each(|action| action.perform().map(drop))?;
    Ok(ReversalOutcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_are_read_with_paths_of_the_tree() {
        for kept in [
            Reversal::File { path: "/a b".into(), digests: vec![digest(b"x"), digest(b"y")] },
            Reversal::Renamed { path: "/a".into(), backup: "/b".into() },
            Reversal::Folder { path: "/etc/offramp".into() },
            Reversal::Units,
            Reversal::User { uid: Some(7), gid: None, has_own_group: true },
            Reversal::Service { enabled: true, started: false },
        ] {
            assert_eq!(Reversal::from_json(&kept.to_json().unwrap()), Some(kept));
        }
        for refused in [
            json!({"run": ["sh", "-c", "id"]}),
            json!({"kind": "run", "words": ["id"]}),
            json!({"kind": "directory", "path": "etc"}),
            json!({"kind": "directory", "path": "/../etc"}),
            json!({"kind": "file", "path": "/a", "sha256": ["*"]}),
        ] {
            assert_eq!(Reversal::from_json(&refused), None, "{refused}");
        }
    }

    #[test]
    fn a_reversal_is_repeated_without_harm_and_others_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        let file = Reversal::File { path: "/etc/a".into(), digests: vec![digest(b"mine"), digest(b"new")] };
        let named = Reversal::Renamed { path: "/etc/a".into(), backup: "/etc/b".into() };
        let etc = Reversal::Folder { path: "/etc".into() };
        let all = [&file, &named, &etc];
        for reversal in all {
            assert_eq!(reversal.perform(&root, None), Ok(ReversalOutcome::Already), "{reversal:?}");
        }
        fs::create_dir(root.join("/etc")).unwrap();
        // The same size, another text.
        fs::write(root.join("/etc/a"), "your").unwrap();
        fs::write(root.join("/etc/b"), "old").unwrap();
        for reversal in all {
            assert!(matches!(reversal.perform(&root, None), Ok(ReversalOutcome::Kept(_))), "{reversal:?}");
            let script = reversal.shell(&root, Some(4_000_001)).unwrap();
            let status = std::process::Command::new("sh").args(["-euc", &script]).status().unwrap();
            assert!(status.success(), "{script}");
        }
        assert_eq!(fs::read_to_string(root.join("/etc/a")).unwrap(), "your");
        for by_shell in [false, true] {
            fs::write(root.join("/etc/a"), "mine").unwrap();
            fs::write(root.join("/etc/b"), "old").unwrap();
            for reversal in [&file, &named] {
                if by_shell {
                    let script = reversal.shell(&root, Some(4_000_001)).unwrap();
                    let status = std::process::Command::new("sh").args(["-euc", &script]).status().unwrap();
                    assert!(status.success(), "{script}");
                } else {
                    assert_eq!(reversal.perform(&root, None), Ok(ReversalOutcome::Done), "{reversal:?}");
                }
            }
            assert_eq!(fs::read_to_string(root.join("/etc/a")).unwrap(), "old");
            assert!(!root.join("/etc/b").exists());
        }
    }
}
