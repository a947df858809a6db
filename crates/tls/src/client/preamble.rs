//! Negotiation of TLS within the protocol of a server, before the ClientHello (STARTTLS).

use std::future::poll_fn;
use std::task::Poll;

use offramp_net::Socket;
use offramp_wire::postgres::{SSL_REQUEST, SslReply, error_text};

use crate::error::{HandshakeError, HandshakeFault, PreambleFault};

/// Protocol by which a server is asked for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartTlsProtocol {
    /// `SSLRequest`, as sent by PostgreSQL clients.
    Postgres,
}

impl StartTlsProtocol {
    /// Asks for TLS and waits for the reply. Reads exactly the byte that grants TLS: plaintext behind it must
    /// not be treated as protected data (CVE-2021-23222), and is no TLS record.
    pub(super) async fn ask(self, socket: &Socket) -> Result<(), HandshakeError> {
        let Self::Postgres = self;
        socket.write_all(&SSL_REQUEST).await?;
        let mut byte = [0];
        let fault = match socket.read(&mut byte).await? {
            0 => PreambleFault::Closed,
            _ => match SslReply::of(byte[0]) {
                SslReply::Accepts => return Ok(()),
                SslReply::Declines => PreambleFault::Declined,
                SslReply::Error => PreambleFault::Error(message(socket).await),
                SslReply::Unknown(byte) => PreambleFault::Unknown(byte),
            },
        };
        Err(HandshakeFault::Preamble(fault).into())
    }
}

/// Reads the received part of an error message, which usually fits one packet; does not wait for more.
async fn message(socket: &Socket) -> String {
    let mut rest = [0; MOST_OF_MESSAGE];
    let read = poll_fn(|cx| match socket.poll_read(cx, &mut rest) {
        Poll::Ready(Ok(length)) => Poll::Ready(length),
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(0),
    });
    let length = read.await;
    error_text(&rest[..length])
}

/// Bytes of an error message that are read.
const MOST_OF_MESSAGE: usize = 1024;
