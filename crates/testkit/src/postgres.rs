//! A PostgreSQL of the test's own: in a temporary directory, on a Unix socket, gone afterwards.
//!
//! Where the test is root's it runs as `postgres` or `nobody`, since it refuses to be root's. What goes wrong
//! panics with what the server's programs said.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::process::{Process, Ready, Signal, require, temp_dir};

/// A running server. Its databases are removed with it.
pub struct Server {
    process: Option<Process>,
    directory: tempfile::TempDir,
    /// Nobody drops it: it has to end with the process of the tests.
    is_shared: bool,
}

/// Runs a server as long as the process lives whose id comes first, and removes its directory, which comes
/// second.
const WATCH: &str = "parent=$1 directory=$2; shift 2; \"$@\" & server=$!
while [ -d /proc/$parent ] && kill -0 $server 2>/dev/null; do sleep 1; done
kill -INT $server; wait $server; rm -rf \"$directory\"";

/// Nothing here takes as long.
const LIFE: Duration = Duration::from_secs(300);

impl Server {
    /// Makes a cluster and starts a server for it.
    ///
    /// # Panics
    /// If that fails; PostgreSQL must be installed.
    #[must_use]
    pub fn start() -> Self {
        Self::make(false)
    }

    fn make(is_shared: bool) -> Self {
        let directory = temp_dir();
        if let Some((uid, gid)) = servant() {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let data = directory.path().join("data");
        let made = command("initdb")
            .args(["--auth=trust", "--username=log", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = Self { process: None, directory, is_shared };
        server.resume();
        server
    }

    /// Starts the server again after [`Server::pause`].
    ///
    /// # Panics
    /// If it does not start.
    pub fn resume(&mut self) {
        let mut postgres = if self.is_shared { command("sh") } else { command("postgres") };
        if self.is_shared {
            postgres.args(["-c", WATCH, "sh"]).arg(std::process::id().to_string());
            postgres.arg(self.directory.path()).arg(find("postgres"));
        }
        postgres
            .current_dir(self.directory.path())
            .arg("-D")
            .arg(self.directory.path().join("data"))
            .arg("-k")
            .arg(self.directory.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]);
        let process = Process::start(postgres, LIFE).unwrap();
        process
            .wait_for(&Ready::Line("ready to accept connections".into()), Duration::from_secs(60))
            .unwrap();
        self.process = Some(process);
    }

    /// Stops the server; its data stay.
    ///
    /// # Panics
    /// If it is stopped already, or does not end.
    pub fn pause(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(Signal::INT).unwrap();
        process.wait(Duration::from_secs(60)).unwrap();
    }

    /// The path of its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(".s.PGSQL.5432")
    }

    /// The URL of a fresh database.
    ///
    /// # Panics
    /// If the server is stopped.
    #[must_use]
    pub fn database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("access{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let made = command("createdb")
            .args(["--username=log", "--template=template0", "-h"])
            .arg(self.directory.path())
            .arg(&name)
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        format!("postgres://log@/{name}?host={}", self.directory.path().display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // Killed, it would leave its children and its shared memory behind.
            let _ = process.signal(Signal::INT).and_then(|()| process.wait(Duration::from_secs(20)));
        }
    }
}

/// A server that all tests of a process share that do not stop it.
///
/// # Panics
/// As [`Server::start`].
#[must_use]
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::make(true))
}

/// A program of PostgreSQL's, which refuses to run as root.
fn command(program: &str) -> Command {
    let mut command = Command::new(find(program));
    if let Some((uid, gid)) = servant() {
        command.uid(uid).gid(gid);
    }
    command
}

/// Debian keeps each version's programs in a directory of their own.
fn find(program: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions
        .map(|version| version.path().join("bin").join(program))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| require(program, "postgresql"))
}

/// Whose name the server runs in where the test is root's.
fn servant() -> Option<(u32, u32)> {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    let users = std::fs::read_to_string(Path::new("/etc/passwd")).unwrap();
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    is_root.then(|| find("postgres").or_else(|| find("nobody")).expect("postgres or nobody is a user"))
}
