//! Plaintext that comes in the slots of a batch, where it is sealed: nothing is copied.
//!
//! In this order: [`Stream::poll_lay_out`], fill the slots, [`Stream::send_batch`], and, where more was said to
//! follow and does not come at once, [`Stream::push`]. Nothing else may be asked of the stream between the first
//! two.

use std::io;
use std::task::{Context, Poll, ready};

use offramp_record::Layout;

use super::{MOST_RECORDS, Stream};

impl Stream {
    /// Waits until a batch may be sealed, and lays out one for `most` bytes of plaintext in a block of `block`
    /// bytes. It may have room for a few more than `most`, or for less.
    ///
    /// # Errors
    /// As those of a write.
    pub fn poll_lay_out(
        &mut self,
        cx: &mut Context<'_>,
        block: usize,
        most: usize,
    ) -> Poll<io::Result<Layout>> {
        ready!(self.poll_sealable(cx))?;
        let slot = self.sending.slot().min(most.max(1));
        let count = most.div_ceil(slot).clamp(1, MOST_RECORDS);
        Poll::Ready(Ok(self.session.sealer.layout(slot, block, count)))
    }

    /// Seals the first `filled` bytes of the slots of `block`, which were laid out last, and sends what the socket
    /// takes. The rest is kept, for a flush or the next write. `more` follows at once: the end of the batch may
    /// wait for it.
    ///
    /// # Errors
    /// As those of a write.
    ///
    /// # Panics
    /// Where `filled` is more than was laid out.
    pub fn send_batch(
        &mut self,
        cx: &mut Context<'_>,
        layout: &Layout,
        block: &mut [u8],
        filled: usize,
        more: bool,
    ) -> io::Result<()> {
        let ends = (&mut self.session, &self.socket);
        if self.sending.send(ends, cx, layout, block, filled, more)? == 0 {
            return Ok(());
        }
        match self.poll_drain(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Ok(()),
        }
    }

    /// Sends what the kernel keeps back because more was said to follow.
    pub fn push(&mut self) {
        self.sending.push(&self.socket);
    }
}
