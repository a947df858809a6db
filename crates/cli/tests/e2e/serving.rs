//! `to`, `demo` and `run` as people use them: started, asked with curl, stopped by a signal.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, Signal, Source, require, temp_dir};

use crate::support::offramp::{offramp, stderr, stdout};

const LIFE: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts it and waits until it has said what to try.
fn started(home: &Path, arguments: &[&str]) -> Process {
    let process = Process::start(offramp(home, arguments), LIFE).unwrap();
    process.wait_for(&Ready::Line("  try  ".to_owned()), PATIENCE).unwrap();
    process
}

/// The `curl` line that it told, split as a shell would where nothing is quoted, with `more` added.
fn curl(home: &Path, process: &Process, more: &[&str]) -> Output {
    let lines = process.lines(Source::Stderr);
    let line = lines.iter().find_map(|line| line.trim().strip_prefix("try ")).unwrap();
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("curl"));
    let mut command = Command::new(require("curl", "curl"));
    // Without the machine's own curlrc and proxies.
    command.arg("-q").args(words).args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "*"]);
    command.args(more).current_dir(home).output().unwrap()
}

fn ended_well(process: &Process) {
    process.signal(Signal::TERM).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(0), "{}", process.transcript());
}

#[test]
fn the_demo_serves_its_page_under_the_line_that_it_tells() {
    let home = temp_dir();
    let demo = started(home.path(), &["demo", "--listen", "127.0.0.1:0", "--state-dir", "state"]);
    let page = curl(home.path(), &demo, &[]);
    assert!(page.status.success(), "{}", stderr(&page));
    let page = stdout(&page);
    for part in ["<title>Hello", "TLSv1.3", "<td>localhost", "<td>127.0.0.1:", "<th>user-agent<td>curl/"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    // Every connection is told, as JSON where no terminal reads.
    demo.wait_for(&Ready::Line("\"sni\":\"localhost\"".to_owned()), PATIENCE).unwrap();
    assert!(demo_directory(home.path()).is_some());
    ended_well(&demo);
    assert_eq!(demo_directory(home.path()), None);
}

/// The directory of the one demo whose temporary directory is `home`.
fn demo_directory(home: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.to_string_lossy().contains("offramp-demo-"))
}

#[test]
fn the_demo_echoes_a_large_body() {
    let home = temp_dir();
    let demo = started(home.path(), &["demo", "--listen", "127.0.0.1:0", "--state-dir", "state"]);
    let body: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(home.path().join("body"), &body).unwrap();
    let echo = curl(home.path(), &demo, &["--data-binary", "@body", "--request-target", "/echo"]);
    assert!(echo.status.success(), "{}", stderr(&echo));
    assert!(echo.stdout == body);
    let large = curl(home.path(), &demo, &["--request-target", "/large?bytes=30000000"]);
    assert_eq!(large.stdout.len(), 30_000_000, "{}", stderr(&large));
    ended_well(&demo);
}

#[test]
fn a_taken_port_is_told_with_the_way_out() {
    let home = temp_dir();
    let first = started(home.path(), &["demo", "--listen", "127.0.0.1:0", "--state-dir", "state"]);
    let lines = first.lines(Source::Stderr);
    let address = lines.iter().find_map(|line| line.trim().strip_prefix("listening ")).unwrap().trim();
    let second =
        offramp(home.path(), &["demo", "--listen", address, "--state-dir", "state"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = stderr(&second);
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
    assert!(said.contains("To listen elsewhere: --listen '127.0.0.1:9443'"), "{said}");
    ended_well(&first);
}

#[test]
fn to_stands_in_front_of_an_application() {
    let home = temp_dir();
    let demo = started(home.path(), &["demo", "--listen", "127.0.0.1:0", "--state-dir", "state"]);
    // The demo's own application would want a PROXY header: nothing but its socket is of use here.
    let socket = demo_directory(home.path()).unwrap().join("app.sock");
    let target = format!("unix:{}", socket.display());
    let arguments =
        ["to", &target, "--listen", "127.0.0.1:0", "--name", "app.home.arpa", "--name", "127.0.0.1"];
    let more = ["--send-proxy", "v1", "--workers", "1", "--state-dir", "state"];
    let to = started(home.path(), &[&arguments[..], &more].concat());
    let hello = curl(home.path(), &to, &["--request-target", "/hello"]);
    assert_eq!(stdout(&hello), "Hello from behind Offramp.\n", "{}", stderr(&hello));
    to.wait_for(&Ready::Line("\"sni\":\"app.home.arpa\"".to_owned()), PATIENCE).unwrap();
    ended_well(&to);
    ended_well(&demo);
}

#[test]
fn a_socket_that_is_not_there_yet_is_worth_a_word() {
    let home = temp_dir();
    let to =
        started(home.path(), &["to", "unix:later.sock", "--listen", "127.0.0.1:0", "--state-dir", "state"]);
    to.wait_for(&Ready::Line("Nothing listens at".to_owned()), PATIENCE).unwrap();
    ended_well(&to);
}

#[test]
fn a_certificate_that_is_not_there_is_named() {
    let home = temp_dir();
    let output = offramp(home.path(), &["to", "3000", "--listen", "127.0.0.1:0", "--cert", "no.pem"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no.pem"), "{}", stderr(&output));
}

#[test]
fn run_finds_the_configuration_in_its_directory() {
    let home = temp_dir();
    let text = "\
state_dir = \"state\"
[[listener]]
address = \"127.0.0.1:0\"
[[route]]
server = \"unix:app.sock\"
";
    std::fs::write(home.path().join("offramp.toml"), text).unwrap();
    let check = offramp(home.path(), &["check"]).output().unwrap();
    assert_eq!(check.status.code(), Some(0), "{}", stderr(&check));
    assert!(
        stdout(&check).contains("good: 1 listener, 1 certificate, 1 route, 0 backends"),
        "{}",
        stdout(&check)
    );
    let run = Process::start(offramp(home.path(), &["run"]), LIFE).unwrap();
    run.wait_for(&Ready::Line("started".to_owned()), PATIENCE).unwrap();
    ended_well(&run);
}

#[test]
fn check_reads_what_the_configuration_names() {
    let home = temp_dir();
    let text = "\
state_dir = \"state\"
[[certificate]]
cert = \"missing.pem\"
[[route]]
server = \"unix:app.sock\"
client_auth = { mode = \"required\", ca = \"nobody.pem\" }
";
    std::fs::write(home.path().join("offramp.toml"), text).unwrap();
    let check = offramp(home.path(), &["check"]).output().unwrap();
    assert_eq!(check.status.code(), Some(2));
    let said = stderr(&check);
    assert!(said.contains("missing.pem") && said.contains("nobody.pem"), "{said}");
    assert!(said.trim_end().ends_with("offramp.toml: 2 errors"), "{said}");
}

#[test]
fn the_effective_configuration_reads_back() {
    let home = temp_dir();
    // A user that is written down must exist, and the default one need not.
    let text = "user = \"nobody\"\nstate_dir = \"state\"\n[[route]]\nhost = \"localhost\"\nserver = \"127.0.0.1:3000\"\n";
    std::fs::write(home.path().join("offramp.toml"), text).unwrap();
    let print = |file: &str| {
        let output = offramp(home.path(), &["check", "--print", "-c", file]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let printed = print("offramp.toml");
    assert!(printed.contains("handshake_timeout = \"10s\""), "{printed}");
    std::fs::write(home.path().join("again.toml"), &printed).unwrap();
    assert_eq!(print("again.toml"), printed);
}

#[test]
fn check_shows_no_password() {
    let home = temp_dir();
    let check = |url: &str| {
        let text = format!(
            "user = \"nobody\"\nstate_dir = \"state\"\n[[route]]\nserver = \"127.0.0.1:3000\"\n\
             [log_store]\nurl = \"{url}\"\n"
        );
        std::fs::write(home.path().join("offramp.toml"), text).unwrap();
        let output = offramp(home.path(), &["check", "--print"]).output().unwrap();
        assert!(!stdout(&output).contains("s3cret"), "{}", stdout(&output));
        assert!(!stderr(&output).contains("s3cret"), "{}", stderr(&output));
        output
    };
    let output = check("postgres://log:s3cret@localhost/access");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("postgres://log:***@localhost/access"), "{}", stdout(&output));
    assert!(stderr(&output).contains("is printed as ***"), "{}", stderr(&output));
    // One with a mistake.
    let output = check("postgres://log:s3cret@localhost/with space");
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
}
