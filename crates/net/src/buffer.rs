//! A growing buffer: filled at the back, consumed from the front.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll};

use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, recv};

use crate::Socket;

/// Capacity from which memory is kept for reuse by the same thread: the kernel clears fresh memory of this
/// size page by page, which costs a large transfer one twentieth of its CPU time.
const LARGE: usize = 64 * 1024;
/// Maximum spare memory per thread, in bytes.
const MOST_SPARE: usize = 1024 * 1024;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps memory for the next large buffer of the thread, up to [`MOST_SPARE`].
fn spare(mut bytes: Vec<u8>) {
    // During thread exit the thread-local is gone; the memory is freed then.
    let _ = SPARE.try_with(|spare| {
        let spare = &mut *spare.borrow_mut();
        let all: usize = spare.iter().map(Vec::capacity).sum();
        if all + bytes.capacity() <= MOST_SPARE {
            bytes.clear();
            spare.push(bytes);
        }
    });
}

/// Received bytes that are not consumed yet.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Creates an empty buffer with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), start: 0 }
    }

    /// The bytes that are not consumed yet.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The unconsumed bytes, mutable for work in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// Number of unconsumed bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns true without unconsumed bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `n` bytes. The memory is kept for the next read.
    ///
    /// # Panics
    /// If fewer than `n` bytes are unconsumed.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "consumed more bytes than the buffer has");
        self.start += n;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Releases the memory, and with it all bytes.
    pub fn free(&mut self) {
        let Self { bytes, .. } = std::mem::take(self);
        if bytes.capacity() >= LARGE {
            spare(bytes);
        }
    }

    /// Reserves space for `room` more bytes at the back.
    fn reserve(&mut self, room: usize) {
        let wanted = self.bytes.len() + room;
        if room >= LARGE && self.bytes.capacity() < wanted {
            let large = SPARE.try_with(|spare| {
                let spare = &mut *spare.borrow_mut();
                let at = spare.iter().position(|bytes| bytes.capacity() >= wanted)?;
                Some(spare.swap_remove(at))
            });
            if let Ok(Some(mut large)) = large {
                large.extend_from_slice(&self.bytes);
                self.bytes = large;
            }
        }
        self.bytes.reserve(room);
    }

    /// Appends bytes. If capacity is lacking, the consumed part is reclaimed once it is at least half of the
    /// buffer: so each byte moves at most once, and memory is bounded by the unconsumed bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < bytes.len() && self.start >= self.len() {
            self.compact();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Allocated memory, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Moves the unconsumed bytes to the front.
    fn compact(&mut self) {
        self.bytes.drain(..self.start);
        self.start = 0;
    }

    /// Reads once from `socket`, appending with space for at least `room` bytes. 0 bytes mean the end of the
    /// stream.
    ///
    /// # Errors
    /// Errors of the system call.
    pub async fn read_from(&mut self, socket: &Socket, room: usize) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read_from(cx, socket, room)).await
    }

    /// Poll form of [`Buffer::read_from`].
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn poll_read_from(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Socket,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        if self.start > 0 {
            self.compact();
        }
        self.reserve(room);
        let wanted = self.bytes.capacity() - self.bytes.len();
        socket.poll_with_read(cx, wanted, |fd| {
            recv(fd, spare_capacity(&mut self.bytes), RecvFlags::empty()).map(|(n, _)| n)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory freed by one buffer is reused by the next, up to the stated bound.
    #[test]
    fn large_memory_is_reused() {
        let mut first = Buffer::with_capacity(4 * LARGE);
        let memory = first.filled().as_ptr();
        first.free();
        let mut second = Buffer::default();
        second.extend(b"begun");
        second.reserve(LARGE / 2);
        assert_ne!(second.filled().as_ptr(), memory, "for small ones it is too large");
        second.reserve(4 * LARGE - 5);
        assert_eq!((second.filled().as_ptr(), second.filled()), (memory, &b"begun"[..]));
        second.free();
        for _ in 0..100 {
            spare(Vec::with_capacity(3 * LARGE));
        }
        let kept: usize = SPARE.with_borrow(|spare| spare.iter().map(Vec::capacity).sum());
        assert!((MOST_SPARE - 3 * LARGE..=MOST_SPARE).contains(&kept), "{kept}");
    }

    /// A buffer that never runs empty stays within a small multiple of its peak content.
    #[test]
    fn extend_reclaims_consumed_space() {
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        for (piece, left) in [(1, 1), (7, 3), (100, 1), (100, 99), (1000, 5000), (16_384, 1)] {
            let (mut buffer, mut next, mut seen) = (Buffer::default(), 0_u8, 0_u8);
            let mut most = 0;
            for _ in 0..rounds {
                let bytes: Vec<u8> = (0..piece).map(|at| next.wrapping_add(at as u8)).collect();
                next = next.wrapping_add(piece as u8);
                buffer.extend(&bytes);
                let n = buffer.len().saturating_sub(left);
                for &byte in &buffer.filled()[..n.min(3)] {
                    assert_eq!(byte, seen);
                    seen = seen.wrapping_add(1);
                }
                seen = seen.wrapping_add(n.saturating_sub(3) as u8);
                buffer.consume(n);
                most = most.max(buffer.capacity());
            }
            // Twice the content, doubled again by the growth of vectors.
            assert!(most <= 4 * (piece + left).max(64), "{piece} {left}: {most}");
        }
    }
}
