//! Listening, and the lives of connections: few at once, each bounded in time and in what it may send.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use offramp_net::listen::{self, AcceptError, Acceptor};
use offramp_net::{Address, Peer};
use offramp_observe::Log;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::api::Control;
use crate::caller::Caller;
use crate::desk::{AT_ONCE, Desk, Store};
use crate::error::Error;
use crate::service::Service;
use crate::tls::Identity;

/// Connections at once: a few Grafana servers and browsers, which keep several each.
const CONNECTIONS: u32 = 64;
/// How long the head of a request may take, and how long a connection may wait for the next.
const HEAD: Duration = Duration::from_secs(60);
/// How long a connection is kept; the request that is under way may finish.
const LIFE: Duration = Duration::from_secs(600);
/// How long a request may take after that.
const LAST: Duration = Duration::from_secs(90);
/// How long what is being answered may take after the order to finish.
const FINISH: Duration = Duration::from_secs(1);
/// How long accepting pauses when descriptors or memory have run out.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the log says that a client could not be served because of its TLS.
const TOLD: Duration = Duration::from_secs(60);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;

/// What is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The log store; `None`: Grafana is told that there is none.
    pub store: Option<Store>,
    /// The running process; `None`: there is none, only a store.
    pub control: Option<Control>,
    /// What clients of the API must show that come over TCP; `None`: it is not for them.
    pub token: Option<Arc<str>>,
    /// What clients are shown that come over TCP, all of which speak TLS then; `None`: plain HTTP.
    pub identity: Option<Arc<Identity>>,
    /// Where in the tree of paths.
    pub mount: Mount,
    /// Where the program says what happens.
    pub log: Log,
}

/// The order to accept nothing more, and to answer what was asked.
#[derive(Debug)]
struct Finish;

/// Turns true when connections have to end.
type Closes = watch::Receiver<bool>;

/// Where the data source for Grafana is in the tree of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// Below `/grafana`, with room for others beside it.
    Grafana,
    /// At `/`, alone.
    Root,
}

/// The admin interface as it runs, on a thread of its own. It ends when dropped, open connections included.
#[derive(Debug)]
pub struct Admin {
    bound: Address,
    /// For a process that takes the place of this one.
    socket: OwnedFd,
    /// Whether that has it, or the service manager.
    left: bool,
    /// Dropped to end the thread at once; with a word in it, what is being answered may finish.
    stop: Option<oneshot::Sender<Finish>>,
    /// Closed by the thread when it ends.
    ended: oneshot::Receiver<Infallible>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens on `address` and serves. A Unix socket is for its owner and group alone (mode 0660). An address
    /// that others can reach is warned about, not refused.
    ///
    /// # Errors
    /// The address cannot be listened on, or there is no thread.
    pub fn start(address: &Address, settings: Settings) -> Result<Self, Error> {
        let refused = |error| Error::Listen(address.clone(), error);
        let mut fds = listen::open(address, 1).map_err(refused)?;
        let Some(fd) = fds.pop() else { return Err(refused(io::ErrorKind::NotFound.into())) };
        Self::serve(fd, address, settings, true)
    }

    /// The same on a socket that listens on `address` already. If it is `foreign`, its file is not removed.
    ///
    /// # Errors
    /// The socket cannot be used, or there is no thread.
    pub fn start_on(
        fd: OwnedFd,
        foreign: bool,
        address: &Address,
        settings: Settings,
    ) -> Result<Self, Error> {
        let mut admin = Self::serve(fd, address, settings, false)?;
        admin.left = foreign;
        Ok(admin)
    }

    fn serve(fd: OwnedFd, address: &Address, settings: Settings, fresh: bool) -> Result<Self, Error> {
        let refused = |error| Error::Listen(address.clone(), error);
        let socket = fd.try_clone().map_err(refused)?;
        let bound = listen::bound_address(&fd).map_or(address.clone(), Address::Tcp);
        if settings.identity.is_none() {
            warn(&bound, &settings.log);
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(AT_ONCE)
            .thread_keep_alive(Duration::from_secs(30))
            .thread_name("offramp-asks")
            .build()
            .map_err(Error::Thread)?;
        let entered = runtime.enter();
        let acceptor = Acceptor::new(fd).map_err(refused)?;
        drop(entered);
        if let Address::Unix(path) = &bound
            && fresh
        {
            fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(refused)?;
            // Whoever was quicker than the permissions.
            while let Ok(Some(_)) = acceptor.try_accept() {}
        }
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let run = move || {
            run(runtime, acceptor, settings, stopped);
            drop::<oneshot::Sender<Infallible>>(end);
        };
        let thread = std::thread::Builder::new().name("offramp-admin".into()).spawn(run);
        let thread = Some(thread.map_err(Error::Thread)?);
        Ok(Self { bound, socket, left: false, stop: Some(stop), ended, thread })
    }

    /// The listening socket.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts nothing more, and leaves the socket to another process that has it, too. What is being answered may
    /// finish, for a second at most: that is over when the thread has ended.
    #[must_use]
    pub fn leave(mut self) -> Option<JoinHandle<()>> {
        self.left = true;
        self.finish()
    }

    /// The same, and takes the socket away.
    #[must_use]
    pub fn close(mut self) -> Option<JoinHandle<()>> {
        self.finish()
    }

    fn finish(&mut self) -> Option<JoinHandle<()>> {
        if let Some(stop) = self.stop.take() {
            // One that has ended has nothing to finish.
            let _ = stop.send(Finish);
        }
        self.thread.take()
    }

    /// Where it listens; the kernel may have picked the port.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.bound
    }

    /// Waits until it has ended though nobody dropped it: the socket broke, which the log tells. Needs no
    /// particular runtime.
    pub async fn ended(&mut self) {
        // Nothing is ever sent: it ends with an error.
        let _ = (&mut self.ended).await;
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.bound
            && !self.left
        {
            // Whatever else may be in its place by now is not ours.
            let _ = listen::unlink(path);
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread: serves until it is told to stop.
fn run(runtime: Runtime, acceptor: Acceptor, settings: Settings, stopped: oneshot::Receiver<Finish>) {
    let log = settings.log.clone();
    let (closing, closes) = watch::channel(false);
    let places = Arc::new(Semaphore::new(CONNECTIONS as usize));
    runtime.block_on(async {
        let finish = tokio::select! {
            order = stopped => order.is_ok(),
            Err(error) = accept(acceptor, settings, &places, &closes) => {
                log.error("the admin interface failed", &[("reason", (&error).into())]);
                false
            }
        };
        if finish {
            // They are there as long as `closes` is.
            let _ = closing.send(true);
            let _ = timeout(FINISH, places.acquire_many(CONNECTIONS)).await;
        }
    });
    // A question that is still being answered must not hold up the end.
    runtime.shutdown_background();
}

fn warn(bound: &Address, log: &Log) {
    if let Address::Tcp(tcp) = bound
        && !tcp.ip().to_canonical().is_loopback()
    {
        log.warn("other machines can connect to the admin interface", &[("address", bound.into())]);
    }
}

async fn accept(
    acceptor: Acceptor,
    settings: Settings,
    places: &Arc<Semaphore>,
    closes: &Closes,
) -> io::Result<Infallible> {
    let config = settings.identity.as_ref().map(Identity::config).transpose()?;
    let interior = Arc::new(Interior {
        service: Service::new(
            settings.store.map(Desk::new),
            settings.control,
            settings.token,
            settings.mount,
        ),
        tls: config.map(|config| TlsAcceptor::from(Arc::new(config))),
        failed: Failed { log: settings.log, next: Mutex::new(Instant::now()) },
    });
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(places).acquire_owned().await else {
            return Err(io::ErrorKind::Other.into());
        };
        let (fd, peer) = match acceptor.accept().await {
            Ok(accepted) => accepted,
            Err(AcceptError::Gone) => {
                yield_now().await;
                continue;
            }
            Err(AcceptError::Descriptors | AcceptError::Memory | AcceptError::Denied(_)) => {
                sleep(PAUSE).await;
                continue;
            }
            Err(AcceptError::Broken(error)) => return Err(error),
        };
        let (interior, closes) = (Arc::clone(&interior), closes.clone());
        tokio::spawn(async move {
            // A client that goes away or sends nonsense needs no event.
            let _ = connection(fd, peer, &interior, closes).await;
            drop(place);
        });
    }
}

/// What all connections share.
struct Interior {
    service: Service,
    /// What clients over TCP must speak, if it is TLS.
    tls: Option<TlsAcceptor>,
    failed: Failed,
}

/// Says that handshakes fail, once a minute.
struct Failed {
    log: Log,
    next: Mutex<Instant>,
}

impl Failed {
    fn tell(&self, client: SocketAddr, reason: &str) {
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= *next {
            *next = now + TOLD;
            let client = client.to_string();
            let fields = [("client", (&client).into()), ("reason", reason.into())];
            self.log.warn("no TLS with a client of the admin interface", &fields);
        }
    }
}

async fn connection(fd: OwnedFd, peer: Peer, interior: &Arc<Interior>, closes: Closes) -> io::Result<()> {
    match peer {
        Peer::Tcp(address) => {
            let stream = tokio::net::TcpStream::from_std(std::net::TcpStream::from(fd))?;
            let Some(tls) = &interior.tls else {
                talk(stream, Caller::Network(address), interior, closes).await;
                return Ok(());
            };
            match timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => talk(stream, Caller::Encrypted(address), interior, closes).await,
                Ok(Err(error)) => interior.failed.tell(address, &error.to_string()),
                Err(_) => interior.failed.tell(address, "the handshake took too long"),
            }
        }
        Peer::Unix => {
            let stream = tokio::net::UnixStream::from_std(std::os::unix::net::UnixStream::from(fd))?;
            let caller = Caller::of(&stream);
            talk(stream, caller, interior, closes).await;
        }
    }
    Ok(())
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    caller: Caller,
    interior: &Arc<Interior>,
    mut closes: Closes,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let interior = Arc::clone(interior);
        async move { Ok::<_, Infallible>(interior.service.answer(request, caller).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES).max_headers(64);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(LIFE) => {}
        _ = closes.wait_for(|closes| *closes) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST, connection).await;
}
