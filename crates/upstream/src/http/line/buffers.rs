//! Buffers for first reads.
//!
//! A connection that waits for its server needs none: it takes a buffer when there is something to read, and
//! returns it when that is empty. So 100 requests to slow servers hold 100 tasks and no buffers.

use std::cell::RefCell;

use bytes::BytesMut;

use super::FIRST_READ;

/// Maximum number of buffers that a worker keeps: 256 KiB.
const MOST: usize = 32;

/// Unused buffers of a worker.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers {
    unused: RefCell<Vec<BytesMut>>,
}

impl ReadBuffers {
    /// A buffer whose memory may still be shared with content on its way; without memory if none is kept.
    /// Reserving space in it yields [`FIRST_READ`] contiguous bytes, reclaimed or new.
    pub(super) fn take(&self) -> BytesMut {
        self.unused.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns an empty buffer. One above [`FIRST_READ`] bytes is dropped.
    pub(super) fn put(&self, buffer: BytesMut) {
        debug_assert!(buffer.is_empty());
        let mut unused = self.unused.borrow_mut();
        if (1..=FIRST_READ).contains(&buffer.capacity()) && unused.len() < MOST {
            unused.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_is_kept_and_memory_is_used_again() {
        let buffers = ReadBuffers::default();
        let mut first = buffers.take();
        first.reserve(FIRST_READ);
        first.extend_from_slice(b"response");
        let memory = first.as_ptr();
        let content = first.split().freeze();
        buffers.put(first);
        drop(content);
        let mut again = buffers.take();
        again.reserve(FIRST_READ);
        assert_eq!(again.as_ptr(), memory);
        for _ in 0..2 * MOST {
            buffers.put(BytesMut::with_capacity(FIRST_READ));
        }
        assert_eq!(buffers.unused.borrow().len(), MOST);
        buffers.unused.borrow_mut().clear();
        buffers.put(BytesMut::with_capacity(FIRST_READ + 1));
        assert_eq!(buffers.take().capacity(), 0);
    }
}
