//! States of a stream (RFC 9113 §5.1). The two reserved states are missing, as nothing is pushed.
//!
//! ```text
//!                    +------+
//!                    | Idle |
//!                    +------+
//!                       | HEADERS of the client
//!                       |
//!   without END_STREAM  |  with END_STREAM
//!          +------------+------------------------+
//!          v                                     v
//!       +------+   END_STREAM of the sender   +----------------------------------------------+
//!       | Open |----------------------------->| HalfClosedLocal: END_STREAM is ours          |
//!       |      |                              | HalfClosedRemote: END_STREAM is the peer's   |
//!       +------+                              +----------------------------------------------+
//!          |                                     | END_STREAM of the other side    | RST_STREAM,
//!          | RST_STREAM, GOAWAY                  v                                 | GOAWAY
//!          |                      +---------------+   RST_STREAM                   |
//!          |                      | Closed(Ended) |---------------------------+    |
//!          |                      +---------------+                           |    |
//!          v                                                                  v    v
//!       +---------------------------------------------------------------------------+
//!       | Closed(ResetByUs), Closed(ResetByPeer), Closed(Unprocessed)               |
//!       +---------------------------------------------------------------------------+
//!                       | the caller forgets the stream
//!                       v
//!       Closed(Forgotten), unless the number is remembered as reset by us or lies behind GOAWAY
//! ```
//!
//! Our END_STREAM and RST_STREAM count when they are written to the output, which may be before they are sent.
//! A frame of the peer is judged by the state of its stream and nothing else ([`StreamState::verdict`]); it is processed, has
//! no effect, or is an error of its stream or of the connection:
//!
//! | | DATA | HEADERS | RST_STREAM | WINDOW_UPDATE |
//! | --- | --- | --- | --- | --- |
//! | `Idle` | connection | opens (server), connection (client) | connection | connection |
//! | `Open`, `HalfClosedLocal` | process | process | process | process |
//! | `HalfClosedRemote` | stream | stream | process | process |
//! | `Closed(Ended)` | stream | stream | process | ignore |
//! | `Closed(ResetByUs)`, `Closed(Unprocessed)` | ignore | ignore | ignore | ignore |
//! | `Closed(ResetByPeer)`, `Closed(Forgotten)`, server | stream | connection | ignore | ignore |
//! | the same, client | tolerate | tolerate | ignore | ignore |
//!
//! The error is PROTOCOL_ERROR for idle streams and STREAM_CLOSED for others. PRIORITY and frames of unknown
//! types are ignored in any state; frames of the connection, PUSH_PROMISE and a CONTINUATION that no HEADERS
//! announced end the connection in any state.

use super::Role;
use crate::h2::{Code, Kind, Violation};

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    /// The stream was never opened.
    Idle,
    /// Both sides may send.
    Open,
    /// We have sent END_STREAM.
    HalfClosedLocal,
    /// The peer has sent END_STREAM.
    HalfClosedRemote,
    /// Neither side may send.
    Closed(Closure),
}

/// Reason for which a stream is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closure {
    /// Both sides have sent END_STREAM.
    Ended,
    /// We have sent RST_STREAM: frames of a peer that does not know of it yet are no violation.
    ResetByUs,
    /// The peer has sent RST_STREAM.
    ResetByPeer,
    /// Behind the last stream that GOAWAY of either side names (RFC 9113 §6.8).
    Unprocessed,
    /// Closed for one of these reasons, or skipped by the client; which of them is not known any more.
    Forgotten,
}

/// Consequence of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The frame is valid here.
    Process,
    /// The frame has no effect, and the peer is not at fault.
    Ignore,
    /// The frame has no effect and counts as a fault. A client resets streams when its own clients leave, and
    /// remembers a bounded number of them: the frame may be older than the reset.
    Tolerate,
    /// RST_STREAM with this code.
    StreamError(Code),
    /// GOAWAY with this code.
    ConnectionError(Code),
}

impl StreamState {
    /// Returns true while the peer may send DATA and HEADERS.
    #[inline]
    pub(super) const fn receives(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedLocal)
    }

    /// Returns true while we may send DATA and HEADERS.
    #[inline]
    pub(super) const fn sends(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedRemote)
    }

    #[inline]
    pub(super) const fn is_closed(self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Returns true if a side has aborted the stream.
    #[inline]
    pub(super) const fn is_aborted(self) -> bool {
        matches!(self, Self::Closed(closure) if !matches!(closure, Closure::Ended))
    }

    /// State after our END_STREAM.
    #[inline]
    pub(super) const fn end_local(self) -> Self {
        match self {
            Self::Open => Self::HalfClosedLocal,
            Self::HalfClosedRemote => Self::Closed(Closure::Ended),
            other => other,
        }
    }

    /// State after END_STREAM of the peer.
    #[inline]
    pub(super) const fn end_remote(self) -> Self {
        match self {
            Self::Open => Self::HalfClosedRemote,
            Self::HalfClosedLocal => Self::Closed(Closure::Ended),
            other => other,
        }
    }

    /// Judges a frame of the peer on a stream in this state; `role` is ours.
    pub(super) const fn verdict(self, kind: Kind, role: Role) -> Verdict {
        use Closure::{Ended, Forgotten, ResetByPeer, ResetByUs, Unprocessed};
        match (kind, self) {
            (Kind::Priority | Kind::Unknown, _) => Verdict::Ignore,
            (Kind::Headers, Self::Idle) if matches!(role, Role::Server) => Verdict::Process,
            (Kind::Data | Kind::Headers | Kind::ResetStream | Kind::WindowUpdate, Self::Idle) => {
                Verdict::ConnectionError(Code::PROTOCOL_ERROR)
            }
            (Kind::Data | Kind::Headers, Self::Open | Self::HalfClosedLocal) => Verdict::Process,
            (Kind::Data | Kind::Headers, Self::HalfClosedRemote | Self::Closed(Ended)) => {
                Verdict::StreamError(Code::STREAM_CLOSED)
            }
            (Kind::Data | Kind::Headers, Self::Closed(ResetByUs | Unprocessed)) => Verdict::Ignore,
            (Kind::Data | Kind::Headers, Self::Closed(ResetByPeer | Forgotten)) => match (role, kind) {
                (Role::Client, _) => Verdict::Tolerate,
                (Role::Server, Kind::Data) => Verdict::StreamError(Code::STREAM_CLOSED),
                // Header blocks cost more, and concern the tables of the whole connection.
                (Role::Server, _) => Verdict::ConnectionError(Code::STREAM_CLOSED),
            },
            // A caller that has not forgotten the stream gets the event.
            (Kind::ResetStream, Self::Closed(Ended)) => Verdict::Process,
            (Kind::ResetStream | Kind::WindowUpdate, Self::Closed(_)) => Verdict::Ignore,
            (Kind::ResetStream | Kind::WindowUpdate, _) => Verdict::Process,
            (
                Kind::Settings
                | Kind::PushPromise
                | Kind::Ping
                | Kind::GoAway
                | Kind::Continuation
                | Kind::PriorityUpdate,
                _,
            ) => Verdict::ConnectionError(Code::PROTOCOL_ERROR),
        }
    }

    /// Describes a frame that this state does not permit.
    #[cold]
    pub(super) fn violation(self, kind: Kind, code: Code) -> Violation {
        let state = match self {
            _ if matches!(kind, Kind::PushPromise) => "although push is disabled",
            Self::Idle => "on an idle stream",
            Self::HalfClosedRemote | Self::Closed(Closure::Ended) => "behind END_STREAM",
            Self::Closed(_) => "on a closed stream",
            Self::Open | Self::HalfClosedLocal => "on a stream",
        };
        Violation { code, what: format!("{} {state}", kind.name()).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::Closure::{Ended, Forgotten, ResetByPeer, ResetByUs, Unprocessed};
    use super::StreamState::{Closed, HalfClosedLocal, HalfClosedRemote, Idle, Open};

    #[test]
    fn directions_end_one_by_one() {
        for (state, sends, receives, end_local, end_remote) in [
            (Idle, false, false, Idle, Idle),
            (Open, true, true, HalfClosedLocal, HalfClosedRemote),
            (HalfClosedLocal, false, true, HalfClosedLocal, Closed(Ended)),
            (HalfClosedRemote, true, false, Closed(Ended), HalfClosedRemote),
            (Closed(Ended), false, false, Closed(Ended), Closed(Ended)),
            (Closed(ResetByUs), false, false, Closed(ResetByUs), Closed(ResetByUs)),
            (Closed(ResetByPeer), false, false, Closed(ResetByPeer), Closed(ResetByPeer)),
            (Closed(Unprocessed), false, false, Closed(Unprocessed), Closed(Unprocessed)),
            (Closed(Forgotten), false, false, Closed(Forgotten), Closed(Forgotten)),
        ] {
            assert_eq!((state.sends(), state.receives()), (sends, receives), "{state:?}");
            assert_eq!((state.end_local(), state.end_remote()), (end_local, end_remote), "{state:?}");
            assert_eq!(state.is_aborted(), state.is_closed() && state != Closed(Ended), "{state:?}");
        }
    }
}
