//! The helper: a small process that starts programs for this one, which forbids itself to.
//!
//! It is forked before this process has keys or threads, so it has none of them. It starts two things: the program
//! of an upgrade, and the programs that the configuration names when this process begins to serve: DNS hooks, and those
//! that get notifications. Path, arguments and environment of the first are fixed when the helper is forked, and the paths
//! of hooks and the commands of the others before this process serves clients. So an attacker that takes over this process can have nothing else started:
//!
//! ```text
//! main → helper   user UID GID          the helper becomes this user; once
//!                 hook PATH             a program that may be started; only before `sealed`
//!                 receiver COMMAND      a program and its arguments, each with a NUL behind it; only before `sealed`
//!                 sealed
//!                 upgrade               with two descriptors: its standard input, and the line of this start
//!                 run N ACTION DOMAIN VALUE    the Nth hook, with three: standard output, standard error, the line
//!                 feed N                the Nth receiver, with four: standard input and output, standard error, the line
//! helper → main   started ID            on the line of the start
//!                 failed REASON
//!                 ended STATUS          as waitpid(2) has it
//! main → helper   keep                  on the same line: the process outlives both
//!                 kill
//! ```
//!
//! A line that is closed before `keep` kills what was started. The helper ends when its conversation with this process
//! does, or when anything else is said in it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use offramp_config::model::ProgramCommand;
use offramp_net::apart::{self, Apart};
use offramp_net::handover::{Channel, LONGEST_TEXT, Message, within};
use offramp_net::process::{UserIdentity, kill_group};

use crate::program::{Program, dns_hook, receiver_program};

/// The time limit of one message.
const MESSAGE: Duration = Duration::from_secs(10);
/// The time limit of the start of a program.
const START: Duration = Duration::from_secs(60);
/// Between two looks at what was started.
const LOOK: Duration = Duration::from_millis(10);
/// The same while nothing runs; a message is noticed at once.
const REST: Duration = Duration::from_secs(3600);
/// The most programs at a time: one new process, the hooks of the orders that are under way at once, and a few that get
/// notifications.
const MOST_RUNS: usize = 20;
/// The hooks of one configuration, and the programs that get notifications.
const MOST_HOOKS: usize = 256;

/// The programs that the configuration of the start names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedPrograms {
    /// The DNS hooks of authorities.
    pub(crate) hooks: Vec<PathBuf>,
    /// The programs that get notifications.
    pub(crate) receivers: Vec<ProgramCommand>,
}

/// The helper, as the process sees it that it works for.
#[derive(Debug)]
pub struct Helper {
    process: Apart,
    /// The programs that it may start besides that of an upgrade, in this order.
    named: NamedPrograms,
}

/// A program that the helper has started. It is killed when this is dropped before its end, unless it is kept.
#[derive(Debug)]
pub struct StartedProgram {
    line: Channel,
    id: u32,
}

impl Helper {
    /// Forks the helper. To be called at the very start: before there are threads, keys or a hand-over.
    ///
    /// # Errors
    /// There is none.
    pub fn fork(program: Program) -> io::Result<Self> {
        let process = apart::fork(move |channel| serve(&channel, program))?;
        Ok(Self { process, named: NamedPrograms::default() })
    }

    /// Does without it from now on.
    pub(crate) fn dismiss(self) {
        self.process.dismiss();
    }

    /// Makes it this user's, if it is to become one, and says what it may start. Nothing is added later.
    ///
    /// # Errors
    /// It has ended, or there is more than it takes.
    pub(crate) fn settle(&mut self, identity: Option<&UserIdentity>, named: NamedPrograms) -> io::Result<()> {
        let counts = [("dns_hook", named.hooks.len()), ("notify.program", named.receivers.len())];
        if let Some((key, _)) = counts.into_iter().find(|(_, count)| *count > MOST_HOOKS) {
            return Err(io::Error::other(format!("more than {MOST_HOOKS} programs are named as `{key}`")));
        }
        if let Some(identity) = identity {
            let (user, group) = identity.numbers();
            self.say(format!("user {user} {group}").as_bytes(), &[])?;
        }
        for hook in &named.hooks {
            self.say(&[b"hook ", hook.as_os_str().as_bytes()].concat(), &[])?;
        }
        for command in &named.receivers {
            let words: String = command.words().iter().map(|word| format!("{word}\0")).collect();
            self.say(format!("receiver {words}").as_bytes(), &[])?;
        }
        self.named = named;
        self.say(b"sealed", &[])
    }

    /// True if it may start this hook.
    pub(crate) fn has(&self, hook: &Path) -> bool {
        self.named.hooks.iter().any(|known| known == hook)
    }

    /// True if it may start this program with these arguments.
    pub(crate) fn has_receiver(&self, command: &ProgramCommand) -> bool {
        self.named.receivers.contains(command)
    }

    /// Starts the program of an upgrade, with the end of a hand-over as its standard input.
    ///
    /// # Errors
    /// Why it could not be started.
    pub(crate) fn upgrade(&self, handover: Channel) -> io::Result<StartedProgram> {
        let (line, its) = Channel::pair()?;
        self.say(b"upgrade", &[handover.into(), its.into()])?;
        StartedProgram::on(line)
    }

    /// Starts a hook that it may start.
    ///
    /// # Errors
    /// Why it could not be started.
    pub fn hook(
        &self,
        program: &Path,
        [action, domain, value]: [&str; 3],
        [stdout, stderr]: [OwnedFd; 2],
    ) -> io::Result<StartedProgram> {
        let number = self.named.hooks.iter().position(|known| known == program);
        let number = number.ok_or_else(|| io::Error::other(NOT_ALLOWED))?;
        let (line, its) = Channel::pair()?;
        let text = format!("run {number} {action} {domain} {value}");
        self.say(text.as_bytes(), &[stdout, stderr, its.into()])?;
        StartedProgram::on(line)
    }

    /// Starts a program that gets a notification from its standard input.
    ///
    /// # Errors
    /// Why it could not be started.
    pub fn receiver(
        &self,
        command: &ProgramCommand,
        stdin: OwnedFd,
        [stdout, stderr]: [OwnedFd; 2],
    ) -> io::Result<StartedProgram> {
        let number = self.named.receivers.iter().position(|known| known == command);
        let number = number.ok_or_else(|| io::Error::other(NOT_ALLOWED))?;
        let (line, its) = Channel::pair()?;
        self.say(format!("feed {number}").as_bytes(), &[stdin, stdout, stderr, its.into()])?;
        StartedProgram::on(line)
    }

    fn say(&self, text: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(OwnedFd::as_fd).collect();
        let said = self.process.channel.send(text, &fds, within(MESSAGE));
        said.map_err(|error| io::Error::other(format!("the helper process does not listen: {error}")))
    }
}

/// The error of a program that came with a reload.
const NOT_ALLOWED: &str =
    "Offramp's sandbox does not start it: the configuration did not name it when Offramp started";

impl StartedProgram {
    fn on(line: Channel) -> io::Result<Self> {
        match parse_answer(line.receive(within(START)))? {
            Heard::Started(id) => Ok(Self { line, id }),
            Heard::Failed(reason) => Err(io::Error::other(reason)),
            Heard::Ended(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Waits for its end until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> io::Result<ExitStatus> {
        match parse_answer(self.line.receive(deadline))? {
            Heard::Ended(status) => Ok(status),
            Heard::Started(_) | Heard::Failed(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Kills it, and gives how it ended.
    pub(crate) fn kill(&self) -> io::Result<ExitStatus> {
        // It may have ended by itself just then, which arrives all the same.
        let _ = self.line.send(b"kill", &[], within(MESSAGE));
        self.wait(within(MESSAGE))
    }

    /// Leaves it alone from now on.
    pub(crate) fn keep(&self) -> io::Result<()> {
        self.line.send(b"keep", &[], within(MESSAGE))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The helper has ended, and with it what it had started.
    pub async fn ended(&self) -> io::Result<ExitStatus> {
        match parse_answer(self.line.next().await)? {
            Heard::Ended(status) => Ok(status),
            Heard::Started(_) | Heard::Failed(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A message of the helper about a start.
enum Heard {
    Started(u32),
    Failed(String),
    Ended(ExitStatus),
}

fn parse_answer(message: io::Result<Option<Message>>) -> io::Result<Heard> {
    let gone = || io::Error::other("the helper process has ended");
    let message = message?.ok_or_else(gone)?;
    let text = String::from_utf8_lossy(&message.text);
    let answer = match text.split_once(' ') {
        Some(("started", id)) => id.parse().ok().map(Heard::Started),
        Some(("failed", reason)) => Some(Heard::Failed(reason.to_owned())),
        Some(("ended", status)) => status.parse().ok().map(|raw| Heard::Ended(ExitStatus::from_raw(raw))),
        _ => None,
    };
    answer.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Serves the main process until that has ended.
fn serve(channel: &Channel, program: Program) {
    let named = NamedPrograms::default();
    let mut allowed = Allowed { program, named, is_sealed: false, has_user: false };
    let mut runs: Vec<Run> = Vec::new();
    while listen(channel, &mut allowed, &mut runs).is_ok() {
        runs.retain_mut(Run::goes_on);
    }
    // What was kept was so before the end. The rest is killed.
    runs.retain_mut(Run::goes_on);
}

/// Waits for one message, not for long while something runs, and obeys it.
///
/// # Errors
/// The conversation is over.
fn listen(channel: &Channel, allowed: &mut Allowed, runs: &mut Vec<Run>) -> Result<(), Misunderstood> {
    let wait = if runs.is_empty() { REST } else { LOOK };
    match channel.receive(within(wait)) {
        Ok(Some(message)) => runs.extend(allowed.obey(message, runs.len())?),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
        // The other process has ended, or says too much at once.
        Ok(None) | Err(_) => return Err(Misunderstood),
    }
    Ok(())
}

/// The programs that may be started.
struct Allowed {
    program: Program,
    named: NamedPrograms,
    is_sealed: bool,
    has_user: bool,
}

/// The other process has ended, or says what this program never says.
#[derive(Debug, PartialEq, Eq)]
struct Misunderstood;

impl Allowed {
    /// Does what a message wants: something that runs, or nothing.
    fn obey(&mut self, message: Message, running: usize) -> Result<Option<Run>, Misunderstood> {
        let Message { text, fds } = message;
        let (word, rest) = match text.iter().position(|byte| *byte == b' ') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (&text[..], &[][..]),
        };
        match (word, self.is_sealed) {
            (b"user", false) if !self.has_user && fds.is_empty() => {
                self.has_user = true;
                let numbers = std::str::from_utf8(rest).ok().and_then(|text| text.split_once(' '));
                let (user, group) = numbers.ok_or(Misunderstood)?;
                let user = user.parse().map_err(|_| Misunderstood)?;
                let group = group.parse().map_err(|_| Misunderstood)?;
                // One that stays root where it should not must not go on.
                UserIdentity::of_numbers(user, group).assume().map_err(|_| Misunderstood)?;
                // The kernel decides anew on access to the memory of a process that changes its user.
                offramp_net::process::forbid_core_dumps().map_err(|_| Misunderstood)?;
                Ok(None)
            }
            (b"hook", false) if self.named.hooks.len() < MOST_HOOKS && fds.is_empty() => {
                self.named.hooks.push(PathBuf::from(OsStr::from_bytes(rest)));
                Ok(None)
            }
            (b"receiver", false) if self.named.receivers.len() < MOST_HOOKS && fds.is_empty() => {
                self.named.receivers.push(command(rest).ok_or(Misunderstood)?);
                Ok(None)
            }
            (b"sealed", false) if fds.is_empty() => {
                self.is_sealed = true;
                Ok(None)
            }
            (b"upgrade", true) => {
                let [stdin, line] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| Misunderstood)?;
                let mut command = self.program.command();
                command.stdin(stdin);
                Ok(Run::start(command, line, running, Group::Shared))
            }
            (b"run", true) => {
                let [stdout, stderr, line] = <[OwnedFd; 3]>::try_from(fds).map_err(|_| Misunderstood)?;
                let mut command = self.hook(rest).ok_or(Misunderstood)?;
                command.stdout(stdout).stderr(stderr);
                Ok(Run::start(command, line, running, Group::Own))
            }
            (b"feed", true) => {
                let [stdin, stdout, stderr, line] =
                    <[OwnedFd; 4]>::try_from(fds).map_err(|_| Misunderstood)?;
                let number = std::str::from_utf8(rest).ok().and_then(|text| text.parse::<usize>().ok());
                let named =
                    number.and_then(|number| self.named.receivers.get(number)).ok_or(Misunderstood)?;
                let mut command = receiver_program(named);
                command.stdin(stdin).stdout(stdout).stderr(stderr);
                Ok(Run::start(command, line, running, Group::Own))
            }
            _ => Err(Misunderstood),
        }
    }

    /// A hook with what it is called with, if that is what a hook gets.
    fn hook(&self, text: &[u8]) -> Option<Command> {
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.split(' ');
        let program = self.named.hooks.get(words.next()?.parse::<usize>().ok()?)?;
        let (action, domain, value) = (words.next()?, words.next()?, words.next()?);
        let plain = |text: &str, most: usize| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            (1..=most).contains(&text.len()) && text.bytes().all(is_plain)
        };
        let is_known = words.next().is_none()
            && ["present", "cleanup"].contains(&action)
            && plain(domain, 253)
            && plain(value, 128);
        is_known.then(|| dns_hook(program, [action, domain, value]))
    }
}

/// The words of a command, each with a NUL behind it.
fn command(text: &[u8]) -> Option<ProgramCommand> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('\0')?;
    let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
    ProgramCommand::read(&words).ok()
}

/// The process group of a program: one of its own is killed with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Own,
    Shared,
}

/// Something that was started.
struct Run {
    child: Child,
    line: Channel,
    group: Group,
    is_over: bool,
}

impl Run {
    /// Starts it and says so, or why not.
    fn start(mut command: Command, line: OwnedFd, running: usize, group: Group) -> Option<Self> {
        let line = Channel::from(line);
        // A closed line is noticed later.
        let say =
            |text: String| line.send(&text.as_bytes()[..text.len().min(LONGEST_TEXT)], &[], within(MESSAGE));
        if group == Group::Own {
            command.process_group(0);
        }
        let started = match running < MOST_RUNS {
            true => command.spawn().map_err(|error| error.to_string()),
            false => Err(format!("{MOST_RUNS} programs run already")),
        };
        match started {
            Ok(child) => {
                let _ = say(format!("started {}", child.id()));
                Some(Self { child, line, group, is_over: false })
            }
            Err(reason) => {
                let _ = say(format!("failed {reason}"));
                None
            }
        }
    }

    /// Looks after it; whether there will be more to do.
    fn goes_on(&mut self) -> bool {
        if let Ok(Some(status)) = self.child.try_wait() {
            self.is_over = true;
            let _ = self.line.send(format!("ended {}", status.into_raw()).as_bytes(), &[], within(MESSAGE));
            return false;
        }
        match self.line.receive(Instant::now()) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => true,
            Ok(Some(message)) if message.text == b"keep" => {
                self.is_over = true;
                false
            }
            Ok(Some(message)) if message.text == b"kill" => {
                self.kill();
                true
            }
            _ => {
                self.kill();
                let _ = self.child.wait();
                self.is_over = true;
                false
            }
        }
    }

    fn kill(&mut self) {
        // It was not waited for: its number is still its own.
        match self.group {
            Group::Own => kill_group(self.child.id()),
            Group::Shared => drop(self.child.kill()),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.is_over {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests;
