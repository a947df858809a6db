//! The handshake driver around rustls, and what takes over when it is done.
//!
//! 1. [`Configs::build`] turns a policy, a certificate store and a client-certificate rule into
//!    rustls configurations, with the server's deliberate order of cipher suites ([`setup`]).
//! 2. [`handshake`] drives rustls over a socket and takes the traffic secrets. rustls gets one record at a time, so
//!    that it never sees what follows the last record of the handshake. The handshakes of a worker take turns
//!    ([`HandshakeQueue`]), in an order that is fair to clients when there is too much to do.
//! 3. From then on a [`Session`] has the record layer of the connection, key updates and closing alerts. The relay and
//!    [`Stream`] both send through [`Sending`]. [`Stream`] is all of it as `AsyncRead` and `AsyncWrite`.
//!
//! Towards servers a [`client::Connector`] does the handshake as a client, and the same record layer follows.
//!
//! rustls decides everything about the handshake, and knows nothing of what comes after it.

pub mod client;
mod driver;
mod queue;
mod random;
mod receiving;
mod secrets;
mod sending;
mod session;
pub mod setup;
mod stream;
pub mod tickets;
mod verifier;

pub use driver::{Established, HandshakeError, HandshakeFault, Negotiated, handshake};
pub use queue::{Caller, HandshakeQueue};
pub use receiving::{End, Received};
pub use sending::Sending;
pub use session::{Session, SessionError};
pub use setup::{Ciphers, ClientAuth, Configs, Policy, SetupError};
pub use stream::Stream;
pub use tickets::TicketKeys;
