//! What comes before the ClientHello where the protocol of a server asks for TLS (STARTTLS).

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;

use offramp_net::Socket;
use offramp_wire::postgres::{Answer, SSL_REQUEST, error_text};

use crate::driver::{HandshakeError, HandshakeFault};

/// How a server is asked for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// `SSLRequest`, as clients of PostgreSQL do.
    Postgres,
}

/// Why TLS does not begin: what a server answers when it is asked for it.
#[derive(Debug, PartialEq, Eq)]
pub enum PreambleFault {
    /// It says no.
    Declined,
    /// It sends an error message; the text is not authenticated.
    Error(String),
    /// It sends something else, which begins with this byte.
    Unknown(u8),
    /// It closes.
    Closed,
}

impl fmt::Display for PreambleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined => f.write_str("the server answered N to SSLRequest: it offers no TLS here"),
            Self::Error(text) if text.is_empty() => {
                f.write_str("the server answered SSLRequest with an error message")
            }
            Self::Error(text) => write!(f, "the server answered SSLRequest with an error message: {text}"),
            Self::Unknown(byte) => {
                write!(f, "the server answered SSLRequest with the byte {byte:#04x}, which is not PostgreSQL")
            }
            Self::Closed => f.write_str("the server closed when it was asked for TLS by SSLRequest"),
        }
    }
}

impl Preamble {
    /// Asks for TLS and waits for the answer. Of what the server sends exactly the byte is read that grants TLS: a byte
    /// in clear behind it must not be taken for one that TLS protects (CVE-2021-23222), and is no record of TLS.
    pub(super) async fn ask(self, socket: &Socket) -> Result<(), HandshakeError> {
        let Self::Postgres = self;
        socket.write_all(&SSL_REQUEST).await?;
        let mut byte = [0];
        let fault = match socket.read(&mut byte).await? {
            0 => PreambleFault::Closed,
            _ => match Answer::of(byte[0]) {
                Answer::Accepts => return Ok(()),
                Answer::Declines => PreambleFault::Declined,
                Answer::Error => PreambleFault::Error(message(socket).await),
                Answer::Unknown(byte) => PreambleFault::Unknown(byte),
            },
        };
        Err(HandshakeError { fault: HandshakeFault::Preamble(fault), alert: None, refused: None })
    }
}

/// What has come of an error message by now: it mostly comes in one packet, and is not worth a wait.
async fn message(socket: &Socket) -> String {
    let mut rest = [0; MOST_OF_MESSAGE];
    let read = poll_fn(|cx| match socket.poll_read(cx, &mut rest) {
        Poll::Ready(Ok(length)) => Poll::Ready(length),
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(0),
    });
    let length = read.await;
    error_text(&rest[..length])
}

/// How much of an error message is looked at, in bytes.
const MOST_OF_MESSAGE: usize = 1024;
