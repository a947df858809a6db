//! HTTP/1 without I/O: a strict gatekeeper for the requests of a connection, the content of messages in chunks
//! ([`Chunks`]), and the heads of responses ([`ResponseReader`]).
//!
//! Request smuggling lives on bytes that two parsers read differently. The [`Guard`] stands before the parser
//! that serves the request and lets pass only what has one reading: RFC 9112 by the letter, where it offers a
//! choice the stricter one. It knows where each message ends, so every request of a pipeline is looked at.
//!
//! **What passes when.** Heads, lines of chunk sizes and trailers pass whole, when they are complete and
//! accepted; content passes as it comes. So the parser behind never sees a byte of anything that is refused.
//!
//! **How to call.** Keep the bytes that did not pass, append what arrives, and call [`Guard::inspect`] with
//! all of them until it says [`Outcome::Wait`]. It remembers how far it has read, so that no byte of a line is
//! searched twice; bytes that did not pass must not change. It allocates nothing but the index of a head's fields
//! ([`Guard::fields`]), which is used again. What is held back while
//! more is awaited is at most [`Limits::head`] or a line of a chunk size, whichever is longer, and two bytes. In
//! [`Phase::Deciding`] everything is held back: stop reading then.
//!
//! It refuses to correct anything, to buffer, and to judge what a request means: routes, methods and sizes of
//! content are for the layers behind.

mod chunked;
mod chunks;
mod fault;
mod field;
mod fields;
mod framing;
mod head;
mod lines;
mod outcome;
mod request_line;
mod response;
pub(crate) mod scan;

use crate::head::FieldLine;
use chunked::{Chunked, Progress};
pub use chunks::{Chunk, Chunks, fields};
pub use fault::Http1Fault;
pub use fields::{FieldAt, Fields};
use head::{Draft, Drafted};
pub use outcome::{Form, Framing, Inspected, Outcome, Phase, RequestHead, Version};
pub use response::{Asked, ResponseFault, ResponseFraming, ResponseHead, ResponseReader};

/// Reads a Content-Length as a guard does, for requests that came by another protocol and go on in HTTP/1.
///
/// # Errors
/// The form that is refused.
pub fn content_length(value: &[u8]) -> Result<u64, Http1Fault> {
    framing::content_length(value)
}

/// Whether a name can be mistaken for one that frames the message ([`Http1Fault::AmbiguousName`]).
#[must_use]
pub fn is_ambiguous(name: &[u8]) -> bool {
    field::is_ambiguous(name)
}

/// Whether a name is one that a field can have: a token (RFC 9110 §5.1).
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| scan::is_token(byte))
}

/// Whether bytes can be a value: they have no control bytes but TABs (RFC 9110 §5.5).
#[must_use]
pub fn is_text(value: &[u8]) -> bool {
    scan::control(value, 0).is_none()
}

/// The longest method, in bytes. The longest registered one has 17.
pub const MAX_METHOD: usize = 32;

/// The longest line of a chunk size with its extensions, in bytes, without its end.
pub const MAX_CHUNK_LINE: usize = 256;

/// The most bytes of chunk extensions in one message: nobody needs them, and they cost without counting as
/// content.
pub const MAX_EXTENSIONS: u32 = 4096;

/// What a head may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest head, in bytes, from the first byte of the method to the empty line and with it; the same
    /// for the trailers of a message.
    pub head: u32,
    /// The longest target, in bytes.
    pub target: u32,
    /// The most fields in a head, and the most in trailers.
    pub fields: u16,
    /// Whether CONNECT is let pass.
    pub connect: bool,
}

impl Default for Limits {
    /// 32 KiB, targets of 8 KiB (RFC 9112 §3 asks for 8000 at least), 100 fields, no CONNECT.
    fn default() -> Self {
        Self { head: 32 * 1024, target: 8 * 1024, fields: 100, connect: false }
    }
}

/// Looks at the requests of one connection, one after the other.
#[derive(Debug)]
pub struct Guard {
    limits: Limits,
    state: State,
    draft: Draft,
    /// Whether a byte of the next head has come.
    begun: bool,
    /// Whether no request has been accepted before.
    first: bool,
    /// What follows the message that is being read.
    next: Next,
}

#[derive(Debug)]
enum State {
    Head,
    Length(u64),
    Chunked(Chunked),
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
    /// A guard for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Head,
            draft: Draft::default(),
            begun: false,
            first: true,
            next: Next::Request,
        }
    }

    /// Looks at all bytes that have come and have not passed. Stops at the first thing worth telling; call
    /// again with the bytes behind [`Inspected::pass`] unless the outcome is [`Outcome::Wait`].
    pub fn inspect(&mut self, bytes: &[u8]) -> Inspected {
        match &mut self.state {
            State::Head => self.head(bytes),
            State::Length(left) => {
                let pass = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= pass as u64;
                if *left > 0 {
                    return Inspected { pass, outcome: Outcome::Wait };
                }
                self.end();
                Inspected { pass, outcome: Outcome::End }
            }
            State::Chunked(chunked) => match chunked.read(bytes, &self.limits) {
                Progress::Wait(pass) => Inspected { pass, outcome: Outcome::Wait },
                Progress::End(pass) => {
                    self.end();
                    Inspected { pass, outcome: Outcome::End }
                }
                Progress::Fault(pass, fault) => self.refuse(pass, fault),
            },
            State::Deciding => Inspected { pass: 0, outcome: Outcome::Wait },
            State::Switched => Inspected { pass: bytes.len(), outcome: Outcome::Wait },
            State::Over if bytes.is_empty() => Inspected { pass: 0, outcome: Outcome::Wait },
            State::Over => Inspected { pass: 0, outcome: Outcome::Over },
            State::Http2 => Inspected { pass: 0, outcome: Outcome::Http2 },
            State::Refused(fault) => Inspected { pass: 0, outcome: Outcome::Refused(*fault) },
        }
    }

    /// Where the fields stand of the head that was accepted last, in the bytes that were inspected then. To be read
    /// before more bytes are inspected.
    #[must_use]
    pub fn fields(&self) -> &[FieldLine] {
        self.draft.index()
    }

    /// Gives back the memory that is used again from head to head. Not while a head is coming.
    pub fn rest(&mut self) {
        if self.phase() != Phase::Head {
            self.draft.rest();
        }
    }

    /// The answer to the request that had [`RequestHead::switches`] changed the protocol: behind that request
    /// everything passes. Of no effect unless such a request awaits its answer.
    pub fn switched(&mut self) {
        if let Next::Decision { .. } = self.next {
            self.decide(Next::Protocol);
        }
    }

    /// The final answer to the request that had [`RequestHead::switches`] did not change the protocol: what follows
    /// is the next request. Not to be called for answers to requests before it. Of no effect unless such a
    /// request awaits its answer.
    pub fn stayed(&mut self) {
        if let Next::Decision { keep_alive } = self.next {
            self.decide(if keep_alive { Next::Request } else { Next::Nothing });
        }
    }

    /// The answer may come before the content has ended.
    fn decide(&mut self, next: Next) {
        self.next = next;
        if matches!(self.state, State::Deciding) {
            self.end();
        }
    }

    /// What the connection is in the middle of, for timers and for the cause of its end.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Head if self.begun => Phase::Head,
            State::Head => Phase::Idle,
            State::Length(_) | State::Chunked(_) => Phase::Body,
            State::Deciding => Phase::Deciding,
            State::Switched => Phase::Switched,
            State::Over | State::Http2 | State::Refused(_) => Phase::Over,
        }
    }

    #[inline]
    fn head(&mut self, bytes: &[u8]) -> Inspected {
        let (head, length) = match self.draft.read(bytes, &self.limits, self.first) {
            Drafted::Partial => {
                self.begun = Draft::has_begun(bytes);
                return Inspected { pass: 0, outcome: Outcome::Wait };
            }
            Drafted::Whole { head, length } => (head, length),
            Drafted::Http2 => {
                self.state = State::Http2;
                return Inspected { pass: 0, outcome: Outcome::Http2 };
            }
            Drafted::Fault(fault) => return self.refuse(0, fault),
        };
        self.begun = false;
        self.first = false;
        self.next = match head.keep_alive {
            keep_alive if head.switches => Next::Decision { keep_alive },
            true => Next::Request,
            false => Next::Nothing,
        };
        match head.framing {
            Framing::None | Framing::Length(0) => self.end(),
            Framing::Length(length) => self.state = State::Length(length),
            Framing::Chunked => self.state = State::Chunked(Chunked::new()),
        }
        Inspected { pass: length, outcome: Outcome::Head(head) }
    }

    fn end(&mut self) {
        self.state = match self.next {
            Next::Request => State::Head,
            Next::Nothing => State::Over,
            Next::Decision { .. } => State::Deciding,
            Next::Protocol => State::Switched,
        };
    }

    #[cold]
    fn refuse(&mut self, pass: usize, fault: Http1Fault) -> Inspected {
        self.state = State::Refused(fault);
        Inspected { pass, outcome: Outcome::Refused(fault) }
    }
}
