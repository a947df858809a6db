//! Lists from roll-ups: few different values are exact, and of many the true count lies within what is told.

use offramp_analytics::question::{Bots, DataSource, SortOrder};
use offramp_analytics::{Options, QuerySettings, Questions, RequestFilter, Top, Writer};
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::test_runner::TestCaseError;

use super::count;
use super::requests::{AGENTS, BEGINNING, Request};

const HOUR: i64 = 3_600_000_000;
const LISTS: [Top; 7] =
    [Top::Pages, Top::Referrers, Top::Hosts, Top::Clients, Top::Status, Top::Agents, Top::Networks];

/// How many different values requests have.
#[derive(Clone, Copy, Debug)]
struct Variety {
    hosts: u64,
    /// Of everything else, by host.
    values: u64,
    requests: u64,
    hours: u64,
    seed: u64,
}

fn varieties() -> impl Strategy<Value = Variety> {
    let numbers = (1..12u64, 1..200u64, 1..1500u64, 1..30u64, 1..u64::MAX);
    numbers.prop_map(|(hosts, values, requests, hours, seed)| Variety {
        hosts,
        values,
        requests,
        hours,
        seed,
    })
}

impl Variety {
    /// Requests of which low numbers are the most frequent.
    fn requests(self) -> Vec<Request> {
        let mut state = self.seed;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        (0..self.requests)
            .map(|_| {
                let host = random(self.hosts);
                let most = 1 + random(self.values);
                let value = random(most);
                let (high, low) = ((value >> 8) as u8, value as u8);
                let time = random(self.hours * 3600) * 1_000_000;
                Request {
                    time_us: BEGINNING + i64::try_from(time).unwrap(),
                    host: Some(format!("host{host}.test").into_bytes()),
                    client: Some([192, high, low, 7].into()),
                    path: format!("/{value}").into_bytes(),
                    status: [200, 200, 404][random(3) as usize],
                    bytes: random(100_000),
                    referer: Some(format!("https://r{value}.test/").into_bytes()),
                    agent: Some(match value {
                        // One of them is a bot.
                        0..2 => AGENTS[value as usize].as_bytes().to_vec(),
                        _ => format!("{} {value}", AGENTS[0]).into_bytes(),
                    }),
                    ..Request::default()
                }
            })
            .collect()
    }

    /// So many values of a host have names in the roll-up of an hour, with so many hosts, and in that of a day.
    fn is_within_capacity(self) -> bool {
        // Each with and without a bot.
        2 * self.values <= (64 * 8 / self.hosts).clamp(8, 64)
    }
}

fn filters(pick: u8) -> RequestFilter {
    let mut filter =
        RequestFilter { limit: Some(100_000), source: DataSource::Rollups, ..RequestFilter::default() };
    if pick & 1 == 1 {
        filter.hosts = vec!["host0.test".into(), "host3.test".into()];
    }
    if pick & 2 == 2 {
        filter.exclude = vec!["192.0.1.0/24".parse().unwrap()];
    }
    if pick & 4 == 4 {
        filter.order = SortOrder::Bytes;
    }
    filter.bots = [Bots::Included, Bots::Only, Bots::Excluded][usize::from(pick >> 3) % 3];
    filter
}

fn check(url: &str, variety: Variety, pick: u8, late: u8) -> Result<(), TestCaseError> {
    let requests = variety.requests();
    // Some come when their hours are rolled up already.
    let late = requests.len() * usize::from(late % 3) / 20;
    let (early, late) = requests.split_at(requests.len() - late);
    let mut writer = Writer::open(url, &Options::default()).unwrap();
    for part in [early, late] {
        part.iter().for_each(|request| writer.add(&request.entry()).unwrap());
        writer.commit().unwrap();
        writer.finish(count::time(BEGINNING + 50 * HOUR)).unwrap();
    }
    let mut questions = Questions::open(url, &QuerySettings::default()).unwrap();
    let filter = filters(pick);
    for top in LISTS {
        let answer = questions.top(top, &filter).unwrap();
        let found = count::bounds(&answer);
        let expected = count::top(&requests, top, &filter);
        let at_most = answer.columns.iter().any(|column| column == "requests_at_most");
        prop_assert_eq!(at_most, answer.missing.is_some());
        let surplus = answer.notes.iter().any(|note| note.contains("excluded clients"));
        if answer.missing.is_none() && !surplus {
            prop_assert_eq!(&count::of(&answer), &expected, "{:?} {:?}", top, filter);
            continue;
        }
        prop_assert!(!variety.is_within_capacity(), "{:?} {:?} {:?}", variety, top, answer.notes);
        prop_assert!(answer.notes.iter().any(|note| note.contains("at least") || surplus));
        let missing = answer.missing.unwrap_or_default();
        for (name, (requests, bytes)) in &expected {
            let (least, most) = match found.get(name) {
                Some(bounds) => (bounds.least, bounds.most),
                None => ((0, 0), (missing.requests, missing.bytes)),
            };
            prop_assert!(
                surplus || least.0 <= *requests && least.1 <= *bytes,
                "{:?} {} {:?}",
                top,
                name,
                least
            );
            prop_assert!(*requests <= most.0 && *bytes <= most.1, "{:?} {} {:?}", top, name, most);
        }
        prop_assert!(found.keys().all(|name| expected.contains_key(name) || surplus), "{:?}", top);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_tells_the_truth_or_its_bounds(variety in varieties(), pick in any::<u8>(), late in any::<u8>()) {
        let directory = tempfile::tempdir().unwrap();
        check(&format!("sqlite:{}", directory.path().join("a.db").display()), variety, pick, late)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn postgres_tells_the_truth_or_its_bounds(variety in varieties(), pick in any::<u8>(), late in any::<u8>()) {
        check(&offramp_testkit::postgres::shared().database(), variety, pick, late)?;
    }
}

/// The case of the report: some ten thousands of lines of a week, of which each hour has a few, and four values.
#[test]
fn four_values_are_exact() {
    let directory = tempfile::tempdir().unwrap();
    for url in [
        format!("sqlite:{}", directory.path().join("a.db").display()),
        offramp_testkit::postgres::shared().database(),
    ] {
        let mut writer = Writer::open(&url, &Options::default()).unwrap();
        let requests: Vec<Request> = (0..8_000_i64)
            .map(|number| Request {
                time_us: BEGINNING + number * HOUR / 50,
                host: Some(b"a.test".to_vec()),
                client: Some([192, 0, 2, (number % 4) as u8].into()),
                path: b"/".to_vec(),
                status: 200,
                agent: Some(AGENTS[(number % 4) as usize].as_bytes().to_vec()),
                referer: Some(format!("https://r{}.test/", number % 4).into_bytes()),
                ..Request::default()
            })
            .collect();
        requests.iter().for_each(|request| writer.add(&request.entry()).unwrap());
        writer.commit().unwrap();
        writer.finish(count::time(BEGINNING + 30 * 24 * HOUR)).unwrap();
        let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
        let filter = RequestFilter { source: DataSource::Rollups, ..RequestFilter::default() };
        for top in LISTS {
            let answer = questions.top(top, &filter).unwrap();
            assert_eq!(count::of(&answer), count::top(&requests, top, &filter), "{url} {top:?}");
            assert_eq!((answer.missing, answer.notes.len()), (None, 0), "{url} {top:?}");
        }
    }
}
