//! Logs with one JSON object per line: Offramp's own, Caddy's, Traefik's, nginx's `escape=json`, and others
//! with descriptive keys.
//!
//! The line is read once from left to right, without a tree; strings stay as written. The grammar is that of
//! RFC 8259, except that strings may hold arbitrary bytes, since clients often send invalid UTF-8.

use crate::parse_error::ParseError;

use super::draft::EntryDraft;
use super::field::LineField;
use super::time::TimestampParser;

/// Parses a line into the draft; returns `false` for events that are not requests.
pub(super) fn run<'a>(
    line: &'a [u8],
    draft: &mut EntryDraft<'a>,
    clock: &mut TimestampParser,
) -> Result<bool, ParseError> {
    let mut walk = Walk { line, at: 0, depth: 0, request: true };
    walk.space();
    walk.object(JsonScope::Top, draft, clock)?;
    walk.space();
    if walk.at < line.len() {
        return Err(walk.expected("the end of the line"));
    }
    Ok(walk.request && (draft.is_request() || !draft.has_time()))
}

/// The object that a key is in, which decides its meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonScope {
    /// The top-level object, or a part of it whose keys mean the same.
    Top,
    /// The headers of the request.
    Headers,
    /// The TLS parameters of the connection.
    Tls,
    /// An object without a meaning.
    Other,
}

struct Walk<'a> {
    line: &'a [u8],
    at: usize,
    depth: u8,
    /// Set while the event can be a request; cleared by keys such as `logger` and `event`.
    request: bool,
}

impl<'a> Walk<'a> {
    fn object(
        &mut self,
        place: JsonScope,
        draft: &mut EntryDraft<'a>,
        clock: &mut TimestampParser,
    ) -> Result<(), ParseError> {
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

    /// Parses the value of a key.
    fn member(
        &mut self,
        place: JsonScope,
        key: &[u8],
        draft: &mut EntryDraft<'a>,
        clock: &mut TimestampParser,
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
        place: JsonScope,
        key: &[u8],
        value: &'a [u8],
        draft: &mut EntryDraft<'a>,
        clock: &mut TimestampParser,
    ) -> Result<(), ParseError> {
        match place {
            JsonScope::Other => Ok(()),
            JsonScope::Headers => match header(key) {
                Some(field) => draft.put(field, value, clock),
                None => Ok(()),
            },
            JsonScope::Tls if key == b"version" => draft.put(LineField::Tls, tls_version(value), clock),
            JsonScope::Tls if key == b"server_name" => draft.put(LineField::Host(1), value, clock),
            JsonScope::Tls => Ok(()),
            JsonScope::Top => {
                match key {
                    b"logger" => self.request &= value.starts_with(b"http.log.access"),
                    b"event" => self.request &= value != b"connection",
                    _ => {}
                }
                match LineField::named(key) {
                    Some(field) => draft.put(field, value, clock),
                    None => Ok(()),
                }
            }
        }
    }

    /// Parses an array, of which the first element counts: Go writes every header as an array.
    fn array(
        &mut self,
        place: JsonScope,
        key: &[u8],
        draft: &mut EntryDraft<'a>,
        clock: &mut TimestampParser,
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
            place = JsonScope::Other;
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

    /// Returns a scalar and its offset: a string without quotes, a number as written, empty for `null`.
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
                // Skips the escaped byte; a trailing backslash has none.
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

/// The kind of a nested object.
fn inner(place: JsonScope, key: &[u8]) -> JsonScope {
    match (place, key) {
        (JsonScope::Top, b"request" | b"response" | b"http" | b"url" | b"body" | b"source") => JsonScope::Top,
        (JsonScope::Top, b"headers" | b"request_headers" | b"req_headers") => JsonScope::Headers,
        (JsonScope::Top, b"tls") => JsonScope::Tls,
        _ => JsonScope::Other,
    }
}

fn header(name: &[u8]) -> Option<LineField> {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    if is(b"User-Agent") {
        Some(LineField::Agent)
    } else if is(b"Referer") {
        Some(LineField::Referer)
    } else if is(b"Host") {
        Some(LineField::Host(2))
    } else {
        None
    }
}

/// Go writes the protocol's number (RFC 8446 §4.1.2).
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
