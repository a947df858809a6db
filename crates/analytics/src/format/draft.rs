//! Assembly of an entry from the parts of a line: every value is interpreted here, whatever the format.

use offramp_observe::Cause;

use crate::entry::LogEntry;
use crate::parse_error::ParseError;

use super::address;
use super::escape::{Changed, Escapes};
use super::field::LineField;
use super::time::TimestampParser;

/// An entry under construction. Texts are as in the line until [`EntryDraft::finish`].
#[derive(Default)]
pub(super) struct EntryDraft<'a> {
    pub(super) entry: LogEntry<'a>,
    pub(super) original: Original<'a>,
    best: Best,
    request: Option<&'a [u8]>,
    target: Option<&'a [u8]>,
    uri: Option<&'a [u8]>,
    blameless: bool,
}

/// Values that the entry does not keep but that tell formats apart.
#[derive(Default)]
pub(super) struct Original<'a> {
    /// The client, with or without an address.
    pub(super) client: Option<&'a [u8]>,
    pub(super) ident: Option<&'a [u8]>,
    /// The client in `X-Forwarded-For`.
    pub(super) forwarded: Option<&'a [u8]>,
}

/// The ranks of the sources of the values so far; 0 for none.
#[derive(Default)]
struct Best {
    time: u8,
    host: u8,
    client: u8,
    bytes: u8,
    duration: u8,
}

impl<'a> EntryDraft<'a> {
    /// Takes the text of a part. An empty text and `-` count as absent.
    ///
    /// # Errors
    /// An invalid value, with an offset within `text`.
    #[inline]
    pub(super) fn put(
        &mut self,
        field: LineField,
        text: &'a [u8],
        clock: &mut TimestampParser,
    ) -> Result<(), ParseError> {
        if matches!(text, b"" | b"-") {
            return Ok(());
        }
        let entry = &mut self.entry;
        match field {
            LineField::Skip => {}
            LineField::Time => return self.time(1, text, clock),
            LineField::Instant => return self.time(2, text, clock),
            LineField::Host(rank) if rank > self.best.host => {
                (entry.host, self.best.host) = (Some(text), rank);
            }
            LineField::Host(_) => {}
            LineField::Client(rank) => return self.client(rank, text),
            LineField::Ident => self.original.ident = Some(text),
            LineField::User => entry.user = Some(text),
            LineField::Request => self.request = Some(text),
            LineField::Target => self.target = Some(text),
            LineField::Uri => self.uri = Some(text),
            LineField::Args => entry.request.query = Some(text),
            LineField::Method => entry.request.method = Some(text),
            LineField::Protocol => entry.request.protocol = Some(text),
            LineField::Status => entry.response.status = status(text)?,
            LineField::Bytes(rank) if rank > self.best.bytes => {
                (entry.response.bytes, self.best.bytes) = (number(text, "a number of bytes")?, rank);
            }
            LineField::Bytes(_) => {}
            LineField::Received => entry.response.received = Some(number(text, "a number of bytes")?),
            LineField::Duration(power) => {
                (entry.response.duration_us, self.best.duration) = (Some(duration(text, power)?), 2);
            }
            LineField::UpstreamTime => return self.upstream(text),
            LineField::Referer => entry.referer = Some(text),
            LineField::Agent => entry.agent = Some(text),
            LineField::Route => entry.proxy.route = Some(text),
            LineField::Server => entry.proxy.server = Some(text),
            LineField::Tls => entry.proxy.tls = Some(text),
            LineField::Id => entry.proxy.id = Some(text),
            LineField::Cause => entry.proxy.cause = Some(text),
            LineField::Fault => self.blameless = text == b"nobody",
        }
        Ok(())
    }

    fn time(&mut self, rank: u8, text: &[u8], clock: &mut TimestampParser) -> Result<(), ParseError> {
        let time_us = clock.read(text)?;
        if rank > self.best.time {
            (self.entry.time_us, self.best.time) = (time_us, rank);
        }
        Ok(())
    }

    fn client(&mut self, rank: u8, text: &'a [u8]) -> Result<(), ParseError> {
        let client = if rank == FORWARDED {
            self.original.forwarded = Some(text);
            // Arbitrary content of a client's header is no reason to reject the line.
            address::forwarded(text)
        } else {
            self.original.client = Some(text);
            address::parse(text).map_err(|at| ParseError::new(at, "an IP address"))?
        };
        if client.is_some() && rank > self.best.client {
            (self.entry.client, self.best.client) = (client, rank);
        }
        Ok(())
    }

    /// Sums the times of all servers that were tried.
    fn upstream(&mut self, list: &[u8]) -> Result<(), ParseError> {
        if self.best.duration > 1 {
            return Ok(());
        }
        let mut sum = 0u64;
        for one in
            list.split(|byte| matches!(byte, b',' | b' ')).filter(|one| !matches!(*one, b"" | b":" | b"-"))
        {
            sum = sum.saturating_add(duration(one, 0)?);
        }
        (self.entry.response.duration_us, self.best.duration) = (Some(sum), 1);
        Ok(())
    }

    /// Returns `true` if any field describes the request or the response.
    pub(super) fn is_request(&self) -> bool {
        self.request.is_some()
            || self.target.is_some()
            || self.uri.is_some()
            || self.entry.response.status != 0
    }

    pub(super) const fn has_time(&self) -> bool {
        self.best.time > 0
    }

    /// The finished entry. `changed` states that the line has escapes; `scratch` holds the texts without
    /// them.
    pub(super) fn finish(
        mut self,
        changed: bool,
        escapes: Escapes,
        scratch: &'a mut Vec<u8>,
    ) -> LogEntry<'a> {
        self.pick_request();
        let mut entry = self.entry;
        let is_tunnel = entry.response.status == 101;
        if is_tunnel || entry.proxy.cause == Some(Cause::ClientLeft.name().as_bytes()) {
            // A tunnel lasts as long as its parties like, so its duration says nothing about the server.
            entry.response.duration_us = None;
        }
        // HAProxy's termination state of a session that the client ended.
        let has_left = is_tunnel && matches!(entry.proxy.cause, Some([b'c' | b'C', ..]));
        if self.blameless || has_left {
            entry.proxy.cause = None;
        }
        let upper = entry.host.is_some_and(|host| host.iter().any(u8::is_ascii_uppercase));
        if changed || upper {
            let escapes = if changed { escapes } else { Escapes::None };
            undo(&mut entry, escapes, scratch);
        }
        entry.host = entry.host.map(without_port).filter(|host| !host.is_empty());
        entry
    }

    /// Picks the most original of the fields that describe the request.
    fn pick_request(&mut self) {
        let mut target = self.target.or(self.uri);
        if let Some(line) = self.request {
            match ParsedRequestLine::split(line) {
                Some(line) => {
                    self.entry.request.method = Some(line.method);
                    self.entry.request.protocol = line.protocol.or(self.entry.request.protocol);
                    target = Some(line.target);
                }
                None if target.is_none() => {
                    self.entry.request.path = line;
                    return;
                }
                None => {}
            }
        }
        let Some(mut target) = target else { return };
        if target[0] != b'/' {
            let (host, rest) = origin_form(target);
            target = rest;
            // A name from the TLS handshake is the connection's, not the request's.
            if self.best.host <= SERVER_NAME {
                self.entry.host = host.or(self.entry.host);
            }
        }
        match memchr::memchr(b'?', target) {
            Some(mark) => {
                self.entry.request.path = &target[..mark];
                self.entry.request.query = Some(&target[mark + 1..]).filter(|query| !query.is_empty());
            }
            None => self.entry.request.path = target,
        }
    }
}

/// The parts of `GET /path HTTP/1.1` (RFC 9112 §3); without a protocol it is HTTP/0.9.
struct ParsedRequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    protocol: Option<&'a [u8]>,
}

impl<'a> ParsedRequestLine<'a> {
    /// `None` for anything else, such as a TLS handshake sent to a plain-text port.
    fn split(line: &'a [u8]) -> Option<Self> {
        let space = memchr::memchr(b' ', line)?;
        let (method, rest) = (&line[..space], &line[space + 1..]);
        let sound = (1..=MAX_METHOD).contains(&method.len())
            && method.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_'));
        if !sound || rest.is_empty() {
            return None;
        }
        match memchr::memrchr(b' ', rest) {
            Some(last) if last > 0 && rest[last + 1..].starts_with(b"HTTP/") => {
                Some(Self { method, target: &rest[..last], protocol: Some(&rest[last + 1..]) })
            }
            _ => Some(Self { method, target: rest, protocol: None }),
        }
    }
}

/// Splits `http://host/rest`, which proxies receive, and which HAProxy logs for HTTP/2.
fn origin_form(target: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let scheme = ["http://", "https://"].iter().find_map(|scheme| {
        let (front, rest) = target.split_at_checked(scheme.len())?;
        front.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    });
    let Some(rest) = scheme else { return (None, target) };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let path = if end == rest.len() { &b"/"[..] } else { &rest[end..] };
    (Some(&rest[..end]).filter(|host| !host.is_empty()), path)
}

/// Strips `:port` and a trailing dot; an IPv6 literal keeps its brackets.
fn without_port(host: &[u8]) -> &[u8] {
    let bare = match memchr::memrchr(b':', host) {
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) => {
            let literal = memchr::memchr(b']', &host[colon..]).is_some();
            let unbracketed = host[0] != b'[' && memchr::memchr(b':', &host[..colon]).is_some();
            if literal || unbracketed { host } else { &host[..colon] }
        }
        _ => host,
    };
    bare.strip_suffix(b".").unwrap_or(bare)
}

fn undo<'a>(entry: &mut LogEntry<'a>, escapes: Escapes, scratch: &'a mut Vec<u8>) {
    let LogEntry { host, request, referer, agent, user, proxy, .. } = entry;
    let optional = [
        referer,
        agent,
        user,
        &mut request.query,
        &mut request.method,
        &mut request.protocol,
        &mut proxy.route,
        &mut proxy.server,
        &mut proxy.tls,
        &mut proxy.id,
        &mut proxy.cause,
    ];
    let length = |text: &Option<&[u8]>| text.map_or(0, <[u8]>::len);
    let need = optional.iter().map(|text| length(text)).sum::<usize>() + length(host) + request.path.len();
    let mut changed = Changed::new(scratch, need, escapes);
    for text in optional {
        *text = text.map(|text| changed.plain(text));
    }
    request.path = changed.plain(request.path);
    *host = host.map(|host| changed.lower(host));
}

/// Parses three digits; fewer for the zeros that some servers log without a response, -1 in HAProxy's logs.
fn status(text: &[u8]) -> Result<u16, ParseError> {
    if text == b"-1" {
        return Ok(0);
    }
    let value = text.iter().try_fold(0u16, |sum, &byte| {
        byte.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add(u16::from(byte - b'0')))
    });
    value.filter(|value| *value < 1_000).ok_or_else(|| ParseError::new(0, "a status of three digits"))
}

/// Parses a number, with a plus sign in some of HAProxy's logs.
fn number(text: &[u8], expected: &'static str) -> Result<u64, ParseError> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let mut value = 0u64;
    for (at, &byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(ParseError::new(at + text.len() - digits.len(), expected));
        }
        value = value.saturating_mul(10).saturating_add(digit.into());
    }
    if digits.is_empty() { Err(ParseError::new(text.len(), expected)) } else { Ok(value) }
}

/// Microseconds of a decimal in units of 10^-`power` seconds, or with a unit after it.
pub(super) fn duration(text: &[u8], power: u8) -> Result<u64, ParseError> {
    const EXPECTED: &str = "a duration";
    let letters = text.iter().rposition(u8::is_ascii_digit).map_or(0, |last| last + 1);
    let (digits, unit) = text.split_at(letters);
    let power = match unit {
        b"" => power,
        b"s" => 0,
        b"ms" => 3,
        b"us" | b"\xc2\xb5s" => 6,
        b"ns" => 9,
        _ => return Err(ParseError::new(letters, EXPECTED)),
    };
    if memchr::memchr2(b'e', b'E', digits).is_some() {
        let float = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<f64>().ok());
        let micros = float.map(|float| float * 10f64.powi(6 - i32::from(power)));
        // The cast saturates; negative values and NaN are rejected.
        return micros
            .filter(|micros| *micros >= 0.0)
            .map(|micros| micros as u64)
            .ok_or(ParseError::new(0, EXPECTED));
    }
    let (whole, fraction) = match memchr::memchr(b'.', digits) {
        Some(dot) => (&digits[..dot], &digits[dot + 1..]),
        None => (digits, &b""[..]),
    };
    let mut value = number(whole, EXPECTED)?;
    if power > 6 {
        return Ok(value / 10u64.pow(u32::from(power) - 6));
    }
    let places = usize::from(6 - power);
    for place in 0..places {
        let digit = fraction.get(place).copied().unwrap_or(b'0').wrapping_sub(b'0');
        if digit > 9 {
            return Err(ParseError::new(whole.len() + 1 + place, EXPECTED));
        }
        value = value.saturating_mul(10).saturating_add(digit.into());
    }
    if fraction.iter().all(u8::is_ascii_digit) {
        Ok(value)
    } else {
        Err(ParseError::new(whole.len() + 1, EXPECTED))
    }
}

/// The rank of host names from TLS.
pub(super) const SERVER_NAME: u8 = 1;
/// The rank of client addresses from headers.
const FORWARDED: u8 = 3;
/// The longest text that counts as a method.
const MAX_METHOD: usize = 32;

#[cfg(test)]
mod tests {
    use super::{ParsedRequestLine, duration, number, origin_form, status, without_port};

    #[test]
    fn reads_numbers_and_durations() {
        assert_eq!(number(b"18446744073709551616", "n"), Ok(u64::MAX));
        assert_eq!(number(b"+12", "n"), Ok(12));
        assert_eq!(number(b"12x", "n").unwrap_err().at, 2);
        assert!(number(b"+", "n").is_err() && number(b"-3", "n").is_err());
        assert_eq!((status(b"200"), status(b"000"), status(b"-1")), (Ok(200), Ok(0), Ok(0)));
        assert!(status(b"2000").is_err() && status(b"20x").is_err());
        for (text, power, micros) in [
            ("0.123", 0, 123_000),
            ("1", 0, 1_000_000),
            ("12.5", 3, 12_500),
            ("7", 6, 7),
            ("1999", 9, 1),
            ("0.000000929", 0, 0),
            ("1.5e-3", 0, 1_500),
            ("1.5ms", 0, 1_500),
            ("20µs", 0, 20),
        ] {
            assert_eq!(duration(text.as_bytes(), power), Ok(micros), "{text}");
        }
        for text in ["x", "1.x", "1.23456x", "-1", "1h", "", "1e", "."] {
            assert!(duration(text.as_bytes(), 0).is_err(), "{text}");
        }
    }

    #[test]
    fn splits_request_lines() {
        let split = |line: &'static [u8]| {
            ParsedRequestLine::split(line).map(|line| (line.method, line.target, line.protocol))
        };
        assert_eq!(split(b"GET /a b HTTP/1.1"), Some((&b"GET"[..], &b"/a b"[..], Some(&b"HTTP/1.1"[..]))));
        assert_eq!(split(b"GET /"), Some((&b"GET"[..], &b"/"[..], None)));
        assert_eq!(split(b"GET  HTTP/1.1"), Some((&b"GET"[..], &b" HTTP/1.1"[..], None)));
        assert_eq!(split(br"\x16\x03\x01 \x02"), None);
        assert_eq!(split(b"GET "), None);
        assert_eq!(split(b"<BADREQ>"), None);
    }

    #[test]
    fn splits_host_and_path() {
        assert_eq!(origin_form(b"https://a.test:8443/x?y"), (Some(&b"a.test:8443"[..]), &b"/x?y"[..]));
        assert_eq!(origin_form(b"http://a.test"), (Some(&b"a.test"[..]), &b"/"[..]));
        assert_eq!(origin_form(b"*"), (None, &b"*"[..]));
        for (host, bare) in [
            ("a.test:80", "a.test"),
            ("a.test.", "a.test"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("a.test", "a.test"),
            (":80", ""),
        ] {
            assert_eq!(without_port(host.as_bytes()), bare.as_bytes(), "{host}");
        }
    }
}
