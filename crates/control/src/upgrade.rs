//! Upgrade: another process takes the place of this one, with the sockets that it listens on.
//!
//! The new process is the program as it is on disk now. It gets every listening socket, so that nobody who waits in a
//! queue is lost, and what this process knows: ticket keys, health of servers, addresses of names. Until it says that
//! it accepts connections nothing is given up here. One that ends, takes too long, refuses the configuration or says
//! what is not known here is killed, and this process serves on.
//!
//! Then this process gives up what only one can have, in this order: listening, the admin interface, the metrics, the
//! right to order certificates, the attention of the service manager. The new one learns of that (`go`), and this one
//! drains as after SIGTERM.

mod heir;
mod message;
mod state;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use offramp_config::model::StoreUrl;
use offramp_net::Address;
use offramp_net::handover::{Channel, within};
use offramp_net::notify::Notifier;
use offramp_observe::timestamp::rfc3339_micros;
use tokio::sync::oneshot;

pub(crate) use heir::Predecessor;
pub use heir::{Heir, Refuser};
pub(crate) use state::State;

use self::message::Answer;
use self::state::Sockets;
use crate::helper::{Helper, Started};
use crate::inherited::{Label, Purpose};
use crate::push::Pushers;
use crate::running::Running;
use crate::server::Origin;

/// In the environment of a new process: its standard input is the end of a hand-over.
pub const HANDOVER: &str = "OFFRAMP_HANDOVER";
/// Between two looks whether the new process is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// How long a new process that has closed its end may take to end.
const LAST: Duration = Duration::from_secs(5);
/// How long one message may take that both ends wait for.
const MESSAGE: Duration = Duration::from_secs(10);

/// What is started by an upgrade.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where the program is on disk.
    pub path: PathBuf,
    /// What it is called with.
    pub arguments: Vec<OsString>,
}

/// Something with a listening socket of its own that the new process takes over, too. It ends when dropped.
pub trait Carried: Send {
    /// Where it listens, as configured.
    fn address(&self) -> Address;
    /// Whether the service manager has the socket, too.
    fn is_foreign(&self) -> bool;
    /// Its socket.
    fn socket(&self) -> BorrowedFd<'_>;
    /// Accepts nothing more, and leaves the socket to the new process. What is being answered may finish: that is over
    /// when the thread has ended.
    fn leave(self: Box<Self>) -> Option<JoinHandle<()>>;
    /// The same, and takes the socket away: the new process does not want it.
    fn close(self: Box<Self>) -> Option<JoinHandle<()>>;
}

/// The process that has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// Its number.
    pub process: u32,
    /// How long it took until it accepted connections.
    pub took: Duration,
}

/// A new process that accepts connections.
pub(crate) struct Successor {
    process: Process,
    channel: Channel,
    /// The sets of sockets that it does not want.
    left: Vec<usize>,
}

/// A new process.
enum Process {
    /// A child of this one.
    Own(Child),
    /// One that the helper has started.
    Helped(Started),
}

impl Successor {
    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Program {
    /// How it is started for an upgrade; its standard input is to be the end of a hand-over.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).env(HANDOVER, "1");
        // The service manager has given these to one process.
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command
    }

    fn start(&self, channel: Channel, helper: Option<&Helper>) -> io::Result<Process> {
        match helper {
            Some(helper) => helper.upgrade(channel).map(Process::Helped),
            None => self.command().stdin(OwnedFd::from(channel)).spawn().map(Process::Own),
        }
    }
}

impl Process {
    fn id(&self) -> u32 {
        match self {
            Process::Own(child) => child.id(),
            Process::Helped(started) => started.id(),
        }
    }

    /// How it ended that is about to. One that does not is killed.
    fn end_of(&mut self) -> ExitStatus {
        let deadline = within(LAST);
        match self {
            Process::Own(child) => loop {
                match child.try_wait() {
                    Ok(Some(status)) => return status,
                    Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
                    _ => return self.end(),
                }
            },
            Process::Helped(started) => started.wait(deadline).unwrap_or_else(|_| self.end()),
        }
    }

    /// Kills it: it is not wanted.
    fn end(&mut self) -> ExitStatus {
        match self {
            // Both fail only for one that has ended and was waited for.
            Process::Own(child) => {
                let _ = child.kill();
                child.wait().unwrap_or_default()
            }
            Process::Helped(started) => started.kill().unwrap_or_default(),
        }
    }

    /// Leaves it to itself.
    fn keep(self) -> io::Result<()> {
        match self {
            Process::Own(_) => Ok(()),
            Process::Helped(started) => started.keep(),
        }
    }
}

impl Running {
    /// Starts the program anew and waits until it accepts connections. Changes nothing here, and may be dropped: then
    /// the new process is killed. With `force` changes may be lost that the file does not have.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn start_successor(&self, force: bool) -> Result<Successor, String> {
        let unwritten = self.to_hand_over(force).await?;
        let program = self.source.program.clone().ok_or("it is not known which program this is")?;
        let helper = self.source.helper.clone();
        let limit = self.config.limits.upgrade_timeout;
        let (sets, fds) = self.sockets().map_err(|error| format!("cannot share the sockets: {error}"))?;
        let current = self.crew.shared.current.load();
        let rotate_in = self.calendar.until_rotation();
        let known = (&self.ground, &self.crew.page.counters);
        let state = State::of(sets, rotate_in, (&current, &self.config), known, unwritten);
        let state = if force { state.forced() } else { state };
        drop(current);
        let (told, outcome) = oneshot::channel();
        let start = move || {
            let outcome = succeed((&program, helper.as_deref()), &state, &fds, limit, &told);
            if let Err(Ok(mut successor)) = told.send(outcome) {
                // Nobody waits for it any more.
                successor.process.end();
            }
        };
        let thread = std::thread::Builder::new().name("offramp-upgrade".to_owned()).spawn(start);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        let mut starting = Starting { outcome, thread: Some(thread) };
        let outcome = (&mut starting.outcome).await;
        outcome.unwrap_or_else(|_| Err("the upgrade ended by a fault of Offramp's own".to_owned()))
    }

    /// The changes that the file does not have, for the new process.
    ///
    /// # Errors
    /// Something would be lost that nobody has said may be.
    async fn to_hand_over(&self, force: bool) -> Result<Vec<String>, String> {
        if let Some(until) = self.unconfirmed_until() {
            let until = String::from_utf8_lossy(&rfc3339_micros(until)).into_owned();
            return Err(format!(
                "a change waits to be confirmed (until {until}), and the new process would not know of it; first `offramp \
                 ctl confirm` or `offramp ctl rollback`"
            ));
        }
        if force {
            return Ok(Vec::new());
        }
        self.hand_over().await?.map_err(|lost| {
            let url = self.config.log_store.url.as_ref();
            let hidden = match url.and_then(StoreUrl::masked) {
                Some(_) => ", which hides the password of the log store: put it in",
                None => "",
            };
            format!(
                "changes in force would be lost, because the file does not have them ({lost}); write them (`offramp ctl show \
                 config`{hidden}, then `apply FILE --persist`), or go without them: `offramp ctl upgrade --force`"
            )
        })
    }

    /// On a thread of its own: with many changes and many routes it takes a while, and the control loop goes on.
    ///
    /// # Errors
    /// Within: what would be lost. Else why nobody knows.
    async fn hand_over(&self) -> Result<Result<Vec<String>, String>, String> {
        let (unwritten, config) = (self.unwritten.clone(), Arc::clone(&self.config));
        let (origin, environment) = (self.source.origin.clone(), self.source.environment.clone());
        let (told, outcome) = oneshot::channel();
        let work = move || {
            let path = origin.path();
            let found = match origin {
                Origin::File(_) => offramp_config::load(path, &environment).ok().map(|(config, _)| config),
                Origin::CommandLine => None,
            };
            // Whoever waits may have gone.
            let _ = told.send(unwritten.hand_over(&config, found, (path, &environment)));
        };
        let thread = std::thread::Builder::new().name("offramp-changes".to_owned()).spawn(work);
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        // The file may be on a disk that does not answer, and other changes wait.
        let limit = self.config.limits.upgrade_timeout;
        match tokio::time::timeout(limit, outcome).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err("the look at unwritten changes ended by a fault of Offramp's own".to_owned()),
            Err(_) => Err(format!(
                "the file of the configuration was not read within {} s (limits.upgrade_timeout)",
                limit.as_secs_f64()
            )),
        }
    }

    /// All listening sockets.
    fn sockets(&self) -> io::Result<(Vec<Sockets>, Vec<OwnedFd>)> {
        let mut sets = Vec::new();
        let mut fds = Vec::new();
        let mut add = |label: Label, own: &mut dyn Iterator<Item = BorrowedFd<'_>>| {
            let before = fds.len();
            for fd in own {
                fds.push(fd.try_clone_to_owned()?);
            }
            sets.push(Sockets { label, count: fds.len() - before });
            Ok::<(), io::Error>(())
        };
        for (label, own) in self.listening.sockets() {
            add(label, &mut own.iter().map(AsFd::as_fd))?;
        }
        if let (Some(metrics), Some(endpoint)) = (&self.metrics, &self.config.metrics.endpoint) {
            let address = crate::listeners::net_address(&endpoint.address).to_string();
            let (name, foreign) = (String::new(), metrics.foreign);
            let label = Label { purpose: Purpose::Metrics, name, address, foreign };
            add(label, &mut std::iter::once(metrics.socket()))?;
        }
        for carried in &self.carried {
            let address = carried.address().to_string();
            let (name, foreign) = (String::new(), carried.is_foreign());
            let label = Label { purpose: Purpose::Carried, name, address, foreign };
            add(label, &mut std::iter::once(carried.socket()))?;
        }
        Ok((sets, fds))
    }

    /// Says what came of an upgrade that was `begun` then. Whether the new process has taken over: the drain follows.
    pub(crate) async fn upgrade(
        &mut self,
        outcome: Result<Successor, String>,
        begun: tokio::time::Instant,
    ) -> bool {
        let took = begun.elapsed().as_millis();
        match outcome {
            Ok(successor) => {
                let process = self.give_way(successor).await;
                let fields = [
                    ("process", process.into()),
                    ("took_ms", u64::try_from(took).unwrap_or(u64::MAX).into()),
                ];
                self.log.info("upgraded; this process serves what is open", &fields);
                true
            }
            Err(reason) => {
                self.log.error("upgrade failed; this process serves on", &[("reason", (&reason).into())]);
                self.notifier.send("READY=1\nSTATUS=upgrade failed: the log says why");
                false
            }
        }
    }

    /// Gives up what only one process can have, and tells the new one. The drain follows.
    async fn give_way(&mut self, successor: Successor) -> u32 {
        let Successor { process, channel, left } = successor;
        // As `sockets` counts them. What the new process does not want ends here.
        let mut number = self.listening.sockets().count();
        self.listening.leave(&left, &self.crew.workers);
        if let Some(metrics) = self.metrics.take() {
            if !left.contains(&number) {
                metrics.leave();
            }
            number += 1;
        }
        for (carried, number) in self.carried.drain(..).zip(number..) {
            self.endings.extend(if left.contains(&number) { carried.close() } else { carried.leave() });
        }
        self.pushers = Pushers::default();
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.abort();
        }
        self.acme.give_way().await;
        let id = process.id();
        if let Err(error) = process.keep() {
            self.log.warn("the helper process may end the new one", &[("reason", (&error).into())]);
        }
        self.notifier.send(&format!("MAINPID={id}"));
        // What it hears from this process from now on would be taken for the new one's.
        self.notifier = Notifier::new(None);
        if let Err(error) = message::go(&channel, within(MESSAGE)) {
            // It notices itself that this process has ended.
            self.log.warn("the new process does not listen", &[("reason", (&error).into())]);
        }
        id
    }
}

/// The start of a new process. Dropped before its end, it leaves no process behind.
struct Starting {
    outcome: oneshot::Receiver<Result<Successor, String>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.outcome.close();
        if let Some(thread) = self.thread.take() {
            // It looks often whether somebody waits. One that panicked has said so itself.
            let _ = thread.join();
        }
        // It was ready just then.
        if let Ok(Ok(mut successor)) = self.outcome.try_recv() {
            successor.process.end();
        }
    }
}

/// Starts the new process and waits until it accepts, and no longer than `limit`.
fn succeed<T>(
    (program, helper): (&Program, Option<&Helper>),
    state: &State,
    fds: &[OwnedFd],
    limit: Duration,
    told: &oneshot::Sender<T>,
) -> Result<Successor, String> {
    let path = program.path.display();
    let deadline = Instant::now() + limit;
    let (channel, its) = Channel::pair().map_err(|error| format!("cannot talk to a new process: {error}"))?;
    let mut process = program.start(its, helper).map_err(|error| format!("cannot start {path}: {error}"))?;
    let offered = match message::offer(&channel, state, fds, deadline) {
        // What it has said before it ended is read below.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("the new process does not take the hand-over: {error}"))
        }
        _ => Ok(()),
    };
    let outcome = offered.and_then(|()| until_ready(&channel, deadline, limit, told));
    match outcome {
        Ok(Some(left)) => Ok(Successor { process, channel, left }),
        Ok(None) => {
            let status = process.end_of();
            Err(format!("the new process ended before it was ready ({status})"))
        }
        Err(reason) => {
            process.end();
            Err(reason)
        }
    }
}

/// Waits until the new process accepts: the sets of sockets that it does not want; `None` if it has ended.
fn until_ready<T>(
    channel: &Channel,
    deadline: Instant,
    limit: Duration,
    told: &oneshot::Sender<T>,
) -> Result<Option<Vec<usize>>, String> {
    let mut left = Vec::new();
    while !told.is_closed() {
        let next = deadline.min(within(LOOK));
        let message = match channel.receive(next) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(error.to_string()),
            Err(_) if next < deadline => continue,
            Err(_) => {
                let limit = limit.as_secs_f64();
                return Err(format!(
                    "the new process was not ready within {limit} s (limits.upgrade_timeout)"
                ));
            }
        };
        match message::answer(&message.text) {
            Answer::Left(more) => left.extend(more),
            Answer::Ready => return Ok(Some(left)),
            Answer::Refused(reason) => return Err(reason),
            Answer::Unknown(text) => {
                return Err(format!("the new process speaks a hand-over that is not known here: {text}"));
            }
        }
    }
    Err("it is not wanted any more".to_owned())
}
