//! Bytes before trust: PROXY headers, ClientHello, HTTP/1 requests, HPACK, forwarding fields, sniffing.
//!
//! Everything here interprets the front of a buffer that an unknown peer filled. The crate is pure: no
//! sockets, clocks, randomness, runtime or logging, and no crate of ours. Every parser is a function from
//! bytes to a [`Step`]: more bytes are needed, a value is done, or the bytes are refused for a named reason.
//! Parsers keep no state between calls; call again with the longer buffer when more bytes have come. The
//! exceptions are [`http1::Guard`], which follows a connection from request to request, and [`hpack`], whose
//! tables go from block to block.
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
//! | let pass only requests that have one reading | [`http1::Guard`] |
//! | read and write the header blocks of HTTP/2 | [`hpack::Decoder`], [`hpack::Encoder`] |
//! | know the host that an authority names | [`host::Authority`] |
//! | check what a request asks for, in any version | [`target::check`], [`target::Scheme`] |
//! | know the client behind trusted proxies | [`forwarded::client`], [`forwarded::x_forwarded_for`] |
//! | choose between JSON and text for an error | [`accept::prefers_json`] |

pub mod accept;
pub mod client_hello;
mod error;
pub mod forwarded;
pub mod host;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod postgres;
pub mod proxy;
pub mod sniff;
mod step;
pub mod target;

pub use client_hello::ClientHello;
pub use error::{Error, HelloFault, PostgresFault, ProxyFault};
pub use forwarded::ForwardedFault;
pub use host::{Authority, HostFault};
pub use hpack::HpackFault;
pub use http1::Http1Fault;
pub use sniff::{Protocol, sniff};
pub use step::Step;
