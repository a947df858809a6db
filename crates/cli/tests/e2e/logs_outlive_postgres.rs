//! A real PostgreSQL as the store: it goes away for a while, and nothing is missing once it is back.

use std::io::Write as _;

use offramp_testkit::postgres::Server;
use offramp_testkit::process::{Process, Signal};

use crate::logs_answer_for_what_was_served::{config, fetch};
use crate::support::instance::{Home, LIFE, PATIENCE};
use crate::support::logs_desk::{assert_counts, command, refusal, rows, until};

#[test]
fn requests_wait_while_postgres_is_away() {
    let mut postgres = Server::start();
    let url = postgres.database();
    let instance = Home::new().run(&config(&format!("[log_store]\nurl = \"{url}\"\n")));
    let home = instance.home.path().to_owned();
    let count = ["query", "SELECT count(*)::bigint AS n FROM requests"];
    fetch(&instance, "one", &["https://a.example.org/before-[1-50]"]);
    until(&home, &count, |rows| rows[0]["n"] == 50);
    let follower = ["ingest", "--follow", "other.log", "--format", "vhost", "--host", "other.test"];
    let (before, after) = OTHER.split_at(OTHER.find('\n').unwrap() + 1);
    std::fs::write(home.join("other.log"), before).unwrap();
    let follower = Process::start(command(&home, &follower), LIFE).unwrap();
    // It has a connection: without one it would only have to wait for the server, not to find it again.
    until(&home, &count, |rows| rows[0]["n"] == 51);
    postgres.pause();
    fetch(&instance, "two", &["https://b.example.org/while-it-is-away-[1-500]"]);
    let mut other = std::fs::OpenOptions::new().append(true).open(home.join("other.log")).unwrap();
    other.write_all(after.as_bytes()).unwrap();
    instance.until("the follower says that it waits", || {
        follower.transcript().contains("waiting for it").then_some(())
    });
    instance.until("the log says that events wait", || {
        let log = instance.process.transcript();
        log.contains("wait in the spool").then_some(())
    });
    let said = refusal(&home, &["top", "pages"], 1);
    assert!(said.contains("cannot be reached"), "{said}");
    postgres.resume();
    until(&home, &count, |rows| rows[0]["n"] == 552);
    instance.until("the log says that it caught up", || {
        instance.process.transcript().contains("caught up").then_some(())
    });
    follower.signal(Signal::TERM).unwrap();
    assert_eq!(follower.wait(PATIENCE).unwrap().code(), Some(0), "{}", follower.transcript());
    let other = rows(&home, &["top", "clients", "--host", "other.test"]);
    assert_eq!(other.len(), 2, "{other:?}");
    for sql in
        ["DELETE FROM fact", "COPY fact TO PROGRAM 'cat'", "SELECT pg_terminate_backend(pg_backend_pid())"]
    {
        let output = crate::support::logs_desk::output(&home, &["query", sql]);
        assert!(!output.status.success(), "{sql}");
    }
    instance.process.signal(Signal::TERM).unwrap();
    assert_eq!(instance.process.wait(PATIENCE).unwrap().code(), Some(0), "{}", instance.process.transcript());
    let log = std::fs::read_to_string(home.join("access.log")).unwrap();
    std::fs::write(home.join("all.log"), log + &OTHER.replace("\"-\"\n", "\"other.test\"\n")).unwrap();
    assert_counts(&home, &url, &home.join("all.log"));
}

#[test]
fn a_store_that_never_answers_holds_up_no_end() {
    // It takes connections, and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://log@127.0.0.1:{}/access", listener.local_addr().unwrap().port());
    let home = Home::new();
    std::fs::write(home.file("other.log"), OTHER).unwrap();
    let ingest = ["ingest", "--store", &url, "--follow", "other.log", "--format", "vhost"];
    let ingest = Process::start(command(home.path(), &ingest), LIFE).unwrap();
    let (_held, _) = listener.accept().unwrap();
    ingest.signal(Signal::TERM).unwrap();
    assert_eq!(ingest.wait(PATIENCE).unwrap().code(), Some(1), "{}", ingest.transcript());
    assert!(ingest.transcript().contains("the store does not answer"), "{}", ingest.transcript());
}

/// Lines that name no host.
const OTHER: &str = r#"192.0.2.1 - - [22/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 100 "-" "one" "-"
192.0.2.2 - - [22/Nov/2026:10:00:01 +0000] "GET /a HTTP/1.1" 200 50 "-" "one" "-"
"#;
