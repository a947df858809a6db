//! Events for a person at a terminal: one line of at most [`COLUMNS`] columns each.
//!
//! ```text
//! 20:51:00.003Z 192.0.2.1       200  18.0 KiB  8.4 ms GET git.example.org/explore
//! 20:51:00.001Z 192.0.2.1       unknown_ca: the client does not trust it; run `offramp ca`
//! ```
//!
//! A request shows time, client, status, bytes of the response, duration, method, host and path. A connection
//! that failed before it carried data shows the cause and advice. The other formats have everything else.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::escape::sentence;
use super::fields::Field;
use super::plain::ShortAscii;
use super::selection::FieldSelection;
use super::text::{HumanBytes, HumanDuration};
use crate::event::Event;
use crate::facts::{Alert, Cause, Close, ConnectionFacts, EndpointAddress, FatalAlert, Fault, RequestFacts};
use crate::timestamp::rfc3339_micros;

/// The maximum width of a line.
pub(super) const COLUMNS: usize = 100;

/// Appends the line without its newline.
pub(super) fn write(event: &Event, selection: &FieldSelection, out: &mut Vec<u8>) {
    let start = out.len();
    let mut line = TerminalLine { out, selection };
    match event {
        Event::Request(facts) => line.request(facts),
        Event::Connection(facts) => line.connection(facts),
    }
    cut(out, start, COLUMNS);
}

/// A line under construction. Writing into a `Vec` cannot fail, so the results of `write!` are dropped.
struct TerminalLine<'a> {
    out: &'a mut Vec<u8>,
    selection: &'a FieldSelection,
}

impl TerminalLine<'_> {
    fn request(&mut self, facts: &RequestFacts) {
        let line = &facts.request;
        self.time(facts.begun);
        self.client(&facts.client(), IPV6_WIDTH);
        self.shown(Field::Status, itoa::Buffer::new().format(facts.status));
        self.size(Field::BytesToClient, facts.traffic.to_client);
        self.duration(facts.times.total);
        if facts.close.cause != Cause::Completed {
            self.out.push(b' ');
            self.shown(Field::Cause, facts.close.cause.name());
            match question(facts.close.cause) {
                Some(question) => self.sentence(&[": ", question]),
                None => self.fault(&facts.close),
            }
        }
        self.out.push(b' ');
        self.shown(Field::Method, &line.method);
        self.out.push(b' ');
        self.shown(Field::Host, &line.host);
        self.shown(Field::Path, line.path());
        if let Some(query) = line.query().filter(|_| self.selection.is_written(Field::Query)) {
            self.out.push(b'?');
            self.shown(Field::Query, query);
        }
    }

    fn connection(&mut self, facts: &ConnectionFacts) {
        self.time(facts.accepted);
        let served = facts.tls.handshake.is_some() || facts.path.server.is_some();
        let advice = advice(&facts.close);
        if advice.is_some() || (!served && facts.close.fault != Fault::Nobody) {
            return self.failure(facts, advice);
        }
        self.client(&facts.client.address, IPV6_WIDTH);
        self.size(Field::BytesFromClient, facts.traffic.from_client);
        self.out.extend_from_slice(b" in");
        self.size(Field::BytesToClient, facts.traffic.to_client);
        self.out.extend_from_slice(b" out");
        self.duration(facts.times.total);
        self.out.push(b' ');
        self.shown(Field::Cause, facts.close.cause.name());
        self.fault(&facts.close);
        self.name(facts);
    }

    /// Writes cause and advice of a failed connection. The advice has precedence over a long client address.
    fn failure(&mut self, facts: &ConnectionFacts, advice: Option<&str>) {
        let mut text = Vec::new();
        let mut line = TerminalLine { out: &mut text, selection: self.selection };
        line.shown(Field::Cause, reason(&facts.close));
        match (advice, &facts.close.detail) {
            (Some(advice), _) => line.sentence(&[": ", advice]),
            (None, Some(detail)) if self.selection.is_written(Field::Detail) => {
                line.sentence(&[": ", detail]);
            }
            (None, _) => line.fault(&facts.close),
        }
        let start = self.out.len();
        let room = COLUMNS.saturating_sub(TIME_WIDTH + 2 + columns(&text));
        self.client(&facts.client.address, room.clamp(CLIENT_WIDTH, IPV6_WIDTH));
        self.out.extend_from_slice(&text);
        // Left out rather than cutting the end of the advice.
        if TIME_WIDTH + 1 + columns(&self.out[start..]) + NAME_WIDTH <= COLUMNS {
            self.name(facts);
        }
    }

    /// `20:51:00.001Z `: without the date, and in UTC like other lines on the terminal.
    fn time(&mut self, time: SystemTime) {
        let text = rfc3339_micros(time);
        // Hours to milliseconds, always ASCII.
        self.shown(Field::Time, std::str::from_utf8(&text[11..23]).unwrap_or_default());
        self.out.extend_from_slice(b"Z ");
    }

    /// Writes the address without its port, padded, and cut to `room` columns.
    fn client(&mut self, client: &EndpointAddress, room: usize) {
        let start = self.out.len();
        match client {
            EndpointAddress::Ip(socket) => {
                let ip: IpAddr = self.selection.address(socket.ip());
                let mut plain = ShortAscii::default();
                // IP addresses are ASCII.
                self.shown(Field::Client, std::str::from_utf8(plain.ip(ip)).unwrap_or_default());
            }
            EndpointAddress::Unix(_) => self.shown(Field::Client, "unix"),
        }
        cut(self.out, start, room);
        let padded = (start + CLIENT_WIDTH).max(self.out.len());
        self.out.resize(padded, b' ');
        self.out.push(b' ');
    }

    fn size(&mut self, field: Field, bytes: u64) {
        match self.selection.is_written(field) {
            true => drop(write!(self.out, " {:>8}", HumanBytes(bytes).to_string())),
            false => self.out.extend_from_slice(b" -"),
        }
    }

    fn duration(&mut self, total: Duration) {
        match self.selection.is_written(Field::TotalUs) {
            true => drop(write!(self.out, " {:>7}", HumanDuration(total).to_string())),
            false => self.out.extend_from_slice(b" -"),
        }
    }

    /// Writes the fault, if there is one.
    fn fault(&mut self, close: &Close) {
        if close.fault != Fault::Nobody && self.selection.is_written(Field::Fault) {
            self.sentence(&[" (", close.fault.name(), ")"]);
        }
    }

    /// Writes the SNI name.
    fn name(&mut self, facts: &ConnectionFacts) {
        if let Some(name) = facts.tls.sni.as_deref().filter(|_| self.selection.is_written(Field::Sni)) {
            self.out.extend_from_slice(b" [");
            self.shown(Field::Sni, name);
            self.out.push(b']');
        }
    }

    fn sentence(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| sentence(self.out, part));
    }

    /// Writes a value or its replacement by the selection, with only hostile characters escaped.
    fn shown(&mut self, field: Field, value: &str) {
        let mut room = ShortAscii::default();
        match self.selection.shown(field, value.as_bytes(), &mut room) {
            // The value, or its hash in ASCII.
            Some(shown) => sentence(self.out, std::str::from_utf8(shown).unwrap_or_default()),
            None => self.out.push(b'-'),
        }
    }
}

/// The most specific name of the failure: an alert from the client says more than the cause.
fn reason(close: &Close) -> &'static str {
    match (close.cause, close.alert) {
        (Cause::HandshakeAlert, Some(FatalAlert::Received(alert))) => alert.name(),
        (Cause::HandshakeFailed, Some(FatalAlert::Sent(alert))) => alert.name(),
        (cause, _) => cause.name(),
    }
}

/// The operator's first check for a request without a server; short, because the request follows.
fn question(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::ServerRefused => "is it running?",
        Cause::ServerUnreachable => "is its address right?",
        Cause::AllServersFailed => "are they running?",
        Cause::ConnectTimeout => "is it busy?",
        _ => return None,
    })
}

/// Advice for preventable ends.
fn advice(close: &Close) -> Option<&'static str> {
    let distrust = "the client does not trust it; run `offramp ca`";
    let other_offer = "no offer in common; log level debug shows both";
    Some(match close.cause {
        Cause::HandshakeAlert => match close.alert {
            Some(FatalAlert::Received(
                Alert::UNKNOWN_CA | Alert::CERTIFICATE_UNKNOWN | Alert::BAD_CERTIFICATE,
            )) => distrust,
            Some(FatalAlert::Received(Alert::CERTIFICATE_EXPIRED)) => {
                "renew the certificate, or set the clock"
            }
            Some(FatalAlert::Received(
                Alert::HANDSHAKE_FAILURE | Alert::PROTOCOL_VERSION | Alert::INSUFFICIENT_SECURITY,
            )) => "the client wants other TLS; see log level debug",
            _ => "the client refused the handshake",
        },
        Cause::HandshakeAbandoned => "does the client trust it? `offramp ca`",
        Cause::PlainHttp => "the client spoke plain HTTP; open https:// instead",
        Cause::NotTls => "the client does not speak TLS; check its settings",
        Cause::UnknownName => "no certificate covers the name; add one",
        Cause::NoRoute => "add a route for the name, or one without `host`",
        Cause::NoCommonVersion => "the client is too old, or tls.policy too strict",
        Cause::NoCommonSuite | Cause::NoCommonGroup | Cause::NoCommonScheme => other_offer,
        Cause::NoCommonAlpn => "add the client's protocol to `alpn` of the route",
        Cause::ClientCertificateMissing => "give the client a certificate",
        Cause::ClientCertificateExpired => "renew it, or set the clock",
        Cause::ClientCertificateNotYetValid => "is the clock right?",
        Cause::ClientCertificateRevoked => "the client needs a new certificate",
        Cause::ClientCertificateUnknownIssuer => "add its issuer to `ca`",
        Cause::ClientCertificateWrongPurpose => "issue one with clientAuth",
        Cause::ClientCertificateRejected => "see `detail` of the event",
        Cause::ClientCertificateNotAllowed => "add its name to `allow`",
        Cause::TlsRequired => "have the client ask for TLS: sslmode=require",
        Cause::AddressDenied => "`allow` or `deny` refuses this client",
        Cause::Ja4Denied => "`deny_ja4` of the route refuses this client",
        Cause::ServerRefused => "the application refuses connections; is it running?",
        Cause::ServerUnreachable => "is the application's address right?",
        Cause::AllServersFailed => "are the servers running?",
        Cause::ConnectTimeout => "the application does not accept; is it busy?",
        Cause::ProxyMissing => "send a PROXY header, or change `accept_proxy`",
        Cause::ProxyStranger => "add the sender to `accept_proxy`",
        _ => return None,
    })
}

/// Cuts the text after `start` to `most` columns, the last of which becomes an ellipsis.
fn cut(out: &mut Vec<u8>, start: usize, most: usize) {
    let text = String::from_utf8_lossy(&out[start..]);
    if width(&text) <= most {
        return;
    }
    let mut used = 0;
    // Reserves one column for the ellipsis.
    let fits = text.char_indices().find(|(_, c)| {
        used += width_of(*c);
        used > most.saturating_sub(1)
    });
    let end = fits.map_or(text.len(), |(at, _)| at);
    out.truncate(start + end);
    out.extend_from_slice("…".as_bytes());
}

fn columns(text: &[u8]) -> usize {
    width(&String::from_utf8_lossy(text))
}

fn width(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

/// The width of one character: at most two columns.
fn width_of(c: char) -> usize {
    if c.is_ascii() || c == '…' { 1 } else { 2 }
}

/// The width of `20:51:00.001Z`.
const TIME_WIDTH: usize = 13;
/// The width of the longest IPv4 address, `255.255.255.255`.
const CLIENT_WIDTH: usize = 15;
/// The width of the shortest name worth showing: ` [a.exa…`.
const NAME_WIDTH: usize = 8;
/// The width of the longest IPv6 address.
const IPV6_WIDTH: usize = 39;

#[cfg(test)]
mod tests {
    use super::{CLIENT_WIDTH, COLUMNS, TIME_WIDTH, advice, cut, reason, width};
    use crate::facts::{Alert, Cause, Close, FatalAlert};

    #[test]
    fn every_advice_has_room_beside_its_cause() {
        let alerts = [
            Alert::UNKNOWN_CA,
            Alert::CERTIFICATE_UNKNOWN,
            Alert::CERTIFICATE_EXPIRED,
            Alert::INSUFFICIENT_SECURITY,
        ];
        let closes = Cause::ALL.into_iter().map(Close::from).chain(
            alerts.map(|alert| Close::from(Cause::HandshakeAlert).with_alert(FatalAlert::Received(alert))),
        );
        let mut too_long = Vec::new();
        for close in closes {
            let Some(advice) = advice(&close) else { continue };
            let text = format!("{}: {advice}", reason(&close));
            if TIME_WIDTH + 1 + CLIENT_WIDTH + 1 + width(&text) > COLUMNS {
                too_long.push(text);
            }
        }
        assert!(too_long.is_empty(), "{too_long:#?}");
    }

    #[test]
    fn lines_are_cut_between_characters() {
        let cut = |text: &str, most| {
            let mut out = format!("ab{text}").into_bytes();
            cut(&mut out, 2, most);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(cut("12345", 5), "ab12345");
        assert_eq!(cut("123456", 5), "ab1234…");
        // Wide characters take two columns each.
        assert_eq!(cut("日本語", 6), "ab日本語");
        assert_eq!(cut("日本語", 5), "ab日本…");
        assert_eq!(cut("日本語", 4), "ab日…");
    }
}
