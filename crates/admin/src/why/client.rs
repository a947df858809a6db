//! Outcomes of a client's stored requests.

use std::collections::BTreeMap;

use offramp_observe::facts::{Cause, Fault};
use serde_json::Value;

use super::{MOST, WhyAnswer};

/// The columns that an answer needs.
pub(crate) const COLUMNS: [&str; 8] =
    ["time", "host", "path", "status", "cause", "route", "request_id", "duration_us"];

/// Explains how requests of a client ended; they are rows of the log store, newest first. `refusals` are counts of what
/// limits have refused, by cause.
pub(crate) fn client(
    client: &str,
    since: &str,
    rows: &[Value],
    refusals: &[(&'static str, u64)],
) -> WhyAnswer {
    let mut ends = BTreeMap::<(u64, &str), (usize, &Value)>::new();
    for row in rows {
        let end = (row["status"].as_u64().unwrap_or(0), row["cause"].as_str().unwrap_or("completed"));
        // The first of each is the newest.
        ends.entry(end).or_insert((0, row)).0 += 1;
    }
    let failed = |((status, cause), _): &(&(u64, &str), &(usize, &Value))| {
        *status >= 400 || !is_ordinary(cause) || (*status == 0 && *cause == "completed")
    };
    let bad: usize = ends.iter().filter(failed).map(|(_, (count, _))| count).sum();
    let worst = ends.iter().filter(failed).max_by_key(|(_, (count, _))| *count);
    let all = rows.len();
    let first = match worst {
        _ if all == 0 => format!("No request of {client} was stored (since: {since})."),
        None => format!("All of the latest {all} requests of {client} ended well."),
        Some(((status, cause), (count, _))) => format!(
            "{bad} of the latest {all} requests of {client} failed; {count} of them {}.",
            ended(*status, cause)
        ),
    };
    let mut answer = WhyAnswer::new("client", first);
    for ((status, cause), (count, latest)) in &ends {
        let text = |name: &str| latest[name].as_str().unwrap_or("-");
        if answer.evidence.len() < MOST {
            let says = format!(
                "{count} {}; the latest at {}: {}{} ({})",
                ended(*status, cause),
                text("time"),
                text("host"),
                text("path"),
                text("request_id")
            );
            answer.saw(says, "log store");
        }
    }
    for (cause, count) in refusals.iter().filter(|(_, count)| *count > 0) {
        let says = format!(
            "{count} connections or requests of all clients were refused before that: {}",
            meaning(cause)
        );
        answer.saw(says, format!("figures, {cause}"));
    }
    match worst {
        Some((_, (_, latest))) => {
            answer.advise_request(latest["request_id"].as_str().unwrap_or_default());
        }
        None if all == 0 => {
            answer.advise("Ask for a longer time: --since 24h");
            answer.advise(format!(
                "If its connections end before a request, the log has them: offramp ctl watch; and see which rules name it: \
                 offramp why HOST:PORT --as chrome, with the address {client}"
            ));
        }
        None => {}
    }
    answer.fact("client", client);
    answer.fact("requests", all);
    answer.fact("failed", bad);
    answer
}

/// Returns true for ends that are nobody's fault, as of a WebSocket that its client has closed.
fn is_ordinary(name: &str) -> bool {
    Cause::ALL
        .into_iter()
        .find(|cause| cause.name() == name)
        .is_some_and(|cause| cause.fault() == Fault::Nobody)
}

fn ended(status: u64, cause: &str) -> String {
    let status = if status == 0 { "without a response".to_owned() } else { format!("with status {status}") };
    match cause {
        "completed" => format!("ended {status}"),
        cause => format!("ended {status} because of {cause}: {}", meaning(cause).trim_end_matches('.')),
    }
}

fn meaning(name: &str) -> &'static str {
    Cause::ALL.into_iter().find(|cause| cause.name() == name).map_or("", Cause::meaning)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_most_frequent_failure_is_named() {
        let row = |status: u64, cause: &str, id: &str| json!({ "status": status, "cause": cause, "request_id": id, "host": "a.test", "path": "/", "time": "12:00" });
        let rows = [
            row(404, "no_route", "1"),
            row(200, "completed", "2"),
            row(502, "server_refused", "3"),
            row(404, "no_route", "4"),
        ];
        let answer = client("192.0.2.1", "1h", &rows, &[("handshake_limit", 0)]);
        assert!(
            answer.first.starts_with("3 of the latest 4 requests of 192.0.2.1 failed; 2 of them ended with status 404 because of no_route: "),
            "{}",
            answer.first
        );
        assert_eq!(answer.remedy, ["offramp why 1"], "the newest of them");
        let well = client("192.0.2.1", "1h", &rows[1..2], &[]);
        assert_eq!(well.first, "All of the latest 1 requests of 192.0.2.1 ended well.");
        let none = client("192.0.2.1", "1h", &[], &[]);
        assert_eq!(none.first, "No request of 192.0.2.1 was stored (since: 1h).");
    }
}
