//! HAProxy's `option httplog` and `option httpslog`, with or without a syslog header.
//!
//! ```text
//! client:port [accept date] frontend backend/server TR/Tw/Tc/Tr/Ta status bytes req-cookie res-cookie term
//!     actconn/feconn/beconn/srv/retries srv-queue/backend-queue {request captures} {response captures} "request"
//!     fc_err/ssl_fc_err/ssl_c_err/ssl_c_ca_err/ssl_fc_is_resumed server name/version/cipher
//! ```
//!
//! Only `httpslog` has the third line. The date has no offset. The host is taken from the first captured
//! request header that looks like a name, since an address there is more likely `X-Forwarded-For`; else from
//! the request, else from TLS. syslog may truncate the request: a missing closing quote is accepted.

use crate::parse_error::ParseError;

use super::draft::{EntryDraft, SERVER_NAME};
use super::field::LineField;
use super::host::HostText;
use super::time::TimestampParser;

/// The two forms of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HaproxyLog {
    /// Lines of `option httplog`.
    Http,
    /// Lines of `option httpslog`.
    Https,
    /// Either, decided per line.
    Either,
}

/// Parses a line into the draft.
pub(super) fn run<'a>(
    log: HaproxyLog,
    line: &'a [u8],
    draft: &mut EntryDraft<'a>,
    clock: &mut TimestampParser,
) -> Result<(), ParseError> {
    let mut at = Words { line, at: client_start(line)? };
    let (start, client) = at.until(b" [", "the client's address, followed by ` [`")?;
    let port =
        memchr::memrchr(b':', client).ok_or_else(|| ParseError::new(start, "an address and a port"))?;
    draft.put(LineField::Client(2), &client[..port], clock).map_err(|error| error.moved(start))?;
    let (start, date) = at.until(b"] ", "the accept date, followed by `] `")?;
    draft.put(LineField::Time, date, clock).map_err(|error| error.moved(start))?;
    at.word("the frontend")?;
    backend_and_server(&mut at, draft)?;
    times(&mut at, draft)?;
    for (field, expected) in [(LineField::Status, "the status"), (LineField::Bytes(2), "the bytes read")] {
        let (start, text) = at.word(expected)?;
        draft.put(field, text, clock).map_err(|error| error.moved(start))?;
    }
    at.word("the request's cookie")?;
    at.word("the response's cookie")?;
    let (start, state) = at.word("the termination state")?;
    if !matches!(state.len(), 2 | 4) {
        return Err(ParseError::new(start, "a termination state of four characters"));
    }
    if !state.starts_with(b"--") {
        draft.entry.proxy.cause = Some(state);
    }
    at.word("the numbers of connections")?;
    at.word("the queues")?;
    captures(&mut at, draft, clock)?;
    let is_whole = request(&mut at, draft, clock)?;
    match (log, at.line.len() > at.at) {
        (HaproxyLog::Http, true) => Err(ParseError::new(at.at, "the end of the line: more is `httpslog`")),
        (HaproxyLog::Https | HaproxyLog::Either, true) => tls(&mut at, draft, clock),
        (HaproxyLog::Https, false) if is_whole => {
            Err(ParseError::new(at.at, "errors and versions of TLS: lines without them are `httplog`"))
        }
        (_, false) => Ok(()),
    }
}

/// Finds the client's address, which precedes the first date in brackets and follows any syslog header.
fn client_start(line: &[u8]) -> Result<usize, ParseError> {
    let is_date = |at: usize| matches!(line[at + 1..], [b'0'..=b'9', b'0'..=b'9', b'/', ..]);
    let date = memchr::memchr_iter(b'[', line).find(|at| is_date(*at) && line[..*at].ends_with(b" "));
    let date =
        date.ok_or_else(|| ParseError::new(line.len(), "an accept date in brackets somewhere in the line"))?;
    // The byte at `date - 1` is a space.
    Ok(memchr::memrchr(b' ', &line[..date - 1]).map_or(0, |space| space + 1))
}

fn backend_and_server<'a>(at: &mut Words<'a>, draft: &mut EntryDraft<'a>) -> Result<(), ParseError> {
    let (start, text) = at.word("backend/server")?;
    let slash = memchr::memchr(b'/', text).ok_or_else(|| ParseError::new(start, "backend/server"))?;
    let known = |name: &'a [u8]| Some(name).filter(|name| !name.is_empty() && !name.starts_with(b"<"));
    draft.entry.proxy.route = known(&text[..slash]);
    draft.entry.proxy.server = known(&text[slash + 1..]);
    Ok(())
}

/// Parses the five times. The last is that from the request's first byte to the response's last, in
/// milliseconds; -1 if the request ended earlier.
fn times(at: &mut Words<'_>, draft: &mut EntryDraft<'_>) -> Result<(), ParseError> {
    const EXPECTED: &str = "five times in milliseconds, with slashes between them";
    let (start, text) = at.word(EXPECTED)?;
    let mut parts = text.split(|byte| *byte == b'/');
    let last = parts.nth(4).filter(|_| parts.next().is_none());
    let last = last.ok_or_else(|| ParseError::new(start, EXPECTED))?;
    if last != b"-1" {
        let duration = super::draft::duration(last, 3);
        draft.entry.response.duration_us =
            Some(duration.map_err(|error| error.moved(start + text.len() - last.len()))?);
    }
    Ok(())
}

/// Parses up to two groups in braces. The first of two is the request's; a single one is taken for it too.
fn captures<'a>(
    at: &mut Words<'a>,
    draft: &mut EntryDraft<'a>,
    clock: &mut TimestampParser,
) -> Result<(), ParseError> {
    let mut first = true;
    while at.line[at.at..].starts_with(b"{") {
        at.at += 1;
        let (_, group) = at.until(b"} ", "captured headers, followed by `} `")?;
        if let Some(host) = group.split(|byte| *byte == b'|').find(|text| first && is_host(text)) {
            draft.put(LineField::Host(SERVER_NAME + 1), host, clock)?;
        }
        first = false;
    }
    Ok(())
}

/// Returns `true` for names with a dot; without one it may be the value of any header.
fn is_host(text: &[u8]) -> bool {
    let named = text == b"localhost" || memchr::memchr2(b'.', b':', text).is_some();
    named && HostText::of(text) == HostText::Name
}

/// Parses the quoted request; returns `false` if syslog truncated it.
fn request<'a>(
    at: &mut Words<'a>,
    draft: &mut EntryDraft<'a>,
    clock: &mut TimestampParser,
) -> Result<bool, ParseError> {
    let rest = &at.line[at.at..];
    let text = rest.strip_prefix(b"\"").ok_or_else(|| ParseError::new(at.at, "the request in quotes"))?;
    let end = memchr::memchr(b'"', text);
    draft.put(LineField::Request, &text[..end.unwrap_or(text.len())], clock)?;
    at.at = end.map_or(at.line.len(), |end| at.at + end + 2);
    Ok(end.is_some())
}

/// Parses five error numbers, and server name, version and cipher of the handshake.
fn tls<'a>(
    at: &mut Words<'a>,
    draft: &mut EntryDraft<'a>,
    clock: &mut TimestampParser,
) -> Result<(), ParseError> {
    const ERRORS: &str = "five numbers of TLS errors, with slashes between them";
    const HANDSHAKE: &str = "server name, TLS version and cipher, with slashes between them";
    let start = at.at;
    if at.line[at.at] != b' ' {
        return Err(ParseError::new(start, "a space, or the end of the line"));
    }
    at.at += 1;
    let (start, errors) = at.word(ERRORS)?;
    let is_number = |part: &[u8]| part == b"-" || !part.is_empty() && part.iter().all(u8::is_ascii_hexdigit);
    let mut numbers = errors.split(|byte| *byte == b'/');
    if numbers.clone().count() != 5 || !numbers.all(is_number) {
        return Err(ParseError::new(start, ERRORS));
    }
    let (start, rest) = (at.at, &at.line[at.at..]);
    let mut parts = rest.split(|byte| *byte == b'/');
    let (Some(name), Some(version), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(ParseError::new(start, HANDSHAKE));
    };
    if memchr::memchr(b' ', rest).is_some() {
        return Err(ParseError::new(start, HANDSHAKE));
    }
    if HostText::of(name) == HostText::Name {
        draft.put(LineField::Host(SERVER_NAME), name, clock)?;
    }
    draft.put(LineField::Tls, version, clock)
}

/// A cursor over the parts of a line.
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    /// Takes the part before the next `end`; returns its offset and text.
    fn until(&mut self, end: &[u8], expected: &'static str) -> Result<(usize, &'a [u8]), ParseError> {
        let (start, rest) = (self.at, &self.line[self.at..]);
        let found = memchr::memchr_iter(end[0], rest).find(|at| rest[*at..].starts_with(end));
        let length = found.ok_or_else(|| ParseError::new(start, expected))?;
        self.at += length + end.len();
        Ok((start, &rest[..length]))
    }

    /// Takes the next word, which must not be empty.
    fn word(&mut self, expected: &'static str) -> Result<(usize, &'a [u8]), ParseError> {
        let (start, word) = self.until(b" ", expected)?;
        if word.is_empty() { Err(ParseError::new(start, expected)) } else { Ok((start, word)) }
    }
}
