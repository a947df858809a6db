//! Conversion of the proxy's events to entries of the log store.

use offramp_observe::facts::{EndpointAddress, TlsFacts};
use offramp_observe::{ConnectionFacts, Event, Fault, RequestFacts};

use crate::entry::{LogEntry, PhasePart, ProxyPart, RequestPart, ResponsePart};
use crate::time::micros;

/// Converts an event of either kind.
#[must_use]
pub fn entry(event: &Event) -> LogEntry<'_> {
    match event {
        Event::Connection(facts) => connection(facts),
        Event::Request(facts) => request(facts),
    }
}

/// Converts the record of a request.
#[must_use]
pub fn request(facts: &RequestFacts) -> LogEntry<'_> {
    let (path, query) = facts.request.path_and_query();
    let tls = facts.connection.tls.as_ref();
    LogEntry {
        time_us: micros(facts.begun),
        host: Some(facts.request.host.as_bytes()).filter(|host| !host.is_empty()),
        client: facts.client_ip(),
        request: RequestPart {
            method: Some(facts.request.method.as_bytes()),
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            protocol: Some(facts.request.version.name().as_bytes()),
        },
        response: ResponsePart {
            status: facts.status,
            bytes: facts.traffic.to_client,
            received: Some(facts.traffic.from_client),
            duration_us: (!facts.is_open_ended).then(|| duration(facts.times.total)),
        },
        phases: PhasePart {
            queue_us: facts.times.queue.map(duration),
            connect_us: facts.times.connect.map(duration),
            first_byte_us: facts.times.first_byte.map(duration),
        },
        referer: facts.request.referer.as_deref(),
        agent: facts.request.user_agent.as_deref(),
        user: facts.request.user.as_deref(),
        proxy: ProxyPart {
            route: facts.path.route.as_deref().map(str::as_bytes),
            server: facts.path.server.as_deref().map(str::as_bytes),
            tls: tls.and_then(version),
            id: Some(facts.id.as_bytes()),
            cause: (facts.close.fault != Fault::Nobody).then(|| facts.close.cause.name().as_bytes()),
        },
    }
}

/// Converts a connection that was relayed opaquely, or ended without a request: its host is the SNI name, and
/// it has neither method nor path. A failure is in `cause`.
#[must_use]
pub fn connection(facts: &ConnectionFacts) -> LogEntry<'_> {
    let client = match &facts.client.address {
        EndpointAddress::Ip(address) => Some(address.ip().to_canonical()),
        EndpointAddress::Unix(_) => None,
    };
    LogEntry {
        time_us: micros(facts.accepted),
        host: facts.tls.sni.as_deref().map(str::as_bytes),
        client,
        response: ResponsePart {
            status: 0,
            bytes: facts.traffic.to_client,
            received: Some(facts.traffic.from_client),
            duration_us: Some(duration(facts.times.total)),
        },
        proxy: ProxyPart {
            route: facts.path.route.as_deref().map(str::as_bytes),
            server: facts.path.server.as_deref().map(str::as_bytes),
            tls: version(&facts.tls),
            id: None,
            cause: (facts.close.fault != Fault::Nobody).then(|| facts.close.cause.name().as_bytes()),
        },
        ..LogEntry::default()
    }
}

fn version(tls: &TlsFacts) -> Option<&[u8]> {
    tls.version.map(|version| version.name().as_bytes())
}

fn duration(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use offramp_observe::facts::{ClientScheme, HttpVersion, RequestSummary};
    use offramp_observe::{Cause, Close, ConnectionBrief, IdSource};

    use super::*;

    fn facts() -> ConnectionFacts {
        let client: std::net::SocketAddr = "[::ffff:192.0.2.1]:443".parse().unwrap();
        let begun = UNIX_EPOCH + Duration::from_micros(7);
        let id = IdSource::new(0, 0).next(begun);
        let mut facts = ConnectionFacts::new(id, 0, "web".into(), begun, client.into());
        facts.tls.sni = Some("a.test".into());
        facts.traffic.to_client = 5;
        facts.times.total = Duration::from_millis(2);
        facts
    }

    #[test]
    fn a_request_is_kept_as_it_was_routed() {
        let line = RequestSummary {
            method: "GET".into(),
            scheme: ClientScheme::Https,
            host: "b.test".into(),
            target: "/a?b".into(),
            version: HttpVersion::Http2,
            referer: None,
            user_agent: Some(b"curl"[..].into()),
            user: None,
        };
        let brief = Arc::new(ConnectionBrief::from(&facts()));
        let mut facts = RequestFacts::new("id-1".into(), brief, UNIX_EPOCH + Duration::from_secs(1), line);
        (facts.status, facts.close) = (200, Close::from(Cause::Completed));
        facts.times.first_byte = Some(Duration::from_millis(3));
        let event = Event::from(Box::new(facts));
        let entry = entry(&event);
        assert_eq!((entry.time_us, entry.host), (1_000_000, Some(&b"b.test"[..])));
        assert_eq!((entry.request.path, entry.request.query), (&b"/a"[..], Some(&b"b"[..])));
        assert_eq!(entry.client, Some([192, 0, 2, 1].into()));
        assert_eq!((entry.proxy.id, entry.proxy.cause), (Some(&b"id-1"[..]), None));
        assert_eq!(entry.request.protocol, Some(&b"HTTP/2.0"[..]));
        assert_eq!(entry.response.duration_us, Some(0));
        assert_eq!(entry.phases, PhasePart { first_byte_us: Some(3000), ..PhasePart::default() });
        let Event::Request(mut facts) = event else { unreachable!() };
        (facts.is_open_ended, facts.close) = (true, Close::from(Cause::ClientLeft));
        let open_ended = request(&facts);
        assert_eq!((open_ended.response.duration_us, open_ended.proxy.cause), (None, None));
    }

    #[test]
    fn a_connection_has_its_server_name_and_no_method() {
        let facts = facts();
        let entry = connection(&facts);
        assert_eq!((entry.time_us, entry.host), (7, Some(&b"a.test"[..])));
        assert_eq!((entry.request.method, entry.request.path), (None, &b""[..]));
        assert_eq!((entry.response.bytes, entry.response.duration_us), (5, Some(2000)));
        assert_eq!(entry.proxy.cause, Some(Cause::Internal.name().as_bytes()), "an end that nobody named");
    }
}
