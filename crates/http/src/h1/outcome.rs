//! Results of the guard.

use std::ops::Range;

use crate::fault::Http1Fault;
use crate::target::QueryForm;

/// Result of [`Guard::inspect`](super::Guard::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Inspected {
    /// Number of bytes at the front that may pass to the parser behind. With [`GuardOutcome::Refused`] it can
    /// be more than zero: the bytes before the rejected ones were valid.
    pub pass: usize,
    /// Reason for stopping there.
    pub outcome: GuardOutcome,
}

/// Reason for which the guard stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardOutcome {
    /// More bytes are needed; [`Guard::phase`](super::Guard::phase) says for which element.
    Wait,
    /// A head is complete and accepted; `pass` is its end. If [`RequestFraming::is_empty`], the message ends
    /// there, too, and no [`GuardOutcome::End`] follows.
    Head(RequestHead),
    /// The current message ends at `pass`.
    End,
    /// The client speaks HTTP/2 with prior knowledge (RFC 9113 §3.4). Nothing passes; all bytes, including
    /// these, belong to an HTTP/2 parser.
    Http2,
    /// The last message had `close`: whatever follows is not a request (RFC 9112 §9.6). Drop the bytes.
    Over,
    /// The bytes behind `pass`, and all that follow, are rejected.
    Refused(Http1Fault),
}

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between messages, without a byte of the next head.
    Idle,
    /// Between the first byte of a head and its end.
    Head,
    /// The head was accepted; content or its end is missing.
    Body,
    /// The request asked for another protocol, and its response is unknown: nothing passes until
    /// [`Guard::switched`](super::Guard::switched) or [`Guard::stayed`](super::Guard::stayed).
    Deciding,
    /// Another protocol is spoken; everything passes.
    Switched,
    /// No further request can come: after `close`, a rejection, or the switch to HTTP/2.
    Over,
}

/// An accepted head. Ranges count from the front of the inspected bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Range of the method.
    pub method: Range<usize>,
    /// Range of the target.
    pub target: Range<usize>,
    /// Form of the target.
    pub form: TargetForm,
    /// Spelling of the query.
    pub query: QueryForm,
    /// Version of the request.
    pub version: Http1Version,
    /// Range of the value of Host; always present in HTTP/1.1.
    pub host: Option<Range<usize>>,
    /// Delimitation of the content.
    pub framing: RequestFraming,
    /// Set if another request may follow on the connection (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Set if another protocol is requested: by CONNECT, or by Upgrade together with the connection option
    /// (RFC 9110 §7.8).
    pub switches: bool,
    /// Set if the client waits for `100 Continue` before it sends content (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// Number of field lines.
    pub fields: u16,
}

/// Version of HTTP/1 of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Http1Version {
    /// HTTP/1.0, without chunks and with optional Host.
    Http10,
    /// HTTP/1.1, as in RFC 9112.
    Http11,
}

/// Form of a request target (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetForm {
    /// A path with an optional query.
    Origin,
    /// An absolute `http` or `https` URI.
    Absolute,
    /// The whole server: `*`, for OPTIONS.
    Asterisk,
    /// Host and port, for CONNECT.
    Authority,
}

/// Delimitation of the content of a request (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestFraming {
    /// Neither length nor chunks: no content follows.
    None,
    /// Content of this many bytes.
    Length(u64),
    /// Chunks, and optional trailers.
    Chunked,
}

impl RequestFraming {
    /// Returns true if no content follows the head.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }
}
