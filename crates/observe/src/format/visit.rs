//! The walk over the fields of an event, in order. Formats with one entry per field (JSON, logfmt, journald)
//! are [`FieldWriter`]s, so they always hold the same facts.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::fields::Field;
use super::plain::ShortAscii;
use crate::event::Event;
use crate::facts::{
    ByteCounts, ClientFacts, Close, ConnectionFacts, EndpointAddress, FatalAlert, Handshake, NameList,
    PathFacts, RequestFacts, TlsFacts, TlsOffer,
};

/// A format that takes the fields of an event one by one, in order.
pub(super) trait FieldWriter {
    /// Writes a point in time.
    fn time(&mut self, field: Field, time: SystemTime);
    /// Writes arbitrary bytes, to be escaped.
    fn text(&mut self, field: Field, text: &[u8]);
    /// Writes text that needs no escapes in any format: Offramp's own words, addresses, ids.
    fn plain(&mut self, field: Field, text: &[u8]);
    /// Writes an IP address.
    #[inline]
    fn address(&mut self, field: Field, address: IpAddr) {
        self.plain(field, ShortAscii::default().ip(address));
    }
    /// Writes an unsigned integer.
    fn number(&mut self, field: Field, number: u64);
    /// Writes a boolean value.
    fn flag(&mut self, field: Field, flag: bool);
    /// Writes a list of names and the number of those omitted.
    fn list(&mut self, field: Field, names: &NameList);
}

/// Presents all fields of an event to `to`.
pub(super) fn event(event: &Event, to: &mut impl FieldWriter) {
    match event {
        Event::Connection(facts) => connection(facts, to),
        Event::Request(facts) => request(facts, to),
    }
}

fn connection(facts: &ConnectionFacts, to: &mut impl FieldWriter) {
    to.time(Field::Time, facts.accepted);
    to.plain(Field::Event, b"connection");
    to.plain(Field::Id, ShortAscii::default().uuid(facts.id));
    to.number(Field::Worker, facts.worker.into());
    to.text(Field::Listener, facts.listener.as_bytes());
    client(&facts.client, to);
    tls(&facts.tls, to);
    way(&facts.path, to);
    traffic(facts.traffic, to);
    micros(to, Field::HandshakeUs, facts.times.handshake);
    micros(to, Field::ConnectUs, facts.times.connect);
    micros(to, Field::TotalUs, Some(facts.times.total));
    close(&facts.close, to);
    if let Some(mismatch) = &facts.mismatch {
        offer(to, &mismatch.offered, OFFERED);
        offer(to, &mismatch.configured, CONFIGURED);
    }
}

fn request(facts: &RequestFacts, to: &mut impl FieldWriter) {
    let brief = &*facts.connection;
    to.time(Field::Time, facts.begun);
    to.plain(Field::Event, b"request");
    to.text(Field::Id, facts.id.as_bytes());
    to.plain(Field::Connection, ShortAscii::default().uuid(brief.id));
    to.number(Field::Worker, brief.worker.into());
    to.text(Field::Listener, brief.listener.as_bytes());
    match facts.named {
        Some(named) => to.address(Field::Client, named),
        None => address(to, &brief.client.address, Field::Client, Field::ClientPort),
    }
    if let Some(peer) = facts.peer() {
        address(to, peer, Field::Peer, Field::PeerPort);
    }
    let line = &facts.request;
    to.text(Field::Method, line.method.as_bytes());
    to.plain(Field::Scheme, line.scheme.name().as_bytes());
    to.text(Field::Host, line.host.as_bytes());
    let (path, query) = line.path_and_query();
    to.text(Field::Path, path.as_bytes());
    bytes(to, Field::Query, query.map(str::as_bytes));
    to.plain(Field::Protocol, line.version.name().as_bytes());
    to.number(Field::Status, facts.status.into());
    bytes(to, Field::Referer, line.referer.as_deref());
    bytes(to, Field::UserAgent, line.user_agent.as_deref());
    bytes(to, Field::User, line.user.as_deref());
    if let Some(agreed) = &brief.tls {
        tls(agreed, to);
    }
    way(&facts.path, to);
    traffic(facts.traffic, to);
    micros(to, Field::QueueUs, facts.times.queue);
    micros(to, Field::ConnectUs, facts.times.connect);
    micros(to, Field::FirstByteUs, facts.times.first_byte);
    micros(to, Field::TotalUs, Some(facts.times.total));
    close(&facts.close, to);
    if let Some(trace) = &facts.trace {
        to.plain(Field::TraceId, ShortAscii::default().hex(trace.id, 32));
        to.plain(Field::SpanId, ShortAscii::default().hex(trace.span.into(), 16));
    }
}

#[inline]
fn client(client: &ClientFacts, to: &mut impl FieldWriter) {
    address(to, &client.address, Field::Client, Field::ClientPort);
    if let Some(peer) = &client.peer {
        address(to, peer, Field::Peer, Field::PeerPort);
    }
}

#[inline]
fn address(to: &mut impl FieldWriter, address: &EndpointAddress, host: Field, port: Field) {
    match address {
        EndpointAddress::Ip(address) => {
            to.address(host, address.ip());
            to.number(port, address.port().into());
        }
        EndpointAddress::Unix(None) => to.plain(host, b"unix"),
        // The rare case of a client socket with a path.
        EndpointAddress::Unix(Some(_)) => to.text(host, address.to_string().as_bytes()),
    }
}

#[inline]
fn tls(tls: &TlsFacts, to: &mut impl FieldWriter) {
    bytes(to, Field::Sni, tls.sni.as_deref().map(str::as_bytes));
    if let Some(ja4) = &tls.ja4 {
        to.plain(Field::Ja4, ja4);
    }
    bytes(to, Field::Alpn, tls.alpn.as_deref());
    word(to, Field::TlsVersion, tls.version.map(crate::facts::TlsVersion::name));
    word(to, Field::TlsSuite, tls.suite);
    word(to, Field::TlsGroup, tls.group);
    word(to, Field::TlsScheme, tls.scheme);
    if let Some(kind) = tls.handshake {
        to.flag(Field::Resumed, kind == Handshake::Resumed);
    }
    bytes(to, Field::ClientCn, tls.client_cn.as_deref());
}

#[inline]
fn way(path: &PathFacts, to: &mut impl FieldWriter) {
    bytes(to, Field::Route, path.route.as_deref().map(str::as_bytes));
    bytes(to, Field::Backend, path.backend.as_deref().map(str::as_bytes));
    bytes(to, Field::Server, path.server.as_deref().map(str::as_bytes));
    if path.tries > 0 {
        to.number(Field::Tries, path.tries.into());
    }
}

#[inline]
fn traffic(traffic: ByteCounts, to: &mut impl FieldWriter) {
    to.number(Field::BytesFromClient, traffic.from_client);
    to.number(Field::BytesToClient, traffic.to_client);
}

#[inline]
fn close(close: &Close, to: &mut impl FieldWriter) {
    to.plain(Field::Cause, close.cause.name().as_bytes());
    to.plain(Field::Fault, close.fault.name().as_bytes());
    match close.alert {
        Some(FatalAlert::Sent(alert)) => to.plain(Field::AlertSent, alert.name().as_bytes()),
        Some(FatalAlert::Received(alert)) => to.plain(Field::AlertReceived, alert.name().as_bytes()),
        None => {}
    }
    bytes(to, Field::Detail, close.detail.as_deref().map(str::as_bytes));
}

fn offer(to: &mut impl FieldWriter, offer: &TlsOffer, fields: [Field; 5]) {
    let lists = [&offer.versions, &offer.suites, &offer.groups, &offer.schemes, &offer.alpn];
    for (field, list) in fields.into_iter().zip(lists) {
        if !list.is_empty() {
            to.list(field, list);
        }
    }
}

#[inline]
fn bytes(to: &mut impl FieldWriter, field: Field, value: Option<&[u8]>) {
    if let Some(value) = value {
        to.text(field, value);
    }
}

/// Writes an IANA name, or `0x1a2b` for a code point without one.
#[inline]
fn word(to: &mut impl FieldWriter, field: Field, value: Option<&str>) {
    if let Some(value) = value {
        to.plain(field, value.as_bytes());
    }
}

#[inline]
fn micros(to: &mut impl FieldWriter, field: Field, duration: Option<Duration>) {
    if let Some(duration) = duration {
        to.number(field, saturating_micros(duration));
    }
}

/// Microseconds without 128-bit arithmetic; 64 bits last for 584,542 years.
#[inline]
fn saturating_micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}

const OFFERED: [Field; 5] = [
    Field::OfferedVersions,
    Field::OfferedSuites,
    Field::OfferedGroups,
    Field::OfferedSchemes,
    Field::OfferedAlpn,
];
const CONFIGURED: [Field; 5] = [
    Field::ConfiguredVersions,
    Field::ConfiguredSuites,
    Field::ConfiguredGroups,
    Field::ConfiguredSchemes,
    Field::ConfiguredAlpn,
];
