//! Certificates on demand: ordered when the first client asks for a name, if the name may have one; kept while clients use
//! them; and no flood of names makes a flood of questions or orders.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Listen, Server, Stream, apps, faults};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::support::crowd::{connect, tcp, trusting};
use crate::support::figures::Page;
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE};
use crate::support::openssl::echo;
use crate::support::pebble::{Pebble, Terms, logged};

const METRICS: &str = "[metrics]\naddress = \"127.0.0.1:0\"\n";

/// A configuration with certificates on demand, as `terms` say.
fn configuration(home: &Home, pebble: &Pebble, terms: &str, app: &Server) -> String {
    format!(
        "{}{METRICS}[[certificate]]\nacme = \"pebble\"\non_demand = {{ {terms} }}\n\
         [[listener]]\nname = \"default\"\naddress = \"127.0.0.1:{}\"\n[[route]]\nserver = \"{}\"\n",
        pebble.section(&home.ca, ""),
        pebble.tls,
        app.address()
    )
}

/// An application that allows names that begin with `good`, and remembers what it was asked.
fn decider() -> (Server, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let decide = move |mut stream: Stream| {
        let (mut request, mut piece) = (Vec::new(), [0; 1024]);
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(length @ 1..) => request.extend_from_slice(&piece[..length]),
                _ => return,
            }
        }
        let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
        let status = if line.contains("domain=good") { "200 OK" } else { "403 Forbidden" };
        seen.lock().unwrap().push(line);
        let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    };
    (Server::start(&Listen::Ipv4, decide).unwrap(), asked)
}

fn on_demand(instance: &Instance, outcome: &str) -> f64 {
    Page::scrape(instance.metrics()).get(&format!("offramp_acme_on_demand_total{{outcome=\"{outcome}\"}}"))
}

/// Kills it without warning, and starts it in the same place.
fn again(instance: Instance, text: &str) -> Instance {
    instance.process.signal(Signal::KILL).unwrap();
    instance.process.wait(LIFE).unwrap();
    let home = instance.home;
    std::fs::remove_file(home.file("notify.sock")).unwrap();
    home.run(text)
}

#[test]
fn the_first_handshake_waits_for_a_name_that_an_application_allows() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let (decider, asked) = decider();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms { refused_nonces: 20, ..Terms::default() });
    let client = trusting(&pebble.root(home.path()));
    let terms = format!("ask = \"http://{}/may?key=1\", wait = \"60s\"", decider.address());
    let text = configuration(&home, &pebble, &terms, &app) + "[limits]\nhandshake_timeout = \"1m\"\n";
    let instance = home.run(&text);
    // Many at once: one order.
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (client, address) = (Arc::clone(&client), instance.address());
            thread::spawn(move || connect(&client, address, "good.test").map(drop))
        })
        .collect();
    for client in clients {
        client.join().unwrap().unwrap();
    }
    let line = logged(&instance, "ordering a certificate", "good.test");
    assert!(line.contains("clients_get=\"a wait"), "{line}");
    // A refusal is remembered, and nobody waits for it.
    for _ in 0..5 {
        assert!(connect(&client, instance.address(), "bad.test").is_err());
    }
    let lines = asked.lock().unwrap().clone();
    let of =
        |name: &str| lines.iter().filter(|line| line.contains(&format!("/may?key=1&domain={name} "))).count();
    assert_eq!((of("good.test"), of("bad.test"), lines.len()), (1, 1, 2), "{lines:?}");
    assert_eq!((on_demand(&instance, "obtained"), on_demand(&instance, "denied")), (1.0, 1.0));
    assert_eq!(pebble.count("Added order"), 1);
    // It comes back after a restart, without a question or an order.
    let instance = again(instance, &text);
    connect(&client, instance.address(), "GOOD.test").unwrap();
    assert_eq!((pebble.count("Added order"), asked.lock().unwrap().len()), (1, lines.len()));
    // So it does after a reload that allows no other name; one that allows none at all takes it away.
    for (path, found) in [("good.test", true), ("other.test", false)] {
        let terms = format!("names = \"{path}\"");
        instance.home.configure(&configuration(&instance.home, &pebble, &terms, &app));
        instance.process.signal(Signal::HUP).unwrap();
        instance.until("the reload is in force", || {
            (connect(&client, instance.address(), "good.test").is_ok() == found).then_some(())
        });
    }
}

#[test]
fn names_that_match_a_pattern_are_ordered_within_a_rate() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    let client = trusting(&pebble.root(home.path()));
    let terms = "names = \"*.shop.test\", rate = \"2/h\", wait = \"60s\"";
    let text = configuration(&home, &pebble, terms, &app) + "[limits]\nhandshake_timeout = \"1m\"\n";
    let instance = home.run(&text);
    for name in ["a.shop.test", "b.shop.test"] {
        connect(&client, instance.address(), name).unwrap();
    }
    for name in ["c.shop.test", "d.shop.test", "shop.test", "a.b.shop.test", "a.test"] {
        assert!(connect(&client, instance.address(), name).is_err(), "{name}");
    }
    let line = logged(&instance, "more names than the rate allows", "rate=2/h");
    assert!(line.contains("key=certificate.on_demand.rate") && line.contains("shop.test"), "{line}");
    assert_eq!((on_demand(&instance, "over_rate"), on_demand(&instance, "obtained")), (2.0, 2.0));
    assert_eq!(pebble.count("Added order"), 2);
    // What is there goes on.
    connect(&client, instance.address(), "a.shop.test").unwrap();
}

#[test]
fn a_name_that_leads_elsewhere_is_not_ordered_again_and_leaves_nothing_behind() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    pebble.tell_names("/set-default-ipv4", "{\"ip\":\"127.0.0.9\"}");
    let client = trusting(&pebble.root(home.path()));
    let terms = "names = \"*.shop.test\", wait = \"60s\"";
    let text = configuration(&home, &pebble, terms, &app) + "[limits]\nhandshake_timeout = \"1m\"\n";
    let instance = home.run(&text);
    for _ in 0..3 {
        assert!(connect(&client, instance.address(), "a.shop.test").is_err());
    }
    assert_eq!((on_demand(&instance, "failed"), pebble.count("Added order")), (1.0, 1));
    let kept = std::fs::read_dir(instance.home.file("state/acme/certificates")).unwrap().count();
    assert_eq!(kept, 0);
    // The reason is known by name, so that another process knows it too.
    let validations = std::fs::read_to_string(instance.home.file("state/acme/validations.json")).unwrap();
    assert!(validations.contains(" a.shop.test\""), "{validations}");
}

/// The ClientHello for this name, sent; nothing is read.
fn greet(config: &Arc<ClientConfig>, instance: &Instance, name: &str) -> TcpStream {
    let mut client =
        ClientConnection::new(Arc::clone(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut stream = tcp(instance.address()).unwrap();
    client.write_tls(&mut stream).unwrap();
    stream
}

#[test]
fn a_flood_of_names_makes_few_questions_and_no_order_and_delays_nobody() {
    const NAMES: usize = 300;
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let silent = Server::start(&Listen::Ipv4, faults::hang).unwrap();
    let home = Home::new();
    let pebble = Pebble::start(home.path(), &home.ca, &Terms::default());
    let terms = format!("ask = \"http://{}/\", wait = \"60s\"", silent.address());
    let text = configuration(&home, &pebble, &terms, &app) + CERTIFICATE;
    let client = trusting(&home.ca.certificate());
    let instance = home.run(&text);
    let flood: Vec<_> =
        (0..NAMES).map(|number| greet(&client, &instance, &format!("n{number}.test"))).collect();
    instance.until("the names have come", || (on_demand(&instance, "busy") > 0.0).then_some(()));
    // Others are served meanwhile.
    for _ in 0..3 {
        echo(&instance, &["-servername", "localhost"]);
    }
    // Names that wait for a question make room for others as soon as there are too many questions.
    assert!(on_demand(&instance, "busy") <= (NAMES - 4) as f64);
    assert!(silent.accepted() <= 64, "{}", silent.accepted());
    instance
        .until("questions have had their time", || (on_demand(&instance, "unanswered") >= 4.0).then_some(()));
    let line =
        logged(&instance, "nobody says whether a name may have a certificate", "no response within 5 s");
    assert!(line.contains("name=n"), "{line}");
    let warnings = instance.process.lines(Source::Stderr);
    let warnings = warnings.iter().filter(|line| line.contains("nobody says whether")).count();
    assert!(warnings <= 2, "{warnings}");
    drop(flood);
    assert_eq!(pebble.count("Added order"), 0);
    let kept = std::fs::read_dir(instance.home.file("state/acme/certificates")).unwrap().count();
    assert_eq!(kept, 0);
}

#[test]
fn what_is_used_is_renewed_and_what_is_not_ends() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let terms = Terms { validity: Duration::from_secs(60), ..Terms::default() };
    let pebble = Pebble::start(home.path(), &home.ca, &terms);
    let client = trusting(&pebble.root(home.path()));
    let terms = "names = [\"used.test\", \"unused.test\"], wait = \"60s\"";
    let text = configuration(&home, &pebble, terms, &app) + "[limits]\nhandshake_timeout = \"1m\"\n";
    let instance = home.run(&text);
    for name in ["used.test", "unused.test"] {
        connect(&client, instance.address(), name).unwrap();
    }
    let said = |text: &str, more: &str| {
        let lines = instance.process.lines(Source::Stderr);
        lines.iter().filter(|line| line.contains(text) && line.contains(more)).count()
    };
    let deadline = Instant::now() + Duration::from_secs(200);
    while said("a certificate was obtained", "names=used.test") < 2
        || said("has ended unused", "unused.test") < 1
    {
        connect(&client, instance.address(), "used.test").unwrap();
        assert!(Instant::now() < deadline, "{}", instance.process.transcript());
        thread::park_timeout(Duration::from_millis(500));
    }
    assert_eq!(said("a certificate was obtained", "names=unused.test"), 1);
    let kept = std::fs::read_dir(instance.home.file("state/acme/certificates")).unwrap();
    assert_eq!(kept.count(), 1);
}
