//! What became of changes of the configuration, asked over a Unix socket.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use offramp_admin::{Admin, Mount, Settings};
use offramp_control::{Changes, History, Requester};
use offramp_net::Address;
use offramp_observe::Log;
use serde_json::json;

use super::client::{Answer, read, start};

fn ask(socket: &Path, method: &str, path: &str, headers: &str) -> Answer {
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    read(stream)
}

fn serve(socket: &Path, history: Option<History>) -> Admin {
    let settings = Settings { store: None, history, mount: Mount::Grafana, log: Log::silent() };
    Admin::start(&Address::Unix(socket.to_owned()), settings).unwrap()
}

#[test]
fn changes_are_told_as_they_are_made() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let history = History::default();
    let _admin = serve(&socket, Some(history.clone()));
    assert_eq!(ask(&socket, "GET", "/v1/changes", "").json(), json!({ "version": 1, "changes": [] }));
    assert_eq!(ask(&socket, "GET", "/v1/refused", "").json(), json!({ "refused": [] }));
    let at = UNIX_EPOCH + Duration::from_secs(86_400);
    for (line, by) in [("route: added", Requester::Signal), ("route: removed", Requester::Watch)] {
        let lines = vec![line.to_owned()];
        let changes = Changes { lines, new_certificates: 1, needs_restart: vec!["workers"] };
        history.note(&Ok(changes), by, at);
    }
    let expected = |version, by, line| {
        json!({
            "version": version, "at": "1970-01-02T00:00:00.000000Z", "by": by, "changes": [line],
            "omitted": 0, "new_certificates": 1, "needs_a_restart": ["workers"],
        })
    };
    let newest_first = [expected(3, "watch", "route: removed"), expected(2, "SIGHUP", "route: added")];
    let answer = ask(&socket, "GET", "/v1/changes", "");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.json(), json!({ "version": 3, "changes": newest_first }));
}

#[test]
fn other_methods_paths_pages_and_addresses_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    let _admin = serve(&socket, Some(History::default()));
    let post = ask(&socket, "POST", "/v1/changes", "content-length: 0\r\n");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD")));
    assert!(ask(&socket, "HEAD", "/v1/changes", "").body.is_empty());
    for path in ["/v1", "/v1/", "/v1/change", "/v1/changes/1", "/v2/changes"] {
        assert_eq!(ask(&socket, "GET", path, "").status, 404, "{path}");
    }
    assert_eq!(ask(&socket, "GET", "/v1/changes", "origin: http://evil.example\r\n").status, 403);
    let other = directory.path().join("other.sock");
    let _without = serve(&other, None);
    assert_eq!(ask(&other, "GET", "/v1/changes", "").status, 503);
    let tcp = start(None, Mount::Grafana);
    let refused = tcp.raw(b"GET /v1/changes HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(refused.status, 403);
    assert!(refused.message().contains("unix:/run/offramp/admin.sock"), "{}", refused.message());
}
