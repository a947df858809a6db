//! The TLS handshake around rustls, and the established connection that follows.
//!
//! rustls decides everything about the handshake, and knows nothing of what comes after it:
//!
//! 1. [`Configs::build`] turns a policy, a certificate store and a client-certificate rule into rustls
//!    configurations, with the server's deliberate order of cipher suites ([`setup`]).
//! 2. [`handshake`] drives rustls over a socket and takes over the traffic secrets. rustls gets one record at
//!    a time, so that it never sees data behind the last record of the handshake. The handshakes of a worker
//!    take turns ([`HandshakeQueue`]), in an order that is fair to clients under overload.
//! 3. From then on a [`TlsSession`] has the record layer of the connection, key updates and closing alerts. The
//!    relay and [`TlsStream`] both send through [`Sending`]. [`TlsStream`] offers `AsyncRead` and `AsyncWrite`.
//!
//! Towards servers, a [`client::Connector`] does the handshake as a client, and the same record layer
//! follows.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use offramp_record::{LibraryChoice, RecordSize, aead::Library};
//! use offramp_tls::client::{Alpn, Connector, ConnectorSettings, ServerVerification};
//! use offramp_tls::tickets::TicketKeys;
//!
//! // The ticket keys of the process, which the configurations of all routes share.
//! let tickets = Arc::new(TicketKeys::new(Duration::from_secs(3600))?);
//! tickets.rotate()?;
//!
//! // TLS to a server with a pinned public key.
//! let connector = Connector::new(ConnectorSettings {
//!     verify: ServerVerification::Pins(vec![[7; 32]]),
//!     name: "app.example".try_into()?,
//!     sni: None,
//!     certificate: None,
//!     preamble: None,
//!     alpn: Vec::new(),
//!     post_quantum: true,
//!     choice: LibraryChoice::always(Library::AwsLc),
//!     record_size: RecordSize::Adaptive,
//! })?;
//! // Within a runtime: `connector.handshake(&socket, Alpn::Http1).await?.into_stream(socket)`.
//! # let _ = (connector, Alpn::Http1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules:
//!
//! - [`setup`]: policy and certificates to rustls configurations
//! - `driver`: the handshake, and its secrets; `error`, the errors of both roles
//! - `queue`: the CPU budget of handshakes; `line`, the order in which they wait, and `usage`, the time that
//!   clients have used: both pure
//! - `secrets`: the traffic secrets that rustls logs
//! - `session`: opener and sealer of one connection, key updates, closing alerts
//! - `sending`: records on their way to the client
//! - `receiving`: reactions to the events of an opener
//! - `rehearsal`: the answer to a ClientHello without a client
//! - `stream`: the connection as `AsyncRead` and `AsyncWrite`
//! - `verifier`: verification of client certificates
//! - [`tickets`]: session tickets, with the expiry of the client's certificate (`expiry`) and the rule that a
//!   session was made by
//! - `random`: random bytes drawn in large pieces
//! - [`client`]: TLS to servers: one connector per server, with the verification of its certificate, the
//!   sessions that can be resumed, and the handshake as a client

pub mod client;
mod driver;
mod error;
mod queue;
mod random;
mod receiving;
mod rehearsal;
mod secrets;
mod sending;
mod session;
pub mod setup;
mod step;
mod stream;
pub mod tickets;
mod verifier;

pub use driver::{Established, Negotiated, handshake};
pub use error::{HandshakeError, HandshakeFault, PreambleFault, SetupError};
pub use queue::{HandshakeQueue, HandshakeRequest};
pub use receiving::{ReceiveAction, TlsClosure};
pub use rehearsal::ServerChoice;
pub use sending::{FilledBatch, Sending};
pub use session::{SessionError, TlsSession};
pub use setup::{Ciphers, ClientVerification, Configs, Offers, TlsPolicy};
pub use stream::TlsStream;
pub use tickets::TicketKeys;
