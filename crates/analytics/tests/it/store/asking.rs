//! Searches, SQL of the user's own, and what is refused.

use std::time::Duration;

use offramp_analytics::entry::{ProxyPart, RequestPart, ResponsePart};
use offramp_analytics::{
    Error, LogEntry, Options, QuerySettings, Questions, RequestFilter, SqlValue, Top, Writer,
};

use super::requests::BEGINNING;
use offramp_testkit::postgres as server;

/// Both databases, the second fresh.
fn stores(directory: &tempfile::TempDir) -> [String; 2] {
    [format!("sqlite:{}", directory.path().join("a.db").display()), server::shared().database()]
}

fn entry(time_us: i64, path: &'static str, agent: &'static str) -> LogEntry<'static> {
    LogEntry {
        time_us,
        host: Some(b"a.test"),
        client: Some("192.0.2.1".parse().unwrap()),
        request: RequestPart { method: Some(b"GET"), path: path.as_bytes(), query: None, protocol: None },
        response: ResponsePart { status: 200, bytes: 5, received: Some(7), duration_us: Some(9) },
        agent: Some(agent.as_bytes()),
        user: Some(b"me"),
        proxy: ProxyPart {
            route: Some(b"r"),
            server: Some(b"s"),
            tls: Some(b"TLSv1.3"),
            id: Some(b"x-1"),
            cause: None,
        },
        ..LogEntry::default()
    }
}

fn fill(url: &str, full_text: bool) {
    let mut writer =
        Writer::open(url, &Options { full_text: Some(full_text), ..Options::default() }).unwrap();
    writer.add(&entry(BEGINNING, "/blog/Hello-World.html", "Firefox")).unwrap();
    writer.add(&entry(BEGINNING + 1_500_000, "/feed.xml", "Reader of 100%_feeds")).unwrap();
    writer.add(&entry(BEGINNING + 2_000_000, "/blog/other", "curl/8.5.0")).unwrap();
    writer.commit().unwrap();
}

fn paths(url: &str, text: &str, filter: &RequestFilter) -> Vec<String> {
    let mut questions = Questions::open(url, &QuerySettings::default()).unwrap();
    let answer = questions.search(text, filter).unwrap();
    let at = answer.columns.iter().position(|column| column == "path").unwrap();
    answer
        .rows
        .iter()
        .map(|row| match &row[at] {
            SqlValue::Text(path) => path.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn words_and_letters_are_found_the_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    for url in stores(&directory) {
        let all = RequestFilter::default();
        fill(&url, false);
        assert_eq!(paths(&url, "blog/", &all), ["/blog/other", "/blog/Hello-World.html"], "{url}");
        assert_eq!(paths(&url, "0%_F", &all), ["/feed.xml"], "what LIKE would take for a wildcard is none");
        assert_eq!(paths(&url, "blog_", &all), [""; 0]);
        // The index is made of what is there already, and of what comes.
        fill(&url, true);
        assert_eq!(paths(&url, "hello world", &all).len(), 2, "{url}");
        assert_eq!(paths(&url, "wor hel", &all).len(), 2, "words may be cut, and in any order");
        assert_eq!(paths(&url, "ello", &all), [""; 0]);
        assert_eq!(
            paths(&url, "blog", &RequestFilter { limit: Some(1), ..RequestFilter::default() }),
            ["/blog/other"]
        );
        assert_eq!(paths(&url, "x'); DROP TABLE fact; --\"*", &all), [""; 0]);
        let hosts = vec!["b.test".to_owned()];
        assert_eq!(paths(&url, "blog", &RequestFilter { hosts, ..RequestFilter::default() }), [""; 0]);
        // And taken away again.
        fill(&url, false);
        assert_eq!(paths(&url, "ello", &all).len(), 3);
    }
}

#[test]
fn people_may_ask_in_sql_but_not_write() {
    let directory = tempfile::tempdir().unwrap();
    for url in stores(&directory) {
        fill(&url, false);
        let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
        let answer = questions
            .sql("SELECT host, count(*) AS requests, sum(bytes) AS bytes FROM requests GROUP BY host")
            .unwrap();
        assert_eq!(answer.columns, ["host", "requests", "bytes"]);
        assert_eq!(answer.rows, [[SqlValue::Text("a.test".into()), SqlValue::Int(3), SqlValue::Int(15)]]);
        let answer = questions.sql("SELECT * FROM requests ORDER BY id LIMIT 1").unwrap();
        assert_eq!(answer.rows.len(), 1);
        for sql in [
            "DELETE FROM fact",
            "INSERT INTO host VALUES (99, 1, 'x')",
            "DROP TABLE fact",
            "CREATE TABLE x (y INTEGER)",
            "ATTACH DATABASE '/tmp/x' AS y",
            "PRAGMA query_only = off",
            "COPY (SELECT 1) TO '/tmp/x'",
            "BEGIN",
            "COMMIT",
            "SELECT 1; DELETE FROM fact",
            "WITH gone AS (DELETE FROM fact RETURNING 1) SELECT * FROM gone",
            "SELECT load_extension('x')",
            "SELEC 1",
            "",
        ] {
            let refused = questions.sql(sql);
            assert!(matches!(refused, Err(Error::Question(_))), "{url} {sql}: {refused:?}");
        }
        let answer = questions.sql("SELECT count(*) FROM fact").unwrap();
        assert_eq!(answer.rows, [[SqlValue::Int(3)]], "after all that");
    }
}

#[test]
fn endless_questions_end() {
    let directory = tempfile::tempdir().unwrap();
    for url in stores(&directory) {
        fill(&url, false);
        let settings = QuerySettings { time_limit: Duration::from_secs(4), ..QuerySettings::default() };
        let mut questions = Questions::open(&url, &settings).unwrap();
        let endless =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        assert!(matches!(questions.sql(endless), Err(Error::TimedOut)), "{url}");
        assert_eq!(questions.top(Top::Hosts, &RequestFilter::default()).unwrap().rows.len(), 1, "{url}");
    }
}

#[test]
fn what_cannot_be_asked_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("a.db").display());
    assert!(
        matches!(Questions::open(&url, &QuerySettings::default()), Err(Error::Away(_))),
        "there is no file"
    );
    fill(&url, false);
    let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
    assert!(matches!(questions.top(Top::Cities, &RequestFilter::default()), Err(Error::Question(_))));
    assert!(matches!(
        questions.traffic(Duration::from_millis(10), false, &RequestFilter::default()),
        Err(Error::Question(_))
    ));
    let bad = directory.path().join("geo.mmdb");
    std::fs::write(&bad, b"no such thing").unwrap();
    assert!(questions.use_geoip(&bad).is_err());
}

#[test]
fn a_store_in_memory_can_be_asked_through_its_writer() {
    let mut writer = Writer::open("sqlite::memory:", &Options::default()).unwrap();
    writer.add(&entry(BEGINNING, "/", "curl/8.5.0")).unwrap();
    let mut questions = writer.into_questions().unwrap();
    let answer = questions.top(Top::Pages, &RequestFilter::default()).unwrap();
    assert_eq!(answer.columns, ["page", "host", "requests", "bytes"]);
    let text = |text: &str| SqlValue::Text(text.into());
    assert_eq!(answer.rows, [[text("/"), text("a.test"), SqlValue::Int(1), SqlValue::Int(5)]]);
}
