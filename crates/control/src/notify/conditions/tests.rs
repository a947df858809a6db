use super::*;
use crate::notify::tracker::{AlertTimes, LineState};

#[test]
fn errors_are_counted_over_five_minutes() {
    let (start, mut window) = (Instant::now(), ErrorWindow::default());
    let mut at = |second: u64, requests, errors| {
        let added = window.add(RequestCounts { requests, errors }, start + Duration::from_secs(second));
        let counted = added.map(|counts| (counts.requests, counts.errors));
        assert!(window.0.len() <= 33, "{}", window.0.len());
        counted
    };
    assert_eq!(at(0, 1000, 900), None, "what was before is not counted");
    assert_eq!(at(10, 1100, 905), Some((100, 5)));
    for second in (20..=300).step_by(10) {
        at(second, 1100, 905);
    }
    assert_eq!(at(310, 1100, 905), Some((0, 0)));
    assert_eq!(at(320, 1200, 1005), Some((100, 100)));
}

#[test]
fn a_share_is_exceeded_only_above_it() {
    let share: ErrorShare = "5%".parse().unwrap();
    for (requests, errors, exceeded) in
        [(100, 5, false), (100, 6, true), (0, 0, false), (u64::MAX, u64::MAX, true), (10_000, 501, true)]
    {
        assert_eq!(RequestCounts { requests, errors }.exceeds(share), exceeded, "{errors} of {requests}");
    }
}

#[test]
fn counts_increase_from_the_first_look_on() {
    let mut before = None;
    let looks = [Some(7), Some(7), None, Some(9), Some(2)].map(|now| increase(&mut before, now));
    assert_eq!(looks, [0, 0, 0, 2, 0]);
}

#[test]
fn what_has_not_happened_for_a_while_is_over() {
    let (now, mut recent) = (Instant::now(), RecentAlerts::default());
    recent.note(("a".into(), "once".to_owned()), now);
    recent.note(("a".into(), "twice".to_owned()), now + Duration::from_secs(60));
    let present = |recent: &mut RecentAlerts, second| recent.present(now + Duration::from_secs(second));
    assert_eq!(present(&mut recent, 179), [("a".into(), "twice".to_owned())]);
    assert_eq!(present(&mut recent, 180), []);
}

#[test]
fn notices_become_words() {
    let notice = |kind, what, fields: &[(&'static str, offramp_observe::LogField<'_>)]| {
        let notices = Notices::default();
        let fields: Vec<_> = fields.iter().map(|(_, field)| *field).collect();
        notices.note(kind, what, &fields);
        notices.since(kind, 0).remove(0)
    };
    let refused = notice(
        NoticeKind::Limit,
        "refused",
        &[
            ("", ("limit", "queue_full".into())),
            ("", ("client", "192.0.2.1".into())),
            ("", ("refused", 7_u64.into())),
            ("", ("key", "max_queue".into())),
        ],
    );
    let (about, says) = limit(&refused);
    assert_eq!((&*about, says.as_str()), ("queue_full", "7 refused, the latest from 192.0.2.1 (max_queue)"));
    let replaced = notice(NoticeKind::Confirm, "replaced", &[]);
    assert_eq!(taken_back(&replaced), None);
    let back = notice(NoticeKind::Confirm, "taken_back", &[("", ("version", 8_u64.into()))]);
    assert!(taken_back(&back).unwrap().1.contains("taken back"));
}

/// A panic would be a bug, so no client can make one: the counter rises here instead.
#[test]
fn a_panic_is_an_occurrence_from_the_first_look_on() {
    let config = receiver_of(NotifyKind::Panic);
    let (now, mut conditions) = (Instant::now(), blank());
    let mut tracker = AlertTracker::new(AlertTimes { group: Duration::ZERO, rest: Duration::ZERO });
    let mut told = Vec::new();
    for count in [3.0, 3.0, 5.0] {
        let sampled = [Sampled { metric: &names::PANICS, labels: Vec::new(), value: count }];
        conditions.look_at_figures(&sampled, &config, &mut tracker, now);
        let taken = tracker.take(now).map(|notification| notification.lines);
        told.extend(taken.into_iter().flatten().map(|line| (line.state, line.times, line.says)));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].0, told[0].1), (LineState::Happened, 2));
    assert!(told[0].2.contains("bug of Offramp"), "{told:?}");
}

/// A machine that lets a thread of Offramp wait for long is not to be had in a test, so the notice of a late loop is
/// written here.
#[test]
fn a_late_worker_is_told_until_it_was_in_time_for_two_minutes() {
    let (now, mut conditions) = (Instant::now(), blank());
    let mut tracker = AlertTracker::new(AlertTimes { group: Duration::ZERO, rest: Duration::ZERO });
    let notices = Notices::default();
    let fields = [("worker", 1_u64.into()), ("late_ms", 2300_u64.into()), ("began_last", "a request".into())];
    notices.note(NoticeKind::Late, "late", &fields);
    conditions.workers.note(worker(&notices.since(NoticeKind::Late, 0)[0]), now);
    let mut told = Vec::new();
    for second in (0..200).step_by(2) {
        let at = now + Duration::from_secs(second);
        conditions.recent(NotifyKind::Late, "it was in time for two minutes", &mut tracker, at);
        let taken = tracker.take(at).map(|notification| notification.lines);
        told.extend(taken.into_iter().flatten().map(|line| (second, line.state, line.key.about, line.says)));
    }
    let expected = [
        (0, LineState::Begins, "1".into(), "its loop is 2300 ms late, and began last: a request".to_owned()),
        (120, LineState::Ends, "1".into(), "it was in time for two minutes".to_owned()),
    ];
    assert_eq!(told, expected);
}

/// A receiver of this kind alone.
fn receiver_of(kind: NotifyKind) -> NotifyConfig {
    NotifyConfig { on: vec![kind], ..NotifyConfig::called("one".parse().unwrap()) }
}

fn blank() -> Conditions {
    Conditions::after(SeenNotices { limit: 0, late: 0, confirm: 0 })
}
