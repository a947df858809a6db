//! Failures of requests to the admin interface, with advice.

use std::fmt;
use std::io::ErrorKind;
use std::sync::PoisonError;
use std::time::Duration;

use hyper::StatusCode;
use offramp_certs::explain::stream_error;
use offramp_config::model::ListenAddress;
use offramp_net::process;
use offramp_observe::visible;
use serde_json::Value;

use super::{AdminClient, AdminRequest};
use crate::failure::Failure;
use crate::flags::ctl::AdminAddress;

/// Advice for a missing or stale socket.
const STALE_SOCKET_ADVICE: &str = "\nIf one is running, somebody has removed or replaced its socket, or the directory of it: an upgrade \
                       (SIGUSR2) or a restart makes it again";

/// Advice for a user without a socket of their own.
const SERVICE_ADVICE: &str = "\nThat of a service belongs to its user: run this with sudo";

/// Advice for a connection that was closed without an answer.
const CLOSED_ADVICE: &str = "\nPerhaps as many connections are open as may be, and the log of Offramp says whose these are; or Offramp \
                    ends. Try again";

/// Advice for a change without an answer, since it may have been applied.
const UNKNOWN_OUTCOME: &str =
    "\nWhat was asked for may still be done: `offramp ctl history` tells, once it answers";

impl AdminClient {
    /// Failure of a request without an answer after `time`.
    pub(in crate::ctl) fn timed_out(&self, request: &AdminRequest, time: Duration) -> Failure {
        let perhaps = match request.method {
            "GET" => "",
            _ => UNKNOWN_OUTCOME,
        };
        self.failed(&format!(
            "no answer within {} s; Offramp hangs, is stopped, or has very much to do (--timeout TIME waits longer){perhaps}",
            time.as_secs()
        ))
    }

    /// Failure of a connection that was closed before the answer, with advice.
    pub(super) fn closed_early(&self, request: &AdminRequest, error: &hyper::Error) -> Failure {
        let perhaps = if request.method == "GET" { "" } else { UNKNOWN_OUTCOME };
        self.failed(&format!("it closed the connection without an answer ({error}){CLOSED_ADVICE}{perhaps}"))
    }

    /// Failure of a TLS handshake, with advice.
    pub(super) fn handshake_failed(&self, error: &std::io::Error) -> Failure {
        let plain = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (plain, &self.address) {
            (Some(rustls::Error::InvalidMessage(_)), AdminAddress::Https { host, port }) => {
                let own =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                self.failed(&format!("it does not speak TLS; without TLS it is --admin {own}"))
            }
            _ if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                self.failed(&format!("it closed the connection during the TLS handshake{CLOSED_ADVICE}"))
            }
            _ => self.failed(&format!("TLS: {}", stream_error(error))),
        }
    }

    /// Failure from a problem document (RFC 9457) of the admin interface.
    pub(in crate::ctl) fn refused(&self, status: StatusCode, body: &[u8]) -> Failure {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(detail) = problem["detail"].as_str() else {
            return self.failed(&format!("what listens there is no admin interface; it answers {status}"));
        };
        let text = refusal(&problem, detail);
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
        match status {
            StatusCode::UNAUTHORIZED => {
                Failure::runtime(text + "\n--token-file FILE names the file with the token")
            }
            // Values of the command line are sent unchecked, so a 400 is a usage error.
            StatusCode::BAD_REQUEST => Failure::usage(text),
            _ => Failure::runtime(text),
        }
    }

    pub(in crate::ctl) fn failed(&self, error: &impl fmt::Display) -> Failure {
        Failure::runtime(format_args!("error: the admin interface at {}: {error}", self.address))
    }

    /// Failure to connect, with advice.
    pub(super) fn connect_failed(&self, error: &std::io::Error) -> Failure {
        let address = &self.address;
        Failure::runtime(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                let (what, removed) = match (&self.address, error.kind()) {
                    (AdminAddress::Plain(ListenAddress::Unix(_)), ErrorKind::NotFound) => {
                        (": there is no such socket", STALE_SOCKET_ADVICE)
                    }
                    (AdminAddress::Plain(ListenAddress::Unix(_)), _) => {
                        (": the socket belongs to nobody", STALE_SOCKET_ADVICE)
                    }
                    _ => ("", ""),
                };
                let services = if process::is_root() { "" } else { SERVICE_ADVICE };
                format!(
                    "error: no Offramp listens at {address}{what}\n\
                     Is one running with this configuration (`offramp run -c FILE`)? `offramp ctl -c FILE` asks that of a \
                     file, --admin that of an address{services}{removed}"
                )
            }
            ErrorKind::PermissionDenied => {
                format!("error: {address}: {error}; run this as root, or as the user that Offramp runs as")
            }
            _ => format!("error: {address}: {error}"),
        })
    }
}

/// Formats a problem document for people.
fn refusal(problem: &Value, detail: &str) -> String {
    let mut text = format!("error: {}", printable(detail));
    let errors = problem["errors"].as_array().map_or(&[][..], Vec::as_slice);
    for error in errors.iter().filter(|_| errors.len() > 1) {
        let at = error["at"].as_str().map(|at| format!("{at}: ")).unwrap_or_default();
        text.push_str(&format!(
            "\n  {}",
            printable(&format!("{at}{}", error["text"].as_str().unwrap_or_default()))
        ));
    }
    match problem["difference"].as_array() {
        Some(lines) if lines.is_empty() => {
            text.push_str("\nWhat has changed since the expected version is not remembered");
        }
        Some(_) => text.push_str("\nWhat has changed since the expected version:"),
        None => {}
    }
    for line in problem["difference"].as_array().into_iter().flatten() {
        text.push_str(&format!("\n  {}", printable(line.as_str().unwrap_or_default())));
    }
    text
}

/// Makes lines fit for a terminal, which may be root's.
pub(crate) fn printable(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(visible).collect();
    lines.join("\n")
}
