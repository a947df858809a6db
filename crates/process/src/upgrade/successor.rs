//! The process that runs now, while it has another one take its place.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use offramp_net::handover::{Channel, within};
use serde::Serialize;
use tokio::sync::oneshot;

use super::message::{self, Answer, Handover};
use crate::helper::{Helper, StartedProgram};
use crate::inherited::{Offer, Unwanted};
use crate::program::Program;

/// Between two looks whether the new process is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// The time for a new process to end that has closed its side.
const LAST: Duration = Duration::from_secs(5);
/// The time limit of one message that both ends wait for.
const MESSAGE: Duration = Duration::from_secs(10);

/// The start of a new process, and the longest time that it may take.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The program on disk.
    pub program: Program,
    /// Starts it in the place of this process.
    pub helper: Option<Arc<Helper>>,
    /// The time until the new process must accept connections.
    pub limit: Duration,
}

/// A new process that accepts connections.
#[derive(Debug)]
pub struct Successor {
    process: Process,
    channel: Channel,
    /// The sets of sockets that it does not want.
    left: Vec<usize>,
}

impl Attempt {
    /// Starts the program and waits until it accepts connections, with these sockets and this state. May be dropped: then the
    /// new process is killed.
    ///
    /// # Errors
    /// The reason why there is no new process.
    pub async fn start<S>(self, offer: Offer, state: S) -> Result<Successor, String>
    where
        S: Serialize + Send + 'static,
    {
        let Offer { sets, fds } = offer;
        let handover = Handover { sockets: sets, state };
        let (reply, outcome) = oneshot::channel();
        let start = move || {
            let outcome = self.succeed(&handover, &fds, &reply);
            if let Err(Ok(mut successor)) = reply.send(outcome) {
                // The upgrade was given up.
                successor.process.end();
            }
        };
        let thread = std::thread::Builder::new().name("offramp-upgrade".to_owned()).spawn(start);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        let mut starting = Starting { outcome, thread: Some(thread) };
        let outcome = (&mut starting.outcome).await;
        outcome.unwrap_or_else(|_| Err("the upgrade ended by a fault of Offramp's own".to_owned()))
    }

    /// Starts the new process and waits until it accepts.
    fn succeed<S: Serialize, T>(
        &self,
        handover: &Handover<S>,
        fds: &[OwnedFd],
        reply: &oneshot::Sender<T>,
    ) -> Result<Successor, String> {
        let path = self.program.path.display();
        let deadline = Instant::now() + self.limit;
        let (channel, its) =
            Channel::pair().map_err(|error| format!("cannot talk to a new process: {error}"))?;
        let mut process = self.spawn(its).map_err(|error| format!("cannot start {path}: {error}"))?;
        let offered = match message::offer(&channel, handover, fds, deadline) {
            // What it has said before it ended is read below.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("the new process does not take the hand-over: {error}"))
            }
            _ => Ok(()),
        };
        let outcome = offered.and_then(|()| until_ready(&channel, deadline, self.limit, reply));
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

    /// Starts the program with the end of a hand-over, by the helper where there is one.
    fn spawn(&self, channel: Channel) -> io::Result<Process> {
        match &self.helper {
            Some(helper) => helper.upgrade(channel).map(Process::Helped),
            None => self.program.command().stdin(OwnedFd::from(channel)).spawn().map(Process::Own),
        }
    }
}

impl Successor {
    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The sockets that it does not want: their queues are this process's to serve.
    #[must_use]
    pub fn unwanted(&self) -> Unwanted {
        Unwanted::of(self.left.clone())
    }

    /// Leaves it to itself: it outlives this process.
    ///
    /// # Errors
    /// The helper does not listen, and may end it.
    pub fn keep(&self) -> io::Result<()> {
        match &self.process {
            Process::Own(_) => Ok(()),
            Process::Helped(started) => started.keep(),
        }
    }

    /// Tells it that this process has given up what only one can have.
    ///
    /// # Errors
    /// It does not listen.
    pub fn go(&self) -> io::Result<()> {
        message::go(&self.channel, within(MESSAGE))
    }
}

/// A new process.
#[derive(Debug)]
enum Process {
    /// A child of this one.
    Own(Child),
    /// One that the helper has started.
    Helped(StartedProgram),
}

impl Process {
    fn id(&self) -> u32 {
        match self {
            Process::Own(child) => child.id(),
            Process::Helped(started) => started.id(),
        }
    }

    /// Waits for the end of a process that is about to end; one that does not is killed.
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
            // It looks often if the upgrade was given up. One that panicked has said so itself.
            let _ = thread.join();
        }
        // It was ready just then.
        if let Ok(Ok(mut successor)) = self.outcome.try_recv() {
            successor.process.end();
        }
    }
}

/// Waits until the new process accepts: the sets of sockets that it does not want; `None` if it has ended.
fn until_ready<T>(
    channel: &Channel,
    deadline: Instant,
    limit: Duration,
    reply: &oneshot::Sender<T>,
) -> Result<Option<Vec<usize>>, String> {
    let mut left = Vec::new();
    while !reply.is_closed() {
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
