//! A program of the operator while it runs: a DNS hook, or a receiver of notifications. Its time is bounded, and so is
//! what is read of its output. Once nothing waits for it, it is killed with what it has started.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use offramp_config::model::ProgramCommand;
use offramp_net::handover::memory;
use offramp_net::process::kill_group;
use offramp_process::{Helper, StartedProgram, dns_hook, receiver_program};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::Child;
use tokio::time::timeout;

/// The time for which its output is read after its end: a process that it has left behind may keep the output open.
const REST: Duration = Duration::from_millis(500);
/// The part of its output that is kept for the message, in bytes.
const SHOWN: usize = 400;
/// The part of its output that is read, in bytes. Then it is closed, so that the next write ends most programs.
const READ: usize = 1 << 20;

/// A program, and its input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OperatorProgram<'a> {
    /// A DNS hook: action, domain and value.
    DnsHook { path: &'a Path, words: [&'a str; 3] },
    /// A receiver of notifications, and the message for its standard input.
    Receiver { command: &'a ProgramCommand, message: &'a [u8] },
}

/// The end of a program that was started.
pub(crate) struct ProgramEnd {
    /// Its status, or the reason why there is none.
    pub(crate) status: Result<ExitStatus, String>,
    /// The beginning of its standard error and standard output, on one line.
    pub(crate) said: String,
}

/// Starts a program, by the helper if there is one, and waits for its end.
///
/// # Errors
/// It cannot be started.
pub(crate) async fn run(
    helper: Option<&Helper>,
    program: OperatorProgram<'_>,
    limit: Duration,
) -> io::Result<ProgramEnd> {
    let (started, outputs) = StartedOne::start(helper, program)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = started.end(outputs, limit, &mut out, &mut err).await;
    let said = [shown(&err), shown(&out)].join(" ").trim().to_owned();
    Ok(ProgramEnd { status, said })
}

/// The program while it runs.
enum StartedOne {
    /// A child of this process.
    Own(Child),
    /// Started by the helper, which kills it with its children once nothing waits for it.
    Helped(StartedProgram),
}

impl StartedOne {
    /// Starts it; what it says on standard output and standard error comes from the receivers.
    fn start(helper: Option<&Helper>, program: OperatorProgram<'_>) -> io::Result<(Self, [Receiver; 2])> {
        let ((stdout, out), (stderr, err)) = (io::pipe()?, io::pipe()?);
        let outputs = [Receiver::from_owned_fd(stdout.into())?, Receiver::from_owned_fd(stderr.into())?];
        let ends = [OwnedFd::from(out), OwnedFd::from(err)];
        let started = match (helper, program) {
            (Some(helper), OperatorProgram::DnsHook { path, words }) => {
                Self::Helped(helper.hook(path, words, ends)?)
            }
            (Some(helper), OperatorProgram::Receiver { command, message }) => {
                Self::Helped(helper.receiver(command, input(message)?, ends)?)
            }
            (None, program) => {
                let [out, err] = ends;
                let command = match program {
                    OperatorProgram::DnsHook { path, words } => dns_hook(path, words),
                    OperatorProgram::Receiver { command, message } => {
                        let mut command = receiver_program(command);
                        command.stdin(input(message)?);
                        command
                    }
                };
                let mut command = tokio::process::Command::from(command);
                Self::Own(command.process_group(0).stdout(out).stderr(err).kill_on_drop(true).spawn()?)
            }
        };
        Ok((started, outputs))
    }

    /// Waits for its end, and keeps the beginning of what it writes.
    async fn end(
        mut self,
        outputs: [Receiver; 2],
        limit: Duration,
        out: &mut Vec<u8>,
        err: &mut Vec<u8>,
    ) -> Result<ExitStatus, String> {
        let [stdout, stderr] = outputs;
        let mut reading = pin!(async { tokio::join!(read(stdout, out), read(stderr, err)) });
        let mut is_read = false;
        let wait = async {
            loop {
                tokio::select! {
                    status = self.ended() => return status,
                    _ = &mut reading, if !is_read => is_read = true,
                }
            }
        };
        let ended = timeout(limit, wait).await;
        let status = ended.map_err(|_| format!("did not end within {} s", limit.as_secs()))?;
        if !is_read {
            let _ = timeout(REST, reading).await;
        }
        status.map_err(|error| error.to_string())
    }

    async fn ended(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Own(child) => child.wait().await,
            Self::Helped(started) => started.ended().await,
        }
    }
}

impl Drop for StartedOne {
    /// Kills a program of this process that nothing waits for any more, with its children.
    fn drop(&mut self) {
        if let Self::Own(child) = self
            && let Some(leader) = child.id()
        {
            kill_group(leader);
        }
    }
}

/// The message as a standard input. It is memory, so that a program that does not read it holds up nothing.
fn input(message: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memory(message)?);
    file.rewind()?;
    Ok(file.into())
}

/// Reads an output up to a bound, and keeps its beginning.
async fn read(mut output: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let (mut piece, mut total) = ([0; 1024], 0);
    while total < READ
        && let Ok(length @ 1..) = output.read(&mut piece).await
    {
        total += length;
        let room = SHOWN.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(&piece[..room]);
    }
}

/// An output on one line.
fn shown(kept: &[u8]) -> String {
    let text = String::from_utf8_lossy(kept);
    let printable: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    printable.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use offramp_testkit::process::write_program;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs a script of a shell as a receiver of this message.
    async fn outcome(script: &str, message: &[u8], limit: Duration) -> ProgramEnd {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tell");
        write_program(&path, &format!("#!/bin/sh\n{script}\n"));
        let words = [path.display().to_string(), "an argument".to_owned()];
        let command = ProgramCommand::read(&words).unwrap();
        run(None, OperatorProgram::Receiver { command: &command, message }, limit).await.unwrap()
    }

    #[tokio::test]
    async fn a_receiver_reads_the_whole_message() {
        let message = vec![b'm'; 300_000];
        let end = outcome("printf '%s ' \"$@\"; wc -c", &message, PATIENCE).await;
        assert!(end.status.unwrap().success());
        assert_eq!(end.said, "an argument 300000");
    }

    #[tokio::test]
    async fn one_that_does_not_read_holds_up_nothing() {
        let end = outcome("exec <&-; echo no >&2; exit 4", &vec![b'm'; 300_000], PATIENCE).await;
        assert_eq!((end.status.unwrap().code(), end.said.as_str()), (Some(4), "no"));
    }

    #[tokio::test]
    async fn one_that_never_stops_to_write_is_stopped() {
        let end = outcome("exec yes", b"", PATIENCE).await;
        let status = end.status.unwrap();
        assert!(!status.success(), "{status}");
        assert!(end.said.starts_with("y y y") && end.said.len() <= SHOWN, "{}", end.said);
    }

    #[tokio::test]
    async fn one_that_hangs_is_stopped() {
        let end = outcome("echo wait; exec sleep 1000", b"", Duration::from_millis(300)).await;
        assert!(end.status.unwrap_err().contains("did not end within"));
    }
}
