//! Routes in their order, and every fault at once.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use offramp_config::Environment;
use offramp_record::aead::Library;
use offramp_testkit::ca::{Ca, Key, Leaf, Validity};

use super::*;

pub(super) fn build_text(text: &str, folder: &Path) -> Result<Built, Error> {
    let file = folder.join("offramp.toml");
    let text = format!("state_dir = {:?}\n{text}", folder.join("state"));
    let parsed = offramp_config::parse(&text, &file.display().to_string(), &Environment::default());
    let (config, _) = parsed.unwrap_or_else(|errors| panic!("{errors}"));
    build_config(&config)
}

fn build_config(config: &Config) -> Result<Built, Error> {
    let inputs = Inputs {
        now: SystemTime::now(),
        generation: 1,
        choice: LibraryChoice::always(Library::Ring),
        tickets: &Arc::new(TicketKeys::new(Duration::from_secs(60)).unwrap()),
        names: &Names::default(),
        backends: &[],
        bandwidths: &Bandwidths::new(),
        sources: &Sources::default(),
        contents: None,
        mint: true,
    };
    build(config, &inputs)
}

/// The route that a client gets on a listener.
fn route(built: &Built, listener: &str, host: Option<&str>, alpn: &str) -> String {
    let routes = &built.snapshot.listeners[listener].routes;
    let found = routes.find(host, |protocol| protocol == alpn.as_bytes());
    found.map_or_else(
        || "none".to_owned(),
        |route| {
            let backend = match &route.target {
                offramp_proxy::Target::Relay(relay) => relay.to.backend,
                offramp_proxy::Target::Passthrough(to) => to.backend,
                offramp_proxy::Target::Http(_) => panic!("HTTP"),
            };
            format!("{} to {}", *route.name, built.snapshot.backends[backend].name)
        },
    )
}

const ROUTES: &str = r#"
[[listener]]
name = "web"
address = "127.0.0.1:4430"

[[listener]]
name = "db"
address = "127.0.0.1:4431"

[[listener]]
name = "plain"
address = "127.0.0.1:4432"
tls = false

[[route]]
server = "127.0.0.1:1"

[[route]]
host = ["*.example.org", "b.example.org"]
server = "127.0.0.1:2"

[[route]]
host = "a.example.org"
server = "127.0.0.1:3"

[[route]]
host = "a.example.org"
alpn = ["h2"]
backend = "grpc"

[[route]]
listener = "db"
host = "*.example.org"
server = "127.0.0.1:5"

[[route]]
host = "legacy.example.org"
passthrough = "127.0.0.1:2"

[backend.grpc]
servers = ["127.0.0.1:4 weight=2", "app.test:80 backup"]
"#;

#[test]
fn the_most_specific_route_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let built = build_text(ROUTES, folder.path()).unwrap();
    let web = |host, alpn| route(&built, "web", host, alpn);
    assert_eq!(web(Some("a.example.org"), "h2"), "a.example.org alpn=h2 to grpc");
    assert_eq!(web(Some("a.example.org"), "x"), "a.example.org to 127.0.0.1:3");
    assert_eq!(web(Some("b.example.org"), ""), "*.example.org,b.example.org to 127.0.0.1:2");
    assert_eq!(web(Some("c.example.org"), ""), "*.example.org,b.example.org to 127.0.0.1:2");
    assert_eq!(web(Some("legacy.example.org"), ""), "legacy.example.org to 127.0.0.1:2");
    assert_eq!(web(Some("other.test"), ""), "default to 127.0.0.1:1");
    assert_eq!(web(None, ""), "default to 127.0.0.1:1");
    // A wildcard for this listener goes before an exact host for any.
    assert_eq!(route(&built, "db", Some("a.example.org"), "h2"), "*.example.org to 127.0.0.1:5");
    assert_eq!(route(&built, "plain", None, ""), "default to 127.0.0.1:1");
}

#[test]
fn servers_of_one_address_share_a_backend_and_names_are_collected() {
    let folder = tempfile::tempdir().unwrap();
    let built = build_text(ROUTES, folder.path()).unwrap();
    let names: Vec<_> = built.snapshot.backends.iter().map(|backend| backend.name.to_string()).collect();
    assert_eq!(names, ["grpc", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:5"]);
    let grpc = &built.snapshot.backends[0];
    assert!(matches!(grpc.servers[1].target, offramp_upstream::UpstreamAddress::Resolved(_)));
    assert_eq!(grpc.picker.len(), 2);
}

#[test]
fn checks_begin_with_the_header_that_routes_send() {
    let folder = tempfile::tempdir().unwrap();
    let prologue = |routes: &str| {
        let text = format!("{routes}[backend.app]\nservers = [\"127.0.0.1:4\"]\nhealth = {{}}\n");
        let built = build_text(&text, folder.path()).unwrap();
        built.snapshot.backends[0].check.as_ref().unwrap().prologue.to_vec()
    };
    let route = |host: &str, more: &str| format!("[[route]]\nhost = \"{host}\"\nbackend = \"app\"\n{more}\n");
    let (v1, v2) = ("send_proxy = \"v1\"", "send_proxy = \"v2\"");
    assert!(prologue(&route("a.test", "")).is_empty());
    assert_eq!(prologue(&route("a.test", v1)), b"PROXY UNKNOWN\r\n");
    let local = prologue(&[route("a.test", v1), route("b.test", v2), route("c.test", "")].concat());
    assert_eq!(local, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
}

#[test]
fn tls_is_for_listeners_that_speak_it_and_says_what_it_offers() {
    let folder = tempfile::tempdir().unwrap();
    let built = build_text(ROUTES, folder.path()).unwrap();
    let listeners = &built.snapshot.listeners;
    assert!(listeners["plain"].tls.is_none() && listeners["web"].tls.is_some());
    let relay = |listener: &str, host| {
        let found = listeners[listener].routes.find(host, |protocol| protocol == b"h2");
        match &found.unwrap().target {
            offramp_proxy::Target::Relay(relay) => (relay.tls.is_some(), Arc::clone(&relay.configured)),
            offramp_proxy::Target::Passthrough(_) => panic!("a passthrough"),
            offramp_proxy::Target::Http(_) => panic!("HTTP"),
        }
    };
    assert!(!relay("plain", None).0);
    let (tls, offer) = relay("web", Some("a.example.org"));
    let names = |list: &offramp_observe::facts::NameList| -> HashSet<String> {
        list.iter().map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
    };
    assert!(tls && names(&offer.versions) == HashSet::from(["TLSv1.2".into(), "TLSv1.3".into()]));
    assert!(names(&offer.suites).contains("TLS_AES_128_GCM_SHA256"));
    assert!(names(&offer.groups).iter().any(|group| group.eq_ignore_ascii_case("x25519mlkem768")));
    assert_eq!(names(&offer.schemes), HashSet::from(["ecdsa_secp256r1_sha256".into()]));
    assert_eq!(names(&offer.alpn), HashSet::from(["h2".into()]));
    // The same terms are made once.
    assert!(Arc::ptr_eq(&relay("web", Some("b.example.org")).1, &relay("web", None).1));
}

#[test]
fn every_fault_is_reported_at_once_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new(folder.path()).unwrap();
    let one = ca.issue("one", &Leaf::server(Key::P256, &["one.test"])).unwrap();
    let two = ca.issue("two", &Leaf::server(Key::P256, &["two.test"])).unwrap();
    std::fs::write(folder.path().join("broken.pem"), "garbage").unwrap();
    let text = format!(
        r#"
[[certificate]]
cert = {:?}
key = {:?}

[[certificate]]
cert = "absent.pem"
key = "absent.key"

[[certificate]]
local = true
names = ["localhost"]

[[route]]
server = "127.0.0.1:1"
client_auth = {{ mode = "required", ca = "broken.pem" }}

[[route]]
host = "b.test"
server = "127.0.0.1:1"
client_auth = {{ mode = "optional", ca = "broken.pem" }}
"#,
        one.cert, two.key
    );
    std::fs::write(folder.path().join("state"), "not a directory").unwrap();
    let error = build_text(&text, folder.path()).err().unwrap();
    let shown = error.to_string();
    assert_eq!(error.findings().len(), 4, "{shown}");
    assert!(error.findings().iter().all(|finding| finding.at.place().is_some()), "{shown}");
    for expected in ["one.pem", "absent.pem", "state directory", "broken.pem"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
}

#[test]
fn an_expired_certificate_is_used_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new(folder.path()).unwrap();
    let old = Leaf { validity: Validity::Expired, ..Leaf::server(Key::P256, &["old.test"]) };
    let files = ca.issue("old", &old).unwrap();
    let text = format!(
        "[[certificate]]\ncert = {:?}\nkey = {:?}\n\n[[route]]\nserver = \"127.0.0.1:1\"\n",
        files.chain, files.key
    );
    let built = build_text(&text, folder.path()).unwrap();
    assert_eq!(built.store.certificates().count(), 1);
    assert!(built.warnings.iter().any(|warning| warning.text.contains("EXPIRED")), "{:?}", built.warnings);
}

#[test]
fn traces_need_a_collector_and_a_program_that_can_tell_it() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(build_text(ROUTES, folder.path()).unwrap().snapshot.tracing, None);
    let text = format!("[tracing]\notlp = \"http://127.0.0.1:4318\"\nsample_one_in = 7\n{ROUTES}");
    match build_text(&text, folder.path()) {
        Ok(built) => {
            let tracing = built.snapshot.tracing.unwrap();
            assert!(cfg!(feature = "otlp") && tracing.sample_one_in.get() == 7);
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!cfg!(feature = "otlp") && error.findings().len() == 1, "{shown}");
            assert!(shown.contains("tracing.otlp") && shown.contains("--no-default-features"), "{shown}");
        }
    }
}

#[test]
fn routes_say_how_many_of_their_connections_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let text = ROUTES
        .replace("host = \"a.example.org\"\nserver", "host = \"a.example.org\"\nlog_one_in = 5\nserver")
        .replace("passthrough", "log_one_in = 6\npassthrough");
    for mode in ["tcp", "http"] {
        let text = text.replace("4430\"", &format!("4430\"\nmode = \"{mode}\""));
        let text = if mode == "http" { text.replace("alpn = [\"h2\"]\n", "path = \"/x\"\n") } else { text };
        let built = build_text(&text, folder.path()).unwrap_or_else(|error| panic!("{error}"));
        let one_in = |host| {
            let routes = &built.snapshot.listeners["web"].routes;
            routes.find(Some(host), |_| false).unwrap().log_one_in.get()
        };
        // Requests are told of by their own routes.
        assert_eq!(one_in("a.example.org"), if mode == "tcp" { 5 } else { 1 });
        assert_eq!((one_in("legacy.example.org"), one_in("b.example.org")), (6, 1), "{mode}");
    }
}

#[test]
fn a_backend_that_is_not_there_is_an_error() {
    let mut config = Config::default();
    config.listeners.push(model::ListenerConfig { tls: false, ..model::ListenerConfig::default() });
    let target = model::RelayTarget::Backend("app".parse().unwrap());
    config.routes.push(model::RouteConfig::to(model::RouteTarget::Relay(model::RelayConfig::new(target))));
    let error = build_config(&config).err().unwrap();
    assert!(error.to_string().contains("no backend `app`"), "{error}");
}
