//! An established connection as `AsyncRead` and `AsyncWrite`, over the same record layer.
//!
//! The relay does not use this: it moves whole batches and copies nothing. Here plaintext is copied once in
//! each direction, because these traits lend a buffer of the caller's; callers that can read into the slots
//! of a batch avoid that copy ([`TlsStream::poll_lay_out`]). Memory is held only while a record is partly read
//! or partly sent. Truncation is detected: an end of the socket without close_notify is `UnexpectedEof`.

mod batch;
mod lost;
mod parts;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use offramp_net::turn::{Turn, Work};
use offramp_net::{Buffer, Socket};
use offramp_record::{Alert, KeyDemand, PlaintextSpan, RecordSize};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::receiving::{ReceiveAction, TlsClosure};
use crate::sending::Sending;
use crate::session::{SessionError, TlsSession};
use lost::Lost;

/// Buffer space for one read from the socket: a full record and the start of the next.
const READ_ROOM: usize = 17 * 1024;
/// Maximum memory kept for the next read of a stream that does not read ahead.
const MOST_KEPT: usize = 4 * READ_ROOM;
/// Maximum record bytes sealed per write.
const BLOCK: usize = 68 * 1024;
/// Maximum number of records sealed per write.
const MOST_RECORDS: usize = 64;

/// A TLS stream after its handshake.
pub struct TlsStream {
    socket: Socket,
    session: TlsSession,
    /// Received ciphertext; its front may be opened already.
    incoming: Buffer,
    /// Plaintext at the front of `incoming` that the reader has not taken yet, and the length of its record.
    opened: Option<Opened>,
    /// Opened records behind that one.
    further: VecDeque<Opened>,
    sending: Sending,
    /// Waker of a write that waits for space.
    writer: Option<Waker>,
    /// End of the stream for the reader, once it is known.
    ended: Option<TlsClosure>,
    /// Set once nothing may be sent behind the sealed records (RFC 8446 §6.1).
    closing: bool,
    /// Error of sending a reply of the reader, to be reported to the writer.
    lost: Option<Lost>,
    /// Keeps the memory of `incoming` while it is empty.
    keeps: bool,
    /// Lets reads grow with the data.
    ahead: bool,
    /// Buffer space of the next read.
    room: usize,
    /// Bounds the records that are opened before other tasks of the worker run.
    turn: Turn,
}

/// Position of a record's plaintext, without the part that was taken, and its length including preceding
/// records without plaintext.
type Opened = (PlaintextSpan, usize);

/// Wakes both halves of a split stream.
struct Both(Waker, Waker);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}

impl TlsStream {
    /// Takes over a socket after its handshake, with the data received behind it and the unsent `tickets`.
    #[must_use]
    pub fn new(
        socket: Socket,
        session: TlsSession,
        tickets: Vec<u8>,
        incoming: Buffer,
        size: RecordSize,
    ) -> Self {
        Self {
            socket,
            session,
            incoming,
            opened: None,
            further: VecDeque::new(),
            sending: Sending::new(size, tickets),
            writer: None,
            ended: None,
            closing: false,
            lost: None,
            keeps: false,
            ahead: false,
            room: READ_ROOM,
            turn: Turn::default(),
        }
    }

    /// The socket under the record layer.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// End of the peer's stream, if it came within TLS.
    #[must_use]
    pub fn ended(&self) -> Option<TlsClosure> {
        self.ended
    }

    /// Keeps the read buffer between records of a busy stream: releasing and allocating it costs more than
    /// opening a small record. Turn it off when the stream becomes idle.
    pub fn keep_buffer(&mut self, keeps: bool) {
        self.keeps = keeps;
        if !keeps {
            self.further.shrink_to_fit();
        }
        self.settle();
    }

    /// Number of record bytes that the socket has not accepted yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.sending.waiting()
    }

    /// Waits until plaintext is opened, or the stream has ended in order.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.opened.is_none() {
            match self.ended {
                None => {}
                Some(TlsClosure::CloseNotify) => break,
                Some(TlsClosure::PeerAlert(alert)) => {
                    let message = format!("the peer sent the alert {alert}");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, message)));
                }
                Some(TlsClosure::Fault(fault)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault.to_string())));
                }
            }
            // A reader of nearly empty records may never have to wait for the socket.
            ready!(self.turn.poll_rest(cx));
            let starved = self.open().map_err(io::Error::other)?;
            self.answer(cx);
            if !starved {
                continue;
            }
            let arrived = self.poll_ciphertext(cx);
            if arrived.is_pending() && self.sending.poll_hold(cx).is_ready() {
                self.answer(cx);
            }
            if ready!(arrived)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_ciphertext(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = self.room();
        let outcome = self.incoming.poll_read_from(cx, &self.socket, room);
        if let Poll::Ready(Ok(n)) = outcome {
            self.adapt(room, n);
        }
        if outcome.is_pending() {
            self.settle();
        }
        outcome
    }

    /// Consumes the first `n` bytes of the opened plaintext.
    fn take(&mut self, mut n: usize) {
        while let Some((span, record)) = &mut self.opened {
            let now = n.min(span.len);
            span.start += now;
            span.len -= now;
            n -= now;
            if span.len > 0 {
                return;
            }
            let record = *record;
            self.opened = self.further.pop_front();
            self.give_up(record);
        }
    }

    fn give_up(&mut self, n: usize) {
        self.incoming.consume(n);
        self.settle();
    }

    /// Releases the empty buffer, unless it is kept and of moderate size.
    fn settle(&mut self) {
        let kept = self.keeps && (self.ahead || self.incoming.capacity() <= MOST_KEPT);
        if self.incoming.is_empty() && !kept {
            self.incoming.free();
        }
    }

    /// Opens the next record; returns true if more bytes are needed first.
    fn open(&mut self) -> Result<bool, SessionError> {
        let mut span = [PlaintextSpan::default()];
        let at = match &self.opened {
            None => 0,
            Some((_, record)) => record + self.further.iter().map(|(_, record)| record).sum::<usize>(),
        };
        let opened = self.session.opener.open(&mut self.incoming.filled_mut()[at..], &mut span);
        self.turn.spend(Work::Pieces(opened.records));
        if opened.spans == 1 {
            self.turn.spend(Work::Bytes(span[0].len));
            self.put((span[0], opened.consumed));
        } else if let Some((_, last)) = self.further.back_mut().or(self.opened.as_mut()) {
            *last += opened.consumed;
        } else {
            self.give_up(opened.consumed);
        }
        match self.session.receive(opened.event, &mut self.sending, self.closing)? {
            ReceiveAction::Incomplete => return Ok(opened.spans == 0),
            ReceiveAction::More => {}
            ReceiveAction::KeyUpdate { answered } => self.turn.spend(Work::KeyUpdate { answered }),
            ReceiveAction::End(end) => {
                // After close_notify the peer may still receive; nothing may follow a fatal alert.
                self.closing |= end != TlsClosure::CloseNotify;
                self.ended = Some(end);
            }
        }
        Ok(false)
    }

    /// Queues an opened record.
    fn put(&mut self, record: Opened) {
        match &self.opened {
            Some(_) => self.further.push_back(record),
            None => self.opened = Some(record),
        }
    }

    /// Seals an alert, unless nothing may be sent any more.
    fn alert(&mut self, alert: Alert) {
        if !self.closing {
            self.sending.alert(&mut self.session, alert);
        }
    }

    /// Sends replies of the reader, to key updates and by alerts, even if the application writes nothing.
    /// Errors are reported to the writer: data that arrived before can still be read.
    fn answer(&mut self, cx: &Context<'_>) {
        if self.sending.waiting() == 0 {
            return;
        }
        // The socket keeps one waker for writing, and the other half may be waiting with its own.
        let waker = match &self.writer {
            Some(writer) if !writer.will_wake(cx.waker()) => {
                Waker::from(Arc::new(Both(writer.clone(), cx.waker().clone())))
            }
            _ => cx.waker().clone(),
        };
        match self.poll_drain(&mut Context::from_waker(&waker)) {
            Poll::Pending => return,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                self.sending.clear();
                (self.closing, self.lost) = (true, Some(Lost::of(&error)));
            }
        }
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// [`TlsStream::poll_drain`] for the writer.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = self.poll_drain(cx);
        self.writer = outcome.is_pending().then(|| cx.waker().clone());
        outcome
    }

    /// Sends the sealed records.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(lost) = self.lost {
            return Poll::Ready(Err(lost.error()));
        }
        self.sending.poll_flush(&self.socket, cx)
    }

    /// Waits until another batch may be sealed.
    fn poll_sealable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(cx))?;
        if self.closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Poll::Ready(match self.session.pressure() {
            KeyDemand::None => Ok(()),
            KeyDemand::UpdateKey => self.sending.update(&mut self.session).map_err(io::Error::other),
            KeyDemand::Close => Err(io::Error::other("the key of this TLS 1.2 connection is used up")),
        })
    }

    /// Seals as much of `parts` as fits a batch, and sends as much as the socket accepts.
    fn poll_seal<'p>(
        &mut self,
        cx: &mut Context<'_>,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sealable(cx))?;
        let filled = self.sending.seal(&mut self.session, parts, BLOCK, MOST_RECORDS);
        // The plaintext counts as written even if the socket accepts nothing now: a flush or the next write
        // continues.
        if let Poll::Ready(Err(error)) = self.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(filled))
    }
}

impl AsyncBufRead for TlsStream {
    /// Plaintext of one record, in place; empty at the end of the stream.
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_open(cx))?;
        Poll::Ready(Ok(this.opened.map_or(&[], |(span, _)| span.of(this.incoming.filled()))))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        self.get_mut().take(n);
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_open(cx))?;
        if let Some((span, _)) = this.opened {
            let part = PlaintextSpan { start: span.start, len: span.len.min(buffer.remaining()) };
            buffer.put_slice(part.of(this.incoming.filled()));
            this.take(part.len);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_seal(cx, std::iter::once(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_seal(cx, parts.iter().map(|part| &**part))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_written(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.alert(Alert::CLOSE_NOTIFY);
        this.closing = true;
        ready!(this.poll_written(cx))?;
        Poll::Ready(this.socket.shutdown_write())
    }
}
