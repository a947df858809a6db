//! A store with requests that the tests know, and counts of them that the store has no part in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use offramp_analytics::entry::{RequestPart, ResponsePart};
use offramp_analytics::{LogEntry, Options, Writer};
use tempfile::TempDir;

/// 2016-10-31T06:33:44.866Z, where the documented requests begin, in milliseconds.
pub(crate) const FROM: i64 = 1_477_895_624_866;
/// Six hours later, where they end.
pub(crate) const TO: i64 = FROM + 6 * 3_600_000;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Milliseconds since 1970.
    pub(crate) time: i64,
    pub(crate) host: Option<&'static str>,
    pub(crate) client: IpAddr,
    pub(crate) path: String,
    pub(crate) status: u16,
    pub(crate) bytes: i64,
    pub(crate) agent: &'static str,
    pub(crate) referer: Option<&'static str>,
}

const HOSTS: [Option<&str>; 4] = [Some("a.test"), Some("b.test"), Some("blog.test"), None];
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
const AGENTS: [&str; 2] = [BROWSER, "curl/8.5.0"];
const REFERERS: [Option<&str>; 3] = [None, Some("https://search.test/"), Some("https://b.test/links")];

impl Request {
    pub(crate) fn is_bot(&self) -> bool {
        self.agent != BROWSER
    }

    fn entry(&self) -> LogEntry<'_> {
        LogEntry {
            time_us: self.time * 1000,
            host: self.host.map(str::as_bytes),
            client: Some(self.client),
            request: RequestPart {
                method: Some(b"GET"),
                path: self.path.as_bytes(),
                query: None,
                protocol: Some(b"HTTP/1.1"),
            },
            response: ResponsePart {
                status: self.status,
                bytes: self.bytes.unsigned_abs(),
                received: None,
                duration_us: Some(1000),
            },
            referer: self.referer.map(str::as_bytes),
            agent: Some(self.agent.as_bytes()),
            ..LogEntry::default()
        }
    }
}

/// Requests from an hour before the documented range to an hour after it, some at its very edges.
pub(crate) fn requests() -> Vec<Request> {
    // A linear congruential generator: the same requests each time.
    let mut state = 20_161_031_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let pick = |number: u64| usize::try_from(number).unwrap();
    let edges = [FROM - 1, FROM, TO - 1, TO];
    let mut requests: Vec<Request> = (0..4000)
        .map(|index| {
            let time = edges
                .get(index)
                .copied()
                .unwrap_or_else(|| FROM - 3_600_000 + next(8 * 3_600_000).cast_signed());
            let burst = time > FROM + 3 * 3_600_000 && time < FROM + 3 * 3_600_000 + 1_200_000;
            Request {
                time,
                host: HOSTS[pick(next(4))],
                client: IpAddr::from([192, 0, next(3).to_le_bytes()[0], next(9).to_le_bytes()[0]]),
                path: format!("/page{}", next(12) * next(3)),
                status: if burst && next(2) == 0 { 502 } else { [200, 200, 200, 304, 404][pick(next(5))] },
                bytes: next(100_000).cast_signed(),
                agent: AGENTS[pick(next(3) / 2)],
                referer: REFERERS[pick(next(3))],
            }
        })
        .collect();
    requests.sort_by_key(|request| request.time);
    requests
}

/// A store of [`requests`] that all tests read.
pub(crate) fn shared() -> &'static str {
    static STORE: OnceLock<(TempDir, String)> = OnceLock::new();
    let (_, url) = STORE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("access.db").display());
        fill(&url);
        (directory, url)
    });
    url
}

/// Writes [`requests`] into a store, and rolls them up.
pub(crate) fn fill(url: &str) {
    let mut writer = Writer::open(url, &Options::default()).unwrap();
    for request in &requests() {
        writer.add(&request.entry()).unwrap();
    }
    writer.commit().unwrap();
    writer.finish(UNIX_EPOCH + Duration::from_millis((TO + 48 * 3_600_000).unsigned_abs())).unwrap();
}

/// Requests and bytes.
pub(crate) type Sums = (i64, i64);

/// Adds up requests by name.
pub(crate) fn count<K: Ord>(
    admits: impl Fn(&Request) -> bool,
    name: impl Fn(&Request) -> Option<K>,
) -> BTreeMap<K, Sums> {
    let mut sums: BTreeMap<K, Sums> = BTreeMap::new();
    for request in requests().iter().filter(|request| admits(request)) {
        if let Some(name) = name(request) {
            let sum = sums.entry(name).or_default();
            *sum = (sum.0 + 1, sum.1 + request.bytes);
        }
    }
    sums
}

/// Whether a request is in the range of the documented requests.
pub(crate) fn in_range(request: &Request) -> bool {
    (FROM..TO).contains(&request.time)
}

/// Makes a store of this many clients in the first hour, of whose requests nothing is kept but the roll-ups.
pub(crate) fn fill_and_forget(url: &str, clients: u32) {
    let retention = Some(Duration::from_secs(3600));
    let mut writer = Writer::open(url, &Options { retention, ..Options::default() }).unwrap();
    for number in 0..clients {
        let request = Request {
            time: FROM + i64::from(number),
            host: Some("a.test"),
            client: IpAddr::from((0x0a00_0000 + number).to_be_bytes()),
            path: "/".to_owned(),
            status: 200,
            bytes: 10,
            agent: BROWSER,
            referer: None,
        };
        writer.add(&request.entry()).unwrap();
    }
    writer.commit().unwrap();
    writer.finish(UNIX_EPOCH + Duration::from_millis((TO + 48 * 3_600_000).unsigned_abs())).unwrap();
}
