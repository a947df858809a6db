//! Failures of requests to servers, and their cause.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use offramp_http::Http1Fault;
use offramp_http::h1::ResponseFault;
use offramp_http::h2;
use offramp_tls::{HandshakeError, HandshakeFault};

/// A request without a response.
#[derive(Debug)]
pub struct FailedRequest {
    /// Cause of the failure.
    pub fault: UpstreamFault,
    /// Server that was tried last; `None` if none was.
    pub server: Option<Arc<str>>,
    /// Number of connections tried, including pooled ones.
    pub tries: u16,
    /// Time waited while all servers were full.
    pub queue: Duration,
    /// Duration of connecting, if a connection was made or tried.
    pub connect: Option<Duration>,
}

/// Failure before or within a response.
#[derive(Debug)]
pub enum UpstreamFault {
    /// No server could be reached (502), or none was alive or free (503).
    Connect(ConnectFault),
    /// The server did not begin its response in time (504).
    ResponseTimeout,
    /// A body paused for too long after the response had begun.
    Stalled,
    /// The response is not valid HTTP (502).
    BadResponse(ResponseViolation),
    /// The server aborted before its response (502), or within it.
    Aborted(Breach),
    /// The body of the request failed, with the error of its source.
    RequestBody(Box<dyn StdError + Send + Sync>),
}

/// Reason for which no connection to a server was made.
#[derive(Debug)]
pub enum ConnectFault {
    /// The connect timeout expired.
    Timeout,
    /// A system call failed.
    Io(io::Error),
    /// The TLS handshake failed.
    Tls(Arc<HandshakeError>),
    /// The host name does not resolve.
    NoAddress,
    /// Every server is down or leaving.
    NoServerAlive,
    /// All servers are at `max_connections`, and the queue is full.
    QueueFull,
    /// All servers were at `max_connections` during the whole queue timeout.
    QueueTimeout,
}

impl fmt::Display for ConnectFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the connect timeout ran out"),
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::NoAddress => f.write_str("the server's name does not resolve"),
            Self::NoServerAlive => f.write_str("every server is down"),
            Self::QueueFull => f.write_str("all servers are busy and the queue is full"),
            Self::QueueTimeout => f.write_str("all servers were busy for too long"),
        }
    }
}

impl ConnectFault {
    /// Returns true for a lack of resources on this machine.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::Io(error) => is_ours(error),
            Self::Tls(error) => match &error.fault {
                HandshakeFault::Io(error) => is_ours(error),
                HandshakeFault::Internal(_) | HandshakeFault::Shed => true,
                HandshakeFault::Closed
                | HandshakeFault::Tls(_)
                | HandshakeFault::TooLarge
                | HandshakeFault::Preamble(_) => false,
            },
            _ => false,
        }
    }

    /// Copies the reason, for another request that waited for the same connection.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Timeout => Self::Timeout,
            Self::Io(error) => Self::Io(match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => error.kind().into(),
            }),
            Self::Tls(error) => Self::Tls(Arc::clone(error)),
            Self::NoAddress => Self::NoAddress,
            Self::NoServerAlive => Self::NoServerAlive,
            Self::QueueFull => Self::QueueFull,
            Self::QueueTimeout => Self::QueueTimeout,
        }
    }
}

/// Returns true for socket errors caused by a lack of descriptors, memory or epoll watches on this machine.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    // ENOMEM, ENFILE, EMFILE, ENOSPC (epoll's limit of watches), ENOBUFS.
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 28 | 105))
}

/// Protocol violation in a response.
#[derive(Debug)]
pub enum ResponseViolation {
    /// In the head of an HTTP/1 response.
    Head(ResponseFault),
    /// In the chunks of its content.
    Content(Http1Fault),
    /// Too many interim responses.
    Interim,
    /// The protocol was switched before the end of the request (RFC 9110 §7.8).
    EarlySwitch,
    /// Any violation of HTTP/2.
    Http2(h2::Violation),
}

/// Way in which a server aborted.
#[derive(Debug)]
pub enum Breach {
    /// It closed the connection prematurely.
    Closed,
    /// The connection failed while reading or writing.
    Io(io::Error),
    /// It reset the HTTP/2 stream, or accepts no more requests on its connection.
    Http2(h2::Reset),
}

impl UpstreamFault {
    /// Returns true for failures that count against the server.
    pub(crate) fn blames_server(&self) -> bool {
        match self {
            Self::Connect(reason) => !reason.is_ours(),
            Self::Aborted(Breach::Io(error)) => !is_ours(error),
            Self::ResponseTimeout | Self::Stalled | Self::BadResponse(_) | Self::Aborted(_) => true,
            Self::RequestBody(_) => false,
        }
    }
}

/// Copies an error of the connection, for another of its requests.
pub(crate) fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl fmt::Display for UpstreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(reason) => reason.fmt(f),
            Self::ResponseTimeout => f.write_str("the server did not begin its response in time"),
            Self::Stalled => f.write_str("the server stalled within its response"),
            Self::BadResponse(violation) => write!(f, "the server's response is no HTTP: {violation}"),
            Self::Aborted(breach) => write!(f, "the server broke off: {breach}"),
            Self::RequestBody(error) => write!(f, "the request's body failed: {}", Chain(&**error)),
        }
    }
}

impl fmt::Display for ResponseViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(fault) => fault.fmt(f),
            Self::Content(fault) => fault.fmt(f),
            Self::Interim => f.write_str("too many interim responses"),
            Self::EarlySwitch => f.write_str("it switched the protocol before the request had ended"),
            Self::Http2(violation) => violation.fmt(f),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it closed the connection before the message had ended"),
            Self::Io(error) => error.fmt(f),
            Self::Http2(reset) => reset.fmt(f),
        }
    }
}

impl StdError for UpstreamFault {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Connect(ConnectFault::Io(error)) | Self::Aborted(Breach::Io(error)) => Some(error),
            Self::BadResponse(ResponseViolation::Head(fault)) => Some(fault),
            Self::BadResponse(ResponseViolation::Content(fault)) => Some(fault),
            Self::RequestBody(error) => error.source(),
            Self::BadResponse(
                ResponseViolation::Interim | ResponseViolation::EarlySwitch | ResponseViolation::Http2(_),
            )
            | Self::Aborted(Breach::Closed | Breach::Http2(_))
            | Self::Connect(_)
            | Self::ResponseTimeout
            | Self::Stalled => None,
        }
    }
}

/// An error with its sources.
struct Chain<'e>(&'e dyn StdError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        match self.0.source() {
            Some(source) => write!(f, ": {}", Chain(source)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ENOBUFS is a lack of this machine; ECONNRESET comes from the server.
    #[test]
    fn a_lack_of_resources_does_not_blame_the_server() {
        let of = |code| UpstreamFault::Aborted(Breach::Io(io::Error::from_raw_os_error(code)));
        assert!(!of(105).blames_server());
        assert!(of(104).blames_server() && UpstreamFault::Aborted(Breach::Closed).blames_server());
    }

    #[test]
    fn whose_failure_it_is() {
        let of = |code| ConnectFault::Io(io::Error::from_raw_os_error(code));
        let within_tls = |code| {
            let fault = HandshakeFault::Io(io::Error::from_raw_os_error(code));
            ConnectFault::Tls(Arc::new(HandshakeError { fault, alert: None, refused: None }))
        };
        for code in [12, 23, 24, 28, 105] {
            assert!(of(code).is_ours() && within_tls(code).is_ours(), "{code}");
        }
        assert!(!within_tls(104).is_ours());
        assert!(!of(111).is_ours() && !ConnectFault::Timeout.is_ours() && !ConnectFault::NoAddress.is_ours());
    }
}
