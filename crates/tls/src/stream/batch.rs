//! Writing without a copy: plaintext is produced in the slots of a batch, where it is sealed.
//!
//! Call [`TlsStream::poll_lay_out`], fill the slots, and call [`TlsStream::send_batch`]; then, if announced
//! data does not follow at once, [`TlsStream::push`]. Make no other call between the first two.

use std::io;
use std::task::{Context, Poll, ready};

use offramp_record::Layout;

use super::{MOST_RECORDS, TlsStream};
use crate::sending::FilledBatch;

impl TlsStream {
    /// Waits until a batch may be sealed, and lays out one for `most` bytes of plaintext in a block of
    /// `block` bytes. Its capacity may be slightly above `most`, or below.
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

    /// Seals the first `filled` bytes of the slots of `block`, which were laid out last, and sends as much as
    /// the socket accepts. The rest is kept for a flush or the next write. `more` is set if data follows at
    /// once, for which the end of the batch may wait.
    ///
    /// # Errors
    /// As those of a write.
    ///
    /// # Panics
    /// If `filled` exceeds the layout.
    pub fn send_batch(
        &mut self,
        cx: &mut Context<'_>,
        layout: &Layout,
        block: &mut [u8],
        filled: usize,
        more: bool,
    ) -> io::Result<()> {
        let batch = FilledBatch { layout, block, filled, more };
        if self.sending.send(&mut self.session, &self.socket, cx, batch)? == 0 {
            return Ok(());
        }
        match self.poll_drain(cx) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Ok(()),
        }
    }

    /// Sends bytes that the kernel holds back because more was announced.
    pub fn push(&mut self) {
        self.sending.push(&self.socket);
    }
}
