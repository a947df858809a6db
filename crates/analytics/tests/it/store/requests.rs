//! Requests for tests: owned, and random ones with the repetition that real ones have.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use offramp_analytics::LogEntry;
use offramp_analytics::entry::{ProxyPart, RequestPart, ResponsePart};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

/// A request that owns its texts.
#[derive(Clone, Default)]
pub(crate) struct Request {
    pub(crate) time_us: i64,
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) client: Option<IpAddr>,
    pub(crate) path: Vec<u8>,
    pub(crate) query: Option<Vec<u8>>,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) referer: Option<Vec<u8>>,
    pub(crate) agent: Option<Vec<u8>>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(|b| b.escape_ascii().to_string());
        write!(
            f,
            "{} {:?} {:?} {} {:?} {} {} {:?} {:?}",
            self.time_us,
            text(&self.host),
            self.client,
            self.path.escape_ascii(),
            text(&self.query),
            self.status,
            self.bytes,
            text(&self.referer),
            text(&self.agent)
        )
    }
}

impl Request {
    pub(crate) fn entry(&self) -> LogEntry<'_> {
        LogEntry {
            time_us: self.time_us,
            host: self.host.as_deref(),
            client: self.client,
            request: RequestPart {
                method: Some(b"GET"),
                path: &self.path,
                query: self.query.as_deref(),
                protocol: Some(b"HTTP/1.1"),
            },
            response: ResponsePart {
                status: self.status,
                bytes: self.bytes,
                received: None,
                duration_us: Some(self.bytes / 3),
            },
            referer: self.referer.as_deref(),
            agent: self.agent.as_deref(),
            user: None,
            proxy: ProxyPart::default(),
            ..LogEntry::default()
        }
    }
}

/// The time that tests live in: 2026-03-01T00:00:00Z, in microseconds.
pub(crate) const BEGINNING: i64 = 1_772_323_200_000_000;

/// What two bots and two browsers call themselves.
pub(crate) const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "curl/8.5.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/17.5 Safari/605.1.15",
];

/// Requests over some days: many in the same second, some out of order, some of strange bytes.
pub(crate) fn some() -> impl Strategy<Value = Vec<Request>> {
    vec(one(), 1..400)
}

fn one() -> impl Strategy<Value = Request> {
    let time = prop_oneof![
        (0..60i64).prop_map(|minute| minute * 60_000_000 * 37),
        0..3 * 86_400_000_000i64,
        Just(86_399_999_000),
    ];
    let host = proptest::option::of((0..3u8).prop_map(|n| format!("host{n}.test").into_bytes()));
    let client = proptest::option::weighted(
        0.9,
        (0..4u8, 0..4u8, any::<bool>()).prop_map(|(a, b, v6)| {
            if v6 {
                IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, a.into(), 0, 0, 0, 0, b.into()))
            } else {
                IpAddr::V4(Ipv4Addr::new(192, 0, a, b))
            }
        }),
    );
    let path = prop_oneof![
        9 => (0..12u8).prop_map(|n| format!("/page/{n}").into_bytes()),
        1 => vec(any::<u8>(), 1..40),
    ];
    let query = proptest::option::weighted(0.2, (0..5u8).prop_map(|n| format!("q={n}").into_bytes()));
    let referer =
        proptest::option::weighted(0.4, (0..5u8).prop_map(|n| format!("https://r{n}.test/").into_bytes()));
    let agent = proptest::option::weighted(0.9, (0..4usize).prop_map(|n| AGENTS[n].as_bytes().to_vec()));
    let status = prop_oneof![Just(200u16), Just(404), Just(0), Just(503), Just(304)];
    (time, host, client, path, query, status, 0..100_000u64, referer, agent).prop_map(
        |(time, host, client, path, query, status, bytes, referer, agent)| Request {
            time_us: BEGINNING + time,
            host,
            client,
            path,
            query,
            status,
            bytes,
            referer,
            agent,
        },
    )
}
