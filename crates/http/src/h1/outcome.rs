//! What the guard tells its caller.

use std::ops::Range;

use super::Http1Fault;
use crate::target::QueryForm;

/// The answer to [`Guard::inspect`](super::Guard::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Inspected {
    /// How many bytes from the front may go on to the parser behind. With [`Outcome::Refused`] this can be
    /// more than zero: what came before the refused bytes was in order.
    pub pass: usize,
    /// Why the guard stopped there.
    pub outcome: Outcome,
}

/// Why the guard stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// More bytes are needed; [`Guard::phase`](super::Guard::phase) says for what.
    Wait,
    /// A head is complete and accepted; `pass` ends where it ends. Where
    /// [`Framing::is_empty`], the message ends there too, and no [`Outcome::End`] follows.
    Head(RequestHead),
    /// The message that had begun ends where `pass` ends.
    End,
    /// The client speaks HTTP/2 with prior knowledge (RFC 9113 §3.4). Nothing is passed; all bytes, these
    /// first, belong to an HTTP/2 parser.
    Http2,
    /// The last message was answered for with `close`: nothing that follows is a request (RFC 9112 §9.6). Drop
    /// the bytes.
    Over,
    /// The bytes behind `pass` are refused, and so is all that follows.
    Refused(Http1Fault),
}

/// What the connection is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between messages: no byte of a head has come.
    Idle,
    /// A head has begun and is not complete.
    Head,
    /// The head was accepted and its content, or what ends it, is to come.
    Body,
    /// The request asked for another protocol, and the answer is not known: nothing passes until
    /// [`Guard::switched`](super::Guard::switched) or [`Guard::stayed`](super::Guard::stayed).
    Deciding,
    /// Another protocol is spoken; everything passes.
    Switched,
    /// No further request can come: the last one said `close`, something was refused, or it is HTTP/2.
    Over,
}

/// An accepted head. Ranges count from the front of the bytes that were inspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Where the method stands.
    pub method: Range<usize>,
    /// Where the target stands.
    pub target: Range<usize>,
    /// The form of the target.
    pub form: Form,
    /// The spelling of its query.
    pub query: QueryForm,
    /// The version.
    pub version: Version,
    /// Where the value of Host stands; always there in HTTP/1.1.
    pub host: Option<Range<usize>>,
    /// How the content is delimited.
    pub framing: Framing,
    /// Whether another request may follow on the connection (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Whether another protocol is asked for: by CONNECT, or by Upgrade together with the connection option
    /// (RFC 9110 §7.8).
    pub switches: bool,
    /// Whether the client waits for `100 Continue` before it sends content (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// The number of fields.
    pub fields: u16,
}

/// The version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// The form of a target (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// A path, perhaps with a query.
    Origin,
    /// A whole `http` or `https` URI.
    Absolute,
    /// `*`, for OPTIONS.
    Asterisk,
    /// Host and port, for CONNECT.
    Authority,
}

/// How the content of a request is delimited (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is none.
    None,
    /// That many bytes.
    Length(u64),
    /// Chunks, and trailers perhaps.
    Chunked,
}

impl Framing {
    /// Whether nothing follows the head.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Length(0))
    }
}
