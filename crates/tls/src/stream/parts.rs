//! Reading plaintext into the caller's memory, as much as has arrived: for connections to servers, whose
//! content is read in large pieces.

use std::io;
use std::task::{Context, Poll, Waker};

use offramp_net::turn::{Turn, Work};
use offramp_record::{PlaintextSpan, whole_record};

use super::{READ_ROOM, TlsStream};

/// Maximum buffer space per read of a stream that reads ahead.
const MOST_ROOM: usize = 272 * 1024;
/// Factor by which the buffer space grows when a read has filled it.
const GROWTH: usize = 4;

impl TlsStream {
    /// Lets reads from the socket grow with the data, or ends that.
    pub fn read_ahead(&mut self, ahead: bool) {
        self.ahead = ahead;
        if !ahead {
            self.room = READ_ROOM;
            self.settle();
        }
    }

    /// Passes received plaintext to `sink`, at most `room` bytes, part by part. Waits for the first part
    /// only. 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// As those of a read; data before an error was passed to `sink`.
    pub fn poll_parts(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        mut sink: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut n = 0;
        while n < room {
            let arrived = self.opened.is_some() || whole_record(self.incoming.filled()).is_some();
            if n > 0 && !arrived {
                break;
            }
            match self.poll_open(cx) {
                // The error is repeated, as is an end.
                Poll::Pending | Poll::Ready(Err(_)) if n > 0 => break,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(opened) => opened?,
            }
            let Some((span, _)) = self.opened else { break };
            let part = PlaintextSpan { start: span.start, len: span.len.min(room - n) };
            sink(part.of(self.incoming.filled()));
            self.take(part.len);
            n += part.len;
        }
        Poll::Ready(Ok(n))
    }

    /// Opens records behind the opened plaintext, up to `most` records and the end of the turn. Neither waits
    /// nor reads.
    ///
    /// # Errors
    /// The next keys could not be derived. Opened plaintext stays.
    pub fn open_further(&mut self, cx: &Context<'_>, most: usize) -> io::Result<()> {
        while self.opened.is_some()
            && self.ended.is_none()
            && self.further.len() + 1 < most
            && !self.turn.is_over()
            && !self.open().map_err(io::Error::other)?
        {
            self.answer(cx);
        }
        Ok(())
    }

    /// The opened plaintext, record by record.
    pub fn opened(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        self.opened.iter().chain(&self.further).map(move |(span, record)| {
            let part = &self.incoming.filled()[at..][span.start..span.start + span.len];
            at += record;
            part
        })
    }

    /// Returns true if the peer has neither ended the stream nor sent any unread application data. Does not
    /// wait, and drops the reader's waker.
    pub fn is_quiet(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        // A finished turn would look like silence. A peer that sends more than a turn of records is not
        // quiet.
        self.turn = Turn::default();
        while self.opened.is_none() && self.ended.is_none() && !self.turn.is_over() {
            let Ok(starved) = self.open() else { return false };
            self.answer(cx);
            if starved {
                match self.poll_ciphertext(cx) {
                    Poll::Pending => return true,
                    Poll::Ready(Ok(1..)) => self.turn.spend(Work::Calls(1)),
                    Poll::Ready(_) => return false,
                }
            }
        }
        false
    }

    /// Returns true if everything written was sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.sending.waiting() == 0
    }

    /// Buffer space of the next read from the socket. Remaining bytes count against a large one, or the
    /// buffer would grow with each read.
    pub(super) fn room(&self) -> usize {
        self.room.saturating_sub(self.incoming.len()).max(READ_ROOM)
    }

    /// Adapts the buffer space to a read of `n` bytes with `room`.
    pub(super) fn adapt(&mut self, room: usize, n: usize) {
        if self.ahead {
            let all = self.incoming.len();
            self.room = if n >= room { (all.max(room) * GROWTH).min(MOST_ROOM) } else { all.max(READ_ROOM) };
        }
    }
}
