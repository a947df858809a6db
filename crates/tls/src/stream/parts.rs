//! Reading plaintext into memory of the caller, as much at a time as has arrived: for connections to servers, whose
//! content is read in large pieces.

use std::io;
use std::task::{Context, Poll, Waker};

use offramp_net::turn::{Turn, Work};
use offramp_record::{Span, whole_record};

use super::{READ_ROOM, Stream};

/// The most room for one read of a stream that reads ahead.
const MOST_ROOM: usize = 272 * 1024;
/// By how much the room grows when a read has filled it.
const GROWTH: usize = 4;

impl Stream {
    /// Has reads from the socket take more at a time where more comes at a time, or not any more.
    pub fn read_ahead(&mut self, ahead: bool) {
        self.ahead = ahead;
        if !ahead {
            self.room = READ_ROOM;
            self.settle();
        }
    }

    /// Gives `sink` the opened plaintext that has arrived, `room` bytes at the most, part by part. Only the first part
    /// is waited for. 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// As those of a read; what came before an error was given to `sink`.
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
                // It comes again, as does an end.
                Poll::Pending | Poll::Ready(Err(_)) if n > 0 => break,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(opened) => opened?,
            }
            let Some((span, _)) = self.opened else { break };
            let part = Span { start: span.start, len: span.len.min(room - n) };
            sink(part.of(self.incoming.filled()));
            self.take(part.len);
            n += part.len;
        }
        Poll::Ready(Ok(n))
    }

    /// Opens what has come behind the plaintext that is open, up to `most` records and the end of the turn. It waits for
    /// nothing and reads nothing.
    ///
    /// # Errors
    /// Where the keys that follow could not be made. What is open stays.
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

    /// The plaintext that is open, record by record.
    pub fn opened(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        self.opened.iter().chain(&self.further).map(move |(span, record)| {
            let part = &self.incoming.filled()[at..][span.start..span.start + span.len];
            at += record;
            part
        })
    }

    /// Whether the peer has neither ended the stream, as far as is known, nor sent anything that was not read but what
    /// belongs to TLS. It does not wait, and forgets who waits for the peer.
    pub fn is_quiet(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        // That a turn is over would look like silence. Who sends more than a turn of records is not quiet.
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

    /// Whether everything that was written has left.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.sending.waiting() == 0
    }

    /// How much room the next read from the socket has. What is left of the read before takes part of a large one, or
    /// the buffer would grow with each.
    pub(super) fn room(&self) -> usize {
        self.room.saturating_sub(self.incoming.len()).max(READ_ROOM)
    }

    /// A read with `room` took `n` bytes.
    pub(super) fn adapt(&mut self, room: usize, n: usize) {
        if self.ahead {
            let all = self.incoming.len();
            self.room = if n >= room { (all.max(room) * GROWTH).min(MOST_ROOM) } else { all.max(READ_ROOM) };
        }
    }
}
