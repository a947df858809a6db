//! The record of what `setup` did: the changes that take it back, in a file that only root can write.
//!
//! It is not in the state directory of the service: who can write the record decides what root removes.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::{Reversal, Root, SystemAction, digest};

/// Titles of steps with the changes that take them back, in the order in which they were done.
#[derive(Debug, Default)]
pub(crate) struct SetupRecord {
    path: PathBuf,
    pub(crate) steps: Vec<RecordedStep>,
}

/// A step that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedStep {
    pub(crate) title: String,
    /// Cleared until the step has succeeded.
    pub(crate) is_done: bool,
    pub(crate) undo: Vec<Reversal>,
}

/// Place of the record in a tree.
const PLACE: &str = "/var/lib/offramp-setup.json";
/// Version of the format.
const VERSION: u64 = 2;

impl SetupRecord {
    /// Reads the record of a tree; one that is not there is empty.
    ///
    /// # Errors
    /// It cannot be read, or somebody else may have written it.
    pub(crate) fn read(root: &Root) -> Result<Self, String> {
        let path = root.place(PLACE)?;
        let shown = path.display();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let mut file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, steps: Vec::new() });
            }
            Err(error) => return Err(format!("cannot read {shown}: {error}")),
        };
        let found = file.metadata().map_err(|error| format!("cannot read {shown}: {error}"))?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_file() || ![0, own].contains(&found.uid()) || found.mode() & 0o022 != 0 {
            return Err(format!(
                "{shown} is not believed: it belongs to user {}, or others may write it. It says what is removed, so only \
                 root and the user who runs setup may write it. If you trust it: chown {own} {shown}; chmod 600 {shown}",
                found.uid()
            ));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| format!("cannot read {shown}: {error}"))?;
        let steps = parse(&text).ok_or_else(|| {
            format!(
                "{shown} is damaged, or of another version; it lists what `offramp setup` did. To go on without it: \
                 mv {shown} {shown}.damaged. Setup then keeps what is there, and --undo takes back what is done from then on"
            )
        })?;
        Ok(Self { path, steps })
    }

    /// Returns true if setup wrote the file (a path within the tree) with these bytes.
    pub(crate) fn wrote(&self, file: &Path, bytes: &[u8]) -> bool {
        let own = digest(bytes);
        let mut undo = self.steps.iter().flat_map(|step| &step.undo);
        undo.any(|change| {
            matches!(change, Reversal::File { path, digests } if path == file && digests.contains(&own))
        })
    }

    /// The number of the group that is deleted with the user, if setup created it.
    pub(crate) fn own_group(&self) -> Option<u32> {
        self.steps.iter().flat_map(|step| &step.undo).find_map(|change| match change {
            Reversal::User { gid, has_own_group: true, .. } => *gid,
            _ => None,
        })
    }

    /// Adds a step that begins, and returns its place. One for a thing that setup has made before is added to the
    /// earlier one, so that the file from before the first setup comes back.
    pub(crate) fn begin(&mut self, title: &str, undo: &[Reversal]) -> usize {
        let same = |step: &RecordedStep| match (step.undo.first(), undo.first()) {
            (Some(earlier), Some(later)) => earlier.has_target_of(later),
            _ => false,
        };
        let Some(index) = self.steps.iter().position(same) else {
            self.steps.push(RecordedStep { title: title.to_owned(), is_done: false, undo: undo.to_vec() });
            return self.steps.len() - 1;
        };
        let earlier = &mut self.steps[index];
        earlier.is_done = false;
        for change in undo {
            match earlier.undo.iter_mut().find(|earlier| earlier.has_target_of(change)) {
                Some(earlier) => earlier.merge(change),
                // The file in the place is the one that setup wrote before, as somebody changed it.
                None if matches!(change, Reversal::Renamed { .. }) => {}
                None => earlier.undo.push(change.clone()),
            }
        }
        index
    }

    /// Notes that a step has succeeded.
    pub(crate) fn finish(&mut self, index: usize, root: &Root) {
        if let Some(step) = self.steps.get_mut(index) {
            step.is_done = true;
            step.undo.iter_mut().for_each(|change| change.finish(root));
        }
    }

    /// Writes the record, or removes it if it is empty.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save(&self) -> Result<(), String> {
        if self.steps.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(format!("cannot remove {}: {error}", self.path.display()))
                }
                _ => Ok(()),
            };
        }
        let steps = self.steps.iter().map(|step| {
            let undo: Vec<Value> = step.undo.iter().filter_map(Reversal::to_json).collect();
            let state = if step.is_done { "done" } else { "begun" };
            json!({"title": step.title, "state": state, "undo": undo})
        });
        let text = format!("{:#}\n", json!({"version": VERSION, "steps": steps.collect::<Vec<_>>()}));
        if let Some(folder) = self.path.parent() {
            SystemAction::Folder { path: folder.to_owned() }.perform()?;
        }
        let write = SystemAction::Write { path: self.path.clone(), text, mode: 0o600, group: None };
        write.perform().map(drop)
    }
}

fn parse(text: &str) -> Option<Vec<RecordedStep>> {
    let value: Value = serde_json::from_str(text).ok()?;
    if value.get("version")? != VERSION {
        return None;
    }
    let step = |step: &Value| {
        let undo = step.get("undo")?.as_array()?.iter().map(Reversal::from_json).collect::<Option<_>>()?;
        let is_done = match step.get("state")?.as_str()? {
            "done" => true,
            "begun" => false,
            _ => return None,
        };
        Some(RecordedStep { title: step.get("title")?.as_str()?.to_owned(), is_done, undo })
    };
    value.get("steps")?.as_array()?.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn tree() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        (folder, root)
    }

    #[test]
    fn a_file_that_is_written_again_is_removed_once() {
        let (_folder, root) = tree();
        let mut record = SetupRecord::read(&root).unwrap();
        let write = |texts: &[&str]| {
            let digests = texts.iter().map(|text| digest(text.as_bytes())).collect();
            vec![
                Reversal::File { path: "/a".into(), digests },
                Reversal::Renamed { path: "/a".into(), backup: "/a.before-setup".into() },
            ]
        };
        let service = |enabled, started| [Reversal::Service { enabled, started }];
        let index = record.begin("wrote /a", &write(&["1"]));
        record.finish(index, &root);
        record.begin("started", &service(true, false));
        let index = record.begin("wrote /a", &write(&["2"])[..1]);
        record.begin("started", &service(false, true));
        record.save().unwrap();
        let mut again = SetupRecord::read(&root).unwrap();
        assert_eq!(again.steps.len(), 2);
        // Until it is finished, the one or the other is there.
        assert_eq!(again.steps[0].undo, write(&["1", "2"]));
        assert!(!again.steps[0].is_done);
        assert_eq!(again.steps[1].undo, service(true, true));
        assert!(again.wrote("/a".as_ref(), b"1") && again.wrote("/a".as_ref(), b"2"));
        again.finish(index, &root);
        assert_eq!(again.steps[0].undo, write(&["2"]));
        assert!(!again.wrote("/a".as_ref(), b"1"));
        again.steps.clear();
        again.save().unwrap();
        assert!(!root.join(PLACE).exists());
    }

    #[test]
    fn a_record_that_others_may_have_written_is_not_believed() {
        let (_folder, root) = tree();
        let mut record = SetupRecord::read(&root).unwrap();
        record.begin("x", &[Reversal::Folder { path: "/x".into() }]);
        record.save().unwrap();
        let path = root.join(PLACE);
        for mode in [0o620, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(SetupRecord::read(&root).unwrap_err().contains("not believed"), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if offramp_net::process::is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(SetupRecord::read(&root).unwrap_err().contains("not believed"));
        }
        fs::rename(&path, root.join("/record")).unwrap();
        std::os::unix::fs::symlink("/record", &path).unwrap();
        assert!(SetupRecord::read(&root).is_err());
        fs::remove_file(&path).unwrap();
        for text in ["", "{}", r#"{"version":1,"steps":[{"title":"x","undo":[{"run":["id"]}]}]}"#] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let why = SetupRecord::read(&root).unwrap_err();
            assert!(why.contains("is damaged") && why.contains("mv "), "{why}");
        }
    }
}
