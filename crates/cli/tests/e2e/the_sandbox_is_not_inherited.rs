//! A process that is asked to take over believes the file of its configuration about its sandbox, and not the process before,
//! which may be in the hands of somebody else. Here the test is that process.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use offramp_net::handover::{Channel, memory};
use offramp_process::HANDOVER;
use offramp_testkit::process::{Process, temp_dir};
use serde_json::{Value, json};

use crate::support::instance::{CERTIFICATE, Home, LIFE, PATIENCE};
use crate::support::offramp::offramp;

const POLL: Duration = Duration::from_millis(5);
const LISTENER: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n";
const ROUTE: &str = "[[route]]\nserver = \"127.0.0.1:1\"\n";

/// Starts a process that takes over in this home, and gives the end of the conversation that the process before has.
fn heir(home: &Home, head: &str, user: Option<u32>) -> (Process, Channel) {
    let path = home.configure(&format!("{head}{CERTIFICATE}{LISTENER}{ROUTE}"));
    let mut command = offramp(home.path(), &["run", "--config"]);
    command.arg(path).env(HANDOVER, "1").env("HOME", "/nonexistent");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let (own, its) = Channel::pair().unwrap();
    let process = Process::start_reading(command, OwnedFd::from(its).into(), LIFE).unwrap();
    (process, own)
}

/// The same change as a whole text that is in force beside the file of this home.
fn whole(home: &Home, change: &str) -> Value {
    let path = home.file("offramp.toml");
    let (kind, keys) = change.split_once("\nname = \"\"\n[keys]\n").unwrap();
    let kind = kind.strip_prefix("add = ").unwrap().trim_matches('"');
    let text = format!("{}[[{kind}]]\n{keys}", fs::read_to_string(&path).unwrap());
    json!({ "running": { "text": text, "digest": offramp_config::sources(&path).digest }, "numbers": [0, 0] })
}

/// Hands over this state, and gives the answer.
fn answer(channel: &Channel, state: &Value) -> String {
    let state = state.to_string();
    let memory = memory(state.as_bytes()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    channel.send(b"offramp-handover 1", &[memory.as_fd()], deadline).unwrap();
    let message = channel.receive(deadline).unwrap().expect("an answer");
    String::from_utf8(message.text).unwrap()
}

#[test]
fn changes_that_the_file_does_not_have_reach_no_further_than_its_sandbox() {
    let outside = temp_dir();
    let root = outside.path().display();
    let files = format!("add = \"route\"\nname = \"\"\n[keys]\npath = \"/f\"\nroot = \"{root}\"\n");
    let port = "add = \"route\"\nname = \"\"\n[keys]\npath = \"/p\"\nserver = \"127.0.0.1:2\"\n".to_owned();
    let socket =
        format!("add = \"listener\"\nname = \"\"\n[keys]\nname = \"x\"\naddress = \"unix:{root}/x\"\n");
    for (mode, change, refused) in [
        ("strict", &files, Some("read")),
        ("strict", &port, Some("connect to port 2")),
        ("strict", &socket, Some("make the socket")),
        ("on", &socket, Some("make the socket")),
        ("on", &files, None),
        ("off", &socket, None),
    ] {
        for is_whole in [false, true] {
            let home = Home::new();
            let (process, channel) = heir(&home, &format!("sandbox = \"{mode}\"\n"), None);
            let state = match is_whole {
                false => json!({ "unwritten": [change], "numbers": [0, 0] }),
                true => whole(&home, change),
            };
            let said = answer(&channel, &state);
            match refused {
                Some(what) => {
                    let expected = format!("the sandbox does not let Offramp {what}");
                    assert!(
                        said.starts_with("refused ") && said.contains(&expected),
                        "{mode} {change}: {said}"
                    );
                    assert!(said.contains("write it to the file"), "{said}");
                    assert!(!process.wait(PATIENCE).unwrap().success());
                }
                None => assert_eq!(said, "ready", "{mode} {change}\n{}", process.transcript()),
            }
        }
    }
}

/// The keys of session tickets come with the hand-over. The kernel gives the files of a process in `/proc` to root once
/// its memory is hidden.
#[test]
fn memory_is_hidden_before_keys_come() {
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let user = rustix::process::geteuid().is_root().then_some(65534);
    let (process, channel) = heir(&home, "", user);
    let environment = format!("/proc/{}/environ", process.id());
    let deadline = Instant::now() + PATIENCE;
    // A process that has ended is root's as well.
    let has_ended = || process.wait(Duration::ZERO).is_ok();
    while fs::metadata(&environment).unwrap().uid() != 0 && !has_ended() {
        assert!(Instant::now() < deadline, "it waits for the hand-over, and is not hidden");
        std::thread::sleep(POLL);
    }
    assert!(!has_ended(), "it has ended before it was hidden:\n{}", process.transcript());
    drop(channel);
}
