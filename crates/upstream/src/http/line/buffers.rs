//! The memory of first reads.
//!
//! A connection that waits for its server needs none: it takes a buffer when something is to be read, and gives it back
//! when nothing of it is left. So 100 requests whose servers take their time hold 100 tasks and no buffers.

use std::cell::RefCell;

use bytes::BytesMut;

use super::FIRST_READ;

/// How many buffers a worker keeps at most: 256 KiB.
const MOST: usize = 32;

/// The buffers of a worker that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers {
    unused: RefCell<Vec<BytesMut>>,
}

impl ReadBuffers {
    /// A buffer, whose memory may still be shared with content on its way; without any where there is none. Whoever
    /// reserves room in it gets [`FIRST_READ`] bytes back in one piece, or makes them.
    pub(super) fn take(&self) -> BytesMut {
        self.unused.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives a buffer back, with nothing in it. One of more than [`FIRST_READ`] bytes is not kept.
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
