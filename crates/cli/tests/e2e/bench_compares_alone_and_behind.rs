//! `offramp bench`: an application alone and behind Offramp, and what is refused.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Process, free_address, temp_dir};
use offramp_testkit::server::{Listen, Server, Stream, apps};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::instance::{LIFE, PATIENCE};
use crate::support::offramp::offramp;

/// A short comparison, whose temporary files are in `folder`.
fn bench(folder: &Path, arguments: &[&str]) -> Command {
    offramp(folder, &[&["bench"], arguments].concat())
}

fn outcome(mut command: Command) -> (Output, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

const SHORT: [&str; 6] = ["--rate", "40", "--rounds", "1", "--time", "500ms"];

#[test]
fn both_are_measured_and_nothing_stays() {
    let folder = temp_dir();
    let tcp = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let socket = folder.path().join("app.sock");
    let unix = Server::start(&Listen::Unix(socket.clone()), apps::http).unwrap();
    let urls = [
        (format!("http://{}/a?b=c", tcp.address()), vec![]),
        (format!("unix:{}", socket.display()), vec!["--path", "/a?b=c"]),
    ];
    for (url, more) in urls {
        let arguments = [&[&url[..], "--json", "--svg", "picture.svg"], &more[..], &SHORT].concat();
        let (output, said) = outcome(bench(folder.path(), &arguments));
        assert!(output.status.success(), "{url}: {said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        for arrangement in ["alone", "behind"] {
            let of = &report[arrangement];
            assert_eq!(
                (&of["answered"], &of["failed"], &of["status_4xx"]),
                (&20.into(), &0.into(), &0.into()),
                "{url}: {report:#}"
            );
            assert!(of["p50_us"].as_u64().unwrap() > 0, "{report:#}");
        }
        let cores = |arrangement: &str| report[arrangement]["offramp_cores"].as_f64().unwrap();
        assert!(cores("alone") <= cores("behind"), "it is idle while the application is alone: {report:#}");
        assert!(
            report["says"].as_str().unwrap().starts_with("At 40 requests a second half of them"),
            "{report:#}"
        );
        let picture = std::fs::read_to_string(folder.path().join("picture.svg")).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("99.9 % within"), "{picture}");
        std::fs::remove_file(folder.path().join("picture.svg")).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["app.sock"], "{said}");
    }
    assert!(unix.accepted() > 2 && tcp.accepted() > 2);
}

#[test]
fn a_rate_is_found_and_the_result_is_told_in_words() {
    let folder = temp_dir();
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let url = format!("http://{}", app.address());
    let (output, said) =
        outcome(bench(folder.path(), &[&url, "--connections", "4", "--rounds", "1", "--time", "300ms"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    for part in [
        "200 with 8 bytes",
        "99 % answered within",
        "behind Offramp, which speaks TLS to the clients",
        "of a core for that",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Answers the first request of each connection, and says nothing more.
fn falls_silent(mut stream: Stream) {
    let mut chunk = [0; 4096];
    if let Ok(1..) = stream.read(&mut chunk) {
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
    while let Ok(1..) = stream.read(&mut chunk) {}
}

#[test]
fn an_application_that_falls_silent_is_told() {
    let folder = temp_dir();
    let app = Server::start(&Listen::Ipv4, falls_silent).unwrap();
    let url = format!("http://{}", app.address());
    let arguments = [&[&url[..], "--connections", "2", "--json"], &SHORT[..]].concat();
    let (output, said) = outcome(bench(folder.path(), &arguments));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert!(report["alone"]["failed"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["says"].as_str().unwrap().contains("failed alone"), "{report:#}");
}

#[test]
fn refusals_say_what_to_do() {
    let folder = temp_dir();
    let nobody = format!("http://{}/", free_address());
    let cases: [(&[&str], i32, &str); 9] = [
        (&[&nobody], 1, "Start the application first"),
        (&["unix:/no/such.sock"], 1, "unix:/no/such.sock does not answer"),
        (&["http://192.0.2.1/"], 2, "--remote 192.0.2.1"),
        (&["http://192.0.2.1/", "--remote", "192.0.2.2"], 2, "--remote 192.0.2.1"),
        (&["http://127.0.0.1/", "--path", "/a"], 2, "part of the URL"),
        (&["unix:/a.sock", "--path", "a"], 2, "begins with /"),
        (&["http://127.0.0.1/", "--cacert", "ca.pem"], 2, "for https://"),
        (&["https://127.0.0.1:1/", "--cacert", "missing.pem"], 2, "missing.pem"),
        (&["127.0.0.1:80"], 2, "write http://127.0.0.1:3000/"),
    ];
    for (arguments, code, words) in cases {
        let (output, said) = outcome(bench(folder.path(), arguments));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A comparison that has begun.
fn begun(folder: &Path, app: &Server) -> Process {
    let url = format!("http://{}", app.address());
    let process = Process::start(bench(folder, &[&url, "--rate", "20", "--time", "30s"]), LIFE).unwrap();
    until("requests", &process, || (app.accepted() >= 2).then_some(()));
    process
}

fn until<T>(what: &str, process: &Process, look: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "no {what}: {}", process.transcript());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_offramp_in_front_does_not_outlive_it() {
    let folder = temp_dir();
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let process = begun(folder.path(), &app);
    process.signal(Signal::TERM).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(1), "{}", process.transcript());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_offramp_in_front_ends_where_it_is_killed() {
    let folder = temp_dir();
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let process = begun(folder.path(), &app);
    // Its own folder is in the command line of the Offramp in front, which nothing else has.
    let of_folder = || {
        let marker = folder.path().display().to_string();
        let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let path = entry.ok()?.path();
            let line = std::fs::read(path.join("cmdline")).ok()?;
            String::from_utf8_lossy(&line).contains(&marker).then_some(path)
        });
        lines.count()
    };
    until("Offramp in front", &process, || (of_folder() >= 1).then_some(()));
    process.signal(Signal::KILL).unwrap();
    process.wait(PATIENCE).unwrap();
    until("end of the Offramp in front", &process, || (of_folder() == 0).then_some(()));
}
