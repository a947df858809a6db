//! The oracle: the same questions, answered by counting in a straightforward way.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_analytics::question::Bots;
use offramp_analytics::{QueryResult, RequestFilter, SqlValue, Top};

use super::requests::{AGENTS, Request};

/// Requests and bytes by what a row is named, without order.
pub(crate) type Counts = BTreeMap<String, (i64, i64)>;

pub(crate) fn time(us: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(us).unwrap())
}

fn counts(request: &Request, filter: &RequestFilter) -> bool {
    let at = time(request.time_us);
    let bot = request
        .agent
        .as_deref()
        .is_some_and(|agent| agent == AGENTS[1].as_bytes() || agent == AGENTS[2].as_bytes());
    let host = request.host.as_deref().map(|host| String::from_utf8(host.to_vec()).unwrap());
    filter.since.is_none_or(|since| at >= since)
        && filter.until.is_none_or(|until| at < until)
        && (filter.hosts.is_empty() || host.is_some_and(|host| filter.hosts.contains(&host)))
        && match filter.bots {
            Bots::Included => true,
            Bots::Only => bot,
            Bots::Excluded => !bot,
        }
        && !request.client.is_some_and(|client| filter.exclude.iter().any(|network| network.contains(client)))
}

fn network(client: IpAddr) -> String {
    match client {
        IpAddr::V4(ip) => format!("{}.{}.{}.0/24", ip.octets()[0], ip.octets()[1], ip.octets()[2]),
        IpAddr::V6(ip) => format!("2001:db8:{}::/48", ip.segments()[2]).replace(":0::", "::"),
    }
}

fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                c.to_string().bytes().for_each(|byte| text += &format!("\\x{byte:02x}"));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

pub(crate) fn top(requests: &[Request], top: Top, filter: &RequestFilter) -> Counts {
    let mut found = Counts::new();
    for request in requests.iter().filter(|request| counts(request, filter)) {
        let host = request.host.as_deref().map_or("null".to_owned(), text);
        let name = match top {
            Top::Pages => Some(format!("{} {host}", text(&request.path))),
            Top::Referrers => request.referer.as_deref().map(text),
            Top::Hosts => Some(host),
            Top::Clients => request.client.map(|client| client.to_string()),
            Top::Status => Some(request.status.to_string()),
            Top::Agents => request.agent.as_deref().map(text),
            Top::Networks => request.client.map(network),
            Top::Countries | Top::Cities => None,
        };
        if let Some(name) = name {
            let entry = found.entry(name).or_default();
            entry.0 += 1;
            entry.1 += i64::try_from(request.bytes).unwrap();
        }
    }
    found
}

pub(crate) fn traffic(requests: &[Request], interval: Duration, filter: &RequestFilter) -> Counts {
    let width = i64::try_from(interval.as_micros()).unwrap();
    let mut found = Counts::new();
    for request in requests.iter().filter(|request| counts(request, filter)) {
        let entry = found.entry((request.time_us / width * width).to_string()).or_default();
        entry.0 += 1;
        entry.1 += i64::try_from(request.bytes).unwrap();
    }
    found
}

/// An answer's rows in the oracle's form: what is named before requests and bytes is joined.
pub(crate) fn of(answer: &QueryResult) -> Counts {
    bounds(answer).into_iter().map(|(name, bounds)| (name, bounds.least)).collect()
}

/// What an answer says of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) least: (i64, i64),
    pub(crate) most: (i64, i64),
}

/// An answer's rows, with lower and upper bounds.
pub(crate) fn bounds(answer: &QueryResult) -> BTreeMap<String, Bounds> {
    let place = |column: &str| answer.columns.iter().position(|name| name == column);
    let first = place("requests").unwrap();
    let mut found = BTreeMap::new();
    for row in &answer.rows {
        let name: Vec<String> = row[..first].iter().map(shown).collect();
        let int = |column: &str| match place(column).map(|at| &row[at]) {
            Some(SqlValue::Int(number)) => Some(*number),
            None => None,
            other => panic!("{column}: {other:?}"),
        };
        let least = (int("requests").unwrap(), int("bytes").unwrap());
        let most = (int("requests_at_most").unwrap_or(least.0), int("bytes_at_most").unwrap_or(least.1));
        assert!(found.insert(name.join(" "), Bounds { least, most }).is_none(), "twice: {row:?}");
    }
    found
}

fn shown(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "null".to_owned(),
        SqlValue::Int(value) => value.to_string(),
        SqlValue::Real(value) => value.to_string(),
        SqlValue::Text(text) => text.clone(),
    }
}
