//! What somebody sees who tries `offramp to`: at once what to open and who can connect, and then one short line for
//! each request. A terminal is one of `script`'s (bsdutils).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};

use offramp_testkit::process::{Process, Ready, Signal, Source, free_port, require};
use offramp_testkit::server::{Listen, Server, apps};
use rustix::process::{Pid, kill_process};

use crate::support::http_app::named;
use crate::support::instance::{Home, LIFE, PATIENCE, ask};
use crate::support::offramp::offramp;

/// Starts `offramp to` and waits until it has said all that it says by itself.
pub(crate) fn started(home: &Home, arguments: &[&str]) -> Process {
    let arguments = [&["to"][..], arguments, &["--state-dir", "state", "--workers", "1"]].concat();
    let process = Process::start(offramp(home.path(), &arguments), LIFE).unwrap();
    process.wait_for(&Ready::Line(" INFO  started ".to_owned()), PATIENCE).unwrap();
    process
}

pub(crate) fn stopped(process: &Process) {
    process.signal(Signal::TERM).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
}

/// What stands behind a word of the banner.
pub(crate) fn said(process: &Process, word: &str) -> String {
    let lines = [process.lines(Source::Stderr), process.lines(Source::Stdout)].concat();
    let found = lines.iter().find_map(|line| line.trim().strip_prefix(word)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no `{word}`:\n{}", process.transcript())).trim().to_owned()
}

#[test]
fn what_to_open_comes_before_everything_slow() {
    let home = Home::new();
    // Nothing is at the target, and nothing is looked up before the banner either.
    for target in ["unix:nobody.sock", "127.0.0.1:1", "nobody.invalid:80"] {
        let process = started(&home, &[target, "--listen", "0", "--verbose"]);
        let lines = process.lines(Source::Stderr);
        let at = |text: &str| lines.iter().position(|line| line.contains(text));
        let (open, measured) = (at("  open  ").unwrap(), at(" AEAD ").unwrap());
        assert!(open < measured, "{}", process.transcript());
        assert!(said(&process, "open").starts_with("https://localhost:"));
        assert!(said(&process, "mode").starts_with("tcp: "));
        assert!(at("this machine only; --public").is_some() && at("add --http").is_some());
        stopped(&process);
    }
    let process = started(&home, &["127.0.0.1:1", "--listen", "0", "--http"]);
    assert!(said(&process, "mode").starts_with("http: "));
    stopped(&process);
    assert!(!process.transcript().contains("AEAD"), "{}", process.transcript());
}

#[test]
fn a_port_is_open_to_this_machine_alone_in_both_families() {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let home = Home::new();
    // A port that was free a moment ago may be taken by another test.
    let served = (0..10).find_map(|_| {
        let port = free_port();
        let arguments = ["to", "127.0.0.1:1", "--state-dir", "state", "--listen", &format!(":{port}")];
        let process = Process::start(offramp(home.path(), &arguments), LIFE).unwrap();
        let ready = process.wait_for(&Ready::Line(" INFO  started ".to_owned()), PATIENCE);
        ready.is_ok().then_some((process, port))
    });
    let (process, port) = served.unwrap();
    let six: &[IpAddr] = if has_ipv6 { &[IpAddr::V6(Ipv6Addr::LOCALHOST)] } else { &[] };
    for ip in [&[IpAddr::V4(Ipv4Addr::LOCALHOST)][..], six].concat() {
        TcpStream::connect(SocketAddr::new(ip, port)).unwrap();
    }
    // Another address of the loopback is as good as another interface.
    assert!(TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), port)).is_err());
    let listening = said(&process, "listening");
    assert!(!listening.contains("[::]:") && listening.contains(&format!("127.0.0.1:{port}")), "{listening}");
    stopped(&process);
}

#[test]
fn a_server_is_left_alone_until_a_client_comes() {
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), apps::http).unwrap();
    let process = started(&home, &["unix:app.sock", "--listen", "0"]);
    assert_eq!(app.accepted(), 0);
    let client = curl(&home, &process, &["--silent"]);
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    assert_eq!(app.accepted(), 1);
    stopped(&process);
}

/// The line that the banner offers, with more arguments.
fn curl(home: &Home, process: &Process, more: &[&str]) -> Output {
    let mut command = Command::new(require("curl", "curl"));
    let line = said(process, "try");
    let words = line.strip_prefix("curl ").unwrap().split_whitespace();
    command
        .args(["-q", "--noproxy", "*", "--max-time", "20"])
        .args(words)
        .args(more)
        .current_dir(home.path());
    ask(command, b"", PATIENCE)
}

/// `offramp to` at a terminal, and its process id.
fn at_a_terminal(home: &Home, arguments: &str) -> (Process, Pid) {
    let mut command = Command::new(require("script", "bsdutils"));
    let to = "to unix:app.sock --listen 127.0.0.1:0 --state-dir state --workers 1";
    let line = format!("echo pid=$$; exec {} {to} {arguments}", env!("CARGO_BIN_EXE_offramp"));
    command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
    command
        .current_dir(home.path())
        .env("HOME", home.path())
        .env_remove("NOTIFY_SOCKET")
        .env("SHELL", "/bin/sh");
    let process = Process::start(command, LIFE).unwrap();
    process.wait_for(&Ready::Line(" INFO  started ".to_owned()), PATIENCE).unwrap();
    let lines = process.lines(Source::Stdout);
    let pid = lines.iter().find_map(|line| line.trim().strip_prefix("pid=")).unwrap();
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    (process, pid)
}

/// The line of an event that has this word, as the terminal got it.
fn shown(process: &Process, word: &str) -> String {
    process.wait_for(&Ready::Line(word.to_owned()), PATIENCE).unwrap();
    let lines = process.lines(Source::Stdout);
    lines.iter().find(|line| line.contains(word)).unwrap().trim_end().to_owned()
}

fn left(process: &Process, pid: Pid) {
    kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
}

#[test]
fn a_request_is_one_short_line_and_a_failed_handshake_says_what_to_do() {
    let home = Home::new();
    let _app = named(&Listen::Unix(home.file("app.sock")), "app");
    let (process, pid) = at_a_terminal(&home, "--http");
    let long = format!("/{}", "long/".repeat(60));
    for path in ["/hello?name=you", &long] {
        let output = curl(&home, &process, &["--silent", "--path-as-is", "--request-target", path]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let line = shown(&process, "GET localhost/hello");
    assert!(line.ends_with(" ms GET localhost/hello?name=you") || line.contains(" us GET "), "{line}");
    assert!(line.contains("Z 127.0.0.1       200 ") && line.chars().count() <= 100, "{line}");
    let line = shown(&process, "GET localhost/long");
    assert!(line.ends_with('…') && line.chars().count() == 100, "{line}");
    // A client that does not know the CA.
    let mut stranger = Command::new(require("curl", "curl"));
    stranger.args(["-q", "--silent", "--noproxy", "*", "--max-time", "20", &said(&process, "open")]);
    assert_eq!(ask(stranger, b"", PATIENCE).status.code(), Some(60));
    let line = shown(&process, "unknown_ca");
    assert!(line.contains("run `offramp ca`") && line.chars().count() <= 100, "{line}");
    left(&process, pid);
    assert!(!process.transcript().contains("offered_"), "{}", process.transcript());
}

#[test]
fn everything_is_shown_where_that_is_asked_for() {
    let home = Home::new();
    let _app = named(&Listen::Unix(home.file("app.sock")), "app");
    let (process, pid) = at_a_terminal(&home, "--http --verbose");
    let output = curl(&home, &process, &["--silent"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = shown(&process, "GET https://localhost/");
    assert!(line.contains(" user_agent=curl/") && line.contains(" id="), "{line}");
    left(&process, pid);
}
