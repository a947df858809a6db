//! A PostgreSQL of the test's own: in a temporary directory, on a Unix socket, gone afterwards.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{Process, Ready, require, temp_dir};

/// A running server with an empty database.
pub(crate) struct Server {
    directory: tempfile::TempDir,
    _process: Process,
}

impl Server {
    pub(crate) fn start() -> Self {
        let directory = temp_dir();
        if let Some((uid, gid)) = servant() {
            std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let data = directory.path().join("data");
        let mut initdb = command("initdb");
        initdb.args(["--auth=trust", "--username=log", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"]);
        let made = initdb.arg(&data).current_dir(directory.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut postgres = command("postgres");
        postgres.current_dir(directory.path()).arg("-D").arg(&data).arg("-k").arg(directory.path());
        postgres.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]);
        let process = Process::start(postgres, Duration::from_secs(300)).unwrap();
        let ready = Ready::Line("ready to accept connections".into());
        process.wait_for(&ready, Duration::from_secs(60)).unwrap();
        Self { directory, _process: process }
    }

    /// The URL of the database, for the log store.
    pub(crate) fn url(&self) -> String {
        format!("postgres://log@/postgres?host={}", self.directory.path().display())
    }

    /// A connection as Grafana would have one: it may only read.
    pub(crate) fn connect(&self) -> postgres::Client {
        let mut config = postgres::Config::new();
        config.host_path(self.directory.path()).user("log").dbname("postgres");
        let mut client = config.connect(postgres::NoTls).unwrap();
        client
            .batch_execute("SET default_transaction_read_only = on; SET statement_timeout = 30000")
            .unwrap();
        client
    }
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
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found =
        versions.map(|version| version.path().join("bin").join(program)).filter(|path| path.is_file());
    found.max().unwrap_or_else(|| require(program, "postgresql"))
}

/// In whose name the server runs where the test is root's.
fn servant() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    is_root.then(|| find("postgres").or_else(|| find("nobody")).expect("postgres or nobody is a user"))
}
