//! What goes to the client: records, in the order in which they were sealed, and those of them that its socket has not
//! taken yet.
//!
//! The relay and [`Stream`](crate::Stream) send through this. They read plaintext where it is sealed: lay out the slots
//! of a batch ([`Sending::layout`]), fill them, and send the batch ([`Sending::send`]). Nothing here waits for an answer
//! to be sent before the next batch; its owner does, by [`Sending::poll_flush`].
//!
//! Session tickets are *held back*, because the client does not wait for them. They leave with the next record, in one
//! system call and one packet. If none comes within [`HOLD`], they leave alone ([`Sending::poll_hold`]).

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use offramp_net::Socket;
use offramp_record::{Alert, Layout, Pacing, RecordSize};
use tokio::time::{Sleep, sleep};

use crate::session::{Session, SessionError};

/// A batch above this size leaves in several packets, of which the last may wait to be filled up.
const PACKETS: usize = 64 * 1024;
/// The most pieces of memory that one call writes from.
const MOST_RUNS: usize = 64;
/// How long tickets wait for a record that they can leave with: longer than most applications on the same machine
/// take for a response, and short enough that no client notices.
const HOLD: Duration = Duration::from_millis(1);
/// The most memory that is kept for the next batch of any connection of this thread.
const SPARE_ROOM: usize = 136 * 1024;

thread_local! {
    /// The memory of records that have gone.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The sending side of a connection.
pub struct Sending {
    /// Records that the socket has not taken yet.
    waiting: Vec<u8>,
    /// Whether all of `waiting` is held back until something follows.
    held: bool,
    /// Runs while something is held back and nothing follows.
    hold: Option<Pin<Box<Sleep>>>,
    /// Whether `waiting` holds our answer to a key update.
    answering: bool,
    /// Whether the kernel may keep back the end of the latest batch.
    kept_back: bool,
    pacing: Pacing,
}

impl Sending {
    /// A side that has sent nothing since the handshake, whose `tickets` are held back.
    #[must_use]
    pub fn new(size: RecordSize, tickets: Vec<u8>) -> Self {
        let pacing = Pacing::new(size, offramp_net::clock::coarse_ms());
        let held = !tickets.is_empty();
        Self { waiting: tickets, held, hold: None, answering: false, kept_back: false, pacing }
    }

    /// How many bytes of records the socket has not taken yet, without those that are held back.
    #[must_use]
    pub fn waiting(&self) -> usize {
        if self.held { 0 } else { self.waiting.len() }
    }

    /// Gives up what waits.
    pub fn clear(&mut self) {
        self.release();
        self.waiting = Vec::new();
    }

    /// Ready when what is held back has to leave alone; [`Sending::poll_flush`] sends it then. To be asked when there
    /// is nothing to send. Pending where nothing is held back.
    pub fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.held {
            return Poll::Pending;
        }
        let hold = self.hold.get_or_insert_with(|| Box::pin(sleep(HOLD)));
        hold.as_mut().poll(cx).map(|()| self.release())
    }

    /// Waits for `work`. What is held back does not wait for it. Returns also how the client refused that, if it did.
    pub async fn beside<T>(
        &mut self,
        socket: &Socket,
        work: impl Future<Output = T>,
    ) -> (T, Option<io::ErrorKind>) {
        let mut work = pin!(work);
        let mut refused = None;
        let done = poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            if (self.poll_hold(cx).is_ready() || self.waiting() > 0)
                && let Poll::Ready(Err(error)) = self.poll_flush(socket, cx)
            {
                refused = Some(error.kind());
                self.clear();
            }
            Poll::Pending
        });
        (done.await, refused)
    }

    /// Lets what was held back go.
    fn release(&mut self) {
        self.held = false;
        self.hold = None;
    }

    /// What waits, to be sent by somebody else.
    #[must_use]
    pub fn into_waiting(self) -> Vec<u8> {
        self.waiting
    }

    /// Sends what waits; ready when all of it has gone, but for what is held back. An idle connection owns none of the
    /// memory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn poll_flush(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held {
            return Poll::Ready(Ok(()));
        }
        let mut sent = 0;
        let outcome = loop {
            if sent == self.waiting.len() {
                break Poll::Ready(Ok(()));
            }
            match socket.poll_write(cx, &self.waiting[sent..]) {
                Poll::Ready(Ok(n)) => sent += n,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        if sent > 0 {
            // What was sent now, and nothing behind it, has pushed it.
            self.kept_back = false;
        }
        if sent < self.waiting.len() {
            self.waiting.drain(..sent);
        } else if sent > 0 {
            let used = std::mem::take(&mut self.waiting);
            if used.capacity() <= SPARE_ROOM {
                SPARE.set(used);
            }
            self.answering = false;
        }
        outcome
    }

    /// Seals an alert behind what waits.
    pub fn alert(&mut self, session: &mut Session, alert: Alert) {
        self.release();
        session.alert(alert, &mut self.waiting);
    }

    /// Seals a KeyUpdate of ours behind what waits, and changes the sending keys.
    ///
    /// # Errors
    /// As [`Session::update_sending`].
    pub fn update(&mut self, session: &mut Session) -> Result<(), SessionError> {
        self.release();
        session.update_sending(&mut self.waiting)
    }

    /// Answers a key update; whether an answer was sealed. One unsent answer is enough for any number of requests
    /// (RFC 8446 §4.6.3).
    ///
    /// # Errors
    /// As [`Session::update_sending`].
    pub fn answer(&mut self, session: &mut Session) -> Result<bool, SessionError> {
        if self.answering {
            return Ok(false);
        }
        self.update(session)?;
        self.answering = true;
        Ok(true)
    }

    /// How many bytes of plaintext the next record should have.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.pacing.slot(offramp_net::clock::coarse_ms())
    }

    /// Seals the first `filled` bytes of the slots of `block`, and sends what the socket takes; the rest waits. The slots
    /// were laid out with the same session. `more`: another batch follows at once, and the end of this one may wait for
    /// it. Returns the bytes that wait.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Panics
    /// Where `filled` is more than was laid out.
    pub fn send(
        &mut self,
        (session, socket): (&mut Session, &Socket),
        cx: &mut Context<'_>,
        layout: &Layout,
        block: &mut [u8],
        filled: usize,
        more: bool,
    ) -> io::Result<usize> {
        let wire = session.sealer.seal(layout, block, filled);
        let batch = &block[..wire];
        self.pacing.sent(filled, offramp_net::clock::coarse_ms());
        if self.held {
            self.release();
            self.waiting.extend_from_slice(batch);
            if let Poll::Ready(outcome) = self.poll_flush(socket, cx) {
                outcome?;
            }
            return Ok(self.waiting.len());
        }
        let mut sent = 0;
        // A key update of ours goes first.
        if self.waiting.is_empty() {
            let more = more && wire > PACKETS;
            let outcome = if more { socket.poll_write_more(cx, batch) } else { socket.poll_write(cx, batch) };
            self.kept_back = more;
            sent = match outcome {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => 0,
            };
        }
        if sent < wire {
            self.waiting.extend_from_slice(&batch[sent..]);
        }
        Ok(self.waiting.len())
    }

    /// Sends records that were sealed with the same session and lie in `runs` of `buffer`. Returns the bytes that wait.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_records(
        &mut self,
        socket: &Socket,
        cx: &mut Context<'_>,
        buffer: &[u8],
        runs: &[Range<usize>],
    ) -> io::Result<usize> {
        if self.held {
            self.release();
            runs.iter().for_each(|run| self.waiting.extend_from_slice(&buffer[run.clone()]));
            if let Poll::Ready(outcome) = self.poll_flush(socket, cx) {
                outcome?;
            }
            return Ok(self.waiting.len());
        }
        let mut sent = 0;
        if self.waiting.is_empty() {
            let outcome = match runs {
                [run] => socket.poll_write(cx, &buffer[run.clone()]),
                runs => {
                    let mut slices = [IoSlice::new(&[]); MOST_RUNS];
                    let filled = runs.len().min(MOST_RUNS);
                    for (slice, run) in slices.iter_mut().zip(runs) {
                        *slice = IoSlice::new(&buffer[run.clone()]);
                    }
                    socket.poll_writev(cx, &slices[..filled])
                }
            };
            sent = match outcome {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => 0,
            };
        }
        for run in runs {
            let gone = sent.min(run.len());
            sent -= gone;
            self.waiting.extend_from_slice(&buffer[run.start + gone..run.end]);
        }
        Ok(self.waiting.len())
    }

    /// Seals as much of `parts` as `most` bytes of records hold, behind what waits; returns how much that was.
    pub fn seal<'p>(
        &mut self,
        session: &mut Session,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
        (most, records): (usize, usize),
    ) -> usize {
        self.release();
        let total: usize = parts.clone().map(<[u8]>::len).sum();
        let now = offramp_net::clock::coarse_ms();
        let slot = self.pacing.slot(now).min(total.max(1));
        let start = self.waiting.len();
        // A record never adds more than 32 bytes.
        let block = (total + 32 * total.div_ceil(slot)).min(most);
        if start == 0 {
            // What is left in it is overwritten or cut off.
            self.waiting = SPARE.take();
        }
        if self.waiting.len() < start + block {
            self.waiting.resize(start + block, 0);
        }
        let layout = session.sealer.layout(slot, block, records);
        let batch = &mut self.waiting[start..start + block];
        let filled = layout.fill(batch, parts);
        let wire = session.sealer.seal(&layout, batch, filled);
        self.waiting.truncate(start + wire);
        self.pacing.sent(filled, now);
        filled
    }

    /// Sends what the kernel keeps back because more was to follow.
    pub fn push(&mut self, socket: &Socket) {
        if std::mem::take(&mut self.kept_back) {
            socket.push();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::unix::net::UnixStream;

    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    #[test]
    fn what_was_flushed_needs_no_push() {
        let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let (near, _far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let socket = Socket::unix(near.into()).unwrap();
            let mut sending = Sending::new(RecordSize::Adaptive, Vec::new());
            (sending.kept_back, sending.waiting) = (true, vec![7; 100]);
            poll_fn(|cx| sending.poll_flush(&socket, cx)).await.unwrap();
            assert!(!sending.kept_back && sending.waiting() == 0);
            // Nothing was sent: what the kernel keeps back is still there.
            sending.kept_back = true;
            poll_fn(|cx| sending.poll_flush(&socket, cx)).await.unwrap();
            assert!(sending.kept_back);
        });
    }
}
