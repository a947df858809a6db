//! What the process forbids itself after the start, and who does it in its place.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, Ready, Signal, Source};
use offramp_testkit::server::{Listen, Server, apps};
use rustix::process::{Pid, kill_process};

use crate::support::crowd::{connect, get, trusting};
use crate::support::instance::{Home, Instance, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr};
use crate::support::skipped::{is_root_or_skipped, skipped};

const POLL: Duration = Duration::from_millis(5);

/// A field of the status of a process (proc_pid_status(5)).
fn status(process: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// The processes that this one has started.
fn children(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn serves(instance: &Instance) {
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
}

#[test]
fn a_helper_outlives_signals_and_ends_with_its_process() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = Instance::before(app.address());
    let process = instance.process.id();
    assert_eq!(status(process, "NoNewPrivs").unwrap(), "1");
    let [helper] = children(process)[..] else { panic!("{:?}", children(process)) };
    assert_eq!(status(helper, "Name").unwrap(), "offramp-helper");
    assert_eq!(status(helper, "NoNewPrivs").unwrap(), "0", "what it starts is a process like the first");
    assert_eq!(status(helper, "Threads").unwrap(), "1");
    // As `systemctl kill` and a terminal send them to all processes of a service.
    let id = i32::try_from(helper).ok().and_then(Pid::from_raw).unwrap();
    for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::USR2] {
        kill_process(id, signal).unwrap();
    }
    serves(&instance);
    assert_eq!(children(process), [helper]);
    let line = instance.until("the line", || {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains(" sandbox "))
    });
    assert!(line.contains("core_dumps=none") && line.contains("new_privileges=none"), "{line}");
    instance.stop();
    let deadline = Instant::now() + PATIENCE;
    // Dead, and waited for by whoever has it now or not.
    while status(helper, "Name").is_some_and(|name| name == "offramp-helper")
        && status(helper, "State").is_some_and(|state| !state.starts_with('Z'))
    {
        assert!(Instant::now() < deadline, "the helper lives on");
        std::thread::sleep(POLL);
    }
}

#[test]
fn nothing_is_forbidden_where_the_configuration_says_so() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let text = format!("sandbox = \"off\"\n{}", Home::one_route(app.address()));
    let instance = Home::new().run(&text);
    assert_eq!(status(instance.process.id(), "NoNewPrivs").unwrap(), "0");
    assert_eq!(children(instance.process.id()), [0; 0]);
    serves(&instance);
    assert!(!instance.process.lines(Source::Stderr).iter().any(|line| line.contains(" sandbox ")));
    instance.stop();
}

/// Started as root, and root from then on: it has few rights of root's, and says that it stays.
#[test]
fn root_keeps_the_rights_that_are_needed() {
    let is_user = |line: &str| line.starts_with("offramp:");
    if !is_root_or_skipped("only root can stay root") {
        return;
    }
    if fs::read_to_string("/etc/passwd").unwrap().lines().any(is_user) {
        return skipped("there is a user `offramp`, whom root becomes");
    }
    // CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_BIND_SERVICE; and CAP_CHOWN, to write the file of another user's.
    for (owner, expected) in [(0, "0000000000000406"), (65534, "0000000000000407")] {
        let home = Home::new();
        let path = home.configure(&Home::one_route("127.0.0.1:1"));
        let text = fs::read_to_string(&path).unwrap().replace("user = \"root\"\n", "");
        fs::write(&path, text).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        let mut command = offramp(home.path(), &["run", "--config"]);
        command.arg(&path);
        let process = Process::start(command, LIFE).unwrap();
        process.wait_for(&Ready::Line(" admin ".into()), PATIENCE).unwrap();
        for set in ["CapPrm", "CapEff"] {
            assert_eq!(status(process.id(), set).unwrap(), expected, "{}", process.transcript());
        }
        let lines = process.lines(Source::Stderr);
        let is_said = |text: &str| lines.iter().any(|line| line.contains(text));
        assert!(is_said("INFO  staying root") && is_said(" capabilities=needed "), "{lines:?}");
        let done = output(home.path(), &["ctl", "log-level", "debug", "--persist"]);
        assert!(done.status.success(), "{}", stderr(&done));
        assert!(fs::read_to_string(&path).unwrap().contains("debug"));
        assert_eq!(fs::metadata(&path).unwrap().uid(), owner);
        let stopped = output(home.path(), &["ctl", "stop"]);
        assert!(stopped.status.success(), "{}", stderr(&stopped));
        process.wait(PATIENCE).unwrap();
    }
}
