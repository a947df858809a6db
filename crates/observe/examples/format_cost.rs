//! What one event costs to format: run under `perf stat -e instructions:u` with two counts, and divide the
//! difference.
//!
//! ```text
//! format_cost json|logfmt|text|combined|vhost COUNT
//! ```

use offramp_observe::facts::{
    ByteCounts, Cause, ClientScheme, Close, ConnectionBrief, ConnectionFacts, Handshake, HttpVersion,
    IdSource, PathFacts, RequestFacts, RequestSummary, RequestTimes, TlsFacts, TlsVersion,
};
use offramp_observe::{Event, EventFormat, EventStyle};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

fn request() -> Event {
    let accepted = UNIX_EPOCH + Duration::from_micros(1_795_294_260_001_234);
    let id = IdSource::new(0, 0x1a2b_3c4d).next(accepted);
    let client: SocketAddr = ([192, 0, 2, 171], 51_234).into();
    let mut connection = ConnectionFacts::new(id, 0, "web".into(), accepted, client.into());
    connection.tls = TlsFacts {
        sni: Some("git.example.org".into()),
        alpn: Some((*b"h2").into()),
        version: Some(TlsVersion::Tls13),
        suite: Some("TLS_AES_128_GCM_SHA256"),
        group: Some("X25519MLKEM768"),
        scheme: Some("ecdsa_secp256r1_sha256"),
        handshake: Some(Handshake::Full),
        ja4: Some(*b"t13d1516h2_8daaf6152771_e5627efa2ab1"),
        client_cn: None,
    };
    let line = RequestSummary {
        method: "GET".into(),
        scheme: ClientScheme::Https,
        host: "git.example.org".into(),
        target: "/explore/repos?sort=newest&q=tls".into(),
        version: HttpVersion::Http2,
        referer: Some((*b"https://git.example.org/").into()),
        user_agent: Some((*b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0").into()),
        user: None,
    };
    let brief = Arc::new(ConnectionBrief::from(&connection));
    let mut facts = RequestFacts::new("01a1ffe0-6b23-7000-8000-00001a2b3c4d".into(), brief, accepted, line);
    facts.path = PathFacts {
        route: Some("git.example.org".into()),
        backend: Some("gitea".into()),
        server: Some("unix:/run/gitea.sock".into()),
        tries: 1,
    };
    facts.status = 200;
    facts.traffic = ByteCounts { from_client: 0, to_client: 18_423 };
    facts.times = RequestTimes {
        first_byte: Some(Duration::from_micros(8_127)),
        total: Duration::from_micros(8_402),
        ..RequestTimes::default()
    };
    facts.close = Close::from(Cause::Completed);
    Box::new(facts).into()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let format = match arguments.next().as_deref() {
        Some("json") => EventFormat::Json,
        Some("logfmt") => EventFormat::Logfmt,
        Some("text") => EventFormat::Text,
        Some("combined") => EventFormat::Combined,
        Some("vhost") => EventFormat::Vhost,
        other => panic!("unknown format: {other:?}"),
    };
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).expect("a count");
    let (style, event, mut out) = (EventStyle::from(format), request(), Vec::with_capacity(65_536));
    let mut bytes = 0;
    for _ in 0..count {
        out.clear();
        style.write(std::hint::black_box(&event), &mut out);
        bytes += std::hint::black_box(&out).len();
    }
    println!("{bytes} bytes");
}
