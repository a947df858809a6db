//! The life of a connection: from its first byte to its end, each step bounded in time.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use offramp_net::Peer;
use offramp_observe::Log;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::api::Reply;
use crate::caller::Caller;
use crate::places::{Exchange, Owner, Place};
use crate::service::Service;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of the first request may take.
const FIRST: Duration = Duration::from_secs(10);
/// How long a connection may wait for the next request, its head included.
const NEXT: Duration = Duration::from_secs(60);
/// How long a connection is kept; the request that is under way may finish.
const LIFE: Duration = Duration::from_secs(600);
/// How long the answer may take to be sent after that. Until it begins, the request has bounds of its own: an upgrade may
/// take an hour (`limits.upgrade_timeout`).
const LAST: Duration = Duration::from_secs(90);
/// How often the log says that clients could not be served: because of their TLS, or for want of places.
const TOLD: Duration = Duration::from_secs(60);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;

/// Turns true when connections have to end.
pub(crate) type Closes = watch::Receiver<bool>;

/// A connection that was accepted.
pub(crate) enum Link {
    /// To a process of this machine.
    Unix(UnixStream),
    /// To this address.
    Tcp(TcpStream, SocketAddr),
}

impl Link {
    pub(crate) fn of(fd: OwnedFd, peer: Peer) -> io::Result<(Self, Owner)> {
        match peer {
            Peer::Tcp(address) => {
                let stream = TcpStream::from_std(std::net::TcpStream::from(fd))?;
                Ok((Self::Tcp(stream, address), Owner::of(address.ip())))
            }
            Peer::Unix => {
                let stream = UnixStream::from_std(std::os::unix::net::UnixStream::from(fd))?;
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                Ok((Self::Unix(stream), Owner::User(user)))
            }
        }
    }
}

/// What all connections share.
pub(crate) struct Interior {
    pub(crate) service: Service,
    /// What clients over TCP must speak, if it is TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) failed: Seldom,
}

/// Says something once a minute at most.
pub(crate) struct Seldom {
    log: Log,
    next: Mutex<Instant>,
}

impl Seldom {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, next: Mutex::new(Instant::now()) }
    }

    pub(crate) fn tell(&self, say: impl FnOnce(&Log)) {
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= *next {
            *next = now + TOLD;
            say(&self.log);
        }
    }

    fn no_tls(&self, client: SocketAddr, reason: &str) {
        let client = client.to_string();
        let fields = [("client", (&client).into()), ("reason", reason.into())];
        self.tell(|log| log.warn("no TLS with a client of the admin interface", &fields));
    }
}

/// Serves a client until it goes, sends nonsense, or has to end.
pub(crate) async fn connection(link: Link, place: &Arc<Place>, interior: &Arc<Interior>, closes: Closes) {
    match link {
        Link::Tcp(stream, address) => {
            let Some(tls) = &interior.tls else {
                return talk(stream, Caller::Network(address), place, interior, closes).await;
            };
            match timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => talk(stream, Caller::Encrypted(address), place, interior, closes).await,
                Ok(Err(error)) => interior.failed.no_tls(address, &error.to_string()),
                Err(_) => interior.failed.no_tls(address, "the handshake took too long"),
            }
        }
        Link::Unix(stream) => {
            let caller = Caller::of(&stream);
            if matches!(caller, Caller::Operator { .. }) {
                place.admitted();
            }
            talk(stream, caller, place, interior, closes).await;
        }
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    caller: Caller,
    place: &Arc<Place>,
    interior: &Arc<Interior>,
    mut closes: Closes,
) {
    let (asked, mut first) = watch::channel(false);
    let (works, at_work) = watch::channel(false);
    let answer = service_fn(move |request: Request<Incoming>| {
        asked.send_replace(true);
        let (interior, exchange, works) = (Arc::clone(interior), Exchange::new(place), works.clone());
        async move {
            works.send_replace(true);
            let answer: Response<Reply> = interior.service.answer(request, caller, &exchange).await;
            works.send_replace(false);
            Ok::<_, Infallible>(answer.map(|body| Answering { body, _exchange: exchange }))
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
        // Half a head is no request that could be answered.
        () = late => return,
        () = sleep(LIFE) => {}
        _ = closes.wait_for(|closes| *closes) => {}
    }
    connection.as_mut().graceful_shutdown();
    finish(connection, at_work, LAST).await;
}

/// Waits for the end of a connection that takes no further request: as long as one is worked on, and for `last` beyond.
async fn finish(connection: impl Future, mut at_work: watch::Receiver<bool>, last: Duration) {
    let late = async {
        loop {
            // An error is the end of the connection.
            let _ = at_work.wait_for(|at_work| !at_work).await;
            // A request whose head was on its way may begin.
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

/// An answer that is being sent.
struct Answering {
    body: Reply,
    _exchange: Exchange,
}

impl Body for Answering {
    type Data = Bytes;
    type Error = <Reply as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
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
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn a_request_that_is_worked_on_is_not_cut_off_and_its_answer_has_a_bound() {
        let (end, ended) = oneshot::channel::<()>();
        let (works, at_work) = watch::channel(true);
        let mut finishing = tokio::spawn(finish(ended, at_work.clone(), Duration::ZERO));
        assert!(timeout(Duration::from_millis(50), &mut finishing).await.is_err(), "it is worked on");
        works.send_replace(false);
        finishing.await.unwrap();
        // A connection that ends is not waited for.
        drop(end);
        let long = Duration::from_secs(3600);
        finish(async {}, at_work.clone(), long).await;
        // A request that came in part begins when nothing is worked on any more.
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
