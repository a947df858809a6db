//! What a store may suffer, while the proxy hands events over: they wait, and come in order; nothing is lost or
//! doubled.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use offramp_analytics::background::StoreStats;
use offramp_analytics::{
    Background, BackgroundSettings, Error, Options, QuerySettings, Questions, SqlValue, StoreNotice, Writer,
};
use offramp_observe::Tap;
use offramp_testkit::process::{Process, Ready, Signal};
use rusqlite::Connection;

use super::requests::{BEGINNING, Request};
use super::wire_cutter::{Cut, WireCutter};
use offramp_testkit::postgres::{self as server, Server};

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The environment variable that tells a child of a test what to do, and with which store.
const TASK: &str = "OFFRAMP_TEST_STORE";

fn settings(
    url: &str,
    directory: &Path,
    spool_limit: u64,
    notify: Box<dyn FnMut(&StoreNotice) + Send>,
) -> BackgroundSettings {
    let options = Options { busy_timeout: Duration::from_millis(50), ..Options::default() };
    BackgroundSettings { url: url.to_owned(), options, spool: directory.join("spool"), spool_limit, notify }
}

fn start(url: &str, directory: &Path, spool_limit: u64) -> (Background, Receiver<String>) {
    let (sender, notices) = channel();
    let notify = Box::new(move |notice: &StoreNotice| drop(sender.send(notice.to_string())));
    (Background::start(settings(url, directory, spool_limit, notify)).unwrap(), notices)
}

/// Hands over requests whose bytes are their number.
fn give(background: &Background, numbers: std::ops::Range<u64>) {
    let mut tap = background.tap(false);
    for number in numbers {
        let request = Request {
            time_us: BEGINNING + i64::try_from(number).unwrap(),
            path: format!("/{}", number % 7).into_bytes(),
            status: 200,
            bytes: number,
            ..Request::default()
        };
        tap.take_entry(&request.entry());
        if number % 100 == 99 {
            tap.flush();
        }
    }
}

/// Waits for figures, which come by themselves.
fn wait(background: &Background, is: impl Fn(&StoreStats) -> bool) {
    let begun = Instant::now();
    while !is(&background.figures()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", background.figures());
        std::thread::yield_now();
    }
}

/// Starts again, and ends when nothing waits in the spool.
fn catch_up(url: &str, directory: &Path) {
    let (background, _notices) = start(url, directory, 1 << 20);
    wait(&background, |figures| figures.is_well && figures.waiting == 0);
    assert_eq!(background.stop().dropped, 0);
}

fn notice(notices: &Receiver<String>, part: &str) {
    notice_of_any(notices, &[part]);
}

fn notice_of_any(notices: &Receiver<String>, parts: &[&str]) {
    let mut others = Vec::new();
    loop {
        match notices.recv_timeout(PATIENCE) {
            Ok(notice) if parts.iter().any(|part| notice.contains(part)) => break,
            Ok(notice) => others.push(notice),
            Err(_) => panic!("no word of {parts:?}, but {others:?}"),
        }
    }
}

/// How many requests there are, how many different ones, and whether they came in order.
pub(super) fn kept(url: &str) -> (i64, i64, i64) {
    let mut questions = Questions::open(url, &QuerySettings::default()).unwrap();
    let sql = "SELECT count(*), count(DISTINCT bytes), coalesce(CAST(sum(bytes) AS BIGINT), 0) FROM fact";
    let answer = questions.sql(sql).unwrap();
    let int =
        |at: usize| if let SqlValue::Int(value) = answer.rows[0][at] { value } else { panic!("{answer:?}") };
    (int(0), int(1), int(2))
}

/// The same of requests `0..count`, each once.
pub(super) fn each_once(count: i64) -> (i64, i64, i64) {
    (count, count, count * (count - 1) / 2)
}

fn file(directory: &Path) -> (PathBuf, String) {
    let path = directory.join("access.db");
    let url = format!("sqlite:{}", path.display());
    (path, url)
}

#[test]
fn events_wait_while_another_process_holds_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = file(directory.path());
    let (background, notices) = start(&url, directory.path(), 1 << 20);
    give(&background, 0..1000);
    wait(&background, |figures| figures.stored == 1000);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    give(&background, 1000..3000);
    wait(&background, |figures| figures.waiting > 0);
    notice(&notices, "held by another process");
    give(&background, 3000..4000);
    other.execute_batch("COMMIT").unwrap();
    wait(&background, |figures| figures.stored == 4000);
    notice(&notices, "caught up");
    give(&background, 4000..5000);
    // What the store has no time for any more waits for the next start.
    assert_eq!(background.stop().dropped, 0);
    catch_up(&url, directory.path());
    assert_eq!(kept(&url), each_once(5000));
}

/// The end waits for a store only for a while: events that it does not take in that time are in the spool.
#[test]
fn a_stop_before_the_store_is_open_loses_nothing() {
    let direct = server::shared().database();
    drop(Writer::open(&direct, &Options::default()).unwrap());
    let cutter = WireCutter::start(&direct);
    cutter.hold();
    let directory = tempfile::tempdir().unwrap();
    let (background, _notices) = start(&cutter.url(), directory.path(), 1 << 20);
    give(&background, 0..500);
    let figures = background.stop();
    assert_eq!((figures.stored, figures.dropped), (0, 0), "{figures:?}");
    assert!(figures.waiting > 0, "{figures:?}");
    catch_up(&direct, directory.path());
    assert_eq!(kept(&direct), each_once(500));
}

#[test]
fn hosts_that_nobody_named_are_one() {
    let directory = tempfile::tempdir().unwrap();
    let (_, url) = file(directory.path());
    let (background, _notices) = start(&url, directory.path(), 1 << 20);
    let mut tap = background.tap(false).keeping_hosts(|host| host == b"real.test");
    for number in 0..300 {
        for host in [b"real.test".to_vec(), format!("{number}.made-up.test").into_bytes()] {
            tap.take_entry(&Request { time_us: BEGINNING, host: Some(host), ..Request::default() }.entry());
        }
    }
    tap.flush();
    wait(&background, |figures| figures.stored == 600);
    background.stop();
    let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
    let hosts = questions.sql("SELECT host, count(*) FROM requests GROUP BY host ORDER BY host").unwrap();
    let of = |host: &str| vec![SqlValue::Text(host.to_owned()), SqlValue::Int(300)];
    assert_eq!(hosts.rows, [of("(other)"), of("real.test")]);
}

#[test]
fn a_full_spool_drops_and_counts() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = file(directory.path());
    drop(Writer::open(&url, &Options::default()).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (background, notices) = start(&url, directory.path(), 20_000);
    notice(&notices, "wait in the spool");
    give(&background, 0..2000);
    notice(&notices, "dropped");
    let dropped = |figures: &StoreStats| figures.dropped;
    wait(&background, |figures| dropped(figures) > 0 && figures.waiting > 0);
    other.execute_batch("COMMIT").unwrap();
    wait(&background, |figures| figures.stored + figures.dropped == 2000);
    let figures = background.figures();
    background.stop();
    assert_eq!(kept(&url).0, i64::try_from(figures.stored).unwrap());
    assert!(figures.stored > 100, "{figures:?}");
}

#[test]
fn a_damaged_store_is_moved_aside() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = file(directory.path());
    drop(Writer::open(&url, &Options::default()).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    let length = bytes.len() as u64;
    bytes[100..8192].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let (background, notices) = start(&url, directory.path(), 1 << 20);
    notice(&notices, "a new one was started");
    give(&background, 0..1000);
    wait(&background, |figures| figures.stored == 1000);
    background.stop();
    assert_eq!(kept(&url), each_once(1000));
    let aside = std::fs::read_dir(directory.path())
        .unwrap()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("access.db.corrupt-"));
    assert_eq!(std::fs::metadata(aside.unwrap().path()).unwrap().len(), length, "what was damaged is kept");
}

#[test]
fn a_file_that_never_was_a_store_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = file(directory.path());
    let letter = b"this is a letter, not a database\n".repeat(1000);
    std::fs::write(&path, &letter).unwrap();
    let refused = Background::start(settings(&url, directory.path(), 1 << 20, Box::new(|_| {})));
    assert!(matches!(refused.err(), Some(Error::Corrupt(_))));
    assert_eq!(std::fs::read(&path).unwrap(), letter);
    let names = std::fs::read_dir(directory.path()).unwrap().flatten();
    assert!(!names.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("corrupt")));
}

#[test]
fn a_database_of_another_program_is_left_alone_sound_or_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = file(directory.path());
    let theirs = Connection::open(&path).unwrap();
    // As the frameworks of web applications have it.
    let tables =
        "CREATE TABLE letters (text TEXT); CREATE TABLE migrations (id INTEGER PRIMARY KEY, version TEXT)";
    theirs.execute_batch(&format!("PRAGMA page_size=8192; {tables}")).unwrap();
    drop(theirs);
    let sound = std::fs::read(&path).unwrap();
    let mut damaged = sound.clone();
    damaged[100..8192].fill(0xff);
    for (bytes, why) in [(sound, "database of another program"), (damaged, "damaged")] {
        std::fs::write(&path, &bytes).unwrap();
        let refused = Background::start(settings(&url, directory.path(), 1 << 20, Box::new(|_| {})));
        let said = refused.err().expect("refused").to_string();
        assert!(said.contains(why), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let names = std::fs::read_dir(directory.path()).unwrap().flatten();
        assert!(!names.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("corrupt")));
    }
}

#[test]
fn a_store_that_hangs_holds_up_neither_events_nor_the_end() {
    let direct = server::shared().database();
    let cutter = WireCutter::start(&direct);
    let directory = tempfile::tempdir().unwrap();
    let (background, notices) = start(&cutter.url(), directory.path(), 1 << 20);
    give(&background, 0..1000);
    wait(&background, |figures| figures.stored == 1000);
    cutter.arm(Cut::Stall);
    give(&background, 1000..2000);
    notice(&notices, "has not answered");
    give(&background, 2000..3000);
    wait(&background, |figures| figures.waiting > 0 && !figures.is_well);
    // The connection stays as it is until this has come to its end.
    let figures = background.stop();
    assert_eq!((figures.stored, figures.dropped), (1000, 0), "{figures:?}");
    // What hung was committed after all: it is in the store and in the spool.
    cutter.release();
    let begun = Instant::now();
    while kept(&direct).0 < 2000 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    let (background, _notices) = start(&direct, directory.path(), 1 << 20);
    give(&background, 3000..3500);
    wait(&background, |figures| figures.waiting == 0 && figures.stored >= 1500);
    background.stop();
    assert_eq!(kept(&direct), each_once(3500));
}

#[test]
fn a_connection_of_the_proxy_that_breaks_in_commit_doubles_nothing() {
    for cut in [Cut::BeforeCommit, Cut::AfterCommit, Cut::CommitOnReturn, Cut::Terminated] {
        let direct = server::shared().database();
        let cutter = WireCutter::start(&direct);
        let directory = tempfile::tempdir().unwrap();
        let (background, notices) = start(&cutter.url(), directory.path(), 1 << 20);
        cutter.arm(cut);
        give(&background, 0..1000);
        // On a slow disk it has not answered for a while before the connection breaks, and that is told once.
        notice_of_any(&notices, &["cannot be reached", "it has not answered for"]);
        give(&background, 1000..2000);
        wait(&background, |figures| figures.stored == 2000);
        background.stop();
        assert_eq!(kept(&direct), each_once(2000), "{cut:?}");
    }
}

#[test]
fn upkeep_that_is_due_while_events_come_wakes_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (_, url) = file(directory.path());
    let (background, _notices) = start(&url, directory.path(), 1 << 20);
    for round in 0..3 {
        // Requests of long ago, whose hour is to be rolled up.
        give(&background, round * 20..(round + 1) * 20);
        wait(&background, |figures| figures.stored == (round + 1) * 20);
    }
    let turns = background.monitor().turns();
    assert!(turns < 100, "{turns} turns for 60 events");
}

#[test]
fn what_waits_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = file(directory.path());
    drop(Writer::open(&url, &Options::default()).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (background, _notices) = start(&url, directory.path(), 1 << 20);
    give(&background, 0..1000);
    background.stop();
    other.execute_batch("COMMIT").unwrap();
    let (background, _notices) = start(&url, directory.path(), 1 << 20);
    give(&background, 1000..1500);
    wait(&background, |figures| figures.stored == 1500);
    background.stop();
    assert_eq!(kept(&url), each_once(1500));
}

#[test]
fn postgres_may_go_away_and_come_back() {
    let mut server = Server::start();
    let url = server.database();
    let directory = tempfile::tempdir().unwrap();
    let (background, notices) = start(&url, directory.path(), 1 << 20);
    give(&background, 0..1000);
    wait(&background, |figures| figures.stored == 1000);
    server.pause();
    give(&background, 1000..2000);
    notice(&notices, "cannot be reached");
    wait(&background, |figures| figures.waiting > 0);
    server.resume();
    give(&background, 2000..3000);
    wait(&background, |figures| figures.stored == 3000 && figures.waiting == 0);
    notice(&notices, "caught up");
    background.stop();
    assert_eq!(kept(&url), each_once(3000));
}

/// Runs a test of this file as a child.
fn child(test: &str, task: &str, prefix: &[&str]) -> Process {
    let me = std::env::current_exe().unwrap();
    let mut command = match prefix {
        [] => Command::new(&me),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(&me);
            command
        }
    };
    command.args(["--exact", &format!("store::failures::{test}"), "--nocapture"]).env(TASK, task);
    Process::start(command, 5 * PATIENCE).unwrap()
}

/// Not a test: what the child does that is killed.
#[test]
fn child_that_writes() {
    let Ok(url) = std::env::var(TASK) else { return };
    let mut writer = Writer::open(&url, &Options::default()).unwrap();
    let place = writer.position("numbers").unwrap();
    let mut number = place.map_or(0, |place| u64::from_le_bytes(place.try_into().unwrap()));
    loop {
        for _ in 0..777 {
            let request = Request {
                time_us: BEGINNING + i64::try_from(number * 1000).unwrap(),
                path: format!("/{number}").into_bytes(),
                bytes: number,
                ..Request::default()
            };
            writer.add(&request.entry()).unwrap();
            number += 1;
        }
        writer.commit_with("numbers", &number.to_le_bytes()).unwrap();
        println!("committed {number}");
    }
}

#[test]
fn killed_in_the_middle_of_writing_nothing_is_lost_or_doubled() {
    let directory = tempfile::tempdir().unwrap();
    let (_, url) = file(directory.path());
    for round in 1..=6 {
        let writer = child("child_that_writes", &url, &[]);
        let ready = Ready::Line("committed".into());
        writer.wait_for(&ready, PATIENCE).unwrap();
        let begun = Instant::now();
        // Some moments later, another one each time: wherever it is by then.
        while begun.elapsed() < Duration::from_millis(round * 17) {
            std::thread::yield_now();
        }
        writer.signal(Signal::KILL).unwrap();
        writer.wait(PATIENCE).unwrap();
    }
    let mut writer = Writer::open(&url, &Options::default()).unwrap();
    let place = writer.position("numbers").unwrap().unwrap();
    let number = i64::from_le_bytes(place.try_into().unwrap());
    assert!(number >= 6 * 777);
    assert_eq!(kept(&url), each_once(number));
}

/// Not a test: what the child does whose disk is full.
#[test]
fn child_on_a_small_disk() {
    let Ok(directory) = std::env::var(TASK) else { return };
    let disk = Path::new(&directory).join("disk");
    let (_, url) = file(&disk);
    let ballast = disk.join("ballast");
    let (background, notices) = start(&url, Path::new(&directory), 8 << 20);
    give(&background, 0..1000);
    wait(&background, |figures| figures.stored == 1000);
    // All that is left of the disk.
    let mut length = 3 << 20;
    while length >= 512 {
        let mut bytes = std::fs::read(&ballast).unwrap_or_default();
        bytes.resize(bytes.len() + length, 1);
        if std::fs::write(&ballast, &bytes).is_err() {
            length /= 2;
        }
    }
    let mut next = 1000;
    while background.figures().waiting == 0 {
        give(&background, next..next + 1000);
        next += 1000;
        wait(&background, |figures| figures.stored == next || figures.waiting > 0);
    }
    notice(&notices, "wait in the spool");
    std::fs::remove_file(&ballast).unwrap();
    wait(&background, |figures| figures.stored == next && figures.waiting == 0);
    background.stop();
    assert_eq!(kept(&url), each_once(i64::try_from(next).unwrap()));
    println!("all {next} are there");
}

#[test]
fn events_wait_while_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = format!("mount -t tmpfs -o size=6m tmpfs '{}' && exec \"$@\"", disk.display());
    let prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
    let small = child("child_on_a_small_disk", directory.path().to_str().unwrap(), &prefix);
    small.wait(5 * PATIENCE).unwrap();
    assert!(small.transcript().contains("are there"), "{}", small.transcript());
}
