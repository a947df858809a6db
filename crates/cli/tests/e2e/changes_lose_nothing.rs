//! Changes by the admin API under constant load: servers drain, routes, servers and certificates come and go, and not one
//! request fails.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use offramp_testkit::server::{Listen, Server, apps};
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::certificates_are_swapped_in_time::shown;
use crate::reload_loses_no_request::reload_to;
use crate::support::crowd::{Crowd, connect, get, trusting, until};
use crate::support::http_app::{app, respond};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE};
use crate::support::offramp::{output, stderr, stdout};
use crate::upgrades_lose_nothing::{Load, listener, stream};

/// An application that answers as a [`Crowd`] expects, counts, and keeps `/slow` waiting while its gate is closed.
struct App {
    server: Server,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    answered: AtomicUsize,
    slow: AtomicUsize,
    open: Mutex<bool>,
    opened: Condvar,
}

impl App {
    fn new() -> Self {
        let state = Arc::<State>::default();
        let own = Arc::clone(&state);
        let server = app(&Listen::Ipv4, move |request, stream| {
            if request.target == "/slow" {
                own.slow.fetch_add(1, Ordering::SeqCst);
                let open = own.open.lock().unwrap();
                drop(own.opened.wait_timeout_while(open, PATIENCE * 2, |open| !*open).unwrap());
            }
            own.answered.fetch_add(1, Ordering::SeqCst);
            respond(stream, 200, &[], format!("hello {}\n", request.target).as_bytes())
        });
        Self { server, state }
    }

    fn address(&self) -> String {
        self.server.address().to_string()
    }

    fn answered(&self) -> usize {
        self.state.answered.load(Ordering::SeqCst)
    }

    fn slow(&self) -> usize {
        self.state.slow.load(Ordering::SeqCst)
    }

    fn open(&self, open: bool) {
        *self.state.open.lock().unwrap() = open;
        self.state.opened.notify_all();
    }
}

/// Runs `offramp ctl` in the home of the instance, which must do what is asked.
fn ctl(instance: &Instance, arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["ctl", "--json"].iter().chain(arguments).copied().collect();
    let done = output(instance.home.path(), &all);
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    serde_json::from_str(&stdout(&done)).unwrap()
}

/// What the admin interface says of a server: its state, and the requests on it.
fn server(instance: &Instance, name: &str) -> (String, u64) {
    let shown = ctl(instance, &["show", "backends"]);
    let servers = shown["backends"][0]["servers"].as_array().unwrap();
    let one = servers.iter().find(|server| server["name"] == name).unwrap();
    (one["state"].as_str().unwrap().to_owned(), one["active"].as_u64().unwrap())
}

/// Starts a request that the application keeps waiting.
fn slow(config: &Arc<ClientConfig>, address: SocketAddr) -> std::thread::JoinHandle<String> {
    let config = Arc::clone(config);
    std::thread::spawn(move || {
        let mut tls = connect(&config, address, "localhost").unwrap();
        get(&mut tls, "/slow").unwrap()
    })
}

#[test]
fn a_server_that_leaves_under_load_loses_no_request() {
    let (leaving, staying) = (App::new(), App::new());
    let text = format!(
        "workers = 2\n[access_log]\noutput = \"none\"\n{CERTIFICATE}{}[[route]]\nbackend = \"shop\"\n\
         [backend.shop]\nservers = [\"{}\", \"{}\"]\n",
        listener("default", "http"),
        leaving.address(),
        staying.address()
    );
    let instance = Home::new().run(&text);
    let config = trusting(&instance.home.ca.certificate());
    let crowd = Crowd::send(6, &config, instance.address(), "localhost");
    let name = leaving.address();
    for (command, state) in [("drain", "draining"), ("disable", "disabled")] {
        until("both servers are used", || {
            let before = [&leaving, &staying].map(App::answered);
            crowd.busy(10);
            let now = [&leaving, &staying].map(App::answered);
            (0..2).all(|at| now[at] > before[at]).then_some(())
        });
        [&leaving, &staying].iter().for_each(|app| app.open(false));
        let (first, mut waiting) = (leaving.slow(), Vec::new());
        until("a slow request at the server that is to leave", || {
            let before = leaving.slow() + staying.slow();
            waiting.push(slow(&config, instance.address()));
            until("a slow request", || (leaving.slow() + staying.slow() > before).then_some(()));
            (leaving.slow() > first).then_some(())
        });
        let kept = u64::try_from(leaving.slow() - first).unwrap();
        let told = ctl(&instance, &["server", command, "shop", &name]);
        // Those whose latest request is there, which no server has answered yet.
        let touched = told["touched"]["connections"].as_u64().unwrap();
        assert!(touched >= kept, "{command}: {kept} slow requests, {told}");
        let open = ctl(&instance, &["conns"]);
        let there = |one: &&Value| one["server"] == name.as_str() && one["requests"]["open"] == 1;
        let there = open["connections"].as_array().unwrap().iter().filter(there).count() as u64;
        assert!(there >= kept, "{command}: {kept} slow requests, {open}");
        // What it had when it was told to leave, and no more than that in the end.
        until("the end of what is quick", || {
            (server(&instance, &name) == (state.to_owned(), kept)).then_some(())
        });
        let before = leaving.answered();
        crowd.busy(50);
        assert_eq!(leaving.answered(), before, "{command}: it gets something new");
        [&leaving, &staying].iter().for_each(|app| app.open(true));
        for client in waiting {
            assert_eq!(client.join().unwrap(), "hello /slow\n");
        }
        until("the end of what it had", || (server(&instance, &name).1 == 0).then_some(()));
        crowd.busy(10);
        ctl(&instance, &["server", "enable", "shop", &name]);
    }
    ctl(&instance, &["server", "drain", "shop", &name]);
    until("an idle server", || (server(&instance, &name).1 == 0).then_some(()));
    // Nobody misses it now.
    drop(leaving);
    crowd.busy(50);
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
    instance.stop();
}

/// One request to the admin socket, and its answer, which must be 200.
fn change(instance: &Instance, method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut admin = UnixStream::connect(instance.home.file("state/admin.sock")).unwrap();
    let head = format!("{method} /v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    admin.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    admin.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{method} {path}: {answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The change of a turn: each kind comes again after ten, in the state that a reload leaves.
fn change_of(turn: usize, first: &str, second: &str) -> (&'static str, String, Value) {
    let of = |name: &str| format!("/backends/shop/servers/{name}");
    match turn % 10 {
        0 => (
            "POST",
            "/routes".into(),
            json!({ "listener": "default", "host": "localhost", "path": "/crowd", "server": second }),
        ),
        1 => ("PATCH", of(first), json!({ "state": "drain" })),
        2 => ("POST", "/backends/shop/servers".into(), json!({ "address": "127.0.0.1:9", "backup": true })),
        3 => ("DELETE", of(second), Value::Null),
        4 => ("PUT", "/backends/more".into(), json!({ "servers": [second], "balance": "least_conn" })),
        5 => ("PATCH", of(second), json!({ "weight": 7 })),
        6 => ("PATCH", of(first), json!({ "state": "disabled" })),
        7 => ("DELETE", "/routes/shop.example".into(), Value::Null),
        8 => ("PUT", "/routes/shop.example".into(), json!({ "host": "shop.example", "server": first })),
        _ => (
            "POST",
            "/listeners".into(),
            json!({ "name": "extra", "address": "127.0.0.1:0", "mode": "http" }),
        ),
    }
}

#[test]
fn no_request_and_no_stream_fails_over_fifty_changes_and_two_hundred_reloads() {
    let echoes = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let (first, second) = (App::new(), App::new());
    let text = |turn: usize| {
        let servers = [first.address(), second.address()];
        format!(
            "workers = 2\n[access_log]\noutput = \"none\"\n[limits]\nhandshake_timeout = \"1m\"\n\
             idle_timeout = \"{}m\"\n{CERTIFICATE}{}{}\
             [[route]]\nlistener = \"blind\"\nserver = \"{}\"\n\
             [[route]]\nhost = \"shop.example\"\nlistener = \"default\"\nbackend = \"shop\"\n\
             [[route]]\nlistener = \"default\"\nbackend = \"shop\"\n\
             [backend.shop]\nservers = [\"{}\", \"{}\"]\n",
            5 + turn % 2,
            listener("blind", "tcp"),
            listener("default", "http"),
            echoes.address(),
            servers[turn % 2],
            servers[(turn + 1) % 2],
        )
    };
    let instance = Home::new().run(&text(0));
    let config = trusting(&instance.home.ca.certificate());
    let crowd = Crowd::send(4, &config, instance.address(), "localhost");
    let mut streams = Load::new();
    for seed in 0..3 {
        let tls = connect(&config, instance.address_of("blind"), "localhost").unwrap();
        streams.add(move |goes_on| stream(tls, seed, goes_on));
    }
    let mut took = Vec::new();
    for turn in 0..50 {
        let (method, path, body) = change_of(turn, &first.address(), &second.address());
        let begun = Instant::now();
        let done = change(&instance, method, &path, &body);
        if path == "/routes" {
            took.push(begun.elapsed());
        }
        assert_ne!(done["changes"], json!([]), "{method} {path}");
        crowd.busy(1);
        streams.busy(1);
        let renewed = instance.home.renew();
        for reload in 0..4 {
            // A signal is obeyed once a second.
            if (turn % 10, reload) == (0, 0) {
                let outcome = reload_to(&instance, &text(turn + reload));
                assert!(outcome.contains(" reloaded "), "{outcome}");
            } else {
                instance.home.configure(&text(turn + reload));
                change(&instance, "POST", "/reload", &Value::Null);
            }
        }
        instance.until("the new certificate", || (shown(&instance, "localhost") == renewed).then_some(()));
    }
    println!("until a route is added under load, by the API: {took:?}");
    streams.stop();
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
    assert!(first.answered() > 0 && second.answered() > 0, "both servers were used");
    let counters = ctl(&instance, &["show", "counters"])["counters"].clone();
    assert_eq!(counters["offramp_config_reloads_total{outcome=\"success\"}"], 250, "{counters}");
    instance.stop();
}
