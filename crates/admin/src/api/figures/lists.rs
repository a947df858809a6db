//! The lists among the figures: the heaviest of each kind.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use offramp_config::model::{Listeners, RouteConfig};
use offramp_control::View;
use offramp_observe::{Detail, NoticeKind};
use serde_json::{Map, Value, json};

use super::reading::{ClientReading, SetSums, with_code};
use super::{Between, milliseconds, rounded};

/// The length of a list.
const HEAVIEST: usize = 50;
/// The time for which a worker counts as late after a notice of it: there is one notice a minute at most.
const LATE: Duration = Duration::from_secs(60);

/// Requests per second by class of status; without a first reading, nulls.
pub(super) fn classes(between: Between<'_>) -> Value {
    let rate = |class| between.rate(|reading| reading.sets.iter().map(|set| with_code(set, class)).sum());
    let classes = ["2xx", "3xx", "4xx", "5xx", "none"].map(|class| (class.to_owned(), json!(rate(class))));
    Value::Object(Map::from_iter(classes))
}

pub(super) fn causes(between: Between<'_>) -> Vec<Value> {
    let all = between.now.causes.iter().map(|(key, total)| {
        let rate = between.rate(|reading| reading.causes.get(key).copied().unwrap_or(0));
        let row = json!({ "cause": key.0, "side": key.1, "per_second": rate, "total": total });
        (rate, *total, row)
    });
    heaviest(all.collect())
}

pub(super) fn limits(between: Between<'_>) -> Vec<Value> {
    let refused = between.now.refusals.iter().filter(|(_, total)| *total > 0);
    let all = refused.map(|(limit, total)| {
        let of =
            |refusals: &[(&str, u64)]| refusals.iter().find(|(name, _)| name == limit).map_or(0, |one| one.1);
        let rate = between.rate(|reading| of(&reading.refusals));
        (rate, *total, json!({ "limit": limit, "refused_per_second": rate, "total": total }))
    });
    heaviest(all.collect())
}

pub(super) fn workers(between: Between<'_>, view: &View) -> Vec<Value> {
    let late = late_workers(view);
    let workers = between.now.workers.iter().enumerate();
    let worker = |(index, worker): (usize, &super::reading::WorkerReading)| {
        let before = between.before.and_then(|before| before.workers.get(index)?.cpu);
        let used = worker.cpu.zip(before).map(|(now, before)| now.saturating_sub(before).as_secs_f64());
        let busy = used.zip(between.seconds()).map(|(used, seconds)| rounded((used / seconds).min(1.0)));
        json!({ "worker": index, "connections": worker.open, "busy": busy, "late": late.contains(&(index as u64)) })
    };
    workers.map(worker).collect()
}

/// The workers that were reported late within the last minute.
fn late_workers(view: &View) -> Vec<u64> {
    let recent = SystemTime::now().checked_sub(LATE);
    let notices = view.notices().since(NoticeKind::Late, 0);
    let recent = notices.into_iter().filter(|notice| recent.is_none_or(|recent| notice.at >= recent));
    recent
        .filter_map(|notice| match notice.fields.into_iter().find(|(name, _)| *name == "worker")?.1 {
            Detail::Count(worker) => Some(worker),
            Detail::Flag(_) | Detail::Text(_) => None,
        })
        .collect()
}

/// The hosts of routes. Routes with the same hosts are added up.
pub(super) fn hosts(between: Between<'_>, view: &View) -> Vec<Value> {
    let names = host_names(&view.in_force().config.routes);
    grouped(
        between,
        |route| names.get(route).map(String::as_str),
        |name, rates| {
            json!({
                "name": name, "requests_per_second": rates.requests, "bytes_out_per_second": rates.bytes_out,
            })
        },
    )
}

/// The hosts of each route, by the name of the route; `*` where it has none.
fn host_names(routes: &[RouteConfig]) -> HashMap<String, String> {
    let hosts = |route: &RouteConfig| {
        let hosts: Vec<String> = route.hosts.iter().map(ToString::to_string).collect();
        if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") }
    };
    routes.iter().map(|route| (route.name(), hosts(route))).collect()
}

pub(super) fn routes(between: Between<'_>, view: &View) -> Vec<Value> {
    let in_force = view.in_force();
    let listeners: HashMap<String, Option<String>> =
        in_force.config.routes.iter().map(|route| (route.name(), listener(route))).collect();
    grouped(between, Some, |route, rates| {
        json!({
            "route": route, "listener": listeners.get(route).cloned().flatten(),
            "requests_per_second": rates.requests, "errors_per_second": rates.errors, "p95_ms": rates.p95_ms,
        })
    })
}

/// The listeners of a route; `None` for all.
fn listener(route: &RouteConfig) -> Option<String> {
    match &route.listeners {
        Listeners::All => None,
        Listeners::Named(names) => Some(names.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
    }
}

/// The rates of a group of sets.
struct GroupRates {
    requests: Option<f64>,
    errors: Option<f64>,
    bytes_out: Option<f64>,
    p95_ms: Option<f64>,
}

/// The groups of sets by a text of their route, as rows.
fn grouped<'a, 'k>(
    between: Between<'a>,
    of: impl Fn(&'a str) -> Option<&'k str> + Copy,
    row: impl Fn(&str, &GroupRates) -> Value,
) -> Vec<Value> {
    let key = |set: &'a offramp_observe::series::SetTotals| {
        Some(&*set.labels.route).filter(|route| !route.is_empty()).and_then(of)
    };
    let now = between.now.by(key);
    let before = between.before.map(|before| before.by(key));
    let none = SetSums::default();
    let all = now.iter().map(|(name, now)| {
        let before = before.as_ref().map(|before| before.get(name).unwrap_or(&none));
        let rate = |of: fn(&SetSums) -> u64| {
            Some(rounded(of(now).saturating_sub(of(before?)) as f64 / between.seconds()?))
        };
        let rates = GroupRates {
            requests: rate(|sums| sums.requests),
            errors: rate(|sums| sums.errors),
            bytes_out: rate(|sums| sums.bytes_out),
            p95_ms: before
                .and_then(|before| now.durations.since(&before.durations).quantile(0.95))
                .map(milliseconds),
        };
        (rates.requests, now.requests, row(name, &rates))
    });
    heaviest(all.collect())
}

pub(super) fn backends(between: Between<'_>, view: &View) -> Vec<Value> {
    let requests = |backend: &str, server: &str| {
        between.rate(|reading| {
            let sets = reading.sets.iter();
            let own = sets.filter(|set| &*set.labels.backend == backend && &*set.labels.server == server);
            own.map(offramp_observe::series::SetTotals::all_requests).sum()
        })
    };
    let all = view.backends().into_iter().map(|backend| {
        let mut heaviest: Option<f64> = None;
        let servers: Vec<Value> = backend
            .servers
            .iter()
            .take(HEAVIEST)
            .map(|server| {
                let rate = requests(&backend.name, &server.name);
                heaviest = Some(heaviest.unwrap_or(0.0) + rate.unwrap_or(0.0));
                json!({
                    "server": server.name, "state": server.state, "requests_per_second": rate,
                    "active": server.active,
                })
            })
            .collect();
        (heaviest, 0, json!({ "backend": backend.name, "servers": servers }))
    });
    self::heaviest(all.collect())
}

pub(super) fn clients(between: Between<'_>) -> Vec<Value> {
    let all = between.now.clients.iter().map(|(client, now)| {
        let before = between.before.map(|before| before.clients.get(client).copied().unwrap_or(*now));
        let rate = |of: fn(&ClientReading) -> u64| {
            Some(rounded(of(now).saturating_sub(of(before.as_ref()?)) as f64 / between.seconds()?))
        };
        let (requests, bytes) = (rate(|client| client.requests), rate(|client| client.bytes));
        let row = json!({
            "client": client, "connections": now.connections, "requests_per_second": requests,
            "bytes_per_second": bytes,
        });
        (bytes, now.bytes, row)
    });
    heaviest(all.collect())
}

/// The heaviest rows: by rate, then by total, then by their text, so that the order does not change by itself.
fn heaviest(mut rows: Vec<(Option<f64>, u64, Value)>) -> Vec<Value> {
    rows.sort_by_cached_key(|(rate, total, row)| {
        let millis = (rate.unwrap_or(0.0) * 1000.0) as u64;
        (std::cmp::Reverse((millis, *total)), row.to_string())
    });
    rows.into_iter().take(HEAVIEST).map(|(_, _, row)| row).collect()
}
