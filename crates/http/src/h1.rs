//! HTTP/1 without I/O: a strict guard in front of request parsing, chunked content ([`Chunks`]), and the
//! heads of responses ([`ResponseReader`]).
//!
//! Request smuggling needs bytes that two parsers read differently. The [`Guard`] precedes the parser that
//! serves the request and passes only requests with a single reading: RFC 9112 to the letter and, where it
//! offers a choice, the stricter one. It tracks where each message ends, so every request of a pipeline is
//! checked.
//!
//! **What passes when.** Heads, chunk-size lines and trailers pass as a whole, once they are complete and
//! accepted; content passes as it arrives. So the parser behind never sees a byte of a rejected element.
//!
//! **How to call.** Keep the bytes that did not pass, append new ones, and call [`Guard::inspect`] with all
//! of them until it returns [`GuardOutcome::Wait`]. The guard remembers its position, so that no byte of a
//! line is searched twice; bytes that did not pass must not change. It allocates nothing but the index of a
//! head's fields ([`Guard::fields`]), which is reused. While it waits for more, it holds back at most
//! [`HeadLimits::head`] or a chunk-size line, whichever is longer, and two bytes. In [`Phase::Deciding`]
//! everything is held back: stop reading then.
//!
//! The guard does not correct or buffer anything, and does not judge the meaning of a request: routes,
//! methods and sizes of content are for the layers behind it.

mod chunked;
mod chunks;
mod field;
mod fields;
mod framing;
mod head;
mod lines;
mod outcome;
mod request_line;
mod response;

use crate::fault::Http1Fault;
use crate::field::FieldLine;
use chunked::{ChunkProgress, ChunkedReader};
pub use chunks::{Chunk, Chunks, fields};
pub use fields::{FieldAt, FieldIter};
use head::{Drafted, PartialHead};
pub use outcome::{GuardOutcome, Http1Version, Inspected, Phase, RequestFraming, RequestHead, TargetForm};
pub use response::{RequestKind, ResponseFault, ResponseFraming, ResponseHead, ResponseReader};

/// Parses a Content-Length as the guard does, for requests that arrive by another protocol and are forwarded
/// in HTTP/1.
///
/// # Errors
/// The reason for the rejection.
pub fn content_length(value: &[u8]) -> Result<u64, Http1Fault> {
    framing::content_length(value)
}

/// Returns true for names that servers may confuse with one that frames the message
/// ([`Http1Fault::AmbiguousName`]).
#[must_use]
pub fn is_ambiguous(name: &[u8]) -> bool {
    field::is_ambiguous(name)
}

/// Longest chunk-size line including extensions, in bytes, without its line end.
pub const MAX_CHUNK_LINE: usize = 256;

/// Maximum bytes of chunk extensions per message: no client needs them, and they cost without counting as
/// content.
pub const MAX_EXTENSIONS: u32 = 4096;

/// Bounds on a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Longest head, in bytes, from the first byte of the method to the empty line inclusive; also the
    /// longest trailer section.
    pub head: u32,
    /// Longest request target, in bytes.
    pub target: u32,
    /// Maximum number of fields in a head, and in trailers.
    pub fields: u16,
    /// Permits CONNECT, which is rejected otherwise.
    pub connect: bool,
}

impl Default for HeadLimits {
    /// 32 KiB, targets of 8 KiB (RFC 9112 §3 requires at least 8000), 100 fields, no CONNECT.
    fn default() -> Self {
        Self { head: 32 * 1024, target: 8 * 1024, fields: 100, connect: false }
    }
}

/// Checks the requests of one connection, one after the other.
#[derive(Debug)]
pub struct Guard {
    limits: HeadLimits,
    state: MessageState,
    draft: PartialHead,
    /// Set once a byte of the next head has arrived.
    head_begun: bool,
    /// Set until the first request is accepted.
    is_first: bool,
    /// Element that follows the current message.
    next: Next,
}

#[derive(Debug)]
enum MessageState {
    Head,
    Length(u64),
    Chunked(ChunkedReader),
    Deciding,
    Switched,
    Over,
    Http2,
    Refused(Http1Fault),
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Request,
    Nothing,
    Decision { keep_alive: bool },
    Protocol,
}

impl Guard {
    /// Creates the guard of a new connection.
    #[must_use]
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            state: MessageState::Head,
            draft: PartialHead::default(),
            head_begun: false,
            is_first: true,
            next: Next::Request,
        }
    }

    /// Inspects all received bytes that have not passed. Returns at the first event; call again with the
    /// bytes behind [`Inspected::pass`] unless the outcome is [`GuardOutcome::Wait`].
    pub fn inspect(&mut self, bytes: &[u8]) -> Inspected {
        match &mut self.state {
            MessageState::Head => self.head(bytes),
            MessageState::Length(left) => {
                let pass = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= pass as u64;
                if *left > 0 {
                    return Inspected { pass, outcome: GuardOutcome::Wait };
                }
                self.end();
                Inspected { pass, outcome: GuardOutcome::End }
            }
            MessageState::Chunked(chunked) => match chunked.read(bytes, &self.limits) {
                ChunkProgress::Wait(pass) => Inspected { pass, outcome: GuardOutcome::Wait },
                ChunkProgress::End(pass) => {
                    self.end();
                    Inspected { pass, outcome: GuardOutcome::End }
                }
                ChunkProgress::Fault(pass, fault) => self.refuse(pass, fault),
            },
            MessageState::Deciding => Inspected { pass: 0, outcome: GuardOutcome::Wait },
            MessageState::Switched => Inspected { pass: bytes.len(), outcome: GuardOutcome::Wait },
            MessageState::Over if bytes.is_empty() => Inspected { pass: 0, outcome: GuardOutcome::Wait },
            MessageState::Over => Inspected { pass: 0, outcome: GuardOutcome::Over },
            MessageState::Http2 => Inspected { pass: 0, outcome: GuardOutcome::Http2 },
            MessageState::Refused(fault) => Inspected { pass: 0, outcome: GuardOutcome::Refused(*fault) },
        }
    }

    /// Index of the fields of the last accepted head, relative to the bytes inspected then. Read it before
    /// inspecting more bytes.
    #[must_use]
    pub fn fields(&self) -> &[FieldLine] {
        self.draft.index()
    }

    /// Releases the memory that is reused from head to head; does nothing in the middle of a head.
    pub fn rest(&mut self) {
        if self.phase() != Phase::Head {
            self.draft.rest();
        }
    }

    /// Reports a response that changed the protocol, to a request with [`RequestHead::switches`]: everything
    /// behind that request passes. Does nothing unless such a request awaits its response.
    pub fn switched(&mut self) {
        if let Next::Decision { .. } = self.next {
            self.decide(Next::Protocol);
        }
    }

    /// Reports a final response that did not change the protocol, to a request with
    /// [`RequestHead::switches`]: the next request follows. Not for responses to earlier requests. Does
    /// nothing unless such a request awaits its response.
    pub fn stayed(&mut self) {
        if let Next::Decision { keep_alive } = self.next {
            self.decide(if keep_alive { Next::Request } else { Next::Nothing });
        }
    }

    /// Takes effect at once or, while content is still coming, at its end: the response may precede it.
    fn decide(&mut self, next: Next) {
        self.next = next;
        if matches!(self.state, MessageState::Deciding) {
            self.end();
        }
    }

    /// Current phase of the connection, for timers and for the cause of its end.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            MessageState::Head if self.head_begun => Phase::Head,
            MessageState::Head => Phase::Idle,
            MessageState::Length(_) | MessageState::Chunked(_) => Phase::Body,
            MessageState::Deciding => Phase::Deciding,
            MessageState::Switched => Phase::Switched,
            MessageState::Over | MessageState::Http2 | MessageState::Refused(_) => Phase::Over,
        }
    }

    #[inline]
    fn head(&mut self, bytes: &[u8]) -> Inspected {
        let (head, length) = match self.draft.read(bytes, &self.limits, self.is_first) {
            Drafted::Partial => {
                self.head_begun = PartialHead::has_begun(bytes);
                return Inspected { pass: 0, outcome: GuardOutcome::Wait };
            }
            Drafted::Whole { head, length } => (head, length),
            Drafted::Http2 => {
                self.state = MessageState::Http2;
                return Inspected { pass: 0, outcome: GuardOutcome::Http2 };
            }
            Drafted::Fault(fault) => return self.refuse(0, fault),
        };
        self.head_begun = false;
        self.is_first = false;
        self.next = match head.keep_alive {
            keep_alive if head.switches => Next::Decision { keep_alive },
            true => Next::Request,
            false => Next::Nothing,
        };
        match head.framing {
            RequestFraming::None | RequestFraming::Length(0) => self.end(),
            RequestFraming::Length(length) => self.state = MessageState::Length(length),
            RequestFraming::Chunked => self.state = MessageState::Chunked(ChunkedReader::new()),
        }
        Inspected { pass: length, outcome: GuardOutcome::Head(head) }
    }

    fn end(&mut self) {
        self.state = match self.next {
            Next::Request => MessageState::Head,
            Next::Nothing => MessageState::Over,
            Next::Decision { .. } => MessageState::Deciding,
            Next::Protocol => MessageState::Switched,
        };
    }

    #[cold]
    fn refuse(&mut self, pass: usize, fault: Http1Fault) -> Inspected {
        self.state = MessageState::Refused(fault);
        Inspected { pass, outcome: GuardOutcome::Refused(fault) }
    }
}
