//! Heads of responses.

use http::{StatusCode, Version};

use super::{Fields, HeadRange, Known};
use crate::h1::{self, ResponseFault, ResponseHead, ResponseReader};

/// A response: status, version, fields, and a body of any type.
#[derive(Debug, Clone, Default)]
pub struct Response<B = ()> {
    /// Status code of the response.
    pub status: StatusCode,
    /// Version of HTTP that it was received by.
    pub version: Version,
    /// Range of the reason phrase, if it is not the standard one.
    reason: Option<HeadRange>,
    /// Fields of the head, in order.
    pub fields: Fields,
    /// Body, of the caller's type.
    pub body: B,
}

impl Response {
    /// Loads a complete head of a reader: `bytes` are those of the head.
    ///
    /// # Errors
    /// The status is not valid.
    pub fn load(head: &ResponseHead, reader: &ResponseReader, bytes: &[u8]) -> Result<Self, ResponseFault> {
        let mut fields = Fields::new();
        fields.load(bytes, reader.fields());
        if let Some(length) = head.odd_length {
            // Replaces a noncanonical length.
            fields.set_known(Known::ContentLength, length.to_string().as_bytes());
        }
        let status = StatusCode::from_u16(head.status).map_err(|_| ResponseFault::StatusLine)?;
        let said = &bytes[head.reason.clone()];
        let usual = || status.canonical_reason().is_some_and(|usual| usual.as_bytes() == said);
        let reason = (!said.is_empty() && !usual()).then(|| HeadRange::of(&head.reason));
        let modern = head.version == h1::Http1Version::Http11;
        let version = if modern { Version::HTTP_11 } else { Version::HTTP_10 };
        Ok(Self { status, version, reason, fields, body: () })
    }
}

impl<B> Response<B> {
    /// Creates a response without fields.
    #[must_use]
    pub fn new(status: StatusCode, body: B) -> Self {
        Self { status, version: Version::HTTP_11, reason: None, fields: Fields::new(), body }
    }

    /// The reason phrase, if it is not the standard one of the status.
    #[must_use]
    pub fn reason(&self) -> Option<&[u8]> {
        self.reason.map(|place| &self.fields.bytes[place.range()])
    }

    /// Replaces the status, and drops the reason phrase.
    pub fn set_status(&mut self, status: StatusCode) {
        (self.status, self.reason) = (status, None);
    }

    /// Replaces the body by the result of `make`.
    pub fn map<T>(self, make: impl FnOnce(B) -> T) -> Response<T> {
        let Self { status, version, reason, fields, body } = self;
        Response { status, version, reason, fields, body: make(body) }
    }

    /// Status code of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the body alone.
    #[must_use]
    pub fn into_body(self) -> B {
        self.body
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (parts, body) = response.into_parts();
        let mut made = Self::new(parts.status, body);
        made.version = parts.version;
        made.fields.load_map(&parts.headers);
        made
    }
}
