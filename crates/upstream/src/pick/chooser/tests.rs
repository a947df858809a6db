//! Order of servers under each policy, by example and by property.

use std::num::NonZeroU16;

use proptest::prelude::*;

use super::super::{Candidate, FULL_SHARE, HashSource, key};
use super::*;

fn candidate(weight: u16, backup: bool) -> Candidate {
    Candidate { weight: NonZeroU16::new(weight).unwrap(), backup }
}

fn picker(servers: &[(u16, bool)]) -> Arc<Picker> {
    let names: Vec<String> = (0..servers.len()).map(|index| format!("10.0.0.{index}:80")).collect();
    let candidates = servers.iter().map(|(weight, backup)| candidate(*weight, *backup));
    Arc::new(Picker::named(names.iter().map(String::as_str).zip(candidates)))
}

fn chooser(servers: &[(u16, bool)], now: Instant) -> Chooser {
    Chooser::new(picker(servers), 0, now)
}

/// All servers in the order in which one request tries them.
fn order_by(
    state: &mut Chooser,
    policy: &BalancePolicy,
    key: Option<u64>,
    now: Instant,
    standing: impl Fn(usize) -> ServerStanding,
) -> Vec<usize> {
    let mut tried = Tried::default();
    let mut order = Vec::new();
    while let Picked::Server(index) = state.next(ChoiceParams { policy, key, tried: &tried, now }, &standing)
    {
        tried.insert(index);
        order.push(index);
    }
    order
}

fn order(state: &mut Chooser, now: Instant) -> Vec<usize> {
    order_by(state, &BalancePolicy::RoundRobin, None, now, |_| ServerStanding::default())
}

fn firsts(state: &mut Chooser, count: usize, now: Instant) -> Vec<usize> {
    (0..count).map(|_| order(state, now)[0]).collect()
}

fn second() -> Duration {
    Duration::from_secs(1)
}

#[test]
fn picks_are_spread_as_nginx_spreads_them() {
    let now = Instant::now();
    let mut state = chooser(&[(5, false), (1, false), (1, false)], now);
    assert_eq!(firsts(&mut state, 7, now), [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn the_others_follow_in_rotation_and_backups_come_last() {
    let now = Instant::now();
    let mut state = chooser(&[(1, false), (1, true), (1, false), (1, false)], now);
    let orders: Vec<Vec<usize>> = (0..3).map(|_| order(&mut state, now)).collect();
    assert_eq!(orders, [[0, 2, 3, 1], [2, 3, 0, 1], [3, 0, 2, 1]]);
    assert_eq!(order(&mut state, now).len(), 4);
}

#[test]
fn failing_servers_are_tried_last_and_backups_step_in() {
    let now = Instant::now();
    let mut state = chooser(&[(1, false), (1, false), (1, true)], now);
    state.note_failure(0, now);
    for _ in 0..4 {
        assert_eq!(order(&mut state, now), [1, 2, 0]);
    }
    state.note_failure(1, now);
    assert_eq!(order(&mut state, now).first().copied(), Some(2));
    state.note_failure(2, now);
    let last = order(&mut state, now).last().copied();
    assert_eq!(last, Some(2));
    state.note_success(1);
    assert_eq!(order(&mut state, now), [1, 0, 2]);
    assert_eq!(order(&mut state, now + second()).len(), 3);
    assert!(!state.is_backing_off(0, now + second()));
}

#[test]
fn back_off_doubles_to_its_limit_and_success_ends_it() {
    let mut now = Instant::now();
    let mut state = chooser(&[(1, false), (1, false)], now);
    for expected in [1, 2, 4, 8, 16, 30, 30] {
        state.note_failure(0, now);
        // Failures during the back-off are not counted.
        state.note_failure(0, now + second() / 2);
        let end = now + expected * second();
        assert!(state.is_backing_off(0, end - Duration::from_nanos(1)), "{expected} s");
        assert!(!state.is_backing_off(0, end), "{expected} s");
        now = end;
    }
    state.note_success(0);
    state.note_failure(0, now);
    assert!(!state.is_backing_off(0, now + second()));
}

#[test]
fn workers_start_apart() {
    let now = Instant::now();
    let picker = picker(&[(1, false); 3]);
    let first = |worker| order(&mut Chooser::new(Arc::clone(&picker), worker, now), now)[0];
    assert_eq!([0, 1, 2, 3].map(first), [0, 1, 2, 0]);
}

#[test]
fn strange_sizes_are_fine() {
    let now = Instant::now();
    assert_eq!(order(&mut chooser(&[], now), now), [0; 0]);
    let mut state = chooser(&[(1, true)], now);
    state.note_failure(0, now);
    state.note_failure(7, now);
    state.note_success(7);
    assert_eq!(order(&mut state, now), [0]);
    for count in [16, 17, 300] {
        let mut state = chooser(&vec![(1, false); count], now);
        let mut all = order(&mut state, now);
        all.sort_unstable();
        assert_eq!(all, (0..count).collect::<Vec<_>>());
    }
    assert_eq!(picker(&[]).len(), 0);
    assert!(Picker::default().is_empty());
}

fn servers() -> impl Strategy<Value = Vec<(u16, bool)>> {
    prop::collection::vec((1u16..9, prop::bool::weighted(0.3)), 1..20)
}

proptest! {
    /// From any starting point, each window of one cycle gives every server its weight.
    #[test]
    fn shares_are_exact_over_a_cycle(servers in servers(), worker in 0usize..8, skip in 0usize..50) {
        let now = Instant::now();
        let mut state = Chooser::new(picker(&servers), worker, now);
        let backups_only = servers.iter().all(|(_, backup)| *backup);
        let takes_part = |backup: bool| backups_only || !backup;
        let cycle: usize =
            servers.iter().filter(|(_, b)| takes_part(*b)).map(|(w, _)| usize::from(*w)).sum();
        firsts(&mut state, skip, now);
        let picks = firsts(&mut state, cycle, now);
        for (index, (weight, backup)) in servers.iter().enumerate() {
            let share = picks.iter().filter(|pick| **pick == index).count();
            let expected = if takes_part(*backup) { usize::from(*weight) } else { 0 };
            prop_assert_eq!(share, expected, "server {} of {:?}", index, servers);
        }
    }

    /// After any failures: each server once, working before failing, primaries first.
    #[test]
    fn every_server_is_in_every_order_once(
        servers in servers(),
        events in prop::collection::vec((0usize..20, any::<bool>(), 0u64..3000), 0..60),
    ) {
        let mut now = Instant::now();
        let mut state = chooser(&servers, now);
        for (index, failed, millis) in events {
            now += Duration::from_millis(millis);
            if failed { state.note_failure(index, now) } else { state.note_success(index) }
            let order = order(&mut state, now);
            let tiers: Vec<(bool, bool)> =
                order.iter().map(|i| (state.is_backing_off(*i, now), servers[*i].1)).collect();
            prop_assert!(tiers.is_sorted(), "{tiers:?}");
            let mut sorted = order;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..servers.len()).collect::<Vec<_>>());
        }
    }

    /// After any failures, once all work again, no primary starves.
    #[test]
    fn none_starves_after_failures(
        servers in servers(),
        events in prop::collection::vec((0usize..20, 0u64..3000), 0..60),
    ) {
        let mut now = Instant::now();
        let mut state = chooser(&servers, now);
        for (index, millis) in events {
            now += Duration::from_millis(millis);
            state.note_failure(index, now);
            order(&mut state, now);
        }
        now += BACK_OFF_LIMIT;
        let total: usize = servers.iter().map(|(weight, _)| usize::from(*weight)).sum();
        let picks = firsts(&mut state, (servers.len() + 2) * total, now);
        let backups_only = servers.iter().all(|(_, backup)| *backup);
        for (index, (_, backup)) in servers.iter().enumerate() {
            prop_assert_eq!(picks.contains(&index), backups_only || !backup, "server {}", index);
        }
    }

    /// A removed server gives away its own keys and no others, whatever the order of the rest.
    #[test]
    fn keys_stay_where_they_are(
        weights in prop::collection::vec(1u16..9, 2..12),
        leaver in any::<prop::sample::Index>(),
        keys in prop::collection::vec(any::<u64>(), 1..60),
    ) {
        let now = Instant::now();
        let leaver = leaver.index(weights.len());
        let servers: Vec<(u16, bool)> = weights.iter().map(|weight| (*weight, false)).collect();
        let mut all = chooser(&servers, now);
        let names: Vec<String> = (0..servers.len()).map(|index| format!("10.0.0.{index}:80")).collect();
        let kept: Vec<usize> = (0..servers.len()).rev().filter(|index| *index != leaver).collect();
        let fewer = kept.iter().map(|at| (names[*at].as_str(), candidate(servers[*at].0, false)));
        let mut fewer = Chooser::new(Arc::new(Picker::named(fewer)), 3, now);
        let policy = BalancePolicy::Hash(HashSource::Client);
        let idle = |_: usize| ServerStanding::default();
        let down = |at: usize| {
            let usage = if at == leaver { Use::Never } else { Use::Normal };
            ServerStanding { usage, ..ServerStanding::default() }
        };
        for key in keys {
            let before = order_by(&mut all, &policy, Some(key), now, idle);
            let after = order_by(&mut fewer, &policy, Some(key), now, idle);
            let after: Vec<usize> = after.into_iter().map(|at| kept[at]).collect();
            let without: Vec<usize> = before.iter().copied().filter(|at| *at != leaver).collect();
            prop_assert_eq!(&after, &without);
            prop_assert_eq!(order_by(&mut all, &policy, Some(key), now, down), without);
        }
    }

    /// A full server is skipped for another one of its tier; if all of the tier are full, none is chosen.
    #[test]
    fn full_servers_are_skipped(servers in servers(), fulls in any::<u32>(), which in 0usize..4, key in any::<u64>()) {
        let now = Instant::now();
        let mut state = chooser(&servers, now);
        let full = |at: usize| fulls >> (at % 32) & 1 == 1;
        let standing = |at: usize| ServerStanding { full: full(at), ..ServerStanding::default() };
        let hash = BalancePolicy::Hash(HashSource::Client);
        let policy = [&BalancePolicy::RoundRobin, &BalancePolicy::LeastConn, &BalancePolicy::TwoChoices, &hash][which];
        let tried = Tried::default();
        let picked = state.next(ChoiceParams { policy, key: Some(key), tried: &tried, now }, standing);
        let primaries = servers.iter().any(|(_, backup)| !backup);
        let tier: Vec<usize> = (0..servers.len()).filter(|at| servers[*at].1 != primaries).collect();
        match picked {
            Picked::Server(at) => prop_assert!(tier.contains(&at) && !full(at)),
            Picked::Full => prop_assert!(tier.iter().all(|at| full(*at))),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn keys_are_shared_out_by_weight() {
    let now = Instant::now();
    let mut state = chooser(&[(1, false), (3, false), (4, false), (9, true)], now);
    let mut counts = [0u32; 4];
    for client in 0..8000u32 {
        let key = Some(key(&client.to_be_bytes()));
        let order = order_by(&mut state, &BalancePolicy::Hash(HashSource::Client), key, now, |_| {
            ServerStanding::default()
        });
        counts[order[0]] += 1;
    }
    for (count, expected) in counts.into_iter().zip([1000, 3000, 4000, 0]) {
        assert!(count.abs_diff(expected) <= expected / 10, "{counts:?}");
    }
}

#[test]
fn the_value_of_a_key_never_changes() {
    assert_eq!(key(b"192.0.2.1"), 3_350_186_114_886_008_566);
}

#[test]
fn the_least_loaded_for_its_weight_is_chosen() {
    let now = Instant::now();
    let mut state = chooser(&[(1, false), (4, false), (1, false)], now);
    let mut pick = |loads: [u32; 3]| {
        let standing = |at: usize| ServerStanding { load: loads[at], ..ServerStanding::default() };
        order_by(&mut state, &BalancePolicy::LeastConn, None, now, standing)[0]
    };
    assert_eq!(pick([2, 7, 2]), 1);
    assert_eq!(pick([2, 9, 1]), 2);
    assert_eq!(pick([0, 1, 9]), 0);
    // With equal load it rotates by weight.
    let mut equal: Vec<usize> = (0..6).map(|_| pick([0, 0, 0])).collect();
    equal.sort_unstable();
    assert_eq!(equal, [0, 1, 1, 1, 1, 2]);
}

#[test]
fn two_choices_avoid_the_busiest() {
    let now = Instant::now();
    let mut state = chooser(&[(1, false), (1, false), (2, false)], now);
    let mut counts = [0; 3];
    for _ in 0..3000 {
        let standing = |at: usize| ServerStanding { load: [100, 3, 6][at], ..ServerStanding::default() };
        counts[order_by(&mut state, &BalancePolicy::TwoChoices, None, now, standing)[0]] += 1;
    }
    // The busiest of two distinct ones never wins.
    assert!(counts[0] == 0 && counts[1] > 500 && counts[2] > 500, "{counts:?}");
}

#[test]
fn a_returning_server_gets_its_share_slowly() {
    let now = Instant::now();
    let mut state = chooser(&[(1, false), (1, false)], now);
    let mut count = |share: u16| {
        let standing =
            |at: usize| ServerStanding { share: [FULL_SHARE, share][at], ..ServerStanding::default() };
        let picks =
            (0..320).map(|_| order_by(&mut state, &BalancePolicy::RoundRobin, None, now, standing)[0]);
        picks.filter(|at| *at == 1).count()
    };
    let counts = [16, 64, 256].map(&mut count);
    assert!((17..=21).contains(&counts[0]) && (62..=66).contains(&counts[1]), "{counts:?}");
    assert!((155..=165).contains(&counts[2]), "{counts:?}");
}

#[test]
fn down_servers_are_not_tried_and_ejected_ones_last() {
    let now = Instant::now();
    let mut state = chooser(&[(1, false), (1, false), (1, true), (1, false)], now);
    let usage = [Use::Never, Use::LastResort, Use::Normal, Use::Normal];
    let standing = |at: usize| ServerStanding { usage: usage[at], ..ServerStanding::default() };
    assert_eq!(order_by(&mut state, &BalancePolicy::RoundRobin, None, now, standing), [3, 2, 1]);
    let tried = Tried::default();
    let question = ChoiceParams { policy: &BalancePolicy::RoundRobin, key: None, tried: &tried, now };
    let gone = |_: usize| ServerStanding { usage: Use::Never, ..ServerStanding::default() };
    assert_eq!(state.next(question, gone), Picked::NoneAlive);
    assert_eq!(chooser(&[], now).next(question, gone), Picked::NoneAlive);
}
