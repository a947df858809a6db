//! What people ask for: each filter on each question, in days of a time zone, as a naive count has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use offramp_analytics::entry::{ProxyPart, RequestPart, ResponsePart};
use offramp_analytics::question::{Bots, DataSource, SlowBy};
use offramp_analytics::{
    LogEntry, Options, QueryResult, QuerySettings, Questions, RequestFeed, RequestFilter, SqlValue, TimeStep,
    Top, Writer,
};

use super::count::time;
use super::requests::{AGENTS, BEGINNING};
use offramp_testkit::postgres as server;

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;

/// Both databases, fresh.
fn stores(directory: &tempfile::TempDir) -> [String; 2] {
    [format!("sqlite:{}", directory.path().join("a.db").display()), server::shared().database()]
}

/// One request, with what there is to filter by.
#[derive(Clone, Debug)]
struct Asked {
    time_us: i64,
    host: &'static str,
    method: &'static str,
    path: String,
    status: u16,
    client: IpAddr,
    referer: Option<&'static str>,
    agent: usize,
    server: &'static str,
    bytes: u64,
    duration_us: u64,
}

impl Asked {
    fn entry(&self) -> LogEntry<'_> {
        LogEntry {
            time_us: self.time_us,
            host: Some(self.host.as_bytes()),
            client: Some(self.client),
            request: RequestPart {
                method: Some(self.method.as_bytes()),
                path: self.path.as_bytes(),
                ..RequestPart::default()
            },
            response: ResponsePart {
                status: self.status,
                bytes: self.bytes,
                received: None,
                duration_us: Some(self.duration_us),
            },
            referer: self.referer.map(str::as_bytes),
            agent: Some(AGENTS[self.agent].as_bytes()),
            proxy: ProxyPart {
                server: Some(self.server.as_bytes()),
                cause: (self.status == 502).then_some(b"connect_refused"),
                ..ProxyPart::default()
            },
            ..LogEntry::default()
        }
    }
}

/// Requests of six days around a change of the clocks, the same ones each time.
fn requests() -> Vec<Asked> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let begins = "2026-03-27T00:00:00Z".parse::<Timestamp>().unwrap().as_microsecond();
    let mut requests: Vec<Asked> = (0..2500)
        .map(|_| Asked {
            time_us: begins + i64::try_from(random(6 * 86_400_000_000)).unwrap(),
            host: ["a.test", "www.a.test", "b.test"][random(3) as usize],
            method: ["GET", "GET", "POST", "HEAD"][random(4) as usize],
            path: ["/api/users", "/api/[x]?", "/index.html", "/apiary"][random(4) as usize].to_owned(),
            status: [200, 200, 304, 404, 403, 502][random(6) as usize],
            client: IpAddr::V4(Ipv4Addr::new(192, 0, random(2) as u8, random(20) as u8)),
            referer: [
                None,
                Some("https://search.test/q"),
                Some("https://www.search.test/"),
                Some("https://research.test/"),
            ][random(4) as usize],
            agent: random(4) as usize,
            server: ["10.0.0.1:80", "10.0.0.2:80"][random(2) as usize],
            bytes: random(5000),
            duration_us: 1 + random(2_000_000) * random(3),
        })
        .collect();
    requests.sort_by_key(|request| request.time_us);
    requests
}

type Counts = fn(&Asked) -> bool;

/// Filters, what counts by them, and whether roll-ups of traffic can tell.
fn filters() -> Vec<(RequestFilter, Counts)> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let all = RequestFilter::default;
    vec![
        (all(), |_| true),
        (RequestFilter { statuses: vec!["404".parse().unwrap()], ..all() }, |r| r.status == 404),
        (
            RequestFilter { statuses: vec!["5xx".parse().unwrap(), "400-403".parse().unwrap()], ..all() },
            |r| r.status == 502 || r.status == 403,
        ),
        (RequestFilter { methods: texts(&["post", "HEAD"]), ..all() }, |r| r.method != "GET"),
        (RequestFilter { paths: texts(&["/api*"]), ..all() }, |r| r.path.starts_with("/api")),
        (RequestFilter { paths: texts(&["/api/[x]?", "*.html"]), ..all() }, |r| {
            r.path == "/api/[x]?" || r.path == "/index.html"
        }),
        (RequestFilter { paths: texts(&["/api/[x]?*"]), ..all() }, |r| r.path == "/api/[x]?"),
        (RequestFilter { hosts: texts(&["*a.test"]), ..all() }, |r| r.host != "b.test"),
        (RequestFilter { hosts: texts(&["a.test"]), ..all() }, |r| r.host == "a.test"),
        (RequestFilter { clients: vec!["192.0.1.0/24".parse().unwrap()], ..all() }, |r| {
            in_second_network(r.client)
        }),
        (RequestFilter { exclude: vec!["192.0.1.0/24".parse().unwrap()], ..all() }, |r| {
            !in_second_network(r.client)
        }),
        (RequestFilter { referrers: texts(&["search.test"]), ..all() }, |r| {
            r.referer.is_some_and(|referer| !referer.contains("research"))
        }),
        (RequestFilter { referrers: texts(&["https://*search.test/"]), ..all() }, |r| {
            r.referer.is_some_and(|referer| referer.ends_with('/'))
        }),
        (RequestFilter { bots: Bots::Only, ..all() }, |r| matches!(r.agent, 1 | 2)),
        (RequestFilter { bots: Bots::Excluded, statuses: vec!["404".parse().unwrap()], ..all() }, |r| {
            !matches!(r.agent, 1 | 2) && r.status == 404
        }),
        (RequestFilter { hosts: texts(&["none.test"]), ..all() }, |_| false),
    ]
}

fn in_second_network(client: IpAddr) -> bool {
    matches!(client, IpAddr::V4(client) if client.octets()[2] == 1)
}

fn berlin() -> TimeZone {
    TimeZone::get("Europe/Berlin").expect("the Debian package tzdata brings it")
}

fn local_day(time_us: i64) -> String {
    let local = berlin().to_datetime(Timestamp::from_microsecond(time_us).unwrap());
    local.date().to_string()
}

/// The rows of an answer: the text of the first columns, and the numbers after them.
fn rows(answer: &QueryResult, texts: usize) -> BTreeMap<String, Vec<f64>> {
    let number = |value: &SqlValue| match value {
        SqlValue::Int(number) => *number as f64,
        SqlValue::Real(number) => *number,
        SqlValue::Null | SqlValue::Text(_) => f64::NAN,
    };
    let text = |value: &SqlValue| match value {
        SqlValue::Text(text) => text.clone(),
        SqlValue::Int(number) => number.to_string(),
        _ => "-".to_owned(),
    };
    let row = |row: &Vec<SqlValue>| {
        let named: Vec<String> = row[..texts].iter().map(text).collect();
        (named.join(" "), row[texts..].iter().map(number).collect())
    };
    let rows: BTreeMap<String, Vec<f64>> = answer.rows.iter().map(row).collect();
    assert_eq!(rows.len(), answer.rows.len(), "{answer:?}");
    rows
}

/// Sums of what counts, by a name.
fn sums(requests: &[&Asked], name: impl Fn(&Asked) -> String) -> BTreeMap<String, Vec<f64>> {
    let mut sums: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for request in requests {
        let sum = sums.entry(name(request)).or_insert_with(|| vec![0.0; 2]);
        sum[0] += 1.0;
        sum[1] += request.bytes as f64;
    }
    sums
}

fn write(url: &str, requests: &[Asked], options: &Options) -> Writer {
    let mut writer = Writer::open(url, options).unwrap();
    for batch in requests.chunks(400) {
        batch.iter().for_each(|request| writer.add(&request.entry()).unwrap());
        writer.commit().unwrap();
    }
    writer
}

/// Asks everything, and compares.
fn assert_answers(questions: &mut Questions, filter: &RequestFilter, counted: &[&Asked]) {
    let filter = &RequestFilter { zone: berlin().into(), limit: Some(1000), ..filter.clone() };
    let top = |questions: &mut Questions, top| questions.top(top, filter).unwrap();
    let pages = rows(&top(questions, Top::Pages), 2);
    assert_eq!(pages, sums(counted, |r| format!("{} {}", r.path, r.host)), "{filter:?}");
    assert_eq!(rows(&top(questions, Top::Status), 1), sums(counted, |r| r.status.to_string()), "{filter:?}");
    let clients = rows(&top(questions, Top::Clients), 1);
    assert_eq!(clients, sums(counted, |r| r.client.to_string()), "{filter:?}");
    let networks = rows(&top(questions, Top::Networks), 1);
    assert_eq!(networks, sums(counted, |r| format!("192.0.{}.0/24", u8::from(in_second_network(r.client)))));
    let traffic = questions.traffic(TimeStep::Day, false, filter).unwrap();
    let days: BTreeMap<_, _> =
        rows(&traffic, 1).into_iter().map(|(time, sums)| (time[..10].to_owned(), sums)).collect();
    assert_eq!(days, sums(counted, |r| local_day(r.time_us)), "{filter:?}");
    assert_eq!(days.len(), traffic.rows.len());
    assert_visitors_and_durations(questions, filter, counted);
    let errors = rows(&questions.errors(filter).unwrap(), 4);
    let failed: Vec<&Asked> = counted.iter().copied().filter(|r| r.status >= 400).collect();
    let name = |r: &Asked| {
        let cause = if r.status == 502 { "connect_refused" } else { "-" };
        format!("{} {cause} {} {}", r.status, r.path, r.host)
    };
    assert_eq!(errors, sums(&failed, name), "{filter:?}");
    let found = questions.search("a", &RequestFilter { limit: Some(7), ..filter.clone() }).unwrap();
    assert_eq!(found.rows.len(), counted.len().min(7), "every path and agent has an a");
}

fn assert_visitors_and_durations(questions: &mut Questions, filter: &RequestFilter, counted: &[&Asked]) {
    let mut visitors: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    let mut durations: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for request in counted {
        visitors.entry(local_day(request.time_us)).or_default().insert(request.client);
        durations.entry(request.server).or_default().push(request.duration_us);
    }
    let found: BTreeMap<String, f64> = rows(&questions.visitors(TimeStep::Day, filter).unwrap(), 1)
        .into_iter()
        .map(|(time, numbers)| (time[..10].to_owned(), numbers[0]))
        .collect();
    let expected: BTreeMap<_, _> =
        visitors.into_iter().map(|(day, clients)| (day, clients.len() as f64)).collect();
    assert_eq!(found, expected, "{filter:?}");
    let found = rows(&questions.slow(SlowBy::Server, filter).unwrap(), 1);
    assert_eq!(found.len(), durations.len());
    for (server, mut durations) in durations {
        durations.sort_unstable();
        let numbers = &found[server];
        assert_eq!(numbers[0], durations.len() as f64);
        for (percent, found) in [50, 95, 99].into_iter().zip(&numbers[1..]) {
            let rank = (durations.len() * percent).div_ceil(100).max(1);
            let expected = durations[rank - 1] as f64 / 1000.0;
            assert!((found - expected).abs() <= expected * 0.0051, "{percent}: {found} {expected}");
        }
    }
}

#[test]
fn every_filter_counts_on_every_question() {
    let directory = tempfile::tempdir().unwrap();
    let requests = requests();
    for url in stores(&directory) {
        let mut writer = write(&url, &requests, &Options::default());
        for rolled in [false, true] {
            if rolled {
                writer.finish(time(requests[0].time_us + 20 * DAY)).unwrap();
            }
            let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
            for (filter, counts) in filters() {
                let counted: Vec<&Asked> = requests.iter().filter(|request| counts(request)).collect();
                assert_answers(&mut questions, &filter, &counted);
                // Sums keep what is heavy by name, and everything all in all.
                let exact = filter.exclude.is_empty();
                if rolled {
                    let filter = RequestFilter {
                        source: DataSource::Rollups,
                        zone: berlin().into(),
                        ..filter.clone()
                    };
                    let traffic = questions.traffic(TimeStep::Day, false, &filter).unwrap();
                    let total: f64 = rows(&traffic, 1).values().map(|numbers| numbers[0]).sum();
                    assert!(!exact || total == counted.len() as f64, "{url} {filter:?} {total}");
                }
            }
        }
    }
}

#[test]
fn days_of_a_time_zone_are_right_when_requests_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let requests = requests();
    for url in stores(&directory) {
        let options = Options { retention: Some(Duration::from_secs(3600)), ..Options::default() };
        let mut writer = write(&url, &requests, &options);
        writer.finish(time(requests[0].time_us + 20 * DAY)).unwrap();
        let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
        let filter = RequestFilter { zone: berlin().into(), ..RequestFilter::default() };
        let all: Vec<&Asked> = requests.iter().collect();
        let traffic = questions.traffic(TimeStep::Day, false, &filter).unwrap();
        let days: BTreeMap<_, _> =
            rows(&traffic, 1).into_iter().map(|(time, sums)| (time[..10].to_owned(), sums)).collect();
        assert_eq!(days, sums(&all, |r| local_day(r.time_us)), "{url}");
        // A Sunday ends its week, and the clocks were changed on it.
        let weeks = questions.traffic(TimeStep::Week, false, &filter).unwrap();
        let begin: Vec<String> = rows(&weeks, 1).into_keys().collect();
        assert_eq!(begin, ["2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"]);
        // Sums know nothing of methods, and requests are gone.
        let by_method = RequestFilter { methods: vec!["GET".into()], ..filter.clone() };
        let answer = questions.traffic(TimeStep::Day, false, &by_method).unwrap();
        assert!(answer.rows.is_empty());
        assert!(answer.notes[0].contains("none is kept any more"), "{:?}", answer.notes);
        assert!(answer.notes[1].contains("the store knows of 2026-03-27"), "{:?}", answer.notes);
    }
}

#[test]
fn what_roll_ups_cannot_tell_comes_from_requests_and_says_of_when() {
    let directory = tempfile::tempdir().unwrap();
    let requests = requests();
    for url in stores(&directory) {
        let options = Options { retention: Some(Duration::from_secs(2 * 86_400)), ..Options::default() };
        let mut writer = write(&url, &requests, &options);
        writer.finish(time(requests[0].time_us + 6 * DAY)).unwrap();
        let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
        let filter = RequestFilter { methods: vec!["POST".into()], ..RequestFilter::default() };
        let answer = questions.top(Top::Pages, &filter).unwrap();
        let kept = requests[0].time_us / DAY * DAY + 4 * DAY;
        let posts = |r: &&Asked| r.method == "POST" && r.time_us >= kept;
        let found: f64 = rows(&answer, 2).values().map(|numbers| numbers[0]).sum();
        assert_eq!(found, requests.iter().filter(posts).count() as f64, "{url}");
        assert!(answer.notes[0].contains("which are kept from 2026-03-31 00:"), "{:?}", answer.notes);
        let recent = RequestFilter { since: Some(time(kept)), ..filter };
        assert_eq!(questions.top(Top::Pages, &recent).unwrap().notes, [""; 0]);
        assert_eq!(questions.top(Top::Pages, &RequestFilter::default()).unwrap().notes, [""; 0]);
    }
}

#[test]
fn limits_keep_the_newest_and_steps_suit_the_range() {
    let directory = tempfile::tempdir().unwrap();
    let requests = requests();
    for url in stores(&directory) {
        drop(write(&url, &requests, &Options::default()));
        let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
        let filter = RequestFilter { limit: Some(2), ..RequestFilter::default() };
        let days = |answer: QueryResult| rows(&answer, 1).into_keys().collect::<Vec<_>>();
        let newest = ["2026-03-31T00:00:00Z", "2026-04-01T00:00:00Z"];
        assert_eq!(days(questions.traffic(TimeStep::Day, false, &filter).unwrap()), newest);
        assert_eq!(days(questions.visitors(TimeStep::Day, &filter).unwrap()), newest);
        assert_eq!(questions.step_for(&filter).unwrap(), TimeStep::Every(Duration::from_secs(6 * 3600)));
        let hour = RequestFilter { since: Some(time(requests[0].time_us + 6 * DAY - HOUR)), ..filter };
        assert_eq!(questions.step_for(&hour).unwrap(), TimeStep::Every(Duration::from_secs(300)));
        let future = RequestFilter { since: Some(time(BEGINNING + 400 * DAY)), ..RequestFilter::default() };
        let notes = questions.top(Top::Pages, &future).unwrap().notes;
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("no request matches; the store knows of 2026-03-27 "), "{notes:?}");
    }
    let empty = format!("sqlite:{}", directory.path().join("empty.db").display());
    drop(Writer::open(&empty, &Options::default()).unwrap());
    let notes = Questions::open(&empty, &QuerySettings::default())
        .unwrap()
        .errors(&RequestFilter::default())
        .unwrap()
        .notes;
    assert_eq!(notes, ["the store has no requests yet"]);
}

#[test]
fn a_period_is_compared_with_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let requests = requests();
    let begins = requests[0].time_us / DAY * DAY;
    let (from, middle, to) = (begins + DAY, begins + 3 * DAY, begins + 5 * DAY);
    let part = |from: i64, to: i64| -> Vec<&Asked> {
        requests.iter().filter(|r| (from..to).contains(&r.time_us)).collect()
    };
    let (before, now) = (part(from, middle), part(middle, to));
    for url in stores(&directory) {
        drop(write(&url, &requests, &Options::default()));
        let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
        let filter =
            RequestFilter { since: Some(time(middle)), until: Some(time(to)), ..RequestFilter::default() };
        let answer = questions.compare(None, &filter).unwrap();
        assert_eq!(answer.columns, ["what", "now", "before", "change_percent"]);
        let found = rows(&answer, 1);
        let both = |count: fn(&[&Asked]) -> usize| [count(&now) as f64, count(&before) as f64];
        assert_eq!(found["requests"][..2], both(|requests| requests.len()));
        let failed =
            |low: u16, requests: &[&Asked]| requests.iter().filter(|r| r.status / 100 == low).count();
        assert_eq!(found["4xx"][..2], [failed(4, &now) as f64, failed(4, &before) as f64]);
        assert_eq!(found["5xx"][..2], [failed(5, &now) as f64, failed(5, &before) as f64]);
        assert_eq!(
            found["visitors"][..2],
            both(|r| r.iter().map(|r| r.client).collect::<BTreeSet<_>>().len())
        );
        let change = (now.len() as f64 - before.len() as f64) / before.len() as f64 * 100.0;
        assert!((found["requests"][2] - change).abs() < 0.051, "{found:?}");
        let hosts = rows(&questions.compare(Some(Top::Hosts), &filter).unwrap(), 1);
        let of = |requests: &[&Asked]| requests.iter().filter(|r| r.host == "b.test").count() as f64;
        assert_eq!(hosts["b.test"][..2], [of(&now), of(&before)]);
        assert!(questions.compare(None, &RequestFilter::default()).is_err());
        assert!(questions.compare(Some(Top::Cities), &filter).is_err());
    }
}

#[test]
fn requests_are_shown_as_they_come_and_each_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut one = requests().swap_remove(0);
    for url in stores(&directory) {
        let now = requests()[0].time_us + DAY;
        let mut writer = Writer::open(&url, &Options::default()).unwrap();
        let mut add = |path: &str, status: u16, time_us: i64| {
            (one.path, one.status, one.time_us) = (path.to_owned(), status, time_us);
            writer.add(&one.entry()).unwrap();
            writer.commit().unwrap();
        };
        for number in 0..20 {
            add(&format!("/old/{number}"), if number % 2 == 0 { 500 } else { 200 }, now - HOUR + number);
        }
        let filter = RequestFilter {
            statuses: vec!["5xx".parse().unwrap()],
            limit: Some(3),
            ..RequestFilter::default()
        };
        let mut tail = RequestFeed::new(Questions::open(&url, &QuerySettings::default()).unwrap(), filter);
        let mut more = |now_us: i64| -> Vec<String> {
            let answer = tail.more(time(now_us)).unwrap();
            let at = answer.columns.iter().position(|column| column == "path").unwrap();
            let path = |row: &Vec<SqlValue>| match &row[at] {
                SqlValue::Text(path) => path.clone(),
                other => panic!("{other:?}"),
            };
            answer.rows.iter().map(path).collect()
        };
        assert_eq!(more(now), ["/old/14", "/old/16", "/old/18"], "{url}");
        assert_eq!(more(now), [""; 0]);
        add("/new", 503, now);
        add("/fine", 200, now);
        assert_eq!(more(now), ["/new"]);
        // It began before what was shown already, and has ended now.
        add("/long", 504, now - HOUR / 12);
        assert_eq!(more(now), ["/long"]);
        assert_eq!(more(now + 60_000_000), [""; 0]);
    }
}
