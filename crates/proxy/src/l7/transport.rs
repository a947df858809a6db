//! The client's side of an HTTP connection: TLS, or a plain socket. What has arrived is lent where it lies,
//! so that it can be looked at before it is passed on.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use offramp_net::{Buffer, Socket};
use offramp_observe::Cause;
use offramp_observe::Close;
use offramp_tls::{TlsClosure, TlsStream};
use tokio::io::{AsyncBufRead, AsyncWrite};

use crate::failure;

/// Room for one read from a plain socket.
const READ_ROOM: usize = 16 * 1024;
/// Bytes of a plain socket that are read at once while a body goes up.
const BULK_ROOM: usize = 64 * 1024;

/// A connection to a client.
pub(crate) enum Transport {
    /// TLS that ends here.
    Tls(Box<TlsStream>),
    /// A listener without TLS.
    Plain(PlainTransport),
}

/// A plain socket and what has arrived from it.
pub(crate) struct PlainTransport {
    socket: Socket,
    incoming: Buffer,
    room: usize,
    keeps: bool,
}

impl Transport {
    pub(crate) fn plain(socket: Socket, early: Buffer) -> Self {
        Self::Plain(PlainTransport { socket, incoming: early, room: READ_ROOM, keeps: false })
    }

    /// Keeps the memory for arriving bytes while there are none, if `keeps` is set.
    pub(crate) fn keep_buffer(&mut self, keeps: bool) {
        match self {
            Self::Tls(stream) => stream.keep_buffer(keeps),
            Self::Plain(plain) => {
                plain.keeps = keeps;
                if !keeps && plain.incoming.is_empty() {
                    plain.incoming.free();
                }
            }
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Self::Tls(stream) => stream.socket(),
            Self::Plain(plain) => &plain.socket,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The TLS stream, where there is one.
    pub(crate) fn tls(&mut self) -> Option<&mut TlsStream> {
        match self {
            Self::Tls(stream) => Some(stream),
            Self::Plain(_) => None,
        }
    }

    /// Number of written bytes that have not reached the socket yet.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Self::Tls(stream) => stream.waiting(),
            Self::Plain(_) => 0,
        }
    }

    /// Bytes that have arrived and are not used up; waits for some. Nothing means that the client's direction ended
    /// in order.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        match self {
            Self::Tls(stream) => Pin::new(&mut **stream).poll_fill_buf(cx),
            Self::Plain(plain) => plain.poll_fill(cx),
        }
    }

    /// Uses up the first `n` bytes of what has arrived.
    pub(crate) fn consume(&mut self, n: usize) {
        match self {
            Self::Tls(stream) => Pin::new(&mut **stream).consume(n),
            Self::Plain(plain) => {
                plain.incoming.consume(n);
            }
        }
    }

    /// Bytes that have arrived, also behind those of [`Transport::poll_fill`], in `most` parts at the most.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) fn arrived(
        &mut self,
        cx: &Context<'_>,
        most: usize,
    ) -> io::Result<impl Iterator<Item = &[u8]>> {
        let (tls, plain) = match self {
            Self::Tls(stream) => {
                stream.open_further(cx, most)?;
                (Some(stream.opened()), None)
            }
            Self::Plain(plain) => (None, Some(plain.incoming.filled())),
        };
        Ok(tls.into_iter().flatten().chain(plain))
    }

    /// Has reads take more at a time where more comes at a time, or not any more.
    pub(crate) fn read_ahead(&mut self, ahead: bool) {
        if let Self::Tls(stream) = self {
            stream.read_ahead(ahead);
        }
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, parts),
            Self::Plain(plain) => match parts {
                [one] => plain.socket.poll_write(cx, one),
                _ => plain.socket.poll_writev(cx, parts),
            },
        }
    }

    /// Waits until the kernel has all that was written.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
            Self::Plain(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ends our direction: close_notify, and the socket's.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            Self::Plain(plain) => Poll::Ready(plain.socket.shutdown_write()),
        }
    }

    /// Event of the end of a connection after an `error` of reading or writing.
    pub(crate) fn close(&self, error: &io::Error) -> Close {
        let ended = match self {
            Self::Tls(stream) => stream.ended(),
            Self::Plain(_) => None,
        };
        match ended {
            Some(TlsClosure::Fault(fault)) => failure::record(fault),
            Some(TlsClosure::PeerAlert(alert)) => failure::received(Cause::AlertReceived, alert),
            Some(TlsClosure::CloseNotify) => Cause::ClientClosed.into(),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Cause::ClientVanished.into(),
            None => failure::client(error),
        }
    }
}

impl PlainTransport {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.incoming.is_empty() {
            let outcome = self.incoming.poll_read_from(cx, &self.socket, self.room);
            if outcome.is_pending() && !self.keeps {
                // An idle connection owns no buffer.
                self.incoming.free();
                self.room = READ_ROOM;
            }
            let n = ready!(outcome)?;
            self.room = if n >= READ_ROOM { BULK_ROOM } else { READ_ROOM };
        }
        Poll::Ready(Ok(self.incoming.filled()))
    }
}
