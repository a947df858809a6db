//! Started as root, Offramp becomes `user` permanently and keeps no privileges.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::{Process, Ready, Source};

use crate::instance::{Home, LIFE, PATIENCE};
use crate::offramp::offramp;

/// The words behind `name:` in the status of a thread.
fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().split_whitespace().collect()
}

#[test]
fn no_thread_keeps_a_privilege() {
    let home = Home::new();
    let configuration = home.file("offramp.toml");
    let text = format!("state_dir = \"state\"\nuser = \"nobody\"\n{}", Home::one_route("127.0.0.1:1"));
    fs::write(&configuration, text).unwrap();
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.arg(configuration);
    let process = Process::start(command, LIFE).unwrap();
    if !rustix::process::geteuid().is_root() {
        // Nobody else can switch, and Offramp says so.
        process.wait_for(&Ready::Line("the user is not switched".into()), PATIENCE).unwrap();
        return;
    }
    process.wait_for(&Ready::Line("listening".into()), PATIENCE).unwrap();
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{}/task", process.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let [uids, gids] = ["Uid", "Gid"].map(|name| field(&status, name));
        assert!(uids.iter().chain(&gids).all(|id| *id == "65534"), "{status}");
        assert_eq!(field(&status, "Groups"), ["65534"], "{status}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(&status, set), ["0000000000000000"], "{status}");
        }
        threads += 1;
    }
    assert!(threads >= 2, "{threads}");
}

#[test]
fn a_key_that_only_root_can_read_is_told_with_its_consequence_and_remedy() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    let files = home.ca.issue("own", &Leaf::server(Key::P256, &["localhost"])).unwrap();
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "state_dir = \"state\"\nuser = \"nobody\"\n[[certificate]]\ncert = \"{}\"\nkey = \"{}\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"127.0.0.1:1\"\n",
        files.chain.display(),
        files.key.display()
    );
    let configuration = home.file("offramp.toml");
    fs::write(&configuration, text).unwrap();
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.arg(configuration);
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line("listening".into()), PATIENCE).unwrap();
    let lines = process.lines(Source::Stderr);
    let key = files.key.display().to_string();
    let told = lines.iter().find(|line| line.contains("cannot read") && line.contains(&key));
    let told = told.unwrap_or_else(|| panic!("{}", process.transcript()));
    assert!(told.contains("a renewed one will not be") && told.contains("chown nobody"), "{told}");
}
