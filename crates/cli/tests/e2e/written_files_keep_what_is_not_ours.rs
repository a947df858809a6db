//! `--persist` and `ctl persist`: what others wrote into the file, keys that need a restart, and what the file has beside its
//! text stay; what cannot be written is said before anything changes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use offramp_testkit::process::require;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::Value;

use crate::support::instance::{Home, Instance};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::skipped::{is_root_or_skipped, skipped};

const SERVERS: [&str; 2] = ["127.0.0.1:2", "127.0.0.1:3"];
const TEXT: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\nbackend = \"shop\"\n\
                    # Ours.\n[backend.shop]\nservers = [\"127.0.0.1:2\", \"127.0.0.1:3\"] # both\n";
/// The edit of a colleague.
const ROUTE: &str = "[[route]]\nhost = \"colleague.example\"\nserver = \"127.0.0.1:9\"\n";
const CHANGED: &str = "was changed since it was read and is not overwritten; `offramp ctl reload` reads it";

fn done(instance: &Instance, arguments: &[&str]) -> String {
    let done = output(instance.home.path(), &[&["ctl"], arguments].concat());
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    stdout(&done)
}

fn refused(instance: &Instance, arguments: &[&str]) -> String {
    let refused = output(instance.home.path(), &[&["ctl"], arguments].concat());
    assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", stdout(&refused));
    stderr(&refused)
}

fn drain(instance: &Instance, server: usize) {
    done(instance, &["server", "drain", "shop", SERVERS[server]]);
}

const WEIGHT: [&str; 6] = ["server", "weight", "shop", SERVERS[1], "4", "--persist"];

fn file(instance: &Instance) -> String {
    fs::read_to_string(instance.home.file("offramp.toml")).unwrap()
}

fn edit(instance: &Instance, edit: impl Fn(String) -> String) -> String {
    let text = edit(file(instance));
    fs::write(instance.home.file("offramp.toml"), &text).unwrap();
    text
}

fn status(instance: &Instance) -> Value {
    serde_json::from_str(&done(instance, &["--json", "status"])).unwrap()
}

fn unwritten(instance: &Instance) -> usize {
    status(instance)["config"]["unwritten"].as_array().unwrap().len()
}

/// A configuration as `Home::configure` writes it.
fn whole(instance: &Instance, more: &str, text: &str) -> String {
    let head = file(instance);
    let head = head.lines().take_while(|line| line.starts_with("state_dir") || line.starts_with("user"));
    let head: String = head.map(|line| format!("{line}\n")).collect();
    format!("{head}{more}{text}")
}

/// Nobody has read the edit of a colleague: nothing is written over it, and it is not taken for one of ours, in any order.
#[test]
fn unread_edits_of_others_are_neither_adopted_nor_overwritten() {
    let instance = Home::new().run(TEXT);
    let new = whole(&instance, "[limits]\nidle_timeout = \"2m\"\n", TEXT);
    fs::write(instance.home.file("new.toml"), new).unwrap();
    drain(&instance, 0);
    let edited = edit(&instance, |text| text + ROUTE);
    let one = |more: &[&'static str]| [&WEIGHT[..], more].concat();
    let applied =
        |verb: &'static str, more: &[&'static str]| [&[verb, "new.toml", "--persist"], more].concat();
    for change in [
        one(&[]),
        one(&["--dry-run"]),
        one(&["--confirm", "1h"]),
        applied("plan", &[]),
        applied("apply", &[]),
        applied("apply", &["--confirm", "1h"]),
        vec!["persist"],
        vec!["persist", "--dry-run"],
    ] {
        let said = refused(&instance, &change);
        assert!(said.contains(CHANGED), "{change:?}: {said}");
        assert_eq!((file(&instance), unwritten(&instance)), (edited.clone(), 1), "{change:?}");
        assert_eq!(status(&instance)["config"]["version"], 2, "{change:?}");
    }
    // Read, one change written, and then all of them.
    done(&instance, &["reload"]);
    done(&instance, &WEIGHT);
    assert_eq!(unwritten(&instance), 0);
    drain(&instance, 0);
    let shown = done(&instance, &["persist"]);
    assert!(!shown.contains("colleague"), "{shown}");
    let written = file(&instance);
    assert!(
        written.contains(ROUTE) && written.contains("weight=4") && written.contains("drain"),
        "{written}"
    );
    // One change written, the edit, and then all of them.
    done(&instance, &["server", "weight", "shop", SERVERS[1], "5", "--persist"]);
    done(&instance, &["server", "enable", "shop", SERVERS[0]]);
    let edited = edit(&instance, |text| text.replace("colleague", "other"));
    assert!(refused(&instance, &["persist"]).contains(CHANGED));
    assert!(refused(&instance, &WEIGHT).contains(CHANGED));
    assert_eq!(file(&instance), edited);
    // The file itself may be applied: nothing is overwritten.
    done(&instance, &["apply", "offramp.toml", "--persist"]);
    assert_eq!((file(&instance), unwritten(&instance)), (edited, 0));
    assert!(done(&instance, &["show", "config"]).contains("other.example"));
    done(&instance, &WEIGHT);
    instance.stop();
}

/// The same for files that are included, and for a change that waits to be confirmed meanwhile.
#[test]
fn edits_of_included_files_and_during_a_confirmation_count_too() {
    let home = Home::new();
    fs::write(home.file("more.toml"), "").unwrap();
    let instance = home.run(&format!("include = \"more.toml\"\n{TEXT}"));
    done(&instance, &WEIGHT);
    fs::write(instance.home.file("more.toml"), ROUTE).unwrap();
    assert!(refused(&instance, &WEIGHT).contains(CHANGED));
    done(&instance, &["reload"]);
    done(&instance, &["server", "weight", "shop", SERVERS[1], "5", "--persist", "--confirm", "1h"]);
    fs::write(instance.home.file("more.toml"), ROUTE.replace("colleague", "other")).unwrap();
    let before = file(&instance);
    assert!(refused(&instance, &["confirm"]).contains("was changed meanwhile"));
    assert_eq!(file(&instance), before);
    done(&instance, &["confirm", "--no-persist"]);
    assert_eq!(unwritten(&instance), 1);
    instance.stop();
}

/// Keys that take effect at a restart stay as the file has them, whatever the text in force says of them.
#[test]
fn keys_that_need_a_restart_stay_in_the_file() {
    let instance = Home::new().run(TEXT);
    // A configuration without them, applied as a whole.
    let idle = "[limits]\nidle_timeout = \"4m\"\n";
    fs::write(instance.home.file("new.toml"), format!("# new\n{idle}{TEXT}")).unwrap();
    done(&instance, &["apply", "new.toml"]);
    let head = whole(&instance, "", "");
    let shown = done(&instance, &["persist"]);
    assert!(shown.contains("idle_timeout") && !shown.contains("state_dir"), "{shown}");
    let written = file(&instance);
    for line in head.lines().chain(["# new", "# Ours."]) {
        assert!(written.contains(line), "{line}: {written}");
    }
    assert_eq!(unwritten(&instance), 0);
    done(&instance, &["reload"]);
    // Keys that were read and are not in force yet, and a way back to a text without them.
    let more = "sandbox = \"strict\"\nworkers = 1\n";
    edit(&instance, |text| format!("{more}{}", text.replace("\"4m\"", "\"3m\"")));
    done(&instance, &["reload"]);
    done(&instance, &["rollback"]);
    done(&instance, &["persist"]);
    let written = file(&instance);
    for line in more.lines().chain(head.lines()).chain(["idle_timeout = \"4m\""]) {
        assert!(written.contains(line), "{line}: {written}");
    }
    assert_eq!(unwritten(&instance), 0);
    // Who writes a whole configuration is told which of them the file loses.
    let shorter = written.replace("sandbox = \"strict\"\n", "").replace("\"4m\"", "\"5m\"");
    fs::write(instance.home.file("new.toml"), &shorter).unwrap();
    for verb in ["plan", "apply"] {
        let shown = done(&instance, &[verb, "new.toml", "--persist"]);
        let warned = shown.lines().find(|line| line.starts_with("Warning: the next start finds"));
        assert!(warned.is_some_and(|line| line.contains("sandbox") && !line.contains("workers")), "{shown}");
    }
    assert_eq!(file(&instance), shorter);
    instance.stop();
}

/// The text of a configuration is longer where it is printed, and then no file may have it.
#[test]
fn a_configuration_that_no_file_may_have_is_not_written() {
    let instance = Home::new().run(TEXT);
    let elsewhere = instance.home.file("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let body = "\"\\".repeat(4_500_000);
    let large = format!("[[route]]\nhost = \"large.example\"\nrespond = {{ body = '''{body}''' }}\n");
    let state = instance.home.file("state").display().to_string();
    let new = whole(&instance, "", TEXT).replace("\"state\"", &format!("{state:?}")) + &large;
    fs::write(elsewhere.join("new.toml"), new).unwrap();
    let shown = done(&instance, &["apply", "elsewhere/new.toml"]);
    let warned = shown.lines().find(|line| line.starts_with("Warning: this configuration has 1"));
    assert!(warned.is_some_and(|line| line.contains("16 MiB")), "{}", &shown[..shown.len().min(2000)]);
    let before = file(&instance);
    for change in [&["persist"][..], &["persist", "--dry-run"]] {
        let said = refused(&instance, change);
        assert!(said.contains("16777216 at most (16 MiB)") && said.contains("file = "), "{said}");
    }
    assert_eq!(file(&instance), before);
    done(&instance, &["reload"]);
    instance.stop();
}

/// As a container mounts a single file. The kernel refuses to replace a mount point.
#[test]
fn a_file_that_is_mounted_by_itself_is_found_out_in_time() {
    if !is_root_or_skipped("only root may mount") {
        return;
    }
    let home = Home::new();
    let script = "cp \"$3\" mounted.toml; mount --bind mounted.toml \"$3\"; exec \"$2\" run --config \"$3\"";
    let mut unshare = Command::new(require("unshare", "util-linux"));
    unshare.args(["-m", "sh", "-euc", script, "sh", "run", env!("CARGO_BIN_EXE_offramp")]);
    unshare.current_dir(home.path()).env("NO_COLOR", "1");
    let instance = home.start(unshare, TEXT);
    fs::write(instance.home.file("new.toml"), whole(&instance, "watch = false\n", TEXT)).unwrap();
    for change in [
        [&WEIGHT[..], &["--dry-run"]].concat(),
        [&WEIGHT[..], &["--confirm", "1h"]].concat(),
        WEIGHT.to_vec(),
        vec!["plan", "new.toml", "--persist"],
    ] {
        let said = refused(&instance, &change);
        assert!(
            said.contains("it is mounted by itself") && said.contains("mount its folder instead"),
            "{said}"
        );
    }
    assert_eq!(status(&instance)["config"]["version"], 1);
    drain(&instance, 0);
    assert!(refused(&instance, &["persist", "--dry-run"]).contains("mount its folder instead"));
    assert!(!instance.home.file(".offramp.toml.new").exists());
    instance.stop();
}

/// A list as the kernel has it: the owner may read and write, the user `nobody` read, the group nothing.
fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 65534), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let entries = entries.iter().flat_map(|(tag, rights, id)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}

#[test]
fn a_file_keeps_its_rights_and_its_line_ends() {
    for sandbox in ["strict", "off"] {
        let home = Home::new();
        // In a home folder, `strict` reads nothing new.
        let mut command = offramp(home.path(), &["run", "--config"]);
        command.env("HOME", "/nonexistent");
        let instance = home.start(command, &format!("sandbox = \"{sandbox}\"\n{TEXT}"));
        let path = instance.home.file("offramp.toml");
        fs::write(&path, file(&instance).replace('\n', "\r\n")).unwrap();
        done(&instance, &["reload"]);
        // No list at first, then one.
        let (name, list) = ("system.posix_acl_access", access_list());
        let has_lists = setxattr(&path, name, &list, XattrFlags::empty()).is_ok();
        if !has_lists {
            skipped("the file system has no access control lists");
        }
        let mode = fs::metadata(&path).unwrap().mode();
        for server in [0, 1] {
            match server {
                0 => drop(done(&instance, &["server", "drain", "shop", SERVERS[0], "--persist"])),
                _ => {
                    drain(&instance, 1);
                    done(&instance, &["persist"]);
                }
            }
            let mut found = [0; 256];
            let length = getxattr(&path, name, &mut found[..]).unwrap_or(0);
            assert!(!has_lists || found[..length] == list, "{:?}", &found[..length]);
            assert_eq!(fs::metadata(&path).unwrap().mode(), mode);
            let text = file(&instance);
            assert_eq!(text.matches(" drain\"").count(), server + 1);
            assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
        }
        // Another name keeps the old text, and who takes the right to write away means it.
        fs::hard_link(&path, instance.home.file("other.toml")).unwrap();
        let shown = done(&instance, &WEIGHT);
        assert!(
            shown.contains("Warning: ") && shown.contains("1 hard links to it keep the old text"),
            "{shown}"
        );
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        done(&instance, &["server", "enable", "shop", SERVERS[0]]);
        for change in [&["persist"][..], &["persist", "--dry-run"], &WEIGHT] {
            let said = refused(&instance, change);
            assert!(said.contains("write-protected (mode 0444): `chmod u+w`"), "{said}");
        }
        instance.stop();
    }
}

fn resumed(home: Home, text: &str) -> Instance {
    let command = offramp(home.path(), &["run", "--resume", "--config"]);
    home.start(command, text)
}

/// The servers that drain.
fn drained(instance: &Instance) -> [bool; 2] {
    let shown: Value = serde_json::from_str(&done(instance, &["--json", "show", "backends"])).unwrap();
    [0, 1].map(|at| shown["backends"][0]["servers"][at]["state"] == "draining")
}

/// Has the process end when the file is written and the autosave is not: a folder in its place keeps that from being
/// replaced, and then the one from before is put back.
fn killed_between(instance: Instance, write: &[&str]) -> Instance {
    let saved = instance.home.file("state/running.toml");
    let before = fs::read(&saved).unwrap();
    fs::remove_file(&saved).unwrap();
    fs::create_dir_all(saved.join("in-the-way")).unwrap();
    done(&instance, write);
    let head = whole(&instance, "", "");
    let home = instance.crash();
    fs::remove_dir_all(&saved).unwrap();
    fs::write(&saved, before).unwrap();
    fs::set_permissions(&saved, Permissions::from_mode(0o600)).unwrap();
    let text = fs::read_to_string(home.file("offramp.toml")).unwrap();
    resumed(home, text.strip_prefix(&head).unwrap())
}

#[test]
fn changes_that_are_not_written_outlive_a_crash_during_a_write() {
    let confirm = [&WEIGHT[..], &["--confirm", "1h"]].concat();
    // The change before, the one that writes, the servers that drain afterwards, and the differences from the file.
    for (before, write, drains, differences) in [
        (&[][..], &WEIGHT[..], [true, false], 1),
        (&confirm, &["confirm"], [true, false], 1),
        (&[], &["persist"], [true, false], 0),
        // What is replaced as a whole does not come back.
        (&[], &["apply", "new.toml", "--persist"], [false, false], 0),
    ] {
        let instance = resumed(Home::new(), TEXT);
        fs::write(instance.home.file("new.toml"), whole(&instance, "watch = false\n", TEXT)).unwrap();
        drain(&instance, 0);
        if !before.is_empty() {
            done(&instance, before);
        }
        let instance = killed_between(instance, write);
        assert_eq!((drained(&instance), unwritten(&instance)), (drains, differences), "{write:?}");
        assert_eq!(file(&instance).contains("weight=4"), differences == 1, "{write:?}");
        assert!(!instance.home.file("state/running.coming.toml").exists());
        instance.stop();
    }
}

#[test]
fn a_write_that_fails_leaves_nothing_behind_and_one_that_is_not_saved_says_so() {
    let instance = resumed(Home::new(), TEXT);
    let coming = instance.home.file("state/running.coming.toml");
    drain(&instance, 0);
    // In the place of what the file is written to first.
    let in_the_way = instance.home.file(".offramp.toml.new");
    fs::create_dir(&in_the_way).unwrap();
    assert!(refused(&instance, &WEIGHT).contains("cannot write "));
    assert!(!coming.exists());
    fs::remove_dir(&in_the_way).unwrap();
    done(&instance, &[&WEIGHT[..], &["--confirm", "1h"]].concat());
    fs::create_dir(&in_the_way).unwrap();
    assert!(refused(&instance, &["confirm"]).contains("still waits to be confirmed"));
    assert!(!coming.exists());
    fs::remove_dir(&in_the_way).unwrap();
    // The state directory cannot be written: no change is refused for that, and the answer says what is not saved.
    fs::create_dir_all(coming.join("in-the-way")).unwrap();
    let unsaved = "Warning: not saved for `run --resume`";
    let shown = done(&instance, &["confirm"]);
    assert!(shown.contains("Written to ") && !shown.contains(unsaved), "the autosave is there: {shown}");
    let saved = instance.home.file("state/running.toml");
    fs::remove_file(&saved).unwrap();
    fs::create_dir_all(saved.join("in-the-way")).unwrap();
    for change in [&["server", "weight", "shop", SERVERS[1], "5", "--persist"][..], &["persist"]] {
        let shown = done(&instance, change);
        assert!(shown.contains("Written to ") && shown.contains(unsaved), "{shown}");
    }
    instance.stop();
}
