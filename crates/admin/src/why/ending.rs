//! The meaning of a cause, and the end of a stored request.

use offramp_observe::counters::Totals;
use offramp_observe::facts::{Cause, Fault};
use serde_json::Value;

use super::WhyAnswer;

/// Explains the cause of this name; `None` if there is none.
pub(crate) fn cause(question: &'static str, name: &str, totals: &Totals) -> Option<WhyAnswer> {
    let cause = Cause::ALL.into_iter().find(|cause| cause.name() == name)?;
    let mut answer = WhyAnswer::new(question, cause.meaning());
    for fault in Fault::ALL {
        let count = totals.closed(cause, fault) + totals.requests_ended(cause, fault);
        if count > 0 {
            let says = format!("{count} ended so since the start; the fault is with: {}", fault.name());
            answer.saw(says, format!("figures, {name}"));
            answer.fact(fault.name(), count);
        }
    }
    if answer.evidence.is_empty() {
        answer.saw("Nothing has ended so since the start", format!("figures, {name}"));
    }
    answer.advise("offramp ctl watch");
    Some(answer)
}

/// Explains the end of a stored request, which is as `GET /v1/requests/{request}` has it.
pub(crate) fn request(stored: &Value) -> WhyAnswer {
    let text = |name: &str| stored[name].as_str().filter(|text| !text.is_empty());
    let named = text("cause").and_then(|name| Cause::ALL.into_iter().find(|cause| cause.name() == name));
    let status = stored["status"].as_u64().filter(|status| *status > 0);
    let end =
        status.map_or_else(|| "without a response".to_owned(), |status| format!("with status {status}"));
    let first = match (named, text("server")) {
        (Some(Cause::Completed) | None, Some(server)) if status.is_some() => {
            format!("The request ended {end}, which the server {server} answered.")
        }
        (Some(Cause::Completed) | None, _) => format!("The request ended {end}."),
        (Some(cause), _) => format!("The request ended {end}: {} ({})", cause.meaning(), cause.name()),
    };
    let mut answer = WhyAnswer::new("request", first);
    for step in stored["story"].as_array().into_iter().flatten() {
        let says = step["says"].as_str().unwrap_or_default();
        let took = step["took_ms"].as_f64().map(|took| format!(" ({took} ms)")).unwrap_or_default();
        answer.saw(
            format!("{says}{took}"),
            format!("log store, {}", step["step"].as_str().unwrap_or_default()),
        );
    }
    for name in ["host", "path", "route", "server", "cause", "status", "duration_us"] {
        if !stored[name].is_null() {
            answer.fact(name, stored[name].clone());
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use offramp_observe::Counters;
    use serde_json::json;

    use super::*;

    #[test]
    fn causes_say_what_they_mean() {
        let totals = Counters::new(1).0.totals();
        let answer = cause("502", "server_refused", &totals).unwrap();
        assert_eq!(answer.first, "The server refused the connection.");
        assert!(cause("502", "server_refuse", &totals).is_none());
    }

    #[test]
    fn requests_name_who_answered() {
        for (stored, first) in [
            (
                json!({ "status": 500, "cause": "completed", "server": "127.0.0.1:3000" }),
                "The request ended with status 500, which the server 127.0.0.1:3000 answered.",
            ),
            (json!({ "status": 404, "server": "" }), "The request ended with status 404."),
            (
                json!({ "status": 502, "cause": "server_refused", "server": "127.0.0.1:3000" }),
                "The request ended with status 502: The server refused the connection. (server_refused)",
            ),
            (json!({ "cause": "completed", "server": "a:1" }), "The request ended without a response."),
        ] {
            assert_eq!(request(&stored).first, first, "{stored}");
        }
    }
}
