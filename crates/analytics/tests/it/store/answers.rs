//! Answers equal those of a naive count, from requests and from roll-ups.

use std::path::Path;
use std::time::Duration;

use offramp_analytics::question::{Bots, DataSource, SortOrder};
use offramp_analytics::{Options, QuerySettings, Questions, RequestFilter, SqlValue, Top, Writer};
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use proptest::test_runner::TestCaseError;

use super::count;
use super::requests::{BEGINNING, Request, some};

/// Lists that need no GeoIP file.
const LISTS: [Top; 7] =
    [Top::Pages, Top::Referrers, Top::Hosts, Top::Clients, Top::Status, Top::Agents, Top::Networks];

const DAY: i64 = 86_400_000_000;

fn filters(pick: u8) -> RequestFilter {
    let mut filter = RequestFilter { limit: Some(100_000), ..RequestFilter::default() };
    if pick & 1 == 1 {
        filter.hosts = vec!["host1.test".into(), "host2.test".into(), "unheard.test".into()];
    }
    if pick & 2 == 2 {
        filter.exclude = vec!["192.0.1.0/24".parse().unwrap(), "2001:db8:2::1".parse().unwrap()];
    }
    if pick & 4 == 4 {
        filter.since = Some(count::time(BEGINNING + DAY / 3 + 17));
        filter.until = Some(count::time(BEGINNING + 2 * DAY + 12_345_678));
    }
    filter.bots = [Bots::Included, Bots::Only, Bots::Excluded][usize::from(pick >> 3) % 3];
    filter
}

/// Writes requests in batches, asks everything, and compares.
pub(crate) fn check(
    url: &str,
    requests: &[Request],
    batch: usize,
    pick: u8,
    rolled: bool,
) -> Result<(), TestCaseError> {
    let mut writer = Writer::open(url, &Options::default()).unwrap();
    for batch in requests.chunks(batch) {
        for request in batch {
            writer.add(&request.entry()).unwrap();
        }
        writer.commit().unwrap();
    }
    if rolled {
        writer.finish(count::time(BEGINNING + 5 * DAY)).unwrap();
    }
    let mut questions = Questions::open(url, &QuerySettings::default()).unwrap();
    let mut filter = filters(pick);
    for source in [DataSource::Either, DataSource::Requests, DataSource::Rollups] {
        filter.source = source;
        for top in LISTS {
            let answer = questions.top(top, &filter).unwrap();
            let found = count::of(&answer);
            let expected = count::top(requests, top, &filter);
            // There are so few of everything here that roll-ups have all of it by name.
            prop_assert_eq!(answer.missing, None, "{:?} {:?}", top, filter);
            prop_assert_eq!(&found, &expected, "{:?} {:?}", top, filter);
        }
        for interval in [60, 3600, 7 * 3600, 86_400] {
            let interval = Duration::from_secs(interval);
            let answer = questions.traffic(interval, false, &filter).unwrap();
            let width = i64::try_from(interval.as_micros()).unwrap();
            let found: Vec<(i64, i64)> = count::of(&answer).into_values().collect();
            let expected: Vec<(i64, i64)> =
                count::traffic(requests, interval, &filter).into_values().collect();
            prop_assert_eq!(found, expected, "{} {:?}", width, filter);
        }
    }
    if rolled { kept_and_rest_are_all(&mut questions, requests) } else { Ok(()) }
}

/// Whether a request has what a roll-up is of.
type HasItem = fn(&Request) -> bool;

/// What roll-ups have by name and what they have as the rest is everything, by the hour and by the day.
fn kept_and_rest_are_all(questions: &mut Questions, requests: &[Request]) -> Result<(), TestCaseError> {
    let everything = |_: &Request| true;
    let tables: [(&str, HasItem); 6] = [
        ("traffic", everything),
        ("heavy WHERE kind = 0", |request| !request.path.is_empty()),
        ("heavy WHERE kind = 1", |request| request.referer.is_some()),
        ("heavy WHERE kind = 2", |request| request.agent.is_some()),
        ("heavy WHERE kind = 3", |request| request.client.is_some()),
        ("heavy WHERE kind = 4", |request| request.client.is_some()),
    ];
    for (table, counts) in tables {
        let counted = requests.iter().filter(|request| counts(request));
        let bytes = |request: &Request| i64::try_from(request.bytes).unwrap();
        let total = counted.fold((0, 0), |sums, request| (sums.0 + 1, sums.1 + bytes(request)));
        for level in [0, 1] {
            let and = if table.contains("WHERE") { "AND" } else { "WHERE" };
            let sums = "coalesce(CAST(sum(requests) AS BIGINT), 0), coalesce(CAST(sum(bytes) AS BIGINT), 0)";
            let answer = questions.sql(&format!("SELECT {sums} FROM {table} {and} level = {level}")).unwrap();
            let [SqlValue::Int(found), SqlValue::Int(bytes)] = answer.rows[0][..] else {
                panic!("{answer:?}")
            };
            prop_assert_eq!((found, bytes), total, "{} at level {}", table, level);
        }
    }
    Ok(())
}

/// Requests of which a few pages, clients and the like have most of each hour, and many have one each.
fn few_heavy_and_many_rare() -> Vec<Request> {
    let mut requests = Vec::new();
    for hour in 0..30 {
        for number in 0..640_u64 {
            // 0 to 319 are heavy: the first fifth of them again twice as often as the last.
            let heavy = (number < 320).then(|| [0, 0, 0, 1, 1, 2, 2, 3, 4, 5][(number % 10) as usize]);
            let rare = hour * 1000 + number;
            let name = heavy.map_or(format!("rare-{rare}"), |heavy: u64| format!("heavy-{heavy}"));
            let octet = |at: u32| (rare >> at) as u8;
            requests.push(Request {
                time_us: BEGINNING + i64::try_from(hour * 3_600_000_000 + number * 1_000_000).unwrap(),
                host: Some(b"a.test".to_vec()),
                client: Some(match heavy {
                    Some(heavy) => [192, 0, heavy as u8, 1].into(),
                    None => [10, octet(8), octet(0), 7].into(),
                }),
                path: format!("/{name}").into_bytes(),
                status: 200,
                // One of the rare ones of each hour is the same, and large.
                bytes: if number == 639 { 1_000_000 } else { 10 },
                referer: Some(format!("https://{name}.test/").into_bytes()),
                agent: Some(format!("Browser of {name}").into_bytes()),
                ..Request::default()
            });
            if number == 639 {
                requests.last_mut().unwrap().path = b"/large".to_vec();
            }
        }
    }
    requests
}

#[test]
fn the_heaviest_are_exact_in_roll_ups() {
    let requests = few_heavy_and_many_rare();
    let directory = tempfile::tempdir().unwrap();
    for url in [url(directory.path()), offramp_testkit::postgres::shared().database()] {
        let mut writer = Writer::open(&url, &Options::default()).unwrap();
        for batch in requests.chunks(5000) {
            batch.iter().for_each(|request| writer.add(&request.entry()).unwrap());
            writer.commit().unwrap();
        }
        writer.finish(count::time(BEGINNING + 5 * DAY)).unwrap();
        let mut questions = Questions::open(&url, &QuerySettings::default()).unwrap();
        kept_and_rest_are_all(&mut questions, &requests).unwrap();
        for top in [Top::Pages, Top::Referrers, Top::Clients, Top::Agents, Top::Networks] {
            let filter =
                RequestFilter { limit: Some(6), source: DataSource::Rollups, ..RequestFilter::default() };
            let found = count::of(&questions.top(top, &filter).unwrap());
            let mut expected: Vec<_> = count::top(&requests, top, &filter).into_iter().collect();
            expected.sort_by_key(|(name, sums)| (std::cmp::Reverse(*sums), name.clone()));
            expected.truncate(6);
            assert_eq!(found, expected.into_iter().collect(), "{url} {top:?}");
        }
        let filter = RequestFilter {
            limit: Some(1),
            order: SortOrder::Bytes,
            source: DataSource::Rollups,
            ..RequestFilter::default()
        };
        let found = count::of(&questions.top(Top::Pages, &filter).unwrap());
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("/large a.test".to_owned(), (30, 30_000_000))]);
    }
}

fn url(directory: &Path) -> String {
    format!("sqlite:{}", directory.join("access.db").display())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_counts_as_a_naive_count_does(
        requests in some(),
        batch in 1..200usize,
        pick in any::<u8>(),
        rolled in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        check(&url(directory.path()), &requests, batch, pick, rolled)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn postgres_counts_as_a_naive_count_does(
        requests in some(),
        batch in 1..200usize,
        pick in any::<u8>(),
        rolled in any::<bool>(),
    ) {
        check(&offramp_testkit::postgres::shared().database(), &requests, batch, pick, rolled)?;
    }
}
