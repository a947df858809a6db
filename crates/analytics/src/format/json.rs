//! Logs of one JSON object per line: Offramp's own, Caddy's, Traefik's, nginx's `escape=json`, and others with names
//! that say what they are.
//!
//! The line is read once from left to right, without a tree; strings stay as they are written. The grammar is RFC
//! 8259's, except that strings may be of any bytes, since what clients send often is not UTF-8.

use crate::parse_error::ParseError;

use super::draft::Draft;
use super::field::Field;
use super::time::Clock;

/// Takes a line apart; `false` if it is an event of another kind than a request.
pub(super) fn run<'a>(line: &'a [u8], draft: &mut Draft<'a>, clock: &mut Clock) -> Result<bool, ParseError> {
    let mut walk = Walk { line, at: 0, depth: 0, request: true };
    walk.space();
    walk.object(Place::Top, draft, clock)?;
    walk.space();
    if walk.at < line.len() {
        return Err(walk.expected("the end of the line"));
    }
    Ok(walk.request && (draft.is_request() || !draft.has_time()))
}

/// In what object a key stands, which decides what it means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The line's own, or a part of it whose keys mean the same there.
    Top,
    /// Headers of the request.
    Headers,
    /// TLS of the connection.
    Tls,
    /// Something that means nothing here.
    Other,
}

struct Walk<'a> {
    line: &'a [u8],
    at: usize,
    depth: u8,
    /// Whether it can be a request; `logger` and `event` may say that it is none.
    request: bool,
}

impl<'a> Walk<'a> {
    fn object(&mut self, place: Place, draft: &mut Draft<'a>, clock: &mut Clock) -> Result<(), ParseError> {
        self.byte(b'{', "`{`")?;
        self.deeper()?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            self.depth -= 1;
            return Ok(());
        }
        loop {
            self.space();
            let key = self.string("a key in quotes")?;
            self.space();
            self.byte(b':', "a colon")?;
            self.space();
            self.member(place, key, draft, clock)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.expected("`,` or `}`")),
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    /// The value of a key.
    fn member(
        &mut self,
        place: Place,
        key: &[u8],
        draft: &mut Draft<'a>,
        clock: &mut Clock,
    ) -> Result<(), ParseError> {
        match self.peek() {
            Some(b'{') => self.object(inner(place, key), draft, clock),
            Some(b'[') => self.array(place, key, draft, clock),
            _ => {
                let (start, value) = self.scalar()?;
                self.take(place, key, value, draft, clock).map_err(|error| error.moved(start))
            }
        }
    }

    fn take(
        &mut self,
        place: Place,
        key: &[u8],
        value: &'a [u8],
        draft: &mut Draft<'a>,
        clock: &mut Clock,
    ) -> Result<(), ParseError> {
        match place {
            Place::Other => Ok(()),
            Place::Headers => match header(key) {
                Some(field) => draft.put(field, value, clock),
                None => Ok(()),
            },
            Place::Tls if key == b"version" => draft.put(Field::Tls, tls_version(value), clock),
            Place::Tls if key == b"server_name" => draft.put(Field::Host(1), value, clock),
            Place::Tls => Ok(()),
            Place::Top => {
                match key {
                    b"logger" => self.request &= value.starts_with(b"http.log.access"),
                    b"event" => self.request &= value != b"connection",
                    _ => {}
                }
                match Field::named(key) {
                    Some(field) => draft.put(field, value, clock),
                    None => Ok(()),
                }
            }
        }
    }

    /// Of an array the first element counts: Go writes every header as one.
    fn array(
        &mut self,
        place: Place,
        key: &[u8],
        draft: &mut Draft<'a>,
        clock: &mut Clock,
    ) -> Result<(), ParseError> {
        self.at += 1;
        self.deeper()?;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            self.depth -= 1;
            return Ok(());
        }
        let mut place = place;
        loop {
            self.space();
            self.member(place, key, draft, clock)?;
            place = Place::Other;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.expected("`,` or `]`")),
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    /// A string without its quotes, a number as it is written, nothing for `null`; and where it begins.
    fn scalar(&mut self) -> Result<(usize, &'a [u8]), ParseError> {
        if self.peek() == Some(b'"') {
            let start = self.at + 1;
            return Ok((start, self.string("a value")?));
        }
        let start = self.at;
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
        let rest = &self.line[start..];
        let word = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
        self.at += word.len();
        match word {
            b"null" => Ok((start, b"")),
            b"true" | b"false" => Ok((start, word)),
            _ if is_number(word) => Ok((start, word)),
            _ => Err(ParseError::new(start, "a value")),
        }
    }

    fn string(&mut self, expected: &'static str) -> Result<&'a [u8], ParseError> {
        self.byte(b'"', expected)?;
        let start = self.at;
        loop {
            match memchr::memchr2(b'"', b'\\', &self.line[self.at..]) {
                Some(found) if self.line[self.at + found] == b'"' => {
                    let end = self.at + found;
                    self.at = end + 1;
                    return Ok(&self.line[start..end]);
                }
                // The escaped byte is stepped over; behind a backslash at the end there is none.
                Some(found) => self.at = (self.at + found + 2).min(self.line.len()),
                None => {
                    self.at = self.line.len();
                    return Err(self.expected("the quote at the end of a string"));
                }
            }
        }
    }

    fn deeper(&mut self) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.expected("values that are not nested so deep")) } else { Ok(()) }
    }

    fn byte(&mut self, byte: u8, expected: &'static str) -> Result<(), ParseError> {
        if self.peek() != Some(byte) {
            return Err(self.expected(expected));
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expected(&self, what: &'static str) -> ParseError {
        ParseError::new(self.at, what)
    }
}

/// What an object inside of another one is.
fn inner(place: Place, key: &[u8]) -> Place {
    match (place, key) {
        (Place::Top, b"request" | b"response" | b"http" | b"url" | b"body" | b"source") => Place::Top,
        (Place::Top, b"headers" | b"request_headers" | b"req_headers") => Place::Headers,
        (Place::Top, b"tls") => Place::Tls,
        _ => Place::Other,
    }
}

fn header(name: &[u8]) -> Option<Field> {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    if is(b"User-Agent") {
        Some(Field::Agent)
    } else if is(b"Referer") {
        Some(Field::Referer)
    } else if is(b"Host") {
        Some(Field::Host(2))
    } else {
        None
    }
}

/// Go writes the number of the protocol (RFC 8446, section 4.1.2).
fn tls_version(value: &[u8]) -> &[u8] {
    match value {
        b"769" => b"TLSv1.0",
        b"770" => b"TLSv1.1",
        b"771" => b"TLSv1.2",
        b"772" => b"TLSv1.3",
        other => other,
    }
}

fn is_number(word: &[u8]) -> bool {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    digits.first().is_some_and(u8::is_ascii_digit)
        && digits.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'))
}

/// Deeper than any log, and shallow enough for the stack.
const MAX_DEPTH: u8 = 32;
