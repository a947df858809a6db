use super::*;
use LineState::{Begins, Ends, Happened};

const TIMES: AlertTimes = AlertTimes { group: Duration::from_secs(30), rest: Duration::from_secs(900) };

/// An event of a story, of the alert of that letter.
#[derive(Clone, Copy)]
enum Step {
    Down(char),
    Up(char),
    Panic,
}
use Step::{Down, Panic, Up};

type Told = (u64, &'static str);
/// A name, its events, and what is reported.
type Story<'a> = (&'a str, &'a [(u64, Step)], &'a [Told]);

#[test]
fn what_is_gone_ends_without_a_word_and_what_cannot_be_seen_does_not_end() {
    let now = Instant::now();
    let mut tracker = AlertTracker::new(TIMES);
    let down = |about: &str| (Box::<str>::from(about), "down".to_owned());
    tracker.observe('s', &[down("a"), down("b")], "up", now);
    assert_eq!(tracker.take(now + TIMES.group).unwrap().lines.len(), 2);
    tracker.observe_some('s', &[], now);
    assert!(tracker.take(now + 2 * TIMES.group).is_none(), "nothing has ended");
    tracker.forget('s', |about| about == "a");
    tracker.observe('s', &[], "up", now);
    let told = tracker.take(now + 3 * TIMES.group).unwrap();
    assert!(told.lines.len() == 1 && &*told.lines[0].key.about == "b", "{told:?}");
}

/// A letter, a number or a word as a name.
struct AlertName(Box<str>);

impl<T: ToString> From<T> for AlertName {
    fn from(name: T) -> Self {
        Self(name.to_string().into())
    }
}

fn key(about: impl Into<AlertName>) -> AlertKey<u8> {
    AlertKey { kind: 0, about: about.into().0 }
}

fn shown(notification: &Notification<u8>) -> String {
    let line = |line: &NotificationLine<u8>| {
        let sign = match line.state {
            Begins => '-',
            Ends => '+',
            Happened => '!',
            LineState::Test => '?',
        };
        let times = if line.times > 1 { format!("*{}", line.times) } else { String::new() };
        format!("{}{sign}{times}", line.key.about)
    };
    notification.lines.iter().map(line).collect::<Vec<_>>().join(" ")
}

/// Plays events at seconds, and looks every second for an hour.
fn play(story: &[(u64, Step)]) -> Vec<(u64, String)> {
    let start = Instant::now();
    let (mut tracker, mut reported) = (AlertTracker::new(TIMES), Vec::new());
    for second in 0..3600 {
        let now = start + Duration::from_secs(second);
        for (_, step) in story.iter().filter(|(at, _)| *at == second) {
            match step {
                Down(name) => tracker.begin(&key(name), "down", now),
                Up(name) => tracker.end(&key(name), "up", now),
                Panic => tracker.occur(&key("p"), "panic", 1, now),
            }
        }
        reported.extend(tracker.take(now).map(|notification| (second, shown(&notification))));
    }
    reported
}

#[test]
fn stories_and_what_is_told() {
    let stories: &[Story<'_>] = &[
        ("nothing", &[], &[]),
        ("down", &[(5, Down('a'))], &[(35, "a-")]),
        ("down, and still down", &[(5, Down('a')), (60, Down('a')), (2000, Down('a'))], &[(35, "a-")]),
        (
            "its end is reported within the rest time",
            &[(0, Down('a')), (60, Up('a'))],
            &[(30, "a-"), (90, "a+")],
        ),
        ("up without down", &[(0, Up('a'))], &[]),
        ("several are one message", &[(0, Down('b')), (9, Down('a')), (29, Panic)], &[(30, "a- b- p!")]),
        ("what comes later is the next", &[(0, Down('a')), (31, Down('b'))], &[(30, "a-"), (61, "b-")]),
        ("over before it was reported", &[(0, Down('a')), (9, Up('a'))], &[(30, "a!")]),
        (
            "down again within the rest time is reported when that is over",
            &[(0, Down('a')), (60, Up('a')), (120, Down('a'))],
            &[(30, "a-"), (90, "a+"), (960, "a-")],
        ),
        (
            "flapping is one line, with its number",
            &[
                (0, Down('a')),
                (60, Up('a')),
                (120, Down('a')),
                (130, Up('a')),
                (140, Down('a')),
                (150, Up('a')),
            ],
            &[(30, "a-"), (90, "a+"), (960, "a!*2")],
        ),
        (
            "up and down again within the group time is no news",
            &[(0, Down('a')), (60, Up('a')), (70, Down('a'))],
            &[(30, "a-")],
        ),
        (
            "occurrences rest, and are counted",
            &[(0, Panic), (100, Panic), (200, Panic), (2000, Panic)],
            &[(30, "p!"), (960, "p!*2"), (2030, "p!")],
        ),
        (
            "down after the rest time is reported like the first",
            &[(0, Down('a')), (60, Up('a')), (1000, Down('a'))],
            &[(30, "a-"), (90, "a+"), (1030, "a-")],
        ),
    ];
    for (story, steps, expected) in stories {
        let reported = play(steps);
        let reported: Vec<_> = reported.iter().map(|(at, text)| (*at, text.as_str())).collect();
        assert_eq!(reported, *expected, "{story}");
    }
}

#[test]
fn a_flood_is_bounded_and_counted() {
    let (now, mut tracker) = (Instant::now(), AlertTracker::new(TIMES));
    for at in 0..10_000 {
        tracker.begin(&key(at), "down", now);
    }
    assert_eq!(tracker.alerts.len(), TRACKED);
    let reported = tracker.take(now + TIMES.group).unwrap();
    assert_eq!((reported.lines.len(), reported.more), (LINES, 10_000 - LINES as u64));
    assert_eq!(tracker.take(now + TIMES.group * 2), None);
    for at in 0..10_000 {
        tracker.end(&key(at), "up", now + TIMES.rest);
    }
    let reported = tracker.take(now + TIMES.rest * 3).unwrap();
    assert_eq!((reported.lines.len(), reported.more), (LINES, (TRACKED - LINES) as u64));
    assert!(tracker.alerts.is_empty());
    let mut tracker = AlertTracker::new(TIMES);
    for _ in 0..10_000 {
        tracker.occur(&key("one"), "again", 1, now);
    }
    let reported = tracker.take(now + TIMES.group).unwrap();
    assert_eq!((reported.lines.len(), reported.lines[0].times, reported.more), (1, 10_000, 0));
}

#[test]
fn conditions_without_a_place_are_counted_once() {
    let (mut now, mut tracker) = (Instant::now(), AlertTracker::new(TIMES));
    let down: Vec<_> = (0..5000).map(|at| (at.to_string().into(), String::new())).collect();
    let mut reported = Vec::new();
    for _ in 0..100 {
        tracker.observe(0, &down, "up", now);
        reported.extend(tracker.take(now).map(|notification| notification.more));
        now += Duration::from_secs(1);
    }
    assert_eq!(reported, [5000 - LINES as u64]);
}

#[test]
fn settled_alerts_give_way_to_new_ones() {
    let (now, mut tracker) = (Instant::now(), AlertTracker::new(TIMES));
    for at in 0..TRACKED {
        tracker.begin(&key(at), "down", now);
        tracker.end(&key(at), "up", now);
    }
    assert!(tracker.take(now + TIMES.group).is_some());
    assert_eq!(tracker.alerts.len(), TRACKED, "they rest");
    tracker.begin(&key("new"), "down", now + TIMES.group + TIMES.rest);
    assert_eq!((tracker.alerts.len(), tracker.beyond), (1, None));
}

#[test]
fn another_process_tells_nothing_twice_and_ends_what_is_over() {
    let (now, mut old) = (Instant::now(), AlertTracker::new(TIMES));
    let down = |name: &str| (Box::from(name), "down".to_owned());
    old.observe(0, &[down("a"), down("b")], "up", now);
    assert_eq!(shown(&old.take(now + TIMES.group).unwrap()), "a- b-");
    let now = now + TIMES.group * 2;
    let mut new = AlertTracker::new(TIMES);
    new.resume(old.give(now), now);
    new.observe(0, &[down("a"), down("c")], "up", now);
    let reported = new.take(now + TIMES.group).unwrap();
    assert_eq!(shown(&reported), "b+ c-");
    assert_eq!(reported.lines[0].says, "up");
    new.observe(0, &[], "up", now + TIMES.group);
    assert_eq!(shown(&new.take(now + TIMES.group * 2).unwrap()), "a+ c+");
}

#[test]
fn what_waits_for_its_group_is_told_once_by_either_process() {
    let (now, mut old) = (Instant::now(), AlertTracker::new(TIMES));
    let down = (Box::from("a"), "down".to_owned());
    old.observe(0, std::slice::from_ref(&down), "up", now);
    assert_eq!(shown(&old.take(now + TIMES.group).unwrap()), "a-");
    let at = |seconds| now + TIMES.group + Duration::from_secs(seconds);
    old.observe(0, &[], "up", at(5));
    old.occur(&key("panic"), "first", 2, at(10));
    old.begin(&key("limit"), "refuses", at(10));
    let mut new = AlertTracker::new(TIMES);
    new.resume(old.give(at(12)), at(12));
    // Between the two the old one sees another occurrence, and the end of what the new one knows.
    old.occur(&key("panic"), "second", 1, at(13));
    old.end(&key("limit"), "over", at(13));
    let rest = old.take_rest().unwrap();
    assert_eq!((shown(&rest).as_str(), rest.lines[0].says.as_str()), ("panic!", "second"));
    assert_eq!((old.take_rest(), old.take(at(1000))), (None, None));
    // Since the server came back, it has waited as long as for one process.
    assert_eq!(new.next(), Some(at(35)));
    assert_eq!(shown(&new.take(at(35)).unwrap()), "a+ limit- panic!*2");
    assert_eq!(new.next(), None);
}

#[test]
fn the_next_look_is_known_and_times_change_live() {
    let (now, mut tracker) = (Instant::now(), AlertTracker::new(TIMES));
    assert_eq!(tracker.next(), None);
    tracker.begin(&key("a"), "down", now);
    assert_eq!(tracker.next(), Some(now + TIMES.group));
    tracker.set_times(AlertTimes { group: Duration::ZERO, ..TIMES });
    assert_eq!(shown(&tracker.take(now).unwrap()), "a-");
    assert_eq!(tracker.next(), None);
}
