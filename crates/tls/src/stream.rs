//! An established connection as `AsyncRead` and `AsyncWrite`, over the same record layer.
//!
//! The relay does not use this: it moves whole batches and copies nothing. Here plaintext is copied
//! once each way, because these traits lend a buffer of the caller's; who can read into the slots of a batch
//! spares himself that copy ([`Stream::poll_lay_out`]). Memory is held only while a record is half read or half
//! sent. The stream never ends in silence: an end of the socket without
//! close_notify is `UnexpectedEof`.

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
use offramp_record::{Alert, Pressure, RecordSize, Span};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::receiving::{End, Received};
use crate::sending::Sending;
use crate::session::{Session, SessionError};
use lost::Lost;

/// Room for one read from the socket: a full record and the start of the next.
const READ_ROOM: usize = 17 * 1024;
/// The most memory that is kept for the next read of a stream that does not read ahead.
const MOST_KEPT: usize = 4 * READ_ROOM;
/// The most that one write seals.
const BLOCK: usize = 68 * 1024;
/// The most records that one write seals.
const MOST_RECORDS: usize = 64;

/// A TLS stream after its handshake.
pub struct Stream {
    socket: Socket,
    session: Session,
    /// Ciphertext that has arrived; its front may be opened already.
    incoming: Buffer,
    /// Plaintext at the front of `incoming` that the reader has not had yet, and the bytes of the
    /// record that it lies in.
    opened: Option<Opened>,
    /// The records behind that one that are opened, too.
    further: VecDeque<Opened>,
    sending: Sending,
    /// Whose write waits for what is sealed to drain.
    writer: Option<Waker>,
    /// What the reader gets from now on, if the stream has ended.
    ended: Option<End>,
    /// Nothing may be sent behind what is sealed (RFC 8446 §6.1).
    closing: bool,
    /// Whether something that the reader had to send was lost, which the writer has to hear of.
    lost: Option<Lost>,
    /// Whether the memory of `incoming` stays while nothing is in it.
    keeps: bool,
    /// Whether reads grow with what comes.
    ahead: bool,
    /// The room for the next read.
    room: usize,
    /// Bounds the records that are opened before others of the worker have their turn.
    turn: Turn,
}

/// Where the plaintext of a record lies in it, and how long it is with all records before it that have none. The front
/// of the plaintext may have been taken.
type Opened = (Span, usize);

/// Wakes both halves of a split stream.
struct Both(Waker, Waker);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}

impl Stream {
    /// Takes over a socket after its handshake, with what arrived behind it and the `tickets` that were not sent yet.
    #[must_use]
    pub fn new(
        socket: Socket,
        session: Session,
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

    /// The socket below.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// How the peer ended the stream, where it did so within TLS.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.ended
    }

    /// Has the stream keep its buffer for the next record while it is busy: giving it back and asking for it
    /// again costs more than opening a small record. To be taken back when it falls quiet.
    pub fn keep_buffer(&mut self, keeps: bool) {
        self.keeps = keeps;
        if !keeps {
            self.further.shrink_to_fit();
        }
        self.settle();
    }

    /// How many bytes of records have not reached the socket yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.sending.waiting()
    }

    /// Waits until plaintext is opened, or the stream has ended in order.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.opened.is_none() {
            match self.ended {
                None => {}
                Some(End::CloseNotify) => break,
                Some(End::PeerAlert(alert)) => {
                    let message = format!("the peer sent the alert {alert}");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, message)));
                }
                Some(End::Fault(fault)) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault.to_string())));
                }
            }
            // A reader of records that carry next to nothing may never have to wait for the socket.
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

    /// Takes the first `n` bytes of the opened plaintext away.
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

    /// Gives the buffer back where nothing is in it, and it is not kept or larger than what is kept.
    fn settle(&mut self) {
        let kept = self.keeps && (self.ahead || self.incoming.capacity() <= MOST_KEPT);
        if self.incoming.is_empty() && !kept {
            self.incoming.free();
        }
    }

    /// Opens the next record; `true` where more bytes are needed first.
    fn open(&mut self) -> Result<bool, SessionError> {
        let mut span = [Span::default()];
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
            Received::Incomplete => return Ok(opened.spans == 0),
            Received::More => {}
            Received::KeyUpdate { answered } => self.turn.spend(Work::KeyUpdate { answered }),
            Received::End(end) => {
                // Who has said goodbye may still listen; nothing follows a fatal alert.
                self.closing |= end != End::CloseNotify;
                self.ended = Some(end);
            }
        }
        Ok(false)
    }

    /// Puts a record behind those that are open.
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

    /// Sends what the reader has to send, answers to key updates and alerts, even where the
    /// application writes nothing. That it fails is for the writer to hear: what has arrived before
    /// can still be read.
    fn answer(&mut self, cx: &Context<'_>) {
        if self.sending.waiting() == 0 {
            return;
        }
        // The socket remembers one waker for writing, and the other half may be waiting with its own.
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

    /// [`Stream::poll_drain`] for the writer.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = self.poll_drain(cx);
        self.writer = outcome.is_pending().then(|| cx.waker().clone());
        outcome
    }

    /// Sends what is sealed.
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
            Pressure::None => Ok(()),
            Pressure::UpdateKey => self.sending.update(&mut self.session).map_err(io::Error::other),
            Pressure::Close => Err(io::Error::other("the key of this TLS 1.2 connection is used up")),
        })
    }

    /// Seals as much of `parts` as one batch takes, and sends what the socket takes of it.
    fn poll_seal<'p>(
        &mut self,
        cx: &mut Context<'_>,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sealable(cx))?;
        let filled = self.sending.seal(&mut self.session, parts, (BLOCK, MOST_RECORDS));
        // The plaintext is taken even where the socket takes nothing now: a flush or the next write
        // goes on.
        if let Poll::Ready(Err(error)) = self.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(filled))
    }
}

impl AsyncBufRead for Stream {
    /// The plaintext of one record, where it lies; nothing at the end of the stream.
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_open(cx))?;
        Poll::Ready(Ok(this.opened.map_or(&[], |(span, _)| span.of(this.incoming.filled()))))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        self.get_mut().take(n);
    }
}

impl AsyncRead for Stream {
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
            let part = Span { start: span.start, len: span.len.min(buffer.remaining()) };
            buffer.put_slice(part.of(this.incoming.filled()));
            this.take(part.len);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
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
