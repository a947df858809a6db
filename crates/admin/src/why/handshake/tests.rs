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

fn trial(verdict: HelloVerdict) -> HelloTrial {
    HelloTrial { route: Some("shop.example".into()), certificate: None, offers: None, verdict }
}

fn refused(cause: Cause) -> HelloVerdict {
    HelloVerdict::Refused { cause, alert: None, detail: String::new() }
}

#[test]
fn questions_are_read_and_refused() {
    let read = HandshakeQuestion::read;
    for (to, client, hello, fault) in [
        (Some("a.example:443"), None, None, "this question needs `as` or `hello`"),
        (None, Some("curl"), Some("1603"), "write `as` or `hello`, not both"),
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
        let sent = (!is_address(host)).then_some(host);
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
        let question = HandshakeQuestion::read(Some(to), Some(client), None).unwrap();
        let listener = question.listener(&config, &[]);
        let trial = trial(refused(cause));
        let answer = handshake(&config, &question, listener, Some(&trial)).into_json();
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
        let question = HandshakeQuestion::read(Some(to), Some("chrome"), None).unwrap();
        let listener = question.listener(&config, &[("secure".to_owned(), 9443)]).unwrap();
        let verdict = trial(HelloVerdict::Passes);
        handshake(&config, &question, Some(listener), listener.listener.tls.then_some(&verdict)).into_json()
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
