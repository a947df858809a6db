//! Events of a connection, and reasons for the end of a stream.

use std::fmt;

#[cfg(doc)]
use super::Connection;
use crate::h2::{Code, Violation};
use crate::head::{ControlData, Fields, Request, Response};

/// Event of a stream, caused by the peer.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Moved once.
pub enum Event<'b> {
    /// A request begins (server). A caller that cannot serve it responds by [`ControlData::unserved`].
    Request {
        /// Head of the request.
        request: Box<Request>,
        /// Control data of the request.
        control: ControlData,
        /// Size of the fields in bytes.
        size: usize,
        /// Set if the request has no content.
        end: bool,
    },
    /// An interim response (client).
    Interim(Response),
    /// The final response begins (client).
    Response {
        /// Head of the response.
        response: Response,
        /// Length of the content, if it is declared.
        length: Option<u64>,
        /// Set if the response has no content.
        end: bool,
    },
    /// Content of at least one byte, to be [released](Connection::release).
    Data(&'b [u8]),
    /// End of the content, with optional trailers.
    End(Option<Fields>),
    /// [`Connection::capacity`] was 0, and may be more now.
    Writable,
    /// The stream's window limits the peer, as it is smaller than this many bytes, which the path needs
    /// ([`Connection::set_window`]). Sent only where the connection's window is not shared
    /// ([`Config::shared_window`](crate::h2::Config::shared_window)).
    Stalled(u32),
    /// Both directions were aborted. If the content had ended before, all of it is valid.
    Reset(Reset),
}

/// Reason for which a stream was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reset {
    /// RST_STREAM of the peer.
    Peer(Code),
    /// GOAWAY of the peer, which did not process the request (RFC 9113 §6.8).
    GoAway(Code),
    /// Protocol violation of the peer on this stream; RST_STREAM was sent.
    Violation(Violation),
    /// No memory for the peer's trailers; RST_STREAM was sent.
    NoRoom,
}

/// Count of streams reset because of violations by the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Number of such streams.
    pub count: u32,
    /// Code of the last one.
    pub last: Option<Code>,
}

/// Reason for which no stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// The connection accepts no more streams, or not now.
    Closed,
    /// The request has no host for `:authority`.
    NoAuthority,
}

impl Faults {
    pub(super) fn count(&mut self, code: Code) {
        self.count += 1;
        self.last = Some(code);
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(code) => write!(f, "RST_STREAM with {}", code.name()),
            Self::GoAway(code) => write!(f, "GOAWAY with {}", code.name()),
            Self::Violation(violation) => violation.fmt(f),
            Self::NoRoom => f.write_str("no memory for the trailers"),
        }
    }
}
