//! Text for people: the most important columns aligned, the rest as pairs.
//!
//! ```text
//! 2026-11-21T20:51:00.001234Z 192.0.2.1:51234        git.example.org           TLSv1.3 full     517 B in  1.2 MiB out    1.20 s  client_closed -> unix:/run/app.sock alpn=h2 …
//! 2026-11-21T20:51:00.003734Z 192.0.2.1:51234        200     0 B in  18.0 KiB out   8.4 ms  GET https://git.example.org/explore HTTP/2.0 -> unix:/run/app.sock user_agent=…
//! ```

use std::fmt::{Arguments, Display};
use std::io::Write;
use std::time::{Duration, SystemTime};

use super::escape::{bare_or_quoted, sentence};
use super::fields::Field;
use super::logfmt::join;
use super::plain::ShortAscii;
use super::selection::FieldSelection;
use crate::event::Event;
use crate::facts::{
    ByteCounts, Cause, Close, ConnectionFacts, EndpointAddress, FatalAlert, Fault, Mismatch, NameList,
    PathFacts, RequestFacts, TlsFacts, TlsOffer,
};
use crate::timestamp::rfc3339_micros;

/// The first column of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstColumn {
    /// The time, followed by the client.
    Time,
    /// The client only, for receivers that record the time themselves.
    Client,
}

/// Appends the line without its newline.
pub(super) fn write(event: &Event, selection: &FieldSelection, opening: FirstColumn, out: &mut Vec<u8>) {
    let mut line = TextLine { out, selection };
    match event {
        Event::Connection(facts) => line.connection(facts, opening),
        Event::Request(facts) => line.request(facts, opening),
    }
}

/// A line under construction. Writing into a `Vec` cannot fail, so the results of `write!` are dropped.
struct TextLine<'a> {
    out: &'a mut Vec<u8>,
    selection: &'a FieldSelection,
}

impl TextLine<'_> {
    fn connection(&mut self, facts: &ConnectionFacts, opening: FirstColumn) {
        self.open(opening, facts.accepted, &facts.client.address);
        let tls = &facts.tls;
        self.column(Field::Sni, tls.sni.as_deref().unwrap_or("-").as_bytes(), SNI_WIDTH);
        self.column(Field::TlsVersion, tls.version.map_or("-", |version| version.name()).as_bytes(), 7);
        self.column(Field::Resumed, tls.handshake.map_or("-", |kind| kind.name()).as_bytes(), 7);
        self.amounts(facts.traffic, facts.times.total);
        self.shown(Field::Cause, facts.close.cause.name().as_bytes());
        self.blame(&facts.close);
        self.server(&facts.path);
        self.explain(&facts.close);
        if let Some(mismatch) = &facts.mismatch {
            let Mismatch { offered, configured } = &**mismatch;
            self.offer(OFFERED, offered);
            self.offer(CONFIGURED, configured);
        }
        self.way(&facts.listener, facts.client.peer.as_ref(), &facts.path);
        self.agreed(tls);
        self.span(Field::HandshakeUs, "handshake", facts.times.handshake);
        self.span(Field::ConnectUs, "connect", facts.times.connect);
        self.pair(Field::Id, "id", ShortAscii::default().uuid(facts.id));
    }

    fn request(&mut self, facts: &RequestFacts, opening: FirstColumn) {
        let (line, brief) = (&facts.request, &*facts.connection);
        self.open(opening, facts.begun, &facts.client());
        self.column(Field::Status, itoa::Buffer::new().format(facts.status).as_bytes(), 3);
        self.amounts(facts.traffic, facts.times.total);
        self.word(Field::Method, &line.method);
        self.out.push(b' ');
        self.word(Field::Scheme, line.scheme.name());
        self.out.extend_from_slice(b"://");
        self.word(Field::Host, &line.host);
        self.word(Field::Path, line.path());
        if let Some(query) = line.query() {
            self.out.push(b'?');
            self.word(Field::Query, query);
        }
        self.out.push(b' ');
        self.word(Field::Protocol, line.version.name());
        if facts.close.cause != Cause::Completed {
            self.out.extend_from_slice(b"  ");
            self.shown(Field::Cause, facts.close.cause.name().as_bytes());
            self.blame(&facts.close);
        }
        self.server(&facts.path);
        self.explain(&facts.close);
        self.option(Field::Referer, "referer", line.referer.as_deref());
        self.option(Field::UserAgent, "user_agent", line.user_agent.as_deref());
        self.option(Field::User, "user", line.user.as_deref());
        self.way(&brief.listener, facts.peer(), &facts.path);
        if let Some(tls) = &brief.tls {
            self.option(Field::TlsVersion, "tls", tls.version.map(|version| version.name().as_bytes()));
            self.agreed(tls);
        }
        self.span(Field::QueueUs, "queue", facts.times.queue);
        self.span(Field::ConnectUs, "connect", facts.times.connect);
        self.span(Field::FirstByteUs, "first_byte", facts.times.first_byte);
        self.pair(Field::Id, "id", facts.id.as_bytes());
    }

    /// Writes time and client.
    fn open(&mut self, opening: FirstColumn, time: SystemTime, client: &EndpointAddress) {
        if opening == FirstColumn::Time {
            self.shown(Field::Time, &rfc3339_micros(time));
            self.out.push(b' ');
        }
        let start = self.out.len();
        self.address(Field::Client, Field::ClientPort, client);
        self.pad(start, CLIENT_WIDTH);
    }

    /// Writes an address, with its port if that is selected.
    fn address(&mut self, host: Field, port: Field, address: &EndpointAddress) {
        let EndpointAddress::Ip(socket) = address else {
            return self.shown(host, address.to_string().as_bytes());
        };
        let ip = self.selection.address(socket.ip()).to_canonical();
        let (open, close) = if ip.is_ipv6() { ("[", "]") } else { ("", "") };
        let mut room = ShortAscii::default();
        let mut hashed = ShortAscii::default();
        let Some(ip) = self.selection.shown(host, room.ip(ip), &mut hashed) else {
            return self.out.push(b'-');
        };
        self.out.extend_from_slice(open.as_bytes());
        self.out.extend_from_slice(ip);
        self.out.extend_from_slice(close.as_bytes());
        let mut hashed = ShortAscii::default();
        let mut digits = itoa::Buffer::new();
        // An unknown port is 0.
        if socket.port() > 0
            && let Some(port) =
                self.selection.shown(port, digits.format(socket.port()).as_bytes(), &mut hashed)
        {
            self.out.push(b':');
            self.out.extend_from_slice(port);
        }
    }

    /// Writes bytes in both directions and the duration.
    fn amounts(&mut self, traffic: ByteCounts, total: Duration) {
        self.amount(Field::BytesFromClient, 9, format_args!("{}", HumanBytes(traffic.from_client)));
        self.out.extend_from_slice(b" in ");
        self.amount(Field::BytesToClient, 9, format_args!("{}", HumanBytes(traffic.to_client)));
        self.out.extend_from_slice(b" out ");
        self.amount(Field::TotalUs, 7, format_args!("{}", HumanDuration(total)));
        self.out.extend_from_slice(b"  ");
    }

    /// Writes a figure, right-aligned. Rounded figures are not hashed.
    fn amount(&mut self, field: Field, width: usize, value: Arguments<'_>) {
        let start = self.out.len();
        if self.selection.is_written(field) {
            let _ = self.out.write_fmt(value);
        } else {
            self.out.push(b'-');
        }
        let length = self.out.len() - start;
        if length < width {
            self.out.resize(start + width, b' ');
            self.out[start..].rotate_right(width - length);
        }
    }

    /// Writes the fault, if there is one.
    fn blame(&mut self, close: &Close) {
        if close.fault != Fault::Nobody && self.selection.is_written(Field::Fault) {
            let _ = write!(self.out, " ({})", close.fault.name());
        }
    }

    fn server(&mut self, path: &PathFacts) {
        if let Some(server) = &path.server
            && self.selection.is_written(Field::Server)
        {
            self.out.extend_from_slice(b" -> ");
            self.shown(Field::Server, server.as_bytes());
        }
    }

    /// Writes the pairs that explain the end.
    fn explain(&mut self, close: &Close) {
        match close.alert {
            Some(FatalAlert::Sent(alert)) => {
                self.pair(Field::AlertSent, "alert_sent", alert.name().as_bytes());
            }
            Some(FatalAlert::Received(alert)) => {
                self.pair(Field::AlertReceived, "alert_received", alert.name().as_bytes());
            }
            None => {}
        }
        self.option(Field::Detail, "detail", close.detail.as_deref().map(str::as_bytes));
    }

    /// Writes listener, peer and route.
    fn way(&mut self, listener: &str, peer: Option<&EndpointAddress>, path: &PathFacts) {
        self.pair(Field::Listener, "listener", listener.as_bytes());
        if let Some(peer) = peer
            && self.selection.is_written(Field::Peer)
        {
            self.out.extend_from_slice(b" peer=");
            self.address(Field::Peer, Field::PeerPort, peer);
        }
        self.option(Field::Route, "route", path.route.as_deref().map(str::as_bytes));
        self.option(Field::Backend, "backend", path.backend.as_deref().map(str::as_bytes));
        if path.tries > 1 {
            self.pair(Field::Tries, "tries", itoa::Buffer::new().format(path.tries).as_bytes());
        }
    }

    /// Writes the negotiated TLS parameters that have no column.
    fn agreed(&mut self, tls: &TlsFacts) {
        self.option(Field::Ja4, "ja4", tls.ja4.as_ref().map(|ja4| &ja4[..]));
        self.option(Field::Alpn, "alpn", tls.alpn.as_deref());
        self.option(Field::TlsSuite, "suite", tls.suite.map(str::as_bytes));
        self.option(Field::TlsGroup, "group", tls.group.map(str::as_bytes));
        self.option(Field::ClientCn, "client_cn", tls.client_cn.as_deref());
    }

    fn offer(&mut self, keys: [(Field, &str); 5], offer: &TlsOffer) {
        let lists: [&NameList; 5] =
            [&offer.versions, &offer.suites, &offer.groups, &offer.schemes, &offer.alpn];
        for ((field, key), names) in keys.into_iter().zip(lists) {
            if !names.is_empty() {
                self.pair(field, key, &join(names));
            }
        }
    }

    fn span(&mut self, field: Field, key: &str, duration: Option<Duration>) {
        if let Some(duration) = duration
            && self.selection.is_written(field)
        {
            let start = self.out.len();
            let _ = write!(self.out, " {key}={}", HumanDuration(duration));
            // Removes the space before the unit, so that the value is one word.
            if let Some(at) = self.out[start + 1..].iter().position(|&byte| byte == b' ') {
                self.out.remove(start + 1 + at);
            }
        }
    }

    /// Writes a value padded to `width` bytes; longer ones shift the next column.
    fn column(&mut self, field: Field, value: &[u8], width: usize) {
        let start = self.out.len();
        self.shown(field, value);
        self.pad(start, width);
    }

    fn pad(&mut self, start: usize, width: usize) {
        let padded = (start + width).max(self.out.len());
        self.out.resize(padded, b' ');
        self.out.push(b' ');
    }

    fn option(&mut self, field: Field, key: &str, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.pair(field, key, value);
        }
    }

    fn pair(&mut self, field: Field, key: &str, value: &[u8]) {
        if self.selection.is_written(field) {
            self.out.push(b' ');
            self.out.extend_from_slice(key.as_bytes());
            self.out.push(b'=');
            self.shown(field, value);
        }
    }

    /// Writes a part of the request in the form in which it is typed: escapes hostile characters only.
    fn word(&mut self, field: Field, value: &str) {
        let mut room = ShortAscii::default();
        match self.selection.shown(field, value.as_bytes(), &mut room) {
            // The value, or its hash in ASCII.
            Some(shown) => sentence(self.out, std::str::from_utf8(shown).unwrap_or_default()),
            None => self.out.push(b'-'),
        }
    }

    /// Writes a value, or its replacement by the selection.
    fn shown(&mut self, field: Field, value: &[u8]) {
        let mut room = ShortAscii::default();
        match self.selection.shown(field, value, &mut room) {
            Some(value) => bare_or_quoted(self.out, value),
            None => self.out.push(b'-'),
        }
    }
}

const OFFERED: [(Field, &str); 5] = [
    (Field::OfferedVersions, "offered_versions"),
    (Field::OfferedSuites, "offered_suites"),
    (Field::OfferedGroups, "offered_groups"),
    (Field::OfferedSchemes, "offered_schemes"),
    (Field::OfferedAlpn, "offered_alpn"),
];
const CONFIGURED: [(Field, &str); 5] = [
    (Field::ConfiguredVersions, "configured_versions"),
    (Field::ConfiguredSuites, "configured_suites"),
    (Field::ConfiguredGroups, "configured_groups"),
    (Field::ConfiguredSchemes, "configured_schemes"),
    (Field::ConfiguredAlpn, "configured_alpn"),
];

/// Bytes in human-readable form: `517 B`, `1.2 MiB`.
pub(super) struct HumanBytes(pub(super) u64);

impl Display for HumanBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let (mut value, mut unit) = (self.0 as f64 / 1024.0, 0);
        // From 1000 on the number would be a digit wider.
        while value >= 999.95 {
            value /= 1024.0;
            unit += 1;
        }
        // 2^64 bytes are 16 EiB, so the last unit suffices.
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

/// A duration in human-readable form: `312 us`, `1.20 s`, `2h03m`.
pub(super) struct HumanDuration(pub(super) Duration);

impl Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (micros, seconds) = (self.0.as_micros(), self.0.as_secs());
        match seconds {
            0 if micros < 1000 => write!(f, "{micros} us"),
            0 => write!(f, "{}.{} ms", micros / 1000, micros / 100 % 10),
            1..60 => write!(f, "{seconds}.{:02} s", micros / 10_000 % 100),
            60..3600 => write!(f, "{}m{:02}s", seconds / 60, seconds % 60),
            _ => write!(f, "{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        }
    }
}

/// The width of the longest IPv4 address with its port, `255.255.255.255:65535`.
const CLIENT_WIDTH: usize = 21;
const SNI_WIDTH: usize = 24;

#[cfg(test)]
mod tests {
    use super::{HumanBytes, HumanDuration};
    use std::time::Duration;

    #[test]
    fn sizes_fit_their_column() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (1_048_524, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(HumanBytes(bytes).to_string(), expected);
        }
        for shift in 0..64 {
            assert!(HumanBytes((1 << shift) - 1).to_string().len() <= 9);
        }
    }

    #[test]
    fn spans_read_well() {
        let cases = [
            (0, "0 us"),
            (999, "999 us"),
            (1_234, "1.2 ms"),
            (1_204_999, "1.20 s"),
            (59_999_999, "59.99 s"),
            (192_000_000, "3m12s"),
            (7_380_000_000, "2h03m"),
        ];
        for (micros, expected) in cases {
            assert_eq!(HumanDuration(Duration::from_micros(micros)).to_string(), expected);
        }
    }
}
