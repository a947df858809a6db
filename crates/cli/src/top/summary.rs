//! The figures of the whole process, in five lines.

use std::borrow::Cow;

use serde_json::Value;

use super::units;

/// Titles of the lines, and their texts, of these figures.
pub(super) fn lines(figures: &Value) -> [(&'static str, String); 5] {
    let [requests, connections] = [&figures["requests"], &figures["connections"]];
    let [handshakes, bytes] = [&figures["handshakes"], &figures["bytes"]];
    let class = |name: &str| rate(&requests["by_class"][name]);
    [
        ("requests", format!("{}/s, {} open", rate(&requests["per_second"]), count(&requests["open"]))),
        (
            "responses",
            format!(
                "2xx {}  3xx {}  4xx {}  5xx {}  none {} /s",
                class("2xx"),
                class("3xx"),
                class("4xx"),
                class("5xx"),
                class("none")
            ),
        ),
        (
            "bytes",
            format!("{}/s in, {}/s out", size(&bytes["in_per_second"]), size(&bytes["out_per_second"])),
        ),
        (
            "connections",
            format!(
                "{} open, {}/s new; handshakes {} full, {} resumed, {} failed /s",
                count(&connections["open"]),
                rate(&connections["accepted_per_second"]),
                rate(&handshakes["full_per_second"]),
                rate(&handshakes["resumed_per_second"]),
                rate(&handshakes["failed_per_second"])
            ),
        ),
        ("latency", format!("{}; workers {}", latency(&figures["latency_ms"]), workers(&figures["workers"]))),
    ]
}

fn latency(percentiles: &Value) -> String {
    if percentiles.is_null() {
        return "no request ended".to_owned();
    }
    let all = ["p50", "p95", "p99"].map(|name| match percentiles[name].as_f64() {
        Some(time) => format!("{name} {}", units::milliseconds(time)),
        None => format!("{name} -"),
    });
    all.join(", ")
}

/// The part of a core that each worker uses.
fn workers(workers: &Value) -> String {
    let one = |worker: &Value| -> Cow<'static, str> {
        let late = if worker["late"] == true { " late" } else { "" };
        match worker["busy"].as_f64() {
            Some(busy) => format!("{:.0}%{late}", busy * 100.0).into(),
            None => format!("-{late}").into(),
        }
    };
    let all: Vec<_> = workers.as_array().into_iter().flatten().map(one).collect();
    all.join(" ")
}

/// Requests of a second that ended with a 5xx or without a response; `None` before the second reading.
pub(super) fn failures(figures: &Value) -> Option<f64> {
    let class = |name: &str| figures["requests"]["by_class"][name].as_f64();
    Some(class("5xx")? + class("none").unwrap_or(0.0))
}

fn rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), units::rate)
}

fn count(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), units::count)
}

fn size(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), units::bytes)
}
