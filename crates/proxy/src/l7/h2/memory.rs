//! What HTTP/2 holds for its clients: counted for each connection, and for each worker.
//!
//! A client may ask much and take nothing. What it can have pinned by that is bounded for each connection, here
//! and by its windows; for all connections of a worker `limits.memory` bounds it: while more is held, a connection that
//! holds more than its share has further streams refused as ones that were not looked at (RFC 9113 §8.7). So the one
//! that holds the memory is the one that waits.

mod loan;

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use offramp_upstream::FIRST_READ;

use crate::pressure::Pressure;
pub(crate) use loan::WindowLoan;

/// Memory that a stream is counted as, besides the fields of its request and what was read of its response: its
/// task, its state, and its connection to a server.
pub(super) const STREAM: usize = 4 * 1024 + 512;
/// Maximum size of the fields of the open requests of a connection, if it has more than one. Once its response has
/// begun, a request needs them no longer.
pub(super) const FIELDS: usize = 512 * 1024;
/// The largest piece of a response that is read at a time.
pub(super) const PIECE: usize = 128 * 1024;
/// The same on a connection with more than [`FEW`] streams, so that each of them has its turn soon; and the least piece for
/// which it is worth to wait for a turn.
pub(super) const SMALL_PIECE: usize = 32 * 1024;
/// Number of streams that share a connection in large pieces.
const FEW: usize = 16;
/// Bytes in pieces of responses that may wait on a connection. While there are so many, other streams read nothing
/// until a piece has left: large pieces one after the other cost no more calls than all at once. Beside one of the
/// largest there is room for a smaller one, so that a response that stands still does not slow others down.
pub(super) const PIECES: usize = PIECE + 2 * SMALL_PIECE;
/// Bytes in first reads of responses, and other pieces as small, that may wait on a connection. While there are so
/// many, little is read of further responses until some of these have left.
pub(super) const FIRST_READS: usize = 64 * 1024;
/// Size of a read while little is read.
pub(super) const LITTLE: usize = 1024;
/// Bytes that are read of responses that wait for the bandwidth of their routes, on a connection, where servers let
/// that be chosen: eight of the largest pieces; with more streams each has its part. They are neither pieces nor
/// first reads as above: what waits for time, and not for the connection, takes no turn from others.
pub(super) const PACED_READS: usize = 128 * 1024;
/// The same with their first reads, so that what was read later leaves room for those of others.
pub(super) const PACED: usize = PACED_READS + FIRST_READS;
/// Bytes that servers that speak HTTP/2 may send ahead for all streams of a connection, beyond the first read of
/// each response: as much as one response needs over a network. Streams beyond that get their responses in smaller
/// steps. A response over a longer path may have more while its client keeps up ([`Account::ahead_left`]).
pub(crate) const AHEAD: usize = 256 * 1024;
/// Bytes that a connection may hold however many there are: a few requests at a time.
pub(super) const LEAST_SHARE: usize = 8 * (STREAM + FIRST_READ);

/// Memory that the connections of a worker hold.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    used: Cell<usize>,
    /// The same for others to read.
    shown: Arc<AtomicUsize>,
    connections: Cell<usize>,
    /// The most that all connections of the worker may hold.
    limit: Cell<usize>,
    /// Pressure on the memory of the process.
    pressure: OnceCell<Arc<Pressure>>,
}

impl Memory {
    /// While this is high, each connection has no more than its least share.
    pub(crate) fn heed(&self, pressure: &Arc<Pressure>) {
        let _ = self.pressure.set(Arc::clone(pressure));
    }

    /// The most that all connections of the worker may hold now.
    fn most(&self) -> usize {
        if self.pressure.get().is_some_and(|pressure| pressure.is_high()) { 0 } else { self.limit.get() }
    }

    /// Number of bytes held, for others to read.
    pub(crate) fn shown(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.shown)
    }

    /// Holds for the connections that are open as well; whether it is another limit than before.
    pub(crate) fn limit(&self, limit: usize) -> bool {
        self.limit.replace(limit) != limit
    }

    /// Bytes that all connections may hold beyond the present ones.
    fn left(&self) -> usize {
        self.most().saturating_sub(self.used.get())
    }

    /// Maximum growth of a window that has grown by `own` bytes already. Windows get at most half of the limit, so that
    /// room for requests remains.
    fn window_room(&self, own: usize) -> usize {
        (self.left() + own).saturating_sub(self.most() / 2)
    }

    fn set(&self, used: usize) {
        self.used.set(used);
        self.shown.store(used, Ordering::Relaxed);
    }
}

/// Memory that one connection holds.
#[derive(Debug)]
pub(super) struct Account {
    memory: Rc<Memory>,
    used: usize,
    /// The fields of its open requests, and pieces of responses that wait: large ones, and those of first reads.
    fields: usize,
    pieces: usize,
    first_reads: usize,
    /// Pieces of responses on routes with a bandwidth.
    paced: usize,
    /// Bytes that servers may have sent ahead, and content that came and was not taken.
    ahead: usize,
    content: usize,
    /// Maximum number of bytes that far servers may send ahead for all streams.
    far: usize,
}

impl Account {
    /// Nothing is held; `limit` is the most that all connections of the worker may hold.
    pub(super) fn new(memory: &Rc<Memory>, limit: usize) -> Self {
        memory.connections.set(memory.connections.get() + 1);
        memory.limit(limit);
        Self {
            memory: Rc::clone(memory),
            used: 0,
            fields: 0,
            pieces: 0,
            first_reads: 0,
            paced: 0,
            ahead: 0,
            content: 0,
            far: 0,
        }
    }

    /// Number of bytes held.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns true if a request with so many bytes of fields has no place beside the others of this connection.
    pub(super) fn has_many_fields(&self, fields: usize) -> bool {
        self.fields + fields > FIELDS
    }

    /// The same, or the worker holds too much, and this connection more than its share.
    pub(super) fn is_full(&self, fields: usize) -> bool {
        let more = STREAM + fields;
        let limit = self.memory.most();
        let share = (limit / self.memory.connections.get().max(1)).max(LEAST_SHARE);
        self.has_many_fields(fields) || (self.memory.used.get() + more > limit && self.used + more > share)
    }

    /// A request with so many bytes of fields begins.
    pub(super) fn begin(&mut self, fields: usize) {
        self.fields += fields;
        self.take(STREAM + fields);
    }

    /// A request that is under way has so many bytes of trailers.
    pub(super) fn more_fields(&mut self, trailers: usize) {
        self.fields += trailers;
        self.take(trailers);
    }

    /// The head of a request is no longer held, though its stream goes on.
    pub(super) fn forget_fields(&mut self, fields: usize) {
        self.fields -= fields;
        self.give(fields);
    }

    /// All connections of the worker may hold so much from now on; whether that is another limit than before.
    pub(super) fn limit(&self, limit: usize) -> bool {
        self.memory.limit(limit)
    }

    /// A stream has ended.
    pub(super) fn end(&mut self, fields: usize) {
        self.fields -= fields;
        self.give(STREAM + fields);
    }

    /// A piece of a response that waits is of another size.
    pub(super) fn piece(&mut self, before: usize, now: usize) {
        *self.pieces_like(before) -= before;
        *self.pieces_like(now) += now;
        self.give(before);
        self.take(now);
    }

    /// The same of a response on a route with a bandwidth.
    pub(super) fn paced(&mut self, before: usize, now: usize) {
        self.paced = self.paced - before + now;
        self.give(before);
        self.take(now);
    }

    /// The count that a piece of so many bytes belongs to.
    fn pieces_like(&mut self, n: usize) -> &mut usize {
        if n > FIRST_READ { &mut self.pieces } else { &mut self.first_reads }
    }

    /// Bytes that may be read of a response that begins.
    pub(super) fn first_read(&self) -> usize {
        // It is not known yet whether its route has a bandwidth.
        let has_room = |waiting: usize, most: usize| waiting + FIRST_READ <= most;
        if has_room(self.first_reads, FIRST_READS) && has_room(self.paced, PACED) && self.left() >= FIRST_READ
        {
            usize::MAX
        } else {
            LITTLE
        }
    }

    /// Bytes that all connections of the worker may hold beyond those held.
    pub(super) fn left(&self) -> usize {
        self.memory.left()
    }

    /// Sets the maximum number of bytes that far servers may send ahead for all streams, as far as memory permits.
    pub(super) fn allow_far(&mut self, most: u32) {
        self.far = most as usize;
    }

    /// Servers may send so much ahead for a stream, and not so much as before.
    pub(super) fn ahead(&mut self, before: usize, now: usize) {
        self.ahead = self.ahead - before + now;
        self.give(before);
        self.take(now);
    }

    /// So much content has come and was not taken, or may come as windows have grown.
    #[inline]
    pub(super) fn content(&mut self, now: usize) {
        let before = std::mem::replace(&mut self.content, now);
        if before != now {
            self.give(before);
            self.take(now);
        }
    }

    /// Grants up to `more` bytes of growth to the windows of the connection; returns the growth. It is counted until the
    /// next [`Account::content`].
    pub(super) fn grow(&mut self, more: usize) -> usize {
        let granted = more.min(self.memory.window_room(0));
        self.content += granted;
        self.take(granted);
        granted
    }

    /// Maximum number of bytes that a server may send ahead for a stream that has `own` of them now and a path that
    /// needs `needed`. A need beyond [`AHEAD`] has the bounds of windows that grow; other responses get nothing of
    /// that.
    pub(super) fn ahead_left(&self, own: usize, needed: usize) -> usize {
        let others = self.ahead - own;
        let usual = AHEAD.saturating_sub(others).min(self.left() + own);
        if needed <= AHEAD {
            return usual;
        }
        let far = self.far.saturating_sub(others).min(self.memory.window_room(own));
        needed.min(far).max(usual)
    }

    /// Bytes of a response that may be read now on one of `streams` streams; `None` if too many pieces wait
    /// already.
    pub(super) fn read_budget(&self, streams: usize) -> Option<usize> {
        let most = if streams <= FEW { PIECE } else { SMALL_PIECE };
        let piece = PIECES.saturating_sub(self.pieces).min(self.left()).min(most);
        (piece >= SMALL_PIECE).then_some(piece)
    }

    /// Bytes of a response on a route with a bandwidth that may be read now on one of `streams` streams: always
    /// some. All of them have the same part, as bytes pass by pieces.
    pub(super) fn paced_read_budget(&self, streams: usize) -> usize {
        let left = PACED_READS.saturating_sub(self.paced).min(self.left());
        (PACED_READS / streams.max(1)).min(left).max(LITTLE)
    }

    /// So much more is held.
    fn take(&mut self, n: usize) {
        self.used += n;
        self.memory.set(self.memory.used.get() + n);
    }

    /// So much less is.
    fn give(&mut self, n: usize) {
        self.used -= n;
        self.memory.set(self.memory.used.get() - n);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.memory.set(self.memory.used.get() - self.used);
        self.memory.connections.set(self.memory.connections.get() - 1);
    }
}
