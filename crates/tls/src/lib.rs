//! The handshake driver around rustls, and what takes over when it is done.
//!
//! 1. [`Configs::build`] turns a policy, a certificate store and a client-certificate rule into
//!    rustls configurations, with the server's deliberate order of cipher suites ([`setup`]).
//! 2. [`handshake`] drives rustls over a socket, one record at a time, so that nothing beyond the
//!    last handshake record is touched, then takes the traffic secrets. The handshakes of a worker take turns
//!    ([`HandshakeQueue`]).
//! 3. A [`Session`] holds the record layer of the connection from then on, with key updates and the
//!    closing alerts; both the relay and [`Stream`] send through [`Sending`]. [`Stream`] wraps all in `AsyncRead`/`AsyncWrite`.
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
pub use queue::HandshakeQueue;
pub use receiving::{End, Received};
pub use sending::Sending;
pub use session::{Session, SessionError};
pub use setup::{ClientAuth, Configs, Policy, SetupError};
pub use stream::Stream;
pub use tickets::TicketKeys;
