//! The pages on events, causes and metrics against the tables in the code. `OFFRAMP_BLESS=1` writes their generated parts.

use crate::samples;
use offramp_observe::facts::{Alert, Cause, Close, FatalAlert, PathFacts};
use offramp_observe::format::{Field, FieldKind, FieldOf};
use offramp_observe::names::{self, Metric};
use offramp_observe::{Event, EventFormat, EventStyle};
use std::fmt::Write;
use std::fs;
use std::path::Path;

#[test]
fn the_pages_on_events_causes_and_metrics_match_the_code() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (page, name, generated) in [
        ("events.md", "examples", examples as fn() -> String),
        ("events.md", "fields", fields),
        ("causes.md", "causes", causes),
        ("metrics.md", "metrics", metrics),
    ] {
        let path = docs.join(page);
        let before = fs::read_to_string(&path).unwrap();
        let expected = replace_part(&before, name, &generated());
        if std::env::var_os("OFFRAMP_BLESS").is_some_and(|bless| bless == "1") {
            fs::write(&path, expected).unwrap();
        } else {
            assert!(before == expected, "{page}, {name}, is out of date: run the tests with OFFRAMP_BLESS=1");
        }
    }
}

fn replace_part(page: &str, name: &str, text: &str) -> String {
    let begin = format!("<!-- generated: {name} -->\n");
    let start = page.find(&begin).unwrap_or_else(|| panic!("no part {name}")) + begin.len();
    let end = start + page[start..].find("<!-- end -->").unwrap_or_else(|| panic!("part {name} has no end"));
    format!("{}{text}{}", &page[..start], &page[end..])
}

fn examples() -> String {
    let mut text = String::new();
    let line = |format: EventFormat, event: &Event| {
        let mut out = Vec::new();
        EventStyle::from(format).write(event, &mut out);
        String::from_utf8(out).unwrap()
    };
    let connection = || Event::from(Box::new(samples::ordinary()));
    let request = || Event::from(Box::new(samples::request()));
    let distrust = || {
        let mut facts = samples::ordinary();
        facts.tls.handshake = None;
        facts.path = PathFacts::default();
        facts.close = Close::from(Cause::HandshakeAlert).with_alert(FatalAlert::Received(Alert::UNKNOWN_CA));
        Event::from(Box::new(facts))
    };
    for (title, format, event) in [
        ("An ordinary connection as `json`", EventFormat::Json, connection()),
        ("The same as `logfmt`", EventFormat::Logfmt, connection()),
        ("The same as `text`", EventFormat::Text, connection()),
        ("A client that is too old", EventFormat::Json, Box::new(samples::mismatched()).into()),
        ("An ordinary request as `json`", EventFormat::Json, request()),
        ("The same as `logfmt`", EventFormat::Logfmt, request()),
        ("The same as `text`", EventFormat::Text, request()),
        ("The same as `text` on a terminal", EventFormat::Terminal, request()),
        ("A client that does not know the CA, on a terminal", EventFormat::Terminal, distrust()),
        ("The same as `combined`", EventFormat::Combined, request()),
        ("The same as `vhost`", EventFormat::Vhost, request()),
    ] {
        let fence = if format == EventFormat::Json { "json" } else { "text" };
        writeln!(text, "{title}:\n\n```{fence}\n{}```\n", line(format, &event)).unwrap();
    }
    text.pop();
    text
}

fn fields() -> String {
    let mut text = String::from("| field | type | of | meaning |\n| --- | --- | --- | --- |\n");
    for field in Field::ALL {
        let kind = match field.kind() {
            FieldKind::List => "list of texts",
            kind => kind.name(),
        };
        let of = match field.of() {
            FieldOf::Both => "both",
            FieldOf::Connection => "connections",
            FieldOf::Request => "requests",
        };
        writeln!(text, "| `{}` | {kind} | {of} | {} |", field.key(), field.meaning()).unwrap();
    }
    text
}

fn causes() -> String {
    let mut text = String::from("| cause | fault | meaning |\n| --- | --- | --- |\n");
    for cause in Cause::ALL {
        writeln!(text, "| `{}` | {} | {} |", cause.name(), cause.fault().name(), cause.meaning()).unwrap();
    }
    text
}

fn metrics() -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for Metric { name, kind, labels, help } in names::ALL {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(text, "| `{name}` | {} | {} | {help} |", kind.name(), labels.join(", ")).unwrap();
    }
    text
}
