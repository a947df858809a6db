//! `offramp why`: requests that are refused or late, and names without a good certificate, made for real; the first sentence of
//! the answer to each.

use std::io;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use offramp_testkit::ca::{Key, Leaf, Validity};
use offramp_testkit::process::free_address;
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::http_app::{app, respond};
use crate::support::http_curl::{command, curl};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, ask};
use crate::why_answers::{first, stored, why};

/// Listeners with TLS and without, a log store, an authority that is away, and routes that refuse in many ways.
fn refusals(app: &str, closed: &str) -> String {
    format!(
        "{CERTIFICATE}{LISTENER}mode = \"http\"\n\
         [[listener]]\nname = \"plain\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
         [log_store]\nurl = \"sqlite:access.db\"\n\
         [acme.own]\ndirectory = \"https://{closed}/dir\"\nca = \"ca.pem\"\n\
         [[certificate]]\ncert = \"old.chain.pem\"\nkey = \"old.key\"\n\
         [[certificate]]\nacme = \"own\"\nnames = [\"ordered.example.invalid\"]\n\
         [[certificate]]\nacme = \"own\"\non_demand = {{ names = \"*.demand.example.invalid\" }}\n\
         [backend.full]\nservers = \"unix:held.sock\"\nmax_connections = 1\nqueue = 0\n\
         [[route]]\nhost = \"sealed.example.org\"\npassthrough = \"{closed}\"\n\
         [[route]]\nhost = \"moved.example.org\"\nlistener = \"plain\"\nredirect = \"https\"\n\
         [[route]]\nhost = \"member.example.org\"\nserver = \"{app}\"\nhsts = true\n\
         [[route]]\nhost = \"closed.example.org\"\nserver = \"{app}\"\nmaintenance = true\n\
         [[route]]\nhost = \"small.example.org\"\nserver = \"{app}\"\nmax_body = \"10B\"\n\
         [[route]]\nhost = \"login.example.org\"\nserver = \"{app}\"\nforward_auth = {{ server = \"unix:auth.sock\" }}\n\
         [[route]]\nhost = \"lost.example.org\"\nserver = \"{app}\"\nforward_auth = {{ server = \"{closed}\" }}\n\
         [[route]]\nhost = \"dead.example.org\"\nserver = \"{closed}\"\n\
         [[route]]\nhost = \"broken.example.org\"\nserver = \"unix:broken.sock\"\n\
         [[route]]\nhost = \"late.example.org\"\nserver = \"unix:held.sock\"\nresponse_timeout = \"50ms\"\n\
         [[route]]\nhost = \"full.example.org\"\nbackend = \"full\"\n\
         [[route]]\nhost = [\"old.example.invalid\", \"ordered.example.invalid\", \"*.demand.example.invalid\", \"other.example.invalid\"]\nserver = \"{app}\"\n"
    )
}

/// An application that answers nothing until it is let go.
fn held(home: &Home) -> (Server, Receiver<Sender<()>>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let server = app(&Listen::Unix(home.file("held.sock")), move |_, stream| {
        let (let_go, wait) = channel();
        let _ = tell.lock().unwrap().send(let_go);
        let _ = wait.recv_timeout(PATIENCE);
        respond(stream, 200, &[], b"at last")
    });
    (server, told)
}

/// Starts the applications and Offramp.
fn start() -> (Vec<Server>, Receiver<Sender<()>>, Instance, String) {
    let home = Home::new();
    let mut old = Leaf::server(Key::P256, &["old.example.invalid"]);
    old.validity = Validity::Expired;
    home.ca.issue("old", &old).unwrap();
    let closed = free_address().to_string();
    let plain = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let refuses = app(&Listen::Unix(home.file("auth.sock")), |_, stream| respond(stream, 403, &[], b"no"));
    let broken = app(&Listen::Unix(home.file("broken.sock")), |_, _| Err(io::Error::other("it breaks")));
    let (holds, told) = held(&home);
    let text = refusals(&plain.address().to_string(), &closed);
    (vec![plain, refuses, broken, holds], told, home.run(&text), closed)
}

/// Asks for a URL beside this thread.
fn beside(instance: &Instance, url: &str) -> std::process::Child {
    let mut curl: Command = command(instance, "https");
    curl.args(["--output", "/dev/null", url]).spawn().unwrap()
}

/// Makes each situation.
fn make(instance: &Instance, told: &Receiver<Sender<()>>) {
    for url in [
        "http://moved.example.org/",
        "http://member.example.org/",
        "https://member.example.org/",
        "https://closed.example.org/",
        "https://login.example.org/",
        "https://lost.example.org/",
        "https://dead.example.org/",
        "https://broken.example.org/",
        "https://late.example.org/",
    ] {
        curl(instance, &[], url);
    }
    curl(instance, &["--data", "more than ten bytes"], "https://small.example.org/");
    // That of the server that was too slow.
    drop(told.recv_timeout(PATIENCE).unwrap());
    let mut first = beside(instance, "https://full.example.org/held");
    let let_go = told.recv_timeout(PATIENCE).unwrap();
    curl(instance, &[], "https://full.example.org/");
    let_go.send(()).unwrap();
    assert!(first.wait().unwrap().success());
}

#[test]
fn each_refusal_has_its_first_sentence() {
    let (_servers, told, instance, closed) = start();
    make(&instance, &told);
    let ended = |host: &str| first(&instance, &[&stored(&instance, host, "/")]);
    let mut wrong = Vec::new();
    let mut expect = |what: &str, said: String, begin: &str| {
        if !said.starts_with(begin) {
            wrong.push(format!("{what}: {said}"));
        }
    };
    for (host, begin) in [
        ("moved.example.org", "The request ended with status 308."),
        ("closed.example.org", "The request ended with status 503."),
        (
            "small.example.org",
            "The request ended with status 413: The request's body is larger than `max_body`; answered with 413. (body_too_large)",
        ),
        ("login.example.org", "The request ended with status 403."),
        (
            "lost.example.org",
            "The request ended with status 503: The server of `forward_auth` could not be asked",
        ),
        (
            "dead.example.org",
            "The request ended with status 502: The server refused the connection. (server_refused)",
        ),
        ("broken.example.org", "The request ended with status 502: "),
        (
            "late.example.org",
            "The request ended with status 504: The head of the server's response did not come within `response_timeout`; answered with 504. (server_response_timeout)",
        ),
        (
            "full.example.org",
            "The request ended with status 503: All servers were at `max_connections`, and as many requests as `queue` allows were waiting; answered with 503. (queue_full)",
        ),
    ] {
        expect(host, ended(host), begin);
    }
    let sealed =
        format!("The TLS of sealed.example.org passes unchanged to {closed} by route sealed.example.org: ");
    for (words, begin) in [
        (vec!["https://sealed.example.org/"], format!("{sealed}Offramp sees no request.")),
        (
            vec!["http://moved.example.org/"],
            "moved.example.org/ takes route moved.example.org: it is redirected to https with 308."
                .to_owned(),
        ),
        (
            vec!["slow", "late.example.org"],
            "Of the latest 1 requests to late.example.org half took ".to_owned(),
        ),
    ] {
        expect(&words.join(" "), first(&instance, &words), &begin);
    }
    let slow = first(&instance, &["slow", "late.example.org"]);
    assert!(slow.ends_with("is the server's work until the first byte of its answer."), "{slow}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_limit_per_client_is_named() {
    let home = Home::new();
    let instance = home.run(&format!(
        "{CERTIFICATE}{LISTENER}mode = \"http\"\n[limits]\nrequests_per_client = \"1/h\"\n\
         [log_store]\nurl = \"sqlite:access.db\"\n[[route]]\nrespond = {{ body = \"hello\" }}\n"
    ));
    for path in ["first", "second"] {
        curl(&instance, &[], &format!("https://localhost/{path}"));
    }
    let said = first(&instance, &[&stored(&instance, "localhost", "/second")]);
    assert_eq!(
        said,
        "The request ended with status 429: The client sent requests faster than `requests_per_client`; answered with 429. (too_many_requests)"
    );
    let all = first(&instance, &["127.0.0.1"]);
    assert!(
        all.starts_with("1 of the latest 2 requests of 127.0.0.1 failed; 1 of them ended with status 429 "),
        "{all}"
    );
}

#[test]
fn names_say_which_certificate_they_have_or_why_none() {
    let (_servers, _told, instance, closed) = start();
    let about = |host: &str| first(&instance, &["no-certificate", host]);
    let ordered = instance.until("an order has failed", || {
        Some(about("ordered.example.invalid")).filter(|said| said.contains("has failed"))
    });
    let begin = "ordered.example.invalid has only a certificate of the local CA, which clients refuse: the latest order has failed with: ";
    assert!(ordered.starts_with(begin), "{ordered}");
    for (host, expected) in [
        ("www.example.org", "www.example.org has a certificate of "),
        (
            "old.example.invalid",
            "The certificate of old.example.invalid has expired at 2020-01-01T00:00:00Z.",
        ),
        (
            "new.demand.example.invalid",
            "new.demand.example.invalid has no certificate yet: one is ordered when a client asks for it.",
        ),
        (
            "other.example.invalid",
            "No certificate names other.example.invalid: clients get the default one, for localhost, *.example.org, and refuse it.",
        ),
        (
            "sealed.example.org",
            &format!(
                "The TLS of sealed.example.org passes unchanged to {closed} by route sealed.example.org: the server there has the certificate."
            ),
        ),
    ] {
        let said = about(host);
        assert!(said.starts_with(expected), "{said}");
    }
    // A client has asked for it, and the authority is away.
    let mut ask_for = command(&instance, "https");
    ask_for.arg("https://asked.demand.example.invalid/");
    assert!(!ask(ask_for, b"", PATIENCE).status.success());
    let begin = "asked.demand.example.invalid has no certificate yet: its order has failed with: ";
    instance.until("its order has failed", || {
        about("asked.demand.example.invalid").starts_with(begin).then_some(())
    });
    let text = why(&instance, &["no-certificate", "localhost"]);
    let text = String::from_utf8_lossy(&text.stdout).replace("\n    ", " ");
    for part in [
        "  - Clients get the certificate for localhost, *.example.org (EC256): of ",
        "  - No route and no certificate names it, so nothing is connected. (DNS)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wrong = why(&instance, &["no-certificate", "192.0.2.1"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`192.0.2.1` is no name such as example.org"));
}
