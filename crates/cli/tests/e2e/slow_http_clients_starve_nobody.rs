//! `slowhttptest` in its four modes: hundreds of clients that send or read as slowly as they may.
//!
//! The tool's own probe must find the service available in every second, a healthy client beside it is
//! answered at once, and the slow ones are sent away when their time is over.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use offramp_testkit::process::require;

use crate::h2_follows_rfc9113::http_instance;
use crate::support::crowd::{connect, tcp};
use crate::support::figures::{delay, delayed};
use crate::support::instance::{Instance, ask, cause};
use crate::support::smuggling_backend::Backend;

/// Connections of the tool.
const CLIENTS: &str = "200";
/// How long the healthy client may ever wait, not counting the time for which it or Offramp was ready and had no
/// core, nor what the application keeps those waiting for who ask it directly: all of them and the tool may have to
/// share one core.
const AT_ONCE: Duration = Duration::from_secs(3);
/// How many requests there are in a visit.
const VISIT: u32 = 5;

/// Bounds that are over within a run of the tool, and long enough for a healthy client that has no core for a while.
const SHORT: &str = "workers = 2\n[limits]\nrequest_header_timeout = \"4s\"\nrequest_body_timeout = \"4s\"\n\
                     min_body_rate = \"1KiB\"\nidle_timeout = \"4s\"\nkeepalive_timeout = \"4s\"\n";

/// Runs the tool beside a healthy client; its report without colours, and the causes of all events.
fn under(mode: &[&str]) -> (String, Vec<String>) {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, SHORT);
    let address = instance.address();
    let over = Arc::new(AtomicBool::new(false));
    let application = backend.address().socket();
    let process = instance.process.id();
    let own = || delay(Path::new("/proc/thread-self/schedstat"));
    let beside = [
        asking(
            &over,
            move || own() + delayed(process),
            move || connect(&config, address, "localhost").expect("a healthy client is let in"),
        ),
        asking(&over, own, move || tcp(application).expect("the application accepts")),
    ];
    let mut tool = Command::new(require("slowhttptest", "slowhttptest"));
    // It ends when the last of its clients is sent away, if it looks; the other limits are for a slow machine.
    tool.args(mode).args(["-c", CLIENTS, "-r", "200", "-p", "20", "-v", "1"]);
    tool.args(["-u", &format!("https://{address}/bytes/3000000")]);
    let output = ask(tool, b"", Duration::from_secs(120));
    over.store(true, Ordering::SeqCst);
    let [(asked, worst), (_, direct)] = beside.map(|client| client.join().unwrap());
    assert!(asked >= 20, "only {asked} answers");
    assert!(
        worst < AT_ONCE + VISIT * direct,
        "the healthy client waited {worst:?}, without Offramp {direct:?}"
    );
    let report = plain(&String::from_utf8_lossy(&output.stdout));
    let causes = causes(instance);
    (report, causes)
}

/// A client that comes again and again until it is `over`; how often it asked, and its longest visit without the
/// time for which somebody was `delayed`.
fn asking<S: Read + Write>(
    over: &Arc<AtomicBool>,
    delayed: impl Fn() -> Duration + Send + 'static,
    mut connect: impl FnMut() -> S + Send + 'static,
) -> JoinHandle<(usize, Duration)> {
    let over = Arc::clone(over);
    thread::spawn(move || {
        let (mut asked, mut worst) = (0, Duration::ZERO);
        while !over.load(Ordering::SeqCst) {
            let (before, begun) = (delayed(), Instant::now());
            let mut stream = connect();
            for _ in 0..VISIT {
                healthy(&mut stream);
                asked += 1;
            }
            worst = worst.max(begun.elapsed().saturating_sub(delayed().saturating_sub(before)));
            thread::sleep(Duration::from_millis(20));
        }
        (asked, worst)
    })
}

/// One request of the healthy client.
fn healthy(stream: &mut (impl Read + Write)) {
    stream.write_all(b"GET /healthy HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a healthy client is heard");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        let mut chunk = [0; 1024];
        let n = stream.read(&mut chunk).expect("a healthy client is answered");
        assert!(n > 0, "{}", answer.escape_ascii());
        answer.extend_from_slice(&chunk[..n]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
}

/// Stops the instance; slow ones that are still there are of no interest to the drain.
fn causes(instance: Instance) -> Vec<String> {
    instance.stop().iter().map(|event| cause(event).to_owned()).collect()
}

/// The text without the sequences that colour it.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

/// The values of a line of the report, second by second.
fn values<'a>(report: &'a str, name: &str) -> Vec<&'a str> {
    report.lines().filter_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim())).collect()
}

/// The tool found the service there in every second, and `cause` ended at least as many of its clients.
#[track_caller]
fn was_harmless(mode: &[&str], name: &str, least: usize) {
    let (report, causes) = under(mode);
    let available = values(&report, "service available");
    assert!(!available.is_empty() && available.iter().all(|found| *found == "YES"), "{report}");
    let count = causes.iter().filter(|cause| *cause == name).count();
    assert!(count >= least, "{count} of {name} in {causes:?}\n{report}");
}

#[test]
fn slow_headers() {
    was_harmless(&["-l", "60", "-H", "-i", "1", "-x", "10"], "request_header_timeout", 150);
}

#[test]
fn slow_bodies() {
    was_harmless(&["-l", "60", "-B", "-i", "6", "-s", "8192", "-x", "10"], "request_body_timeout", 150);
}

#[test]
fn ranges_without_number() {
    // What the ranges mean is the application's business: it gets them, or a head that is too long is refused.
    was_harmless(&["-l", "60", "-R", "-t", "HEAD", "-a", "10", "-b", "3000"], "completed", 20);
}

#[test]
fn slow_readers() {
    was_harmless(
        &["-l", "25", "-X", "-w", "1", "-y", "64", "-n", "6", "-z", "5", "-k", "3"],
        "client_hung",
        100,
    );
}
