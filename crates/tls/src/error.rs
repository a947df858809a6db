//! Errors of configurations and handshakes, in either role.

use std::fmt;
use std::io;

use offramp_certs::client_auth::identity;
use offramp_certs::explain::{TlsPeer, tls_error};
use offramp_record::Alert;

use crate::queue::Shed;
use crate::session::SessionError;

/// Reason for which no configuration of rustls could be built.
#[derive(Debug)]
pub struct SetupError(pub(crate) String);

impl SetupError {
    pub(crate) fn new(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SetupError {}

/// Error of a failed handshake.
#[derive(Debug)]
pub struct HandshakeError {
    /// Cause of the failure.
    pub fault: HandshakeFault,
    /// The alert that was sent, if any.
    pub alert: Option<Alert>,
    /// Rejected certificate of the peer, in DER, if that was the cause.
    pub refused: Option<Box<[u8]>>,
}

impl HandshakeError {
    /// The same failure, with the certificate that was refused.
    pub(crate) fn with_refused(self, refused: Option<Box<[u8]>>) -> Self {
        Self { refused, ..self }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            HandshakeFault::Closed => f.write_str("the connection was closed within the TLS handshake"),
            HandshakeFault::Io(error) => write!(f, "the connection broke within the TLS handshake: {error}"),
            HandshakeFault::Tls(rustls::Error::NoApplicationProtocol) => {
                f.write_str("TLS handshake: no common application protocol (ALPN)")
            }
            // Only errors of handshakes with servers are displayed; those with clients become facts.
            HandshakeFault::Tls(error) => {
                let error = tls_error(error, TlsPeer::Server);
                match &self.refused {
                    Some(certificate) => write!(f, "TLS handshake: {}: {error}", identity(certificate)),
                    None => write!(f, "TLS handshake: {error}"),
                }
            }
            HandshakeFault::TooLarge => f.write_str("a message of the TLS handshake was too large"),
            HandshakeFault::Preamble(fault) => fault.fmt(f),
            HandshakeFault::Shed => f.write_str("too many TLS handshakes wait for CPU time"),
            HandshakeFault::Internal(error) => error.fmt(f),
        }
    }
}

/// Cause of a failed handshake.
#[derive(Debug)]
pub enum HandshakeFault {
    /// The peer closed the connection.
    Closed,
    /// The connection failed while reading or writing.
    Io(io::Error),
    /// rustls failed; the error names the party at fault.
    Tls(rustls::Error),
    /// More than 96 KiB without a whole message.
    TooLarge,
    /// The server did not start TLS when asked.
    Preamble(PreambleFault),
    /// Rejected: too many handshakes wait for this one to finish in time.
    Shed,
    /// An error on our side, not the peer's.
    Internal(SessionError),
}

impl From<HandshakeFault> for HandshakeError {
    /// A failure for which no alert was sent and that no certificate caused.
    fn from(fault: HandshakeFault) -> Self {
        Self { fault, alert: None, refused: None }
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        HandshakeFault::Io(error).into()
    }
}

impl From<Shed> for HandshakeError {
    fn from(_: Shed) -> Self {
        HandshakeFault::Shed.into()
    }
}

/// Reply of a server that does not start TLS.
#[derive(Debug, PartialEq, Eq)]
pub enum PreambleFault {
    /// The server declines TLS.
    Declined,
    /// The server sends an error message; the text is not authenticated.
    Error(String),
    /// The server sends anything else, which begins with this byte.
    Unknown(u8),
    /// The server closes the connection.
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
