//! HAProxy's `option httplog` and `option httpslog`, with or without what syslog writes before them.
//!
//! ```text
//! client:port [accept date] frontend backend/server TR/Tw/Tc/Tr/Ta status bytes req-cookie res-cookie term
//!     actconn/feconn/beconn/srv/retries srv-queue/backend-queue {request captures} {response captures} "request"
//!     fc_err/ssl_fc_err/ssl_c_err/ssl_c_ca_err/ssl_fc_is_resumed server name/version/cipher
//! ```
//!
//! Only `httpslog` has the third line. The date has no offset. A host is taken from the first captured request header
//! that looks like a name, since an address there is rather `X-Forwarded-For`; else from the request, else from TLS. The
//! request may be cut off by syslog: then its closing quote is missing, which is no fault.

use crate::parse_error::ParseError;

use super::draft::{Draft, SERVER_NAME};
use super::field::Field;
use super::host::HostText;
use super::time::Clock;

/// The two forms of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HaproxyLog {
    /// The lines of `option httplog`.
    Http,
    /// The lines of `option httpslog`.
    Https,
    /// The one or the other, line by line.
    Either,
}

/// Takes a line apart.
pub(super) fn run<'a>(
    log: HaproxyLog,
    line: &'a [u8],
    draft: &mut Draft<'a>,
    clock: &mut Clock,
) -> Result<(), ParseError> {
    let mut at = Words { line, at: client_start(line)? };
    let (start, client) = at.until(b" [", "the client's address, followed by ` [`")?;
    let port =
        memchr::memrchr(b':', client).ok_or_else(|| ParseError::new(start, "an address and a port"))?;
    draft.put(Field::Client(2), &client[..port], clock).map_err(|error| error.moved(start))?;
    let (start, date) = at.until(b"] ", "the accept date, followed by `] `")?;
    draft.put(Field::Time, date, clock).map_err(|error| error.moved(start))?;
    at.word("the frontend")?;
    backend_and_server(&mut at, draft)?;
    times(&mut at, draft)?;
    for (field, expected) in [(Field::Status, "the status"), (Field::Bytes(2), "the bytes read")] {
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

/// The client's address stands before the first date in brackets, behind whatever syslog has written.
fn client_start(line: &[u8]) -> Result<usize, ParseError> {
    let is_date = |at: usize| matches!(line[at + 1..], [b'0'..=b'9', b'0'..=b'9', b'/', ..]);
    let date = memchr::memchr_iter(b'[', line).find(|at| is_date(*at) && line[..*at].ends_with(b" "));
    let date =
        date.ok_or_else(|| ParseError::new(line.len(), "an accept date in brackets somewhere in the line"))?;
    // A space stands at `date - 1`.
    Ok(memchr::memrchr(b' ', &line[..date - 1]).map_or(0, |space| space + 1))
}

fn backend_and_server<'a>(at: &mut Words<'a>, draft: &mut Draft<'a>) -> Result<(), ParseError> {
    let (start, text) = at.word("backend/server")?;
    let slash = memchr::memchr(b'/', text).ok_or_else(|| ParseError::new(start, "backend/server"))?;
    let known = |name: &'a [u8]| Some(name).filter(|name| !name.is_empty() && !name.starts_with(b"<"));
    draft.entry.proxy.route = known(&text[..slash]);
    draft.entry.proxy.server = known(&text[slash + 1..]);
    Ok(())
}

/// The last of the five times is that from the request's first byte to the response's last, in milliseconds; -1 where
/// it did not get so far.
fn times(at: &mut Words<'_>, draft: &mut Draft<'_>) -> Result<(), ParseError> {
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

/// Up to two groups in braces; only of two is the first known to be the request's, but one is taken for it too.
fn captures<'a>(at: &mut Words<'a>, draft: &mut Draft<'a>, clock: &mut Clock) -> Result<(), ParseError> {
    let mut first = true;
    while at.line[at.at..].starts_with(b"{") {
        at.at += 1;
        let (_, group) = at.until(b"} ", "captured headers, followed by `} `")?;
        if let Some(host) = group.split(|byte| *byte == b'|').find(|text| first && is_host(text)) {
            draft.put(Field::Host(SERVER_NAME + 1), host, clock)?;
        }
        first = false;
    }
    Ok(())
}

/// A word without a dot may be the value of any header.
fn is_host(text: &[u8]) -> bool {
    let named = text == b"localhost" || memchr::memchr2(b'.', b':', text).is_some();
    named && HostText::of(text) == HostText::Name
}

/// The request in quotes; `false` where syslog has cut it off.
fn request<'a>(at: &mut Words<'a>, draft: &mut Draft<'a>, clock: &mut Clock) -> Result<bool, ParseError> {
    let rest = &at.line[at.at..];
    let text = rest.strip_prefix(b"\"").ok_or_else(|| ParseError::new(at.at, "the request in quotes"))?;
    let end = memchr::memchr(b'"', text);
    draft.put(Field::Request, &text[..end.unwrap_or(text.len())], clock)?;
    at.at = end.map_or(at.line.len(), |end| at.at + end + 2);
    Ok(end.is_some())
}

/// Five numbers, and the name, version and cipher of the handshake.
fn tls<'a>(at: &mut Words<'a>, draft: &mut Draft<'a>, clock: &mut Clock) -> Result<(), ParseError> {
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
        draft.put(Field::Host(SERVER_NAME), name, clock)?;
    }
    draft.put(Field::Tls, version, clock)
}

/// The parts of a line, one after the other.
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    /// The part before the next `end`, and where it begins.
    fn until(&mut self, end: &[u8], expected: &'static str) -> Result<(usize, &'a [u8]), ParseError> {
        let (start, rest) = (self.at, &self.line[self.at..]);
        let found = memchr::memchr_iter(end[0], rest).find(|at| rest[*at..].starts_with(end));
        let length = found.ok_or_else(|| ParseError::new(start, expected))?;
        self.at += length + end.len();
        Ok((start, &rest[..length]))
    }

    /// The next word, which is not empty.
    fn word(&mut self, expected: &'static str) -> Result<(usize, &'a [u8]), ParseError> {
        let (start, word) = self.until(b" ", expected)?;
        if word.is_empty() { Err(ParseError::new(start, expected)) } else { Ok((start, word)) }
    }
}
