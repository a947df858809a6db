//! A running Offramp for one scenario: a directory of its own, certificates, a configuration, free ports.
//!
//! A [`Home`] is the directory with a CA; a [`Instance`] is the binary that runs in it. Paths in a
//! configuration start at the home. Readiness is what `READY=1` says on the notification socket, as
//! systemd sees it; events are read from standard output.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use offramp_testkit::ca::{Ca, Files, Key, Leaf};
use offramp_testkit::process::{Process, Signal, Source, temp_dir};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::support::offramp::offramp;

/// How long a test waits for anything that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long an Offramp may run, whatever its test does.
pub(crate) const LIFE: Duration = Duration::from_secs(300);

/// The certificate that [`Home::new`] has made, for `localhost` and `*.example.org`, as configuration.
pub(crate) const CERTIFICATE: &str = "\
[[certificate]]
cert = \"server.chain.pem\"
key = \"server.key\"
";

/// A listener on a free port of `127.0.0.1`, as configuration; its name is `default`.
pub(crate) const LISTENER: &str = "\
[[listener]]
address = \"127.0.0.1:0\"
";

/// A directory with a CA and a server certificate.
pub(crate) struct Home {
    directory: tempfile::TempDir,
    /// Issues more certificates, into the directory.
    pub(crate) ca: Ca,
    /// The certificate of [`CERTIFICATE`], P-256.
    pub(crate) server: Files,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = temp_dir();
        let ca = Ca::new(directory.path()).unwrap();
        let server = ca.issue("server", &Leaf::server(Key::P256, &["localhost", "*.example.org"])).unwrap();
        Self { directory, ca, server }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes another certificate with another key in the place of [`CERTIFICATE`], and gives it.
    pub(crate) fn renew(&self) -> CertificateDer<'static> {
        let files =
            self.ca.issue("server", &Leaf::server(Key::P256, &["localhost", "*.example.org"])).unwrap();
        CertificateDer::from_pem_file(files.cert).unwrap()
    }

    /// A path in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes the configuration. What every test wants is put before it: the state in the home, the user
    /// who runs the test, a short drain.
    pub(crate) fn configure(&self, text: &str) -> PathBuf {
        let user = match fs::metadata("/proc/self").unwrap().uid() {
            0 => "user = \"root\"\n",
            _ => "",
        };
        let path = self.file("offramp.toml");
        fs::write(&path, format!("state_dir = \"state\"\n{user}{text}")).unwrap();
        path
    }

    /// The configuration of one route to `server` for whoever asks, with [`CERTIFICATE`] and [`LISTENER`].
    pub(crate) fn one_route(server: impl std::fmt::Display) -> String {
        format!("{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{server}\"\n")
    }

    /// Starts Offramp with this configuration and waits until it is ready.
    pub(crate) fn run(self, text: &str) -> Instance {
        let command = offramp(self.path(), &["run", "--config"]);
        self.start(command, text)
    }

    /// The same by this command, which `run --config` or the like is in.
    pub(crate) fn start(self, mut command: Command, text: &str) -> Instance {
        let configuration = self.configure(text);
        let path = self.file("notify.sock");
        let notifications = UnixDatagram::bind(&path).unwrap();
        command.arg(configuration).env("NOTIFY_SOCKET", path);
        let process = Process::start(command, LIFE).unwrap();
        let instance = Instance { process, notifications, home: self };
        instance.wait_for_notification("READY=1");
        instance
    }
}

/// A running Offramp.
pub(crate) struct Instance {
    pub(crate) process: Process,
    notifications: UnixDatagram,
    pub(crate) home: Home,
}

impl Instance {
    /// Starts Offramp in a new home with one route to `server`.
    pub(crate) fn before(server: impl std::fmt::Display) -> Self {
        Home::new().run(&Home::one_route(server))
    }

    /// Where the listener `default` listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address_of("default")
    }

    /// Where this listener listens, as the log says.
    pub(crate) fn address_of(&self, listener: &str) -> SocketAddr {
        self.logged("listening", &format!("listener={listener} "))
    }

    /// Where the metrics are served, as the log says.
    pub(crate) fn metrics(&self) -> SocketAddr {
        self.logged("metrics", "")
    }

    /// The `address=` of a line of the log that has both words; waited for, as the log is written by a
    /// thread of its own.
    fn logged(&self, message: &str, more: &str) -> SocketAddr {
        let message = format!(" {message} ");
        self.until(&format!("the log says `{message}{more}`"), || {
            let lines = self.process.lines(Source::Stderr);
            let line = lines.iter().find(|line| line.contains(&message) && line.contains(more))?;
            let address = line.split("address=").nth(1)?.split_whitespace().next()?;
            address.trim_matches('"').parse().ok()
        })
    }

    /// Waits for a datagram on the notification socket that has this line.
    pub(crate) fn wait_for_notification(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        self.notifications.set_read_timeout(Some(POLL)).unwrap();
        let mut datagram = [0; 4096];
        loop {
            if let Ok(length) = self.notifications.recv(&mut datagram)
                && String::from_utf8_lossy(&datagram[..length]).lines().any(|found| found == line)
            {
                return;
            }
            let ended = self.process.wait(Duration::ZERO);
            assert!(ended.is_err(), "offramp ended before {line}:\n{}", self.process.transcript());
            assert!(Instant::now() < deadline, "no {line}:\n{}", self.process.transcript());
        }
    }

    /// Waits for a line of a notification that begins like this, whichever process sends it, and gives the rest.
    pub(crate) fn notified(&self, beginning: &str) -> String {
        self.notifications.set_read_timeout(Some(POLL)).unwrap();
        self.until(beginning, || {
            let mut datagram = [0; 4096];
            let length = self.notifications.recv(&mut datagram).ok()?;
            let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
            text.lines().find_map(|line| line.strip_prefix(beginning)).map(str::to_owned)
        })
    }

    /// Whether a line that begins like this is among the notifications that came and were not read.
    pub(crate) fn was_notified(&self, beginning: &str) -> bool {
        self.notifications.set_nonblocking(true).unwrap();
        let mut datagram = [0; 4096];
        while let Ok(length) = self.notifications.recv(&mut datagram) {
            if String::from_utf8_lossy(&datagram[..length]).lines().any(|line| line.starts_with(beginning)) {
                return true;
            }
        }
        false
    }

    /// The events so far, in the order in which the connections were accepted: each worker tells of its
    /// own, so that they are not written in the order of their ends.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.process.lines(Source::Stdout);
        let parse =
            |line: &String| -> Value { serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")) };
        let mut events: Vec<_> = lines.iter().map(parse).collect();
        events.sort_by(|one, other| text(one, "time").cmp(text(other, "time")));
        events
    }

    /// Waits for an event that `is` the one, and gives it.
    pub(crate) fn event(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        self.until(&format!("an event: {what}"), || self.events().into_iter().find(|event| is(event)))
    }

    /// Waits until there are `count` events, and gives all.
    pub(crate) fn events_of(&self, count: usize) -> Vec<Value> {
        self.until(&format!("{count} events"), || Some(self.events()).filter(|all| all.len() >= count))
    }

    /// Polls until there is something.
    ///
    /// # Panics
    /// If there is nothing after [`PATIENCE`]; all that Offramp has said is shown.
    pub(crate) fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain: {what}\n{}", self.process.transcript());
            std::thread::sleep(POLL);
        }
    }

    /// Kills it as a crash would, and gives the home for the next process.
    pub(crate) fn crash(self) -> Home {
        self.process.signal(Signal::KILL).unwrap();
        self.process.wait(PATIENCE).unwrap();
        fs::remove_file(self.home.file("notify.sock")).unwrap();
        self.home
    }

    /// Stops it as systemd does, expects that it ends in order, and gives all events.
    pub(crate) fn stop(self) -> Vec<Value> {
        self.process.signal(Signal::TERM).unwrap();
        let status = self.process.wait(PATIENCE).unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.process.transcript());
        let log = self.process.lines(Source::Stderr);
        assert!(!log.iter().any(|line| line.contains("panicked")), "{}", self.process.transcript());
        self.events()
    }
}

/// The text of a field of an event; empty where it is absent.
pub(crate) fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

/// The cause of an event.
pub(crate) fn cause(event: &Value) -> &str {
    text(event, "cause")
}

/// Runs a client that must end by itself within `limit`, with `input` on its standard input, and gives its
/// status and all it said.
///
/// # Panics
/// If it does not start or end.
pub(crate) fn ask(mut command: Command, input: &[u8], limit: Duration) -> Output {
    use std::io::Write as _;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut to_child, input) = (child.stdin.take().unwrap(), input.to_vec());
    // Fails where the client has ended without reading, which its status tells.
    let writer = std::thread::spawn(move || drop(to_child.write_all(&input)));
    let (done, ended) = std::sync::mpsc::channel();
    let id = child.id();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(limit) else {
        kill(id);
        panic!("{command:?} did not end within {limit:?}");
    };
    writer.join().unwrap();
    output.unwrap()
}

/// Ends a child of this test that has not been waited for.
fn kill(id: u32) {
    // The child is not reaped before it is dead, so that the id is still its own.
    let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
}

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);
