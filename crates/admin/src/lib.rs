//! The admin interface: HTTP for operators and for Grafana.
//!
//! It serves an API about the running process, and a Grafana data source over the log store. Both have a thread and an
//! event loop of their own, so that neither a slow client nor a long query delays traffic or reloads.
//!
//! Access: without TLS, every client that reaches the interface can read the log store, so it belongs on a loopback
//! address or a Unix socket. The page is for browsers that log in; [`PageGate`] protects it, also for `offramp ui`. With TLS everything requires the token. The API about the running process is for root and
//! Offramp's own user, and for clients with the token. Changes go to `control`, like those from any other source.
//!
//! The main types:
//!
//! - [`AdminServer`] is the running interface on one address. It ends when dropped; [`AdminServer::leave`]
//!   and [`AdminServer::close`] let answers in progress finish.
//! - [`Settings`] say what it serves: a [`Store`] for Grafana, a [`Control`] for the process, a token, and an
//!   [`AdminCertificate`] for TLS.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//!
//! use offramp_admin::{AdminServer, Mount, Settings};
//! use offramp_net::Address;
//! use offramp_observe::Log;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("admin.sock");
//! let (store, control, token, users, identity) = (None, None, None, None, None);
//! let (hosts, mount, log) = (Default::default(), Mount::Grafana, Log::silent());
//! let settings = Settings { store, control, token, users, hosts, identity, mount, log };
//! let admin = AdminServer::start(&Address::Unix(path.clone()), settings)?;
//!
//! let mut client = UnixStream::connect(path)?;
//! client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200"));
//! drop(admin);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! - `serve`: the listener, and the thread with its event loop
//! - `places`: the limits of connections, per `owner` and in total, and the choice of those to close for new ones
//! - `talk`: the life of a connection, with a time limit for each step
//! - `tls`: the certificate of a TCP address, reloaded when its files change
//! - `service`: routing, methods, bodies
//! - `entry`: entry of browsers and clients over TCP: origins, logins, sessions, delays of wrong tokens
//! - `page`: the page for browsers, below `/ui/`
//! - `caller`: the client as the kernel identifies it, and its admission
//! - `origin`: the web pages that may read answers
//! - `api`: the running process: `operations`, the table of paths from which `openapi` derives; `query`, `read`,
//!   `change`, `connections`, `events`, `document` and `problem`
//! - `query_pool`: limits on queries to the log store; `refusal`, their errors
//! - `grafana`: the data source: `target`, `parameters`, `buckets`, `answer`, `annotations`, `options`
//! - `why`: answers to "why": `routing`, `servers`, `ending`
//! - `error`: failures to start

mod api;
mod caller;
mod entry;
mod error;
mod grafana;
mod origin;
mod owner;
mod page;
mod places;
mod query_pool;
mod refusal;
mod serve;
mod service;
mod talk;
mod tls;
mod why;

pub use api::{Control, ProblemDetails};
pub use entry::{
    AdmittedSession, PageGate, PageRequest, PageUsers, SessionEnd, SessionHolder, secret, secure,
};
pub use error::Error;
pub use grafana::{Mount, target_names};
pub use page::{LOGIN_BYTES, PageFiles, ticket};
pub use query_pool::Store;
pub use serve::{AdminServer, Settings};
pub use tls::AdminCertificate;
pub use why::from_config as why_url;
