//! HAProxy's `option httplog`, with or without what syslog writes before it.
//!
//! ```text
//! client:port [accept date] frontend backend/server TR/Tw/Tc/Tr/Ta status bytes req-cookie res-cookie term
//!     actconn/feconn/beconn/srv/retries srv-queue/backend-queue {request captures} {response captures} "request"
//! ```
//!
//! The date has no offset. A host is taken from the first captured request header that looks like one. The request may
//! be cut off by syslog: then its closing quote is missing, which is no fault.

use crate::parse_error::ParseError;

use super::draft::Draft;
use super::field::Field;
use super::time::Clock;

/// Takes a line apart.
pub(super) fn run<'a>(line: &'a [u8], draft: &mut Draft<'a>, clock: &mut Clock) -> Result<(), ParseError> {
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
    captures(&mut at, draft)?;
    request(&at, draft, clock)
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
fn captures<'a>(at: &mut Words<'a>, draft: &mut Draft<'a>) -> Result<(), ParseError> {
    let mut first = true;
    while at.line[at.at..].starts_with(b"{") {
        at.at += 1;
        let (_, group) = at.until(b"} ", "captured headers, followed by `} `")?;
        if first {
            draft.entry.host = group.split(|byte| *byte == b'|').find(|text| is_host(text));
        }
        first = false;
    }
    Ok(())
}

fn is_host(text: &[u8]) -> bool {
    let sound =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    let named = text == b"localhost" || text.iter().any(|byte| matches!(byte, b'.' | b':'));
    named && text.iter().all(sound) && text.first() != Some(&b'.')
}

fn request<'a>(at: &Words<'a>, draft: &mut Draft<'a>, clock: &mut Clock) -> Result<(), ParseError> {
    let rest = &at.line[at.at..];
    let text = rest.strip_prefix(b"\"").ok_or_else(|| ParseError::new(at.at, "the request in quotes"))?;
    let end = memchr::memchr(b'"', text).unwrap_or(text.len());
    if end + 1 < text.len() {
        return Err(ParseError::new(at.at + end + 2, "the end of the line"));
    }
    draft.put(Field::Request, &text[..end], clock)
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
