//! A PostgreSQL of the test's own: in a temporary directory, on a Unix socket, gone afterwards.
//!
//! Where the test is root's it runs as `postgres` or `nobody`, since it refuses to be root's. What goes wrong
//! panics with what the server's programs said.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Error;
use crate::process::{Process, Ready, Signal, require, temp_dir};

/// A running server. Its databases are removed with it.
pub struct Server {
    process: Option<Process>,
    directory: tempfile::TempDir,
    /// Nobody drops it: it has to end with the process of the tests.
    is_shared: bool,
    /// Where it listens with TLS, besides its Unix socket, which has none.
    secure: Option<SocketAddr>,
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
        let mut server = Self::make(false);
        server.resume();
        server
    }

    /// The same with `ssl = on`, a chain and a key in PEM, on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// As [`Server::start`].
    #[must_use]
    pub fn start_with_tls(chain: &Path, key: &Path) -> Self {
        let mut server = Self::make(false);
        for (from, name) in [(chain, "server.crt"), (key, "server.key")] {
            let to = server.directory.path().join(name);
            std::fs::copy(from, &to).unwrap();
            // A key that others may read is refused.
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((uid, gid)) = servant() {
                std::os::unix::fs::chown(&to, Some(uid), Some(gid)).unwrap();
            }
        }
        // PostgreSQL cannot say which port the kernel chose, and somebody else may take a free one meanwhile.
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
            server.secure = Some(free);
            if server.try_resume().is_ok() {
                return server;
            }
        }
        server.resume();
        server
    }

    /// Where it listens with TLS.
    ///
    /// # Panics
    /// If it was started without.
    #[must_use]
    pub fn secure_address(&self) -> SocketAddr {
        self.secure.expect("the server was started with TLS")
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
        Self { process: None, directory, is_shared, secure: None }
    }

    /// Starts the server again after [`Server::pause`].
    ///
    /// # Panics
    /// If it does not start.
    pub fn resume(&mut self) {
        self.try_resume().unwrap();
    }

    fn try_resume(&mut self) -> Result<(), Error> {
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
            .args(["-c", "fsync=off", "-c", "shared_buffers=16MB"]);
        match self.secure {
            None => postgres.args(["-c", "listen_addresses="]),
            Some(address) => {
                let file = |name: &str| self.directory.path().join(name).display().to_string();
                postgres.args(["-c", &format!("listen_addresses={}", address.ip())]);
                postgres.args(["-c", &format!("port={}", address.port()), "-c", "ssl=on"]);
                postgres.args(["-c", &format!("ssl_cert_file={}", file("server.crt"))]);
                postgres.args(["-c", &format!("ssl_key_file={}", file("server.key"))])
            }
        };
        let process = Process::start(postgres, LIFE)?;
        process.wait_for(&Ready::Line("ready to accept connections".into()), Duration::from_secs(60))?;
        self.process = Some(process);
        Ok(())
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

    /// The number in the name of its Unix socket.
    fn port(&self) -> u16 {
        self.secure.map_or(5432, |address| address.port())
    }

    /// The path of its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(format!(".s.PGSQL.{}", self.port()))
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
            .args(["-p", &self.port().to_string()])
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
    SERVER.get_or_init(|| {
        let mut server = Server::make(true);
        server.resume();
        server
    })
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
