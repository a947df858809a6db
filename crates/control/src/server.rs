//! From a configuration to the running process, and the event loop of the control plane.

mod begin;
mod given;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use offramp_config::{Config, Environment};
use offramp_net::{Address, listen};
use offramp_observe::prometheus::Build;
use offramp_observe::{Log, Panics};
use offramp_proxy::live::{Closing, Filter};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::certificates::watcher::Watcher;
use crate::change::{self, Asked, Change, NotChanged, Report, Terms};
use crate::config_watch::ConfigWatch;
use crate::connections::Closer;
use crate::drain::Exit;
use crate::error::Error;
use crate::event_store::OpenStore;
use crate::helper::Helper;
use crate::history::{History, Requester};
use crate::inherited::{Inherited, Purpose};
use crate::outputs::Terminals;
use crate::probes::Probes;
use crate::reload::Changes;
use crate::running::Running;
use crate::sandbox::Reach;
use crate::signals::{Ask, Signals};
use crate::stopping::{Cause, Stopping, Stops};
use crate::upgrade::{Carried, Heir, Predecessor, Program, Successor, Upgraded};
use crate::view::View;

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
    /// The panics of the process, for the metrics.
    pub panics: Panics,
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
    /// What starts programs for this process, which then forbids itself what it does not need, as the configuration
    /// has it. Without, nothing is forbidden: for servers in processes that have threads already.
    pub helper: Option<Helper>,
    /// What the process uses beside what its configuration names: what its log store needs.
    pub also: Reach,
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

impl Origin {
    /// Where relative paths of a text start: where they start in the file of the configuration.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::CommandLine => Path::new("/"),
        }
    }
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
    handle: Handle,
    inherited: Inherited,
    /// The process whose place this one takes.
    before: Option<Predecessor>,
}

impl Server {
    /// Starts everything. When it returns, connections are accepted.
    ///
    /// The order is: descriptor limit, sockets, keys, [`Start::bound`], AEADs, user, sandbox, logs, workers. It blocks
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
        self.handle.clone()
    }

    /// What there is to see of it, from any thread.
    #[must_use]
    pub fn view(&self) -> View {
        self.running.view.clone()
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
        let Self { runtime, running, mut desk, handle, inherited, before } = self;
        drop(handle);
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
            let (running, cause) = keep(running, &mut desk).await;
            running.drain(&mut desk, &cause).await
        });
        // A look-up that hangs must not hold up the end.
        runtime.shutdown_background();
        exit
    }
}

/// Serves requests and does periodic work until a request to stop comes, or something else has it drain.
async fn keep(mut running: Running, desk: &mut Desk) -> (Running, Cause) {
    let mut probes = Probes::default();
    let mut watcher = Watcher::default();
    let mut config_watch = ConfigWatch::default();
    let log = running.log.clone();
    loop {
        probes.follow(&running.crew.shared.current.load(), &running.log);
        watcher.follow(running.ground.generation, &running.ground.sources, &log);
        config_watch.follow(&running.config, &running.source.origin, &log);
        let unconfirmed = running.confirmation.as_ref().map(|waiting| waiting.due);
        let request = tokio::select! {
            request = desk.next() => request,
            () = sleep_until(running.calendar.next()) => {
                if let Err(stop) = desk.unless_stopped(beside(running.keep_up(), &mut probes)).await {
                    return (running, stop);
                }
                continue;
            }
            never = probes.run() => match never {},
            () = watcher.due(&log) => {
                let work = beside(running.change_certificates(), &mut probes);
                let outcome = match desk.unless_stopped(work).await {
                    Ok(outcome) => outcome,
                    Err(stop) => return (running, stop),
                };
                watcher.looked(&outcome, running.ground.sources.again(), Instant::now());
                continue;
            }
            () = config_watch.due() => {
                let source = &running.source;
                let known = running.unwritten.file();
                if !config_watch.has_changed(known, &source.origin, &source.environment, &log) {
                    continue;
                }
                Request { by: Requester::Watch, ..Ask::Reload.into() }
            }
            () = change::unconfirmed(unconfirmed) => {
                running.take_back().await;
                continue;
            }
            () = running.acme.obtained() => {
                // Taken before the look, which finds them all.
                let fresh = running.acme.fresh();
                let work = beside(running.change_certificates(), &mut probes);
                if let Err(stop) = desk.unless_stopped(work).await {
                    return (running, stop);
                }
                drop(fresh);
                continue;
            }
            () = running.crew.lost() => {
                // Its sockets are closed. The other workers still serve, but with fewer cores than configured,
                // so the supervisor of the process should see it and restart.
                running.log.error("a worker ended by a fault of Offramp's own; stopping", &[]);
                return (running, Cause::Fault);
            }
        };
        match request.ask {
            Ask::Stop => return (running, Cause::Order(request.by)),
            Ask::Reopen => running.reopen(),
            Ask::Upgrade => {
                if let Some(cause) = hand_over(&mut running, desk, &mut probes, request).await {
                    return (running, cause);
                }
            }
            Ask::Change => {
                let Some(asked) = request.asked else { continue };
                // The files are read: what is found there is in force, or is refused, as the requester is told.
                if matches!(asked.change, Change::Reload) {
                    config_watch.reloading(&running.source.origin);
                }
                let draft = match desk.unless_stopped(beside(running.draft(&asked), &mut probes)).await {
                    Ok(draft) => draft,
                    Err(stop) => return (running, stop),
                };
                if running.make(*asked, draft, request.by).await {
                    // What it wrote is in force, and no reason to reload with `watch`.
                    config_watch.reloading(&running.source.origin);
                }
            }
            Ask::Reload => {
                config_watch.reloading(&running.source.origin);
                let proposal = match desk.unless_stopped(beside(running.read_again(), &mut probes)).await {
                    Ok(proposal) => proposal,
                    Err(stop) => return (running, stop),
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

/// Has another process take over. Why the drain follows, if it does: because one has, or by an order to stop.
async fn hand_over(
    running: &mut Running,
    desk: &mut Desk,
    probes: &mut Probes,
    request: Request,
) -> Option<Cause> {
    if let Requester::Admin(client) = &request.by {
        running.log.info("an upgrade is asked for", &[("by", (&**client).into())]);
    }
    running.notifier.reloading();
    running.upgrade_begins(&request.by);
    let begun = Instant::now();
    let outcome = match desk.unless_stopped(beside(running.start_successor(request.force), probes)).await {
        Ok(outcome) => outcome,
        Err(stop) => return Some(stop),
    };
    running.upgrade_ends(&outcome, begun);
    // Before the admin interface goes, which has to answer.
    if let Some(told) = request.upgraded {
        let upgraded = |next: &Successor| Upgraded { process: next.id(), took: begun.elapsed() };
        // Whoever asked may be gone.
        let _ = told.send(outcome.as_ref().map(upgraded).map_err(Clone::clone));
    }
    if outcome.is_ok() {
        desk.dismiss();
    }
    running.upgrade(outcome, begun).await.then_some(Cause::Upgrade)
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
    requests: Sender<Request>,
    /// Orders to stop, which find a place however many other requests wait.
    stops: Stops,
    closer: Closer,
}

/// Requests that wait, at most: whoever makes more is told so.
const WAITING: usize = 32;

impl Handle {
    /// Has the configuration and the certificates read anew, as SIGHUP does. The receiver gets what
    /// changed, or why nothing did; it gets nothing from a server that ends, or that has too many requests.
    pub fn reload(&self) -> oneshot::Receiver<Result<Changes, Error>> {
        let (told, outcome) = oneshot::channel();
        // A server that has ended hears nothing, and whoever waits for an answer sees its end go.
        let _ = self.requests.try_send(Request {
            told: Some(told),
            by: Requester::Program,
            ..Ask::Reload.into()
        });
        outcome
    }

    /// Makes a change, on these terms and on behalf of `by`, and waits for its outcome.
    ///
    /// # Errors
    /// Nothing has changed.
    pub async fn change(&self, change: Change, terms: Terms, by: Requester) -> Result<Report, NotChanged> {
        self.ask(change, terms, by).await
    }

    /// Confirms the latest change, which would be taken back otherwise.
    ///
    /// # Errors
    /// There is none, or it cannot be written to the file.
    pub async fn confirm(&self, by: Requester) -> Result<Report, NotChanged> {
        self.ask(Change::Confirm { write: true }, Terms::default(), by).await
    }

    /// Has the program as it is on disk take over, as SIGUSR2 does, and waits until it has. With `force` it may lose
    /// changes that were not written to the file.
    ///
    /// # Errors
    /// Nothing has changed.
    pub async fn replace(&self, by: Requester, force: bool) -> Result<Upgraded, NotChanged> {
        let (told, outcome) = oneshot::channel();
        self.place(Request { upgraded: Some(told), force, by, ..Ask::Upgrade.into() })?;
        match outcome.await {
            Ok(outcome) => outcome.map_err(NotChanged::NotUpgraded),
            Err(_) => Err(NotChanged::Ended),
        }
    }

    async fn ask(&self, change: Change, terms: Terms, by: Requester) -> Result<Report, NotChanged> {
        let (told, outcome) = oneshot::channel();
        let at = Instant::now();
        let asked = Some(Box::new(Asked { at, change, terms, told }));
        self.place(Request { asked, by, ..Ask::Change.into() })?;
        outcome.await.unwrap_or(Err(NotChanged::Ended))
    }

    fn place(&self, request: Request) -> Result<(), NotChanged> {
        self.requests.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotChanged::Busy,
            mpsc::error::TrySendError::Closed(_) => NotChanged::Ended,
        })
    }

    /// Closes the connections that are meant, and gives how many. `what` says in words which these are, for the log and
    /// the history. It waits for no change that is under way, and is done and remembered even if nobody waits for the outcome.
    pub async fn close_connections(&self, filter: Filter, what: &str, by: &Requester) -> Closing {
        self.closer.close(&Arc::new(filter), what, by).await
    }

    /// Reopens log files, as SIGUSR1 does.
    pub fn reopen(&self) {
        let _ = self.requests.try_send(Request { by: Requester::Program, ..Ask::Reopen.into() });
    }

    /// Has the program as it is on disk take over, as SIGUSR2 does. The log has the outcome.
    pub fn upgrade(&self) {
        let _ = self.requests.try_send(Request { by: Requester::Program, ..Ask::Upgrade.into() });
    }

    /// Has the server drain and end, as SIGTERM does; during the drain, nothing more.
    pub fn stop(&self) {
        self.order_stop(false, Requester::Program);
    }

    /// The same on behalf of `by`; with `now`, what is open is closed at once.
    pub fn order_stop(&self, now: bool, by: Requester) -> Stopping {
        self.stops.order(now, by)
    }
}

/// A request, who made it, and who waits for its outcome.
pub(crate) struct Request {
    pub(crate) ask: Ask,
    told: Option<oneshot::Sender<Result<Changes, Error>>>,
    /// The change of [`Ask::Change`].
    asked: Option<Box<Asked>>,
    /// Who waits for the outcome of [`Ask::Upgrade`].
    upgraded: Option<oneshot::Sender<Result<Upgraded, String>>>,
    /// Whether an upgrade may lose changes that were not written to the file.
    force: bool,
    pub(crate) by: Requester,
}

/// As a signal makes it.
impl From<Ask> for Request {
    fn from(ask: Ask) -> Self {
        Self { ask, told: None, asked: None, upgraded: None, force: false, by: Requester::Signal }
    }
}

/// Where requests come in, from signals and handles.
pub(crate) struct Desk {
    signals: Option<Signals>,
    requests: Receiver<Request>,
    pub(crate) stops: Stops,
    /// What came while something else was waited for.
    deferred: VecDeque<Request>,
    /// Whether all handles are gone and this was reported.
    deserted: bool,
}

impl Desk {
    fn new(signals: Option<Signals>, closer: Closer) -> (Self, Handle) {
        let (sender, requests) = mpsc::channel(WAITING);
        let stops = Stops::default();
        let handle = Handle { requests: sender, stops: stops.clone(), closer };
        (Self { signals, requests, stops, deferred: VecDeque::new(), deserted: false }, handle)
    }

    /// The next request. May be dropped and called again without losing any. That nobody is left who
    /// could ask, neither signals nor handles, is an order to stop, once.
    pub(crate) async fn next(&mut self) -> Request {
        match self.deferred.pop_front() {
            Some(request) => request,
            None => self.receive().await,
        }
    }

    /// Waits for `work`, which may be dropped, or for an order to stop. Other requests wait.
    ///
    /// # Errors
    /// There was such an order, and there is no outcome.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Cause> {
        let mut work = pin!(work);
        loop {
            let request = tokio::select! {
                biased;
                outcome = &mut work => return Ok(outcome),
                request = self.receive() => request,
            };
            match request.ask {
                Ask::Stop => return Err(Cause::Order(request.by)),
                // One that will be obeyed stands for all that nobody waits for.
                Ask::Reload | Ask::Reopen | Ask::Upgrade
                    if request.told.is_none()
                        && request.upgraded.is_none()
                        && self.deferred.iter().any(|other| other.ask == request.ask) => {}
                Ask::Reload | Ask::Reopen | Ask::Upgrade | Ask::Change => self.deferred.push_back(request),
            }
        }
    }

    /// Tells everybody who waits that nothing comes of it here. Log files are reopened nevertheless.
    fn dismiss(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            self.deferred.push_back(request);
        }
        self.deferred.retain(|request| request.ask == Ask::Reopen);
    }

    /// The next request that comes in. Where as many are put off as may wait, those of handles stay in their queue.
    async fn receive(&mut self) -> Request {
        let room = self.deferred.len() < WAITING;
        let stopped = self.stops.ordered();
        match &mut self.signals {
            None if self.deserted => std::future::pending().await,
            None => tokio::select! {
                biased;
                by = stopped => Request { by, ..Ask::Stop.into() },
                request = self.requests.recv(), if room => request.unwrap_or_else(|| {
                    self.deserted = true;
                    Request { by: Requester::Program, ..Ask::Stop.into() }
                }),
            },
            Some(signals) => tokio::select! {
                biased;
                ask = signals.next() => ask.into(),
                by = stopped => Request { by, ..Ask::Stop.into() },
                Some(request) = self.requests.recv(), if room => request,
            },
        }
    }
}

#[cfg(test)]
mod tests;
