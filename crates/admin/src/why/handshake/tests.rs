use std::net::{IpAddr, SocketAddr};

use offramp_config::model::Environment;
use offramp_observe::facts::Cause;
use offramp_proxy::HelloVerdict;

use super::*;

const CONFIG: &str = r#"
[tls]
policy = "modern"
unknown_name = "refuse"
aeads = ["aes-256-gcm"]

[[listener]]
name = "secure"
mode = "http"
address = "127.0.0.1:8443"

[[listener]]
name = "plain"
mode = "http"
tls = false
address = "127.0.0.1:8080"

[[route]]
host = "shop.example"
server = "127.0.0.1:3000"

[[route]]
host = "sealed.example"
passthrough = "127.0.0.1:9443"

[acme.own]
directory = "https://127.0.0.1:1/dir"
ca = "ca.pem"

[[certificate]]
acme = "own"
on_demand = { names = "*.later.example" }
"#;

fn config() -> Config {
    let parsed = offramp_config::parse(CONFIG, "offramp.toml", &Environment::default());
    parsed.unwrap_or_else(|errors| panic!("{errors}")).0
}

/// Reads a question with a known client, or a hello in digits.
fn read(to: Option<&str>, name: Option<&str>, hello: Option<&str>) -> Result<HandshakeQuestion, String> {
    HandshakeQuestion::read(to, AskedClient { name, hello, file: b"" })
}

fn trial(verdict: HelloVerdict) -> HelloTrial {
    HelloTrial { route: Some("shop.example".into()), certificate: None, offers: None, verdict }
}

fn refused(cause: Cause) -> HelloVerdict {
    HelloVerdict::Refused { cause, alert: None, detail: String::new() }
}

#[test]
fn questions_are_read_and_refused() {
    for (to, client, hello, fault) in [
        (
            Some("a.example:443"),
            None,
            None,
            "this question needs `as` or `hello`, or a ClientHello as its body",
        ),
        (None, Some("curl"), Some("1603"), "write one of `as`, `hello` and a body, not several"),
        (Some("a b"), Some("curl"), None, "`a b` is no HOST:PORT, such as example.org:443"),
        (Some("a:99999"), Some("curl"), None, "`a:99999` is no HOST:PORT, such as example.org:443"),
        (Some(""), Some("curl"), None, "`` is no HOST:PORT, such as example.org:443"),
        (None, Some("OpenSSLL 1.0.2"), None, "the nearest one is OpenSSL 1.0.2; known are "),
        (None, None, Some("zz"), "`hello`: this is no ClientHello"),
    ] {
        let said = read(to, client, hello).err().unwrap();
        assert!(said.contains(fault), "{said}");
    }
    for (to, host, port) in [
        ("Shop.Example.:8443", "shop.example", Some(8443)),
        ("shop.example", "shop.example", None),
        ("[::1]:443", "::1", Some(443)),
        ("::1", "::1", None),
        ("127.0.0.1:1", "127.0.0.1", Some(1)),
    ] {
        let question = read(Some(to), Some("curl"), None).unwrap();
        assert_eq!((question.host.as_deref(), question.port), (Some(host), port));
        let hello = parse(&question.records).unwrap();
        let sent = host.parse::<IpAddr>().is_err().then_some(host);
        assert_eq!(hello.server_name().host(), sent, "{to}");
    }
    // A hello that was captured stays as it is.
    let digits: String =
        known::named("curl").unwrap().hello().iter().map(|byte| format!("{byte:02x}")).collect();
    let question = read(Some("shop.example:443"), None, Some(&digits)).unwrap();
    assert_eq!(parse(&question.records).unwrap().server_name().host(), Some("localhost"));
}

#[test]
fn each_refusal_names_its_key_and_remedy() {
    let config = config();
    for (client, to, cause, source, remedy) in [
        (
            "OpenSSL 3, TLS 1.2 only",
            "shop.example",
            Cause::NoCommonVersion,
            "tls.policy, offramp.toml:3",
            "intermediate",
        ),
        (
            "openssl 0.9.8",
            "shop.example",
            Cause::NoCommonVersion,
            "tls.policy, offramp.toml:3",
            "Update the client",
        ),
        ("OpenSSL 3, RSA key exchange only", "shop.example", Cause::NoCommonSuite, "tls.policy", "ECDHE"),
        (
            "curl",
            "other.example",
            Cause::UnknownName,
            "tls.unknown_name, offramp.toml:4",
            "names other.example",
        ),
        (
            "curl",
            "a.later.example",
            Cause::UnknownName,
            "certificate.on_demand, offramp.toml:30",
            "offramp why no-certificate a.later.example",
        ),
        ("curl", "127.0.0.1", Cause::UnknownName, "tls.no_server_name, default", "no_server_name"),
        (
            "curl",
            "shop.exampel",
            Cause::NoRoute,
            "[[listener]], offramp.toml:7",
            "nearest host of a route is shop.example",
        ),
        (
            "curl",
            "shop.example",
            Cause::Ja4Denied,
            "deny_ja4, offramp.toml:18",
            "t13d3112h2_e8f1e7e78f70_b26ce05bbdd6",
        ),
    ] {
        let question = read(Some(to), Some(client), None).unwrap();
        let found = question.listeners(&config, &[], &[]);
        let answer = handshake(&config, &question, &found, &[Some(trial(refused(cause)))]).into_json();
        let first = &answer["evidence"][0]["source"];
        assert!(first.as_str().unwrap().starts_with(source), "{client} {to}: {answer}");
        assert!(answer["remedy"].to_string().contains(remedy), "{client} {to}: {answer}");
        let said = answer["first"].as_str().unwrap();
        assert!(
            said.contains(" is refused with no alert: ") && said.ends_with(&format!("({}).", cause.name()))
        );
        assert_eq!(
            (&answer["facts"]["served"], &answer["facts"]["cause"]),
            (&false.into(), &cause.name().into())
        );
    }
}

#[test]
fn listeners_are_found_by_port() {
    let config = config();
    let ask = |to: &str| {
        let question = read(Some(to), Some("chrome"), None).unwrap();
        let found = question.listeners(&config, &[("secure".to_owned(), ([127, 0, 0, 1], 9443).into())], &[]);
        let trials: Vec<_> =
            found.listeners.iter().map(|one| one.listener.tls.then(|| trial(HelloVerdict::Passes))).collect();
        handshake(&config, &question, &found, &trials).into_json()
    };
    for (to, first) in [
        ("sealed.example:8443", "The TLS of Chromium passes unchanged to 127.0.0.1:9443 by route"),
        ("sealed.example:9443", "The TLS of Chromium passes unchanged to 127.0.0.1:9443 by route"),
        ("shop.example:8080", "Listener plain does not speak TLS"),
    ] {
        assert!(!ask(to).to_string().contains("No listener has port"), "{}", ask(to));
        assert!(ask(to)["first"].as_str().unwrap().starts_with(first), "{}", ask(to));
    }
    let answer = ask("sealed.example:443");
    assert!(answer.to_string().contains("No listener has port 443"), "{answer}");
    assert_eq!(answer["facts"]["likely"][0], "Chromium", "{answer}");
    assert_eq!(answer["facts"]["offered"]["server_name"], "sealed.example");
}

const ADDRESSES: &str = r#"
[[listener]]
name = "inside"
address = "127.0.0.1:8443"

[[listener]]
name = "all"
address = ["[::]:8443", "127.0.0.1:9443"]

[[listener]]
name = "v4"
address = "0.0.0.0:8443"

[[listener]]
name = "one"
address = "192.0.2.7:7443"

[[listener]]
name = "other"
address = "192.0.2.8:7443"

[[route]]
server = "127.0.0.1:3000"
"#;

#[test]
fn the_address_chooses_among_listeners_of_a_port() {
    let (config, _) = offramp_config::parse(ADDRESSES, "offramp.toml", &Environment::default()).unwrap();
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for (to, resolved, names) in [
        ("127.0.0.1:8443", &[][..], &["inside"][..]),
        ("[::ffff:127.0.0.1]:8443", &[], &["inside"]),
        ("10.0.0.1:8443", &[], &["v4"]),
        ("[::1]:8443", &[], &["all"]),
        ("127.0.0.1:9443", &[], &["all"]),
        ("a.example:8443", &[], &["inside", "all", "v4"]),
        ("a.example:8443", &["127.0.0.1"], &["inside"]),
        ("a.example:8443", &["127.0.0.1", "::1"], &["inside", "all"]),
        ("a.example:9443", &[], &["all"]),
        ("192.0.2.8:7443", &[], &["other"]),
        // Neither has it: it is translated on the way.
        ("198.51.100.1:7443", &[], &["one", "other"]),
        ("a.example:7443", &["192.0.2.7", "198.51.100.1"], &["one", "other"]),
        ("localhost:7443", &["::1", "192.0.2.7"], &["one"]),
        ("a.example", &[], &["inside"]),
        ("a.example:443", &[], &["inside"]),
    ] {
        let question = read(Some(to), Some("curl"), None).unwrap();
        let resolved: Vec<IpAddr> = resolved.iter().map(|text| address(text)).collect();
        let found = question.listeners(&config, &[], &resolved);
        let found: Vec<&str> = found.listeners.iter().map(|one| one.listener.name.as_str()).collect();
        assert_eq!(found, names, "{to} {resolved:?}");
    }
    let needs = |to: &str| read(Some(to), Some("curl"), None).unwrap().needs_addresses(&config, &[]);
    assert!(needs("a.example:8443") && !needs("a.example:9443") && !needs("127.0.0.1:8443"));
    // The kernel has chosen the port of another one.
    let bound = [("one".to_owned(), SocketAddr::from(([127, 0, 0, 1], 5443)))];
    let question = read(Some("127.0.0.1:5443"), Some("curl"), None).unwrap();
    assert_eq!(question.listeners(&config, &bound, &[]).listeners[0].listener.name.as_str(), "one");
}

#[test]
fn each_listener_that_may_be_meant_has_its_answer() {
    let (config, _) = offramp_config::parse(ADDRESSES, "offramp.toml", &Environment::default()).unwrap();
    let question = read(Some("a.example:7443"), Some("curl"), None).unwrap();
    let found = question.listeners(&config, &[], &[]);
    let trials = [Some(trial(HelloVerdict::Passes)), Some(trial(refused(Cause::NoRoute)))];
    let answer = handshake(&config, &question, &found, &trials).into_json();
    let first = answer["first"].as_str().unwrap();
    assert!(
        first.starts_with(
            "2 listeners have port 7443, and the address that a.example leads to decides: at listener one (192.0.2.7:7443): The \
             TLS of curl with OpenSSL passes"
        ),
        "{first}"
    );
    assert!(first.contains("; at listener other (192.0.2.8:7443): curl with OpenSSL is refused"), "{first}");
    assert!(first.ends_with(" (no_route)."), "{first}");
    let (facts, evidence) = (&answer["facts"], answer["evidence"].to_string());
    assert_eq!((&facts["served"], &facts["listeners"][1]["served"]), (&Value::Null, &false.into()));
    assert_eq!(facts["listeners"][0]["listener"], "one");
    assert_eq!(facts["offered"]["server_name"], "a.example");
    assert_eq!(evidence.matches("The client offers ").count(), 1, "{evidence}");
    assert!(evidence.contains("At listener other: Listener other accepts on 192.0.2.8:7443."), "{evidence}");
    assert!(answer["remedy"][0].as_str().unwrap().starts_with("For listener other: "), "{answer}");
    // One that the address decides for says what else there is.
    let question = read(Some("192.0.2.8:7443"), Some("curl"), None).unwrap();
    let found = question.listeners(&config, &[], &[]);
    let answer = handshake(&config, &question, &found, &[Some(trial(HelloVerdict::Passes))]).into_json();
    let says = "Listener one has the port too on 192.0.2.7:7443; 192.0.2.8 leads to listener other.";
    assert!(answer.to_string().contains(says), "{answer}");
}
