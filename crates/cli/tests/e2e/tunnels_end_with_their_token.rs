//! A WebSocket that a token has opened ends with the token, over both versions of HTTP; or goes on, where a key says so.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use offramp_testkit::server::Server;

use crate::crowd::{self, Tls, connect, trusting};
use crate::h2_client::kind::{DATA, HEADERS, RST_STREAM};
use crate::h2_client::{self, END_HEADERS, H2, data, headers, request};
use crate::http_curl::HTTP;
use crate::http_websockets_pass_over_both_versions::{head, shouting_back};
use crate::instance::{CERTIFICATE, Home, Instance, cause};
use crate::signed_tokens::TokenSigner;

/// The life of a token: longer than it takes to open a tunnel on a busy machine.
const LIFE: Duration = Duration::from_secs(15);

fn served(keys: &str) -> (Server, Instance, TokenSigner) {
    let (home, signer) = (Home::new(), TokenSigner::new());
    let app = shouting_back(&home);
    fs::write(home.file("keys.json"), signer.keys()).unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n\
         jwt = {{ jwks = \"keys.json\", leeway = \"0s\"{keys} }}\n"
    ));
    (app, instance, signer)
}

/// A WebSocket over HTTP/1.1.
fn open(instance: &Instance, token: &str) -> Tls {
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    let request = format!(
        "GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    tls.write_all(request.as_bytes()).unwrap();
    let head = head(&mut tls);
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    tls
}

/// One over HTTP/2, on stream 1.
fn open_stream(instance: &Instance, token: &str) -> H2 {
    let mut h2 = H2::open(&trusting(&instance.home.ca.certificate()), instance.address(), &[]);
    let bearer = format!("Bearer {token}");
    let mut fields = request("CONNECT", "/socket", &[]);
    fields.extend([(":protocol", "websocket"), ("sec-websocket-version", "13"), ("authorization", &bearer)]);
    assert!(h2.send(&headers(1, END_HEADERS, &fields)));
    let answer = h2.find("answer", |frame| frame.kind == HEADERS && frame.stream == 1);
    assert_eq!(answer.status(), 200);
    h2
}

fn echo(h2: &mut H2) {
    assert!(h2.send(&data(1, 0, b"there")));
    let back = h2.find("data", |frame| frame.kind == DATA && frame.stream == 1);
    assert_eq!(back.payload, b"there");
    assert!(h2.send(&h2_client::window(0, 5)));
}

#[test]
fn a_websocket_ends_with_its_token() {
    let (_app, instance, signer) = served("");
    let begun = Instant::now();
    let token = signer.ending_in(LIFE);
    let (mut tls, mut h2) = (open(&instance, &token), open_stream(&instance, &token));
    crowd::echo(&mut tls, "here").unwrap();
    echo(&mut h2);
    // Traffic keeps no tunnel open; this one sends until it is cut off.
    while crowd::echo(&mut tls, "here").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    // One second less, for the two clocks.
    assert!(begun.elapsed() >= LIFE - Duration::from_secs(1));
    h2.find("end", |frame| frame.kind == RST_STREAM && frame.stream == 1);
    let events = instance.stop();
    let ends: Vec<_> = events.iter().map(|event| (event["status"].as_u64(), cause(event))).collect();
    // Over both versions (RFC 8441 answers with 200).
    assert_eq!(ends, [(Some(101), "token_expired"); 2], "{events:?}");
}

#[test]
fn a_websocket_may_outlive_its_token() {
    let (_app, instance, signer) = served(", keep_tunnels = true");
    let token = signer.ending_in(LIFE);
    let (mut tls, mut h2) = (open(&instance, &token), open_stream(&instance, &token));
    let status = || {
        let header = format!("Authorization: Bearer {token}");
        crate::http_curl::curl(&instance, &["--header", &header], "https://localhost/").status()
    };
    instance.until("the token ends", || (status() == 401).then_some(()));
    crowd::echo(&mut tls, "here").unwrap();
    echo(&mut h2);
    drop((tls, h2));
    let events = instance.stop();
    assert!(events.iter().all(|event| cause(event) != "token_expired"), "{events:?}");
}
