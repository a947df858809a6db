//! Heads of requests.

use std::borrow::Cow;
use std::ops::Range;

use http::{Method, Version};

use super::{Fields, HeadRange, KnownSet};
use crate::fault::Http1Fault;
use crate::h1::{self, TargetForm};
use crate::path::{self, Spelling};
use crate::target::{self, QueryForm};

/// The head of a request: method, target, version and fields.
///
/// [`Request::load`] takes a head accepted by a [`Guard`](h1::Guard), and
/// [`FieldSection::request`](super::FieldSection::request) one received by HTTP/2. It is edited by its
/// methods and those of [`Request::fields`], and written for a server by [`Request::write`].
#[derive(Debug, Clone)]
pub struct Request {
    /// Method of the request.
    pub method: Method,
    /// Version of HTTP that it was received by.
    pub version: Version,
    pub(super) target: HeadRange,
    /// Normal form of the path, once computed: a part of the target if that is in normal form.
    normal: Option<HeadRange>,
    spelling: Spelling,
    /// Normal form of the path before a rewrite.
    asked: Option<HeadRange>,
    authority: Option<HeadRange>,
    /// Request line with its end, if it can be written as received.
    line: Option<HeadRange>,
    /// The fields, `Host` among them.
    pub fields: Fields,
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}

/// End of a request line in HTTP/1.1, behind the target.
const VERSION: &str = " HTTP/1.1\r\n";

impl Request {
    /// An empty `GET`, without allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            method: Method::GET,
            version: Version::HTTP_11,
            target: HeadRange { start: 0, end: 0 },
            normal: None,
            spelling: Spelling::SINGLE,
            asked: None,
            authority: None,
            line: None,
            fields: Fields::new(),
        }
    }

    /// Loads a head accepted by a guard: `bytes` are those of the head, and `guard` has just inspected them.
    ///
    /// # Errors
    /// The method is not valid.
    pub fn load(
        &mut self,
        head: &h1::RequestHead,
        guard: &h1::Guard,
        bytes: &[u8],
    ) -> Result<(), Http1Fault> {
        self.fields.load(bytes, guard.fields());
        self.method = Method::from_bytes(&bytes[head.method.clone()]).map_err(|_| Http1Fault::Method)?;
        let modern = head.version == h1::Http1Version::Http11;
        self.version = if modern { Version::HTTP_11 } else { Version::HTTP_10 };
        self.set_target_at(HeadRange::of(&head.target));
        self.authority = None;
        let line = head.method.start..head.target.end + VERSION.len();
        self.line = modern.then(|| HeadRange::of(&line));
        if head.form == TargetForm::Absolute {
            self.absolute(bytes, head.target.clone());
        }
        if head.query == QueryForm::Raw {
            self.encode_query()?;
        }
        Ok(())
    }

    /// Percent-encodes the raw bytes of the query.
    #[cold]
    fn encode_query(&mut self) -> Result<(), Http1Fault> {
        let encoded = target::encode(&self.fields.bytes[self.target.range()]);
        // Limit of the types of `http`, and so of HTTP/2 servers.
        if encoded.len() >= usize::from(u16::MAX) {
            return Err(Http1Fault::TargetTooLong);
        }
        self.set_target(&encoded);
        Ok(())
    }

    /// Splits an absolute target. A missing path behind the authority becomes `/`.
    #[cold]
    fn absolute(&mut self, bytes: &[u8], place: Range<usize>) {
        let text = &bytes[place.clone()];
        let Some((_, authority, path)) = target::split(text) else { return };
        let end = place.end - path.len();
        self.authority = Some(HeadRange::of(&(end - authority.len()..end)));
        self.line = None;
        match target::origin_form(self.method.as_str().as_bytes(), path) {
            Some(made) => self.set_target(&made),
            None => self.set_target_at(HeadRange::of(&(end..place.end))),
        }
    }

    /// The received bytes of the head, and those written behind them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.fields.bytes
    }

    fn text(&self, place: HeadRange) -> &str {
        // Targets and authorities are ASCII; that was validated before.
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
        self.text(self.path_place())
    }

    fn path_place(&self) -> HeadRange {
        let target = &self.fields.bytes[self.target.range()];
        // A loop over bytes: paths are short, and a search of text costs more to set up.
        let length = target.iter().position(|&byte| byte == b'?').unwrap_or(target.len());
        HeadRange { start: self.target.start, end: self.target.start + length as u32 }
    }

    /// Computes the normal form of the path. Repeat it after changing the target.
    pub fn normalize(&mut self) {
        let as_it_came = self.path_place();
        let normal = path::normalize(self.text(as_it_came));
        let text = match normal.text {
            Cow::Borrowed(_) => None,
            Cow::Owned(text) => Some(text),
        };
        self.spelling = normal.spelling;
        // A span in both cases, so that the end of the path is searched once.
        self.normal = Some(text.map_or(as_it_came, |text| self.fields.push(text.as_bytes())));
    }

    /// The normal form of the path, after [`Request::normalize`].
    #[must_use]
    pub fn normal_path(&self) -> &str {
        self.normal.map_or_else(|| self.path(), |place| self.text(place))
    }

    /// Replaces path and query by a rule of a route. The original path remains available by
    /// [`Request::asked_path`].
    pub fn rewrite_target(&mut self, target: &[u8]) {
        let asked = self.asked.or(self.normal).unwrap_or_else(|| self.path_place());
        self.set_target(target);
        self.normalize();
        self.asked = Some(asked);
    }

    /// The normal form of the path before any rewrite.
    #[must_use]
    pub fn asked_path(&self) -> &str {
        self.asked.map_or_else(|| self.normal_path(), |place| self.text(place))
    }

    /// Spelling of the path, after [`Request::normalize`].
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

    /// The requested host (RFC 9110 §7.2): the authority of the target, or else `Host`.
    #[must_use]
    pub fn host(&self) -> Option<&[u8]> {
        self.host_place().map(|place| &self.fields.bytes[place])
    }

    /// Range of the requested host, without the colon of an empty port (RFC 3986 §3.2.3).
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

    /// Makes a single `Host` field hold the requested host, as the first field if there was none. From now on
    /// that field determines the host that a server of any version receives, even after edits.
    pub fn settle_host(&mut self) {
        // HTTP/2 omits or repeats `Host`, an absolute target overrides it (RFC 9112 §3.2.2, RFC 9113 §8.3.1),
        // and HTTP/1.0 may omit it.
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

    /// Replaces the method; the request line is rewritten.
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
        self.line = None;
    }

    /// Replaces path and query.
    pub fn set_target(&mut self, target: &[u8]) {
        let place = self.fields.push(target);
        self.set_target_at(place);
    }

    /// Sets path and query to a range of the bytes.
    pub(super) fn set_target_at(&mut self, target: HeadRange) {
        self.target = target;
        (self.normal, self.spelling, self.asked) = (None, Spelling::SINGLE, None);
        self.line = None;
    }

    /// Takes the authority from the first field, if `:authority` was stored there. It also is `Host`, unless
    /// there is another (RFC 9113 §8.3.1).
    pub(super) fn set_authority_from_host(&mut self, first: bool) {
        let place = self.fields.index.first().filter(|_| first).map(|field| HeadRange::of(&field.value()));
        if place.is_some() && self.fields.all(super::Known::Host).nth(1).is_some() {
            self.fields.index.remove(0);
        }
        self.authority = place;
    }

    pub(super) fn set_authority(&mut self, authority: Option<&[u8]>) {
        self.authority = authority.map(|text| self.fields.push(text));
    }

    /// Appends the request line and the fields, except those `without`, to `out`, for an HTTP/1.1 server. The
    /// caller adds the framing of the content, and the empty line.
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
