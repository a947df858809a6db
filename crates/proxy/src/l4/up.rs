//! From the client to the server: records are opened in the scratch, their plaintext leaves from
//! there with one vectored write.

use std::task::{Context, Poll};

use offramp_net::turn::{Turn, Work};
use offramp_observe::counters::Direction;
use offramp_observe::{Cause, Close};
use offramp_record::PlaintextSpan;
use offramp_tls::{ReceiveAction, TlsClosure};

use super::opened::{Rest, note_key_update, write_or_keep};
use super::{DownEnd, Progress, TlsRelay, UpEnd, flush};
use crate::failure;
use crate::slots::BLOCK;
use crate::slots::Scratch;

impl TlsRelay {
    /// One step: send what waits, else open what is kept, else read.
    pub(super) fn poll_up(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        turn: &mut Turn,
    ) -> Result<Progress, Close> {
        if !self.up.plain.is_empty() {
            let before = self.up.plain.len();
            // These bytes were counted when they were opened.
            let gone = match flush(&self.server, &mut self.up.plain, cx) {
                Ok(gone) => gone,
                Err(error) => return self.refused(&error),
            };
            if self.up.plain.len() != before {
                self.moved_ms = offramp_net::clock::coarse_ms();
            }
            if !gone {
                return Ok(Progress::Blocked);
            }
        }
        let Scratch { bytes, spans } = scratch;
        if self.up.unopened {
            let mut sealed = std::mem::take(&mut self.up.sealed);
            let rest = self.open(cx, &mut sealed, spans, turn)?;
            self.keep_on(sealed, rest);
            return Ok(Progress::Moved);
        }
        if self.up.end.is_over() {
            return Ok(self.end_up());
        }
        let kept = self.up.sealed.len();
        match self.client.poll_read(cx, &mut bytes[kept..BLOCK]) {
            Poll::Pending => {
                // The server has what there was: when it reads that is no news.
                self.server.pause_writing();
                Ok(Progress::Blocked)
            }
            Poll::Ready(Ok(0)) => self.vanished(),
            Poll::Ready(Ok(n)) => {
                bytes[..kept].copy_from_slice(&self.up.sealed);
                self.moved_ms = offramp_net::clock::coarse_ms();
                let buffer = &mut bytes[..kept + n];
                let rest = self.open(cx, buffer, spans, turn)?;
                self.keep(buffer, rest);
                Ok(Progress::Moved)
            }
            Poll::Ready(Err(error)) => Err(failure::client(&error)),
        }
    }

    /// The client's TCP ended without close_notify. In the middle of a record that is a truncation;
    /// between two, many clients do it, and what they said is passed on whole.
    fn vanished(&mut self) -> Result<Progress, Close> {
        // The kernel reported the reset to the write that failed; a read sees an orderly end.
        if self.down.end.left() == Some(std::io::ErrorKind::ConnectionReset) {
            return Err(Cause::ClientReset.into());
        }
        if !self.up.sealed.is_empty() {
            return Err(Cause::ClientTruncated.into());
        }
        self.ended(Cause::ClientVanished);
        self.up.end = UpEnd::Ended;
        Ok(Progress::Moved)
    }

    /// The server takes no more. What it answered before may still be on its way to the client, so
    /// only this direction is over: the other finds the end of the server's stream by itself.
    fn refused(&mut self, error: &std::io::Error) -> Result<Progress, Close> {
        if failure::is_ours(error) {
            return Err(failure::server(error));
        }
        // Where its end came before its refusal, the kernel says so by EPIPE: the answer is whole.
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            self.ended(failure::server(error).cause);
        }
        self.up.end = UpEnd::Refused(error.kind());
        self.up.plain = Vec::new();
        self.keep(&[], Rest::Nothing);
        Ok(Progress::Done)
    }

    fn end_up(&mut self) -> Progress {
        if !self.up.end.is_shut() {
            self.up.end = UpEnd::Shut;
            // Where the server's direction is over too, the close that follows says the same.
            if self.down.end != DownEnd::Shut {
                // It may be gone already.
                let _ = self.server.shutdown_write();
            }
        }
        Progress::Done
    }

    /// Opens the records at the front of `buffer` and sends their plaintext on, until the turn is over.
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        spans: &mut [PlaintextSpan],
        turn: &mut Turn,
    ) -> Result<Rest, Close> {
        let mut at = 0;
        loop {
            let opened = self.session.opener.open(&mut buffer[at..], spans);
            turn.spend(Work::Pieces(opened.records));
            let delivered = self.deliver(cx, &buffer[at..], &spans[..opened.spans], turn)?;
            if self.up.end.refusal().is_some() {
                return Ok(Rest::Nothing);
            }
            at += opened.consumed;
            let silent = self.down.end.is_silent();
            let received = self.session.receive(opened.event, &mut self.down.sending, silent);
            match received.map_err(|error| Close::from(Cause::Internal).with_detail(&error.to_string()))? {
                ReceiveAction::Incomplete => return Ok(Rest::Part(at)),
                ReceiveAction::More => {}
                ReceiveAction::KeyUpdate { answered } => {
                    turn.spend(Work::KeyUpdate { answered });
                    note_key_update(&self.worker.counters, Direction::ClientToServer, answered);
                }
                ReceiveAction::End(TlsClosure::CloseNotify) => {
                    self.ended(Cause::ClientClosed);
                    self.up.end = UpEnd::Ended;
                    return Ok(Rest::Nothing);
                }
                ReceiveAction::End(TlsClosure::PeerAlert(alert)) => {
                    return Err(failure::received(Cause::AlertReceived, alert));
                }
                ReceiveAction::End(TlsClosure::Fault(fault)) => return Err(failure::record(fault)),
            }
            if !delivered || turn.is_over() {
                return Ok(Rest::Records(at));
            }
        }
    }

    /// Keeps what is left of the scratch.
    fn keep(&mut self, buffer: &[u8], rest: Rest) {
        let (at, unopened) = rest.place(buffer.len());
        self.up.unopened = unopened;
        if at == buffer.len() && self.up.sealed.capacity() > 0 {
            self.up.sealed = Vec::new();
        } else {
            self.up.sealed.clear();
            self.up.sealed.extend_from_slice(&buffer[at..]);
        }
    }

    /// Keeps what is left of what was kept before.
    fn keep_on(&mut self, mut sealed: Vec<u8>, rest: Rest) {
        let (at, unopened) = rest.place(sealed.len());
        self.up.unopened = unopened;
        if unopened {
            sealed.drain(..at);
            self.up.sealed = sealed;
        } else {
            // A part of a record may wait for long, and needs little of this memory.
            self.up.sealed = sealed[at..].to_vec();
        }
    }

    /// Sends plaintext to the server; what it does not take is kept, and `false` says so.
    fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &[u8],
        spans: &[PlaintextSpan],
        turn: &mut Turn,
    ) -> Result<bool, Close> {
        if spans.is_empty() {
            return Ok(self.up.plain.is_empty());
        }
        let total: usize = spans.iter().map(|span| span.len).sum();
        turn.spend(Work::Calls(1));
        turn.spend(Work::Bytes(total));
        self.traffic.from_client += total as u64;
        self.worker.counters.bytes_relayed(Direction::ClientToServer, total as u64);
        self.worker.counters.records(Direction::ClientToServer, spans.len() as u64);
        match write_or_keep(&self.server, cx, buffer, spans, &mut self.up.plain) {
            Ok(()) => Ok(self.up.plain.is_empty()),
            Err(error) => {
                self.refused(&error)?;
                Ok(false)
            }
        }
    }
}
