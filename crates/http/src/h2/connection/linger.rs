//! Lingering streams: the response is complete and the request is not (server).
//!
//! An RST_STREAM right behind a response makes some clients lose the response (curl before 8), and others
//! read a response only once the whole request was sent (java.net.http, httpx). So the rest of a request is
//! received and dropped for a time, with unchanged windows, and only then is the stream reset with NO_ERROR
//! (RFC 9113 §8.1).

use super::state::StreamState;
use super::{Connection, Role};
use crate::h2::Code;

/// Maximum request content that is dropped per stream, in bytes.
pub const MOST_DROPPED: u32 = 64 * 1024 * 1024;
/// Time without content after which a lingering stream is reset, in milliseconds.
pub const STILL: u64 = 5_000;
/// Maximum time that a stream lingers, in milliseconds.
pub const LINGERS: u64 = 30_000;
/// Variant of [`STILL`] during shutdown.
const STILL_AT_THE_END: u64 = 1_000;

/// The lingering streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Lingering(Vec<Linger>);

/// Times and amounts of a lingering stream.
#[derive(Debug)]
struct Linger {
    id: u32,
    /// End of the response in the output: RST_STREAM is not sent before it.
    end: u64,
    /// Time of the first check, and of the last content, in milliseconds.
    times: Option<(u64, u64)>,
    /// Bytes dropped up to the last check.
    dropped: u32,
}

impl Lingering {
    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Linger>()
    }
}

impl<T> Connection<T> {
    /// Forgets all lingering streams, as the connection has ended.
    pub(super) fn stop_lingering(&mut self) {
        for linger in std::mem::take(&mut self.lingering.0) {
            self.remove(linger.id, Code::NO_ERROR);
        }
    }
}

impl<T: Default> Connection<T> {
    /// Forgets a stream, and resets it with `code` unless it has ended. If a server has responded in full,
    /// the stream lingers until the request has ended or [`Connection::end_lingering`] resets it. Data that
    /// the caller has not released is returned to the connection's window. Returns true if the stream was
    /// known.
    pub fn forget(&mut self, id: u32, code: Code) -> bool {
        let lingers = self.role == Role::Server
            && !self.closing.over
            && self.streams.get(id).is_some_and(|stream| {
                stream.lingers = stream.state() == StreamState::HalfClosedLocal;
                stream.lingers
            });
        if !lingers {
            return self.remove(id, code);
        }
        self.discard(id);
        if let Some(stream) = self.streams.get(id) {
            stream.user = T::default();
        }
        let end = self.outgoing.output.end();
        self.lingering.0.push(Linger { id, end, times: None, dropped: 0 });
        true
    }

    /// Forgets lingering streams that have ended.
    #[cold]
    pub(super) fn sweep(&mut self) {
        let mut all = std::mem::take(&mut self.lingering.0);
        all.retain(|linger| {
            let ended = self.streams.peek(linger.id).is_none_or(|stream| stream.state().is_closed());
            if ended {
                self.remove(linger.id, Code::NO_ERROR);
            }
            !ended
        });
        self.lingering.0 = all;
    }

    /// Resets streams that have lingered long enough, at `now` in milliseconds. Call it about once a second.
    pub fn end_lingering(&mut self, now: u64) {
        if self.lingering.0.is_empty() {
            return;
        }
        let still = if self.closing.goaway_sent.is_some() { STILL_AT_THE_END } else { STILL };
        let mut all = std::mem::take(&mut self.lingering.0);
        all.retain_mut(|linger| {
            let dropped = self.streams.peek(linger.id).map_or(0, |stream| stream.flow.dropped.unwrap_or(0));
            let (since, moved) = linger.times.get_or_insert((now, now));
            if dropped != std::mem::replace(&mut linger.dropped, dropped) {
                *moved = now;
            }
            let enough = dropped >= MOST_DROPPED
                || now.saturating_sub(*moved) >= still
                || now.saturating_sub(*since) >= LINGERS;
            let ends = enough && self.outgoing.output.sent() >= linger.end;
            if ends {
                self.remove(linger.id, Code::NO_ERROR);
            }
            !ends
        });
        self.lingering.0 = all;
    }
}
