//! Active health checks. Run on the control plane's event loop.
//!
//! Consecutive results that change a server's state are counted in [`health`](crate::health); this module
//! performs the probes. A probe uses a connection of its own, so that it sees what a new client would. Only
//! the status of a response is read.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use offramp_http::h2::{Connection, Event};
use offramp_http::head::Request;
use offramp_net::clock::coarse_ms;
use offramp_tls::client::Alpn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use crate::backend::{Backend, ServerProtocol};
use crate::connect::{ConnectParams, reach};
use crate::fault::{ConnectFault, is_ours};
use crate::health::{CheckKind, Duty, HealthChange, ProbeSettings};
use crate::http::CONFIG;
use crate::link::ServerStream;

/// A change of a server's state.
#[derive(Debug)]
pub struct ProbeReport<'r> {
    /// Name of the backend.
    pub backend: &'r Arc<str>,
    /// Name of the server.
    pub server: &'r Arc<str>,
    /// New state of the server.
    pub change: HealthChange,
    /// Reason of the last failed probe; `None` if the server came up.
    pub reason: Option<&'r ProbeFault>,
}

/// Reason for which a probe failed.
#[derive(Debug)]
pub enum ProbeFault {
    /// The server cannot be connected to.
    Unreachable(ConnectFault),
    /// The timeout of the check expired.
    Timeout,
    /// The connection failed while reading or writing.
    Io(io::Error),
    /// The response has this status.
    Status(u16),
    /// The response is not HTTP.
    NotHttp,
}

impl ProbeFault {
    /// Returns true for failures caused by this machine.
    fn is_ours(&self) -> bool {
        match self {
            Self::Unreachable(reason) => reason.is_ours(),
            Self::Io(error) => is_ours(error),
            Self::Timeout | Self::Status(_) | Self::NotHttp => false,
        }
    }
}

impl std::fmt::Display for ProbeFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(reason) => reason.fmt(f),
            Self::Timeout => f.write_str("timeout: the probe took too long"),
            Self::Io(error) => error.fmt(f),
            Self::Status(status) => write!(f, "the probe was answered with {status}"),
            Self::NotHttp => f.write_str("the probe was not answered with HTTP"),
        }
    }
}

/// Probes all servers of `backend` while it is polled: at once, and after each interval; disabled ones are
/// skipped. Drop it when the backend leaves the configuration. Does nothing without a check.
///
/// `tell` is called for every change of state.
pub async fn run(backend: Arc<Backend>, tell: impl Fn(ProbeReport<'_>)) -> std::convert::Infallible {
    let Some(check) = &backend.check else { return std::future::pending().await };
    // A server that is enabled again is part of another snapshot.
    let checked =
        (0..backend.servers.len()).filter(|server| backend.health[*server].duty() != Duty::Disabled);
    let servers = checked.map(|server| Box::pin(watch(&backend, check, server, &tell)));
    let mut servers: Vec<_> = servers.collect();
    let all = poll_fn(|cx| {
        for server in &mut servers {
            let Poll::Pending = server.as_mut().poll(cx);
        }
        Poll::Pending
    });
    pin!(all).await
}

/// Probes one server forever.
async fn watch(
    backend: &Arc<Backend>,
    check: &ProbeSettings,
    server: usize,
    tell: &impl Fn(ProbeReport<'_>),
) -> std::convert::Infallible {
    let health = &backend.health[server];
    let mut turn = 0;
    loop {
        let outcome = probe(backend, check, server).await;
        // A lack of descriptors on this machine says nothing about the server.
        let ours = outcome.as_ref().is_err_and(ProbeFault::is_ours);
        if !ours {
            health.note_probe_fault(outcome.as_ref().err().map(ToString::to_string));
        }
        if !ours && let Some(change) = health.probe(outcome.is_ok(), check, coarse_ms()) {
            backend.queue.stir();
            let reason = outcome.as_ref().err();
            tell(ProbeReport { backend: &backend.name, server: health.name(), change, reason });
        }
        turn += 1;
        sleep(pause(check.interval, &backend.servers[server].name, turn)).await;
    }
}

/// The interval, up to a tenth longer or shorter, so that probes of several machines do not coincide.
fn pause(interval: Duration, server: &str, turn: u64) -> Duration {
    let draw = crate::pick::key(&[server.as_bytes(), &turn.to_le_bytes()].concat());
    // 0 to 255 of 256.
    interval.mul_f64(0.9 + 0.2 * (draw & 255) as f64 / 256.0)
}

/// Probes a server once.
///
/// # Errors
/// The reason for which it counts as down.
pub async fn probe(backend: &Backend, check: &ProbeSettings, server: usize) -> Result<(), ProbeFault> {
    let asked = async {
        let alpn = match (&check.kind, backend.protocol) {
            (CheckKind::Tcp, _) => Alpn::Own,
            (_, ServerProtocol::Http1) => Alpn::Http1,
            (_, ServerProtocol::Http2) => Alpn::Http2,
            (_, ServerProtocol::Either) => Alpn::Either,
        };
        let way = ConnectParams { prologue: &check.prologue, alpn };
        let reached = reach(backend, server, check.timeout, way, |_| ()).await;
        let reached = reached.map_err(ProbeFault::Unreachable)?;
        let is_http2 = backend.protocol == ServerProtocol::Http2 || reached.is_http2();
        let mut link = reached.into_link();
        match &check.kind {
            CheckKind::Tcp => {
                link.part();
                Ok(())
            }
            CheckKind::Http { path, host, status } => {
                let answered = match is_http2 {
                    false => http1(link, path, host).await?,
                    true => http2(link, path, host).await?,
                };
                check_status(answered, status)
            }
        }
    };
    timeout(check.timeout, asked).await.unwrap_or(Err(ProbeFault::Timeout))
}

/// Sends a request in HTTP/1.1; returns the status.
async fn http1(mut link: ServerStream, path: &str, host: &str) -> Result<u16, ProbeFault> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: offramp-health\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    link.write_all(request.as_bytes()).await.map_err(ProbeFault::Io)?;
    link.flush().await.map_err(ProbeFault::Io)?;
    let mut line = [0; STATUS_LINE];
    let mut filled = 0;
    while filled < line.len() {
        match link.read(&mut line[filled..]).await.map_err(ProbeFault::Io)? {
            0 => break,
            n => filled += n,
        }
    }
    link.part();
    status(&line[..filled]).ok_or(ProbeFault::NotHttp)
}

/// Parses the status of a response that begins with `line`.
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [b'0' | b'1', b' ', digits @ ..] = rest else { return None };
    let digits = digits.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Sends a request in HTTP/2; returns the status.
async fn http2(mut link: ServerStream, path: &str, host: &str) -> Result<u16, ProbeFault> {
    let scheme = if matches!(link, ServerStream::Tls(_)) { "https" } else { "http" };
    let mut request = Request::new();
    request.set_target(path.as_bytes());
    request.fields.set_host(host.as_bytes());
    let mut connection: Connection<()> = Connection::client(CONFIG, coarse_ms());
    connection.open((), &request, scheme, None, true).map_err(|_| ProbeFault::NotHttp)?;
    let mut answer = None;
    let mut buffer = [0; 4096];
    while answer.is_none() {
        while !connection.output().is_empty() {
            let mut parts = [IoSlice::new(&[])];
            connection.output().slices(&mut parts);
            let n = link.write(&parts[0]).await.map_err(ProbeFault::Io)?;
            connection.output_moved(n, &mut |_, (), _| ());
        }
        link.flush().await.map_err(ProbeFault::Io)?;
        let n = match link.read(&mut buffer).await.map_err(ProbeFault::Io)? {
            0 => return Err(ProbeFault::Io(io::ErrorKind::ConnectionAborted.into())),
            n => n,
        };
        let received = connection.receive(&buffer[..n], coarse_ms(), &mut |_, (), event| match event {
            Event::Response { response, .. } => answer = Some(Ok(response.status.as_u16())),
            Event::Reset(_) => {
                answer.get_or_insert(Err(ProbeFault::NotHttp));
            }
            _ => {}
        });
        if received.is_err() && answer.is_none() {
            return Err(ProbeFault::NotHttp);
        }
    }
    link.part();
    answer.unwrap_or(Err(ProbeFault::NotHttp))
}

fn check_status(status: u16, good: &[RangeInclusive<u16>]) -> Result<(), ProbeFault> {
    if good.iter().any(|range| range.contains(&status)) { Ok(()) } else { Err(ProbeFault::Status(status)) }
}

/// Length of a status line up to the status: `HTTP/1.1 200`.
const STATUS_LINE: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines() {
        assert_eq!(status(b"HTTP/1.1 200"), Some(200));
        assert_eq!(status(b"HTTP/1.0 503 Busy"), Some(503));
        for wrong in ["", "HTTP/1.1 20", "HTTP/1.1  200", "HTTP/2.0 200", "SSH-2.0-Open", "HTTP/1.1 2x0"] {
            assert_eq!(status(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn statuses_within_a_range_are_good() {
        let good = [200..=299, 401..=401];
        for (status, is_good) in
            [(199, false), (200, true), (299, true), (300, false), (401, true), (402, false)]
        {
            assert_eq!(check_status(status, &good).is_ok(), is_good, "{status}");
        }
        assert!(check_status(200, &[]).is_err());
    }

    #[test]
    fn pauses_differ_by_a_tenth() {
        let pauses: Vec<f64> =
            (0..100).map(|turn| pause(Duration::from_secs(10), "a:1", turn).as_secs_f64()).collect();
        assert!(pauses.iter().all(|pause| (9.0..11.0).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause < 9.4) && pauses.iter().any(|pause| *pause > 10.6));
    }
}
