//! Streams of events, and going on where one has ended.

use std::io::{BufRead as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::changes::Rig;

/// A stream of events, line by line.
fn events(rig: &Rig, query: &str, headers: &str) -> impl Iterator<Item = String> + use<> {
    let mut stream = UnixStream::connect(rig.folder.path().join("admin.sock")).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    stream
        .write_all(format!("GET /v1/events{query} HTTP/1.1\r\nhost: x\r\n{headers}\r\n").as_bytes())
        .unwrap();
    std::io::BufReader::new(stream).lines().map(Result::unwrap)
}

/// The next event: its id, its kind and what it says.
fn event(lines: &mut impl Iterator<Item = String>) -> (String, String, Value) {
    let mut lines = lines.skip_while(|line| !line.starts_with("id: "));
    let mut next = |name: &str| lines.next().unwrap().strip_prefix(name).unwrap().to_owned();
    (next("id: "), next("event: "), serde_json::from_str(&next("data: ")).unwrap())
}

#[test]
fn what_happens_between_two_streams_is_in_the_second() {
    let rig = Rig::new();
    let mut first = events(&rig, "", "");
    let id = first.find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap();
    drop(first);
    rig.change("PUT", "/v1/log-level", r#"{"level":"debug"}"#);
    rig.refused("PUT", "/v1/config", "workers = 0");
    rig.change("PATCH", "/v1/backends/shop/servers/127.0.0.1:9", r#"{"state":"drain"}"#);
    let mut second = events(&rig, "", &format!("last-event-id: {id}\r\n"));
    // The first line of its own is where it goes on.
    assert!(second.any(|line| line == format!("id: {id}")));
    let mut all: Vec<_> = (0..4).map(|_| event(&mut second)).collect();
    let kinds: Vec<&str> = all.iter().map(|(_, kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["change", "change", "refused", "server"]);
    assert_eq!((&all[3].2["state"], &all[3].2["before"]), (&json!("draining"), &json!("up")));
    // Whoever lost the stream in between misses nothing and gets nothing twice.
    let (last, _, _) = all.swap_remove(1);
    let mut third = events(&rig, "?kind=change,server", &format!("last-event-id: {last}\r\n"));
    assert!(third.any(|line| line == format!("id: {last}")));
    assert_eq!(event(&mut third).2["state"], "draining");
    rig.change("PUT", "/v1/log-level", r#"{"level":"info"}"#);
    assert_eq!(event(&mut third).2["version"], 4);
}

#[test]
fn whoever_was_at_another_process_gets_all_of_this_one_and_the_state_of_each_server() {
    let rig = Rig::new();
    rig.change("PUT", "/v1/log-level", r#"{"level":"debug"}"#);
    for other in ["1-9.9.9.9.9.9.9.9.9.9", "x"] {
        let mut lines = events(&rig, "?kind=change,server", &format!("last-event-id: {other}\r\n"));
        let states = lines.by_ref().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        let states: Vec<Value> = states.take(2).map(|data| serde_json::from_str(&data).unwrap()).collect();
        assert!(states.iter().all(|state| state["state"] == "up" && state["before"].is_null()), "{states:?}");
        let (_, kind, change) = event(&mut lines);
        assert_eq!((&*kind, &change["version"]), ("change", &json!(2)));
    }
}
