//! What the outside of a process tells: its metrics page, and what `/proc` says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::support::crowd::tcp;

/// The samples of a metrics page, by name and labels as they are written.
pub(crate) struct Page(pub(crate) BTreeMap<String, f64>);

impl Page {
    /// Fetches and parses `/metrics`.
    ///
    /// # Panics
    /// If a line is neither a comment nor a sample, or a sample occurs twice.
    #[track_caller]
    pub(crate) fn scrape(address: SocketAddr) -> Self {
        let (head, body) = ask(address, "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Self::parse(&body)
    }

    /// See [`Self::scrape`].
    #[track_caller]
    pub(crate) fn parse(body: &str) -> Self {
        let mut samples = BTreeMap::new();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(samples.insert(name.to_owned(), value).is_none(), "twice: {line}");
        }
        Self(samples)
    }

    /// One sample; 0 where there is none.
    pub(crate) fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// How many connections ended by this cause.
    pub(crate) fn closed(&self, cause: &str) -> f64 {
        let prefix = format!("offramp_connections_closed_total{{cause=\"{cause}\",");
        self.0.iter().filter(|(name, _)| name.starts_with(&prefix)).map(|(_, value)| value).sum()
    }
}

/// Sends a request and reads head and body of the answer until the connection ends.
#[track_caller]
pub(crate) fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = tcp(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head.to_owned(), body.to_owned())
}

/// The open file descriptors of a process.
pub(crate) fn descriptors(process: u32) -> BTreeSet<u64> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// Resident memory of a process without pages of files, in bytes: code is mapped again, 64 KiB at a time, as it first runs
/// after the start.
pub(crate) fn resident(process: u32) -> u64 {
    memory(process, "RssAnon:") + memory(process, "RssShmem:")
}

/// The most resident memory that a process has had, in bytes.
pub(crate) fn peak_resident(process: u32) -> u64 {
    memory(process, "VmHWM:")
}

fn memory(process: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// For how long the threads of a process were ready to run and had no core, in all.
pub(crate) fn delayed(process: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks.map(|task| delay(&task.unwrap().path().join("schedstat"))).sum()
}

/// The same for one thread, from its `schedstat`; nothing for one that has ended.
pub(crate) fn delay(schedstat: &Path) -> Duration {
    let text = fs::read_to_string(schedstat).unwrap_or_default();
    // Time on a core, time in a queue for one, turns; nanoseconds (proc(5), Documentation/scheduler/sched-stats).
    text.split_whitespace()
        .nth(1)
        .map_or(Duration::ZERO, |waited| Duration::from_nanos(waited.parse().unwrap()))
}

/// CPU time of a process on all cores so far, user and system. For a thread that runs the kernel gives a figure that may
/// be as old as the last tick: single differences are coarse, their mean is not.
pub(crate) fn cpu(process: u32) -> Duration {
    let id = Pid::from_raw(i32::try_from(process).unwrap());
    clock_getcpuclockid(id).unwrap().now().unwrap().into()
}
