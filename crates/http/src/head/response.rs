//! The head of a response.

use http::{StatusCode, Version};

use super::{Fields, Known, Span};
use crate::h1::{self, ResponseFault, ResponseHead, ResponseReader};

/// A response: status, version, fields, and a body of whatever kind.
#[derive(Debug, Clone, Default)]
pub struct Response<B = ()> {
    /// The status.
    pub status: StatusCode,
    /// The version that it came by.
    pub version: Version,
    /// Where the reason stands, if it is not the usual one of the status.
    reason: Option<Span>,
    /// The fields.
    pub fields: Fields,
    /// The body.
    pub body: B,
}

impl Response {
    /// Takes in a head that a reader has found complete: `bytes` are those of the head.
    ///
    /// # Errors
    /// A status that is none.
    pub fn load(head: &ResponseHead, reader: &ResponseReader, bytes: &[u8]) -> Result<Self, ResponseFault> {
        let mut fields = Fields::new();
        fields.load(bytes, reader.fields());
        if let Some(length) = head.odd_length {
            // Said in odd words; once is enough.
            fields.set_known(Known::ContentLength, length.to_string().as_bytes());
        }
        let status = StatusCode::from_u16(head.status).map_err(|_| ResponseFault::StatusLine)?;
        let said = &bytes[head.reason.clone()];
        let usual = || status.canonical_reason().is_some_and(|usual| usual.as_bytes() == said);
        let reason = (!said.is_empty() && !usual()).then(|| Span::of(&head.reason));
        let modern = head.version == h1::Version::Http11;
        let version = if modern { Version::HTTP_11 } else { Version::HTTP_10 };
        Ok(Self { status, version, reason, fields, body: () })
    }
}

impl<B> Response<B> {
    /// A response of ours without fields.
    #[must_use]
    pub fn new(status: StatusCode, body: B) -> Self {
        Self { status, version: Version::HTTP_11, reason: None, fields: Fields::new(), body }
    }

    /// The reason, where it is not the usual one of the status.
    #[must_use]
    pub fn reason(&self) -> Option<&[u8]> {
        self.reason.map(|place| &self.fields.bytes[place.range()])
    }

    /// Forgets the reason.
    pub fn set_status(&mut self, status: StatusCode) {
        (self.status, self.reason) = (status, None);
    }

    /// The same response with another body.
    pub fn map<T>(self, make: impl FnOnce(B) -> T) -> Response<T> {
        let Self { status, version, reason, fields, body } = self;
        Response { status, version, reason, fields, body: make(body) }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The body alone.
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
