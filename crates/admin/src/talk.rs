//! The life of a connection, from its first byte to its end, with a time limit for each step.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::Either;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use offramp_net::PeerAddress;
use offramp_observe::Log;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::api::Reply;
use crate::caller::ClientIdentity;
use crate::entry::SessionEnd;
use crate::owner::ConnectionOwner;
use crate::places::{ActiveRequest, ConnectionSlot};
use crate::service::AdminService;

/// The time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time limit of the first request's head.
const FIRST: Duration = Duration::from_secs(10);
/// The time limit for the next request, its head included.
const NEXT: Duration = Duration::from_secs(60);
/// The maximum age of a connection; a request in progress may finish.
const LIFE: Duration = Duration::from_secs(600);
/// The time for sending an answer after that. Before it begins, the request has limits of its own: an upgrade
/// may take an hour (`limits.upgrade_timeout`).
const LAST: Duration = Duration::from_secs(90);
/// The time for a first request that was on its way when its connection had to end.
const ARRIVING: Duration = Duration::from_millis(300);
/// The interval of log lines about clients that could not be served, because of TLS or a lack of slots.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum size of a request head, in bytes.
const HEAD_BYTES: usize = 16 << 10;

/// Turns true when connections have to end.
pub(crate) type Closes = watch::Receiver<bool>;

pub(crate) enum ClientSocket {
    /// From a process of this machine.
    Unix(UnixStream),
    /// From this TCP address.
    Tcp(TcpStream, SocketAddr),
}

impl ClientSocket {
    pub(crate) fn of(fd: OwnedFd, peer: PeerAddress) -> io::Result<(Self, ConnectionOwner)> {
        match peer {
            PeerAddress::Tcp(address) => {
                let stream = TcpStream::from_std(std::net::TcpStream::from(fd))?;
                Ok((Self::Tcp(stream, address), ConnectionOwner::of(address.ip())))
            }
            PeerAddress::Unix => {
                let stream = UnixStream::from_std(std::os::unix::net::UnixStream::from(fd))?;
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                Ok((Self::Unix(stream), ConnectionOwner::User(user)))
            }
        }
    }
}

/// State shared by all connections.
pub(crate) struct Interior {
    pub(crate) service: AdminService,
    /// The TLS acceptor for clients over TCP, if TLS is on.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) failed: RateLimitedLog,
}

/// A log message at most once a minute.
pub(crate) struct RateLimitedLog {
    log: Log,
    next: Mutex<Instant>,
}

impl RateLimitedLog {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, next: Mutex::new(Instant::now()) }
    }

    pub(crate) fn write(&self, say: impl FnOnce(&Log)) {
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= *next {
            *next = now + LOG_INTERVAL;
            say(&self.log);
        }
    }

    fn no_tls(&self, client: SocketAddr, reason: &str) {
        let client = client.to_string();
        let fields = [("client", (&client).into()), ("reason", reason.into())];
        self.write(|log| log.warn("admin: TLS handshake failed", &fields));
    }
}

/// Serves a client until it leaves, violates the protocol, or has to end.
pub(crate) async fn connection(
    link: ClientSocket,
    place: &Arc<ConnectionSlot>,
    interior: &Arc<Interior>,
    closes: Closes,
) {
    match link {
        ClientSocket::Tcp(stream, address) => {
            let Some(tls) = &interior.tls else {
                return talk(stream, ClientIdentity::Network(address), place, interior, closes).await;
            };
            match timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    talk(stream, ClientIdentity::Encrypted(address), place, interior, closes).await;
                }
                Ok(Err(error)) => interior.failed.no_tls(address, &error.to_string()),
                Err(_) => interior.failed.no_tls(address, "the handshake took too long"),
            }
        }
        ClientSocket::Unix(stream) => {
            let caller = ClientIdentity::of(&stream);
            if matches!(caller, ClientIdentity::Operator { .. }) {
                place.admitted();
            }
            talk(stream, caller, place, interior, closes).await;
        }
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    caller: ClientIdentity,
    place: &Arc<ConnectionSlot>,
    interior: &Arc<Interior>,
    mut closes: Closes,
) {
    let (asked, mut first) = watch::channel(false);
    let (works, at_work) = watch::channel(false);
    let answer = service_fn(move |request: Request<Incoming>| {
        asked.send_replace(true);
        let (interior, exchange, works) = (Arc::clone(interior), ActiveRequest::new(place), works.clone());
        async move {
            works.send_replace(true);
            let mut answer: Response<Reply> = interior.service.answer(request, caller, &exchange).await;
            works.send_replace(false);
            let end = answer
                .extensions_mut()
                .remove::<SessionEnd>()
                .filter(|_| matches!(answer.body(), Either::Right(_)));
            let end = end.map(|end| Box::pin(end.wait()) as _);
            Ok::<_, Infallible>(answer.map(|body| Answering { body, end, _exchange: exchange }))
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(NEXT).max_buf_size(HEAD_BYTES).max_headers(64);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), answer));
    let late = async {
        if timeout(FIRST, first.wait_for(|asked| *asked)).await.is_ok() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        // A partial head cannot be answered.
        () = late => return,
        () = sleep(LIFE) => {}
        _ = closes.wait_for(|closes| *closes) => {}
    }
    // hyper closes a connection of which it has read nothing at once. Its request may have arrived, and the client would see
    // a reset.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = timeout(ARRIVING, first.wait_for(|asked| *asked)) => {}
    }
    connection.as_mut().graceful_shutdown();
    finish(connection, at_work, LAST).await;
}

/// Waits for the end of a connection that takes no further request: while one is in progress, and for `last`
/// beyond.
async fn finish(connection: impl Future, mut at_work: watch::Receiver<bool>, last: Duration) {
    let late = async {
        loop {
            // An error means the end of the connection.
            let _ = at_work.wait_for(|at_work| !at_work).await;
            // A request may begin if its head was on its way.
            let begins = async {
                let is_over = at_work.wait_for(|at_work| *at_work).await.is_err();
                if is_over {
                    pending::<()>().await;
                }
            };
            if timeout(last, begins).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = connection => {}
        () = late => {}
    }
}

/// A response body that is being sent.
struct Answering {
    body: Reply,
    /// Resolves with the session of the client, which ends a stream.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _exchange: ActiveRequest,
}

impl Body for Answering {
    type Data = Bytes;
    type Error = <Reply as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            self.end = None;
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;
    use crate::entry::{Credentials, PageGate};
    use crate::grafana::Mount;
    use crate::places::ConnectionSlots;

    /// At an upgrade: the old process has accepted the connection, and read nothing of it yet.
    #[tokio::test]
    async fn a_request_that_has_arrived_is_answered_though_its_connection_has_to_end() {
        for _ in 0..32 {
            let slots = ConnectionSlots::default();
            let permit = slots.permit().await;
            let place = Arc::new(slots.take(permit, ConnectionOwner::User(None)).place.unwrap());
            let service = AdminService::new(
                None,
                None,
                Credentials::new(None, None),
                PageGate::new("tcp", None, Arc::default()),
                Mount::Grafana,
            );
            let interior =
                Arc::new(Interior { service, tls: None, failed: RateLimitedLog::new(Log::silent()) });
            let (_closing, closes) = watch::channel(true);
            let (mut client, server) = tokio::io::duplex(4096);
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            let caller = ClientIdentity::Network(([127, 0, 0, 1], 1).into());
            talk(server, caller, &place, &interior, closes).await;
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 "), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_request_that_is_worked_on_is_not_cut_off_and_its_answer_has_a_bound() {
        let (end, ended) = oneshot::channel::<()>();
        let (works, at_work) = watch::channel(true);
        let mut finishing = tokio::spawn(finish(ended, at_work.clone(), Duration::ZERO));
        assert!(timeout(Duration::from_millis(50), &mut finishing).await.is_err(), "it is worked on");
        works.send_replace(false);
        finishing.await.unwrap();
        // A connection that has ended is not waited for.
        drop(end);
        let long = Duration::from_secs(3600);
        finish(async {}, at_work.clone(), long).await;
        // A partially received request begins once no other is in progress.
        let (_end, ended) = oneshot::channel::<()>();
        let mut finishing = pin!(finish(ended, at_work, long));
        for work in [false, true, false] {
            works.send_replace(work);
            tokio::select! {
                biased;
                () = &mut finishing => panic!("the answer has an hour"),
                () = yield_now() => {}
            }
        }
    }
}
