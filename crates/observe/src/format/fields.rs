//! The fields of an event, once: key, type, meaning, and the walk that fills them.
//!
//! Keys are a contract with users' queries: a field may be added, a key never changes its name or meaning.
//! Absent values are left out. The table in `docs/events.md` derives from here.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use crate::facts::{Address, Alert, ConnectionFacts, Handshake, NameList, Offer};

/// One field of an event.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The key, in `snake_case`.
    pub key: &'static str,
    /// The type of its values.
    pub kind: FieldKind,
    /// What it means.
    pub meaning: &'static str,
}

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A point in time, RFC 3339 in UTC with microseconds.
    Time,
    /// Text.
    Text,
    /// An integer that is not negative.
    Number,
    /// `true` or `false`.
    Flag,
    /// A list of texts; in logfmt they are joined by commas.
    List,
}

impl FieldKind {
    /// The word for it in the documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Text => "text",
            Self::Number => "number",
            Self::Flag => "flag",
            Self::List => "list",
        }
    }
}

macro_rules! fields {
    ($($constant:ident, $key:literal, $kind:ident, $meaning:literal;)+) => {
        $(const $constant: Field = Field { key: $key, kind: FieldKind::$kind, meaning: $meaning };)+

        /// Every field, in the order in which an event has them.
        pub const FIELDS: &[Field] = &[$($constant),+];
    };
}

fields! {
    TIME, "time", Time, "When the connection was accepted.";
    EVENT, "event", Text, "`connection`.";
    ID, "id", Text, "Unique id of the connection, a UUID of version 7; sorts by time. Servers get the same id in the PROXY v2 header.";
    WORKER, "worker", Number, "The worker that served the connection, from 0.";
    LISTENER, "listener", Text, "The listener's name.";
    CLIENT, "client", Text, "The client's IP address, or `unix`; from a believed PROXY header where there is one.";
    CLIENT_PORT, "client_port", Number, "The client's port.";
    PEER, "peer", Text, "Who really connected, where a PROXY header named somebody else as the client.";
    PEER_PORT, "peer_port", Number, "The peer's port.";
    SNI, "sni", Text, "The server name that the client asked for.";
    ALPN, "alpn", Text, "The application protocol agreed upon.";
    TLS_VERSION, "tls_version", Text, "`TLSv1.2` or `TLSv1.3`.";
    TLS_SUITE, "tls_suite", Text, "The cipher suite, by its IANA name.";
    TLS_GROUP, "tls_group", Text, "The key-exchange group, by its IANA name.";
    TLS_SCHEME, "tls_scheme", Text, "The scheme of the server's signature, by its IANA name.";
    RESUMED, "resumed", Flag, "Whether the handshake resumed an earlier session; absent if it was not completed.";
    CLIENT_CN, "client_cn", Text, "Common name of the client certificate's subject.";
    ROUTE, "route", Text, "The route that matched.";
    BACKEND, "backend", Text, "The backend of the route.";
    SERVER, "server", Text, "The server that was connected to, or tried last.";
    TRIES, "tries", Number, "Attempts to connect to servers; absent if there was none.";
    BYTES_FROM_CLIENT, "bytes_from_client", Number, "Bytes of plaintext from the client to the server.";
    BYTES_TO_CLIENT, "bytes_to_client", Number, "Bytes of plaintext from the server to the client.";
    HANDSHAKE_US, "handshake_us", Number, "Duration of the handshake, in microseconds.";
    CONNECT_US, "connect_us", Number, "Time until a server was connected, failed tries included, in microseconds.";
    TOTAL_US, "total_us", Number, "Time from accept to the end, in microseconds.";
    CAUSE, "cause", Text, "Why the connection ended: see the causes.";
    FAULT, "fault", Text, "Whose fault it was: `client`, `server`, `us`, `policy` or `nobody`.";
    ALERT_SENT, "alert_sent", Text, "The fatal TLS alert that went to the client.";
    ALERT_RECEIVED, "alert_received", Text, "The fatal TLS alert that came from the client.";
    DETAIL, "detail", Text, "What the system or a library said.";
    OFFERED_VERSIONS, "offered_versions", List, "For a failed handshake: the TLS versions that the client offered.";
    OFFERED_SUITES, "offered_suites", List, "The cipher suites that the client offered.";
    OFFERED_GROUPS, "offered_groups", List, "The key-exchange groups that the client offered.";
    OFFERED_SCHEMES, "offered_schemes", List, "The signature schemes that the client offered.";
    OFFERED_ALPN, "offered_alpn", List, "The application protocols that the client offered.";
    CONFIGURED_VERSIONS, "configured_versions", List, "For a failed handshake: the TLS versions that are configured.";
    CONFIGURED_SUITES, "configured_suites", List, "The cipher suites that are configured.";
    CONFIGURED_GROUPS, "configured_groups", List, "The key-exchange groups that are configured.";
    CONFIGURED_SCHEMES, "configured_schemes", List, "The signature schemes that are configured.";
    CONFIGURED_ALPN, "configured_alpn", List, "The application protocols that are configured.";
}

/// Writes the fields that an event has, in order.
pub(super) trait FieldWriter {
    /// A point in time.
    fn time(&mut self, field: &Field, time: SystemTime);
    /// Any bytes.
    fn text(&mut self, field: &Field, text: &[u8]);
    /// Something whose text is known to need no escapes in any format.
    fn plain(&mut self, field: &Field, value: &dyn Display);
    /// A number.
    fn number(&mut self, field: &Field, number: u64);
    /// True or false.
    fn flag(&mut self, field: &Field, flag: bool);
    /// Names, of which some may have been omitted.
    fn list(&mut self, field: &Field, names: &NameList);
}

/// Walks over all fields that `facts` have.
pub(super) fn visit(facts: &ConnectionFacts, to: &mut impl FieldWriter) {
    to.time(&TIME, facts.accepted);
    to.plain(&EVENT, &"connection");
    to.plain(&ID, &facts.id);
    to.number(&WORKER, facts.worker.into());
    to.text(&LISTENER, facts.listener.as_bytes());
    address(to, &facts.client.address, &CLIENT, &CLIENT_PORT);
    if let Some(peer) = &facts.client.peer {
        address(to, peer, &PEER, &PEER_PORT);
    }
    tls(facts, to);
    path_and_traffic(facts, to);
    micros(to, &HANDSHAKE_US, facts.times.handshake);
    micros(to, &CONNECT_US, facts.times.connect);
    micros(to, &TOTAL_US, Some(facts.times.total));
    close(facts, to);
}

fn address(to: &mut impl FieldWriter, address: &Address, host: &Field, port: &Field) {
    match address {
        Address::Ip(address) => {
            to.plain(host, &address.ip().to_canonical());
            to.number(port, address.port().into());
        }
        Address::Unix(None) => to.plain(host, &"unix"),
        Address::Unix(Some(_)) => to.text(host, address.to_string().as_bytes()),
    }
}

fn tls(facts: &ConnectionFacts, to: &mut impl FieldWriter) {
    let tls = &facts.tls;
    bytes(to, &SNI, tls.sni.as_deref().map(str::as_bytes));
    bytes(to, &ALPN, tls.alpn.as_deref());
    bytes(to, &TLS_VERSION, tls.version.map(|version| version.name().as_bytes()));
    bytes(to, &TLS_SUITE, tls.suite.map(str::as_bytes));
    bytes(to, &TLS_GROUP, tls.group.map(str::as_bytes));
    bytes(to, &TLS_SCHEME, tls.scheme.map(str::as_bytes));
    if let Some(kind) = tls.handshake {
        to.flag(&RESUMED, kind == Handshake::Resumed);
    }
    bytes(to, &CLIENT_CN, tls.client_cn.as_deref());
}

fn path_and_traffic(facts: &ConnectionFacts, to: &mut impl FieldWriter) {
    let path = &facts.path;
    bytes(to, &ROUTE, path.route.as_deref().map(str::as_bytes));
    bytes(to, &BACKEND, path.backend.as_deref().map(str::as_bytes));
    bytes(to, &SERVER, path.server.as_deref().map(str::as_bytes));
    if path.tries > 0 {
        to.number(&TRIES, path.tries.into());
    }
    to.number(&BYTES_FROM_CLIENT, facts.traffic.from_client);
    to.number(&BYTES_TO_CLIENT, facts.traffic.to_client);
}

fn close(facts: &ConnectionFacts, to: &mut impl FieldWriter) {
    let close = &facts.close;
    to.plain(&CAUSE, &close.cause.name());
    to.plain(&FAULT, &close.fault.name());
    match close.alert {
        Some(Alert::Sent(name)) => to.text(&ALERT_SENT, name.as_bytes()),
        Some(Alert::Received(name)) => to.text(&ALERT_RECEIVED, name.as_bytes()),
        None => {}
    }
    bytes(to, &DETAIL, close.detail.as_deref().map(str::as_bytes));
    if let Some(mismatch) = &facts.mismatch {
        offer(to, &mismatch.offered, OFFERED);
        offer(to, &mismatch.configured, CONFIGURED);
    }
}

fn offer(to: &mut impl FieldWriter, offer: &Offer, fields: [&Field; 5]) {
    let lists = [&offer.versions, &offer.suites, &offer.groups, &offer.schemes, &offer.alpn];
    for (field, list) in fields.into_iter().zip(lists) {
        if !list.is_empty() {
            to.list(field, list);
        }
    }
}

fn bytes(to: &mut impl FieldWriter, field: &Field, value: Option<&[u8]>) {
    if let Some(value) = value {
        to.text(field, value);
    }
}

fn micros(to: &mut impl FieldWriter, field: &Field, duration: Option<Duration>) {
    if let Some(duration) = duration {
        to.number(field, u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }
}

const OFFERED: [&Field; 5] =
    [&OFFERED_VERSIONS, &OFFERED_SUITES, &OFFERED_GROUPS, &OFFERED_SCHEMES, &OFFERED_ALPN];
const CONFIGURED: [&Field; 5] =
    [&CONFIGURED_VERSIONS, &CONFIGURED_SUITES, &CONFIGURED_GROUPS, &CONFIGURED_SCHEMES, &CONFIGURED_ALPN];
