//! Parsers for the first bytes of a connection: PROXY headers, the ClientHello, PostgreSQL's request for TLS,
//! and protocol detection.
//!
//! The input comes from a peer that is not authenticated yet. Every parser is a function from the front of a
//! buffer to a [`ParseStep`]: more bytes are needed, a value is complete, or the bytes are rejected with a
//! named fault. Parsers keep no state: call again with the longer buffer when more bytes have arrived. The
//! crate is pure: no sockets, clocks, randomness, runtime or logging, and no other crate of the workspace.
//! HTTP is parsed by `offramp-http`.
//!
//! The main types:
//!
//! - [`ParseStep`], the result of every parser;
//! - [`ClientHello`], a parsed hello, which borrows from the buffer: [`client_hello::peek`] reads one without
//!   consuming it, [`ClientHello::ja4`] computes its fingerprint;
//! - [`proxy::Header`], a received PROXY header, and [`proxy::OutboundHeader`], one to be written to a server;
//! - [`Error`] over [`ProxyFault`], [`HelloFault`] and [`PostgresFault`]; `name` gives a stable word for
//!   metrics.
//!
//! ```
//! use offramp_wire::proxy::{self, ProxyAddresses};
//! use offramp_wire::{DetectedProtocol, ParseStep, sniff};
//!
//! let received = b"PROXY TCP4 192.0.2.1 198.51.100.7 40000 443\r\nGET / HTTP/1.1\r\n";
//! let ParseStep::Done { value: header, consumed } = proxy::parse(received) else { panic!("an incomplete header") };
//! let ProxyAddresses::Tcp { source, .. } = header.addresses else { panic!("no addresses") };
//! assert_eq!(source.to_string(), "192.0.2.1:40000");
//!
//! let rest = &received[consumed..];
//! assert_eq!(sniff(rest), ParseStep::Done { value: DetectedProtocol::Http, consumed: 0 });
//! // A prefix is never rejected: the parser asks for the missing bytes.
//! assert!(matches!(proxy::parse(&received[..10]), ParseStep::Need(_)));
//! ```
//!
//! The modules:
//!
//! - [`proxy`]: PROXY protocol v1 and v2, in both directions
//! - [`client_hello`]: the ClientHello, its JA4 fingerprint, and IANA names of its numbers
//! - [`capture`]: ClientHellos in captures of packets, and in text
//! - [`known`]: well-known clients, their ClientHellos and fingerprints
//! - [`postgres`]: a PostgreSQL client's request for TLS, and the server's reply
//! - [`mod@sniff`]: detection of protocols other than TLS
//! - `step` and `error`: the result and the faults of these parsers
//! - [`json`]: JSON of tokens and request bodies, without doubled names; it reads whole texts, so that it has
//!   no [`ParseStep`]
//!
//! The tests hold these laws:
//!
//! - no input panics, and no input makes a parser allocate more than the bound it states;
//! - the verdict on a prefix is [`ParseStep::Need`] or the verdict on the whole;
//! - parsers read back what encoders wrote, unchanged.

pub mod capture;
pub mod client_hello;
mod error;
pub mod json;
pub mod known;
pub mod postgres;
pub mod proxy;
pub mod sniff;
mod step;

pub use client_hello::ClientHello;
pub use error::{Error, HelloFault, PostgresFault, ProxyFault};
pub use sniff::{DetectedProtocol, sniff};
pub use step::ParseStep;
