//! Driving the handshake with a server, one record at a time as towards clients: what the server sends behind its
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
use rustls::unbuffered::ConnectionState;

use super::{Alpn, Connector, HTTP2};
use crate::driver::{
    HandshakeError, HandshakeFault, encode, is_alert, is_close_notify, last_record, next_record, sent_alert,
};
use crate::queue::{Caller, HandshakeQueue};
use crate::session::Session;
use crate::stream::Stream;
use crate::verifier::take_refused;

/// A ClientHello with a post-quantum key share fits.
const FLIGHT: usize = 2048;

thread_local! {
    /// The handshakes of a worker with servers have a budget of their own.
    static QUEUE: Rc<HandshakeQueue> = Rc::default();
}

/// A connection to a server after its handshake.
pub struct Secured {
    /// The record layer.
    pub session: Session,
    /// What the server sent behind its handshake, still sealed.
    pub early: Buffer,
    /// The application protocol.
    pub alpn: Option<Box<[u8]>>,
    /// Whether a ticket replaced certificates and signatures.
    pub resumed: bool,
    /// The size of the records that the server is to get.
    pub record_size: offramp_record::RecordSize,
}

impl Secured {
    /// Whether HTTP/2 was agreed on.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        self.alpn.as_deref() == Some(HTTP2)
    }

    /// As a stream over its socket.
    #[must_use]
    pub fn into_stream(self, socket: Socket) -> Stream {
        let mut stream = Stream::new(socket, self.session, Vec::new(), self.early, self.record_size);
        stream.read_ahead(true);
        stream
    }
}

/// What one turn of rustls came to.
enum Turn {
    Again,
    Flush,
    Blocked,
    Done,
}

impl Connector {
    /// Does the handshake on `socket`, which is connected and on which nothing has come yet. Before it, the server is
    /// asked for TLS where its protocol wants that.
    ///
    /// There is no timeout in here: the caller bounds the whole. Memory is bounded by 96 KiB.
    ///
    /// # Errors
    /// The alert to the server, if there is one, was sent before.
    pub async fn handshake(&self, socket: &Socket, alpn: Alpn) -> Result<Secured, HandshakeError> {
        if let Some(preamble) = self.settings.preamble {
            preamble.ask(socket).await?;
        }
        let config = Arc::clone(self.config(alpn));
        let mut connection =
            UnbufferedClientConnection::new(config, self.name().clone()).map_err(|error| HandshakeError {
                fault: HandshakeFault::Tls(error),
                alert: None,
                refused: None,
            })?;
        let mut early = Buffer::default();
        let mut out = Vec::with_capacity(FLIGHT);
        let queue = QUEUE.with(Rc::clone);
        let caller = Caller::anyone(&queue);
        let (mut shown, mut fresh, mut steps) = (0, true, 0_u32);
        loop {
            // Keys are agreed upon and signatures checked where something new is shown, and nowhere else. Our hello and
            // the server's answer wait for their turn; what follows the answer would be lost work if it waited too.
            if fresh {
                caller.enter(steps > 1).await?;
                steps += 1;
            }
            let begun = fresh.then(Instant::now);
            let (discard, turn) = turn(&mut connection, &mut early.filled_mut()[..shown], &mut out);
            if let Some(begun) = begun {
                caller.spend(begun.elapsed());
            }
            fresh = false;
            early.consume(discard);
            shown -= discard;
            match turn {
                Ok(Turn::Again) => {}
                Ok(Turn::Flush) => {
                    socket.write_all(&out).await?;
                    out.clear();
                }
                Ok(Turn::Blocked) => {
                    let next = next_record(socket, &mut early, shown).await?;
                    if is_close_notify(&early.filled()[shown..next]) {
                        return Err(HandshakeError {
                            fault: HandshakeFault::Closed,
                            alert: None,
                            refused: None,
                        });
                    }
                    shown = next;
                    fresh = true;
                }
                Ok(Turn::Done) => {
                    let secured = self.finish(connection, early)?;
                    // A server that agrees on nothing would take the preface of HTTP/2 for a bad request.
                    if alpn == Alpn::Http2 && !secured.is_http2() {
                        let fault = HandshakeFault::Tls(rustls::Error::NoApplicationProtocol);
                        return Err(HandshakeError { fault, alert: None, refused: None });
                    }
                    return Ok(secured);
                }
                Err(error) => {
                    // Before anything else has its turn on this thread.
                    let refused = take_refused();
                    let error = refuse(socket, early, shown, connection, out, error).await;
                    return Err(HandshakeError { refused, ..error });
                }
            }
        }
    }

    /// Takes the traffic secrets.
    fn finish(
        &self,
        connection: UnbufferedClientConnection,
        early: Buffer,
    ) -> Result<Secured, HandshakeError> {
        let refused =
            |error| HandshakeError { fault: HandshakeFault::Tls(error), alert: None, refused: None };
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
            _ => return Err(refused(rustls::Error::HandshakeNotComplete)),
        };
        let alpn = connection.alpn_protocol().map(Into::into);
        let resumed = connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(refused)?;
        let session =
            Session::of_client(&secrets, kernel, version, &self.settings.choice).map_err(|error| {
                HandshakeError { fault: HandshakeFault::Internal(error), alert: None, refused: None }
            })?;
        Ok(Secured { session, early, alpn, resumed, record_size: self.settings.record_size })
    }
}

/// Lets rustls take one step.
fn turn(
    connection: &mut UnbufferedClientConnection,
    shown: &mut [u8],
    out: &mut Vec<u8>,
) -> (usize, Result<Turn, rustls::Error>) {
    let status = connection.process_tls_records(shown);
    let turn = status.state.map(|state| match state {
        ConnectionState::EncodeTlsData(mut data) => {
            encode(&mut data, out);
            Turn::Again
        }
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Turn::Flush
        }
        ConnectionState::WriteTraffic(_) => Turn::Done,
        _ => Turn::Blocked,
    });
    let discard = status.discard;
    match turn {
        Ok(Turn::Done) if connection.is_handshaking() => (discard, Ok(Turn::Blocked)),
        turn => (discard, turn),
    }
}

/// Sends the alert that rustls has ready, if any. It is shown the same bytes as before, as it may hold the places of
/// messages in them.
async fn refuse(
    socket: &Socket,
    mut early: Buffer,
    mut shown: usize,
    mut connection: UnbufferedClientConnection,
    mut out: Vec<u8>,
    error: rustls::Error,
) -> HandshakeError {
    while !is_alert(last_record(&out)) {
        let (discard, turn) = turn(&mut connection, &mut early.filled_mut()[..shown], &mut out);
        early.consume(discard);
        shown -= discard;
        if !matches!(turn, Ok(Turn::Again)) {
            break;
        }
    }
    // That the server may be gone already changes nothing about why it failed.
    let alert = match socket.write_all(&out).await {
        Ok(()) => sent_alert(&out, &error),
        Err(_) => None,
    };
    HandshakeError { fault: HandshakeFault::Tls(error), alert, refused: None }
}
