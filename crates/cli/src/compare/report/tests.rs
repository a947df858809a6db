use super::super::request::SkipReason;
use super::*;

fn report() -> CompareReport {
    let mut report = CompareReport {
        urls: ["http://a.test".to_owned(), "http://b.test".to_owned()],
        counts: ComparisonCounts {
            usable: 100,
            chosen: 20,
            same: 15,
            different: 5,
            ..ComparisonCounts::default()
        },
        ..CompareReport::default()
    };
    report.skipped.insert(SkipReason::Method, 7);
    report.times = [vec![Duration::from_millis(2); 20], vec![Duration::from_millis(1); 20]];
    report
}

fn add(report: &mut CompareReport, kind: DifferenceKind, name: &str, old: &str, new: &str) {
    let example = || (format!("GET /<{name}>"), ["curl one".to_owned(), "curl two".to_owned()]);
    report.groups.add(AnswerDifference::new(kind, name, old, new), example);
}

#[test]
fn differences_are_grouped_and_the_important_come_first() {
    let mut report = report();
    for at in 0..3 {
        add(&mut report, DifferenceKind::Field, "x-a", &format!("{at}"), "(none)");
        add(&mut report, DifferenceKind::Body, "", &format!("{at} bytes"), "2 bytes");
    }
    add(&mut report, DifferenceKind::Status, "", "200", "404");
    add(&mut report, DifferenceKind::Status, "", "301 to /a", "404");
    add(&mut report, DifferenceKind::Status, "", "301 to /b", "404");
    let shown: Vec<(&str, u64)> =
        report.groups.sorted().iter().map(|group| (group.example.part.kind.name(), group.requests)).collect();
    assert_eq!(shown, [("status", 2), ("status", 1), ("body", 3), ("header", 3)]);
    let text = report.text();
    for part in [
        " 1. status in 2 requests\n    old: 301 to /a\n    new: 404\n    GET /<>\n    old: curl one\n    new: curl two",
        " 4. header x-a in 3 requests",
        "20 chosen of 100",
        "7 left out: with a method",
        "time: old half within 2.0 ms, 95 % 2.0 ms",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with("\nOld and new differ in 5 of 20 requests.\n"), "{text}");
}

#[test]
fn ten_are_shown_and_the_number_of_groups_is_bounded() {
    let mut report = report();
    for at in 0..MOST_GROUPS + 5 {
        add(&mut report, DifferenceKind::Field, &format!("x-{at}"), "a", "b");
    }
    let text = report.text();
    assert!(text.contains("10. header") && !text.contains("11. header"), "{text}");
    assert!(text.contains(&format!("and {} other kinds", MOST_GROUPS + 5 - 10)), "{text}");
    assert_eq!(report.json()["differences"].as_array().unwrap().len(), MOST_GROUPS);
}

#[test]
fn verdicts_follow_the_counts() {
    let mut report = report();
    assert_eq!(report.verdict(), CompareVerdict::Different);
    (report.counts.different, report.counts.same) = (0, 1);
    assert_eq!(report.sentence(), "Old and new answer the same: 1 request compared.");
    report.counts.tls = 1;
    assert_eq!(report.verdict(), CompareVerdict::Different);
    assert_eq!(report.sentence(), "Old and new answer 1 request the same, and their TLS differs.");
    report.stopped = Some("old fell silent".to_owned());
    assert_eq!(report.verdict(), CompareVerdict::NotCompared);
    assert_eq!(report.sentence(), "Not compared to the end: old fell silent.");
    let nothing = CompareReport::default();
    assert_eq!(nothing.verdict(), CompareVerdict::NotCompared);
}

#[test]
fn the_page_is_whole_and_escapes_what_was_logged() {
    let mut report = report();
    add(&mut report, DifferenceKind::Field, "<script>", "\"><img src=x>", "'");
    let page = report.html();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    assert!(
        page.contains("&quot;&gt;&lt;img src=x&gt;") && page.contains("GET /&lt;&lt;script&gt;&gt;"),
        "{page}"
    );
    assert!(
        !page.contains("http-equiv=\"refresh") && !page.contains("src=\"") && !page.contains("href="),
        "{page}"
    );
}
