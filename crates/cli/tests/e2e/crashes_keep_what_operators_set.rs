//! `run --resume`: the configuration in force outlives a crash, beside what the file has by then.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use offramp_testkit::process::{Process, Ready, Signal, Source};

use crate::support::crowd::{get, tcp};
use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::resumed::{SERVERS, ctl, drain, resumed, saved, state, text, told};
use crate::support::upgrade::Upgraded;

#[test]
fn a_change_outlives_a_crash_and_an_upgrade_after_it() {
    let instance = resumed(Home::new(), &text(""));
    told(&instance, "nothing to resume");
    drain(&instance, 0, &[]);
    let first = saved(&instance.home);
    assert!(first.contains("# Ours.") && first.contains(&format!("\"{} drain\"", SERVERS[0])), "{first}");
    let found = fs::metadata(instance.home.file("state/running.toml")).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    // A change that makes no difference writes nothing.
    drain(&instance, 0, &[]);
    assert_eq!(fs::metadata(instance.home.file("state/running.toml")).unwrap().ino(), found.ino());
    let instance = resumed(instance.crash(), &text(""));
    told(&instance, "are in force again; --persist writes them");
    assert_eq!(state(&instance), ([true, false], 1));
    // What was resumed is a configuration like any other: it is changed, replaced as a whole, upgraded and saved.
    drain(&instance, 1, &[]);
    let whole = format!("state_dir = \"state\"\n{}", text("[limits]\nidle_timeout = \"9m\"\n"));
    let user = if rustix::process::geteuid().is_root() { "user = \"root\"\n" } else { "" };
    fs::write(instance.home.file("new.toml"), format!("{user}{whole}")).unwrap();
    ctl(&instance, &["apply", "new.toml"]);
    let upgraded = Upgraded::of(instance);
    upgraded.upgrade();
    upgraded.until_others_ended();
    assert_eq!(state(&upgraded.instance), ([false, false], 1));
    upgraded.instance.until("the new process has saved it", || {
        saved(&upgraded.instance.home).contains("idle_timeout").then_some(())
    });
    // And without --resume the file counts, here as ever.
    upgraded.stop();
}

#[test]
fn only_a_confirmed_change_is_resumed() {
    let instance = resumed(Home::new(), &text(""));
    drain(&instance, 0, &[]);
    drain(&instance, 1, &["--confirm", "1h"]);
    assert_eq!(state(&instance).0, [true, true]);
    let instance = resumed(instance.crash(), &text(""));
    assert_eq!(state(&instance), ([true, false], 1));
    drain(&instance, 1, &["--confirm", "1h"]);
    ctl(&instance, &["confirm"]);
    let instance = resumed(instance.crash(), &text(""));
    assert_eq!(state(&instance), ([true, true], 2));
    // What is written to the file is no difference any more, and what is taken back is none either.
    drain(&instance, 0, &["--persist"]);
    ctl(&instance, &["rollback", "1"]);
    assert_eq!(state(&instance).0, [true, true]);
    instance.stop();
}

#[test]
fn what_was_persisted_is_in_the_file_and_in_the_autosave() {
    let instance = resumed(Home::new(), &text(""));
    drain(&instance, 0, &[]);
    drain(&instance, 1, &["--persist"]);
    assert_eq!(state(&instance), ([true, true], 1));
    let path = instance.home.file("offramp.toml");
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains(&format!("\"{} drain\"] # both", SERVERS[1])), "{written}");
    // The next process finds the file as it was written, although it was started with another.
    let home = instance.crash();
    let own = written.split_once("state_dir = \"state\"\n").unwrap().1;
    let own = own.strip_prefix("user = \"root\"\n").unwrap_or(own).to_owned();
    let instance = resumed(home, &own);
    assert_eq!(state(&instance), ([true, true], 1));
    // Without --resume the file alone counts, and what was saved before is not resumed later either.
    let instance = instance.crash().run(&own);
    assert_eq!(state(&instance), ([false, true], 0));
    instance.until("it is saved", || saved(&instance.home).contains("# changes = 0").then_some(()));
    let instance = resumed(instance.crash(), &own);
    told(&instance, "has what is to be resumed");
    assert_eq!(state(&instance), ([false, true], 0));
    instance.stop();
}

/// `ctl persist` writes everything that the file lacks, and nothing over what somebody else has written.
#[test]
fn what_is_in_force_is_written_to_the_file_with_its_comments() {
    let instance = resumed(Home::new(), &text(""));
    let path = instance.home.file("offramp.toml");
    let persist = |more: &[&str]| output(instance.home.path(), &[&["ctl", "persist"], more].concat());
    assert_eq!(stdout(&persist(&[])), "The file has everything that is in force.\n");
    let before = fs::read_to_string(&path).unwrap();
    drain(&instance, 0, &[]);
    drain(&instance, 1, &[]);
    ctl(&instance, &["log-level", "debug"]);
    let shown = stdout(&persist(&["--dry-run"]));
    assert!(shown.starts_with("This would be written:\n") && shown.lines().count() == 4, "{shown}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let shown = stdout(&persist(&[]));
    assert!(shown.starts_with("Written to ") && shown.contains("enabled -> drain"), "{shown}");
    let written = fs::read_to_string(&path).unwrap();
    let drained = format!("[\"{} drain\", \"{} drain\"] # both", SERVERS[0], SERVERS[1]);
    assert!(written.contains("# Ours.\n") && written.contains(&drained), "{written}");
    assert!(written.contains("level = \"debug\"") && !written.contains("# digest"), "{written}");
    assert_eq!(state(&instance), ([true, true], 0));
    // A file that somebody has changed since stays as it is, and so does one that includes others.
    ctl(&instance, &["server", "enable", "shop", SERVERS[0]]);
    for (text, said) in [
        (format!("# mine\n{written}"), "was changed since it was read"),
        (format!("include = \"more.toml\"\n{written}"), "includes other files"),
    ] {
        fs::write(instance.home.file("more.toml"), "").unwrap();
        fs::write(&path, &text).unwrap();
        if said.starts_with("includes") {
            ctl(&instance, &["reload"]);
            ctl(&instance, &["server", "enable", "shop", SERVERS[0]]);
        }
        let refused = persist(&[]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    // A change that waits is not written before it is confirmed.
    drain(&instance, 0, &["--confirm", "1h"]);
    assert!(stderr(&persist(&[])).contains("waits to be confirmed"));
    instance.stop();
}

/// The changes of the API and those of the file are both in force; where both have changed the same, the file wins.
#[test]
fn a_file_that_was_changed_since_keeps_its_changes_and_those_in_force() {
    let instance = resumed(Home::new(), &text(""));
    drain(&instance, 0, &[]);
    drain(&instance, 1, &[]);
    let more = "[[route]]\nhost = \"new.example\"\nbackend = \"shop\"\n";
    let edited = format!("{}# edited\n{more}", text(""));
    let instance = resumed(instance.crash(), &edited);
    told(&instance, "are in force again");
    assert_eq!(state(&instance), ([true, true], 2));
    assert_eq!(ctl(&instance, &["status"])["routes"], 2);
    let unused = instance.home.file("state/running.unused.toml");
    assert!(!unused.exists());
    // What is in force has the comments of both, and is written to the file like any other.
    ctl(&instance, &["persist"]);
    let written = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    assert!(
        written.contains("# edited") && written.contains("# both") && written.contains("drain"),
        "{written}"
    );
    // A conflict: the file has another weight, and the API has one too.
    ctl(&instance, &["server", "weight", "shop", SERVERS[0], "3"]);
    ctl(&instance, &["log-level", "debug"]);
    let file = text("").replace(SERVERS[0], &format!("{} weight=7", SERVERS[0]));
    let instance = resumed(instance.crash(), &file);
    let line = told(&instance, "changes are not in force again");
    assert!(line.contains(SERVERS[0]) && line.contains("the file has another change of it"), "{line}");
    let shown = ctl(&instance, &["show", "backends"]);
    assert_eq!(shown["backends"][0]["servers"][0]["weight"], 7);
    let unwritten = ctl(&instance, &["status"])["config"]["unwritten"].clone();
    assert!(
        unwritten.to_string().contains("debug") && unwritten.as_array().unwrap().len() == 1,
        "{unwritten}"
    );
    instance.until("what is not in force is kept", || unused.exists().then_some(()));
    // And the next start names it, while it is there.
    let home = instance.crash();
    fs::remove_file(home.file("state/running.toml")).unwrap();
    let instance = resumed(home, &file);
    assert!(told(&instance, "nothing to resume").contains("running.unused.toml"));
    instance.stop();
}

/// The advice works from anywhere: the saved configuration is applied as it was in force, relative paths included.
#[test]
fn an_unused_autosave_can_be_planned_and_applied() {
    let home = Home::new();
    fs::create_dir(home.file("site")).unwrap();
    let site = "[[route]]\nhost = \"files.example\"\nroot = \"site\"\n";
    let instance = resumed(home, &text(site));
    drain(&instance, 0, &[]);
    let damaged = saved(&instance.home).replace("# digest", "# digits");
    let good = saved(&instance.home);
    let home = instance.crash();
    fs::write(home.file("state/running.toml"), damaged).unwrap();
    let instance = resumed(home, &text(site));
    told(&instance, "cannot resume");
    assert_eq!(state(&instance), ([false, false], 0));
    let unused = instance.home.file("state/running.unused.toml");
    instance.until("it is kept", || unused.exists().then_some(()));
    fs::write(&unused, good).unwrap();
    let plan = ctl(&instance, &["plan", "state/running.unused.toml"]);
    assert_eq!(plan["changes"].as_array().unwrap().len(), 1, "{plan}");
    ctl(&instance, &["apply", "state/running.unused.toml", "--persist"]);
    assert_eq!(state(&instance), ([true, false], 0));
    let written = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    assert!(written.contains("drain\"") && written.contains("root = \"site\""), "{written}");
    assert!(!written.contains("# digest") && !written.contains("#|"), "{written}");
    // A file that was edited and read is no change since.
    instance.home.configure(&text(&format!("# once more\n{site}")));
    ctl(&instance, &["reload"]);
    let instance = resumed(instance.crash(), &text(&format!("# and again\n{site}")));
    told(&instance, "has what is to be resumed");
    assert_eq!(state(&instance), ([false, false], 0));
    instance.stop();
}

#[test]
fn a_state_directory_that_cannot_be_written_refuses_no_change() {
    let home = Home::new();
    // Even root cannot replace it.
    fs::create_dir_all(home.file("state/running.toml/in-the-way")).unwrap();
    let instance = resumed(home, &text(""));
    told(&instance, "cannot resume");
    let unused = instance.home.file("state/running.unused.toml");
    let autosave = instance.home.file("state/running.toml");
    instance.until("it is saved", || autosave.is_file().then_some(()));
    assert!(unused.is_dir(), "it was put aside");
    assert!(!stdout(&output(instance.home.path(), &["ctl", "status"])).contains("not saved"));
    fs::remove_file(&autosave).unwrap();
    fs::rename(&unused, &autosave).unwrap();
    drain(&instance, 0, &[]);
    let done = ctl(&instance, &["server", "drain", "shop", SERVERS[1]]);
    assert!(done["warnings"].to_string().contains("not saved for `run --resume`"), "{done}");
    let status = ctl(&instance, &["status"]);
    assert!(status["config"]["unsaved"].as_str().unwrap().contains("running.toml: "), "{status}");
    assert!(stdout(&output(instance.home.path(), &["ctl", "status"])).contains("not saved"));
    assert_eq!(state(&instance).0, [true, true]);
    let lines = instance.process.lines(Source::Stderr);
    assert_eq!(lines.iter().filter(|line| line.contains("cannot be saved")).count(), 1, "{lines:?}");
    let page = get(&mut tcp(instance.metrics()).unwrap(), "/metrics").unwrap();
    assert!(page.lines().any(|line| line == "offramp_config_autosave_failures_total 2"), "{page}");
    fs::remove_dir_all(&autosave).unwrap();
    let done = ctl(&instance, &["log-level", "debug"]);
    assert_eq!(done["warnings"].as_array().unwrap().len(), 0, "{done}");
    told(&instance, "is saved again");
    assert!(ctl(&instance, &["status"])["config"]["unsaved"].is_null());
    let instance = resumed(instance.crash(), &text(""));
    assert_eq!(state(&instance).0, [true, true]);
    instance.stop();
}

#[test]
fn every_sandbox_lets_it_be_saved_and_resumed() {
    for mode in ["off", "on", "strict"] {
        let text = text(&format!("sandbox = \"{mode}\"\n"));
        let instance = resumed(Home::new(), &text);
        drain(&instance, 0, &[]);
        let instance = resumed(instance.crash(), &text);
        assert_eq!(state(&instance), ([true, false], 1), "{mode}");
        let lines = instance.process.lines(Source::Stderr);
        assert!(!lines.iter().any(|line| line.contains("cannot be saved")), "{lines:?}");
        instance.stop();
    }
}

#[test]
fn included_files_are_saved_as_they_were_read() {
    let home = Home::new();
    fs::write(home.file("more.toml"), "[[route]]\nhost = \"one.example\"\nbackend = \"shop\"\n").unwrap();
    let whole = text("include = \"more.toml\"\n");
    let instance = resumed(home, &whole);
    drain(&instance, 0, &[]);
    assert!(!saved(&instance.home).lines().any(|line| line.starts_with("include")));
    let instance = resumed(instance.crash(), &whole);
    assert_eq!(state(&instance), ([true, false], 1));
    assert_eq!(ctl(&instance, &["status"])["routes"], 2);
    let home = instance.crash();
    fs::write(home.file("more.toml"), "# nothing\n").unwrap();
    let instance = resumed(home, &whole);
    told(&instance, "are in force again");
    assert_eq!(state(&instance), ([true, false], 1));
    assert_eq!(ctl(&instance, &["status"])["routes"], 1);
    instance.stop();
}

#[test]
fn a_process_without_a_file_keeps_no_autosave() {
    let home = Home::new();
    let mut command =
        offramp(home.path(), &["to", "127.0.0.1:2", "--listen", "127.0.0.1:0", "--state-dir", "own"]);
    command.arg("--http");
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line("https://".into()), PATIENCE).unwrap();
    process.signal(Signal::TERM).unwrap();
    process.wait(PATIENCE).unwrap();
    assert!(home.file("own").is_dir() && !home.file("own/running.toml").exists());
}
