//! From a configuration to the running process, and the event loop of the control plane.

mod begin;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use offramp_config::{Config, Environment};
use offramp_net::{Address, listen};
use offramp_observe::Log;
use offramp_observe::prometheus::Build;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::certificates::watcher::Watcher;
use crate::config_watch::ConfigWatch;
use crate::drain::Exit;
use crate::error::Error;
use crate::event_store::OpenStore;
use crate::history::{History, Requester};
use crate::inherited::{Inherited, Purpose};
use crate::outputs::Terminals;
use crate::probes::Probes;
use crate::reload::Changes;
use crate::running::Running;
use crate::signals::{Ask, Signals};
use crate::upgrade::{Carried, Heir, Predecessor, Program};

/// What a server is started with.
pub struct Start {
    /// The configuration, with what its absent keys imply filled in.
    pub config: Config,
    /// Where a reload finds the next one.
    pub origin: Origin,
    /// What absent keys mean in the next one; the same as for `config`.
    pub environment: Environment,
    /// What the program says about itself, open as `config` has it; see [`crate::outputs::log`].
    pub log: Log,
    /// Whether journald reads the standard streams (`JOURNAL_STREAM` is set).
    pub journal: bool,
    /// Which standard streams a person reads.
    pub terminals: Terminals,
    /// Called with the names and addresses of the listeners once sockets are bound and keys are read: clients that
    /// connect from then on are served. What takes time comes afterwards.
    pub bound: Option<Bound>,
    /// What runs, for the metrics.
    pub build: Build,
    /// The value of `NOTIFY_SOCKET`, if systemd started the process.
    pub notify_socket: Option<OsString>,
    /// What opens the log store of the configuration; without, a configuration that has one is refused.
    pub open_store: Option<OpenStore>,
    /// What an upgrade starts; without, it is refused.
    pub program: Option<Program>,
    /// What the process hands over whose place this one takes.
    pub heir: Option<Heir>,
    /// Sockets that the service manager has opened, with their names.
    pub activated: Vec<(String, OwnedFd)>,
    /// How often systemd wants a sign of life at least (`WATCHDOG_USEC`).
    pub watchdog: Option<Duration>,
    /// Whether to obey SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2. Without, only a [`Handle`] commands.
    pub signals: bool,
}

/// What is called when the sockets are bound.
pub type Bound = Box<dyn FnOnce(&[(String, Address)])>;

/// Where configurations come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From this file; a reload reads it again.
    File(PathBuf),
    /// From a command line: a reload reads certificates again, and nothing else.
    CommandLine,
}

/// A listening socket that another process has opened.
#[derive(Debug)]
pub struct Socket {
    /// The socket.
    pub fd: OwnedFd,
    /// Whether the service manager keeps it too: the file of a Unix socket is not ours then.
    pub foreign: bool,
}

/// A running proxy.
pub struct Server {
    runtime: Runtime,
    running: Running,
    desk: Desk,
    requests: UnboundedSender<Request>,
    inherited: Inherited,
    /// The process whose place this one takes.
    before: Option<Predecessor>,
}

impl Server {
    /// Starts everything. When it returns, connections are accepted.
    ///
    /// The order is: descriptor limit, sockets, keys, [`Start::bound`], AEADs, user, logs, workers. It blocks
    /// until host names are looked up, at most five seconds.
    ///
    /// # Errors
    /// Everything that stands in the way of sockets and keys at once; else the first that does.
    pub fn start(start: Start) -> Result<Self, Error> {
        begin::begin(start)
    }

    /// The addresses that are listened on, ports that the kernel picked included, with the names of
    /// their listeners.
    #[must_use]
    pub fn addresses(&self) -> Vec<(String, Address)> {
        self.running.listening.addresses()
    }

    /// Where the metrics are, if anywhere.
    #[must_use]
    pub fn metrics_address(&self) -> Option<&Address> {
        self.running.metrics.as_ref().map(crate::metrics::Endpoint::address)
    }

    /// The socket at this address that the process before hands over, or that the service manager has opened there or
    /// under this name: for something to be [carried](Self::carry).
    #[must_use]
    pub fn inherited_socket(&mut self, name: &str, address: &Address) -> Option<Socket> {
        let set = self.inherited.for_address(Purpose::Carried, name, address)?;
        let foreign = set.label.foreign;
        Some(Socket { fd: listen::adopt(set.fds, 1).ok()?.pop()?, foreign })
    }

    /// Keeps something that listens on a socket of its own until the server ends, or another process takes the socket.
    pub fn carry(&mut self, carried: Box<dyn Carried>) {
        self.running.carried.push(carried);
    }

    /// A handle that controls this server from any thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { requests: self.requests.clone() }
    }

    /// The latest changes of the configuration, readable from any thread.
    #[must_use]
    pub fn history(&self) -> History {
        self.running.history.clone()
    }

    /// Tells the service manager that everything is ready, and the process before if there is one; runs until a request
    /// to stop or until another process has taken over, drains, and returns how that went. Uses the calling thread. Open
    /// everything else that must exist from the start before this call.
    #[must_use]
    pub fn run(self) -> Exit {
        // Once this sender is dropped, the desk notices when the last handle is gone.
        let Self { runtime, running, mut desk, requests, inherited, before } = self;
        drop(requests);
        if let Some(before) = before {
            // What nobody took is closed here: the process before serves who waits there.
            let left: Vec<usize> = inherited.left().collect();
            drop(inherited);
            before.take_over(&left);
            running.acme.begin();
        } else {
            for (name, address) in inherited.rest() {
                let fields = [("name", name.into()), ("address", address.into())];
                running.log.warn("a socket of the service manager belongs to no listener", &fields);
            }
            drop(inherited);
        }
        running.notifier.send("READY=1\nSTATUS=serving");
        let exit = runtime.block_on(async {
            let running = keep(running, &mut desk).await;
            running.drain(&mut desk).await
        });
        // A look-up that hangs must not hold up the end.
        runtime.shutdown_background();
        exit
    }
}

/// Serves requests and does periodic work until a request to stop comes.
async fn keep(mut running: Running, desk: &mut Desk) -> Running {
    let mut probes = Probes::default();
    let mut watcher = Watcher::default();
    let mut config_watch = ConfigWatch::default();
    let log = running.log.clone();
    loop {
        probes.follow(&running.crew.shared.current.load(), &running.log);
        watcher.follow(running.ground.generation, &running.ground.sources, &log);
        config_watch.follow(&running.config, &running.source.origin, &log);
        let request = tokio::select! {
            request = desk.next() => request,
            () = sleep_until(running.calendar.next()) => {
                if desk.unless_stopped(beside(running.keep_up(), &mut probes)).await.is_none() {
                    return running;
                }
                continue;
            }
            never = probes.run() => match never {},
            () = watcher.due(&log) => {
                let Some(outcome) = desk.unless_stopped(beside(running.change_certificates(), &mut probes)).await else {
                    return running;
                };
                watcher.looked(&outcome, running.ground.sources.again(), Instant::now());
                continue;
            }
            () = config_watch.due() => {
                let source = &running.source;
                if !config_watch.has_changed(&running.config, &source.origin, &source.environment, &log) {
                    continue;
                }
                Request { ask: Ask::Reload, told: None, by: Requester::Watch }
            }
            () = running.acme.obtained() => {
                // Taken before the look, which finds them all.
                let fresh = running.acme.fresh();
                let work = beside(running.change_certificates(), &mut probes);
                if desk.unless_stopped(work).await.is_none() {
                    return running;
                }
                drop(fresh);
                continue;
            }
            () = running.crew.lost() => {
                // Its sockets are closed. The other workers still serve, but with fewer cores than configured,
                // so the supervisor of the process should see it and restart.
                running.log.error("a worker ended by a fault of Offramp's own; stopping", &[]);
                return running;
            }
        };
        match request.ask {
            Ask::Stop => return running,
            Ask::Reopen => running.reopen(),
            Ask::Upgrade => {
                running.notifier.reloading();
                let begun = Instant::now();
                let work = beside(running.start_successor(), &mut probes);
                let Some(outcome) = desk.unless_stopped(work).await else {
                    return running;
                };
                if running.upgrade(outcome, begun).await {
                    return running;
                }
            }
            Ask::Reload => {
                config_watch.reloading(&running.source.origin);
                let Some(proposal) = desk.unless_stopped(beside(running.read_again(), &mut probes)).await
                else {
                    return running;
                };
                let outcome = running.reload(proposal, request.by).await;
                if let Some(told) = request.told {
                    // The requester may be gone.
                    let _ = told.send(outcome);
                }
            }
        }
    }
}

/// Does `work`, and goes on looking after the servers meanwhile.
async fn beside<T>(work: impl Future<Output = T>, probes: &mut Probes) -> T {
    tokio::select! {
        biased;
        outcome = work => outcome,
        never = probes.run() => match never {},
    }
}

/// Commands a [`Server`] from any thread. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    requests: UnboundedSender<Request>,
}

impl Handle {
    /// Has the configuration and the certificates read anew, as SIGHUP does. The receiver gets what
    /// changed, or why nothing did; it gets nothing from a server that ends.
    pub fn reload(&self) -> oneshot::Receiver<Result<Changes, Error>> {
        let (told, outcome) = oneshot::channel();
        self.ask(Request { ask: Ask::Reload, told: Some(told), by: Requester::Program });
        outcome
    }

    /// Reopens log files, as SIGUSR1 does.
    pub fn reopen(&self) {
        self.ask(Request { ask: Ask::Reopen, told: None, by: Requester::Program });
    }

    /// Has the program as it is on disk take over, as SIGUSR2 does. The log has the outcome.
    pub fn upgrade(&self) {
        self.ask(Request { ask: Ask::Upgrade, told: None, by: Requester::Program });
    }

    /// Has the server drain and end, as SIGTERM does; during the drain, end at once.
    pub fn stop(&self) {
        self.ask(Request { ask: Ask::Stop, told: None, by: Requester::Program });
    }

    fn ask(&self, request: Request) {
        // A server that has ended hears nothing, and whoever waits for an answer sees its end go.
        let _ = self.requests.send(request);
    }
}

/// A request, who made it, and who waits for its outcome.
pub(crate) struct Request {
    pub(crate) ask: Ask,
    told: Option<oneshot::Sender<Result<Changes, Error>>>,
    by: Requester,
}

/// As a signal makes it.
impl From<Ask> for Request {
    fn from(ask: Ask) -> Self {
        Self { ask, told: None, by: Requester::Signal }
    }
}

/// Where requests come in, from signals and handles.
pub(crate) struct Desk {
    signals: Option<Signals>,
    requests: UnboundedReceiver<Request>,
    /// What came while something else was waited for.
    deferred: VecDeque<Request>,
    /// Whether all handles are gone and this was reported.
    deserted: bool,
}

impl Desk {
    fn new(signals: Option<Signals>) -> (Self, UnboundedSender<Request>) {
        let (sender, requests) = unbounded_channel();
        (Self { signals, requests, deferred: VecDeque::new(), deserted: false }, sender)
    }

    /// The next request. May be dropped and called again without losing any. That nobody is left who
    /// could ask, neither signals nor handles, is an order to stop, once.
    pub(crate) async fn next(&mut self) -> Request {
        match self.deferred.pop_front() {
            Some(request) => request,
            None => self.receive().await,
        }
    }

    /// Waits for `work`, which may be dropped, or for an order to stop: then there is no outcome. Other requests wait.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let request = tokio::select! {
                biased;
                outcome = &mut work => return Some(outcome),
                request = self.receive() => request,
            };
            match request.ask {
                Ask::Stop => return None,
                // One that will be obeyed stands for all that nobody waits for.
                Ask::Reload | Ask::Reopen | Ask::Upgrade
                    if request.told.is_none()
                        && self.deferred.iter().any(|other| other.ask == request.ask) => {}
                Ask::Reload | Ask::Reopen | Ask::Upgrade => self.deferred.push_back(request),
            }
        }
    }

    async fn receive(&mut self) -> Request {
        match &mut self.signals {
            None if self.deserted => std::future::pending().await,
            None => self.requests.recv().await.unwrap_or_else(|| {
                self.deserted = true;
                Ask::Stop.into()
            }),
            Some(signals) => tokio::select! {
                biased;
                ask = signals.next() => ask.into(),
                Some(request) = self.requests.recv() => request,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn an_order_to_stop_waits_for_no_disk() {
        let (mut desk, sender) = Desk::new(None);
        let handle = Handle { requests: sender };
        assert_eq!(desk.unless_stopped(async { 7 }).await, Some(7));
        handle.reopen();
        handle.reopen();
        let _first = handle.reload();
        let _second = handle.reload();
        handle.stop();
        // As a file system that does not answer.
        assert_eq!(desk.unless_stopped(pending::<()>()).await, None);
        // What else was asked for is not forgotten where the work comes to its end.
        for expected in [Ask::Reopen, Ask::Reload, Ask::Reload] {
            assert_eq!(desk.next().await.ask, expected);
        }
        assert!(desk.deferred.is_empty());
    }
}
