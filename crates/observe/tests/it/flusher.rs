//! The way of an event from a worker to the output, with outputs that work, block, and fail.

use crate::samples;
use offramp_observe::{
    EventFormat, EventSender, Flusher, FlusherSettings, IdSource, Level, Log, LogFormat, Output, SendOutcome,
};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn settings(workers: usize, output: Output) -> FlusherSettings {
    FlusherSettings::new(workers, output, EventFormat::Json, Log::silent())
}

/// A pipe whose writing end belongs to the flusher alone.
fn pipe(settings: impl FnOnce(Output) -> FlusherSettings) -> (PipeReader, Flusher, Vec<EventSender>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let (flusher, senders) = Flusher::start(settings(Output::File(path.into()))).unwrap();
    (reader, flusher, senders)
}

fn send(sender: &mut EventSender, ids: &mut IdSource, count: usize) -> usize {
    (0..count).filter(|_| sender.send(samples::bare(ids)) == SendOutcome::Queued).count()
}

fn ids_of(text: &str) -> Vec<String> {
    let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    events.map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

/// Waits for something that happens soon, and fails if it does not.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LIMIT, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn nothing_is_lost_while_rings_have_room() {
    const WORKERS: usize = 4;
    const EVENTS: usize = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events");
    let (flusher, senders) =
        Flusher::start(FlusherSettings { capacity: EVENTS, ..settings(WORKERS, Output::File(path.clone())) })
            .unwrap();
    std::thread::scope(|scope| {
        for (worker, mut sender) in senders.into_iter().enumerate() {
            scope.spawn(move || {
                let mut ids = IdSource::new(worker as u16, 0);
                assert_eq!(send(&mut sender, &mut ids, EVENTS), EVENTS);
            });
        }
    });
    let tally = flusher.stop(LIMIT);
    assert_eq!((tally.written, tally.lost(), tally.pending()), ((WORKERS * EVENTS) as u64, 0, 0));
    let ids = ids_of(&fs::read_to_string(path).unwrap());
    assert_eq!(ids.len(), WORKERS * EVENTS);
    assert_eq!(ids.into_iter().collect::<BTreeSet<_>>().len(), WORKERS * EVENTS);
}

#[test]
fn a_single_event_wakes_the_flusher_every_time() {
    let (reader, flusher, mut senders) = pipe(|output| settings(1, output));
    let mut lines = BufReader::new(reader).lines();
    let mut ids = IdSource::new(0, 0);
    for _ in 0..30 {
        let facts = samples::bare(&mut ids);
        let id = facts.id.to_string();
        assert_eq!(senders[0].send(facts), SendOutcome::Queued);
        assert!(lines.next().unwrap().unwrap().contains(&id));
    }
    assert_eq!(flusher.stop(LIMIT).written, 30);
}

#[test]
fn an_output_that_blocks_does_not_block_workers() {
    let dir = tempfile::tempdir().unwrap();
    let log_path = dir.path().join("log");
    let log = Log::open(Output::File(log_path.clone()), LogFormat::Journal, Level::Info).unwrap();
    let (mut reader, flusher, mut senders) =
        pipe(|output| FlusherSettings { capacity: 64, log, ..settings(1, output) });
    let monitor = flusher.monitor();
    let mut ids = IdSource::new(0, 0);
    // Far more than pipe, batch and ring hold together.
    let start = Instant::now();
    let mut sent = 0;
    while sent < 2_000 || monitor.tally().queue_full < 1_000 {
        send(&mut senders[0], &mut ids, 1);
        sent += 1;
        assert!(start.elapsed() < LIMIT);
    }
    // The output comes back: everything that was queued arrives, whole.
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let tally = flusher.stop(LIMIT);
    assert_eq!(tally.queued + tally.queue_full, sent);
    assert_eq!((tally.written, tally.pending()), (tally.queued, 0));
    assert_eq!(ids_of(&reading.join().unwrap()).len() as u64, tally.written);
    let told = fs::read_to_string(log_path).unwrap();
    let queue_full: u64 = told
        .lines()
        .map(|line| line.strip_prefix("<4>events were lost queue_full=").unwrap())
        .map(|rest| rest.split_once(' ').unwrap().0.parse::<u64>().unwrap())
        .sum();
    assert_eq!(queue_full, tally.queue_full, "{told}");
}

#[test]
fn an_output_that_blocks_for_ever_is_given_up_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let log_path = dir.path().join("log");
    let log = Log::open(Output::File(log_path.clone()), LogFormat::Journal, Level::Info).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let output = Output::File(format!("/proc/self/fd/{}", writer.as_raw_fd()).into());
    let (flusher, mut senders) =
        Flusher::start(FlusherSettings { capacity: 64, log, ..settings(1, output) }).unwrap();
    // Full before the first event.
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    let mut ids = IdSource::new(0, 0);
    until("the ring to fill", || {
        send(&mut senders[0], &mut ids, 1);
        flusher.monitor().tally().queue_full > 0
    });
    let start = Instant::now();
    let tally = flusher.stop(Duration::from_millis(100));
    assert!(start.elapsed() < LIMIT && tally.pending() > 0);
    assert_eq!(senders[0].send(samples::bare(&mut ids)), SendOutcome::Unwanted);
    let told = fs::read_to_string(log_path).unwrap();
    assert!(told.contains(&format!("the output blocked until the end events={}", tally.pending())), "{told}");
    drop(reader);
}

#[test]
fn an_output_that_fails_is_told_once_and_again_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (log_path, path) = (dir.path().join("log"), dir.path().join("events"));
    let log = Log::open(Output::File(log_path.clone()), LogFormat::Journal, Level::Info).unwrap();
    let full = Output::File("/dev/full".into());
    let (flusher, mut senders) = Flusher::start(FlusherSettings { log, ..settings(1, full) }).unwrap();
    let monitor = flusher.monitor();
    let mut ids = IdSource::new(0, 0);
    for round in 1..=3 {
        send(&mut senders[0], &mut ids, 5);
        until("the events to fail", || monitor.tally().output_failed == 5 * round);
    }
    flusher.redirect(Output::File(path.clone()), EventFormat::Json).unwrap();
    until("the output to be back", || {
        send(&mut senders[0], &mut ids, 1);
        until("the event to go somewhere", || monitor.tally().pending() == 0);
        monitor.tally().written > 0
    });
    let tally = flusher.stop(LIMIT);
    assert_eq!(tally.output_failed + tally.written, tally.queued);
    assert_eq!(ids_of(&fs::read_to_string(path).unwrap()).len() as u64, tally.written);
    let told = fs::read_to_string(log_path).unwrap();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(
        lines[0].starts_with("<3>events cannot be written; they are counted and dropped output=/dev/full")
    );
    let lost = format!("<4>events were lost queue_full=0 output_failed={}", tally.output_failed);
    assert_eq!(lines[1], lost);
}

#[test]
fn a_file_is_reopened_after_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("events"), dir.path().join("events.1"));
    let (flusher, mut senders) = Flusher::start(settings(1, Output::File(path.clone()))).unwrap();
    let mut ids = IdSource::new(0, 0);
    send(&mut senders[0], &mut ids, 3);
    until("the first events", || flusher.monitor().tally().written == 3);
    fs::rename(&path, &moved).unwrap();
    flusher.reopen();
    until("the new file", || path.exists());
    send(&mut senders[0], &mut ids, 2);
    assert_eq!(flusher.stop(LIMIT).written, 5);
    assert_eq!(ids_of(&fs::read_to_string(moved).unwrap()).len(), 3);
    assert_eq!(ids_of(&fs::read_to_string(path).unwrap()).len(), 2);
}

#[test]
fn without_an_output_events_are_unwanted() {
    let (flusher, mut senders) = Flusher::start(settings(1, Output::None)).unwrap();
    let mut ids = IdSource::new(0, 0);
    assert_eq!(senders[0].send(samples::bare(&mut ids)), SendOutcome::Unwanted);
    let tally = flusher.stop(LIMIT);
    assert_eq!((tally.queued, tally.lost()), (0, 0));
}

#[test]
fn an_output_that_cannot_be_opened_is_an_error_at_start() {
    let error = Flusher::start(settings(1, Output::File("/nonexistent/dir/events".into()))).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/dir/events"));
}

#[test]
fn an_idle_flusher_uses_no_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let output = Output::File(dir.path().join("events"));
    let name = "ev-idle-test";
    let (flusher, mut senders) =
        Flusher::start(FlusherSettings { thread_name: name, ..settings(1, output) }).unwrap();
    send(&mut senders[0], &mut IdSource::new(0, 0), 10);
    until("the events", || flusher.monitor().tally().written == 10);
    let mut task = None;
    until("the thread", || {
        task = fs::read_dir("/proc/self/task")
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name));
        task.is_some()
    });
    let task = task.unwrap();
    // A window in which nothing happens, once the flusher has fallen asleep. A timer of up to a second would
    // show in every window.
    until("an idle window", || {
        let before = activity(&task);
        std::thread::sleep(Duration::from_millis(1200));
        activity(&task) == before
    });
    let _ = flusher.stop(LIMIT);
}

/// CPU time in nanoseconds, and how often the thread slept.
fn activity(task: &Path) -> (u64, String) {
    let schedstat = fs::read_to_string(task.join("schedstat")).unwrap();
    let cpu = schedstat.split_ascii_whitespace().next().unwrap().parse().unwrap();
    let status = fs::read_to_string(task.join("status")).unwrap();
    let switches = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    (cpu, switches.to_owned())
}

#[test]
fn connections_without_a_line_are_told_to_the_log_by_cause() {
    let dir = tempfile::tempdir().unwrap();
    let (events, said) = (dir.path().join("events"), dir.path().join("log"));
    let log = Log::open(Output::File(said.clone()), LogFormat::Logfmt, Level::Info).unwrap();
    let settings = FlusherSettings::new(1, Output::File(events.clone()), EventFormat::Vhost, log);
    let (flusher, mut senders) = Flusher::start(settings).unwrap();
    for _ in 0..50 {
        senders[0].send(Box::new(samples::mismatched()));
        senders[0].send(Box::new(samples::ordinary()));
    }
    senders[0].send(Box::new(samples::request()));
    assert_eq!(flusher.stop(LIMIT).lost(), 0);
    assert_eq!(std::fs::read_to_string(events).unwrap().lines().count(), 1, "of the request");
    // The first are told at once, the rest when a minute is over or the end has come.
    let said = std::fs::read_to_string(said).unwrap();
    let count = |cause: &str| -> u64 {
        let lines = said.lines().filter(|line| line.contains(&format!(" cause={cause} ")));
        let counts = lines.filter_map(|line| line.split_once(" connections=")?.1.split(' ').next());
        counts.map(|count| count.parse::<u64>().unwrap()).sum()
    };
    assert_eq!((count("no_common_version"), count("client_closed")), (50, 50), "{said}");
    assert!(said.lines().count() <= 4, "{said}");
}
