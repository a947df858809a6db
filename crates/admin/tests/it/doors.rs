//! Who is let in, how far, and what is said to the others.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use offramp_admin::{AdminServer, Mount, Settings, Store};
use offramp_net::Address;
use offramp_observe::Log;
use serde_json::json;

use super::client::{over, read, start};
use super::store;

#[test]
fn health_says_whether_the_store_can_be_asked() {
    let client = over(store::shared());
    for path in ["", "/"] {
        let answer = client.ask("GET", path, "", "");
        assert_eq!((answer.status, answer.json()["status"].as_str()), (200, Some("ok")));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert!(client.ask("HEAD", "/", "", "").body.is_empty());
    let index = client.raw(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(
        index.json(),
        json!({ "name": "offramp", "grafana": "/grafana/", "api": "/v1/openapi.json", "page": "/ui/" })
    );
    let missing = over("sqlite:/nonexistent/access.db").ask("GET", "/", "", "");
    assert_eq!(missing.status, 503, "{}", missing.message());
    let without = start(None, Mount::Grafana).ask("GET", "/", "", "");
    assert_eq!(without.status, 503);
    assert!(without.message().contains("[log_store]"), "{}", without.message());
    let root = start(Some(Store { url: store::shared().into(), geoip: None }), Mount::Root);
    assert_eq!(root.ask("GET", "/", "", "").status, 200);
    assert_eq!(root.ask("GET", "/grafana/", "", "").status, 404);
    // The plugin joins its URL and a path by a slash, whatever the URL ends in.
    assert_eq!(root.post("//tag-keys", "{}").status, 200);
    assert_eq!(client.post("//tag-keys", "{}").status, 200);
}

#[test]
fn other_paths_and_methods_are_refused() {
    let client = over(store::shared());
    assert_eq!(client.post("/queries", "{}").status, 404);
    assert_eq!(client.raw(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").status, 404);
    assert_eq!(client.raw(b"GET /grafanaquery HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").status, 404);
    let get = client.ask("GET", "/query", "", "");
    assert_eq!((get.status, get.header("allow")), (405, Some("POST, OPTIONS")));
    let post = client.post("/", "");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    assert_eq!(client.ask("DELETE", "/query", "", "").status, 405);
}

#[test]
fn only_pages_nearby_may_read() {
    let client = over(store::shared());
    let preflight = "origin: http://localhost:3000\r\naccess-control-request-method: POST\r\n\
                     access-control-request-headers: accept, content-type\r\n";
    let answer = client.ask("OPTIONS", "/annotations", preflight, "");
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, POST"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("accept, content-type"));
    let near = client.ask("POST", "/tag-keys", "origin: http://192.168.1.5:3000\r\n", "{}");
    assert_eq!(
        (near.status, near.header("access-control-allow-origin")),
        (200, Some("http://192.168.1.5:3000"))
    );
    for origin in ["http://evil.example", "http://evil.example:9901", "null", "http://203.0.113.9"] {
        for method in ["OPTIONS", "POST"] {
            let foreign = client.ask(method, "/query", &format!("origin: {origin}\r\n"), "{}");
            assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, None));
            assert!(foreign.message().contains("Access: Server"));
        }
    }
    assert_eq!(client.post("/tag-keys", "{}").header("access-control-allow-origin"), None);
}

#[test]
fn bodies_and_heads_have_limits() {
    let client = over(store::shared());
    let large = client.post("/query", &format!("{{\"x\":\"{}\"}}", "x".repeat(1 << 20)));
    assert_eq!((large.status, large.message()), (413, "the request has more than 1048576 bytes".to_owned()));
    let head = format!("GET /grafana/ HTTP/1.1\r\nhost: x\r\ny: {}\r\n\r\n", "x".repeat(64 << 10));
    assert_eq!(client.raw(head.as_bytes()).status, 431);
    for garbage in ["\u{0}", "[", "[1]", "nonsense", "{\"targets\": [{\"target\": 7}]}", &"[".repeat(100_000)]
    {
        let refused = client.post("/query", garbage);
        assert_eq!(refused.status, 400);
        assert!(refused.message().starts_with("the request is not understood: "), "{}", refused.message());
    }
}

#[test]
fn many_ask_at_once_and_all_are_answered() {
    let client = over(store::shared());
    let body = super::documented::QUERY
        .replace("Packets", "pages")
        .replace("Errors", "status?format=time_series")
        .replace(r#""additional": "optional json""#, "")
        .replace("City", "host")
        .replace("Berlin", "a.test");
    let expected = client.good("/query", &body);
    thread::scope(|scope| {
        let askers: Vec<_> = (0..24).map(|_| scope.spawn(|| client.good("/query", &body))).collect();
        for asker in askers {
            assert_eq!(asker.join().unwrap(), expected);
        }
    });
}

#[test]
fn connections_are_kept_for_the_next_request() {
    let client = over(store::shared());
    let mut stream = client.connect();
    let request = "POST /grafana/tag-keys HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n";
    stream.write_all(format!("{request}\r\n{{}}{request}connection: close\r\n\r\n{{}}").as_bytes()).unwrap();
    let both = read(stream);
    assert_eq!(
        String::from_utf8(both.body).unwrap().matches("HTTP/1.1 200 OK").count(),
        1,
        "the second answer"
    );
}

#[test]
fn a_unix_socket_is_private_and_goes_with_the_interface() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let settings = || Settings {
        identity: None,
        store: Some(Store { url: store::shared().into(), geoip: None }),
        control: None,
        token: None,
        users: None,
        hosts: Arc::default(),
        mount: Mount::Grafana,
        log: Log::silent(),
    };
    let admin = AdminServer::start(&Address::Unix(path.clone()), settings()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /grafana/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(read(stream).status, 200);
    let taken = AdminServer::start(&Address::Unix(path.clone()), settings()).unwrap_err().to_string();
    assert!(taken.contains("admin.sock"), "{taken}");
    drop(admin);
    assert!(!path.exists());
    let nowhere =
        AdminServer::start(&Address::Unix("/nonexistent/admin.sock".into()), settings()).unwrap_err();
    assert!(nowhere.to_string().contains("make the directory first"), "{nowhere}");
}

#[test]
fn a_store_that_is_replaced_is_noticed_or_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.db");
    std::fs::write(&path, "this is no database, whatever its name is; it is long enough to be looked at")
        .unwrap();
    let client = over(&format!("sqlite:{}", path.display()));
    let refused = client.ask("GET", "/", "", "");
    assert_eq!(refused.status, 503, "{}", refused.message());
    std::fs::remove_file(&path).unwrap();
    store::fill(&format!("sqlite:{}", path.display()));
    assert_eq!(client.ask("GET", "/", "", "").status, 200);
}
