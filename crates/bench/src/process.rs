//! Programs that the harness starts: pinned to cores, in a process group of their own, and stopped for
//! certain, with their children, when the value is dropped.
//!
//! Refuses to signal anything that it did not start.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};

use crate::error::{Error, Result};
use crate::measure::tree;
use crate::protocol::Found;

/// What to start, and where it may run.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The name that reports use.
    pub(crate) name: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Environment variables beside the inherited ones.
    pub(crate) env: Vec<(String, String)>,
    /// The cores that it and its children may use.
    pub(crate) cores: Vec<usize>,
    /// Where its standard error goes (and its standard output, unless piped).
    pub(crate) log: PathBuf,
    /// Whether standard input and output are pipes that the harness talks through.
    pub(crate) piped: bool,
}

/// A running program. Dropping it kills its whole process group.
#[derive(Debug)]
pub(crate) struct Process {
    /// The name that reports use.
    pub(crate) name: String,
    /// The child, with its pipes when it has any.
    pub(crate) child: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts the program.
    ///
    /// # Errors
    /// When the program cannot be executed or the cores do not exist.
    pub(crate) fn start(launch: &Launch) -> Result<Self> {
        let io = |e| Error::io(format!("starting {}", launch.name), e);
        let log = File::create(&launch.log).map_err(io)?;
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).stderr(log.try_clone().map_err(io)?).process_group(0).kill_on_drop(true);
        command.envs(launch.env.iter().map(|(k, v)| (k, v)));
        if launch.piped {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        } else {
            command.stdin(Stdio::null()).stdout(log);
        }
        let child = on_cores(&launch.cores, || command.spawn()).map_err(io)?.map_err(io)?;
        let raw = child.id().ok_or_else(|| Error::Program {
            name: launch.name.clone(),
            why: "ended before it could be looked at".into(),
        })?;
        let pid = raw.try_into().ok().and_then(Pid::from_raw).ok_or_else(|| Error::Program {
            name: launch.name.clone(),
            why: format!("has the impossible process id {raw}"),
        })?;
        Ok(Self { name: launch.name.clone(), child, pid, log: launch.log.clone() })
    }

    /// The process id of the program itself.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until the program accepts connections at `place`, at most `patience`.
    ///
    /// # Errors
    /// When it ends first, or stays deaf: with the end of its own output.
    pub(crate) async fn listening(&mut self, place: &Found, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failed(&format!("ended at start ({status})")));
            }
            let heard = match place {
                Found::Tcp(address) => TcpStream::connect(address).await.is_ok(),
                Found::Unix(path) => UnixStream::connect(path).await.is_ok(),
            };
            if heard {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.failed(&format!("does not listen on {place} after {patience:?}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// An error about this program with the last lines that it wrote itself.
    pub(crate) fn failed(&self, what: &str) -> Error {
        let said = tail(&self.log, 6);
        let why = if said.is_empty() { what.to_owned() } else { format!("{what}; it said: {said}") };
        Error::Program { name: self.name.clone(), why }
    }

    /// Whether the program is still there.
    pub(crate) fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the program to end, waits at most two seconds, then kills its group.
    pub(crate) async fn stop(mut self) {
        let _ = kill_process(self.pid, Signal::TERM);
        let _ = tokio::time::timeout(Duration::from_secs(2), self.child.wait()).await;
        // Dropping kills what is left of the group.
    }

    /// Sends one signal to the program alone.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Children that left the group (daemons of the peers) are found by their parent first.
        let all = tree::with_descendants(self.pid());
        for pid in &all {
            if let Some(pid) = (*pid).try_into().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        // The kernel needs a moment on a busy machine, and whoever stopped them may look at once.
        let deadline = Instant::now() + GONE;
        while (matches!(self.child.try_wait(), Ok(None)) || all.iter().any(|pid| runs(*pid)))
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// How long a killed program is waited for.
const GONE: Duration = Duration::from_secs(2);

/// Whether the process is there and not only waiting to be reaped, which leaves no command line.
fn runs(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Runs `action` with this thread bound to `cores`, so that what it spawns inherits the binding.
fn on_cores<T>(cores: &[usize], action: impl FnOnce() -> T) -> std::io::Result<T> {
    let before = sched_getaffinity(None)?;
    let mut wanted = CpuSet::new();
    for &core in cores {
        wanted.set(core);
    }
    sched_setaffinity(None, &wanted)?;
    let result = action();
    sched_setaffinity(None, &before)?;
    Ok(result)
}

/// The cores that this process may use.
pub(crate) fn usable_cores() -> Vec<usize> {
    sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
        .unwrap_or_else(|_| vec![0])
}

/// The last `lines` lines of a file, in one line; empty when there are none.
fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join(" | ")
}

/// The first match of `name` in `PATH` or in the directories of system programs.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// A TCP port of the loopback that nobody uses now, below the range of outgoing ports, so that no
/// outgoing connection takes it before the program that is to listen there.
///
/// # Errors
/// When no port of a hundred tried ones is free.
pub(crate) fn free_port() -> Result<u16> {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 12_000;
    const SPAN: u16 = 18_000;
    // Several harnesses may run at once: each begins elsewhere.
    let start = (std::process::id() as u16).wrapping_mul(97);
    for _ in 0..100 {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % SPAN;
        let port = FIRST + offset;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::Measure("no free port found on 127.0.0.1 among a hundred tried".into()))
}

/// Runs a program to its end and returns what it printed on both outputs, for version lines.
pub(crate) fn output_of(program: &Path, args: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some(text)
}
