//! Started as root, Offramp becomes `user` permanently and keeps no privileges.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt, chown};
use std::process::Command;

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::{Process, Ready, Source};

use crate::support::instance::{CERTIFICATE, Home, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr, stdout};
use crate::support::skipped::is_root_or_skipped;

/// The words behind `name:` in the status of a thread.
fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().split_whitespace().collect()
}

#[test]
fn no_thread_keeps_a_privilege() {
    let home = Home::new();
    let configuration = home.file("offramp.toml");
    // One that this process is not.
    let user = if rustix::process::geteuid().as_raw() == 65534 { "daemon" } else { "nobody" };
    let text = format!("state_dir = \"state\"\nuser = \"{user}\"\n{}", Home::one_route("127.0.0.1:1"));
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
    if !is_root_or_skipped("only root can become another user") {
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

/// With nothing but the admin socket in the state directory, whether Offramp makes it or finds one of root's.
#[test]
fn root_asks_the_admin_socket_of_the_user() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    for found in [false, true] {
        let home = Home::new();
        // The user must enter the directories above.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let state = home.file("state");
        if found {
            fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
        }
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n";
        let text = format!(
            "state_dir = \"state\"\nuser = \"nobody\"\n{listener}[[route]]\nserver = \"127.0.0.1:1\"\n"
        );
        let configuration = home.file("offramp.toml");
        fs::write(&configuration, text).unwrap();
        let mut command = offramp(home.path(), &["run", "--config"]);
        command.arg(configuration);
        let process = Process::start(command, LIFE).unwrap();
        process.wait_for(&Ready::Line(" admin ".into()), PATIENCE).unwrap();
        let status = output(home.path(), &["ctl", "--json", "status"]);
        assert!(status.status.success(), "{}\n{}", stderr(&status), process.transcript());
        assert!(stdout(&status).contains(&format!("\"pid\": {}", process.id())), "{}", stdout(&status));
        let level = output(home.path(), &["ctl", "log-level", "debug"]);
        assert!(level.status.success(), "{}", stderr(&level));
        let found = fs::metadata(&state).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (65534, 0o700), "nobody else enters it");
        let stopped = output(home.path(), &["ctl", "stop"]);
        assert!(stopped.status.success(), "{}", stderr(&stopped));
        assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
        assert!(!state.join("admin.sock").exists());
    }
}

/// What the unprivileged user has put where root works for a moment, before it becomes that user.
#[test]
fn root_follows_no_link_of_the_user() {
    if !is_root_or_skipped("only root can become another user") {
        return;
    }
    const USER: u32 = 65534;
    let routes = Home::one_route("127.0.0.1:1");
    let hash = format!("access_log = {{ hash = \"client\" }}\n{routes}");
    let local = routes.replace(CERTIFICATE, "[[certificate]]\nlocal = true\nnames = \"a.test\"\n");
    let log = format!("log = {{ output = \"state/log\" }}\n{routes}");
    // Where the link is, where it leads, and the configuration that has something written there. The number of the
    // process is that of the shell that becomes it.
    for (link, target, text) in [
        ("state/hash.new$$", "there", &hash),
        ("state/ca/.lock", "new", &local),
        ("state/ca", "folder", &local),
        ("state/log", "there", &log),
        ("state/log", "new", &log),
    ] {
        let (home, private) = (Home::new(), Home::new());
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| private.file(name);
        fs::set_permissions(private.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(at("there"), "as it was").unwrap();
        fs::create_dir(at("folder")).unwrap();
        let folder = home.file(link).parent().unwrap().to_owned();
        fs::create_dir_all(&folder).unwrap();
        for folder in [&home.file("state"), &folder] {
            chown(folder, Some(USER), Some(USER)).unwrap();
        }
        let configuration = home.file("offramp.toml");
        fs::write(&configuration, format!("state_dir = \"state\"\nuser = \"nobody\"\n{text}")).unwrap();
        let script = format!("ln -s \"$1\" {link}; chown -h {USER}:{USER} {link}; shift; exec \"$@\"");
        let own = offramp(home.path(), &["run", "--config"]);
        let mut command = Command::new("/bin/sh");
        command.current_dir(home.path()).arg("-c").arg(script).arg("sh").arg(at(target));
        command.arg(own.get_program()).args(own.get_args()).arg(&configuration);
        for (name, value) in own.get_envs() {
            value.map(|value| command.env(name, value));
        }
        let process = Process::start(command, LIFE).unwrap();
        if link.contains("hash") {
            process.wait_for(&Ready::Line("listening".into()), PATIENCE).unwrap();
        } else {
            assert!(!process.wait(PATIENCE).unwrap().success(), "{link}: {}", process.transcript());
            assert!(process.lines(Source::Stderr).iter().any(|line| line.contains(link)), "{link}");
        }
        assert_eq!(fs::read_to_string(at("there")).unwrap(), "as it was", "{link}");
        assert!(!at("new").exists(), "{link}");
        assert_eq!(fs::read_dir(at("folder")).unwrap().count(), 0, "{link}");
    }
}
