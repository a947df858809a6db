//! The latest stored requests for a URL.

use serde_json::Value;

use super::WhyAnswer;

/// The columns that an answer needs.
pub(crate) const COLUMNS: [&str; 5] = ["time", "status", "cause", "request_id", "duration_us"];
/// The most requests that are told.
pub(crate) const ROWS: usize = 5;

/// Tells how the latest requests ended; they are rows of the log store, newest first.
pub(crate) fn tell(answer: &mut WhyAnswer, since: &str, rows: &[Value]) {
    if rows.is_empty() {
        answer.saw(format!("No request for it was stored (since: {since})."), "log store");
    }
    for row in rows.iter().take(ROWS) {
        let text = |name: &str| row[name].as_str().unwrap_or("-");
        let status = match row["status"].as_u64() {
            Some(status) if status > 0 => status.to_string(),
            _ => "no response".to_owned(),
        };
        let cause = match row["cause"].as_str() {
            None | Some("" | "completed") => String::new(),
            Some(cause) => format!(" because of {cause}"),
        };
        let took = row["duration_us"].as_f64().map(|us| format!(", {:.1} ms", us / 1000.0));
        let says = format!(
            "A request for it at {}: {status}{cause}{} ({})",
            text("time"),
            took.unwrap_or_default(),
            text("request_id")
        );
        answer.saw(says, "log store");
    }
    let failed = rows.iter().find(|row| row["status"].as_u64().is_some_and(|status| status >= 500));
    if let Some(id) = failed.and_then(|row| row["request_id"].as_str()) {
        answer.advise_request(id);
    }
}

/// Tells that the requests are not known, and why.
pub(crate) fn tell_absence(answer: &mut WhyAnswer, reason: &str) {
    answer.saw(format!("The latest requests for it are not known: {reason}"), "log store");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_latest_requests_are_told_and_the_latest_failure_can_be_asked_about() {
        let rows = [
            json!({ "time": "12:01", "status": 200, "cause": "completed", "request_id": "c-3", "duration_us": 1500 }),
            json!({ "time": "12:00", "status": 502, "cause": "server_refused", "request_id": "b-2", "duration_us": null }),
            json!({ "time": "11:59", "status": 503, "cause": "no_server_alive", "request_id": "a-1" }),
        ];
        let mut answer = WhyAnswer::new("url", "");
        tell(&mut answer, "1h", &rows);
        let says: Vec<&str> = answer.evidence.iter().map(|(says, _)| says.as_str()).collect();
        let expected = [
            "A request for it at 12:01: 200, 1.5 ms (c-3)",
            "A request for it at 12:00: 502 because of server_refused (b-2)",
            "A request for it at 11:59: 503 because of no_server_alive (a-1)",
        ];
        assert_eq!(says, expected);
        assert_eq!(answer.remedy, ["offramp why b-2"]);
        let mut none = WhyAnswer::new("url", "");
        tell(&mut none, "1h", &[]);
        assert_eq!(none.evidence[0].0, "No request for it was stored (since: 1h).");
    }
}
