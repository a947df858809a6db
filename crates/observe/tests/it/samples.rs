//! Facts to write.

use offramp_observe::facts::{
    Alert, ByteCounts, Cause, ClientScheme, Close, ConnectionBrief, ConnectionFacts, EndpointAddress,
    FatalAlert, Handshake, HttpVersion, IdSource, Mismatch, PathFacts, RequestFacts, RequestSummary,
    RequestTimes, Times, TlsFacts, TlsOffer, TlsVersion, Trace,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn accepted() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(1_795_294_260_001_234)
}

/// Facts that say nothing but that there was a connection.
pub(crate) fn bare(ids: &mut IdSource) -> Box<ConnectionFacts> {
    let id = ids.next(accepted());
    Box::new(ConnectionFacts::new(id, 0, "web".into(), accepted(), EndpointAddress::Unix(None)))
}

fn from_address(address: &str) -> ConnectionFacts {
    let id = IdSource::new(0, 0x1a2b_3c4d).next(accepted());
    let address: std::net::SocketAddr = address.parse().unwrap();
    ConnectionFacts::new(id, 0, "web".into(), accepted(), address.into())
}

/// An ordinary connection.
pub(crate) fn ordinary() -> ConnectionFacts {
    let mut facts = from_address("[::ffff:192.0.2.1]:51234");
    facts.tls = TlsFacts {
        sni: Some("git.example.org".into()),
        ja4: Some(*b"t13d1516h2_8daaf6152771_e5627efa2ab1"),
        alpn: Some((*b"h2").into()),
        version: Some(TlsVersion::Tls13),
        suite: Some("TLS_AES_128_GCM_SHA256"),
        group: Some("X25519MLKEM768"),
        scheme: Some("ecdsa_secp256r1_sha256"),
        handshake: Some(Handshake::Full),
        client_cn: None,
    };
    facts.path = PathFacts {
        route: Some("git.example.org".into()),
        backend: Some("gitea".into()),
        server: Some("unix:/run/gitea.sock".into()),
        tries: 1,
    };
    facts.traffic = ByteCounts { from_client: 517, to_client: 1_258_291 };
    facts.times = Times {
        handshake: Some(Duration::from_micros(2_311)),
        connect: Some(Duration::from_micros(48)),
        total: Duration::from_micros(1_204_518),
    };
    facts.close = Close::from(Cause::ClientClosed);
    facts
}

/// A client that is too old.
pub(crate) fn mismatched() -> ConnectionFacts {
    let mut facts = from_address("[2001:db8::7]:40112");
    facts.tls.sni = Some("git.example.org".into());
    facts.times.total = Duration::from_micros(812);
    facts.times.handshake = Some(Duration::from_micros(640));
    facts.close = Close::from(Cause::NoCommonVersion).with_alert(FatalAlert::Sent(Alert::PROTOCOL_VERSION));
    facts.mismatch = Some(Box::new(Mismatch {
        offered: TlsOffer { versions: ["TLSv1.1", "TLSv1.0"].into_iter().collect(), ..TlsOffer::default() },
        configured: Arc::new(TlsOffer {
            versions: ["TLSv1.3", "TLSv1.2"].into_iter().collect(),
            ..TlsOffer::default()
        }),
    }));
    facts
}

/// Every field at once, which no real connection has.
pub(crate) fn everything() -> ConnectionFacts {
    let mut facts = ordinary();
    facts.client.peer = Some("10.0.0.1:9999".parse::<std::net::SocketAddr>().unwrap().into());
    facts.tls.client_cn = Some((*b"backup").into());
    let names = || ["one", "two"].into_iter().collect();
    let offer =
        TlsOffer { versions: names(), suites: names(), groups: names(), schemes: names(), alpn: names() };
    facts.mismatch = Some(Box::new(Mismatch { offered: offer.clone(), configured: Arc::new(offer) }));
    facts.close =
        Close::from(Cause::Internal).with_alert(FatalAlert::Sent(Alert::INTERNAL_ERROR)).with_detail("why");
    facts
}

/// An ordinary request.
pub(crate) fn request() -> RequestFacts {
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
    let brief = Arc::new(ConnectionBrief::from(&ordinary()));
    let begun = accepted() + Duration::from_micros(2_500);
    let mut facts = RequestFacts::new("01a1ffe0-6b23-7000-8000-00001a2b3c4d".into(), brief, begun, line);
    facts.path = ordinary().path;
    facts.status = 200;
    facts.traffic = ByteCounts { from_client: 0, to_client: 18_423 };
    facts.times = RequestTimes {
        queue: None,
        connect: None,
        first_byte: Some(Duration::from_micros(8_127)),
        total: Duration::from_micros(8_402),
    };
    facts.close = Close::from(Cause::Completed);
    facts
}

/// A request that its client gave up, over plain text.
pub(crate) fn aborted() -> RequestFacts {
    let mut facts = request();
    let mut brief = (*facts.connection).clone();
    brief.tls = None;
    facts.connection = Arc::new(brief);
    facts.request.scheme = ClientScheme::Http;
    facts.request.version = HttpVersion::Http11;
    facts.request.target = "/big\"file".into();
    facts.request.referer = None;
    facts.close = Close::from(Cause::ClientAborted).with_detail("connection reset");
    facts
}

/// Requests that have every field between them.
pub(crate) fn requests() -> Vec<RequestFacts> {
    let mut full = request();
    full.request.user = Some((*b"alice").into());
    full.times.queue = Some(Duration::from_micros(12));
    full.times.connect = Some(Duration::from_micros(48));
    full.trace = Some(Trace {
        id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
        span: 0xb7ad_6b71_6920_3331,
        parent: None,
        sampled: true,
    });
    full.close = Close::from(Cause::H2ProtocolError)
        .with_alert(FatalAlert::Sent(Alert::INTERNAL_ERROR))
        .with_detail("why");
    let mut other = full.clone();
    let mut brief = (*other.connection).clone();
    brief.client.peer = Some("10.0.0.1:9999".parse::<std::net::SocketAddr>().unwrap().into());
    if let Some(tls) = &mut brief.tls {
        tls.client_cn = Some((*b"backup").into());
    }
    other.connection = Arc::new(brief);
    other.close.alert = Some(FatalAlert::Received(Alert::INTERNAL_ERROR));
    vec![full, other, request(), aborted()]
}
