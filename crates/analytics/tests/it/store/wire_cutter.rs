//! A proxy before PostgreSQL that breaks a connection at the byte where it hurts: around the `COMMIT` of a batch.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Where the next connection that commits a batch is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server never gets the `COMMIT`.
    BeforeCommit,
    /// The server commits, and the client never hears of it.
    AfterCommit,
    /// The client's side breaks; the server gets the `COMMIT` only when the client begins again.
    CommitOnReturn,
    /// Nothing is closed and nothing goes on, until [`WireCutter::release`]: then the server gets the `COMMIT`.
    Stall,
    /// The server ends the session when it gets the `COMMIT`, as `pg_terminate_backend` does.
    Terminated,
}

/// The proxy. Its threads end with the process.
pub(crate) struct WireCutter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    socket: PathBuf,
    /// A URL past the proxy.
    direct: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    armed: Option<Cut>,
    cuts: u32,
    /// Transactions that were begun.
    begun: u32,
    /// Whether connections are accepted, and left without an answer.
    holds: bool,
    released: bool,
}

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

impl WireCutter {
    /// Listens before the server of a database.
    pub(crate) fn start(url: &str) -> Self {
        let directory = url.split_once("?host=").unwrap().1;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            socket: Path::new(directory).join(".s.PGSQL.5432"),
            direct: url.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&accepting);
                // A connection that breaks ends its thread, and that is what it is for.
                std::thread::spawn(move || drop(shared.serve(client)));
            }
        });
        Self { address, shared }
    }

    /// The URL through the proxy.
    pub(crate) fn url(&self) -> String {
        let database = self.shared.direct.split_once("@/").unwrap().1.split_once('?').unwrap().0;
        format!("postgres://log@{}/{database}?sslmode=disable", self.address)
    }

    pub(crate) fn arm(&self, cut: Cut) {
        self.shared.state().armed = Some(cut);
    }

    /// Answers no connection from now on, until [`WireCutter::release`].
    pub(crate) fn hold(&self) {
        self.shared.state().holds = true;
    }

    /// Lets what stalls go on.
    pub(crate) fn release(&self) {
        self.shared.state().released = true;
        self.shared.changed.notify_all();
    }

    /// How often it has cut.
    pub(crate) fn cuts(&self) -> u32 {
        self.shared.state().cuts
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let held = |state: &mut State| state.holds && !state.released;
        drop(self.changed.wait_timeout_while(self.state(), PATIENCE, held).unwrap());
        let mut server = UnixStream::connect(&self.socket)?;
        let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || {
            drop(io::copy(&mut answers, &mut back));
            drop(back.shutdown(Shutdown::Both));
        });
        // The first message has no type.
        server.write_all(&message(&mut client, 0)?)?;
        let mut has_rows = false;
        loop {
            let message = message(&mut client, 1)?;
            match message[0] {
                b'd' => has_rows = true,
                b'Q' if message[5..].starts_with(b"BEGIN") => {
                    has_rows = false;
                    server.write_all(&message)?;
                    self.state().begun += 1;
                    self.changed.notify_all();
                    continue;
                }
                b'Q' if message[5..] == *b"COMMIT\0" && has_rows => {
                    let armed = self.state().armed.take();
                    if let Some(cut) = armed {
                        return self.cut(cut, &client, server, &message);
                    }
                }
                _ => {}
            }
            server.write_all(&message)?;
        }
    }

    fn cut(&self, cut: Cut, client: &TcpStream, mut server: UnixStream, commit: &[u8]) -> io::Result<()> {
        let begun = {
            let mut state = self.state();
            state.cuts += 1;
            state.begun
        };
        match cut {
            Cut::BeforeCommit => {
                client.shutdown(Shutdown::Both)?;
                server.shutdown(Shutdown::Both)
            }
            Cut::AfterCommit => {
                client.shutdown(Shutdown::Both)?;
                server.write_all(commit)
            }
            Cut::CommitOnReturn => {
                client.shutdown(Shutdown::Both)?;
                let state = self.state();
                let returned = |state: &mut State| state.begun == begun;
                drop(self.changed.wait_timeout_while(state, PATIENCE, returned).unwrap());
                server.write_all(commit)
            }
            Cut::Stall => {
                let state = self.state();
                let held = |state: &mut State| !state.released;
                drop(self.changed.wait_timeout_while(state, PATIENCE, held).unwrap());
                server.write_all(commit)
            }
            Cut::Terminated => {
                let mut other = postgres::Client::connect(&self.direct, postgres::NoTls).unwrap();
                other
                    .batch_execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = \
                         current_database() AND application_name = 'offramp' AND pid <> pg_backend_pid()",
                    )
                    .unwrap();
                server.write_all(commit)
            }
        }
    }
}

/// One message: a type of so many bytes, a length, and what that says.
fn message(from: &mut impl Read, kind: usize) -> io::Result<Vec<u8>> {
    let mut message = vec![0; kind + 4];
    from.read_exact(&mut message)?;
    let length = u32::from_be_bytes(message[kind..].try_into().unwrap()) as usize;
    message.resize(kind + length, 0);
    from.read_exact(&mut message[kind + 4..])?;
    Ok(message)
}
