//! `jwt` with a URL in `jwks`: keys are fetched, change while Offramp runs, and nobody enters without them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use offramp_testkit::oracle;
use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Server};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::reload_loses_no_request::{reload, reload_to};
use crate::support::figures::Page;
use crate::support::http_app::named;
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, cause};
use crate::support::signed_tokens::{ED_KEY, EDDSA, ES256, KEYS, RS256};
use crate::support::upgrade::Upgraded;

const METRICS: &str = "[metrics]\naddress = \"127.0.0.1:0\"\n";
/// RSA with 1096 bits, a key of P-384, and one that is not on its curve.
const WEAK: &str = r#"{"keys": [{"kid": "rsa", "kty": "RSA", "e": "AQAB", "n": "wcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcE"}, {"kid": "ec", "kty": "EC", "crv": "P-384", "x": "AA", "y": "AA"}, {"kid": "ec", "kty": "EC", "crv": "P-256", "x": "uQn8IMs5vlEMxPasTovUg8bXf6MSeuLlc6oBrm0EmOE", "y": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}]}"#;

/// What the stand-in does with a request.
#[derive(Clone, Debug)]
enum Behaviour {
    /// It answers with this status and body.
    Answers(u16, String),
    /// It answers with so many MiB, with or without the length.
    Floods(usize, bool),
    /// It says nothing until the test has it do something else.
    Hangs,
}

/// A stand-in for an identity provider over TLS, with the certificate of a private authority.
struct Provider {
    home: Home,
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    config: Arc<ServerConfig>,
    behaviour: Mutex<Behaviour>,
    /// Goes up when the behaviour changes.
    turn: AtomicUsize,
    requests: AtomicUsize,
    stop: AtomicBool,
}

impl Provider {
    fn new(behaviour: Behaviour) -> Self {
        let home = Home::new();
        let config = Arc::new(oracle::server_config(&home.server.chain, &home.server.key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (turn, requests, stop) = Default::default();
        let shared = Arc::new(Shared { config, behaviour: Mutex::new(behaviour), turn, requests, stop });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if serving.stop.load(Ordering::SeqCst) {
                    return;
                }
                let serving = Arc::clone(&serving);
                // One that is left alone is of no interest.
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Self { home, port, shared }
    }

    fn answering(keys: &str) -> Self {
        Self::new(Behaviour::Answers(200, keys.to_owned()))
    }

    fn now(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().unwrap() = behaviour;
        self.shared.turn.fetch_add(1, Ordering::SeqCst);
    }

    fn now_has(&self, keys: &str) {
        self.now(Behaviour::Answers(200, keys.to_owned()));
    }

    fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// The keys of `jwt` for it.
    fn keys(&self) -> String {
        let ca = self.home.ca.certificate();
        format!(
            "jwks = \"https://localhost:{}/keys?x=1\", ca = \"{}\", refresh = \"10s\"",
            self.port,
            ca.display()
        )
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.now(Behaviour::Answers(500, String::new()));
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let connection = ServerConnection::new(Arc::clone(&self.config)).map_err(std::io::Error::other)?;
        let mut tls = StreamOwned::new(connection, stream);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tls.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        assert!(
            head.starts_with("get /keys?x=1 http/1.1\r\n") && head.contains("\r\nhost: localhost:"),
            "{head}"
        );
        let turn = self.turn.load(Ordering::SeqCst);
        self.requests.fetch_add(1, Ordering::SeqCst);
        let behaviour = self.behaviour.lock().unwrap().clone();
        match behaviour {
            Behaviour::Answers(status, body) => {
                write!(tls, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
            }
            Behaviour::Floods(mib, says_length) => {
                let length =
                    if says_length { format!("Content-Length: {}\r\n", mib << 20) } else { String::new() };
                write!(tls, "HTTP/1.1 200 X\r\n{length}Connection: close\r\n\r\n")?;
                for _ in 0..mib {
                    tls.write_all(&vec![b' '; 1 << 20])?;
                }
            }
            Behaviour::Hangs => {
                while self.turn.load(Ordering::SeqCst) == turn {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        tls.conn.send_close_notify();
        tls.flush()
    }
}

/// The configuration of an application behind tokens of the provider.
fn configuration(provider: &Provider, more: &str) -> String {
    format!(
        "{METRICS}{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\njwt = {{ audience = \"www\", {}{more} }}\n",
        provider.keys()
    )
}

fn served(provider: &Provider) -> (Server, Instance) {
    served_in("on", provider)
}

fn served_in(sandbox: &str, provider: &Provider) -> (Server, Instance) {
    let home = Home::new();
    let (app, _) = named(&Listen::Unix(home.file("app.sock")), "app");
    (app, home.run(&format!("sandbox = \"{sandbox}\"\n{}", configuration(provider, ""))))
}

fn status(instance: &Instance, token: &str) -> u16 {
    let token = format!("Authorization: Bearer {token}");
    get(instance, &["--header", &token], "https://localhost/").status()
}

fn logged(instance: &Instance, what: &str) -> usize {
    instance.process.lines(Source::Stderr).iter().filter(|line| line.contains(what)).count()
}

#[test]
fn a_new_key_is_believed_at_once_and_one_that_is_taken_back_after_the_refresh() {
    let provider = Provider::answering(ED_KEY);
    let (_app, instance) = served_in("strict", &provider);
    // They were there before the first request.
    assert_eq!(status(&instance, EDDSA), 200);
    assert_eq!(provider.requests(), 1);
    // The issuer begins to sign with others: their first token has the keys fetched.
    provider.now_has(KEYS);
    assert_eq!(
        (status(&instance, RS256), status(&instance, ES256), status(&instance, EDDSA)),
        (200, 200, 200)
    );
    assert_eq!(provider.requests(), 2);
    // It fails for a while. The keys stay, which is told once.
    provider.now(Behaviour::Answers(500, "oops".to_owned()));
    let failed = "cannot be fetched; those that were fetched before stay in use";
    instance.until("a fetch that fails", || (logged(&instance, failed) > 0).then_some(()));
    let before = provider.requests();
    instance.until("another one", || (provider.requests() > before).then_some(()));
    assert_eq!((status(&instance, RS256), logged(&instance, failed)), (200, 1));
    // The issuer takes a key back. Tokens that were believed before are believed no more.
    let others = KEYS.replace("\"kid\": \"ed\"", "\"kid\": \"other\"");
    provider.now_has(&others);
    instance.until("the key is gone", || (status(&instance, EDDSA) == 401).then_some(()));
    assert_eq!(status(&instance, RS256), 200);
    let page = Page::scrape(instance.metrics());
    let count = |outcome| page.get(&format!("offramp_jwks_fetches_total{{outcome=\"{outcome}\"}}"));
    assert!(count("success") >= 3.0 && count("failed") >= 2.0);
    assert!(logged(&instance, "the keys of tokens were fetched") >= 3);
    instance.stop();
}

#[test]
fn keys_that_nobody_has_cost_the_issuer_one_request_in_a_while() {
    let provider = Provider::answering(ED_KEY);
    let begun = Instant::now();
    let (_app, instance) = served(&provider);
    for _ in 0..10 {
        assert_eq!((status(&instance, RS256), status(&instance, ES256)), (401, 401));
        assert_eq!(status(&instance, EDDSA), 200);
    }
    // The first one, and that of the first strange token. With time come those of the refresh, each 10 s, and one for
    // strange tokens in 30 s.
    let most = 2 + begun.elapsed().as_secs() / 7;
    assert!(provider.requests() as u64 <= most, "{} requests", provider.requests());
    assert!(provider.requests() >= 2);
    instance.stop();
}

#[test]
fn without_keys_nobody_enters_until_they_come() {
    let bad = [
        (Behaviour::Answers(500, "oops".to_owned()), "the server answered 500"),
        (Behaviour::Answers(302, KEYS.to_owned()), "the server answered 302"),
        (Behaviour::Answers(200, "{\"keys\": [".to_owned()), "EOF while parsing"),
        (Behaviour::Answers(200, "{\"keys\": []}".to_owned()), "no key is for signatures"),
        (Behaviour::Answers(200, WEAK.to_owned()), "2048 to 4096 bits, and this one 1096"),
        (Behaviour::Floods(10, true), "length limit exceeded"),
        (Behaviour::Floods(10, false), "length limit exceeded"),
        (Behaviour::Hangs, ""),
    ];
    let provider = Provider::new(Behaviour::Hangs);
    let (_app, instance) = served(&provider);
    let closed = || {
        let token = format!("Authorization: Bearer {EDDSA}");
        let answer = get(&instance, &["--header", &token], "https://localhost/");
        assert_eq!((answer.status(), answer.field("retry-after")), (503, "5"));
        assert_eq!(get(&instance, &[], "https://localhost/").status(), 401);
    };
    closed();
    for (behaviour, why) in bad {
        // Each has a process of its own, because a failure is told once.
        let provider = Provider::new(behaviour);
        let (_app, instance) = served(&provider);
        let token = format!("Authorization: Bearer {EDDSA}");
        assert_eq!(get(&instance, &["--header", &token], "https://localhost/").status(), 503, "{why}");
        if !why.is_empty() {
            instance.until(why, || (logged(&instance, why) == 1).then_some(()));
            assert_eq!(logged(&instance, "requests get 503 until they are there"), 1, "{why}");
        }
        provider.now_has(KEYS);
        instance.until("the keys come", || (status(&instance, EDDSA) == 200).then_some(()));
        let events = instance.stop();
        assert!(events.iter().any(|event| cause(event) == "keys_unavailable"), "{events:?}");
        assert!(events.iter().all(|event| ["keys_unavailable", "completed"].contains(&cause(event))));
    }
    closed();
    instance.stop();
}

#[test]
fn only_the_server_that_the_configuration_names_is_believed() {
    let (provider, other) = (Provider::answering(KEYS), Home::new());
    let (_app, instance) = served(&provider);
    assert_eq!(status(&instance, EDDSA), 200);
    // Another authority: what was fetched before stays, and nothing is fetched any more.
    let ca = provider.home.ca.certificate().display().to_string();
    let text = configuration(&provider, "").replace(&ca, &other.ca.certificate().display().to_string());
    assert!(reload_to(&instance, &text).contains(" reloaded "));
    instance.until("a fetch that fails", || {
        (logged(&instance, "the signature of the certificate is not by the issuer that it names") == 1)
            .then_some(())
    });
    assert_eq!(status(&instance, EDDSA), 200);
    instance.home.configure(&text.replace(&other.ca.certificate().display().to_string(), "absent.pem"));
    let outcome = reload(&instance);
    assert!(outcome.contains("reload refused") && outcome.contains("absent.pem"), "{outcome}");
    instance.stop();
}

#[test]
fn good_keys_beside_bad_ones_are_believed() {
    let mixed = WEAK.replace("]}", &format!(", {}", ED_KEY.trim_start_matches("{\"keys\": [")));
    let provider = Provider::answering(&mixed);
    let (_app, instance) = served(&provider);
    assert_eq!((status(&instance, EDDSA), status(&instance, RS256)), (200, 401));
    instance.until("what is wrong", || {
        (logged(&instance, "keys of tokens cannot be used") == 1 && logged(&instance, "this one 1096") == 1)
            .then_some(())
    });
    instance.stop();
}

#[test]
fn keys_outlive_reloads_and_upgrades_while_their_server_is_away() {
    let provider = Provider::answering(KEYS);
    let (_app, instance) = served(&provider);
    assert_eq!(status(&instance, EDDSA), 200);
    provider.now(Behaviour::Hangs);
    // With other rules, and a new snapshot.
    assert!(reload_to(&instance, &configuration(&provider, ", leeway = \"2m\"")).contains(" reloaded "));
    assert_eq!(status(&instance, EDDSA), 200);
    let upgraded = Upgraded::of(instance);
    upgraded.upgrade();
    upgraded.until_others_ended();
    assert_eq!(status(&upgraded.instance, EDDSA), 200);
    upgraded.stop();
}
