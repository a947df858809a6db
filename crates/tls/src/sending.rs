//! Outgoing records in the order of sealing, including those that the socket has not accepted yet.
//!
//! Used by the relay and by [`TlsStream`](crate::TlsStream). Both read plaintext into the place where it is
//! sealed: lay out the slots of a batch (`Sealer::layout`), fill them, and send the batch
//! ([`Sending::send`]). Waiting for the socket before the next batch is up to the caller, by
//! [`Sending::poll_flush`].
//!
//! Session tickets are *held back*, because the client does not wait for them. They are sent with the next
//! record, in one system call and one packet. If none comes within [`HOLD`], they are sent alone
//! ([`Sending::poll_hold`]).

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

use crate::session::{SessionError, TlsSession};

/// Size above which a batch is sent in several packets, the last of which may wait to be filled.
const PACKETS: usize = 64 * 1024;
/// Maximum number of slices per write.
const MOST_RUNS: usize = 64;
/// Time that tickets wait for a record to accompany: longer than most applications on the same machine take
/// for a response, and too short for clients to notice.
const HOLD: Duration = Duration::from_millis(1);
/// Maximum spare memory per thread, kept for the next batch of any connection.
const SPARE_ROOM: usize = 136 * 1024;

thread_local! {
    /// Memory of records that were sent.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A batch of slots with plaintext to be sealed.
#[derive(Debug)]
pub struct FilledBatch<'b> {
    /// Positions of the slots, laid out with the session that seals them.
    pub layout: &'b Layout,
    /// Memory of the slots.
    pub block: &'b mut [u8],
    /// Plaintext bytes in the slots, from the front.
    pub filled: usize,
    /// Set if another batch follows at once, for which the end of this one may wait.
    pub more: bool,
}

/// Sending side of a connection.
pub struct Sending {
    /// Records that the socket has not accepted yet.
    waiting: Vec<u8>,
    /// Set while all of `waiting` is held back until something follows.
    held: bool,
    /// Runs while records are held back.
    hold: Option<Pin<Box<Sleep>>>,
    /// Set while `waiting` contains our reply to a key update.
    answering: bool,
    /// Set if the kernel may hold back the end of the latest batch.
    kept_back: bool,
    pacing: Pacing,
}

impl Sending {
    /// Sending side after a handshake, with `tickets` held back.
    #[must_use]
    pub fn new(size: RecordSize, tickets: Vec<u8>) -> Self {
        let pacing = Pacing::new(size, offramp_net::clock::coarse_ms());
        let held = !tickets.is_empty();
        Self { waiting: tickets, held, hold: None, answering: false, kept_back: false, pacing }
    }

    /// Number of record bytes that the socket has not accepted yet, except held back ones.
    #[must_use]
    pub fn waiting(&self) -> usize {
        if self.held { 0 } else { self.waiting.len() }
    }

    /// Drops all waiting records.
    pub fn clear(&mut self) {
        self.release();
        self.waiting = Vec::new();
    }

    /// Ready when held-back records must be sent alone, by [`Sending::poll_flush`]. Poll it while there is
    /// nothing to send. Pending if nothing is held back.
    pub fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.held {
            return Poll::Pending;
        }
        let hold = self.hold.get_or_insert_with(|| Box::pin(sleep(HOLD)));
        hold.as_mut().poll(cx).map(|()| self.release())
    }

    /// Waits for `work`, and sends held-back records meanwhile when they are due. Also returns the error of
    /// sending them, if any.
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

    /// Makes held-back records leave with the next write.
    fn release(&mut self) {
        self.held = false;
        self.hold = None;
    }

    /// Returns the waiting records, to be sent in another way.
    #[must_use]
    pub fn into_waiting(self) -> Vec<u8> {
        self.waiting
    }

    /// Sends the waiting records, except held-back ones; ready when all were accepted. Idle connections own
    /// none of the memory.
    ///
    /// # Errors
    /// Errors of the system call.
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
            // The last write, without MSG_MORE, has pushed the rest.
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

    /// Seals an alert behind the waiting records.
    pub fn alert(&mut self, session: &mut TlsSession, alert: Alert) {
        self.release();
        session.alert(alert, &mut self.waiting);
    }

    /// Seals a KeyUpdate behind the waiting records, and changes the sending keys.
    ///
    /// # Errors
    /// As [`TlsSession::update_sending`].
    pub fn update(&mut self, session: &mut TlsSession) -> Result<(), SessionError> {
        self.release();
        session.update_sending(&mut self.waiting)
    }

    /// Answers a key update; returns true if a KeyUpdate was sealed. One unsent answer suffices for any
    /// number of requests (RFC 8446 §4.6.3).
    ///
    /// # Errors
    /// As [`TlsSession::update_sending`].
    pub fn answer(&mut self, session: &mut TlsSession) -> Result<bool, SessionError> {
        if self.answering {
            return Ok(false);
        }
        self.update(session)?;
        self.answering = true;
        Ok(true)
    }

    /// Plaintext bytes of the next record.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.pacing.slot(offramp_net::clock::coarse_ms())
    }

    /// Seals the plaintext of `batch`, whose slots were laid out with the same session, and sends as much as
    /// the socket accepts; the rest waits. Returns the number of waiting bytes.
    ///
    /// # Errors
    /// Errors of the system call.
    ///
    /// # Panics
    /// If more plaintext is filled in than the layout has room for.
    pub fn send(
        &mut self,
        session: &mut TlsSession,
        socket: &Socket,
        cx: &mut Context<'_>,
        batch: FilledBatch<'_>,
    ) -> io::Result<usize> {
        let FilledBatch { layout, block, filled, more } = batch;
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

    /// Sends records sealed with the same session, at `runs` of `buffer`. Returns the number of waiting
    /// bytes.
    ///
    /// # Errors
    /// Errors of the system call.
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

    /// Seals as much of `parts` as fits `most` bytes of at most `records` records, behind the waiting ones;
    /// returns the plaintext bytes sealed.
    pub fn seal<'p>(
        &mut self,
        session: &mut TlsSession,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
        most: usize,
        records: usize,
    ) -> usize {
        self.release();
        let total: usize = parts.clone().map(<[u8]>::len).sum();
        let now = offramp_net::clock::coarse_ms();
        let slot = self.pacing.slot(now).min(total.max(1));
        let start = self.waiting.len();
        // A record adds at most 32 bytes.
        let block = (total + 32 * total.div_ceil(slot)).min(most);
        if start == 0 {
            // Old content is overwritten or cut off.
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

    /// Sends bytes that the kernel holds back because more was to follow.
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
    fn flushed_records_need_no_push() {
        let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let (near, _far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let socket = Socket::unix(near.into()).unwrap();
            let mut sending = Sending::new(RecordSize::Adaptive, Vec::new());
            (sending.kept_back, sending.waiting) = (true, vec![7; 100]);
            poll_fn(|cx| sending.poll_flush(&socket, cx)).await.unwrap();
            assert!(!sending.kept_back && sending.waiting() == 0);
            // Nothing was sent: the kernel still holds back the end.
            sending.kept_back = true;
            poll_fn(|cx| sending.poll_flush(&socket, cx)).await.unwrap();
            assert!(sending.kept_back);
        });
    }
}
