//! What HTTP/2 holds for its clients: counted for each connection, and for each worker.
//!
//! A client may ask much and take nothing. What it can have pinned by that is bounded for each connection, here
//! and by its windows; for all connections of a worker `limits.memory` bounds it: while more is held, streams are
//! refused as ones that were not looked at (RFC 9113 §8.7), but for the only one of a connection.

use std::cell::Cell;
use std::rc::Rc;

/// What a stream is counted as, besides the fields of its request: its task, what is known of it, and the first
/// piece of its response.
pub(super) const STREAM: usize = 16 * 1024;
/// The most that the fields of the open requests of a connection may be, if it has more than one.
pub(super) const FIELDS: usize = 1024 * 1024;
/// The largest piece of a response that is read at a time, where few pieces wait.
pub(super) const PIECE: usize = 128 * 1024;
/// How many bytes in pieces of responses may wait on a connection before only so much is read as can be written: ten
/// large pieces, so that as many responses at a time cost no more calls than one. With two pieces, a MiB of one of ten
/// responses took 47 reads and not 12.
pub(super) const PIECES: usize = 10 * PIECE;
/// How often it is told at the most that streams are refused, in milliseconds.
const TELL: u64 = 60_000;

/// What the connections of a worker hold.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    used: Cell<usize>,
    /// Streams that were refused and not told of.
    refused: Cell<u64>,
    told: Cell<Option<u64>>,
}

impl Memory {
    /// One stream more was refused, at `now` in milliseconds: how many were, where it is time to tell.
    pub(super) fn refuse(&self, now: u64) -> Option<u64> {
        self.refused.set(self.refused.get() + 1);
        if self.told.get().is_some_and(|told| now.saturating_sub(told) < TELL) {
            return None;
        }
        self.told.set(Some(now));
        Some(self.refused.take())
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(super) struct Account {
    memory: Rc<Memory>,
    /// The most that all connections of the worker may hold.
    limit: usize,
    used: usize,
    /// The fields of its open requests, and pieces of responses that wait.
    fields: usize,
    pieces: usize,
}

impl Account {
    /// Nothing is held.
    pub(super) fn new(memory: &Rc<Memory>, limit: usize) -> Self {
        Self { memory: Rc::clone(memory), limit, used: 0, fields: 0, pieces: 0 }
    }

    /// How much is held.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether a request with so many bytes of fields has no place beside others.
    pub(super) fn is_full(&self, fields: usize) -> bool {
        self.fields + fields > FIELDS || self.memory.used.get() + STREAM + fields > self.limit
    }

    /// A request with so many bytes of fields begins.
    pub(super) fn begin(&mut self, fields: usize) {
        self.fields += fields;
        self.take(STREAM + fields);
    }

    /// It has ended.
    pub(super) fn end(&mut self, fields: usize) {
        self.fields -= fields;
        self.give(STREAM + fields);
    }

    /// A piece of a response that waits is of another size.
    pub(super) fn piece(&mut self, before: usize, now: usize) {
        self.pieces = self.pieces - before + now;
        self.give(before);
        self.take(now);
    }

    /// How much of a response may be read now, where `room` bytes can be written at once.
    pub(super) fn appetite(&self, room: usize) -> usize {
        let few = self.pieces + PIECE <= PIECES && self.memory.used.get() + PIECE <= self.limit;
        if few { PIECE } else { room }
    }

    /// So much more is held.
    pub(super) fn take(&mut self, n: usize) {
        self.used += n;
        self.memory.used.set(self.memory.used.get() + n);
    }

    /// So much less is.
    pub(super) fn give(&mut self, n: usize) {
        self.used -= n;
        self.memory.used.set(self.memory.used.get() - n);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.memory.used.set(self.memory.used.get() - self.used);
    }
}
