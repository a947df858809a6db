//! What writing and upkeep cost, in rows that are read: clocks say nothing on a machine that has other work.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Options, Writer};
use crate::entry::{LogEntry, RequestPart, ResponsePart};
use crate::error::Error;
use crate::store::location::Location;
use crate::store::schema::OTHER_HOSTS;
use crate::store::{Dialect, Engine, Fact, RowReader, StoreAccess, Table, Visit, open};
use crate::upkeep::Upkeep;

/// Counts what is read of facts.
struct Counting {
    inner: Box<dyn Engine>,
    read: Arc<Read>,
}

#[derive(Default)]
struct Read {
    rows: AtomicU64,
    statements: AtomicU64,
}

impl Read {
    /// Rows and statements since the last time.
    fn take(&self) -> (u64, u64) {
        (self.rows.swap(0, Ordering::Relaxed), self.statements.swap(0, Ordering::Relaxed))
    }
}

impl Engine for Counting {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    fn run(&mut self, sql: &str, texts: &[&str]) -> Result<u64, Error> {
        self.inner.run(sql, texts)
    }

    fn rows(&mut self, sql: &str, texts: &[&str], visit: &mut Visit<'_>) -> Result<(), Error> {
        let is_of_facts = sql.contains("FROM fact") && !sql.contains("max(id)");
        self.read.statements.fetch_add(u64::from(is_of_facts), Ordering::Relaxed);
        let mut counting = |row: &dyn RowReader| -> ControlFlow<()> {
            self.read.rows.fetch_add(u64::from(is_of_facts), Ordering::Relaxed);
            visit(row)
        };
        self.inner.rows(sql, texts, &mut counting)
    }

    fn insert(&mut self, facts: &[Fact]) -> Result<(), Error> {
        self.inner.insert(facts)
    }

    fn ask(&mut self, sql: &str, limit: Duration, most: usize) -> Result<Table, Error> {
        self.inner.ask(sql, limit, most)
    }

    fn limit(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        self.inner.limit(limit)
    }
}

fn writer(options: &Options) -> (Writer, Arc<Read>) {
    let access = StoreAccess { busy: Duration::from_secs(1), cache_kib: 4096 };
    let read = Arc::new(Read::default());
    let inner = open(&Location::Memory, access).unwrap();
    let engine = Counting { inner, read: Arc::clone(&read) };
    (Writer::over(Box::new(engine), options).unwrap(), read)
}

const HOUR: i64 = 3_600_000_000;
/// The beginning of a day.
const BEGINNING: i64 = 20_000 * 24 * HOUR;

fn time(hours: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(BEGINNING + hours * HOUR).unwrap())
}

fn add(writer: &mut Writer, time_us: i64, host: &str, path: &str) {
    let entry = LogEntry {
        time_us,
        host: Some(host.as_bytes()),
        client: Some([192, 0, 2, (time_us % 250) as u8].into()),
        request: RequestPart { method: Some(b"GET"), path: path.as_bytes(), ..RequestPart::default() },
        response: ResponsePart { status: 200, bytes: 10, ..ResponsePart::default() },
        agent: Some(if time_us % 3 == 0 { b"Googlebot/2.1" } else { b"Mozilla/5.0" }),
        ..LogEntry::default()
    };
    writer.add(&entry).unwrap();
}

/// An hour of requests, and what comes after it is over.
fn fill_hour(writer: &mut Writer, hour: i64, requests: i64) {
    for number in 0..requests {
        let path = format!("/{}", if number % 2 == 0 { number % 10 } else { number % 3000 });
        add(writer, BEGINNING + hour * HOUR + number * 1000, "a.test", &path);
    }
    writer.commit().unwrap();
}

/// Sums of facts, and of roll-ups at a level, of which each kind is to have the same.
fn assert_roll_ups_have_everything(writer: &mut Writer, level: i64) {
    let engine = writer.engine.as_mut();
    let facts = engine.ints::<2>("SELECT count(*), CAST(sum(bytes) AS BIGINT) FROM fact").unwrap();
    let sums = "CAST(sum(requests) AS BIGINT), CAST(sum(bytes) AS BIGINT)";
    let traffic = engine.ints::<2>(&format!("SELECT {sums} FROM traffic WHERE level = {level}")).unwrap();
    assert_eq!(traffic, facts, "level {level}");
    for (kind, column) in [(0, "path"), (2, "agent"), (3, "client"), (4, "client")] {
        let sql = format!("SELECT {sums} FROM heavy WHERE level = {level} AND kind = {kind}");
        assert_eq!(engine.ints::<2>(&sql).unwrap(), facts, "level {level}, {column}: kept and rest are all");
    }
}

fn states(writer: &mut Writer) -> Vec<[i64; 2]> {
    writer.engine.ints("SELECT hour % 24, state FROM hours ORDER BY hour").unwrap()
}

#[test]
fn requests_that_come_late_are_added_and_no_hour_is_read_again_for_them() {
    let (mut writer, read) = writer(&Options::default());
    fill_hour(&mut writer, 0, 20_000);
    fill_hour(&mut writer, 1, 100);
    writer.finish(time(24)).unwrap();
    assert_eq!(states(&mut writer), [[0, 1], [1, 1]]);
    assert!(read.take().0 >= 20_100);
    // As the ends of long downloads: each in a batch of its own, among others.
    for number in 0..200 {
        add(&mut writer, BEGINNING + number * 7, if number % 50 == 0 { "new.test" } else { "a.test" }, "/2");
        add(&mut writer, BEGINNING + 25 * HOUR + number, "a.test", "/2");
        writer.commit().unwrap();
        while writer.upkeep(time(25)).unwrap() == Upkeep::More {}
    }
    let (rows, _) = read.take();
    // Before: 20,000 for each.
    assert!(rows < 2000, "{rows} requests were read for 200 that came late");
    assert_eq!(states(&mut writer), [[0, 1], [1, 1], [1, 0]]);
    writer.finish(time(48)).unwrap();
    assert!(read.take().0 <= 200, "only the hour that was new");
    assert_roll_ups_have_everything(&mut writer, 0);
    assert_roll_ups_have_everything(&mut writer, 1);
    let two = "SELECT requests FROM heavy JOIN path ON path.id = item WHERE kind = 0 AND level = 0 AND bot = 0 AND \
               path.text = '/2' ORDER BY requests DESC LIMIT 1";
    let facts = "SELECT count(*) FROM fact JOIN path ON path.id = path WHERE path.text = '/2' AND agent & 1 = 0 AND \
                 shape = 1 AND fact.id < (SELECT max(id) FROM fact WHERE (id >> 5) / 3600000000 % 24 = 0)";
    let engine = writer.engine.as_mut();
    assert_eq!(engine.int(two).unwrap(), engine.int(facts).unwrap(), "what has a name stays exact");
}

#[test]
fn many_late_requests_have_their_hour_rolled_up_anew_once_they_are_quiet() {
    let (mut writer, read) = writer(&Options::default());
    fill_hour(&mut writer, 0, 1000);
    fill_hour(&mut writer, 1, 10);
    writer.finish(time(24)).unwrap();
    read.take();
    // Another log of the same hour is read, in small batches.
    for number in 0..1000 {
        add(&mut writer, BEGINNING + number * 500, "b.test", &format!("/{}", number % 5));
        if number % 10 == 9 {
            writer.commit().unwrap();
            while writer.upkeep(time(24)).unwrap() == Upkeep::More {}
        }
    }
    let (rows, _) = read.take();
    assert!(rows < 5000, "{rows} requests were read for 1000 that came late");
    writer.finish(time(24)).unwrap();
    assert_roll_ups_have_everything(&mut writer, 0);
    assert_roll_ups_have_everything(&mut writer, 1);
    let named = "SELECT count(*) FROM heavy JOIN host ON host.id = host WHERE kind = 0 AND level = 0 AND item > 0 AND \
                 text = 'b.test'";
    assert!(writer.engine.int(named).unwrap() >= Some(5), "its pages have names");
}

#[test]
fn texts_are_swept_in_one_reading() {
    let options = Options { retention: Some(Duration::from_secs(3600)), ..Options::default() };
    let (mut writer, read) = writer(&options);
    for hour in 0..30 {
        add(&mut writer, BEGINNING + hour * HOUR, "a.test", &format!("/{hour}"));
    }
    fill_hour(&mut writer, 30, 1000);
    let batch = "INSERT INTO positions VALUES ('batch-0', '00000000000000010000000000000001')";
    writer.commit().unwrap();
    writer.engine.run(batch, &[]).unwrap();
    // Everything but the sweep, which is due when 24 hours have lost their requests.
    let step = |writer: &mut Writer| writer.upkeep_when(time(25), super::rolling::Eager::Yes).unwrap();
    let unswept = "SELECT value FROM meta WHERE name = 'unswept'";
    while writer.engine.text(unswept, &[]).unwrap().as_deref() != Some("24") {
        assert_eq!(step(&mut writer), Upkeep::More);
    }
    read.take();
    assert_eq!(step(&mut writer), Upkeep::More);
    let (rows, statements) = read.take();
    assert!(statements <= 2 && rows <= 1100, "{rows} rows in {statements} statements");
    assert_eq!(writer.engine.int("SELECT count(*) FROM positions").unwrap(), Some(0), "a batch of 1970");
}

#[test]
fn made_up_hosts_are_bounded_and_known_ones_stay() {
    let (mut writer, _) = writer(&Options::default());
    add(&mut writer, BEGINNING, "known.test", "/");
    writer.commit().unwrap();
    let fill = "INSERT INTO shape (id, hash, text, host, status) WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL \
                SELECT i + 1 FROM n WHERE i < 131070) SELECT i, 0, i, 1, 200 FROM n";
    writer.engine.run(fill, &[]).unwrap();
    for number in 0..500 {
        add(&mut writer, BEGINNING + number, &format!("{number}.made-up.test"), "/");
        add(&mut writer, BEGINNING + number, "known.test", "/");
    }
    writer.commit().unwrap();
    let count = "SELECT count(*) FROM shape";
    assert!(writer.engine.int(count).unwrap() <= Some(131_073));
    let of = |writer: &mut Writer, host: &str| {
        let sql = "SELECT CAST(count(*) AS TEXT) FROM requests WHERE host = $1";
        writer.engine.text(sql, &[host]).unwrap()
    };
    assert_eq!(of(&mut writer, "known.test").as_deref(), Some("501"));
    assert_eq!(of(&mut writer, OTHER_HOSTS).as_deref(), Some("498"));
}
