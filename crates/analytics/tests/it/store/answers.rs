//! Answers equal those of a naive count, from requests and from roll-ups.

use std::path::Path;
use std::time::Duration;

use offramp_analytics::question::{Bots, Source};
use offramp_analytics::{Filter, Options, Questions, Settings, Top, Writer};
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use proptest::test_runner::TestCaseError;

use super::count;
use super::requests::{BEGINNING, Request, some};

/// Lists that need no GeoIP file.
const LISTS: [Top; 7] =
    [Top::Pages, Top::Referrers, Top::Hosts, Top::Clients, Top::Status, Top::Agents, Top::Networks];

const DAY: i64 = 86_400_000_000;

fn filters(pick: u8) -> Filter {
    let mut filter = Filter { limit: Some(100_000), ..Filter::default() };
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
    let mut questions = Questions::open(url, &Settings::default()).unwrap();
    let mut filter = filters(pick);
    for source in [Source::Either, Source::Requests, Source::Rollups] {
        filter.source = source;
        for top in LISTS {
            let answer = questions.top(top, &filter).unwrap();
            let mut found = count::of(&answer);
            let mut expected = count::top(requests, top, &filter);
            if source == Source::Rollups {
                // What is rare is not kept by name, but what is named is never more than it was; except that
                // what clients without a name asked for cannot be taken away from hosts.
                let takes_away = top == Top::Hosts && !filter.exclude.is_empty();
                found.retain(|name, sums| {
                    let all = expected.get(name).copied().unwrap_or_default();
                    assert!(
                        takes_away || sums.0 <= all.0 && sums.1 <= all.1,
                        "{top:?} {name} {sums:?} {all:?}"
                    );
                    *sums == all
                });
                let exact = matches!(top, Top::Hosts | Top::Status) && filter.exclude.is_empty();
                if !exact {
                    expected.retain(|name, _| found.contains_key(name));
                }
            }
            prop_assert_eq!(&found, &expected, "{:?} {:?}", top, filter);
        }
        for interval in [60, 3600, 7 * 3600, 86_400] {
            let interval = Duration::from_secs(interval);
            if source == Source::Rollups && !filter.exclude.is_empty() {
                continue;
            }
            let answer = questions.traffic(interval, false, &filter).unwrap();
            let width = i64::try_from(interval.as_micros()).unwrap();
            let found: Vec<(i64, i64)> = count::of(&answer).into_values().collect();
            let expected: Vec<(i64, i64)> =
                count::traffic(requests, interval, &filter).into_values().collect();
            prop_assert_eq!(found, expected, "{} {:?}", width, filter);
        }
    }
    Ok(())
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
