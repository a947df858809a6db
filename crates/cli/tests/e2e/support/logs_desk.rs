//! `offramp logs` as tests use it: commands with their answers, and an independent count by Python.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use offramp_testkit::process::require;
use serde_json::Value;

use crate::support::instance::PATIENCE;
use crate::support::offramp::{offramp, stderr, stdout};

/// `offramp logs` with these arguments, in `home`.
pub(crate) fn command(home: &Path, arguments: &[&str]) -> Command {
    offramp(home, &[&["logs"], arguments].concat())
}

/// Runs it to its end.
pub(crate) fn output(home: &Path, arguments: &[&str]) -> Output {
    command(home, arguments).output().unwrap()
}

/// What it prints, which must succeed.
#[track_caller]
pub(crate) fn answer(home: &Path, arguments: &[&str]) -> String {
    let output = output(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// The rows that it answers with.
#[track_caller]
pub(crate) fn rows(home: &Path, arguments: &[&str]) -> Vec<Value> {
    let text = answer(home, &[arguments, &["--json"]].concat());
    match serde_json::from_str(&text) {
        Ok(Value::Array(rows)) => rows,
        _ => panic!("no array: {text}"),
    }
}

/// What it says when it refuses, which must be with this exit code.
#[track_caller]
pub(crate) fn refusal(home: &Path, arguments: &[&str], code: i32) -> String {
    let output = output(home, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
    stderr(&output)
}

/// Asks again until the answer is `right`.
#[track_caller]
pub(crate) fn until(home: &Path, arguments: &[&str], right: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = output(home, &[arguments, &["--json"]].concat());
        let rows = serde_json::from_str(&stdout(&output)).unwrap_or(Value::Null);
        match rows {
            Value::Array(rows) if right(&rows) => return rows,
            rows => assert!(Instant::now() < deadline, "{arguments:?}: {rows} {}", stderr(&output)),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program of Python's own with these arguments; gives what it prints, as JSON.
#[track_caller]
pub(crate) fn python(program: &str, arguments: &[&Path]) -> Value {
    let mut python = Command::new(require("python3", "python3"));
    let output = python.args(["-c", program]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Counts the lines of a `vhost` log with nothing of Offramp's: for each question its rows, as `offramp logs top`
/// gives them with `--json`, in no order.
pub(crate) const COUNT: &str = r#"
import collections, ipaddress, json, re, sys
line_of = re.compile(r'(\S+) - (\S+) \[[^]]+\] "(\S+) (\S+) [^"]+" (\d+) (\d+|-) "([^"]*)" "([^"]*)" "([^"]*)"')
names = ["page", "referrer", "host", "client", "status", "agent", "network"]
sums = {name: collections.defaultdict(lambda: [0, 0]) for name in names}
for line in open(sys.argv[1], encoding="utf-8"):
    client, _, method, target, status, sent, referrer, agent, host = line_of.match(line).groups()
    network = str(ipaddress.ip_network(client + "/24", strict=False))
    things = [(target.split("?")[0], host), None if referrer == "-" else referrer, host, client, int(status),
        None if agent == "-" else agent, network]
    for name, thing in zip(names, things):
        if thing is None:
            continue
        sums[name][thing][0] += 1
        sums[name][thing][1] += 0 if sent == "-" else int(sent)
answer = {}
for name in names:
    rows = []
    for thing, (requests, sent) in sums[name].items():
        row = {"page": thing[0], "host": thing[1]} if name == "page" else {name: thing}
        rows.append({**row, "requests": requests, "bytes": sent})
    answer[name] = rows
print(json.dumps(answer))
"#;

/// The lists that [`COUNT`] counts, and what a row of each is called.
pub(crate) const LISTS: [(&str, &str); 7] = [
    ("pages", "page"),
    ("referrers", "referrer"),
    ("hosts", "host"),
    ("clients", "client"),
    ("status", "status"),
    ("agents", "agent"),
    ("networks", "network"),
];

/// Compares every list of a store with the count of a `vhost` log.
#[track_caller]
pub(crate) fn assert_counts(home: &Path, store: &str, log: &Path) {
    let counted = python(COUNT, &[log]);
    for (list, thing) in LISTS {
        let mut rows = rows(home, &["top", list, "--limit", "100000", "--store", store]);
        let heaviest: Vec<u64> = rows.iter().filter_map(|row| row["requests"].as_u64()).collect();
        assert!(heaviest.is_sorted_by(|one, next| one >= next), "{list}: {heaviest:?}");
        let mut expected = counted[thing].as_array().unwrap().clone();
        expected.sort_by_key(Value::to_string);
        rows.sort_by_key(Value::to_string);
        assert_eq!(rows, expected, "{list}");
    }
}

/// Locks a store as another program would, until its standard input ends.
const HOLD: &str = "
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
store.execute('BEGIN IMMEDIATE')
print('held', flush=True)
sys.stdin.read()
store.execute('ROLLBACK')
";

/// Has another process lock a store in SQLite.
pub(crate) fn hold(store: &Path) -> Child {
    let mut holder = Command::new(require("python3", "python3"));
    holder.args(["-c", HOLD]).arg(store).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "held\n");
    holder
}

/// Has it give up the lock.
pub(crate) fn release(mut holder: Child) {
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}
