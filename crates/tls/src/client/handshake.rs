//! Drives the handshake with a server, one record at a time, as towards clients: data behind the server's
//! Finished stays in the buffer, still sealed, for the record layer.

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use offramp_net::{Buffer, Socket};
use offramp_record::Version;
use rustls::ProtocolVersion;
use rustls::client::UnbufferedClientConnection;

use super::{Alpn, Connector, HTTP2};
use crate::driver::{is_close_notify, next_record};
use crate::error::{HandshakeError, HandshakeFault};
use crate::queue::{HandshakeQueue, HandshakeRequest};
use crate::session::TlsSession;
use crate::step::{RustlsStep, encode_alert, sent_alert, step};
use crate::stream::TlsStream;
use crate::verifier::take_refused;

/// Fits a ClientHello with a post-quantum key share.
const FLIGHT: usize = 2048;

thread_local! {
    /// A worker's handshakes with servers have a CPU budget of their own.
    static QUEUE: Rc<HandshakeQueue> = Rc::default();
}

/// A connection to a server after its handshake.
pub struct Secured {
    /// Record layer of the connection.
    pub session: TlsSession,
    /// Sealed bytes received behind the handshake.
    pub early: Buffer,
    /// Application protocol agreed by ALPN.
    pub alpn: Option<Box<[u8]>>,
    /// Set if a session was resumed, without certificates and signatures.
    pub resumed: bool,
    /// Size of the records sent to the server.
    pub record_size: offramp_record::RecordSize,
}

impl Secured {
    /// Returns true if HTTP/2 was negotiated.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        self.alpn.as_deref() == Some(HTTP2)
    }

    /// Converts it to a stream over its socket.
    #[must_use]
    pub fn into_stream(self, socket: Socket) -> TlsStream {
        let mut stream = TlsStream::new(socket, self.session, Vec::new(), self.early, self.record_size);
        stream.read_ahead(true);
        stream
    }
}

impl Connector {
    /// Performs the handshake on `socket`, which is connected and has no data yet. A server with a protocol that
    /// requires it is asked for TLS first.
    ///
    /// Sets no timeout: the caller bounds the whole. Memory is bounded by 96 KiB.
    ///
    /// # Errors
    /// The alert to the server, if there is one, was sent before.
    pub async fn handshake(&self, socket: &Socket, alpn: Alpn) -> Result<Secured, HandshakeError> {
        if let Some(preamble) = self.settings.preamble {
            preamble.ask(socket).await?;
        }
        let config = Arc::clone(self.config(alpn));
        let mut connection =
            UnbufferedClientConnection::new(config, self.name().clone()).map_err(HandshakeFault::Tls)?;
        let mut early = Buffer::default();
        let mut out = Vec::with_capacity(FLIGHT);
        let queue = QUEUE.with(Rc::clone);
        let caller = HandshakeRequest::anyone(&queue);
        let (mut shown, mut fresh, mut steps) = (0, true, 0_u32);
        loop {
            // Key agreement and signature checks happen only after new input. Our hello and the server's
            // reply wait for their turn; later steps do not, because the work done so far would be lost.
            if fresh {
                caller.enter(steps > 1).await?;
                steps += 1;
            }
            let begun = fresh.then(Instant::now);
            let (discard, step) = step(&mut connection, &mut early.filled_mut()[..shown], &mut out);
            if let Some(begun) = begun {
                caller.spend(begun.elapsed());
            }
            fresh = false;
            early.consume(discard);
            shown -= discard;
            match step {
                Ok(RustlsStep::Again) => {}
                Ok(RustlsStep::Flush) => {
                    socket.write_all(&out).await?;
                    out.clear();
                }
                Ok(RustlsStep::Blocked) => {
                    let next = next_record(socket, &mut early, shown).await?;
                    if is_close_notify(&early.filled()[shown..next]) {
                        return Err(HandshakeFault::Closed.into());
                    }
                    shown = next;
                    fresh = true;
                }
                Ok(RustlsStep::Done) => {
                    let secured = self.finish(connection, early)?;
                    // A server without ALPN would treat the preface of HTTP/2 as a bad request.
                    if alpn == Alpn::Http2 && !secured.is_http2() {
                        return Err(HandshakeFault::Tls(rustls::Error::NoApplicationProtocol).into());
                    }
                    return Ok(secured);
                }
                Err(error) => {
                    // Taken before other tasks of this thread run.
                    let refused = take_refused();
                    let shown = &mut early.filled_mut()[..shown];
                    let error = refuse(socket, shown, connection, out, error).await;
                    return Err(error.with_refused(refused));
                }
            }
        }
    }

    /// Takes over the traffic secrets.
    fn finish(
        &self,
        connection: UnbufferedClientConnection,
        early: Buffer,
    ) -> Result<Secured, HandshakeError> {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
            _ => return Err(HandshakeFault::Tls(rustls::Error::HandshakeNotComplete).into()),
        };
        let alpn = connection.alpn_protocol().map(Into::into);
        let resumed = connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(HandshakeFault::Tls)?;
        let session = TlsSession::of_client(&secrets, kernel, version, &self.settings.choice)
            .map_err(HandshakeFault::Internal)?;
        Ok(Secured { session, early, alpn, resumed, record_size: self.settings.record_size })
    }
}

/// Sends the alert that rustls has ready, if any.
async fn refuse(
    socket: &Socket,
    shown: &mut [u8],
    mut connection: UnbufferedClientConnection,
    mut out: Vec<u8>,
    error: rustls::Error,
) -> HandshakeError {
    encode_alert(&mut connection, shown, &mut out);
    // If the server is gone already, the cause of the failure is the same.
    let alert = match socket.write_all(&out).await {
        Ok(()) => sent_alert(&out, &error),
        Err(_) => None,
    };
    HandshakeError { fault: HandshakeFault::Tls(error), alert, refused: None }
}
