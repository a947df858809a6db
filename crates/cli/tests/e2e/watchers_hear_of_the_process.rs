//! `offramp ctl watch` tells what happens to the process: upgrades, changes that wait to be confirmed, limits that refuse,
//! and the end. Each kind can be asked for alone.

use std::fs;
use std::path::Path;

use offramp_testkit::process::{Process, Source};
use serde_json::Value;

use crate::limits_have_names::tcp_of;
use crate::open_connections_are_shown_and_closed::ctl;
use crate::support::crowd::get;
use crate::support::instance::{Home, Instance, LIFE, PATIENCE};
use crate::support::offramp::{offramp, stderr, stdout};
use crate::support::upgrade::{install, run_at};
use crate::upgrades_fail_without_harm::script;

const WEB: &str = "[limits]\nconnections_per_client = 2\n[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
    tls = false\naccept_proxy = \"127.0.0.0/8\"\n[[route]]\nrespond = { body = \"hello\" }\n";

/// Somebody who watches, and has begun to.
struct Watcher {
    process: Process,
    json: bool,
}

impl Watcher {
    fn of(instance: &Instance, words: &[&str]) -> Self {
        let json = words.contains(&"--json");
        let words = [&["ctl", "watch"], words].concat();
        let process = Process::start(offramp(instance.home.path(), &words), LIFE).unwrap();
        Self { process, json }
    }

    fn events(&self) -> Vec<Value> {
        assert!(self.json);
        let lines = self.process.lines(Source::Stdout);
        // Why the stream cannot be read any more is told on several lines.
        let lines = lines.iter().filter(|line| line.starts_with("{\""));
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    /// Waits for something that happened.
    fn event(&self, instance: &Instance, what: &str) -> Value {
        instance.until(what, || self.events().into_iter().find(|event| event["what"] == what))
    }
}

/// Waits until so many watch: what happened before is not told.
fn watching(instance: &Instance, count: usize) {
    let watches = || -> usize {
        // Each keeps a connection to the socket.
        let table = fs::read_to_string("/proc/net/unix").unwrap();
        let socket = instance.home.file("state/admin.sock").display().to_string();
        // The listening socket has a line of its own.
        table.lines().filter(|line| line.ends_with(&socket)).count().saturating_sub(1)
    };
    instance.until("they watch", || (watches() >= count).then_some(()));
}

#[test]
fn watchers_hear_of_the_process() {
    let home = Home::new();
    let program = home.file("bin");
    install(&program);
    let upgraded = run_at(home, &program, WEB);
    let instance = &upgraded.instance;
    let all = Watcher::of(instance, &["--json"]);
    let kinds = ["--kind", "upgrade", "--kind", "stop", "--json"];
    let some = Watcher::of(instance, &kinds);
    let text = Watcher::of(instance, &["--kind", "limit", "--kind", "confirm"]);
    watching(instance, 3);

    // A change waits, is confirmed, replaced or taken back.
    let file = fs::read_to_string(instance.home.file("offramp.toml")).unwrap();
    let apply = |connections: u32, confirm: &str| {
        let new = file.replace("[limits]\n", &format!("[limits]\nconnections = {connections}\n"));
        fs::write(instance.home.file("new.toml"), new).unwrap();
        let done = ctl(instance, &["apply", "new.toml", "--confirm", confirm]);
        assert!(done.status.success(), "{}", stderr(&done));
    };
    apply(77, "1h");
    let waiting = all.event(instance, "waiting");
    assert!(waiting["version"] == 2 && waiting["until"].is_string(), "{waiting}");
    assert!(waiting["by"].as_str().unwrap().contains("uid "), "{waiting}");
    assert!(ctl(instance, &["confirm"]).status.success());
    assert_eq!(all.event(instance, "confirmed")["version"], 2);
    apply(78, "1h");
    assert!(ctl(instance, &["reload"]).status.success());
    assert_eq!(all.event(instance, "replaced")["version"], 3);
    apply(79, "1s");
    assert_eq!(all.event(instance, "taken_back")["version"], 5);
    let told = instance.until("the same as text", || {
        let lines = text.process.lines(Source::Stdout);
        lines.into_iter().find(|line| line.contains(" confirm taken_back "))
    });
    assert!(told.ends_with(" confirm taken_back version=5"), "{told}");

    // A limit refuses.
    let client = "198.51.100.2";
    let mut kept: Vec<_> = (0..2).map(|_| tcp_of(client, instance.address())).collect();
    for stream in &mut kept {
        assert_eq!(get(stream, "/").unwrap(), "hello");
    }
    let _third = tcp_of(client, instance.address());
    let refused = instance.until("the limit", || {
        all.events().into_iter().find(|event| event["limit"] == "limit_connections_per_client")
    });
    assert_eq!((&refused["what"], &refused["client"]), (&"refused".into(), &client.into()));
    assert_eq!((&refused["refused"], &refused["key"]), (&1.into(), &"limits.connections_per_client".into()));

    // An upgrade that fails, and one that does not.
    script(&program, "exit 1");
    upgraded.fails();
    assert_eq!(all.event(instance, "begun")["by"], "SIGUSR2");
    let failed = instance
        .until("why it failed", || some.events().into_iter().find(|event| event["reason"].is_string()));
    assert!(failed["reason"].as_str().unwrap().contains("ended before it was ready"), "{failed}");
    install(&program);
    upgraded.upgrade();
    // Told before the stream of the old process ends.
    assert_eq!(some.event(instance, "took_over")["process"], upgraded.current());
    drop((kept, text));

    // The streams go on at the new process, which ends.
    watching(instance, 2);
    assert!(ctl(instance, &["stop"]).status.success());
    let ended = some.event(instance, "ended");
    assert_eq!((&ended["connections_cut"], &ended["hurried"]), (&0.into(), &false.into()));
    upgraded.until_others_ended();
    let status = some.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(1), "nobody listens any more");
    let whats: Vec<String> =
        some.events().iter().map(|event| event["what"].as_str().unwrap_or("?").to_owned()).collect();
    assert_eq!(whats, ["begun", "refused", "begun", "took_over", "begun", "ended"]);
    // Each line has a kind, and the page has a row for it.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/watch.md");
    let page = fs::read_to_string(page).unwrap();
    for event in all.events() {
        let kind = event["kind"].as_str().unwrap_or_else(|| panic!("{event}"));
        assert!(page.contains(&format!("\n| `{kind}` | ")), "{event}");
    }
    let unknown = ctl(instance, &["watch", "--kind", "stops"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", stdout(&unknown));
}
