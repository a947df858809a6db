//! What the library reads from and writes to on an HTTP/2 connection: the client, with its frames counted.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use offramp_net::clock::coarse_ms;
use offramp_observe::{Cause, Close};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flood::Flood;
use super::outgoing::{Outgoing, Told};
use crate::l7::transport::Transport;

/// What is left of a connection when the library is done with it, and what it knows of its end.
#[derive(Default)]
pub(super) struct Pulse {
    transport: RefCell<Option<Transport>>,
    failed: RefCell<Option<Close>>,
    /// Whether what was written ends where a frame ends.
    whole: Cell<bool>,
    last_stream: Cell<u32>,
    /// Whether the client's direction has ended.
    pub(super) heard_all: Cell<bool>,
    /// What the library said by itself.
    pub(super) told: Cell<Told>,
    /// Whether the client is quiet, so that no memory is kept for what it might send.
    pub(super) quiet: Cell<bool>,
}

impl Pulse {
    /// The client's connection, when the library has dropped it.
    pub(super) fn transport(&self) -> Option<Transport> {
        self.transport.take()
    }

    /// How the connection ended: by `ordinary`, unless something failed.
    pub(super) fn verdict(&self, outcome: Result<(), h2::Error>, ordinary: Cause) -> Close {
        if let Some(close) = self.failed.borrow_mut().take() {
            return close;
        }
        let Err(error) = outcome else { return ordinary.into() };
        let text = error.to_string();
        // ENHANCE_YOUR_CALM is what h2 says to those that reset or err too often.
        let cause = if text.contains("excessive") || text.contains("too_many") {
            Cause::H2Flood
        } else {
            Cause::H2ProtocolError
        };
        Close::from(cause).with_detail(&text)
    }

    /// GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 §6.8), unless a frame is half sent.
    pub(super) fn goaway(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        frame.extend_from_slice(&self.last_stream.get().to_be_bytes());
        frame.extend_from_slice(&0x0b_u32.to_be_bytes());
        self.whole.get().then_some(frame)
    }
}

/// The client's connection as the library has it.
pub(super) struct Wire {
    transport: Option<Transport>,
    early: Vec<u8>,
    /// How many bytes at the front of what has arrived were counted already.
    counted: usize,
    flood: Flood,
    outgoing: Outgoing,
    pulse: Rc<Pulse>,
}

impl Wire {
    pub(super) fn new(mut transport: Transport, early: Vec<u8>, pulse: Rc<Pulse>) -> Self {
        transport.keep_buffer(true);
        let (flood, outgoing) = (Flood::new(coarse_ms()), Outgoing::default());
        Self { transport: Some(transport), early, counted: 0, flood, outgoing, pulse }
    }

    fn fail(&self, close: Close, kind: io::ErrorKind) -> io::Error {
        *self.pulse.failed.borrow_mut() = Some(close);
        kind.into()
    }

    fn io(&self, error: &io::Error) -> io::Error {
        match &self.transport {
            Some(transport) => self.fail(transport.close(error), error.kind()),
            None => error.kind().into(),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.pulse.last_stream.set(self.flood.last_stream);
        *self.pulse.transport.borrow_mut() = self.transport.take();
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let calm = if this.early.is_empty() {
            let Some(transport) = &mut this.transport else { return Poll::Ready(Ok(())) };
            let Poll::Ready(filled) = transport.poll_fill(cx) else {
                transport.keep_buffer(!this.pulse.quiet.get());
                return Poll::Pending;
            };
            match filled {
                Ok(bytes) => {
                    this.pulse.quiet.set(false);
                    this.pulse.heard_all.set(bytes.is_empty());
                    let fresh = bytes.len() > this.counted;
                    let calm = !fresh || this.flood.look(&bytes[this.counted..], coarse_ms());
                    let n = bytes.len().min(buffer.remaining());
                    buffer.put_slice(&bytes[..n]);
                    this.counted = bytes.len() - n;
                    transport.consume(n);
                    calm
                }
                Err(error) => return Poll::Ready(Err(this.io(&error))),
            }
        } else {
            let n = this.early.len().min(buffer.remaining());
            buffer.put_slice(&this.early[..n]);
            let calm = this.flood.look(&this.early[..n], coarse_ms());
            this.early.drain(..n);
            calm
        };
        if calm {
            return Poll::Ready(Ok(()));
        }
        let close = Close::from(Cause::H2Flood).with_detail("too many control frames");
        Poll::Ready(Err(this.fail(close, io::ErrorKind::InvalidData)))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Some(transport) = &mut this.transport else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        this.pulse.whole.set(false);
        match ready!(transport.poll_write_vectored(cx, parts)) {
            Ok(n) => {
                this.flood.sent(n);
                let mut left = n;
                for part in parts {
                    let gone = left.min(part.len());
                    this.outgoing.look(&part[..gone]);
                    left -= gone;
                }
                this.pulse.told.set(this.outgoing.told);
                Poll::Ready(Ok(n))
            }
            Err(error) => Poll::Ready(Err(this.io(&error))),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Called when all frames that were begun are written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(transport) = &mut this.transport else { return Poll::Ready(Ok(())) };
        match ready!(transport.poll_flush(cx)) {
            Ok(()) => {
                this.pulse.whole.set(true);
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(this.io(&error))),
        }
    }

    /// The end is told by whoever drives the connection.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
