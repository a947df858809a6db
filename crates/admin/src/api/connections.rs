//! Open connections: lists in pages, and closing some.

use std::net::IpAddr;
use std::sync::Arc;

use offramp_config::model::Cidr;
use offramp_control::{CloseReport, Cursor, Filter, LiveConnection, NetworkSet, StuckWorker};
use offramp_observe::ConnectionId;
use serde_json::{Value, json};

use super::query::{Parameter, ParameterKind, QueryParameters};
use super::{Control, OperationRequest, ProblemDetails, time};

/// The maximum and default size of a page.
pub(super) const PAGE: u16 = 1000;

/// The parameters that filter connections.
pub(super) const FILTER: &[Parameter] = &[
    Parameter {
        name: "client",
        kind: ParameterKind::Network,
        doc: "Of clients with this address, or in this network",
    },
    Parameter {
        name: "name",
        kind: ParameterKind::Text,
        doc: "With this name (SNI, else the host of HTTP); *.example.org is any name below it",
    },
    Parameter {
        name: "route",
        kind: ParameterKind::Text,
        doc: "On this route; of HTTP, by the latest request",
    },
    Parameter { name: "listener", kind: ParameterKind::Text, doc: "Of this listener" },
    Parameter { name: "older", kind: ParameterKind::Age, doc: "At least so old, such as 10s, 5m, 2h or 1d" },
    Parameter {
        name: "larger",
        kind: ParameterKind::Size,
        doc: "That have moved at least so much, such as 1MiB",
    },
];

/// The parameters of a page.
pub(super) const PAGES: &[Parameter] = &[
    Parameter { name: "limit", kind: ParameterKind::UpTo(PAGE), doc: "How many at most; by default 1000" },
    Parameter { name: "after", kind: ParameterKind::Cursor, doc: "The `next` of the page before" },
    Parameter { name: "client", kind: ParameterKind::Network, doc: FILTER[0].doc },
    Parameter { name: "name", kind: ParameterKind::Text, doc: FILTER[1].doc },
    Parameter { name: "route", kind: ParameterKind::Text, doc: FILTER[2].doc },
    Parameter { name: "listener", kind: ParameterKind::Text, doc: FILTER[3].doc },
    Parameter { name: "older", kind: ParameterKind::Age, doc: FILTER[4].doc },
    Parameter { name: "larger", kind: ParameterKind::Size, doc: FILTER[5].doc },
];

/// A page of the connections that match.
pub(super) async fn page(control: &Control, query: &QueryParameters) -> Result<Value, ProblemDetails> {
    let most = query.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(PAGE.into());
    let from = query.text("after").and_then(|text| text.parse::<Cursor>().ok()).unwrap_or_default();
    let page = control.view.connections().page(&Arc::new(filter(query)), from, most).await?;
    if page.connections.is_empty() && query.text("after").is_none() {
        known(control, query)?;
    }
    let connections: Vec<Value> = page.connections.iter().map(connection).collect();
    Ok(json!({ "connections": connections, "next": page.next.map(|next| next.to_string()) }))
}

/// The connection named by the path.
pub(super) async fn one(control: &Control, asked: &OperationRequest<'_>) -> Result<Value, ProblemDetails> {
    let (text, filter) = named(asked)?;
    let page = control.view.connections().page(&Arc::new(filter), Cursor::default(), 1).await?;
    page.connections.first().map(connection).ok_or_else(|| unknown(text))
}

/// Closes the connection named by the path.
pub(super) async fn close_one(
    control: &Control,
    asked: &OperationRequest<'_>,
) -> Result<Value, ProblemDetails> {
    let (text, filter) = named(asked)?;
    let count = closed(control.handle.close_connections(filter, &format!("id {text}"), &asked.by).await)?;
    if count == 0 { Err(unknown(text)) } else { Ok(json!({ "closed": count })) }
}

/// Closes the connections that match.
pub(super) async fn close(
    control: &Control,
    asked: &OperationRequest<'_>,
    query: &QueryParameters,
) -> Result<Value, ProblemDetails> {
    let said = FILTER.iter().filter_map(|known| Some((known.name, query.text(known.name)?)));
    let what: Vec<String> = said.map(|(name, value)| format!("{name} {value}")).collect();
    if what.is_empty() {
        return Err(ProblemDetails::wrong(
            "say which connections are to be closed: client, name, route, listener, older or larger",
        ));
    }
    let count = closed(control.handle.close_connections(filter(query), &what.join(", "), &asked.by).await)?;
    if count == 0 {
        known(control, query)?;
    }
    Ok(json!({ "closed": count }))
}

/// The number of connections closed, if every worker has answered.
fn closed(CloseReport { count, unanswered }: CloseReport) -> Result<u64, ProblemDetails> {
    match unanswered {
        None => Ok(count),
        Some(why) if count == 0 => Err(why.into()),
        Some(StuckWorker { worker }) => {
            let why = format!(
                "worker {worker} does not answer, and the rest of its connections stay open; {count} were closed; try again"
            );
            Err(ProblemDetails::busy(why).with("closed", count.into()))
        }
    }
}

/// Rejects an unknown listener or route in a filter that no connection matches. Connections may be open on a
/// removed route.
fn known(control: &Control, query: &QueryParameters) -> Result<(), ProblemDetails> {
    let config = &control.view.in_force().config;
    if let Some(name) = query.text("listener") {
        let names = config.listeners.iter().map(|listener| listener.name.as_str());
        if !names.clone().any(|known| known == name) {
            return Err(ProblemDetails::unknown("listener", name, names));
        }
    }
    if let Some(name) = query.text("route") {
        let names: Vec<String> = config.routes.iter().map(offramp_config::model::RouteConfig::name).collect();
        if !names.iter().any(|known| known == name) {
            return Err(ProblemDetails::unknown("route", name, names.iter().map(String::as_str)));
        }
    }
    Ok(())
}

/// The filter of a query with valid values.
fn filter(query: &QueryParameters) -> Filter {
    let text = |name| query.text(name).map(Into::into);
    Filter {
        clients: query.text("client").and_then(network).map(|network| NetworkSet::new([network])),
        name: text("name"),
        route: text("route"),
        listener: text("listener"),
        older: query.age("older"),
        larger: query.size("larger"),
        ..Filter::default()
    }
}

/// Parses an address or a network; invalid ones were rejected before.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let network: Cidr = text.parse().ok()?;
    Some((network.address(), network.prefix()))
}

/// The id in the path, and a filter for it.
fn named<'a>(asked: &'a OperationRequest<'_>) -> Result<(&'a str, Filter), ProblemDetails> {
    let text = asked.names.first().map_or("", String::as_str);
    let id = id(text).ok_or_else(|| unknown(text))?;
    Ok((text, Filter { id: Some(id), ..Filter::default() }))
}

/// Parses an id in its canonical form.
fn id(text: &str) -> Option<ConnectionId> {
    let digits: String = text.split('-').collect();
    let id = ConnectionId::from(u128::from_str_radix(&digits, 16).ok()?);
    (id.to_string() == text).then_some(id)
}

fn unknown(id: &str) -> ProblemDetails {
    ProblemDetails::unknown("open connection", id, [])
}

fn connection(one: &LiveConnection) -> Value {
    json!({
        "id": one.id.to_string(),
        "worker": one.worker,
        "listener": &*one.listener,
        "client": one.client.to_string(),
        "peer": one.peer.as_ref().map(ToString::to_string),
        "name": one.name.as_deref(),
        "protocol": one.protocol.name(),
        "tls": one.tls.map(offramp_observe::facts::TlsVersion::name),
        "route": one.path.route.as_deref(),
        "backend": one.path.backend.as_deref(),
        "server": one.path.server.as_deref(),
        "accepted": time(one.accepted),
        "age_s": one.age.as_secs(),
        "bytes_from_client": one.traffic.from_client,
        "bytes_to_client": one.traffic.to_client,
        "requests": { "begun": one.requests, "open": one.requests_open },
    })
}

impl From<StuckWorker> for ProblemDetails {
    fn from(why: StuckWorker) -> Self {
        Self::busy(why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_worker_is_reported_with_the_count_of_the_others() {
        let unanswered = Some(StuckWorker { worker: 1 });
        assert_eq!(closed(CloseReport { count: 2, unanswered: None }).unwrap(), 2);
        let none = closed(CloseReport { count: 0, unanswered }).unwrap_err();
        assert_eq!((none.status.as_u16(), &*none.detail), (503, "worker 1 does not answer; try again"));
        let some = closed(CloseReport { count: 2, unanswered }).unwrap_err();
        assert!(some.status == 503 && some.detail.contains("stay open; 2 were closed"), "{some:?}");
    }

    #[test]
    fn ids_and_networks_have_one_form() {
        let written = "00019aa8-1234-7000-8000-c00000002abc";
        assert_eq!(id(written).unwrap().to_string(), written);
        for text in ["", "7", "00019AA8-1234-7000-8000-c00000002abc", "00019aa8123470008000c00000002abc", "é"]
        {
            assert!(id(text).is_none(), "{text}");
        }
        assert_eq!(network("192.0.2.1"), Some(([192, 0, 2, 1].into(), 32)));
        assert_eq!(network("10.0.0.0/8"), Some(([10, 0, 0, 0].into(), 8)));
        assert_eq!(network("::1").map(|(_, prefix)| prefix), Some(128));
        // The client of a dual-stack socket is known by its IPv4 address.
        assert_eq!(network("::ffff:192.0.2.1"), Some(([192, 0, 2, 1].into(), 32)));
        for text in [
            "",
            "x",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/8/8",
            "10.0.0.0/+8",
            "10.1.2.3/8",
            "127.0.0.3/30",
        ] {
            assert!(network(text).is_none(), "{text}");
        }
    }
}
