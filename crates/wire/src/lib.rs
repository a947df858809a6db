//! Bytes before trust: PROXY headers, ClientHello, the first packets of PostgreSQL, sniffing.
//!
//! Everything here interprets the front of a buffer that an unknown peer filled. The crate is pure: no
//! sockets, clocks, randomness, runtime or logging, and no crate of ours. Every parser is a function from
//! bytes to a [`Step`]: more bytes are needed, a value is done, or the bytes are refused for a named reason.
//! Parsers keep no state between calls; call again with the longer buffer when more bytes have come. HTTP has a crate
//! of its own, `offramp-http`.
//!
//! The laws that the tests hold:
//! - no input panics, and no input makes a parser allocate more than the bound it states;
//! - the verdict on a prefix is [`Step::Need`] or the verdict on the whole;
//! - what an encoder wrote, the parser reads back unchanged.
//!
//! | to do | call |
//! | --- | --- |
//! | see what a client speaks | [`sniff()`] |
//! | read a PROXY header from a trusted source | [`proxy::parse`] |
//! | write a PROXY header to a server | [`proxy::Outbound`] |
//! | know how a client of PostgreSQL begins | [`postgres::peek`] |
//! | look at a ClientHello before the handshake | [`client_hello::peek`] |
//! | fingerprint a client by its ClientHello | [`ClientHello::ja4`] |

pub mod client_hello;
mod error;
pub mod postgres;
pub mod proxy;
pub mod sniff;
mod step;

pub use client_hello::ClientHello;
pub use error::{Error, HelloFault, PostgresFault, ProxyFault};
pub use sniff::{Protocol, sniff};
pub use step::Step;
