//! HTTP without I/O: heads and bodies of HTTP/1, frames and header blocks of HTTP/2, and what fields mean.
//!
//! Everything here reads bytes of peers that are not trusted, or writes bytes for them. The crate is pure: no sockets,
//! clocks, randomness, runtime or logging. Most parsers keep no state between calls. The exceptions are [`h1::Guard`],
//! which follows a connection from request to request, and [`hpack`], whose tables go from block to block.
//!
//! The laws that the tests hold:
//! - no input panics, and no input makes a parser allocate more than the bound it states;
//! - what a prefix of the bytes leads to never contradicts what the whole leads to;
//! - what an encoder wrote, the parser reads back unchanged.
//!
//! | to do | call |
//! | --- | --- |
//! | let pass only requests that have one reading | [`h1::Guard`] |
//! | look at a head, change it, write it | [`head::Request`], [`head::Fields`] |
//! | read the head of a response | [`h1::ResponseReader`] |
//! | pass content on, with its trailers | [`body::Frame`] |
//! | read and write frames of HTTP/2 | [`h2::FrameHeader`] |
//! | read and write the header blocks of HTTP/2 | [`hpack::Decoder`], [`hpack::Encoder`] |
//! | know the host that an authority names | [`host::Authority`] |
//! | check what a request asks for, in any version | [`target::check`], [`target::Scheme`] |
//! | know the client behind trusted proxies | [`forwarded::client`], [`forwarded::x_forwarded_for`] |
//! | remove the fields of one connection | [`semantics::hop_by_hop`] |
//! | remove what a client must not say | [`semantics::protected`] |
//! | know whether a request may be sent again | [`semantics::is_idempotent`] |
//! | know what a path stands for, and how servers may read it | [`path::normalize`], [`path::other_reading`] |
//! | know which file is asked for, which parts of it, and whether the client has it | [`files`] |
//! | choose the form of an error | [`semantics::accept::form`] |
//! | choose the coding of a response | [`semantics::accept_encoding::choose`] |

pub mod body;
pub mod files;
pub mod forwarded;
pub mod h1;
pub mod h2;
pub mod head;
pub mod host;
pub mod hpack;
pub mod html;
pub mod path;
pub mod semantics;
pub mod target;

pub use forwarded::ForwardedFault;
pub use h1::Http1Fault;
pub use host::{Authority, HostFault};
pub use hpack::HpackFault;
