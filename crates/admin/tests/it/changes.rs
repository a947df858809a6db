//! The API about the running process, over a Unix socket: a real server behind it, without clients.

use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use offramp_admin::{AdminServer, Control, Mount, Settings};
use offramp_config::Environment;
use offramp_control::outputs::Streams;
use offramp_control::{Exit, Handle, Server, Start};
use offramp_net::Address;
use offramp_observe::prometheus::Build;
use offramp_observe::{Log, Panics};
use offramp_process::sandbox::Reach;
use offramp_process::{Origin, ServiceManager};
use serde_json::{Value, json};

use super::client::{Answer, read, start};

const TEXT: &str = "# A comment.\nworkers = 1\nuser = \"root\"\nstate_dir = \"state\"\n\
    [access_log]\noutput = \"none\"\n\
    [[listener]]\nname = \"web\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
    [[route]]\nhost = \"shop.example\"\nbackend = \"shop\"\n\
    [backend.shop]\nservers = [\"127.0.0.1:9\", \"127.0.0.1:8 weight=2\"] # two\n";

/// A server in a folder of its own, and its admin interface.
pub(crate) struct Rig {
    pub(crate) folder: tempfile::TempDir,
    handle: Handle,
    admin: Option<AdminServer>,
    thread: Option<JoinHandle<Exit>>,
}

fn text() -> String {
    if offramp_net::process::is_root() { TEXT.to_owned() } else { TEXT.replace("user = \"root\"\n", "") }
}

fn settings(control: Option<Control>, token: Option<Arc<str>>) -> Settings {
    Settings {
        store: None,
        control,
        token,
        users: None,
        hosts: Arc::default(),
        identity: None,
        mount: Mount::Grafana,
        log: Log::silent(),
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("offramp.toml");
        std::fs::write(&file, text()).unwrap();
        let environment = Environment { is_root: offramp_net::process::is_root(), ..Environment::default() };
        let loaded = offramp_config::load(&file, &environment);
        let (config, _) = loaded.unwrap_or_else(|errors| panic!("{errors}"));
        let server = Server::start(Start {
            config,
            origin: Origin::File(file),
            environment,
            log: Log::silent(),
            streams: Streams::default(),
            panics: Panics::default(),
            bound: None,
            build: Build { version: "0.0.0", commit: "" },
            open_store: None,
            program: None,
            helper: None,
            also: Reach::default(),
            from: offramp_control::StartFrom::File,
            manager: ServiceManager::default(),
            signals: false,
        });
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        let (handle, view) = (server.handle(), server.view());
        let control = Some(Control::new(handle.clone(), view));
        let socket = Address::Unix(folder.path().join("admin.sock"));
        let admin = AdminServer::start(&socket, settings(control, None)).unwrap();
        let thread = std::thread::spawn(|| server.run());
        Self { folder, handle, admin: Some(admin), thread: Some(thread) }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        ask(&self.folder.path().join("admin.sock"), method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, "", "");
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// A change that is made.
    pub(crate) fn change(&self, method: &str, path: &str, body: &str) -> Value {
        let answer = self.ask(method, path, "", body);
        assert_eq!(answer.status, 200, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// A change that is refused: its status and problem.
    pub(crate) fn refused(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.ask(method, path, "", body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{method} {path}");
        let problem = answer.json();
        assert_eq!(problem["status"], answer.status);
        (answer.status, problem)
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("offramp.toml")).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.admin.take());
        self.handle.order_stop(true, offramp_control::Requester::Program);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn ask(socket: &Path, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    read(stream)
}

#[test]
fn the_process_tells_of_itself() {
    let rig = Rig::new();
    let status = rig.get("/v1/status");
    assert_eq!((&status["version"], &status["config"]["version"]), (&json!("0.0.0"), &json!(1)));
    assert_eq!(status["servers"], json!({ "up": 2 }));
    let config = rig.get("/v1/config");
    let origin = config["settings"]["workers"]["origin"].as_str().unwrap();
    assert!(origin.ends_with("offramp.toml:2:11"), "{origin}");
    assert_eq!(config["settings"]["limits.idle_timeout"]["origin"], "default");
    let listener = rig.get("/v1/listeners/web");
    assert!(listener["listening"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{listener}");
    assert_eq!(rig.get("/v1/routes")["routes"][0]["name"], "shop.example");
    let backend = rig.get("/v1/backends/shop");
    assert_eq!(backend["servers"][1]["weight"], 2);
    assert_eq!(backend["servers"][0]["state"], "up");
    assert_eq!(rig.get("/v1/workers")["workers"].as_array().unwrap().len(), 1);
    assert!(rig.get("/v1/counters")["counters"].as_object().unwrap().len() > 20);
    assert_eq!(rig.get("/v1/changes"), json!({ "version": 1, "changes": [], "closed_connections": [] }));
    let toml = rig.ask("GET", "/v1/config?format=toml", "", "");
    assert_eq!(toml.header("content-type"), Some("application/toml"));
    for (method, path, near) in [
        ("GET", "/v1/backends/shp", "shop"),
        ("DELETE", "/v1/backends/shop/servers/127.0.0.1%3A7", "127.0.0.1:9"),
        ("GET", "/v1/conections", "/v1/connections"),
        ("GET", "/v1/connections?listener=wed", "web"),
        ("GET", "/v1/connections?route=shop.exmple", "shop.example"),
        ("DELETE", "/v1/connections?route=shop.exmple", "shop.example"),
    ] {
        let (status, problem) = rig.refused(method, path, "");
        assert_eq!((status, &problem["nearest"]), (404, &json!(near)), "{path}: {problem}");
    }
    assert_eq!(rig.get("/v1/connections?route=shop.example&listener=web")["connections"], json!([]));
}

#[test]
fn a_whole_configuration_replaces_another() {
    let rig = Rig::new();
    let tag = rig.ask("GET", "/v1/config", "", "").header("etag").unwrap().to_owned();
    let new = text().replace("[[route]]", "[limits]\nconnections = 77\n[[route]]");
    let plan = rig.change("PUT", "/v1/config?dry_run", &new);
    assert_eq!((&plan["dry_run"], &plan["version"]), (&json!(true), &json!(1)));
    assert_eq!(plan["warnings"], json!([]));
    // It would cut off whoever makes it, but not before the next start.
    let cut = rig.change("PUT", "/v1/config?dry_run", &format!("{new}[admin]\nenabled = false\n"));
    assert!(cut["warnings"][0].as_str().unwrap().starts_with("[admin] stays as it is"), "{cut}");
    // So would another user, or another place of the socket.
    let moved = rig.change(
        "PUT",
        "/v1/config?dry_run",
        &format!("user = \"nobody\"\n{}", text().replace("user = \"root\"\n", "")),
    );
    assert!(moved["warnings"].to_string().contains("`user` stays as it is until the next start"), "{moved}");
    let moved = rig.change("PUT", "/v1/config?dry_run", &text().replace("\"state\"", "\"other\""));
    assert!(moved["warnings"].to_string().contains("`state_dir` stays as it is"), "{moved}");
    assert!(plan["changes"][0].as_str().unwrap().starts_with("limits.connections: "), "{plan}");
    assert_eq!(rig.get("/v1/changes")["version"], 1);
    let done = rig.ask("PUT", "/v1/config", &format!("if-match: {tag}\r\n"), &new);
    assert_eq!((done.status, &done.json()["version"]), (200, &json!(2)));
    let late = rig.ask("PUT", "/v1/config", &format!("if-match: {tag}\r\n"), &text());
    assert_eq!((late.status, &late.json()["version"]), (409, &json!(2)));
    assert!(late.json()["difference"][0].as_str().unwrap().starts_with("limits.connections: "));
    let foreign = rig.ask("PUT", "/v1/config", "if-match: \"1-2\"\r\n", &text());
    assert_eq!((foreign.status, &foreign.json()["difference"]), (409, &json!([])));
    let (status, problem) = rig.refused("PUT", "/v1/config?name=new.toml", "workers = \"x\"\nuserr = 1\n");
    assert_eq!(status, 422);
    let at = problem["errors"][0]["at"].as_str().unwrap();
    assert!(problem["errors"].as_array().unwrap().len() >= 2 && at.starts_with("new.toml:1:"), "{problem}");
    let change = rig.get("/v1/changes")["changes"][0].clone();
    assert!(change["by"].as_str().unwrap().contains("uid "), "{change}");
    assert_eq!(rig.get("/v1/refused")["refused"].as_array().unwrap().len(), 1);
    assert_eq!(rig.get("/v1/status")["config"]["last_refused"]["by"], change["by"]);
    let back = rig.change("POST", "/v1/rollback", "");
    assert_eq!(back["version"], 3);
    assert_eq!(rig.refused("POST", "/v1/rollback?to=9", "").1["versions"], json!([1, 2, 3]));
    assert_eq!(rig.file(), text(), "the file stays");
}

#[test]
fn a_change_that_nobody_confirms_is_taken_back() {
    let rig = Rig::new();
    let new = text().replace("[[route]]", "[limits]\nconnections = 77\n[[route]]");
    assert_eq!(rig.refused("POST", "/v1/confirm", "").0, 409);
    let done = rig.change("PUT", "/v1/config?confirm=1s", &new);
    assert!(done["confirm_until"].is_string(), "{done}");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while rig.get("/v1/changes")["version"] != 3 {
        assert!(std::time::Instant::now() < deadline, "it is not taken back");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(rig.get("/v1/changes")["changes"][0]["by"], "not confirmed in time");
    // One that is confirmed is written to the file then, and not before.
    let done = rig.change("PUT", "/v1/config?confirm=1h&persist", &new);
    assert_eq!((&done["version"], rig.file()), (&json!(4), text()));
    assert_eq!(rig.refused("PUT", "/v1/config", &text()).0, 409, "one change at a time");
    assert_eq!(rig.change("PUT", "/v1/config?dry_run", &text())["dry_run"], true);
    let confirmed = rig.change("POST", "/v1/confirm", "");
    assert!(confirmed["persisted"].as_str().unwrap().ends_with("offramp.toml"), "{confirmed}");
    assert_eq!(rig.file(), new);
    assert_eq!(rig.get("/v1/changes")["version"], 4);
}

#[test]
fn servers_and_routes_change_one_by_one() {
    let rig = Rig::new();
    let server = "/v1/backends/shop/servers/127.0.0.1:9";
    let done = rig.change("PATCH", &format!("{server}?persist"), r#"{"state":"drain"}"#);
    assert_eq!(done["changes"], json!(["backend shop: server 127.0.0.1:9: enabled -> drain"]));
    assert_eq!(rig.file(), text().replace("127.0.0.1:9\"", "127.0.0.1:9 drain\""));
    let shown = rig.get("/v1/backends/shop");
    assert_eq!((&shown["servers"][0]["state"], &shown["origin"]), (&json!("draining"), &json!("admin API")));
    rig.change("PATCH", server, r#"{"state":"disabled","weight":7}"#);
    let shown = rig.get("/v1/backends/shop")["servers"][0].clone();
    assert_eq!((&shown["state"], &shown["weight"]), (&json!("disabled"), &json!(7)));
    rig.change("PATCH", server, r#"{"state":"enabled"}"#);
    assert_eq!(rig.get("/v1/backends/shop")["servers"][0]["state"], "up");
    rig.change("POST", "/v1/backends/shop/servers", r#"{"address":"127.0.0.1:7","backup":true}"#);
    rig.change("DELETE", "/v1/backends/shop/servers/127.0.0.1:8", "");
    let names = |value: Value| -> Vec<String> {
        value["servers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(rig.get("/v1/backends/shop")), ["127.0.0.1:9", "127.0.0.1:7"]);
    rig.change("PUT", "/v1/backends/blog", r#"{"servers":["127.0.0.1:6"],"balance":"least_conn"}"#);
    let route = r#"{"host":"blog.example","path":"/a","backend":"blog"}"#;
    assert_eq!(rig.change("POST", "/v1/routes", route)["changes"].as_array().unwrap().len(), 1);
    let named = "/v1/routes/blog.example%2Fa";
    assert_eq!(rig.get(named)["config"]["backend"], "blog");
    assert_eq!(rig.refused("DELETE", "/v1/backends/blog", "").0, 409, "a route leads to it");
    rig.change("PUT", named, r#"{"host":"blog.example","path":"/a","server":"127.0.0.1:5"}"#);
    rig.change("DELETE", "/v1/backends/blog", "");
    rig.change("DELETE", named, "");
    rig.change("PUT", "/v1/log-level", r#"{"level":"debug"}"#);
    assert_eq!(
        rig.get("/v1/config")["settings"]["log.level"],
        json!({ "value": "debug", "origin": "admin API" })
    );
    // What was not touched is where it was.
    let origin = rig.get("/v1/routes/shop.example")["origin"].as_str().unwrap().to_owned();
    assert!(origin.contains("offramp.toml:"), "{origin}");
    for (method, path, body, status) in [
        ("PATCH", "/v1/backends/shop/servers/127.0.0.1:99", r#"{"state":"drain"}"#, 404),
        ("PATCH", "/v1/backends/shpo/servers/127.0.0.1:9", r#"{"state":"drain"}"#, 404),
        ("PATCH", server, r#"{"state":"sleep"}"#, 400),
        ("PATCH", server, r#"{"weight":0}"#, 400),
        ("PATCH", server, r#"{"wieght":1}"#, 400),
        ("PATCH", server, "", 400),
        ("POST", "/v1/backends/shop/servers", r#"{"address":"a b"}"#, 400),
        ("POST", "/v1/routes", r#"{"hots":"a.example"}"#, 422),
        ("PUT", "/v1/log-level", r#"{"level":"loud"}"#, 422),
        ("DELETE", "/v1/routes/none.example", "", 404),
        ("PUT", "/v1/config?dryrun", "", 400),
    ] {
        assert_eq!(rig.refused(method, path, body).0, status, "{method} {path} {body}");
    }
}

#[test]
fn certificates_change_one_by_one() {
    let rig = Rig::new();
    let item = r#"{"local":true,"names":["a.example","b.example"]}"#;
    let done = rig.change("POST", "/v1/certificates?persist", item);
    assert_eq!(done["changes"].as_array().unwrap().len(), 1, "{done}");
    assert!(
        rig.file().starts_with("# A comment.") && rig.file().contains("[[certificate]]"),
        "{}",
        rig.file()
    );
    let shown = rig.get("/v1/certificates");
    assert_eq!(shown["items"][0]["name"], "a.example,b.example");
    let named = "/v1/certificates/a.example%2Cb.example";
    rig.change("PUT", named, r#"{"local":true,"names":["a.example"]}"#);
    assert_eq!(rig.get("/v1/certificates/a.example")["config"]["names"], json!(["a.example"]));
    assert_eq!(rig.refused("GET", named, "").0, 404);
    let missing = rig.refused("POST", "/v1/certificates", r#"{"cert":"none.pem"}"#);
    assert_eq!(missing.0, 422);
    assert!(missing.1["detail"].as_str().unwrap().contains("none.pem"), "{}", missing.1);
    rig.change("DELETE", "/v1/certificates/a.example", "");
    assert_eq!(rig.get("/v1/certificates")["items"], json!([]));
}

#[test]
fn other_methods_paths_pages_and_addresses_are_refused() {
    let rig = Rig::new();
    let post = rig.ask("POST", "/v1/changes", "", "");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD")));
    assert!(rig.ask("HEAD", "/v1/changes", "", "").body.is_empty());
    for path in ["/v1", "/v1/", "/v1/change", "/v1/changes/1"] {
        assert_eq!(rig.refused("GET", path, "").0, 404, "{path}");
    }
    for origin in ["http://evil.example", "http://localhost:3000"] {
        let origin = format!("origin: {origin}\r\n");
        assert_eq!(rig.ask("GET", "/v1/changes", &origin, "").status, 403);
    }
    let (status, problem) = rig.refused("GET", "/v1/status", "a body");
    assert_eq!((status, &problem["detail"]), (400, &json!("GET /v1/status takes no body; leave it out")));
    assert_eq!(rig.refused("POST", "/v1/reload", &"x".repeat(1000)).0, 400);
    // Clients send an empty object where they have nothing to send.
    assert_eq!(rig.ask("POST", "/v1/reload?dry_run", "", "{}").status, 200);
    let socket = rig.folder.path().join("other.sock");
    let _without = AdminServer::start(&Address::Unix(socket.clone()), settings(None, None)).unwrap();
    assert_eq!(ask(&socket, "GET", "/v1/changes", "", "").status, 503);
    let tcp = start(None, Mount::Grafana);
    let refused = tcp.raw(b"GET /v1/changes HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(refused.status, 403);
    assert!(refused.json()["detail"].as_str().unwrap().contains("token_file"));
}

#[test]
fn every_operation_of_the_description_answers_and_no_other() {
    let rig = Rig::new();
    let document = rig.get("/v1/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    // What may expect a version is answered with a conflict, and nothing else is.
    let paths = &document["paths"];
    for (path, method, may) in [
        ("config", "put", true),
        ("reload", "post", true),
        ("confirm", "post", true),
        ("stop", "post", false),
    ] {
        let operation = &paths[format!("/v1/{path}")][method];
        assert_eq!(operation["responses"].get("409").is_some(), may, "{path}");
        assert_eq!(operation["parameters"].to_string().contains("If-Match"), may, "{path}");
    }
    let mut ids = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let concrete = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
        let mut concrete = concrete.collect::<Vec<_>>().join("/");
        // A stream has no end.
        if concrete == "/v1/figures" {
            concrete.push_str("?once");
        }
        for method in ["get", "put", "post", "patch", "delete"] {
            let Some(operation) = methods.get(method) else {
                let status = rig.ask(&method.to_ascii_uppercase(), &concrete, "", "").status;
                assert_eq!(status, 405, "{method} {concrete} is not described");
                continue;
            };
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
            if concrete == "/v1/stop" || concrete == "/v1/events" {
                continue;
            }
            // Nothing that would be applied: an empty configuration is one.
            let body = if operation["requestBody"].is_null() { "" } else { "?" };
            let answer = rig.ask(&method.to_ascii_uppercase(), &concrete, "", body);
            let kind = answer.header("content-type").unwrap().to_owned();
            let described = match answer.status {
                200 => &operation["responses"]["200"]["content"],
                _ => &operation["responses"]["default"]["content"],
            };
            assert!(described.get(&kind).is_some(), "{method} {concrete}: {} {kind}", answer.status);
            assert!(!matches!(answer.status, 405 | 500..), "{method} {concrete}: {}", answer.status);
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert!(count > 30, "{count}");
    let stopping = rig.ask("POST", "/v1/stop", "", "");
    assert_eq!(stopping.status, 202);
}

#[test]
fn of_two_changes_of_the_same_version_one_is_made() {
    let rig = Rig::new();
    let tag = rig.ask("GET", "/v1/config", "", "").header("etag").unwrap().to_owned();
    let socket = rig.folder.path().join("admin.sock");
    // One that sends half of its request holds up nobody.
    let mut half = UnixStream::connect(&socket).unwrap();
    half.write_all(b"PUT /v1/config HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nworkers").unwrap();
    let threads: Vec<_> = (0..8)
        .map(|at| {
            let (socket, tag) = (socket.clone(), tag.clone());
            let text =
                text().replace("[[route]]", &format!("[limits]\nconnections = {}\n[[route]]", at + 70));
            std::thread::spawn(move || {
                ask(&socket, "PUT", "/v1/config", &format!("if-match: {tag}\r\n"), &text).status
            })
        })
        .collect();
    let mut statuses: Vec<u16> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!(rig.get("/v1/changes")["version"], 2);
    drop(half);
}

#[test]
fn what_happens_is_told_while_it_happens() {
    let rig = Rig::new();
    let mut stream = UnixStream::connect(rig.folder.path().join("admin.sock")).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /v1/events?kind=change,server HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut lines = std::io::BufReader::new(stream).lines().map(Result::unwrap);
    // The head is there when what is in force was looked at.
    lines.find(|line| line.contains("from now on")).unwrap();
    rig.change("PUT", "/v1/log-level", r#"{"level":"debug"}"#);
    rig.change("PATCH", "/v1/backends/shop/servers/127.0.0.1:9", r#"{"state":"drain"}"#);
    let mut told: Vec<(String, Value)> = Vec::new();
    while told.len() < 3 {
        let kind = lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned)).unwrap();
        let data = lines.next().unwrap();
        told.push((kind, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()));
    }
    let of =
        |kind: &str| told.iter().filter(|(other, _)| other == kind).map(|(_, data)| data).collect::<Vec<_>>();
    let changes: Vec<_> = of("change").iter().map(|change| change["version"].clone()).collect();
    assert_eq!(changes, [json!(2), json!(3)]);
    let server = of("server")[0];
    assert_eq!((&server["state"], &server["before"]), (&json!("draining"), &json!("up")), "{server}");
    assert_eq!(rig.refused("GET", "/v1/events?kind=wind", "").0, 400);
}
