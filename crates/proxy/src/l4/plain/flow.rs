//! One direction of a relay without TLS of ours.
//!
//! Bytes are copied through the worker's scratch, until large reads show that there is much to move. Then they are
//! spliced, which costs no copy but needs one call more to learn that a socket is empty: small messages stay
//! cheaper when they are copied.

use std::io;
use std::mem;
use std::task::{Context, Poll};

use offramp_net::Socket;
use offramp_net::splice::{self, Pipes, SplicePipe};

use crate::failure;
use crate::l4::{Progress, flush};

/// One direction of a relay without TLS.
#[derive(Default)]
pub(super) struct PlainFlow {
    /// Bytes that the receiver has not taken yet.
    pub(super) kept: Vec<u8>,
    /// The same in the kernel; never empty, and never beside others in `kept`.
    piped: Option<SplicePipe>,
    pace: Pace,
    pub(super) end: FlowProgress,
    pub(super) moved: u64,
    /// Bytes that were read and dropped since then.
    pub(super) dropped: u64,
}

/// The end of a direction, in the order of its steps.
#[derive(Default)]
pub(super) enum FlowProgress {
    #[default]
    Open,
    /// The sender has finished; the receiver does not know yet, as something may still wait for it.
    Ended,
    /// The receiver's socket was shut.
    Shut,
    /// The receiver takes no more, in this way, though the sender may have more to say: it is dropped.
    Refused(io::Error),
    /// The receiver took no more, and the sender has finished too.
    Over(io::Error),
}

impl FlowProgress {
    /// The sender has finished.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self, Self::Ended | Self::Shut | Self::Over(_))
    }

    /// Nothing more is written to the receiver.
    pub(super) fn is_shut(&self) -> bool {
        matches!(self, Self::Shut | Self::Refused(_) | Self::Over(_))
    }

    /// The error of a receiver that takes no more.
    pub(super) fn refusal(&self) -> Option<&io::Error> {
        match self {
            Self::Refused(error) | Self::Over(error) => Some(error),
            Self::Open | Self::Ended | Self::Shut => None,
        }
    }
}

/// The way in which bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// By copying; so many large reads came one after the other.
    Copy(u8),
    /// By splicing; so many small ones came one after the other.
    Splice(u8),
    /// By copying, for ever: the kernel cannot splice from this socket.
    CopyOnly,
}

impl Default for Pace {
    fn default() -> Self {
        Self::Copy(0)
    }
}

impl Pace {
    /// The pace after a read of `n` bytes.
    fn after(self, n: usize) -> Self {
        match self {
            Self::Copy(seen) if n >= LARGE && seen + 1 >= ENOUGH => Self::Splice(0),
            Self::Copy(seen) if n >= LARGE => Self::Copy(seen + 1),
            Self::Copy(_) => Self::Copy(0),
            Self::Splice(seen) if n < LARGE && seen + 1 >= ENOUGH => Self::Copy(0),
            Self::Splice(seen) if n < LARGE => Self::Splice(seen + 1),
            Self::Splice(_) => Self::Splice(0),
            Self::CopyOnly => Self::CopyOnly,
        }
    }
}

/// Tools that both directions of a relay use in turns.
pub(super) struct Tools<'a> {
    /// The memory for copies.
    pub(super) room: &'a mut [u8],
    pub(super) pipes: &'a Pipes,
}

impl PlainFlow {
    /// One that begins with bytes that were read already.
    pub(super) fn beginning_with(early: Vec<u8>) -> Self {
        Self { moved: early.len() as u64, kept: early, ..Self::default() }
    }

    /// Bytes that the receiver has not taken yet.
    pub(super) fn waiting(&self) -> usize {
        self.kept.len() + self.piped.as_ref().map_or(0, SplicePipe::held)
    }

    /// One step. An error is the sender's.
    pub(super) fn step(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
        tools: &mut Tools<'_>,
    ) -> io::Result<Progress> {
        match self.flush(cx, to, tools.pipes) {
            Ok(true) => {}
            Ok(false) => return Ok(Progress::Blocked),
            Err(error) => return self.refuse(error, tools.pipes),
        }
        match self.end {
            FlowProgress::Open | FlowProgress::Refused(_) => {}
            FlowProgress::Ended => {
                self.end = FlowProgress::Shut;
                let _ = to.shutdown_write();
                return Ok(Progress::Done);
            }
            FlowProgress::Shut | FlowProgress::Over(_) => return Ok(Progress::Done),
        }
        if matches!(self.pace, Pace::Splice(_))
            && !self.end.is_shut()
            && let Some(pipe) = tools.pipes.lend()
        {
            return self.splice(cx, from, to, pipe, tools.pipes);
        }
        self.copy(cx, from, to, tools)
    }

    /// Passes on what waits; `true` when all of it is gone.
    fn flush(&mut self, cx: &mut Context<'_>, to: &Socket, pipes: &Pipes) -> io::Result<bool> {
        if !self.kept.is_empty() {
            return flush(to, &mut self.kept, cx);
        }
        let Some(mut pipe) = self.piped.take() else { return Ok(true) };
        while pipe.held() > 0 {
            match to.poll_splice_to(cx, &mut pipe) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(outcome) => {
                    pipes.give_back(pipe);
                    // A splice of nothing would be one without an end.
                    return outcome.and(Err(io::ErrorKind::WriteZero.into()));
                }
                Poll::Pending => {
                    self.piped = Some(pipe);
                    return Ok(false);
                }
            }
        }
        pipes.give_back(pipe);
        Ok(true)
    }

    fn copy(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
        tools: &mut Tools<'_>,
    ) -> io::Result<Progress> {
        let is_refused = self.end.is_shut();
        let room = &mut *tools.room;
        let n = match from.poll_read(cx, room) {
            // More bytes would be dropped, so the relay waits for none.
            Poll::Pending if is_refused => return Ok(Progress::Done),
            Poll::Pending => {
                // The receiver has what there was; its reads would wake the worker.
                to.pause_writing();
                return Ok(Progress::Blocked);
            }
            Poll::Ready(n) => n?,
        };
        if n == 0 {
            self.end = match mem::take(&mut self.end) {
                FlowProgress::Refused(error) => FlowProgress::Over(error),
                _ => FlowProgress::Ended,
            };
            return Ok(Progress::Moved);
        }
        if is_refused {
            self.dropped += n as u64;
            return Ok(Progress::Moved);
        }
        self.moved += n as u64;
        self.pace = self.pace.after(n);
        let written = match to.poll_write(cx, &room[..n]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => return self.refuse(error, tools.pipes),
            Poll::Pending => 0,
        };
        self.kept.extend_from_slice(&room[written..n]);
        Ok(Progress::Moved)
    }

    /// Like [`PlainFlow::step`], within the kernel.
    fn splice(
        &mut self,
        cx: &mut Context<'_>,
        from: &Socket,
        to: &Socket,
        mut pipe: SplicePipe,
        pipes: &Pipes,
    ) -> io::Result<Progress> {
        let n = match from.poll_splice_from(cx, &mut pipe) {
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) => {
                pipes.give_back(pipe);
                if splice::is_unsupported(&error) {
                    self.pace = Pace::CopyOnly;
                    return Ok(Progress::Moved);
                }
                return Err(error);
            }
            Poll::Pending => {
                pipes.give_back(pipe);
                to.pause_writing();
                return Ok(Progress::Blocked);
            }
        };
        if n == 0 {
            pipes.give_back(pipe);
            self.end = FlowProgress::Ended;
            return Ok(Progress::Moved);
        }
        self.moved += n as u64;
        self.pace = self.pace.after(n);
        self.piped = Some(pipe);
        match self.flush(cx, to, pipes) {
            Ok(_) => Ok(Progress::Moved),
            Err(error) => self.refuse(error, pipes),
        }
    }

    /// The receiver takes no more, so this direction is over: what still comes for it is dropped. The other direction goes
    /// on, as what the receiver sent may still be on its way.
    fn refuse(&mut self, error: io::Error, pipes: &Pipes) -> io::Result<Progress> {
        if failure::is_ours(&error) {
            return Err(error);
        }
        self.end = if self.end.is_ended() { FlowProgress::Over(error) } else { FlowProgress::Refused(error) };
        self.kept = Vec::new();
        if let Some(pipe) = self.piped.take() {
            pipes.give_back(pipe);
        }
        Ok(Progress::Moved)
    }

    /// The sender has finished in order, and not after its receiver took no more.
    pub(super) fn has_ended_well(&self) -> bool {
        matches!(self.end, FlowProgress::Ended | FlowProgress::Shut)
    }

    /// The reset that a write to the receiver reported. A read from it then sees an orderly end, which is wrong.
    pub(super) fn reset(&self) -> Option<&io::Error> {
        self.end.refusal().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }

    /// Drops the bytes that still wait.
    pub(super) fn give_up(self, pipes: &Pipes) {
        if let Some(pipe) = self.piped {
            pipes.give_back(pipe);
        }
    }

    /// The bytes that wait, out of the kernel where they are there.
    pub(super) fn into_waiting(mut self, pipes: &Pipes) -> Vec<u8> {
        match self.piped.take() {
            Some(pipe) => pipes.empty(pipe),
            None => self.kept,
        }
    }
}

/// A read that shows that there is much to move.
const LARGE: usize = 16 * 1024;
/// Number of such reads in a row that is enough.
const ENOUGH: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_spliced_and_little_is_copied() {
        let after = |reads: &[usize]| reads.iter().fold(Pace::default(), |pace, &n| pace.after(n));
        assert_eq!(after(&[100; 50]), Pace::Copy(0));
        assert_eq!(after(&[LARGE; 3]), Pace::Copy(3));
        assert_eq!(after(&[LARGE; 4]), Pace::Splice(0));
        assert_eq!(after(&[LARGE, LARGE, LARGE, 1, LARGE]), Pace::Copy(1));
        let mut reads = vec![LARGE; 9];
        reads.extend([1, 1, 1]);
        assert_eq!(after(&reads), Pace::Splice(3));
        reads.push(1);
        assert_eq!(after(&reads), Pace::Copy(0));
        assert_eq!(Pace::CopyOnly.after(1 << 20), Pace::CopyOnly);
    }
}
