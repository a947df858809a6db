//! Retention, late requests, positions, and what several writers do to each other.

use std::time::Duration;

use offramp_analytics::question::DataSource;
use offramp_analytics::{Options, QuerySettings, Questions, RequestFilter, SqlValue, Top, Writer};

use super::count;
use super::requests::{BEGINNING, Request};
use offramp_testkit::postgres as server;

const HOUR: i64 = 3_600_000_000;

fn request(time_us: i64, path: &str) -> Request {
    Request {
        time_us,
        host: Some(b"a.test".to_vec()),
        client: Some("192.0.2.1".parse().unwrap()),
        path: path.as_bytes().to_vec(),
        status: 200,
        bytes: 10,
        ..Request::default()
    }
}

fn rows(url: &str, sql: &str) -> i64 {
    let answer = Questions::open(url, &QuerySettings::default()).unwrap().sql(sql).unwrap();
    match answer.rows[0][0] {
        SqlValue::Int(rows) => rows,
        ref other => panic!("{other:?}"),
    }
}

fn total(url: &str, source: DataSource) -> i64 {
    let filter = RequestFilter { source, ..RequestFilter::default() };
    let answer = Questions::open(url, &QuerySettings::default()).unwrap().top(Top::Hosts, &filter).unwrap();
    answer.rows.iter().map(|row| if let SqlValue::Int(requests) = row[1] { requests } else { 0 }).sum()
}

#[test]
fn requests_are_removed_and_roll_ups_stay() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", directory.path().join("a.db").display());
    for url in [sqlite, server::shared().database()] {
        let options = Options {
            retention: Some(Duration::from_secs(24 * 3600)),
            rollup_retention: Some(Duration::from_secs(10 * 24 * 3600)),
            ..Options::default()
        };
        let mut writer = Writer::open(&url, &options).unwrap();
        for hour in 0..72 {
            for n in 0..5 {
                writer.add(&request(BEGINNING + hour * HOUR + n, &format!("/{hour}")).entry()).unwrap();
            }
        }
        writer.finish(count::time(BEGINNING + 72 * HOUR)).unwrap();
        assert_eq!(rows(&url, "SELECT count(*) FROM fact"), 24 * 5, "{url}");
        assert_eq!(total(&url, DataSource::Either), 72 * 5, "{url}");
        assert!(rows(&url, "SELECT count(*) FROM path") >= 24, "texts that roll-ups name stay");
        assert_eq!(rows(&url, "SELECT count(*) FROM days WHERE state = 1"), 3);
        // Late requests are added to what is known of their hour, and do not stay either.
        for _ in 0..2 {
            writer.add(&request(BEGINNING + HOUR, "/late").entry()).unwrap();
            writer.commit().unwrap();
            assert_eq!(total(&url, DataSource::Either), total(&url, DataSource::Rollups));
        }
        assert_eq!(total(&url, DataSource::Either), 72 * 5 + 2);
        writer.finish(count::time(BEGINNING + 72 * HOUR)).unwrap();
        assert_eq!(total(&url, DataSource::Either), 72 * 5 + 2);
        assert_eq!(rows(&url, "SELECT count(*) FROM fact"), 24 * 5);
        // Everything ends.
        writer.finish(count::time(BEGINNING + 100 * 24 * HOUR)).unwrap();
        assert_eq!(total(&url, DataSource::Either), 0);
        for table in ["fact", "traffic", "heavy", "hours", "days", "path", "client", "shape"] {
            assert_eq!(rows(&url, &format!("SELECT count(*) FROM {table}")), 0, "{url} {table}");
        }
        // Texts that were swept are known to be gone.
        writer.add(&request(BEGINNING + 100 * 24 * HOUR, "/1").entry()).unwrap();
        writer.commit().unwrap();
        assert_eq!(rows(&url, "SELECT count(*) FROM requests WHERE path = '/1' AND client = '192.0.2.1'"), 1);
    }
}

#[test]
fn positions_last_with_what_they_stand_for() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", directory.path().join("a.db").display());
    for url in [sqlite, server::shared().database()] {
        let mut writer = Writer::open(&url, &Options::default()).unwrap();
        assert_eq!(writer.position("log").unwrap(), None);
        writer.add(&request(BEGINNING, "/").entry()).unwrap();
        writer.commit_with("log", b"\x00\xff 1").unwrap();
        writer.add(&request(BEGINNING, "/").entry()).unwrap();
        writer.rollback();
        drop(writer);
        let mut writer = Writer::open(&url, &Options::default()).unwrap();
        assert_eq!(writer.position("log").unwrap().unwrap(), b"\x00\xff 1");
        assert_eq!(total(&url, DataSource::Either), 1);
        writer.commit_with("log", b"").unwrap();
        assert_eq!(writer.position("log").unwrap().unwrap(), b"");
    }
}

#[test]
fn two_writers_share_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", directory.path().join("a.db").display());
    for url in [sqlite, server::shared().database()] {
        let mut writers = [(); 2].map(|()| Writer::open(&url, &Options::default()).unwrap());
        for round in 0..20 {
            for writer in &mut writers {
                // The same times and texts: neither ids nor numbers may clash.
                for n in 0..40 {
                    writer
                        .add(&request(BEGINNING + round / 4, &format!("/{}", (n + round) % 30)).entry())
                        .unwrap();
                }
                writer.commit().unwrap();
            }
        }
        assert_eq!(total(&url, DataSource::Requests), 1600);
        assert_eq!(rows(&url, "SELECT count(*) FROM path"), 30);
        assert_eq!(rows(&url, "SELECT count(*) FROM requests WHERE path IS NULL OR host IS NULL"), 0);
        for mut writer in writers {
            writer.finish(count::time(BEGINNING + 48 * HOUR)).unwrap();
        }
        assert_eq!(total(&url, DataSource::Rollups), 1600);
    }
}
