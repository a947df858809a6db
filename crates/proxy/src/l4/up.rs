//! From the client to the server: records are opened in the scratch, their plaintext leaves from
//! there with one vectored write.

use std::io::IoSlice;
use std::task::{Context, Poll};

use offramp_net::Socket;
use offramp_observe::counters::Direction;
use offramp_observe::{Cause, Close};
use offramp_record::{Alert, Event, Span};

use super::{Progress, Relay, flush};
use crate::failure;
use crate::slots::{BLOCK, SPANS};
use crate::worker::Scratch;

impl Relay {
    /// One step: send what waits, else open what is kept, else read.
    pub(super) fn poll_up(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Result<Progress, Close> {
        if !self.up.plain.is_empty() {
            let before = self.up.plain.len();
            let gone = match flush(&self.server, &mut self.up.plain, cx) {
                Ok(gone) => gone,
                Err(error) => return Ok(self.refused(&error)),
            };
            if self.up.plain.len() != before {
                self.moved_ms = offramp_net::clock::coarse_ms();
            }
            if !gone {
                return Ok(Progress::Blocked);
            }
        }
        let kept = self.up.sealed.len();
        if self.up.unopened {
            scratch.bytes[..kept].copy_from_slice(&self.up.sealed);
            return self.open(cx, scratch, kept);
        }
        if self.up.ended {
            return Ok(self.end_up());
        }
        match self.client.poll_read(cx, &mut scratch.bytes[kept..BLOCK]) {
            Poll::Pending => Ok(Progress::Blocked),
            Poll::Ready(Ok(0)) => self.vanished(),
            Poll::Ready(Ok(n)) => {
                scratch.bytes[..kept].copy_from_slice(&self.up.sealed);
                self.moved_ms = offramp_net::clock::coarse_ms();
                self.open(cx, scratch, kept + n)
            }
            Poll::Ready(Err(error)) => Err(failure::client(&error)),
        }
    }

    /// The client's TCP ended without close_notify. In the middle of a record that is a truncation;
    /// between two, many clients do it, and what they said is passed on whole.
    fn vanished(&mut self) -> Result<Progress, Close> {
        // A reset was told to the write that failed; here it looks like an orderly end.
        if self.down.left == Some(std::io::ErrorKind::ConnectionReset) {
            return Err(Cause::ClientReset.into());
        }
        if !self.up.sealed.is_empty() {
            return Err(Cause::ClientTruncated.into());
        }
        self.ended(Cause::ClientVanished);
        self.up.ended = true;
        Ok(Progress::Moved)
    }

    /// The server takes no more. What it answered before may still be on its way to the client, so
    /// only this direction is over: the other finds the end of the server's stream by itself.
    fn refused(&mut self, error: &std::io::Error) -> Progress {
        // Where its end came before its refusal, the kernel says so by EPIPE: the answer is whole.
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            self.ended(failure::server(error).cause);
        }
        self.up.refused = true;
        self.up.ended = true;
        self.up.shut = true;
        self.up.plain = Vec::new();
        self.keep(&[], false);
        Progress::Done
    }

    fn end_up(&mut self) -> Progress {
        if !self.up.shut {
            self.up.shut = true;
            // Where the server's direction is over too, the close that follows says the same.
            if !self.down.shut {
                // One that is gone already needs not be told.
                let _ = self.server.shutdown_write();
            }
        }
        Progress::Done
    }

    /// Opens the first `filled` bytes of the scratch and sends the plaintext on.
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        filled: usize,
    ) -> Result<Progress, Close> {
        let mut at = 0;
        loop {
            let buffer = &mut scratch.bytes[at..filled];
            let opened = self.session.opener.open(buffer, &mut scratch.spans);
            let spans = &scratch.spans[..opened.spans];
            let delivered = self.deliver(cx, &scratch.bytes[at..filled], spans);
            if self.up.refused {
                break;
            }
            at += opened.consumed;
            match opened.event {
                Event::NeedMore(_) => {
                    self.keep(&scratch.bytes[at..filled], false);
                    break;
                }
                Event::Full => {}
                Event::KeyUpdate { answer } => self.key_update(answer)?,
                Event::RefuseRenegotiation => {
                    self.tell(Alert::NO_RENEGOTIATION);
                }
                Event::CloseNotify => {
                    self.ended(Cause::ClientClosed);
                    self.up.ended = true;
                    self.keep(&[], false);
                    break;
                }
                Event::PeerAlert(alert) => return Err(failure::received(Cause::AlertReceived, alert.0)),
                Event::Fault(fault) => {
                    self.tell(fault.alert());
                    return Err(failure::record(fault));
                }
            }
            if !delivered {
                self.keep(&scratch.bytes[at..filled], true);
                break;
            }
        }
        Ok(Progress::Moved)
    }

    /// Keeps ciphertext for later; `unopened` says that whole records may be in it.
    fn keep(&mut self, rest: &[u8], unopened: bool) {
        self.up.unopened = unopened && !rest.is_empty();
        if rest.is_empty() && self.up.sealed.capacity() > 0 {
            self.up.sealed = Vec::new();
        } else {
            self.up.sealed.clear();
            self.up.sealed.extend_from_slice(rest);
        }
    }

    fn key_update(&mut self, answer: bool) -> Result<(), Close> {
        let internal =
            |error: offramp_tls::SessionError| Close::from(Cause::Internal).with_detail(&error.to_string());
        self.session.update_receiving().map_err(internal)?;
        self.worker.counters.key_update(Direction::ClientToServer);
        // One unsent answer is enough for any number of requests (RFC 8446 §4.6.3).
        if answer && !self.down.answering && !self.down.notified {
            self.session.update_sending(&mut self.down.pending).map_err(internal)?;
            self.down.answering = true;
            self.worker.counters.key_update(Direction::ServerToClient);
        }
        Ok(())
    }

    /// Sends plaintext to the server; what it does not take is kept, and `false` says so.
    fn deliver(&mut self, cx: &mut Context<'_>, buffer: &[u8], spans: &[Span]) -> bool {
        if spans.is_empty() {
            return self.up.plain.is_empty();
        }
        let total: usize = spans.iter().map(|span| span.len).sum();
        self.traffic.from_client += total as u64;
        self.worker.counters.bytes_relayed(Direction::ClientToServer, total as u64);
        self.worker.counters.records(Direction::ClientToServer, spans.len() as u64);
        let written = if self.up.plain.is_empty() {
            match write(&self.server, cx, buffer, spans) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => {
                    self.refused(&error);
                    return false;
                }
                Poll::Pending => 0,
            }
        } else {
            0
        };
        if written == total {
            return true;
        }
        let mut skip = written;
        for span in spans {
            let part = span.of(buffer);
            let skipped = skip.min(part.len());
            skip -= skipped;
            self.up.plain.extend_from_slice(&part[skipped..]);
        }
        false
    }
}

/// One system call for all spans.
fn write(
    server: &Socket,
    cx: &mut Context<'_>,
    buffer: &[u8],
    spans: &[Span],
) -> Poll<std::io::Result<usize>> {
    if let [span] = spans {
        return server.poll_write(cx, span.of(buffer));
    }
    let mut slices = [IoSlice::new(&[]); SPANS];
    for (slice, span) in slices.iter_mut().zip(spans) {
        *slice = IoSlice::new(span.of(buffer));
    }
    server.poll_writev(cx, &slices[..spans.len()])
}
