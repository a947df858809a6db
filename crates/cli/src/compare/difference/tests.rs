use hyper::header::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::super::answer::body_of;
use super::*;

fn place() -> AnswerPlace {
    AnswerPlace { scheme: "http", authority: "a.test".into(), ports: vec![80], path: "/".into() }
}

fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> SideAnswer {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    let body = body_of(body.as_bytes(), &HeaderMap::new(), BodyEnd::Whole, 1 << 20);
    SideAnswer { status, fields: map, body, time: Duration::ZERO }
}

fn found(old: &SideAnswer, new: &SideAnswer) -> Vec<(DifferenceKind, String)> {
    let place = place();
    let placed = |answer| PlacedAnswer { answer, place: &place };
    let all = differences(placed(old), placed(new), false, &["x-ignored".to_owned()]);
    all.into_iter().map(|one| (one.part.kind, one.part.name)).collect()
}

#[test]
fn each_kind_is_found() {
    use DifferenceKind as Kind;
    type Side = (u16, &'static [(&'static str, &'static str)], &'static str);
    type Case = (Side, Side, &'static [(Kind, &'static str)]);
    let cases: [Case; 12] = [
        ((200, &[], "a"), (200, &[], "a"), &[]),
        // The rest follows from the status.
        ((200, &[("x-a", "1")], "a"), (404, &[], "b"), &[(Kind::Status, "")]),
        ((200, &[], "a"), (200, &[], "b"), &[(Kind::Body, "")]),
        ((404, &[], "a"), (404, &[], "b"), &[(Kind::ErrorBody, "")]),
        ((302, &[("location", "/a")], ""), (302, &[("location", "/b")], ""), &[(Kind::Redirect, "location")]),
        ((302, &[("location", "/a")], ""), (302, &[("location", "http://a.test/a")], ""), &[]),
        ((200, &[("x-a", "1")], ""), (200, &[], ""), &[(Kind::Field, "x-a")]),
        (
            (200, &[("content-type", "text/html")], ""),
            (200, &[("content-type", "text/plain")], ""),
            &[(Kind::ImportantField, "content-type")],
        ),
        ((200, &[("content-encoding", "gzip")], ""), (200, &[], ""), &[(Kind::Compression, "")]),
        (
            (200, &[("access-control-allow-origin", "*")], ""),
            (200, &[], ""),
            &[(Kind::ImportantField, "access-control-allow-origin")],
        ),
        ((200, &[("etag", "\"a\"")], ""), (200, &[], ""), &[(Kind::Field, "etag")]),
        ((200, &[("x-ignored", "a")], ""), (200, &[], ""), &[]),
    ];
    for (old, new, expected) in cases {
        let (a, b) = (answer(old.0, old.1, old.2), answer(new.0, new.1, new.2));
        let expected: Vec<(Kind, String)> =
            expected.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
        assert_eq!(found(&a, &b), expected, "{old:?} {new:?}");
    }
}

#[test]
fn what_means_the_same_is_the_same() {
    let cases = [
        ("content-type", "text/html; charset=utf-8", "text/html;charset=UTF-8"),
        ("cache-control", "public, max-age=60", "max-age=60,public"),
        ("vary", "Accept-Encoding, Origin", "origin, accept-encoding"),
        ("etag", "\"a\"", "W/\"b\""),
        ("set-cookie", "sid=one; Path=/; HttpOnly", "sid=two; httponly; path=/"),
        (
            "set-cookie",
            "a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT",
            "a=2; Expires=Thu, 01 Jan 2026 00:00:09 GMT",
        ),
        ("date", "a", "b"),
        ("server", "nginx", "offramp"),
        ("x-request-id", "1", "2"),
    ];
    for (name, a, b) in cases {
        let [one, other] = [a, b].map(|value| answer(200, &[(name, value)], ""));
        assert_eq!(found(&one, &other), [], "{name}: {a} {b}");
    }
    let [one, other] = [("00", "30"), ("01", "31")].map(|(now, then)| {
        let date = format!("Sat, 28 Nov 2026 10:00:{now} GMT");
        let expires = format!("Sat, 28 Nov 2026 11:00:{then} GMT");
        answer(200, &[("date", &date), ("expires", &expires)], "")
    });
    assert_eq!(found(&one, &other), []);
}

#[test]
fn cookies_differ_by_name_and_attributes_and_are_not_shown() {
    let old = answer(200, &[("set-cookie", "sid=hidden1; Secure")], "");
    let new = answer(200, &[("set-cookie", "sid=hidden2")], "");
    let place = place();
    let placed = |answer| PlacedAnswer { answer, place: &place };
    let all = differences(placed(&old), placed(&new), false, &[]);
    assert_eq!((all[0].old.as_str(), all[0].new.as_str()), ("sid=...; secure", "sid=..."));
}

#[test]
fn lengths_are_compared_where_there_is_no_body() {
    let (a, b) = (answer(200, &[("content-length", "1")], ""), answer(200, &[("content-length", "2")], ""));
    let place = place();
    let placed = |answer| PlacedAnswer { answer, place: &place };
    assert_eq!(differences(placed(&a), placed(&b), false, &[]).len(), 0);
    assert_eq!(differences(placed(&a), placed(&b), true, &[]).len(), 1);
}

#[test]
fn bodies_that_do_not_end_are_the_same_and_others_are_not() {
    let with = |end: BodyEnd, text: &str| {
        let mut answer = answer(200, &[], text);
        answer.body.end = end;
        answer
    };
    let broken = || BodyEnd::Broken("early".to_owned());
    assert_eq!(found(&with(BodyEnd::Endless, "a"), &with(BodyEnd::Endless, "ab")), []);
    for (a, b) in [
        (with(BodyEnd::Endless, "a"), with(BodyEnd::Whole, "a")),
        (with(BodyEnd::Whole, "a"), with(broken(), "a")),
        (with(broken(), "a"), with(broken(), "b")),
        (with(BodyEnd::Long, "a"), with(BodyEnd::Long, "b")),
    ] {
        assert_eq!(found(&a, &b).len(), 1, "{a:?} {b:?}");
    }
}

#[test]
fn what_differs_each_time_is_no_difference() {
    let of = |names: &[&str]| -> Vec<AnswerDifference> {
        names.iter().map(|name| AnswerDifference::new(DifferenceKind::Field, name, "a", "b")).collect()
    };
    let left = lasting(of(&["a", "b", "c"]), &of(&["a", "b"]), &of(&["b"]));
    assert_eq!(left.iter().map(|one| one.part.name.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn slowness_counts_if_it_is_there_twice() {
    let ms = Duration::from_millis;
    assert!(slower([ms(10), ms(20)], [ms(600), ms(700)], ms(500)).is_some());
    assert!(slower([ms(10), ms(400)], [ms(600), ms(700)], ms(500)).is_none());
    assert!(slower([ms(10), ms(10)], [ms(100), ms(700)], ms(500)).is_none());
    assert!(slower([ms(900), ms(900)], [ms(1), ms(1)], ms(500)).is_none());
}

proptest! {
    #[test]
    fn an_answer_is_the_same_as_itself(status in 100_u16..600, name in "[a-z-]{1,12}", values in prop::collection::vec("[ -~]{0,20}", 0..3), body in ".{0,20}") {
        let fields: Vec<(&str, &str)> = values.iter().map(|value| (name.as_str(), value.as_str())).collect();
        let one = answer(status, &fields, &body);
        prop_assert_eq!(found(&one, &one), []);
        // And a difference is one in both directions.
        let other = answer(status, &[], "other");
        prop_assert_eq!(found(&one, &other), found(&other, &one));
    }
}
