//! Streams whose response is whole and whose request is not (server).
//!
//! RST_STREAM close behind a response makes some clients lose the response (curl before 8), and others look at a
//! response only once all of the request has left (java.net.http, httpx). So the rest of a request is taken and dropped
//! for a time, with windows as large as before, and only then is the stream reset without an error (RFC 9113 §8.1).

use super::streams::Remote;
use super::{Connection, Role};
use crate::h2::Code;

/// The most that is dropped of the content of a request, in bytes.
pub const MOST_DROPPED: u32 = 64 * 1024 * 1024;
/// For how long a stream lingers on which nothing comes, in milliseconds.
pub const STILL: u64 = 5_000;
/// For how long it lingers in all, in milliseconds.
pub const LINGERS: u64 = 30_000;
/// [`STILL`] once the connection is to end.
const STILL_AT_THE_END: u64 = 1_000;

/// The streams of a connection that linger.
#[derive(Debug, Default)]
pub(super) struct Lingering(Vec<Linger>);

/// A stream that lingers.
#[derive(Debug)]
struct Linger {
    id: u32,
    /// Where the response ends in the output: RST_STREAM is not sent along with it.
    end: u64,
    /// When it was first looked at, and when content was last seen, in milliseconds.
    times: Option<(u64, u64)>,
    /// What was dropped by then.
    dropped: u32,
}

impl Lingering {
    /// Its memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Linger>()
    }
}

impl<T> Connection<T> {
    /// Forgets the streams that linger, as the connection has ended.
    pub(super) fn stop_lingering(&mut self) {
        for linger in std::mem::take(&mut self.lingering.0) {
            self.remove(linger.id, Code::NO_ERROR);
        }
    }
}

impl<T: Default> Connection<T> {
    /// Forgets a stream, and ends it at once with `code` if it has not ended. A server that has answered needs the rest of
    /// the request no longer: the stream lingers until the request has ended, or [`Connection::end_lingering`] resets it.
    /// What the user has of its data and did not release, the peer may send again on the connection. Gives whether it was
    /// known.
    pub fn forget(&mut self, id: u32, code: Code) -> bool {
        let lingers = self.role == Role::Server
            && !self.closing.over
            && self.streams.live(id).is_some_and(|stream| {
                stream.lingers = stream.sent_all && stream.remote != Remote::Ended;
                stream.lingers
            });
        if !lingers {
            return self.remove(id, code);
        }
        self.discard(id);
        if let Some(stream) = self.streams.get(id) {
            stream.user = T::default();
        }
        let end = self.output.end();
        self.lingering.0.push(Linger { id, end, times: None, dropped: 0 });
        true
    }

    /// Forgets the streams that linger and have ended.
    #[cold]
    pub(super) fn sweep(&mut self) {
        let mut all = std::mem::take(&mut self.lingering.0);
        all.retain(|linger| {
            let ended =
                self.streams.peek(linger.id).is_none_or(|stream| !stream.is_live() || stream.has_ended());
            if ended {
                self.remove(linger.id, Code::NO_ERROR);
            }
            !ended
        });
        self.lingering.0 = all;
    }

    /// Resets the streams that have lingered for long enough, at `now` in milliseconds. To be called about once a second.
    pub fn end_lingering(&mut self, now: u64) {
        if self.lingering.0.is_empty() {
            return;
        }
        let still = if self.closing.said.is_some() { STILL_AT_THE_END } else { STILL };
        let mut all = std::mem::take(&mut self.lingering.0);
        all.retain_mut(|linger| {
            let dropped = self.streams.peek(linger.id).map_or(0, |stream| stream.flow.dropped);
            let (since, moved) = linger.times.get_or_insert((now, now));
            if dropped != std::mem::replace(&mut linger.dropped, dropped) {
                *moved = now;
            }
            let enough = dropped >= MOST_DROPPED
                || now.saturating_sub(*moved) >= still
                || now.saturating_sub(*since) >= LINGERS;
            let ends = enough && self.output.sent() >= linger.end;
            if ends {
                self.remove(linger.id, Code::NO_ERROR);
            }
            !ends
        });
        self.lingering.0 = all;
    }
}
