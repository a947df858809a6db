//! Read operations: the state of the process.

use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::{Certificate, inspect};
use offramp_control::{
    Applied, BackendView, CertificateOutlook, CheckView, Closed, FailedOrder, Refused as RefusedChange,
    ServerView, View,
};
use offramp_observe::ExpositionFormat;
use offramp_observe::facts::HttpVersion;
use serde_json::{Map, Value, json};

use super::document::{self, origin};
use super::events::{self, Events};
use super::query::QueryParameters;
use super::{Control, OperationRequest, OperationResult, ProblemDetails, notify, openapi, time};

/// The readable parts of the state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadOperation {
    OpenApi,
    Status,
    Config,
    Listeners,
    Listener,
    Routes,
    Route,
    Backends,
    Backend,
    Certificates,
    Certificate,
    Workers,
    /// Needs answers of the workers; see `connections`.
    Connections,
    Connection,
    Receivers,
    Counters,
    Changes,
    Refused,
    Events,
}

/// Answers from the current view.
pub(super) fn answer(
    control: &Control,
    what: ReadOperation,
    asked: &OperationRequest<'_>,
    query: &QueryParameters,
) -> Result<OperationResult, ProblemDetails> {
    let view = &control.view;
    let name = asked.names.first().map_or("", String::as_str);
    Ok(OperationResult::Json(match what {
        ReadOperation::Events => {
            let kinds = events::kinds(query.text("kind")).map_err(ProblemDetails::wrong)?;
            let place = Arc::clone(&control.watchers).try_acquire_owned();
            let place =
                place.map_err(|_| ProblemDetails::busy("too many clients watch already; try again later"))?;
            let (start, record) = (control.start(), control.record.clone());
            let source = events::EventSource { view: view.clone(), start, record };
            let last = asked.headers.get("last-event-id").map(|last| last.to_str().unwrap_or_default());
            let closes = control.closes.clone();
            return Ok(OperationResult::Stream(Box::pin(Events::new(source, kinds, last, place, closes))));
        }
        ReadOperation::OpenApi => openapi::document(view.figures().build.version),
        ReadOperation::Status => status(view),
        ReadOperation::Config if query.text("format") == Some("toml") => {
            return Ok(OperationResult::Toml(document::toml(&view.in_force().config)));
        }
        ReadOperation::Config => config(view),
        ReadOperation::Listeners => json!({ "listeners": listeners(view) }),
        ReadOperation::Listener => one("listener", name, listeners(view))?,
        ReadOperation::Routes => json!({ "routes": routes(view) }),
        ReadOperation::Route => one("route", name, routes(view))?,
        ReadOperation::Backends => json!({ "backends": backends(view) }),
        ReadOperation::Backend => one("backend", name, backends(view))?,
        ReadOperation::Certificates => {
            json!({ "certificates": certificates_in_use(view), "items": certificates(view) })
        }
        ReadOperation::Certificate => one("certificate", name, certificates(view))?,
        ReadOperation::Workers => json!({ "workers": workers(view) }),
        // Handled elsewhere, because the workers have to answer.
        ReadOperation::Connections | ReadOperation::Connection => {
            return Err(ProblemDetails::busy("ask again"));
        }
        ReadOperation::Receivers => notify::receivers(view),
        ReadOperation::Counters => json!({ "counters": counters(view) }),
        ReadOperation::Changes => {
            let (version, applied) = view.history().applied();
            let closed: Vec<Value> = view.history().closed().iter().map(closed).collect();
            let changes: Vec<Value> = applied.iter().map(change).collect();
            json!({ "version": version, "changes": changes, "closed_connections": closed })
        }
        ReadOperation::Refused => {
            json!({ "refused": view.history().refused().iter().map(refusal).collect::<Vec<_>>() })
        }
    }))
}

/// The certificates that clients get, with their chains.
fn certificates_in_use(view: &View) -> Vec<Value> {
    let now = SystemTime::now();
    let with_chain = |one: &Arc<Certificate>| {
        let mut shown = certificate(one, now);
        shown["chain"] = chain(one);
        let (next, refusal) = orders_of(one, &shown["names"], view);
        (shown["next_renewal"], shown["last_refusal"]) = (next, refusal);
        shown
    };
    view.certificates().iter().map(with_chain).collect()
}

/// The next renewal of a certificate that Offramp renews, and the words of the authorities that refused the last order
/// for it, or for names that have one of the local CA until then.
fn orders_of(one: &Certificate, names: &Value, view: &View) -> (Value, Value) {
    let is_local = one.source.kind() == "local_ca";
    if !is_local && one.source.kind() != "acme" {
        return (Value::Null, Value::Null);
    }
    let names = names.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned));
    let CertificateOutlook { next, failure } = view.outlook(&names.collect::<Vec<_>>());
    let next = next.or_else(|| is_local.then(|| one.renew_at()));
    let refusal = failure.map(|FailedOrder { at, reason }| json!({ "at": time(at), "detail": reason }));
    (next.map_or(Value::Null, |next| time(next).into()), refusal.unwrap_or(Value::Null))
}

/// Finds the item of this name.
fn one(kind: &str, name: &str, all: Vec<Value>) -> Result<Value, ProblemDetails> {
    let names = all.iter().filter_map(|item| item["name"].as_str());
    let Some(at) = all.iter().position(|item| item["name"] == name) else {
        return Err(ProblemDetails::unknown(kind, name, names));
    };
    Ok(all.into_iter().nth(at).unwrap_or_default())
}

fn status(view: &View) -> Value {
    let (in_force, figures) = (view.in_force(), view.figures());
    let totals = figures.counters.totals();
    let began = figures.counters.began();
    let uptime = SystemTime::now().duration_since(began).unwrap_or_default().as_secs();
    let refused = view.history().refused();
    json!({
        "version": figures.build.version,
        "pid": std::process::id(),
        "started": time(began),
        "uptime_s": uptime,
        "workers": view.workers(),
        "config": {
            "version": in_force.version,
            "file": view.file(),
            "confirm_until": in_force.confirm_until.map(time),
            "not_taken_back": in_force.not_taken_back.as_deref(),
            "unwritten": *in_force.unwritten,
            "unsaved": in_force.unsaved.as_deref(),
            "last_refused": refused.first().map(refusal),
        },
        "connections": { "open": totals.active(), "accepted": totals.accepted() },
        "requests": {
            "open": totals.requests_active(),
            "ended": HttpVersion::ALL.iter().map(|version| totals.requests(*version)).sum::<u64>(),
        },
        "listeners": in_force.config.listeners.len(),
        "routes": in_force.config.routes.len(),
        "backends": in_force.config.backends.len(),
        "servers": servers(&view.backends()),
        "certificates": view.certificates().len(),
    })
}

/// The number of servers in each state.
fn servers(backends: &[BackendView]) -> Value {
    let mut states = Map::new();
    for server in backends.iter().flat_map(|backend| &backend.servers) {
        let count = states.get(server.state).and_then(Value::as_u64).unwrap_or_default();
        states.insert(server.state.to_owned(), (count + 1).into());
    }
    Value::Object(states)
}

fn config(view: &View) -> Value {
    let in_force = view.in_force();
    let config = &in_force.config;
    let whole = document::whole(config);
    json!({
        "version": in_force.version,
        "file": view.file(),
        "settings": document::settings(config, &whole),
        "shared": document::shared(config, &whole),
        "listeners": listeners(view),
        "routes": routes(view),
        "backends": backends(view),
        "certificates": certificates(view),
        "authorities": config.authorities.iter()
            .map(|one| json!({ "name": one.name.as_str(), "origin": origin(&one.at), "config": whole["acme"][one.name.as_str()] }))
            .collect::<Vec<_>>(),
    })
}

fn listeners(view: &View) -> Vec<Value> {
    let in_force = view.in_force();
    let whole = document::whole(&in_force.config);
    let items = in_force.config.listeners.iter().zip(document::items(&whole, "listener"));
    let bound = |name: &str| {
        let own = in_force.listening.iter().filter(|(listener, _)| listener == name);
        own.map(|(_, address)| address.to_string()).collect::<Vec<_>>()
    };
    items
        .map(|(one, keys)| {
            let name = one.name.as_str();
            json!({ "name": name, "origin": origin(&one.at), "listening": bound(name), "config": keys })
        })
        .collect()
}

fn routes(view: &View) -> Vec<Value> {
    let config = &view.in_force().config;
    let whole = document::whole(config);
    let items = config.routes.iter().zip(document::items(&whole, "route"));
    items
        .map(|(one, keys)| json!({ "name": one.name(), "origin": origin(&one.at), "config": keys }))
        .collect()
}

/// The items that certificates come from.
fn certificates(view: &View) -> Vec<Value> {
    let config = &view.in_force().config;
    let whole = document::whole(config);
    let items = config.certificates.iter().zip(document::items(&whole, "certificate"));
    items
        .map(|(one, keys)| json!({ "name": one.name(), "origin": origin(&one.at), "config": keys }))
        .collect()
}

fn backends(view: &View) -> Vec<Value> {
    let config = &view.in_force().config;
    let whole = document::whole(config);
    let written = |name: &str| config.backends.iter().find(|one| one.name.as_str() == name);
    let all = view.backends();
    all.iter()
        .map(|BackendView { name, servers }| {
            let origin = written(name).map_or_else(|| "a route".to_owned(), |one| origin(&one.at));
            let keys = whole.get("backend").and_then(|all| all.get(name));
            let servers: Vec<Value> = servers.iter().map(server).collect();
            json!({ "name": name, "origin": origin, "servers": servers, "config": keys })
        })
        .collect()
}

fn server(server: &ServerView) -> Value {
    let ServerView { name, state, why, check, weight, backup, active, addresses } = server;
    let check = check.as_ref().map(|CheckView { failed, fall, passed, rise, error }| {
        json!({ "failed": failed, "fall": fall, "passed": passed, "rise": rise, "error": error })
    });
    json!({
        "name": name, "state": state, "why": why, "weight": weight, "backup": backup, "active": active,
        "addresses": addresses, "check": check,
    })
}

pub(super) fn certificate(one: &Certificate, now: SystemTime) -> Value {
    let names = one.names.iter().map(ToString::to_string);
    let names: Vec<String> = names.chain(one.addresses.iter().map(ToString::to_string)).collect();
    let left = one.not_after.duration_since(now).map_or(0, |left| left.as_secs() / (24 * 3600));
    json!({
        "names": names, "source": one.source.kind(), "key": one.description.key_algorithm.to_string(), "not_before": time(one.not_before),
        "not_after": time(one.not_after), "days_left": left, "valid": one.is_valid(now),
    })
}

/// The certificates that clients get, the own one first.
fn chain(one: &Certificate) -> Value {
    let links = one.certified_key.cert.iter().filter_map(|der| inspect::read(der).ok());
    links
        .map(|link| json!({ "subject": link.subject, "issuer": link.issuer, "not_after": time(link.not_after) }))
        .collect()
}

fn workers(view: &View) -> Vec<Value> {
    let counters = &view.figures().counters;
    (0..view.workers())
        .map(|worker| {
            let totals = counters.totals_of(worker);
            json!({
                "worker": worker,
                "connections": { "open": totals.active(), "accepted": totals.accepted() },
                "requests_open": totals.requests_active(),
                "turns": totals.turns(),
                "yields": totals.yields(),
            })
        })
        .collect()
}

/// The metrics, each a member by name and labels.
fn counters(view: &View) -> Value {
    let mut page = Vec::new();
    view.figures().render(ExpositionFormat::Prometheus, &mut page);
    let page = String::from_utf8_lossy(&page);
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    // Values have no spaces, whatever the labels contain.
    let figures = lines.filter_map(|line| line.rsplit_once(' '));
    Value::Object(figures.map(|(name, value)| (name.to_owned(), number(value))).collect())
}

fn number(text: &str) -> Value {
    match (text.parse::<u64>(), text.parse::<f64>()) {
        (Ok(whole), _) => whole.into(),
        (_, Ok(real)) => real.into(),
        _ => text.into(),
    }
}

pub(super) fn change(Applied { version, kind, at, by, changes, omitted, .. }: &Applied) -> Value {
    json!({
        "version": version,
        "how": kind.as_str(),
        "at": time(*at),
        "by": by.as_str(),
        "changes": changes.lines,
        "omitted": omitted,
        "new_certificates": changes.new_certificates,
        "needs_an_upgrade": changes.needs_restart,
    })
}

pub(super) fn closed(Closed { at, by, what, count, .. }: &Closed) -> Value {
    json!({ "at": time(*at), "by": by.as_str(), "which": what, "connections": count })
}

pub(super) fn refusal(RefusedChange { kind, at, by, reasons, omitted, .. }: &RefusedChange) -> Value {
    json!({ "how": kind.as_str(), "at": time(*at), "by": by.as_str(), "reasons": reasons, "omitted": omitted })
}
