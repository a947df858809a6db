//! Whoever looks at events beside the sink.

use crate::samples;
use offramp_observe::{
    Event, EventFormat, Flusher, FlusherSettings, Log, Output, Rotation, SendOutcome, Tap,
};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// What a tap saw: kinds of events, and `flush` at the end of batches.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<&'static str>>>);

impl Seen {
    fn events(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|what| **what != "flush").count()
    }

    fn until(&self, events: usize) {
        let start = Instant::now();
        while self.events() < events {
            assert!(start.elapsed() < LIMIT, "waited in vain for {events} events");
            std::thread::yield_now();
        }
    }
}

impl Tap for Seen {
    fn take(&mut self, event: &Event) {
        self.0.lock().unwrap().push(event.kind());
    }

    fn flush(&mut self) {
        self.0.lock().unwrap().push("flush");
    }
}

fn settings(output: Output, taps: Vec<Box<dyn Tap>>) -> FlusherSettings {
    FlusherSettings { taps, ..FlusherSettings::new(1, output, EventFormat::Vhost, Log::silent()) }
}

#[test]
fn taps_see_every_event_whether_or_not_there_is_an_output() {
    let seen = [Seen::default(), Seen::default()];
    let taps = seen.iter().cloned().map(|tap| Box::new(tap) as Box<dyn Tap>).collect();
    let (flusher, mut senders) = Flusher::start(settings(Output::None, taps)).unwrap();
    assert_eq!(senders[0].send(Box::new(samples::request())), SendOutcome::Queued);
    assert_eq!(senders[0].send(Box::new(samples::ordinary())), SendOutcome::Queued);
    let tally = flusher.stop(LIMIT);
    assert_eq!((tally.written, tally.lost(), tally.pending()), (2, 0, 0));
    for seen in seen {
        let seen = seen.0.lock().unwrap();
        let events: Vec<_> = seen.iter().filter(|what| **what != "flush").collect();
        assert_eq!(events, [&"request", &"connection"]);
        assert_eq!(seen.last(), Some(&"flush"));
    }
}

#[test]
fn taps_come_and_go() {
    let (one, two) = (Seen::default(), Seen::default());
    let (flusher, mut senders) = Flusher::start(settings(Output::None, vec![Box::new(one.clone())])).unwrap();
    senders[0].send(Box::new(samples::request()));
    one.until(1);
    flusher.set_taps(vec![Box::new(two.clone())]);
    let start = Instant::now();
    while two.events() == 0 {
        // The command to change taps may come after the first of them.
        senders[0].send(Box::new(samples::request()));
        while flusher.monitor().tally().pending() > 0 {
            assert!(start.elapsed() < LIMIT);
            std::thread::yield_now();
        }
    }
    flusher.set_taps(Vec::new());
    assert_eq!(senders[0].send(Box::new(samples::request())), SendOutcome::Unwanted);
    flusher.redirect(Output::File("/dev/null".into()), EventFormat::Json).unwrap();
    assert_eq!(senders[0].send(Box::new(samples::request())), SendOutcome::Queued);
    flusher.redirect(Output::None, EventFormat::Json).unwrap();
    assert_eq!(senders[0].send(Box::new(samples::request())), SendOutcome::Unwanted);
    let tally = flusher.stop(LIMIT);
    assert_eq!((tally.lost(), tally.pending()), (0, 0));
}

#[test]
fn an_output_that_fails_takes_nothing_from_the_taps() {
    let seen = Seen::default();
    let (flusher, mut senders) =
        Flusher::start(settings(Output::File("/dev/full".into()), vec![Box::new(seen.clone())])).unwrap();
    for _ in 0..10 {
        senders[0].send(Box::new(samples::request()));
    }
    assert_eq!(flusher.stop(LIMIT).output_failed, 10);
    assert_eq!(seen.events(), 10);
}

#[test]
fn a_rotated_output_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let rotation = Rotation { size: 64 * 1024, keep: 1000 };
    let output = Output::Rotated(path, rotation);
    let (flusher, mut senders) =
        Flusher::start(FlusherSettings { capacity: 10_000, ..settings(output, Vec::new()) }).unwrap();
    for _ in 0..5_000 {
        assert_eq!(senders[0].send(Box::new(samples::request())), SendOutcome::Queued);
    }
    assert_eq!(flusher.stop(LIMIT).written, 5_000);
    let (mut files, mut lines) = (0, 0);
    for file in fs::read_dir(dir.path()).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(text.len() <= 65 * 1024, "{}", text.len());
        (files, lines) = (files + 1, lines + text.lines().count());
    }
    assert!(files > 10, "{files}");
    assert_eq!(lines, 5_000);
}
