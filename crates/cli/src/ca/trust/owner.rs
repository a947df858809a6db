//! The user that a tool runs as for a store.
//!
//! Root handles a store, or runs a program, only if nobody else can change a file on the way to it, links among them. A store
//! that another user can change is handled as that user, who gains nothing by a link or a program there.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use offramp_net::process;

use super::TrustContext;
use crate::steps::{Account, Root};

/// Groups below this number are those of the distribution; `/usr/local` of Debian is writable to one of them.
const FIRST_OTHER_GROUP: u32 = 100;

impl TrustContext<'_> {
    /// The user that a tool runs as for a file of the tree; `None` for the user of this process.
    ///
    /// # Errors
    /// The file cannot be reached, or everybody can change it.
    pub(super) fn actor(&self, path: &Path) -> Result<Option<Account>, String> {
        if !process::is_root() {
            return Ok(None);
        }
        let trail = self.root.trail(path).ok_or_else(|| format!("{} cannot be reached", path.display()))?;
        for file in trail {
            let found = file.symlink_metadata().map_err(|error| format!("{}: {error}", file.display()))?;
            if is_of_root(&found) {
                continue;
            }
            if is_above(found.uid()) {
                return Err(format!(
                    "others than root can write to {}; take that from them: chmod go-w",
                    file.display()
                ));
            }
            return Ok(Some(self.account(&found)));
        }
        Ok(None)
    }

    fn account(&self, owned: &Metadata) -> Account {
        let uid = owned.uid();
        if let Some(user) = self.user.as_ref().filter(|user| user.uid == uid) {
            return user.clone();
        }
        let found = Account::find(&Root::machine(), &uid.to_string()).filter(|found| found.uid == uid);
        // As sudo(8) spells a number.
        found.unwrap_or_else(|| Account {
            name: format!("#{uid}"),
            uid,
            gid: owned.gid(),
            home: "/".into(),
            shell: String::new(),
        })
    }
}

/// Returns true if the user, or this process, may run a program of this machine: nobody but root and that user can change it.
pub(super) fn may_run(program: &Path, actor: Option<&Account>) -> bool {
    if !process::is_root() {
        return true;
    }
    let is_safe = |path: &Path| {
        path.symlink_metadata().is_ok_and(|found| {
            let is_of_actor = actor.is_some_and(|actor| actor.uid == found.uid());
            is_of_root(&found) || (is_of_actor && (found.is_symlink() || found.mode() & 0o002 == 0))
        })
    };
    Root::machine().trail(program).is_some_and(|trail| trail.iter().all(|path| is_safe(path)))
}

/// Returns true if only root, or a group of the distribution, can change the file or rename what is in the directory.
fn is_of_root(found: &Metadata) -> bool {
    let others = if found.gid() < FIRST_OTHER_GROUP { 0o002 } else { 0o022 };
    let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
    is_above(found.uid()) && (found.is_symlink() || is_sticky || found.mode() & others == 0)
}

/// Returns true for root, and for a user outside the user namespace of this process, whom nobody in it can become
/// (user_namespaces(7)).
fn is_above(uid: u32) -> bool {
    let is_in = |line: &str| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first.saturating_add(count)).contains(&uid.into()))
    };
    let map = std::fs::read_to_string("/proc/self/uid_map");
    uid == 0 || map.is_ok_and(|map| !map.lines().any(is_in))
}
