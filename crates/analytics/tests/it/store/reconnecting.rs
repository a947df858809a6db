//! The sink that proxy, `ingest` and `--follow` have in common: whatever becomes of connections and locks, each
//! request is stored once.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use offramp_analytics::ingest::{Digest, EntrySink, FileRecord, FileState, Mark, StopSignal};
use offramp_analytics::{Error, Options, StoreSink, Writer};
use offramp_testkit::postgres::{self as server, Server};
use rusqlite::Connection;

use super::failures::{each_once, kept};
use super::requests::{BEGINNING, Request};
use super::wire_cutter::{Cut, WireCutter};

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The advisory lock of writers, as other programs see it.
const LOCK: i64 = 0x006f_6666_7261_6d70;

fn open(url: &str) -> (StoreSink, Receiver<String>, StopSignal) {
    let (tell, told) = channel();
    let stop = StopSignal::new().unwrap();
    let options = Options { busy_timeout: Duration::from_millis(50), ..Options::default() };
    let sink = StoreSink::open(url, &options, stop.clone()).unwrap();
    let tell = move |error: &Error| drop(tell.send(error.to_string()));
    (sink.on_trouble(tell), told, stop)
}

/// Adds requests whose bytes are their number.
fn add(sink: &mut StoreSink, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let request = Request {
            time_us: BEGINNING + i64::try_from(number).unwrap(),
            path: format!("/{}", number % 7).into_bytes(),
            bytes: number,
            ..Request::default()
        };
        sink.add(&request.entry()).unwrap();
    }
}

/// A file of which so much was read.
fn file(position: u64) -> FileRecord {
    FileRecord {
        number: 1,
        state: FileState::Reading,
        path: "/log".to_owned(),
        device: 1,
        inode: 2,
        position,
        modified: SystemTime::UNIX_EPOCH,
        head: 0,
        start: Digest::of(b"start"),
        end: Digest::of(b"end"),
    }
}

fn mark(file: &FileRecord) -> Option<Mark<'_>> {
    Some(Mark { source: "log", file })
}

#[test]
fn a_connection_that_breaks_in_commit_doubles_nothing_and_loses_nothing() {
    for cut in [Cut::BeforeCommit, Cut::AfterCommit, Cut::CommitOnReturn, Cut::Terminated] {
        let direct = server::shared().database();
        let cutter = WireCutter::start(&direct);
        let (mut sink, told, _stop) = open(&cutter.url());
        for round in 0..3 {
            cutter.arm(cut);
            // The second fills more than what is handed to the database at once.
            let next = round * 10_000;
            add(&mut sink, next..next + 10_000);
            // With a position of the caller's, and without.
            sink.commit(mark(&file(next)).filter(|_| round != 1)).unwrap();
        }
        assert_eq!(cutter.cuts(), 3, "{cut:?}");
        assert!(told.try_iter().count() >= 3, "{cut:?}");
        assert_eq!(kept(&direct), each_once(30_000), "{cut:?}");
        assert_eq!(sink.files("log").unwrap(), [file(20_000)], "{cut:?}");
        sink.finish(SystemTime::now()).unwrap();
    }
}

#[test]
fn a_server_that_is_started_again_is_found_again() {
    let mut server = Server::start();
    let url = server.database();
    let (mut sink, told, _stop) = open(&url);
    add(&mut sink, 0..1000);
    sink.commit(mark(&file(1))).unwrap();
    // Before a batch, and in the middle of one whose first part is in the transaction.
    for round in 1..3 {
        let next = round * 10_000;
        add(&mut sink, next - 9000..next - (round - 1) * 500);
        server.pause();
        let writing = std::thread::spawn(move || {
            sink.commit(mark(&file(2))).unwrap();
            add(&mut sink, next - (round - 1) * 500..next + 1000);
            sink.commit(mark(&file(3))).unwrap();
            sink
        });
        told.recv_timeout(PATIENCE).unwrap();
        server.resume();
        sink = writing.join().unwrap();
        assert_eq!(sink.files("log").unwrap(), [file(3)]);
    }
    assert_eq!(kept(&url), each_once(21_000));
}

#[test]
fn a_lock_is_waited_for_however_long_it_is_held() {
    let url = server::shared().database();
    let (mut sink, told, _stop) = open(&url);
    add(&mut sink, 0..1000);
    sink.commit(None).unwrap();
    let mut other = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    other.batch_execute(&format!("SELECT pg_advisory_lock({LOCK})")).unwrap();
    add(&mut sink, 1000..12_000);
    let writing = std::thread::spawn(move || {
        sink.commit(mark(&file(7))).unwrap();
        sink
    });
    // More than one attempt fails: a transaction that could not begin must not be in the way of the next.
    for _ in 0..3 {
        let said = told.recv_timeout(PATIENCE).unwrap();
        assert!(said.contains("held by another process") && said.contains("55P03"), "{said}");
    }
    other.batch_execute(&format!("SELECT pg_advisory_unlock({LOCK})")).unwrap();
    let mut sink = writing.join().unwrap();
    assert_eq!(sink.files("log").unwrap(), [file(7)]);
    assert_eq!(kept(&url), each_once(12_000));
}

#[test]
fn a_writer_that_could_not_begin_can_begin_later() {
    let url = server::shared().database();
    let options = Options { busy_timeout: Duration::from_millis(50), ..Options::default() };
    let mut writer = Writer::open(&url, &options).unwrap();
    let mut other = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    other.batch_execute(&format!("SELECT pg_advisory_lock({LOCK})")).unwrap();
    for _ in 0..2 {
        writer.add(&Request::default().entry()).unwrap();
        assert!(matches!(writer.commit(), Err(Error::Busy(_))));
    }
    other.batch_execute(&format!("SELECT pg_advisory_unlock({LOCK})")).unwrap();
    writer.add(&Request::default().entry()).unwrap();
    writer.commit().unwrap();
    assert_eq!(kept(&url).0, 1);
}

#[test]
fn a_file_that_is_locked_is_waited_for_until_it_is_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.db");
    let url = format!("sqlite:{}", path.display());
    let (mut sink, told, stop) = open(&url);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    add(&mut sink, 0..10_000);
    let writing = std::thread::spawn(move || {
        let refused = sink.commit(None);
        (sink, refused)
    });
    told.recv_timeout(PATIENCE).unwrap();
    stop.request();
    let (mut sink, refused) = writing.join().unwrap();
    assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
    assert_eq!(kept(&url).0, 0);
    other.execute_batch("COMMIT").unwrap();
    // Nothing was forgotten.
    sink.commit(None).unwrap();
    assert_eq!(kept(&url), each_once(10_000));
}
