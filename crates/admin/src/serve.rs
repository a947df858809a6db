//! Listening, and the thread that serves.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use offramp_net::Address;
use offramp_net::listen::{self, AcceptError, Acceptor};
use offramp_observe::{Log, panics};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::api::Control;
use crate::desk::{AT_ONCE, Desk, Store};
use crate::error::Error;
use crate::places::{OF_ONE, Owner, Places};
use crate::service::Service;
use crate::talk::{Closes, Interior, Link, Seldom, connection};
use crate::tls::Identity;

/// How long what is being answered may take after the order to finish.
const FINISH: Duration = Duration::from_secs(1);
/// How many connections are accepted before those that are open have their turn: a queue may hold thousands.
const BURST: usize = 4;
/// How long accepting pauses when descriptors or memory have run out.
const PAUSE: Duration = Duration::from_secs(1);

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
    let places = Places::default();
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
            let _ = timeout(FINISH, places.emptied()).await;
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
    places: &Places,
    closes: &Closes,
) -> io::Result<Infallible> {
    let config = settings.identity.as_ref().map(Identity::config).transpose()?;
    let interior = Arc::new(Interior {
        service: Service::new(
            settings.store.map(Desk::new),
            settings.control.map(|control| control.until(closes.clone())),
            settings.token,
            settings.mount,
        ),
        tls: config.map(|config| TlsAcceptor::from(Arc::new(config))),
        failed: Seldom::new(settings.log.clone()),
    });
    let says = Says { crowded: Seldom::new(settings.log.clone()), full: Seldom::new(settings.log.clone()) };
    let mut is_logged = false;
    loop {
        let panicked = match panics::caught(admit(&acceptor, &interior, places, closes, &says)).await {
            Ok(broken) => return broken,
            Err(panicked) => panicked,
        };
        if !std::mem::replace(&mut is_logged, true) {
            panics::tell("admin interface", &panicked, PAUSE, &settings.log);
        }
        sleep(PAUSE).await;
    }
}

/// The log message about too many connections.
struct Says {
    crowded: Seldom,
    full: Seldom,
}

async fn admit(
    acceptor: &Acceptor,
    interior: &Arc<Interior>,
    places: &Places,
    closes: &Closes,
    says: &Says,
) -> io::Result<Infallible> {
    let mut turn = 0;
    loop {
        // Accepting alone never waits as long as somebody is in the queue.
        turn = (turn + 1) % BURST;
        if turn == 0 {
            yield_now().await;
        }
        // The bound on connections is one on descriptors, too.
        places.left().await;
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
        let Ok((link, owner)) = Link::of(fd, peer) else { continue };
        let outcome = places.take(owner);
        if let Some((whose, count)) = outcome.short {
            let refused = outcome.place.is_none().then_some(owner);
            let seldom = if refused.is_some() { &says.full } else { &says.crowded };
            seldom.tell(|log| crowd(log, whose, count, refused));
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

/// Says whose connections are too many, and who is refused for it.
fn crowd(log: &Log, whose: Owner, count: usize, refused: Option<Owner>) {
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
