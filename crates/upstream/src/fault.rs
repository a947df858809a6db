//! How a request to a server fails, and whose fault that is.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use offramp_http::h1::{Http1Fault, ResponseFault};
use offramp_http::h2;

use crate::connect::{Reason, is_ours};

/// A request that got no response.
#[derive(Debug)]
pub struct Failure {
    /// How.
    pub fault: Fault,
    /// The server that was tried last; `None` where none was.
    pub server: Option<Arc<str>>,
    /// How many connections were tried, those of the pool included.
    pub tries: u16,
    /// How long it waited while all servers were full; zero where it did not.
    pub queue: Duration,
    /// How long connecting took, where a connection was made or tried.
    pub connect: Option<Duration>,
}

/// What went wrong before or within a response.
#[derive(Debug)]
pub enum Fault {
    /// No server could be reached (502), or none was alive or free (503).
    Connect(Reason),
    /// The server did not begin its response in time (504).
    ResponseTimeout,
    /// A body stood still for too long after the response had begun.
    Stalled,
    /// What the server sent is no HTTP (502).
    BadResponse(Violation),
    /// The server broke off: before its response (502), or within it.
    Aborted(Breach),
    /// The body of the request failed: whoever gave it knows why, and says so here.
    RequestBody(Box<dyn StdError + Send + Sync>),
}

/// What is wrong with what a server sent.
#[derive(Debug)]
pub enum Violation {
    /// The head of a response, of HTTP/1.
    Head(ResponseFault),
    /// The chunks of its content.
    Content(Http1Fault),
    /// More interim responses than anybody needs.
    Interim,
    /// It changed the protocol before the request had come to its end (RFC 9110 §7.8).
    EarlySwitch,
    /// Anything about HTTP/2.
    Http2(h2::Violation),
}

/// How a server broke off.
#[derive(Debug)]
pub enum Breach {
    /// It closed the connection where there was more to come.
    Closed,
    /// The connection failed.
    Io(io::Error),
    /// It ended the stream of HTTP/2, or takes no more requests on its connection.
    Http2(h2::Reset),
}

impl Fault {
    /// Whether it speaks against the server.
    pub(crate) fn is_the_servers(&self) -> bool {
        match self {
            Self::Connect(reason) => !reason.is_ours(),
            Self::Aborted(Breach::Io(error)) => !is_ours(error),
            Self::ResponseTimeout | Self::Stalled | Self::BadResponse(_) | Self::Aborted(_) => true,
            Self::RequestBody(_) => false,
        }
    }
}

/// An error of the connection once more, for another of its requests.
pub(crate) fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(reason) => reason.fmt(f),
            Self::ResponseTimeout => f.write_str("the server did not begin its response in time"),
            Self::Stalled => f.write_str("the server stood still within its response"),
            Self::BadResponse(violation) => write!(f, "the server's response is no HTTP: {violation}"),
            Self::Aborted(breach) => write!(f, "the server broke off: {breach}"),
            Self::RequestBody(error) => write!(f, "the request's body failed: {}", Chain(&**error)),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(fault) => fault.fmt(f),
            Self::Content(fault) => fault.fmt(f),
            Self::Interim => f.write_str("too many interim responses"),
            Self::EarlySwitch => f.write_str("it changed the protocol before the request had ended"),
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

impl StdError for Fault {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Connect(Reason::Io(error)) | Self::Aborted(Breach::Io(error)) => Some(error),
            Self::BadResponse(Violation::Head(fault)) => Some(fault),
            Self::BadResponse(Violation::Content(fault)) => Some(fault),
            Self::RequestBody(error) => error.source(),
            Self::BadResponse(Violation::Interim | Violation::EarlySwitch | Violation::Http2(_))
            | Self::Aborted(Breach::Closed | Breach::Http2(_))
            | Self::Connect(_)
            | Self::ResponseTimeout
            | Self::Stalled => None,
        }
    }
}

/// An error with what lies below it.
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
    fn what_this_machine_lacks_speaks_against_no_server() {
        let of = |code| Fault::Aborted(Breach::Io(io::Error::from_raw_os_error(code)));
        assert!(!of(105).is_the_servers());
        assert!(of(104).is_the_servers() && Fault::Aborted(Breach::Closed).is_the_servers());
    }
}
