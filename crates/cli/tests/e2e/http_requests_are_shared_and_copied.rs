//! Requests in shares between backends, and copies of requests for a mirror that harms nobody.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use offramp_testkit::server::{Listen, Server};

use crate::support::figures::Page;
use crate::support::http_app::{Seen, app, named, respond};
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, text};
use crate::support::offramp::{output, stderr};

const METRICS: &str = "workers = 1\n[metrics]\naddress = \"127.0.0.1:0\"\n";

/// Applications `old` and `new` that answer with their names, behind these routes.
fn versions(routes: &str) -> (Vec<(Server, Seen)>, Instance) {
    let home = Home::new();
    let apps = ["old", "new"].map(|name| named(&Listen::Unix(home.file(&format!("{name}.sock"))), name));
    let instance = home.run(&format!(
        "{METRICS}{CERTIFICATE}{HTTP}{routes}\
         [backend.old]\nservers = [\"unix:old.sock\"]\n[backend.new]\nservers = [\"unix:new.sock\"]\n"
    ));
    (apps.into(), instance)
}

#[test]
fn requests_name_their_backend_or_have_a_share() {
    let (_apps, instance) = versions(
        "[[route]]\nsplit = { backends = [\"old weight=1\", \"new weight=0\"], header = \"X-Version\", cookie = \"version\" }\n",
    );
    for version in ["--http1.1", "--http2"] {
        for (field, backend) in [
            ("X: y", "old"),
            ("X-Version: new", "new"),
            ("X-Version: old", "old"),
            ("X-Version: other", "old"),
            ("Cookie: a=b; version=new", "new"),
            ("Cookie: version=other", "old"),
        ] {
            let answer = get(&instance, &[version, "--header", field], "https://localhost/");
            assert_eq!(answer.text().trim(), backend, "{field} over {version}");
            assert!(answer.values("set-cookie").is_empty(), "{answer:?}");
        }
    }
    let events = instance.stop();
    assert!(events.iter().any(|event| text(event, "backend") == "new"));
}

#[test]
fn clients_stay_with_their_backend() {
    let (apps, instance) = versions(
        "[[route]]\nsplit = { backends = [\"old\", \"new\"], by = \"request\", sticky_cookie = \"share\" }\n\
         [[route]]\npath = \"/hashed\"\nsplit = { backends = [\"old\", \"new\"] }\n",
    );
    // Chance gives both of them to clients without the cookie, sooner or later.
    let cookies = std::cell::RefCell::new([None, None]);
    instance.until("each backend has a client", || {
        let answer = get(&instance, &[], "https://localhost/");
        let cookie = answer.field("set-cookie").to_owned();
        assert!(cookie.starts_with("share=") && cookie.ends_with("; Secure"), "{answer:?}");
        let pair = cookie.split(';').next().unwrap().to_owned();
        let mut cookies = cookies.borrow_mut();
        cookies[usize::from(answer.text() == "new\n")] = Some(pair);
        cookies.iter().all(Option::is_some).then_some(())
    });
    for (cookie, backend) in cookies.borrow().iter().flatten().zip(["old", "new"]) {
        let field = format!("Cookie: {cookie}");
        for _ in 0..5 {
            let answer = get(&instance, &["--header", &field], "https://localhost/");
            assert_eq!((answer.text().trim(), answer.field("set-cookie")), (backend, ""));
        }
    }
    // One address is one client, over all its connections.
    let first = get(&instance, &[], "https://localhost/hashed").text();
    for _ in 0..5 {
        assert_eq!(get(&instance, &[], "https://localhost/hashed").text(), first);
    }
    drop(apps);
    instance.stop();
}

/// How many requests had this outcome.
fn mirrored(instance: &Instance, outcome: &str) -> f64 {
    let name = format!("offramp_mirrored_requests_total{{outcome=\"{outcome}\"}}");
    Page::scrape(instance.metrics()).get(&name)
}

/// Waits until so many requests had this outcome.
fn mirrored_so_often(instance: &Instance, outcome: &str, count: f64) {
    let what = format!("{count} requests are {outcome}");
    instance.until(&what, || (mirrored(instance, outcome) >= count).then_some(()));
    assert_eq!(mirrored(instance, outcome), count);
}

#[test]
fn a_mirror_gets_what_the_server_gets() {
    let (apps, instance) = versions(
        "[[route]]\nbackend = \"old\"\nmirror = { backend = \"new\", max_body = \"1KiB\" }\n\
         request_headers = { set = { X-Own = \"1\" } }\n",
    );
    let small = "x".repeat(1024);
    let large = "x".repeat(1025);
    let chunked = ["--header", "Transfer-Encoding: chunked", "--data", &small];
    let mut copies = 0.0;
    for version in ["--http1.1", "--http2"] {
        for arguments in [&["--data", &small][..], &[], &["-X", "DELETE"], &["--head"], &chunked] {
            let url = "https://localhost/a?b=c";
            let answer = get(&instance, &[&[version], arguments].concat(), url);
            assert!(answer.text() == "old\n" || arguments == ["--head"], "{answer:?}");
            copies += 1.0;
            // One after the other, so that both have them in the same order.
            mirrored_so_often(&instance, "answered", copies);
        }
    }
    let [own, copied] = [0, 1].map(|number: usize| apps[number].1.take());
    assert_eq!((own.len(), copied.len()), (10, 10));
    for (own, copy) in own.iter().zip(&copied) {
        assert_eq!((&own.method, &own.target, &own.body), (&copy.method, &copy.target, &copy.body));
        for field in ["host", "x-own", "x-request-id", "x-forwarded-for", "user-agent"] {
            assert_eq!(own.field(field), copy.field(field), "{field}");
        }
        assert!(copy.field("expect").is_empty());
    }
    // One byte too many, with a length and without.
    for (number, version) in ["--http1.1", "--http2"].into_iter().enumerate() {
        let chunked = ["--header", "Transfer-Encoding: chunked", "--data", &large];
        for arguments in [&["--data", &large][..], &chunked] {
            let answer = get(&instance, &[&[version], arguments].concat(), "https://localhost/");
            assert_eq!(answer.text(), "old\n");
        }
        mirrored_so_often(&instance, "too_large", 2.0 * (number as f64 + 1.0));
    }
    assert_eq!(apps[1].1.take().len(), 0);
    instance.stop();
}

/// A mirror that answers nothing before the other end of the channel is dropped.
fn silent(listen: &Listen) -> (Server, std::sync::mpsc::Sender<()>) {
    let (end, ended): (_, Receiver<()>) = channel();
    let ended = Mutex::new(ended);
    let server = app(listen, move |_, stream| {
        let _ = ended.lock().unwrap().recv();
        respond(stream, 200, &[], b"late")?;
        stream.flush()
    });
    (server, end)
}

#[test]
fn a_mirror_that_is_slow_or_gone_harms_nobody() {
    let home = Home::new();
    let (_old, _seen) = named(&Listen::Unix(home.file("old.sock")), "old");
    let (_silent, end) = silent(&Listen::Unix(home.file("silent.sock")));
    let instance = home.run(&format!(
        "{METRICS}{CERTIFICATE}{HTTP}\
         [[route]]\nbackend = \"old\"\nmirror = {{ backend = \"silent\", requests = 3 }}\n\
         [[route]]\npath = \"/gone\"\nbackend = \"old\"\nmirror = \"gone\"\n\
         [backend.old]\nservers = [\"unix:old.sock\"]\n[backend.silent]\nservers = [\"unix:silent.sock\"]\n\
         [backend.gone]\nservers = [\"unix:gone.sock\"]\n"
    ));
    // The mirror answers none of them; its places are taken by three.
    for number in 1..=5 {
        let answer = get(&instance, &["--data", "x"], "https://localhost/");
        assert_eq!((answer.status(), answer.text().trim()), (200, "old"), "{number}");
    }
    mirrored_so_often(&instance, "busy", 2.0);
    assert_eq!((mirrored(&instance, "answered"), mirrored(&instance, "failed")), (0.0, 0.0));
    for _ in 0..3 {
        let answer = get(&instance, &[], "https://localhost/gone");
        assert_eq!((answer.status(), answer.text().trim()), (200, "old"));
    }
    mirrored_so_often(&instance, "failed", 3.0);
    // What was late is over, and the places are free.
    drop(end);
    mirrored_so_often(&instance, "answered", 3.0);
    get(&instance, &[], "https://localhost/");
    mirrored_so_often(&instance, "answered", 4.0);
    instance.stop();
}

#[test]
fn a_mirror_that_never_answers_is_given_up() {
    let home = Home::new();
    let (_old, _seen) = named(&Listen::Unix(home.file("old.sock")), "old");
    let (_silent, _end) = silent(&Listen::Unix(home.file("silent.sock")));
    let instance = home.run(&format!(
        "{METRICS}{CERTIFICATE}{HTTP}\
         [[route]]\nbackend = \"old\"\nmirror = {{ backend = \"silent\", requests = 1 }}\nresponse_timeout = \"4s\"\n\
         [backend.old]\nservers = [\"unix:old.sock\"]\n[backend.silent]\nservers = [\"unix:silent.sock\"]\n"
    ));
    for number in [1.0, 2.0] {
        assert_eq!(get(&instance, &[], "https://localhost/").text(), "old\n");
        // Its place is free for the next.
        mirrored_so_often(&instance, "failed", number);
    }
    assert_eq!(mirrored(&instance, "busy"), 0.0);
    instance.stop();
}

#[test]
fn mistakes_are_told_all_at_once() {
    let home = Home::new();
    let configuration = home.configure(&format!(
        "{HTTP}[[route]]\nsplit = {{ backends = [\"old weight=2000\", \"old\", \"odl\"], by = \"luck\" }}\n\
         mirror = \"nobody\"\n\
         [[route]]\nhost = \"a.example\"\nsplit = {{ backends = [\"old\"] }}\n\
         [[route]]\nhost = \"b.example\"\nbackend = \"old\"\nmirror = \"old\"\n\
         [backend.old]\nservers = [\"unix:old.sock\"]\n"
    ));
    let told = output(home.path(), &["check", "--config", configuration.to_str().unwrap()]);
    let said = stderr(&told);
    for mistake in [
        "`2000` is no weight",
        "there is no backend named `odl`",
        "`luck`",
        "there is no backend named `nobody`",
        "`split` needs two backends or more",
        "a mirror of the same backend",
    ] {
        assert!(said.contains(mistake), "{mistake} is not in\n{said}");
    }
    assert!(!told.status.success());
}
