//! What the harness and its two helper processes, the backend and the load, say to each other.
//!
//! Lines of JSON over the helper's standard input and output. A load gets its `LoadSpec`, connects and
//! warms up, says `ready`, and waits for `go`; it then works for the agreed time, lets what is under way
//! finish, and says what it did. Nothing is under way at `ready` and at `done`, so that the CPU time read
//! at those two moments belongs to the counted units and to nothing else. Both end when their input ends.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// Where the backend listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// A free port of 127.0.0.1.
    Tcp,
    /// A Unix socket at this path.
    Unix(PathBuf),
}

/// What the backend does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Service {
    /// Sends back what it gets.
    Echo,
    /// Answers each `request` bytes with `response` bytes.
    Exchange { request: usize, response: usize },
    /// Answers each HTTP/1.1 request, whose body has `request` bytes, with a body of `response` bytes.
    Http { request: usize, response: usize },
    /// Answers each request of HTTP/2, whatever it is, as a unary call of gRPC with a message of `response` bytes.
    Grpc { response: usize },
}

/// A certificate and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// The order to a backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BackendSpec {
    pub(crate) place: Place,
    pub(crate) service: Service,
    /// What it shows within TLS; `None`: it speaks plain text. On TCP alone.
    pub(crate) tls: Option<Credentials>,
}

/// The protocol versions that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    /// TLS 1.2 with ECDHE and AES-128-GCM.
    Tls12,
    /// TLS 1.3 with AES-128-GCM.
    Tls13,
}

/// The key exchange groups that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Group {
    /// X25519.
    X25519,
    /// X25519MLKEM768, the post-quantum hybrid.
    X25519MlKem768,
}

/// The order to a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadSpec {
    /// The proxy under test.
    pub(crate) target: SocketAddr,
    pub(crate) version: Version,
    pub(crate) group: Group,
    /// What clients show.
    pub(crate) client: Option<Credentials>,
    pub(crate) work: Work,
}

/// The kinds of load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Request after request on kept connections, each connection waiting for its answer.
    Relay { connections: usize, request: usize, response: usize, seconds: f64, warmup: f64 },
    /// Connect, handshake, perhaps one exchange, close; over and over, `concurrency` at a time.
    Handshake {
        concurrency: usize,
        resumed: bool,
        exchange: Option<(usize, usize)>,
        /// Seconds from the start of one to the start of the next; 0: as soon as the last has ended.
        every: f64,
        seconds: f64,
        warmup: f64,
    },
    /// Connections that made one exchange and then stay silent until the load is stopped.
    Idle { connections: usize, exchange: Exchange },
    /// Requests that arrive at fixed times whether or not earlier ones are answered; latency counts from
    /// the time of arrival, so that a stall shows in every request that it delays.
    Rate { connections: usize, request: usize, response: usize, rate: f64, seconds: f64, warmup: f64 },
    /// Connections that send one byte of a request each `interval` seconds, until the load is stopped.
    Drip { connections: usize, interval: f64 },
}

/// One question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Exchange {
    /// So many bytes each way.
    Bytes { request: usize, response: usize },
    /// An HTTP/1.1 GET and its response, whose length the response says.
    Get,
}

/// What a helper says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The backend listens here.
    Listening(Found),
    /// The load has warmed up and nothing is under way.
    Ready,
    /// The load has done its work.
    Done(LoadResult),
    /// It cannot go on.
    Failed(String),
}

/// Where a backend was found listening, as proxies are to be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Found {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What a load did between `go` and `done`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadResult {
    /// Requests or handshakes that succeeded.
    pub(crate) units: u64,
    /// Those that failed.
    pub(crate) errors: u64,
    /// The first failure.
    pub(crate) first_error: Option<String>,
    /// Handshakes that resumed a session.
    pub(crate) resumed: u64,
    /// From `go` to the last answer, in seconds.
    pub(crate) seconds: f64,
    /// Latency in microseconds: `mean`, `stdev`, `p50` … `p999`, `max`.
    pub(crate) latency: BTreeMap<String, f64>,
}

/// Prints one line of JSON on standard output.
///
/// # Errors
/// When the harness has gone.
pub(crate) fn say(event: &Event) -> Result<()> {
    use std::io::Write;
    let mut line =
        serde_json::to_vec(event).map_err(|e| Error::io("encoding a message", std::io::Error::other(e)))?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(|e| Error::io("telling the harness", e))
}

/// Reads the order, which is the first line of standard input.
///
/// # Errors
/// When there is none, or it is not one.
pub(crate) fn order<T: DeserializeOwned>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Error::io("reading the order", e))?;
    serde_json::from_str(&line)
        .map_err(|e| Error::Usage(format!("this is a helper of `offramp-bench run`, not a command: {e}")))
}

/// The following lines of standard input; the channel closes when the harness has gone.
pub(crate) fn words() -> tokio::sync::mpsc::Receiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
