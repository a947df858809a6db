//! What is being read of the content of an HTTP/1 request.

use std::fmt;

use offramp_http::Http1Fault;
use offramp_http::h1::Chunks;
use offramp_http::head::Fields;

/// The reason for which the content of a request does not go on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UploadError {
    /// The client's direction ended before it, or its request did.
    Gone,
    /// The guard refused it.
    Refused(Http1Fault),
    /// It passed the guard, and cannot be read all the same.
    Unreadable,
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the connection ended before the body did"),
            Self::Refused(fault) => write!(f, "{}: {fault}", fault.name()),
            Self::Unreadable => f.write_str("the body cannot be read"),
        }
    }
}

impl std::error::Error for UploadError {}

/// Decoder of content in chunks.
pub(crate) struct Chunked {
    pub(super) chunks: Chunks,
    /// The trailers, as soon as the end was read.
    pub(super) end: Option<Box<Fields>>,
}

impl Chunked {
    pub(super) fn new() -> Self {
        Self { chunks: Chunks::new(), end: None }
    }

    /// The end was read, with these lines before it.
    pub(super) fn finish(&mut self, lines: &[u8]) {
        self.end = Some(Box::new(Fields::of_section(lines)));
    }

    /// Nothing more is to come.
    pub(super) fn is_over(&self) -> bool {
        self.end.as_ref().is_some_and(|trailers| trailers.is_empty())
    }

    /// The trailers, once, where there are any.
    pub(super) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.end.as_mut().filter(|trailers| !trailers.is_empty()).map(std::mem::take)
    }
}
