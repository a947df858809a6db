//! The user of the service: created with the tools of the distribution, and deleted only with the number that setup gave it.

use std::path::Path;

use offramp_net::process;

use super::reversal::{STATE, USER};
use super::{Account, Reversal, ReversalOutcome, Root, SystemAction, find_program, group_id};
use crate::banner::quoted;

/// Files that the tools of users write.
const FILES: [&str; 6] =
    ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"];

/// The actions that create the user, and what takes them back.
///
/// # Errors
/// The tools of this machine cannot do it in this tree.
pub(crate) fn create(root: &Root) -> Result<(Vec<SystemAction>, Vec<Reversal>), String> {
    let busybox = find_program("useradd").is_none() && find_program("adduser").is_some();
    if busybox && !root.is_machine() {
        return Err(
            "`useradd` is missing, and `adduser` can change this machine only: install the package shadow"
                .to_owned(),
        );
    }
    check_files(root)?;
    let has_group = group_id(root, USER).is_some();
    let prefix = prefix(root);
    let actions = if busybox {
        let user = ["adduser", "-S", "-D", "-H", "-h", STATE, "-s", "/sbin/nologin", "-G", USER, USER];
        let group = (!has_group).then(|| SystemAction::run(["addgroup", "-S", USER]));
        group.into_iter().chain([SystemAction::run(user)]).collect()
    } else {
        let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
        let group: &[&str] = if has_group { &["--gid", USER] } else { &["--user-group"] };
        let add = [&["useradd"][..], &prefix, &["--system", "--no-create-home", "--home-dir", STATE], group];
        let add = [add.concat(), vec!["--shell", "/usr/sbin/nologin", USER]].concat();
        vec![SystemAction::run(add)]
    };
    Ok((actions, vec![Reversal::User { uid: None, gid: None, has_own_group: !has_group }]))
}

/// Checks that the tools of users, which follow links, change files of the tree only.
fn check_files(root: &Root) -> Result<(), String> {
    for file in FILES {
        let is_link = root.join(file).symlink_metadata().is_ok_and(|found| found.is_symlink());
        if !root.is_machine() && (is_link || root.place(file)? != root.join(file)) {
            return Err(format!(
                "{} is reached by a link, which useradd would follow",
                root.join(file).display()
            ));
        }
    }
    Ok(())
}

fn prefix(root: &Root) -> Vec<String> {
    match root.is_machine() {
        true => Vec::new(),
        false => vec!["--prefix".to_owned(), root.path().display().to_string()],
    }
}

/// A run of the tool that deletes the user or its group.
fn delete_action(root: &Root, tool: &str, of_busybox: &str) -> SystemAction {
    let tool = match find_program(tool).is_none() && root.is_machine() {
        true => of_busybox,
        false => tool,
    };
    SystemAction::run([tool.to_owned()].into_iter().chain(prefix(root)).chain([USER.to_owned()]))
}

/// Deletes the user with this number, and the group with that one.
pub(super) fn delete(root: &Root, uid: Option<u32>, gid: Option<u32>) -> Result<ReversalOutcome, String> {
    check_files(root)?;
    let account = Account::find(root, USER);
    if let Some(account) = &account
        && Some(account.uid) != uid
    {
        let why = match uid {
            None => "it is not known whether setup created it".to_owned(),
            Some(uid) => format!("setup created another one, with the number {uid}"),
        };
        return Ok(ReversalOutcome::Kept(format!("the user {USER} is left: {why}")));
    }
    if account.is_some() {
        delete_action(root, "userdel", "deluser").perform()?;
    }
    // userdel removes the group too, if the settings of the distribution say so.
    let has_group = gid.is_some() && group_id(root, USER) == gid;
    if has_group {
        delete_action(root, "groupdel", "delgroup").perform()?;
    }
    let state = root.place(STATE)?;
    if uid.is_some() && process::is_root() && state.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        // Files of a user that is gone would belong to the next one with its number.
        SystemAction::run(["chown", "-hR", "root:root", &state.display().to_string()]).perform()?;
    }
    Ok(if account.is_some() || has_group { ReversalOutcome::Done } else { ReversalOutcome::Already })
}

/// The commands of a shell for [`delete`].
pub(super) fn shell(root: &Root, uid: Option<u32>, gid: Option<u32>) -> Result<String, String> {
    let Some(uid) = uid else {
        return Ok(format!("echo it is not known whether setup created the user {USER}, which stays >&2"));
    };
    check_files(root)?;
    let guarded = |file: &str, number: u32, action: &SystemAction| {
        let file = quoted(&root.join(file));
        format!("! grep -qs '^{USER}:[^:]*:{number}:' {file} || {}", action.shell())
    };
    let mut lines = vec![guarded("/etc/passwd", uid, &delete_action(root, "userdel", "deluser"))];
    lines.extend(gid.map(|gid| guarded("/etc/group", gid, &delete_action(root, "groupdel", "delgroup"))));
    let state = quoted(&root.place(Path::new(STATE))?);
    lines.push(format!("[ ! -d {state} ] || chown -hR root:root {state}"));
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(passwd: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        std::fs::create_dir(root.join("/etc")).unwrap();
        std::fs::write(root.join("/etc/passwd"), passwd).unwrap();
        (folder, root)
    }

    #[test]
    fn a_user_of_somebody_else_stays() {
        let (_folder, root) = tree("");
        assert_eq!(delete(&root, None, None), Ok(ReversalOutcome::Already));
        assert_eq!(delete(&root, Some(1), Some(1)), Ok(ReversalOutcome::Already));
        let (_folder, root) = tree("offramp:x:998:998::/:/bin/sh\n");
        for uid in [None, Some(997)] {
            assert!(matches!(delete(&root, uid, Some(998)), Ok(ReversalOutcome::Kept(_))), "{uid:?}");
            let script = shell(&root, uid, Some(998)).unwrap();
            let status = std::process::Command::new("sh").args(["-euc", &script]).status().unwrap();
            assert!(status.success() && root.join("/etc/passwd").metadata().unwrap().len() > 0, "{script}");
        }
    }

    #[test]
    fn the_files_of_users_are_those_of_the_tree() {
        let (_folder, root) = tree("");
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("/etc/group")).unwrap();
        let is_refused = |why: String| assert!(why.contains("useradd"), "{why}");
        is_refused(create(&root).unwrap_err());
        is_refused(delete(&root, Some(1), Some(1)).unwrap_err());
        is_refused(shell(&root, Some(1), Some(1)).unwrap_err());
    }
}
