//! End of a connection: GOAWAY in both directions (RFC 9113 §6.8).

use super::{Connection, LAST, Role};
use crate::h2::{Code, Kind};

/// Payload of the PING with a reply that shows that the peer has seen GOAWAY (RFC 9113 §6.8).
pub(super) const GOODBYE: &[u8; 8] = b"goodbye!";

/// Shutdown state of the connection.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Last stream that is served, from the GOAWAY sent.
    pub(super) goaway_sent: Option<u32>,
    /// Last stream that the peer serves, and its code, from the GOAWAY received.
    pub(super) goaway_received: Option<(u32, Code)>,
    /// Set once nothing more is read.
    pub(super) over: bool,
}

impl<T> Connection<T> {
    /// Begins a graceful shutdown: serves no new streams and waits for the open ones. A server first sends
    /// GOAWAY with the highest stream number and a PING, because requests may be under way (RFC 9113 §6.8).
    pub fn drain(&mut self) {
        if self.closing.goaway_sent.is_some() || self.closing.over {
            return;
        }
        match self.role {
            Role::Server => {
                self.closing.goaway_sent = Some(LAST);
                self.outgoing.output.goaway(LAST, Code::NO_ERROR);
                self.outgoing.output.frame(Kind::Ping, 0, 0, GOODBYE);
            }
            // Servers open no streams.
            Role::Client => {
                self.closing.goaway_sent = Some(0);
                self.outgoing.output.goaway(0, Code::NO_ERROR);
            }
        }
    }

    /// Serves no new streams from now on, without waiting for the PING (server).
    pub fn stop(&mut self) {
        if self.closing.goaway_sent.is_none_or(|last| last > self.streams.highest) {
            self.part(Code::NO_ERROR);
        }
    }

    /// Records that the connection is gone: nothing more is sent.
    pub fn abandon(&mut self) {
        self.closing.over = true;
        self.stop_lingering();
    }

    /// Sends GOAWAY with `code`, and reads nothing more.
    pub fn close(&mut self, code: Code) {
        if !std::mem::replace(&mut self.closing.over, true) {
            self.part(code);
            self.stop_lingering();
        }
    }

    /// Sends GOAWAY with the last stream that is served; the number never rises (RFC 9113 §6.8).
    pub(super) fn part(&mut self, code: Code) {
        let last = if self.role == Role::Server { self.streams.highest } else { 0 };
        let last = self.closing.goaway_sent.map_or(last, |sent| sent.min(last));
        self.closing.goaway_sent = Some(last);
        self.outgoing.output.goaway(last, code);
    }

    /// Returns true if the connection is to be closed once its output was sent: it was closed, or is drained.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let parts = match self.role {
            Role::Server => {
                self.closing.goaway_sent.is_some_and(|last| last < LAST)
                    || self.closing.goaway_received.is_some()
            }
            Role::Client => self.closing.goaway_sent.is_some() || self.closing.goaway_received.is_some(),
        };
        self.closing.over || parts && !self.incoming.is_in_block() && self.streams.is_empty()
    }
}
