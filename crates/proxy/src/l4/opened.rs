//! What the relays do alike with records that were opened in a buffer.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use offramp_net::Socket;
use offramp_observe::WorkerCounters;
use offramp_observe::counters::Direction;
use offramp_record::PlaintextSpan;

use crate::slots::SPANS;

/// The rest of a buffer when records at its front were opened.
#[derive(Clone, Copy)]
pub(super) enum Rest {
    /// From here on, the part of a record that has arrived.
    Part(usize),
    /// From here on, there may be whole records.
    Records(usize),
    /// The direction is over: the rest does not count.
    Nothing,
}

impl Rest {
    /// Offset in a buffer of `length` bytes, and true if whole records may be in it.
    pub(super) fn place(self, length: usize) -> (usize, bool) {
        match self {
            Self::Part(at) => (at, false),
            Self::Records(at) => (at, at < length),
            Self::Nothing => (length, false),
        }
    }
}

/// Writes the plaintext in `spans` behind what is `kept` already; what the receiver does not take is kept.
pub(super) fn write_or_keep(
    to: &Socket,
    cx: &mut Context<'_>,
    buffer: &[u8],
    spans: &[PlaintextSpan],
    kept: &mut Vec<u8>,
) -> io::Result<()> {
    let mut written = 0;
    if kept.is_empty()
        && let Poll::Ready(n) = write(to, cx, buffer, spans)
    {
        written = n?;
    }
    for span in spans {
        let part = span.of(buffer);
        let skipped = written.min(part.len());
        written -= skipped;
        kept.extend_from_slice(&part[skipped..]);
    }
    Ok(())
}

/// One system call for all spans.
fn write(
    to: &Socket,
    cx: &mut Context<'_>,
    buffer: &[u8],
    spans: &[PlaintextSpan],
) -> Poll<io::Result<usize>> {
    if let [span] = spans {
        return to.poll_write(cx, span.of(buffer));
    }
    let mut slices = [IoSlice::new(&[]); SPANS];
    for (slice, span) in slices.iter_mut().zip(spans) {
        *slice = IoSlice::new(span.of(buffer));
    }
    to.poll_writev(cx, &slices[..spans.len()])
}

/// Counts the new keys of a sender, and those that its receiver got because it asked for them.
pub(super) fn note_key_update(counters: &WorkerCounters, direction: Direction, answered: bool) {
    counters.key_update(direction);
    if answered {
        counters.key_update(match direction {
            Direction::ClientToServer => Direction::ServerToClient,
            Direction::ServerToClient => Direction::ClientToServer,
        });
    }
}
