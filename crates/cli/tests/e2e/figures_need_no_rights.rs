//! The figures of a process without any rights, whose sandbox is closed: what a library reads of the kernel when it is first
//! needed must have been read before, or be readable still.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use offramp_testkit::process::{Process, Ready, Signal, Source};

use crate::support::figures::Page;
use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::offramp::{offramp, output, stderr, stdout};

/// The `address=` of the line of the log that has `message`.
fn logged(process: &Process, message: &str) -> std::net::SocketAddr {
    process.wait_for(&Ready::Line(format!(" {message} ")), PATIENCE).unwrap();
    let lines = process.lines(Source::Stderr);
    let line = lines.iter().find(|line| line.contains(&format!(" {message} "))).unwrap();
    line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

fn all_figures_are_there(sandbox: &str) {
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let graphite = TcpListener::bind("127.0.0.1:0").unwrap();
    // Root becomes the user; everybody else has no rights in any case.
    let user = if rustix::process::geteuid().is_root() { "user = \"nobody\"\n" } else { "" };
    let text = format!(
        "{user}state_dir = \"state\"\nsandbox = \"{sandbox}\"\n\
         [metrics]\naddress = \"127.0.0.1:0\"\ngraphite = \"{}\"\ngraphite_interval = \"1s\"\n\
         [limits]\nprocess_memory = \"4GiB\"\n\
         [[listener]]\nmode = \"http\"\ntls = false\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = {{ body = \"x\" }}\n",
        graphite.local_addr().unwrap()
    );
    fs::write(home.file("offramp.toml"), text).unwrap();
    let process = Process::start(offramp(home.path(), &["run", "-c", "offramp.toml"]), LIFE).unwrap();
    let page = Page::scrape(logged(&process, "metrics"));
    assert!(page.get("process_resident_memory_bytes") > 1e6, "pages are counted in bytes");
    assert!(page.get("process_start_time_seconds") > 1e9, "ticks are counted in seconds");
    for name in ["process_open_fds", "process_max_fds", "process_cpu_seconds_total"] {
        assert!(page.get(name) > 0.0, "{name}");
    }
    assert_eq!(page.get("offramp_limit{limit=\"process_memory\"}"), f64::from(1u32 << 31) * 2.0);
    let (pushed, _) = graphite.accept().unwrap();
    pushed.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = BufReader::new(pushed).lines();
    let resident = lines.find(|line| line.as_ref().unwrap().contains("resident_memory")).unwrap().unwrap();
    assert!(resident.split(' ').nth(1).unwrap().parse::<f64>().unwrap() > 1e6, "{resident}");
    let shown = output(home.path(), &["ctl", "-c", "offramp.toml", "show", "counters"]);
    assert!(
        shown.status.success() && stdout(&shown).contains("process_resident_memory_bytes"),
        "{}",
        stderr(&shown)
    );
    assert_eq!(Page::scrape(logged(&process, "metrics")).0["offramp_panics_total"], 0.0);
    process.signal(Signal::TERM).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
    assert!(!process.transcript().contains("panicked"), "{}", process.transcript());
}

#[test]
fn all_figures_are_there_within_the_sandbox() {
    all_figures_are_there("on");
}

#[test]
fn all_figures_are_there_within_the_strict_sandbox() {
    all_figures_are_there("strict");
}
