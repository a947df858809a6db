//! `--persist` with the permissions that docs/how-to/users.md recommends: the directory and the file are root's, and the group
//! of the user that Offramp runs as may write the directory.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use offramp_testkit::process::{Process, Ready};

use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr};
use crate::support::skipped::is_root_or_skipped;

/// The user and the group `nobody`.
const NOBODY: u32 = 65534;

#[test]
fn the_group_keeps_its_file_and_nobody_loses_one() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = home.file("etc");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("offramp.toml");
    let text = format!(
        "state_dir = \"{}\"\nuser = \"nobody\"\n[log]\nlevel = \"info\" # for now\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\nrespond = {{ body = \"a\" }}\n",
        home.file("state").display()
    );
    fs::write(&file, text).unwrap();
    for (path, mode) in [(&folder, 0o770), (&file, 0o640)] {
        chown(path, Some(0), Some(NOBODY)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.arg(&file);
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line(" admin ".into()), PATIENCE).unwrap();
    let level = |level: &str| {
        let config = file.to_str().unwrap();
        output(home.path(), &["ctl", "--config", config, "log-level", level, "--persist"])
    };
    // The second time it is the user's own.
    for word in ["debug", "warn"] {
        let done = level(word);
        assert!(done.status.success(), "{}\n{}", stderr(&done), process.transcript());
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (NOBODY, NOBODY, 0o640));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("level = \"{word}\" # for now")), "{text}");
    }
    // Others would lose it.
    for (uid, gid, what) in [(1234, NOBODY, "belongs to the user 1234"), (0, 1234, "its group 1234")] {
        chown(&file, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = level("info");
        let said = stderr(&refused);
        assert!(refused.status.code() == Some(1) && said.contains(what), "{said}");
        assert!(fs::read_to_string(&file).unwrap().contains("\"warn\""));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
    }
    let stopped = output(home.path(), &["ctl", "--config", file.to_str().unwrap(), "stop"]);
    assert!(stopped.status.success(), "{}", stderr(&stopped));
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
}
