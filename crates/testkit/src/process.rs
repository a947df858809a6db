//! Child processes of tests: started, watched, and always stopped by their own process id.
//!
//! Output is captured line by line and shown when a test fails. Readiness is a condition that is
//! polled, never a sleep. No child outlives its [`Process`], nor the life that it was given.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::Error;

/// Which output a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a test waits for before it goes on.
#[derive(Clone, Debug)]
pub enum Ready {
    /// A TCP connection to this address is accepted.
    Tcp(SocketAddr),
    /// A connection to this Unix socket is accepted.
    Unix(PathBuf),
    /// A line of either output contains this text.
    Line(String),
}

/// A running child process. Dropping it kills it, and shows its output if the test is failing.
pub struct Process {
    name: String,
    child: Arc<Mutex<Child>>,
    lines: Arc<Mutex<Vec<(Source, String)>>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Process {
    /// Starts `command` with its outputs captured and its input closed. It is killed after `life`,
    /// whatever the test does meanwhile.
    ///
    /// # Errors
    /// [`Error::Setup`] where the program cannot be started.
    pub fn start(command: Command, life: Duration) -> Result<Self, Error> {
        Self::start_reading(command, Stdio::null(), life)
    }

    /// The same, with this as its input.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_reading(mut command: Command, input: Stdio, life: Duration) -> Result<Self, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| Error::setup(format!("{name} does not start: {error}")))?;
        let lines = Arc::default();
        let readers = [
            child.stdout.take().map(|out| read_lines(out, Source::Stdout, &lines)),
            child.stderr.take().map(|out| read_lines(out, Source::Stderr, &lines)),
        ];
        let child = Arc::new(Mutex::new(child));
        bound_life(&child, life);
        Ok(Self { name, child, lines, readers: readers.into_iter().flatten().collect() })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// The lines of one output so far, without line ends.
    #[must_use]
    pub fn lines(&self, source: Source) -> Vec<String> {
        lock(&self.lines).iter().filter(|(from, _)| *from == source).map(|(_, line)| line.clone()).collect()
    }

    /// Waits until the child is ready.
    ///
    /// # Errors
    /// [`Error::Setup`] with all output so far, if the child ends or `timeout` passes before.
    pub fn wait_for(&self, ready: &Ready, timeout: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + timeout;
        loop {
            // Asked before the condition, so that what an ending child said last is still found.
            let ended = lock(&self.child).try_wait()?;
            if ended.is_some() {
                self.settle(deadline);
            }
            if self.is_ready(ready) {
                return Ok(());
            }
            if let Some(status) = ended {
                return Err(self.failure(&format!("ended with {status} before {ready:?}")));
            }
            if Instant::now() >= deadline {
                return Err(self.failure(&format!("was not {ready:?} within {timeout:?}")));
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until the child ends by itself.
    ///
    /// # Errors
    /// [`Error::Setup`] with all output so far, if `timeout` passes before.
    pub fn wait(&self, timeout: Duration) -> Result<ExitStatus, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = lock(&self.child).try_wait()? {
                self.settle(deadline);
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(self.failure(&format!("did not end within {timeout:?}")));
            }
            thread::sleep(POLL);
        }
    }

    /// Sends a signal, unless the child has ended.
    ///
    /// # Errors
    /// What the system says.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let mut child = lock(&self.child);
        // The lock and the check keep the id from being the one of a later process.
        if child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&child), signal).map_err(std::io::Error::from)?;
        }
        Ok(())
    }

    /// All output so far, for a message.
    #[must_use]
    pub fn transcript(&self) -> String {
        let lines = lock(&self.lines);
        lines.iter().map(|(source, line)| format!("  {} {source:?}: {line}\n", self.name)).collect()
    }

    fn is_ready(&self, ready: &Ready) -> bool {
        match ready {
            Ready::Tcp(address) => TcpStream::connect_timeout(address, CONNECT).is_ok(),
            Ready::Unix(path) => UnixStream::connect(path).is_ok(),
            Ready::Line(text) => lock(&self.lines).iter().any(|(_, line)| line.contains(text)),
        }
    }

    /// Gives the readers the time to take in what an ended child has left in its pipes.
    fn settle(&self, deadline: Instant) {
        while Instant::now() < deadline && !self.readers.iter().all(thread::JoinHandle::is_finished) {
            thread::sleep(POLL);
        }
    }

    fn failure(&self, what: &str) -> Error {
        Error::setup(format!("{} {what}; it said:\n{}", self.name, self.transcript()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kill(&self.child);
        if thread::panicking() {
            eprint!("{}", self.transcript());
        }
    }
}

/// The path of a program that a test needs.
///
/// # Panics
/// If it is not installed, naming the Debian `package` that has it. A test is never skipped in silence:
/// what it would have shown is unknown then, and the run must say so.
#[must_use]
pub fn require(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // Debian keeps servers where an ordinary user's PATH does not look.
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("this test needs {program}; on Debian: apt-get install {package}"))
}

/// Writes a program that everyone may run.
///
/// A child process writes it: a file that this process had open for writing could be inherited by a child that another
/// thread forks at that moment, and until that child calls execve(2), the program is refused as busy (ETXTBSY).
///
/// # Panics
/// If it cannot be written.
pub fn write_program(path: &Path, text: &str) {
    let mut install = place(Path::new("/dev/stdin"), path);
    let mut child = install.stdin(Stdio::piped()).spawn().expect("install of coreutils starts");
    let written = child.stdin.take().expect("standard input is a pipe").write_all(text.as_bytes());
    let status = child.wait().expect("a child can be waited for");
    assert!(written.is_ok() && status.success(), "{} was not written: {status}", path.display());
}

/// Copies a program; see [`write_program`].
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let status = place(from, to).status().expect("install of coreutils starts");
    assert!(status.success(), "{} was not copied: {status}", from.display());
}

fn place(from: &Path, to: &Path) -> Command {
    let mut install = Command::new("install");
    install.args(["--mode=755", "--"]).args([from, to]);
    install
}

/// A TCP port of `127.0.0.1` without a listener, for programs that cannot take port 0 and for addresses that must be
/// known before. It is below the range of outgoing ports, so that no connection of another test takes it before the
/// program listens there, and no other call in this process gives it.
///
/// # Panics
/// If none of a hundred tried ports is free.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Several test programs may run at once: each begins elsewhere.
    let start = u64::from(std::process::id()) * 97;
    for _ in 0..100 {
        let offset = (start + u64::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u64::from(FREE_PORTS);
        let port = FIRST_FREE_PORT + u16::try_from(offset).expect("the remainder is below a port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST_FREE_PORT} on is free");
}

/// The address of [`free_port`].
#[must_use]
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// A directory that is removed with all that is in it when the value is dropped.
///
/// # Panics
/// If the system's temporary directory cannot be written.
#[must_use]
pub fn temp_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("offramp-test-").tempdir().expect("a temporary directory can be made")
}

fn read_lines(
    output: impl Read + Send + 'static,
    source: Source,
    lines: &Arc<Mutex<Vec<(Source, String)>>>,
) -> thread::JoinHandle<()> {
    let lines = Arc::clone(lines);
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
            lock(&lines).push((source, text));
            line.clear();
        }
    })
}

/// Kills the child when its life is over; ends by itself when the [`Process`] is gone.
fn bound_life(child: &Arc<Mutex<Child>>, life: Duration) {
    let child = Arc::downgrade(child);
    let deadline = Instant::now() + life;
    thread::spawn(move || {
        while let Some(child) = child.upgrade() {
            if Instant::now() >= deadline {
                return kill(&child);
            }
            drop(child);
            thread::sleep(WATCH);
        }
    });
}

fn kill(child: &Mutex<Child>) {
    let mut child = lock(child);
    if let Ok(None) = child.try_wait() {
        // Neither can fail for a child of ours that has not been waited for.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first port of [`free_port`], and their number. Linux takes outgoing ports from 32,768 on.
const FIRST_FREE_PORT: u16 = 12_000;
const FREE_PORTS: u16 = 18_000;
/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(5);
/// Between two looks at a child's age.
const WATCH: Duration = Duration::from_millis(100);
/// For one attempt to connect to a loopback address.
const CONNECT: Duration = Duration::from_millis(500);
