//! Balancing of requests: in turn with weights, by load, by hash, by cookie; backups, checks, ejection;
//! bounds, and who waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use offramp_testkit::server::{Listen, Refusing, Server, faults};

use crate::reload_loses_no_request::reload;
use crate::support::crowd::{Tls, connect, trusting};
use crate::support::http_app::{Seen, app, named, respond};
use crate::support::http_curl::{HTTP, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, cause, text};

/// Applications `0.sock`, `1.sock`, `2.sock` that answer with their number, behind a backend with these
/// words after each and these keys.
fn three(words: [&str; 3], keys: &str) -> (Vec<(Server, Seen)>, Instance) {
    let home = Home::new();
    let apps = [0, 1, 2]
        .map(|number| named(&Listen::Unix(home.file(&format!("{number}.sock"))), &number.to_string()))
        .into();
    let servers: Vec<String> =
        words.iter().enumerate().map(|(number, word)| format!("\"unix:{number}.sock{word}\"")).collect();
    let instance = home.run(&format!(
        "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"three\"\n\
         [backend.three]\nservers = [{}]\n{keys}",
        servers.join(", ")
    ));
    (apps, instance)
}

/// Who answers so many requests, one after the other, with these arguments of curl.
fn answers(instance: &Instance, arguments: &[&str], count: usize) -> BTreeMap<String, usize> {
    let told = get(instance, arguments, &format!("https://localhost/[1-{count}]")).text();
    // curl prints heads between bodies.
    let mut sums = BTreeMap::new();
    for line in told.lines().chain(["0"]).filter(|line| ["0", "1", "2"].contains(line)) {
        *sums.entry(line.to_owned()).or_insert(0) += 1;
    }
    // The one that was chained.
    *sums.get_mut("0").unwrap() -= 1;
    sums.retain(|_, count| *count > 0);
    assert_eq!(sums.values().sum::<usize>(), count, "{told}");
    sums
}

fn counted(sums: [(&str, usize); 3]) -> BTreeMap<String, usize> {
    sums.map(|(name, count)| (name.to_owned(), count)).into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn in_turn_with_weights() {
    for version in ["--http1.1", "--http2"] {
        let (_apps, instance) = three(["", " weight=3", ""], "");
        assert_eq!(answers(&instance, &[version], 50), counted([("0", 10), ("1", 30), ("2", 10)]));
        instance.stop();
    }
}

#[test]
fn by_hash_of_client_cookie_and_header() {
    let (_apps, instance) = three(["", "", ""], "balance = \"hash:client\"\n");
    assert_eq!(answers(&instance, &["--http1.1"], 20).len(), 1);
    instance.stop();
    for (keys, field) in [
        ("balance = \"hash:header:X-Key\"\n", "X-Key: "),
        ("balance = \"hash:cookie:key\"\n", "Cookie: other=1; key="),
    ] {
        let (_apps, instance) = three(["", "", ""], keys);
        let mut used = BTreeSet::new();
        // Servers' names differ from run to run: a dozen keys may leave one out, sixty do not.
        for key in 0..60 {
            if key >= 6 && used.len() == 3 {
                break;
            }
            let field = format!("{field}{key}");
            let first = answers(&instance, &["--http2", "--header", &field], 3);
            assert_eq!(
                (first.len(), answers(&instance, &["--http1.1", "--header", &field], 3)),
                (1, first.clone())
            );
            used.extend(first.into_keys());
        }
        assert_eq!(used.len(), 3, "{keys}");
        instance.stop();
    }
}

#[test]
fn a_cookie_keeps_a_client_with_its_server() {
    let (_apps, instance) = three(["", "", ""], "sticky_cookie = \"stays\"\n");
    let mut servers = BTreeMap::new();
    for _ in 0..6 {
        let answer = get(&instance, &[], "https://localhost/");
        let cookie = answer.field("set-cookie");
        assert!(
            cookie.starts_with("stays=") && cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"),
            "{cookie}"
        );
        let pair = cookie.split(';').next().unwrap().to_owned();
        servers.insert(answer.text(), pair);
    }
    assert_eq!(servers.len(), 3);
    for (server, pair) in &servers {
        for version in ["--http1.1", "--http2"] {
            let answer =
                get(&instance, &[version, "--cookie", &format!("a=b; {pair}")], "https://localhost/");
            assert_eq!((answer.text(), answer.field("set-cookie")), (server.clone(), ""), "{pair}");
        }
    }
    // The secret is a file of its owner's alone, and outlives a reload.
    let secret = fs::metadata(instance.home.file("state/sticky.key")).unwrap();
    assert_eq!(secret.permissions().mode() & 0o777, 0o600);
    assert!(reload(&instance).contains(" reloaded "));
    for (server, pair) in &servers {
        let answer = get(&instance, &["--cookie", pair], "https://localhost/");
        assert_eq!((answer.text(), answer.field("set-cookie")), (server.clone(), ""), "{pair}");
    }
    // One that means nothing is replaced.
    let answer = get(&instance, &["--cookie", "stays=nonsense"], "https://localhost/");
    assert!(answer.field("set-cookie").starts_with("stays="), "{answer:?}");
    instance.stop();
}

#[test]
fn a_backup_stands_in_while_the_others_are_away() {
    let home = Home::new();
    let refusing = Refusing::new(&Listen::Ipv4).unwrap();
    let (_app, _) = named(&Listen::Unix(home.file("backup.sock")), "backup");
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
         [backend.app]\nservers = [\"{}\", \"unix:backup.sock backup\"]\n",
        refusing.address()
    ));
    for version in ["--http1.1", "--http2"] {
        assert_eq!(get(&instance, &[version], "https://localhost/").text(), "backup\n");
        let posted = get(&instance, &[version, "--data", "x"], "https://localhost/");
        assert_eq!(posted.text(), "backup\n");
    }
    let events = instance.stop();
    assert!(events.iter().all(|event| text(event, "server").ends_with("backup.sock")), "{events:?}");
    assert_eq!(events[0]["tries"], 2, "{}", events[0]);
}

/// An application whose `/health` says what the flag says; it answers anything else with its name.
fn checked(listen: &Listen, name: &'static str, well: &Arc<AtomicBool>) -> Server {
    let well = Arc::clone(well);
    app(listen, move |request, stream| {
        if request.target == "/health" {
            let status = if well.load(Ordering::SeqCst) { 204 } else { 500 };
            return respond(stream, status, &[], b"");
        }
        respond(stream, 200, &[], format!("{name}\n").as_bytes())
    })
}

#[test]
fn a_check_takes_a_server_out_and_in_again() {
    let home = Home::new();
    let well = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
    let _apps = [("0", 0), ("1", 1)]
        .map(|(name, at)| checked(&Listen::Unix(home.file(&format!("{name}.sock"))), name, &well[at]));
    let instance = home.run(&format!(
        "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
         [backend.app]\nservers = [\"unix:0.sock\", \"unix:1.sock\"]\n\
         health = {{ path = \"/health\", interval = \"20ms\", rise = 2, fall = 2 }}\n\
         eject = {{ slow_start = \"0s\" }}\n"
    ));
    let both = counted([("0", 5), ("1", 5), ("2", 0)]);
    assert_eq!(answers(&instance, &[], 10), both);
    well[0].store(false, Ordering::SeqCst);
    instance.until("only the other one", || {
        (answers(&instance, &[], 10) == counted([("0", 0), ("1", 10), ("2", 0)])).then_some(())
    });
    well[1].store(false, Ordering::SeqCst);
    let answer = instance
        .until("nobody", || Some(curl(&instance, &[], "https://localhost/")).filter(|a| a.status() == 503));
    instance.event("a dead backend", |event| {
        text(event, "id") == answer.field("x-request-id") && cause(event) == "no_server_alive"
    });
    for one in &well {
        one.store(true, Ordering::SeqCst);
    }
    instance.until("both again", || {
        let some = curl(&instance, &[], "https://localhost/").status() == 200;
        (some && answers(&instance, &[], 10) == both).then_some(())
    });
    instance.stop();
}

#[test]
fn a_server_that_fails_clients_is_taken_out_for_a_while() {
    let home = Home::new();
    let broken =
        Server::start(&Listen::Unix(home.file("0.sock")), faults::close_in_the_middle(b"nonsense\r\n\r\n"))
            .unwrap();
    let (_good, _) = named(&Listen::Unix(home.file("1.sock")), "1");
    let instance = home.run(&format!(
        "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
         [backend.app]\nservers = [\"unix:0.sock\", \"unix:1.sock\"]\neject = {{ failures = 2, for = \"1h\" }}\n"
    ));
    let failed = (0..20).filter(|_| curl(&instance, &[], "https://localhost/").status() == 502).count();
    assert_eq!((failed, broken.accepted()), (2, 2));
    instance.stop();
}

/// An application that answers `/held` only when the test says so.
fn held(home: &Home, name: &str) -> (Server, Receiver<Sender<()>>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let name_ = name.to_owned();
    let server = app(&Listen::Unix(home.file(&format!("{name}.sock"))), move |request, stream| {
        if request.target == "/held" {
            let (let_go, wait) = channel();
            let _ = tell.lock().unwrap().send(let_go);
            let _ = wait.recv_timeout(PATIENCE);
        }
        respond(stream, 200, &[], format!("{name_}\n").as_bytes())
    });
    (server, told)
}

#[test]
fn the_less_busy_one_is_chosen() {
    for balance in ["least_conn", "two_choices"] {
        let home = Home::new();
        let apps = ["0", "1"].map(|name| held(&home, name));
        let instance = home.run(&format!(
            "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
             [backend.app]\nservers = [\"unix:0.sock\", \"unix:1.sock\"]\nbalance = \"{balance}\"\n"
        ));
        let config = trusting(&instance.home.ca.certificate());
        let mut waiting = connect(&config, instance.address(), "localhost").unwrap();
        waiting.write_all(b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let (busy, let_go) = instance.until("a busy server", || {
            apps.iter().enumerate().find_map(|(at, app)| Some((at, app.1.try_recv().ok()?)))
        });
        let other = if busy == 0 { "1" } else { "0" };
        assert_eq!(answers(&instance, &[], 10), BTreeMap::from([(other.to_owned(), 10)]), "{balance}");
        let_go.send(()).unwrap();
        drop(waiting);
        instance.stop();
    }
}

/// A backend with one place and one seat to wait for it, and the one that holds the place.
fn full(queue_timeout: &str) -> (Server, Instance, Sender<()>, [Tls; 3]) {
    let home = Home::new();
    let (app, told) = held(&home, "app");
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n[backend.app]\nservers = \"unix:app.sock\"\n\
         max_connections = 1\nqueue = 1\nqueue_timeout = \"{queue_timeout}\"\n"
    ));
    let config = trusting(&instance.home.ca.certificate());
    let ask = |path: &str| {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        write!(tls, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        tls
    };
    let first = ask("/held");
    let let_go = told.recv_timeout(PATIENCE).unwrap();
    // One of these two waits, and the other finds nowhere to.
    let others = [ask("/one"), ask("/other")];
    let event = instance.event("no room", |event| cause(event) == "queue_full");
    assert_eq!((event["status"].as_u64(), text(&event, "fault")), (Some(503), "policy"), "{event}");
    let [one, other] = others;
    (app, instance, let_go, [first, one, other])
}

#[test]
fn who_waits_too_long_for_room_is_told() {
    let (_app, instance, let_go, clients) = full("3s");
    let event = instance.event("too long", |event| cause(event) == "queue_timeout");
    assert_eq!((event["status"].as_u64(), text(&event, "fault")), (Some(503), "policy"), "{event}");
    assert!(event["queue_us"].as_u64().unwrap() >= 3_000_000, "{event}");
    let_go.send(()).unwrap();
    instance.event("the one that held the place", |event| {
        text(event, "path") == "/held" && event["status"] == 200
    });
    drop(clients);
    instance.stop();
}

#[test]
fn who_waits_for_room_gets_it() {
    let (_app, instance, let_go, clients) = full("5m");
    let_go.send(()).unwrap();
    let waited =
        instance.event("one that waited", |event| event["status"] == 200 && text(event, "path") != "/held");
    assert!(cause(&waited) == "completed" && waited["queue_us"].as_u64().unwrap() > 0, "{waited}");
    drop(clients);
    instance.stop();
}

#[test]
fn connections_that_servers_close_fail_nobody() {
    let home = Home::new();
    // One that says so, one that does not, and one that closes in the face of the next request.
    let says = app(&Listen::Unix(home.file("0.sock")), |_, stream| {
        respond(stream, 200, &["Connection: close"], b"0\n")?;
        Err(std::io::ErrorKind::Other.into())
    });
    let silent = app(&Listen::Unix(home.file("1.sock")), |_, stream| {
        respond(stream, 200, &[], b"1\n")?;
        Err(std::io::ErrorKind::Other.into())
    });
    let count = Mutex::new(BTreeMap::<String, usize>::new());
    let rude = app(&Listen::Unix(home.file("2.sock")), move |request, stream| {
        let mut count = count.lock().unwrap();
        let seen = count.entry(request.target.clone()).or_insert(0);
        *seen += 1;
        // Every third request is read and not answered, once.
        if *seen == 1 && request.target.ends_with('3') && request.field("x-first") != "yes" {
            return Err(std::io::ErrorKind::Other.into());
        }
        respond(stream, 200, &[], b"2\n")
    });
    let instance = home.run(&format!(
        "workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
         [backend.app]\nservers = [\"unix:0.sock\", \"unix:1.sock\", \"unix:2.sock\"]\n"
    ));
    for version in ["--http1.1", "--http2"] {
        let told = get(&instance, &[version, "--header", "X-First: yes"], "https://localhost/[1-3]");
        assert_eq!(told.code, 0);
        let sums = answers(&instance, &[version], 60);
        assert_eq!(sums.len(), 3, "{sums:?}");
    }
    assert!(says.accepted() > 20 && silent.accepted() > 20 && rude.accepted() >= 1);
    for event in instance.stop() {
        assert_eq!((event["status"].as_u64(), cause(&event)), (Some(200), "completed"), "{event}");
    }
}
