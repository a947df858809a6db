//! `GET /v1/why?about=handshake`: for each client of the table and each configuration here, the verdict is what the
//! process then does with the bytes of that client.

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use offramp_observe::facts::Alert;
use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::process::free_port;
use offramp_testkit::server::{Listen, Server, apps};
use offramp_wire::client_hello::{self, suite_name, version_name};
use offramp_wire::{ParseStep, known};
use serde_json::Value;

use crate::support::instance::{Home, Instance, LISTENER, PATIENCE, cause};
use crate::support::offramp::{output, stderr, stdout};

/// The reaction of a server to a ClientHello.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reaction {
    alert: Option<String>,
    version: Option<String>,
    suite: Option<String>,
}

/// The answer to a question, by the admin interface.
fn why(instance: &Instance, query: &str) -> (u16, Value) {
    why_with(instance, "GET", query, b"")
}

/// The same with a ClientHello as the body.
fn why_with(instance: &Instance, method: &str, query: &str, body: &[u8]) -> (u16, Value) {
    let mut socket = UnixStream::connect(instance.home.file("state/admin.sock")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} /v1/why?about=handshake&{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: \
         {length}\r\n\r\n"
    );
    socket.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")))
}

fn escaped(text: &str) -> String {
    text.replace(' ', "%20").replace('/', "%2F").replace(',', "%2C")
}

/// The reaction to a hello, and the port that it was sent from.
fn offer(instance: &Instance, hello: &[u8]) -> (Reaction, u16) {
    let mut socket = TcpStream::connect(instance.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(hello).unwrap();
    let mut head = [0; 5];
    socket.read_exact(&mut head).unwrap_or_else(|error| panic!("{error}: no answer to {hello:02x?}"));
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    socket.read_exact(&mut body).unwrap();
    let reaction = match head[0] {
        21 => Reaction { alert: Some(Alert(body[1]).name().to_owned()), ..Reaction::default() },
        22 => server_hello(&body),
        other => panic!("a record of type {other}"),
    };
    (reaction, socket.local_addr().unwrap().port())
}

/// Version and suite of a ServerHello.
fn server_hello(body: &[u8]) -> Reaction {
    assert_eq!(body[0], 2);
    let session = usize::from(body[38]);
    let suite = u16::from_be_bytes([body[39 + session], body[40 + session]]);
    // Of TLS 1.3 alone, suites begin with 0x13.
    let version = if suite >> 8 == 0x13 { 0x0304 } else { u16::from_be_bytes([body[4], body[5]]) };
    let (version, suite) = (version_name(version).to_string(), suite_name(suite).to_string());
    Reaction { alert: None, version: Some(version), suite: Some(suite) }
}

fn judged(answer: &Value) -> Reaction {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let facts = &answer["facts"];
    let agreed = &facts["agreed"];
    Reaction {
        alert: text(&facts["alert"]),
        version: text(&agreed["version"]),
        suite: text(&agreed["suite"]),
    }
}

/// A configuration with these keys of `[tls]`, certificates by their kinds, and routes.
fn run(tls: &str, keys: &[Key], routes: &str) -> Instance {
    let home = Home::new();
    let mut certificates = String::new();
    for (at, key) in keys.iter().enumerate() {
        let name = format!("own{at}");
        home.ca.issue(&name, &Leaf::server(*key, &["localhost", "*.example.org"])).unwrap();
        certificates += &format!("[[certificate]]\ncert = \"{name}.chain.pem\"\nkey = \"{name}.key\"\n");
    }
    home.run(&format!("workers = 1\n[tls]\n{tls}\n{certificates}{LISTENER}{routes}"))
}

const HTTP: &str = "mode = \"http\"\n[[route]]\nrespond = { body = \"here\" }\n";
const NAMED: &str = "mode = \"http\"\n[[route]]\nhost = \"a.example.org\"\nrespond = { body = \"here\" }\n";

/// Offers each client's hello, and compares the reaction and the cause of its event with the verdict.
fn agree(case: &str, instance: Instance) {
    let address = instance.address();
    // By port, which a later connection may have again.
    let mut asked: HashMap<u16, Vec<(String, &str)>> = HashMap::new();
    let (mut served, mut refused) = (0, 0);
    for host in ["a.example.org", "unknown.test"] {
        for client in known::all() {
            let hello = client.hello();
            let ParseStep::Done { value, .. } = client_hello::peek(&hello) else { panic!("{}", client.name) };
            let (reaction, from) = offer(&instance, &value.addressed_to(Some(host)));
            let query =
                format!("host={host}:{}&as={}&client=127.0.0.1", address.port(), escaped(client.name));
            let (status, answer) = why(&instance, &query);
            assert_eq!(status, 200, "{case}, {}: {answer}", client.name);
            assert_eq!(judged(&answer), reaction, "{case}, {} to {host}: {answer}", client.name);
            match reaction.alert {
                None => served += 1,
                Some(_) => {
                    refused += 1;
                    assert!(
                        !answer["remedy"].as_array().unwrap().is_empty(),
                        "{case}, {}: {answer}",
                        client.name
                    );
                    let cause = answer["facts"]["cause"].as_str().unwrap().to_owned();
                    asked.entry(from).or_default().push((cause, client.name));
                }
            }
        }
    }
    assert!(refused > 0, "{case}: {served} served, none refused");
    let events = instance.stop();
    for event in events {
        let port = event["client_port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let expected = port.and_then(|port| asked.get_mut(&port));
        if let Some(expected) = expected
            && let Some(at) = expected.iter().position(|(expected, _)| *expected == cause(&event))
        {
            expected.remove(at);
        }
    }
    asked.retain(|_, expected| !expected.is_empty());
    assert!(asked.is_empty(), "{case}: no event of {asked:?}");
}

#[test]
fn verdicts_on_versions_and_ciphers_are_those_of_the_process() {
    for (tls, keys) in [
        ("", &[Key::P256][..]),
        ("policy = \"modern\"", &[Key::P256]),
        ("max_version = \"1.2\"", &[Key::P256]),
        ("aeads = [\"aes-256-gcm\"]", &[Key::P256]),
        ("aeads = [\"chacha20-poly1305\"]\npost_quantum = false", &[Key::Rsa2048]),
        ("", &[Key::Rsa2048]),
        ("", &[Key::Rsa2048, Key::P256]),
        ("max_version = \"1.2\"", &[Key::Ed25519]),
        ("no_server_name = \"refuse\"\nunknown_name = \"refuse\"", &[Key::P384]),
    ] {
        agree(tls, run(tls, keys, HTTP));
    }
}

#[test]
fn verdicts_on_routes_are_those_of_the_process() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let server = format!("server = \"{}\"\n", app.address());
    for routes in [
        NAMED.to_owned(),
        format!("[[route]]\nhost = \"a.example.org\"\n{server}"),
        format!("[[route]]\nalpn = [\"h2\"]\n{server}"),
        format!(
            "[[route]]\nhost = \"a.example.org\"\nalpn = [\"h2\"]\n{server}[[route]]\nalpn = [\"http/1.1\"]\n{server}"
        ),
        format!("[[route]]\nclient_auth = {{ ca = \"ca.pem\" }}\n{server}"),
        format!("[[route]]\ndeny_ja4 = [\"t13d1516h2_*\"]\n{server}"),
        format!("[[route]]\nhost = \"a.example.org\"\ndeny = [\"127.0.0.0/8\"]\n{server}[[route]]\n{server}"),
        format!(
            "[[route]]\nhost = \"a.example.org\"\ntls = {{ policy = \"modern\" }}\n{server}[[route]]\n{server}"
        ),
    ] {
        agree(&routes, run("", &[Key::P256], &routes));
    }
}

/// The fields of a seed of the fuzz target `capture`, which begins with the size of pieces.
const CAPTURE: &[u8] = include_bytes!("../../../../fuzz/corpus/capture/ethernet.pcap");

#[test]
fn the_command_reads_clients_and_files() {
    let instance = run("policy = \"modern\"", &[Key::P256], NAMED);
    fs::write(instance.home.file("client.pcap"), &CAPTURE[1..]).unwrap();
    fs::write(instance.home.file("client.bin"), known::named("openssl 1.0.2").unwrap().hello()).unwrap();
    let to = format!("a.example.org:{}", instance.address().port());
    let why = |client: &str, more: &[&str]| {
        output(instance.home.path(), &[&["why", &to, "--as", client][..], more].concat())
    };
    for (client, parts) in [
        (
            "openssl 1.0.2",
            &[
                "OpenSSL 1.0.2 is refused with alert protocol_version (70)",
                "policy = \"modern\" leaves TLS 1.2 out. (tls.policy, ",
                "What to do: - Set policy = \"intermediate\", or leave it out",
            ][..],
        ),
        (
            "chrome",
            &[
                "Chromium is served: TLSv1.3 with ",
                "Its JA4 fingerprint t13d1517h2_8daaf6152771_cb7bf5808d99",
            ],
        ),
        (
            "./client.bin",
            &["The client is refused with alert protocol_version (70)", "is that of OpenSSL 1.0.2"],
        ),
        (
            "./client.pcap",
            &[
                "The client is served: TLSv1.3",
                "server name curl.example.org",
                "is that of curl with OpenSSL",
            ],
        ),
    ] {
        let answer = why(client, &[]);
        // Lines are as wide as the terminal.
        let said = stdout(&answer).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(answer.status.success(), "{client}: {}", stderr(&answer));
        assert!(parts.iter().all(|part| said.contains(part)), "{client}: {said}");
    }
    assert_eq!(
        stderr(&why("client.pcap", &[])).trim_end(),
        "192.0.2.1:40000 sends this hello to 192.0.2.2:443"
    );
    let json: Value = serde_json::from_str(&stdout(&why("curl", &["--json"]))).unwrap();
    assert_eq!(json["facts"]["served"], true);
    for (client, part) in
        [("netscape", "neither a client nor a file `netscape`"), ("./offramp.toml", "this is no ClientHello")]
    {
        let answer = why(client, &[]);
        assert_eq!(answer.status.code(), Some(2), "{client}");
        assert!(stderr(&answer).contains(part), "{client}: {}", stderr(&answer));
    }
    instance.stop();
}

#[test]
fn answers_name_the_first_rule_and_its_place() {
    let instance = run(
        "policy = \"modern\"",
        &[Key::P256],
        "mode = \"http\"\n[[route]]\nhost = \"a.example.org\"\nrespond = { body = \"here\" }\nclient_auth = { ca = \"ca.pem\" }\n\
         [[route]]\nhost = \"sealed.example.org\"\npassthrough = \"127.0.0.1:9\"\n",
    );
    let ask = |query: &str| {
        let (status, answer) = why(&instance, query);
        assert_eq!(status, 200, "{query}: {answer}");
        answer
    };
    let answer = ask("host=a.example.org&as=openssl+1.0.2");
    assert_eq!(
        answer["first"],
        "OpenSSL 1.0.2 is refused with alert protocol_version (70): it offers TLSv1.2 at most, and TLSv1.3 is configured \
         (no_common_version)."
    );
    let source = answer["evidence"][0]["source"].as_str().unwrap();
    assert!(source.starts_with("tls.policy, ") && source.contains("offramp.toml:"), "{answer}");
    assert_eq!(answer["remedy"][0], "Set policy = \"intermediate\", or leave it out");
    assert_eq!(answer["facts"]["offered"]["server_name"], "a.example.org");
    let answer = ask("host=a.example.org&as=curl");
    assert_eq!(
        answer["first"],
        "curl with OpenSSL is served: TLSv1.3 with TLS_AES_128_GCM_SHA256 and the certificate of localhost (EC256), if it then \
         shows a certificate that client_auth accepts."
    );
    assert_eq!(answer["facts"]["route"], "a.example.org");
    assert_eq!(answer["facts"]["configured"]["client_auth"], "required");
    assert_eq!(answer["facts"]["likely"][0], "curl with OpenSSL");
    let answer = ask("host=sealed.example.org&as=openssl+0.9.8");
    // It names no host, so that the route for sealed.example.org is not its own.
    assert_eq!(answer["facts"]["alert"], "protocol_version", "{answer}");
    let answer = ask("host=sealed.example.org&as=openssl+1.0.2");
    assert!(
        answer["first"].as_str().unwrap().starts_with("The TLS of OpenSSL 1.0.2 passes unchanged"),
        "{answer}"
    );
    // A hello as digits, in several records; and what is none.
    let hello: String =
        known::named("chrome").unwrap().hello().iter().map(|byte| format!("{byte:02x}")).collect();
    let answer = ask(&format!("hello={hello}"));
    assert_eq!(answer["facts"]["likely"][0], "Chromium");
    assert_eq!(answer["facts"]["served"], true);
    for (query, status) in [
        ("host=a.example.org", 400),
        ("host=a.example.org&as=netscape", 400),
        ("host=a.example.org&hello=1603", 400),
        ("host=a+b&as=curl", 400),
        ("host=a.example.org&as=curl&client=x", 400),
    ] {
        let (found, answer) = why(&instance, query);
        assert_eq!(found, status, "{query}: {answer}");
    }
    instance.stop();
}

/// A hello with so many bytes of further extensions, each with 1,000 of a type that nothing knows, in records of 300.
fn long_hello(client: &str, bytes: usize) -> Vec<u8> {
    let records = known::named(client).unwrap().hello();
    let mut message = records[5..].to_vec();
    let session = 4 + 34 + 1 + usize::from(message[38]);
    let suites = session + 2 + usize::from(u16::from_be_bytes([message[session], message[session + 1]]));
    let at = suites + 1 + usize::from(message[suites]);
    for number in 0..bytes / 1_000 {
        message.extend((0x7000 + number as u16).to_be_bytes());
        message.extend(1_000_u16.to_be_bytes());
        message.extend([7; 1_000]);
    }
    let (length, extensions) = (message.len() as u32 - 4, (message.len() - at - 2) as u16);
    message[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
    message[at..at + 2].copy_from_slice(&extensions.to_be_bytes());
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(300).flat_map(record).collect()
}

#[test]
fn long_hellos_are_judged_as_they_are_served() {
    let instance = run("", &[Key::P256], HTTP);
    for bytes in [9_000, 20_000, 60_000] {
        let hello = long_hello("curl", bytes);
        let (reaction, _) = offer(&instance, &hello);
        let (status, answer) = why_with(&instance, "POST", "host=localhost", &hello);
        assert_eq!((status, judged(&answer)), (200, reaction), "{bytes}: {answer}");
        assert_eq!(answer["facts"]["served"], true, "{answer}");
        fs::write(instance.home.file("long.bin"), &hello).unwrap();
        let said = output(instance.home.path(), &["why", "localhost", "--as", "long.bin"]);
        assert!(said.status.success(), "{}", stderr(&said));
        assert!(stdout(&said).starts_with("The client is served: TLSv1.3"), "{}", stdout(&said));
    }
    fs::write(instance.home.file("long.bin"), long_hello("curl", 66_000)).unwrap();
    let said = output(instance.home.path(), &["why", "localhost", "--as", "long.bin"]);
    assert!(stderr(&said).contains("65535 bytes, in 4096 records at most"), "{}", stderr(&said));
    for (query, body, status) in [
        ("host=a", &b""[..], 400),
        ("host=a", b"no hello", 400),
        ("host=a&as=curl", b"no hello", 400),
        ("host=a&as=curl", b"", 200),
    ] {
        let (found, answer) = why_with(&instance, "POST", query, body);
        assert_eq!(found, status, "{query}: {answer}");
    }
    instance.stop();
}

#[test]
fn the_address_chooses_among_listeners_of_a_port() {
    let home = Home::new();
    home.ca.issue("own", &Leaf::server(Key::P256, &["localhost", "*.example.org"])).unwrap();
    let port = free_port();
    let listener = |name: &str, address: &str| {
        format!("[[listener]]\nname = \"{name}\"\naddress = \"{address}:{port}\"\n")
    };
    let route = |listener: &str, host: &str| {
        format!("[[route]]\nlistener = \"{listener}\"\nhost = \"{host}\"\nserver = \"127.0.0.1:9\"\n")
    };
    let instance = home.run(&format!(
        "workers = 1\n[[certificate]]\ncert = \"own.chain.pem\"\nkey = \"own.key\"\n{}{}{}{}",
        listener("first", "127.0.0.1"),
        listener("second", "127.0.0.2"),
        route("first", "localhost"),
        route("second", "a.example.org"),
    ));
    let ask = |host: &str, hello: &[u8]| {
        let (status, answer) = why_with(&instance, "POST", &format!("host={host}:{port}"), hello);
        assert_eq!(status, 200, "{answer}");
        answer["first"].as_str().unwrap().to_owned()
    };
    // Its hello asks for localhost, which the second listener has no route for.
    let hello = known::named("curl").unwrap().hello();
    for (host, served) in [("127.0.0.1", true), ("127.0.0.2", false), ("localhost", true)] {
        let first = ask(host, &hello);
        let begin = if served { "The client is served" } else { "The client is refused" };
        assert!(first.starts_with(begin), "{host}: {first}");
    }
    let first = ask("192.0.2.1", &hello);
    assert!(first.starts_with("2 listeners have port "), "{first}");
    assert!(first.contains("at listener first (127.0.0.1:") && first.contains("(no_route)."), "{first}");
    instance.stop();
}
