//! The listener, and the thread that serves its connections.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use offramp_config::model::HostPattern;
use offramp_net::Address;
use offramp_net::listen::{self, AcceptError, Acceptor};
use offramp_observe::{Log, panics};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::api::Control;
use crate::entry::{Credentials, PageGate, PageUsers};
use crate::error::Error;
use crate::grafana::Mount;
use crate::owner::ConnectionOwner;
use crate::places::{ConnectionSlots, OF_ONE};
use crate::query_pool::{AT_ONCE, QueryPool, Store};
use crate::service::AdminService;
use crate::talk::{ClientSocket, Closes, Interior, RateLimitedLog, connection};
use crate::tls::AdminCertificate;

/// The time for answers in progress after an orderly stop.
const FINISH: Duration = Duration::from_secs(1);
/// Connections accepted before open ones get their turn: the backlog may hold thousands.
const BURST: usize = 4;
/// The pause of accepting while descriptors or memory are exhausted.
const PAUSE: Duration = Duration::from_secs(1);

/// The content and protection of the admin interface.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The log store; without one Grafana gets an error.
    pub store: Option<Store>,
    /// The running process; `None` for a store alone.
    pub control: Option<Control>,
    /// The token for API clients over TCP; without one TCP gives no access to it.
    pub token: Option<Arc<str>>,
    /// The users that may log in on the page over TCP.
    pub users: Option<Arc<PageUsers>>,
    /// Names by which browsers reach the page, beside those of the certificate.
    pub hosts: Arc<[HostPattern]>,
    /// The certificate for TCP, where all clients must use TLS then; `None` for plain HTTP.
    pub identity: Option<Arc<AdminCertificate>>,
    /// The path of the data source.
    pub mount: Mount,
    /// The log of the program.
    pub log: Log,
}

/// The order to accept no more connections, and to answer pending requests.
#[derive(Debug)]
struct Finish;

/// The running admin interface, on a thread of its own. Dropping it ends the thread and all connections.
#[derive(Debug)]
pub struct AdminServer {
    bound: Address,
    /// The socket, for hand-over to a successor of this process.
    socket: OwnedFd,
    /// Set if a successor or the service manager owns the socket.
    left: bool,
    /// Dropped to end the thread at once; a message lets answers in progress finish.
    stop: Option<oneshot::Sender<Finish>>,
    /// Closed by the thread when it ends.
    ended: oneshot::Receiver<Infallible>,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Listens on `address` and serves. A Unix socket is accessible to its owner and group only (mode 0660).
    /// An address that others can reach causes a warning, not an error.
    ///
    /// # Errors
    /// The address cannot be listened on, or the thread cannot be started.
    pub fn start(address: &Address, settings: Settings) -> Result<Self, Error> {
        let refused = |error| Error::Listen(address.clone(), error);
        let mut fds = listen::open(address, 1).map_err(refused)?;
        let Some(fd) = fds.pop() else { return Err(refused(io::ErrorKind::NotFound.into())) };
        Self::serve(fd, address, settings, true)
    }

    /// Like [`start`](Self::start), on a socket that listens on `address` already. If it is `foreign`, its
    /// file is not removed.
    ///
    /// # Errors
    /// The socket cannot be used, or the thread cannot be started.
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
            // Drops connections that arrived before the permissions were set.
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

    /// The listening socket, for hand-over.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Accepts no more connections, and leaves the socket to another process that has it. Answers in progress
    /// may take another second: the returned thread ends after that.
    #[must_use]
    pub fn leave(mut self) -> Option<JoinHandle<()>> {
        self.left = true;
        self.finish()
    }

    /// Like [`leave`](Self::leave), and removes the socket.
    #[must_use]
    pub fn close(mut self) -> Option<JoinHandle<()>> {
        self.finish()
    }

    fn finish(&mut self) -> Option<JoinHandle<()>> {
        if let Some(stop) = self.stop.take() {
            // An ended thread has nothing to finish.
            let _ = stop.send(Finish);
        }
        self.thread.take()
    }

    /// The address listened on; the kernel may have chosen the port.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.bound
    }

    /// Waits until the interface ends by itself: the socket broke, which is logged. Independent of the
    /// runtime.
    pub async fn ended(&mut self) {
        // Nothing is ever sent: it ends with an error.
        let _ = (&mut self.ended).await;
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.bound
            && !self.left
        {
            // Another file at this path is not ours.
            let _ = listen::unlink(path);
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The body of the thread: serves until ordered to stop.
fn run(runtime: Runtime, acceptor: Acceptor, settings: Settings, stopped: oneshot::Receiver<Finish>) {
    let log = settings.log.clone();
    let (closing, closes) = watch::channel(false);
    let places = ConnectionSlots::default();
    runtime.block_on(async {
        let finish = tokio::select! {
            order = stopped => order.is_ok(),
            Err(error) = accept(acceptor, settings, &places, &closes) => {
                log.error("the admin interface failed", &[("reason", (&error).into())]);
                false
            }
        };
        if finish {
            // The receivers exist as long as `closes` does.
            let _ = closing.send(true);
            let _ = timeout(FINISH, places.emptied()).await;
        }
    });
    // A query in progress must not delay the end.
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
    places: &ConnectionSlots,
    closes: &Closes,
) -> io::Result<Infallible> {
    let config = settings.identity.as_ref().map(AdminCertificate::config).transpose()?;
    let interior = Arc::new(Interior {
        service: AdminService::new(
            settings.store.map(QueryPool::new),
            settings.control.map(|control| control.until(closes.clone())),
            Credentials::new(settings.token, settings.users),
            PageGate::new("tcp", settings.identity.clone(), settings.hosts),
            settings.mount,
        ),
        tls: config.map(|config| TlsAcceptor::from(Arc::new(config))),
        failed: RateLimitedLog::new(settings.log.clone()),
    });
    let crowd_logs = CrowdLogs {
        crowded: RateLimitedLog::new(settings.log.clone()),
        full: RateLimitedLog::new(settings.log.clone()),
    };
    let mut is_logged = false;
    loop {
        let panicked = match panics::caught(admit(&acceptor, &interior, places, closes, &crowd_logs)).await {
            Ok(broken) => return broken,
            Err(panicked) => panicked,
        };
        if !std::mem::replace(&mut is_logged, true) {
            panics::log_restart("admin interface", &panicked, PAUSE, &settings.log);
        }
        sleep(PAUSE).await;
    }
}

/// Rate limiters of messages about too many connections.
struct CrowdLogs {
    crowded: RateLimitedLog,
    full: RateLimitedLog,
}

async fn admit(
    acceptor: &Acceptor,
    interior: &Arc<Interior>,
    places: &ConnectionSlots,
    closes: &Closes,
    crowd_logs: &CrowdLogs,
) -> io::Result<Infallible> {
    let mut turn = 0;
    loop {
        // Accepting never waits while the backlog is full, so it yields explicitly.
        turn = (turn + 1) % BURST;
        if turn == 0 {
            yield_now().await;
        }
        // The limit of connections also limits descriptors.
        let permit = places.permit().await;
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
        let Ok((link, owner)) = ClientSocket::of(fd, peer) else { continue };
        let outcome = places.take(permit, owner);
        if let Some((whose, count)) = outcome.short {
            let refused = outcome.place.is_none().then_some(owner);
            let limited = if refused.is_some() { &crowd_logs.full } else { &crowd_logs.crowded };
            limited.write(|log| log_crowd(log, whose, count, refused));
        }
        let Some(place) = outcome.place else { continue };
        let (interior, closes, place) = (Arc::clone(interior), closes.clone(), Arc::new(place));
        tokio::spawn(async move {
            tokio::select! {
                () = connection(link, &place, &interior, closes) => {}
                () = place.taken_away() => {}
            }
        });
    }
}

/// Logs the owner of too many connections, and the refused client.
fn log_crowd(log: &Log, whose: ConnectionOwner, count: usize, refused: Option<ConnectionOwner>) {
    let whose = whose.to_string();
    let why = if count >= OF_ONE {
        "so many are open as one client may have"
    } else {
        "as many are open as may be, and these are the most of one client"
    };
    let mut fields = vec![("client", (&whose).into()), ("open", count.into()), ("reason", why.into())];
    let refused = refused.map(|owner| owner.to_string());
    let message = if let Some(owner) = &refused {
        fields.push(("refused", owner.into()));
        "the admin interface refuses a connection"
    } else {
        "the admin interface closes a connection for a new one"
    };
    log.warn(message, &fields);
}

#[cfg(test)]
mod tests;
