//! SIGUSR2 and the admin socket: the process that accepts connections answers on it, and no other takes it away.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use offramp_testkit::process::{Process, Source};
use offramp_testkit::server::{Listen, Server, apps};
use serde_json::Value;

use crate::support::crowd::{close, connect, get, trusting, until};
use crate::support::instance::{Home, LIFE};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::upgrade::Upgraded;

/// What `offramp ctl` answers in JSON.
pub(crate) fn ctl(upgraded: &Upgraded, arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["ctl", "--json"].iter().chain(arguments).copied().collect();
    let done = output(upgraded.instance.home.path(), &all);
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    serde_json::from_str(&stdout(&done)).unwrap()
}

#[test]
fn ctl_upgrade_says_what_came_of_it() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = Home::one_route(app.address());
    let upgraded = Upgraded::of(Home::new().run(&text));
    let instance = &upgraded.instance;
    let by_ctl = || output(instance.home.path(), &["ctl", "--admin", "unix:state/admin.sock", "upgrade"]);
    instance.home.configure(&format!("{text}[limits]\nidle_timout = 1\n"));
    let refused = by_ctl();
    assert_eq!(refused.status.code(), Some(1));
    // In one line, as a reload says it.
    let said = stderr(&refused);
    assert!(said.contains("serves on: ") && said.contains("offramp.toml:"), "{said}");
    assert!(said.contains("unknown key `idle_timout`") && said.contains("idle_timeout"), "{said}");
    assert!(!said.contains("-->") && !said.contains(" | ") && said.trim_end().lines().count() == 1, "{said}");
    assert_eq!(ctl(&upgraded, &["status"])["pid"], upgraded.current());
    instance.home.configure(&text);
    // One that watches does not hold up the answer.
    let watching = Process::start(offramp(instance.home.path(), &["ctl", "watch"]), LIFE).unwrap();
    for _ in 0..2 {
        let mut said = String::new();
        upgraded.upgrade_by(|| {
            let done = by_ctl();
            assert!(done.status.success(), "{}", stderr(&done));
            said = stdout(&done);
        });
        assert!(said.starts_with(&format!("Process {} has taken over after ", upgraded.current())), "{said}");
        upgraded.until_others_ended();
    }
    drop(watching);
    upgraded.stop();
}

#[test]
fn the_new_process_answers_and_the_old_one_leaves_the_socket_alone() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = Home::one_route(app.address());
    let upgraded = Upgraded::of(Home::new().run(&text));
    let instance = &upgraded.instance;
    let socket = instance.home.file("state/admin.sock");
    let first = fs::symlink_metadata(&socket).unwrap();
    assert_eq!(first.mode() & 0o777, 0o660);
    let mut watching = offramp(instance.home.path(), &["ctl", "watch", "--kind", "change"]);
    watching.arg("--json");
    let watching = Process::start(watching, LIFE).unwrap();
    let config = trusting(&instance.home.ca.certificate());
    // The level passes over, so that the second process is to have another one.
    for level in ["debug", "info"] {
        assert_eq!(ctl(&upgraded, &["status"])["pid"], upgraded.current());
        // It keeps the process before alive.
        let mut kept = connect(&config, instance.address(), "localhost").unwrap();
        assert_eq!(get(&mut kept, "/kept").unwrap(), "hello /kept\n");
        upgraded.upgrade();
        // Each of several: not one of them may come to the process before.
        for _ in 0..5 {
            let status = ctl(&upgraded, &["status"]);
            assert_eq!(
                (&status["pid"], &status["config"]["version"]),
                (&upgraded.current().into(), &1.into())
            );
        }
        assert_eq!(ctl(&upgraded, &["log-level", level])["version"], 2);
        assert_eq!(get(&mut kept, "/kept").unwrap(), "hello /kept\n");
        close(kept).unwrap();
        upgraded.until_others_ended();
        assert_eq!(fs::symlink_metadata(&socket).unwrap().ino(), first.ino());
        assert_eq!(ctl(&upgraded, &["status"])["config"]["version"], 2);
    }
    // Who watches is with the last process: no other had a third version.
    let mut levels = ["info", "debug"].iter().cycle();
    until("a change that is seen over the upgrades", || {
        ctl(&upgraded, &["log-level", levels.next().unwrap()]);
        let lines = watching.lines(Source::Stdout);
        let version = |line: &String| serde_json::from_str::<Value>(line).unwrap()["version"].as_u64();
        lines.iter().any(|line| version(line) >= Some(3)).then_some(())
    });
    // One that a new configuration does not want goes with the process that had it.
    instance.home.configure(&format!("[admin]\nenabled = false\n{text}"));
    upgraded.upgrade();
    upgraded.until_others_ended();
    assert!(!socket.exists());
    let nobody = output(instance.home.path(), &["ctl", "status"]);
    assert!(stderr(&nobody).contains("no Offramp listens at"), "{}", stderr(&nobody));
    instance.home.configure(&text);
    upgraded.upgrade();
    assert_eq!(ctl(&upgraded, &["status"])["pid"], upgraded.current());
    drop(watching);
    upgraded.stop();
    assert!(!socket.exists(), "the last process takes it away");
}
