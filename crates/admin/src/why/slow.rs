//! The parts of stored requests' time.

use serde_json::{Value, json};

use super::{MOST, WhyAnswer};

/// The columns that an answer needs.
pub(crate) const COLUMNS: [&str; 10] = [
    "host",
    "path",
    "server",
    "bytes",
    "status",
    "request_id",
    "duration_us",
    "queue_us",
    "connect_us",
    "first_byte_us",
];

/// A part of a request's time, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimePart {
    Queue,
    Connect,
    Server,
    Transfer,
}

impl TimePart {
    const ALL: [Self; 4] = [Self::Queue, Self::Connect, Self::Server, Self::Transfer];

    fn says(self) -> &'static str {
        match self {
            Self::Queue => "waiting for a server with a free place",
            Self::Connect => "connecting to the server",
            Self::Server => "the server's work until the first byte of its answer",
            Self::Transfer => "the rest of the answer, at the speed of the slower of server and client",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Connect => "connect",
            Self::Server => "server",
            Self::Transfer => "transfer",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Queue => {
                "Servers are at their max_connections: add servers, or raise it if they can do more at once \
                 (offramp ctl show backends)"
            }
            Self::Connect => {
                "Look at the way to the server and at its backlog of connections: offramp why 502, and `ss -ltn` there"
            }
            Self::Server => "The application takes this time: its own log or profiler says for what",
            Self::Transfer => {
                "Make answers smaller (`compress` of the route), or look at slow clients: offramp logs top clients --by bytes"
            }
        }
    }
}

/// One request taken apart.
struct TimedRequest<'a> {
    row: &'a Value,
    total: f64,
    parts: [f64; 4],
}

impl<'a> TimedRequest<'a> {
    /// `None` for a request without a duration.
    fn of(row: &'a Value) -> Option<Self> {
        let ms = |name: &str| row[name].as_f64().unwrap_or(0.0) / 1000.0;
        let total = Some(ms("duration_us")).filter(|total| *total > 0.0)?;
        let (queue, connect) = (ms("queue_us").min(total), ms("connect_us").min(total));
        // Answers of Offramp itself have no first byte of a server.
        let first_byte = Some(ms("first_byte_us")).filter(|first| *first > 0.0).unwrap_or(total).min(total);
        let server = (first_byte - queue - connect).max(0.0);
        Some(Self { row, total, parts: [queue, connect, server, total - first_byte] })
    }

    fn text(&self, name: &str) -> &'a str {
        self.row[name].as_str().unwrap_or("-")
    }
}

/// Explains where the time of requests went; they are rows of the log store, with [`COLUMNS`].
pub(crate) fn slow(host: Option<&str>, since: &str, rows: &[Value]) -> WhyAnswer {
    let about = host.map(|host| format!(" to {host}")).unwrap_or_default();
    let mut requests: Vec<TimedRequest<'_>> = rows.iter().filter_map(TimedRequest::of).collect();
    if requests.is_empty() {
        let mut answer = WhyAnswer::new("slow", format!("No request{about} was stored (since: {since})."));
        answer.advise("Ask for a longer time: --since 24h; or look for the host: offramp logs top hosts");
        return answer;
    }
    requests.sort_by(|one, other| one.total.total_cmp(&other.total));
    let count = requests.len();
    let at = |share: f64| requests[((count as f64 * share) as usize).min(count - 1)].total;
    let sums =
        TimePart::ALL.map(|part| requests.iter().map(|request| request.parts[part as usize]).sum::<f64>());
    let all = sums.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let most =
        TimePart::ALL.into_iter().max_by(|one, other| sums[*one as usize].total_cmp(&sums[*other as usize]));
    let most = most.unwrap_or(TimePart::Server);
    let percent = |part: TimePart| (sums[part as usize] / all * 100.0).round();
    let mut answer = WhyAnswer::new(
        "slow",
        format!(
            "Of the latest {count} requests{about} half took {} and one in twenty {} or more: {} % of the time is {}.",
            words(at(0.5)),
            words(at(0.95)),
            percent(most),
            most.says()
        ),
    );
    for part in TimePart::ALL.into_iter().filter(|part| sums[*part as usize] > 0.0) {
        let mean = sums[part as usize] / count as f64;
        answer.saw(format!("{} % is {}: {} each", percent(part), part.says(), words(mean)), "log store");
    }
    for (key, what) in [("path", "page"), ("server", "server")] {
        if let Some((name, times, mean)) = worst(&requests, key) {
            answer.saw(
                format!("The slowest {what} is {name}: {} each, {times} times", words(mean)),
                "log store",
            );
        }
    }
    for request in requests.iter().rev().take(3) {
        let says = format!(
            "{} for {}{} ({})",
            words(request.total),
            request.text("host"),
            request.text("path"),
            request.text("request_id")
        );
        answer.saw(says, "log store, the slowest requests");
    }
    answer.advise(most.remedy());
    answer.advise_request(requests[count - 1].text("request_id"));
    answer.fact("requests", count);
    answer.fact("p50_ms", rounded(at(0.5)));
    answer.fact("p95_ms", rounded(at(0.95)));
    let shares = TimePart::ALL.map(|part| (part.name().to_owned(), json!(percent(part))));
    answer.fact("percent", Value::Object(shares.into_iter().collect()));
    answer
}

/// The item with the highest mean among those that had at least a hundredth of the requests, if there are several.
fn worst<'a>(requests: &[TimedRequest<'a>], key: &str) -> Option<(&'a str, usize, f64)> {
    let mut sums = std::collections::BTreeMap::<&str, (usize, f64)>::new();
    for request in requests {
        let sum = sums.entry(request.text(key)).or_default();
        *sum = (sum.0 + 1, sum.1 + request.total);
    }
    if sums.len() < 2 {
        return None;
    }
    let enough = (requests.len() / 100).max(1);
    let means = sums.into_iter().filter(|(name, (count, _))| *count >= enough && *name != "-");
    let means = means.map(|(name, (count, sum))| (name, count, sum / count as f64));
    means.max_by(|one, other| one.2.total_cmp(&other.2))
}

fn words(ms: f64) -> String {
    match ms {
        ..10.0 => format!("{ms:.2} ms"),
        ..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

fn rounded(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

/// The most rows that are looked at.
pub(crate) const ROWS: usize = MOST * 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, times: [u64; 4]) -> Value {
        let [duration, queue, connect, first] = times;
        json!({ "host": "a.test", "path": path, "server": "b:1", "request_id": format!("id-{}", path.len()), "duration_us": duration,
                "queue_us": queue, "connect_us": connect, "first_byte_us": first })
    }

    #[test]
    fn the_part_that_took_most_is_named() {
        for (times, part, remedy) in [
            ([100_000, 90_000, 1000, 95_000], "90 % of the time is waiting for a server", "max_connections"),
            ([100_000, 0, 80_000, 90_000], "80 % of the time is connecting", "backlog"),
            ([100_000, 0, 1000, 99_000], "98 % of the time is the server's work", "application"),
            ([100_000, 0, 1000, 5000], "95 % of the time is the rest of the answer", "compress"),
        ] {
            let answer = slow(Some("a.test"), "1h", &[row("/", times)]).into_json();
            let first = answer["first"].as_str().unwrap();
            assert!(
                first.starts_with("Of the latest 1 requests to a.test half took 100 ms")
                    && first.contains(part),
                "{first}"
            );
            assert!(answer["remedy"][0].as_str().unwrap().contains(remedy), "{answer:#}");
            assert_eq!(answer["remedy"][1], "offramp why id-1");
        }
    }

    #[test]
    fn the_slowest_page_and_nothing_at_all() {
        let rows = [
            row("/fast", [1000, 0, 0, 900]),
            row("/late", [2_000_000, 0, 0, 1_900_000]),
            json!({ "path": "/x" }),
        ];
        let answer = slow(None, "10m", &rows).into_json();
        assert!(
            answer["evidence"].to_string().contains("The slowest page is /late: 2.0 s each, 1 times"),
            "{answer:#}"
        );
        assert_eq!(answer["facts"]["requests"], 2);
        let mut hostile = row("/", [1000, 0, 0, 900]);
        hostile["request_id"] = "a$(id|sh)".into();
        assert_eq!(
            slow(None, "10m", &[hostile]).remedy.len(),
            1,
            "no command with an id that a shell would run"
        );
        let first = slow(None, "10m", &[]).first;
        assert_eq!(first, "No request was stored (since: 10m).");
    }
}
