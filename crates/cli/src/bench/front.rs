//! The Offramp that is started in front of the application: this program, with a configuration of its own in a folder of
//! its own, which it leaves nothing of.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use offramp_net::child::killed_with_this_thread;
use offramp_net::process::is_root;
use tempfile::TempDir;
use tokio::time::sleep;

use super::application::{Application, ApplicationTls};
use super::line::{DialledAddress, Dialler};
use crate::failure::Failure;

/// The time for the start.
const START: Duration = Duration::from_secs(20);
/// The pause between two looks at the log.
const PAUSE: Duration = Duration::from_millis(20);
/// The time for the end, before it is killed.
const END: Duration = Duration::from_secs(5);

/// A running Offramp.
pub(super) struct Front {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl Front {
    /// Starts one, with its log of requests as it is installed, and waits until it listens.
    ///
    /// # Errors
    /// No folder can be made, or it does not start; the text has the end of its log.
    pub(super) async fn start(app: &Application) -> Result<Self, Failure> {
        let failed =
            |what: &str, error: &dyn fmt::Display| Failure::runtime(format_args!("error: {what}: {error}"));
        let folder = tempfile::Builder::new().prefix("offramp-bench-").tempdir();
        let folder = folder.map_err(|error| failed("cannot make a folder", &error))?;
        let config = folder.path().join("offramp.toml");
        let written = own_file(&config).and_then(|mut file| file.write_all(text(app, &folder).as_bytes()));
        written.map_err(|error| failed("cannot write a configuration", &error))?;
        let log = own_file(&folder.path().join("log"));
        let log = log.map_err(|error| failed("cannot write a log", &error))?;
        let program = std::env::current_exe().map_err(|error| failed("cannot find this program", &error))?;
        let mut command = Command::new(program);
        command.arg("run").arg("--config").arg(&config).current_dir(folder.path());
        // Sockets of a service manager are those of the Offramp that runs already.
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC"] {
            command.env_remove(name);
        }
        // One that is killed drops nothing. This thread, the only one, lives as long as the process.
        killed_with_this_thread(&mut command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.map_err(|error| failed("cannot start an Offramp", &error))?;
        let mut front = Self { child, folder, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        front.address = front.listening().await?;
        Ok(front)
    }

    /// The address, from the log.
    async fn listening(&mut self) -> Result<SocketAddr, Failure> {
        let begun = Instant::now();
        loop {
            let log = self.log();
            let address = log.lines().find_map(|line| {
                let fields = line.split_once(" listening ")?.1;
                fields.split(' ').find_map(|field| field.strip_prefix("address="))?.parse().ok()
            });
            if let (Some(address), true) = (address, log.contains(" started ")) {
                return Ok(address);
            }
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) || begun.elapsed() > START {
                return Err(self.failed(&"Offramp does not start"));
            }
            sleep(PAUSE).await;
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connections through it, which trust its certificate alone.
    ///
    /// # Errors
    /// Its authority cannot be read.
    pub(super) fn dialler(&self, app: &Application) -> Result<Dialler, Failure> {
        let authority = self.folder.path().join("state/ca/ca.pem");
        Dialler::trusting(DialledAddress::Tcp(self.address), &app.host, &authority, SystemTime::now())
    }

    /// A failure, with the end of the log.
    pub(super) fn failed(&self, why: &dyn fmt::Display) -> Failure {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n  ");
        Failure::runtime(format_args!("error: {why}\nIts log ends with:\n  {last}"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END {
            std::thread::sleep(PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A new file that only this user can read: others can pass through the folder.
fn own_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The configuration: TLS to clients, HTTP to the application.
fn text(app: &Application, folder: &TempDir) -> String {
    let state = folder.path().join("state");
    let server = match &app.address {
        DialledAddress::Tcp(address) => address.to_string(),
        DialledAddress::Unix(path) => format!("unix:{}", path.display()),
    };
    let tls = app.tls.as_ref().map(|ApplicationTls { name, authorities }| {
        let verify = authorities.as_ref().map_or_else(|| "system".to_owned(), |file| absolute(file));
        format!("tls = {{ verify = {}, name = {} }}\n", quoted(&verify), quoted(name))
    });
    // The kernel would forget what binds it to this process if it became another user.
    let user = if is_root() { "user = \"root\"\n" } else { "" };
    format!(
        "{user}state_dir = {}\n[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n[[certificate]]\nlocal = true\nnames = \
         [{}]\n[[route]]\nserver = {}\n{}[log]\nlevel = \"info\"\nformat = \"text\"\n",
        quoted(&state.display().to_string()),
        quoted(&app.host),
        quoted(&server),
        tls.unwrap_or_default(),
    )
}

fn absolute(file: &Path) -> String {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string()
}

/// A basic string of TOML, which has the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
