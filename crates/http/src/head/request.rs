//! The head of a request.

use std::borrow::Cow;
use std::ops::Range;

use http::{Method, Version};

use super::{Fields, KnownSet, Span};
use crate::h1::{self, Form, Http1Fault};
use crate::path::{self, Spelling};
use crate::target::{self, QueryForm};

/// The head of a request: method, target, version and fields.
///
/// [`Request::load`] takes in what a [`Guard`](h1::Guard) has accepted, and
/// [`FieldSection::request`](super::FieldSection::request) what came by HTTP/2. Then it is changed by its methods and by those of [`Request::fields`], and [`Request::write`] writes it for a server.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The version that it came by.
    pub version: Version,
    pub(super) target: Span,
    /// The normal form of the path, where it is another.
    normal: Option<Span>,
    spelling: Spelling,
    /// The normal form of the path that the client asked for, where it was rewritten.
    asked: Option<Span>,
    authority: Option<Span>,
    /// The request line with its end, if it can be written as it came.
    line: Option<Span>,
    /// The fields.
    pub fields: Fields,
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}

/// What stands behind the target in a request line of HTTP/1.1.
const VERSION: &str = " HTTP/1.1\r\n";

impl Request {
    /// `GET` for nothing, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            method: Method::GET,
            version: Version::HTTP_11,
            target: Span { start: 0, end: 0 },
            normal: None,
            spelling: Spelling::SINGLE,
            asked: None,
            authority: None,
            line: None,
            fields: Fields::new(),
        }
    }

    /// Takes in a head that a guard has accepted: `bytes` are those of the head, and `guard` the one that has just
    /// looked at them.
    ///
    /// # Errors
    /// A method that cannot be one.
    pub fn load(
        &mut self,
        head: &h1::RequestHead,
        guard: &h1::Guard,
        bytes: &[u8],
    ) -> Result<(), Http1Fault> {
        self.fields.load(bytes, guard.fields());
        self.method = Method::from_bytes(&bytes[head.method.clone()]).map_err(|_| Http1Fault::Method)?;
        let modern = head.version == h1::Version::Http11;
        self.version = if modern { Version::HTTP_11 } else { Version::HTTP_10 };
        self.set_target_at(Span::of(&head.target));
        self.authority = None;
        let line = head.method.start..head.target.end + VERSION.len();
        self.line = modern.then(|| Span::of(&line));
        if head.form == Form::Absolute {
            self.absolute(bytes, head.target.clone());
        }
        if head.query == QueryForm::Raw {
            self.encode_query()?;
        }
        Ok(())
    }

    /// Has the raw bytes of the query percent-encoded.
    #[cold]
    fn encode_query(&mut self) -> Result<(), Http1Fault> {
        let encoded = target::encode(&self.fields.bytes[self.target.range()]);
        // The types of `http`, and servers that speak HTTP/2, take no more.
        if encoded.len() >= usize::from(u16::MAX) {
            return Err(Http1Fault::TargetTooLong);
        }
        self.set_target(&encoded);
        Ok(())
    }

    /// Takes an absolute target apart. Behind an authority the path may be missing, which no server is to see.
    #[cold]
    fn absolute(&mut self, bytes: &[u8], place: Range<usize>) {
        let text = &bytes[place.clone()];
        let Some((_, authority, path)) = target::split(text) else { return };
        let end = place.end - path.len();
        self.authority = Some(Span::of(&(end - authority.len()..end)));
        self.line = None;
        match target::origin_form(self.method.as_str().as_bytes(), path) {
            Some(made) => self.set_target(&made),
            None => self.set_target_at(Span::of(&(end..place.end))),
        }
    }

    /// The bytes of the head as they came, and what was written behind them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.fields.bytes
    }

    fn text(&self, place: Span) -> &str {
        // Targets and authorities are ASCII: that was checked before they came here.
        std::str::from_utf8(&self.fields.bytes[place.range()]).unwrap_or_default()
    }

    /// The path with its query, or `*`.
    #[must_use]
    pub fn target(&self) -> &str {
        self.text(self.target)
    }

    /// The path; `*` for the whole server.
    #[must_use]
    pub fn path(&self) -> &str {
        let target = self.target();
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    /// Finds the normal form of the path. Another target has to be normalised again.
    pub fn normalize(&mut self) {
        let normal = path::normalize(self.path());
        let (text, spelling) = match normal.text {
            Cow::Borrowed(_) => (None, normal.spelling),
            Cow::Owned(text) => (Some(text), normal.spelling),
        };
        self.spelling = spelling;
        self.normal = text.map(|text| self.fields.push(text.as_bytes()));
    }

    /// The path in its normal form, once [`Request::normalize`] has found it.
    #[must_use]
    pub fn normal_path(&self) -> &str {
        self.normal.map_or_else(|| self.path(), |place| self.text(place))
    }

    /// Gives the request another path and query by a rule of a route. The path that the client asked for is known on.
    pub fn rewrite_target(&mut self, target: &[u8]) {
        let asked = self.asked.or(self.normal).unwrap_or_else(|| {
            let end = self.target.start + self.path().len() as u32;
            Span { start: self.target.start, end }
        });
        self.set_target(target);
        self.normalize();
        self.asked = Some(asked);
    }

    /// The normal form of the path that the client asked for, before any rule of a route.
    #[must_use]
    pub fn asked_path(&self) -> &str {
        self.asked.map_or_else(|| self.normal_path(), |place| self.text(place))
    }

    /// How the path was spelled, once [`Request::normalize`] has looked.
    #[must_use]
    pub fn spelling(&self) -> Spelling {
        self.spelling
    }

    /// The query, without its question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.target().split_once('?').map(|(_, query)| query)
    }

    /// The authority of the target, if it has one.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.authority.map(|place| self.text(place))
    }

    /// What is asked for (RFC 9110 §7.2): the authority of the target, or else `Host`.
    #[must_use]
    pub fn host(&self) -> Option<&[u8]> {
        self.host_place().map(|place| &self.fields.bytes[place])
    }

    /// Where it stands, without the colon of an empty port (RFC 3986 §3.2.3).
    pub(super) fn host_place(&self) -> Option<Range<usize>> {
        let mut place = match self.authority {
            Some(place) => place.range(),
            None => self.fields.place(super::Known::Host)?,
        };
        if self.fields.bytes[place.clone()].ends_with(b":") {
            place.end -= 1;
        }
        Some(place)
    }

    /// Has one `Host` say what is asked for, which comes first where there was none. From now on that field is what a
    /// server is asked for, by whichever version, and whatever it is changed to.
    pub fn settle_host(&mut self) {
        // HTTP/2 leaves `Host` out or says it twice, an absolute target overrules it (RFC 9112 §3.2.2, RFC 9113 §8.3.1),
        // and HTTP/1.0 may leave it out.
        let differs = match (self.authority(), self.fields.get(super::Known::Host)) {
            (Some(authority), Some(host)) => authority.as_bytes() != host || host.ends_with(b":"),
            (None, Some(host)) => host.ends_with(b":"),
            (_, None) => true,
        };
        if differs {
            let host = self.host().unwrap_or_default().to_vec();
            self.fields.set_host(&host);
        }
        self.authority = None;
    }

    /// Gives the request another method.
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
        self.line = None;
    }

    /// Gives the request another path and query.
    pub fn set_target(&mut self, target: &[u8]) {
        let place = self.fields.push(target);
        self.set_target_at(place);
    }

    /// Has the path and query that stand there.
    pub(super) fn set_target_at(&mut self, target: Span) {
        self.target = target;
        (self.normal, self.spelling, self.asked) = (None, Spelling::SINGLE, None);
        self.line = None;
    }

    /// The value of the first field, if that is what `:authority` said, is the authority. It is `Host`, too, where there
    /// is no other one (RFC 9113 §8.3.1).
    pub(super) fn set_authority_from_host(&mut self, first: bool) {
        let place = self.fields.index.first().filter(|_| first).map(|field| Span::of(&field.value()));
        if place.is_some() && self.fields.all(super::Known::Host).nth(1).is_some() {
            self.fields.index.remove(0);
        }
        self.authority = place;
    }

    pub(super) fn set_authority(&mut self, authority: Option<&[u8]>) {
        self.authority = authority.map(|text| self.fields.push(text));
    }

    /// Writes the request line and the fields but those `without` behind `out`, for a server that speaks HTTP/1.1. What
    /// frames the content, and the empty line, are for the caller.
    pub fn write(&self, without: KnownSet, out: &mut Vec<u8>) {
        if let Some(line) = self.line {
            return self.fields.write_from(line.range(), without, out);
        }
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(&self.fields.bytes[self.target.range()]);
        out.extend_from_slice(VERSION.as_bytes());
        self.fields.write(without, out);
    }
}
