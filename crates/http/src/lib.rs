//! HTTP without I/O: heads and bodies of HTTP/1, frames and header blocks of HTTP/2, and the semantics of
//! fields.
//!
//! Everything here reads bytes of untrusted peers, or writes bytes for them. The crate is pure: no sockets,
//! clocks, randomness, runtime or logging. Most parsers keep no state between calls. The exceptions are
//! [`h1::Guard`], which follows a connection from request to request, [`h2::connection::Connection`], and
//! [`hpack`], with tables that change with each block.
//!
//! The main types:
//!
//! - [`h1::Guard`] inspects the bytes of an HTTP/1 client and passes only requests that have a single
//!   reading;
//! - [`head::Request`] and [`head::Response`] hold the bytes of a head and an index over them, for lookups
//!   and edits;
//! - [`h2::connection::Connection`] is an HTTP/2 connection in either role, a state machine without a socket;
//! - [`body::Frame`] is a part of the content on its way: data, or trailers.
//!
//! ```
//! use offramp_http::h1::{Guard, HeadLimits, GuardOutcome};
//! use offramp_http::head::{Known, KnownSet, Request};
//!
//! let received = b"GET /a?b HTTP/1.1\r\nHost: example.test\r\nAccept: */*\r\n\r\n";
//! let mut guard = Guard::new(HeadLimits::default());
//! let inspected = guard.inspect(received);
//! let GuardOutcome::Head(head) = inspected.outcome else { panic!("an incomplete or invalid head") };
//!
//! let mut request = Request::new();
//! request.load(&head, &guard, &received[..inspected.pass])?;
//! assert_eq!((request.path(), request.host()), ("/a", Some(&b"example.test"[..])));
//!
//! request.fields.set(b"x-request-id", b"42");
//! request.fields.remove(Known::Accept);
//! let mut out = Vec::new();
//! request.write(KnownSet::of(&[]), &mut out);
//! assert_eq!(out, b"GET /a?b HTTP/1.1\r\nhost: example.test\r\nx-request-id: 42\r\n");
//! # Ok::<(), offramp_http::Http1Fault>(())
//! ```
//!
//! | to do | call |
//! | --- | --- |
//! | pass only requests that have a single reading | [`h1::Guard`] |
//! | read, edit and write a head | [`head::Request`], [`head::Fields`] |
//! | parse the head of a response | [`h1::ResponseReader`] |
//! | pass content on, with its trailers | [`body::Frame`] |
//! | read and write frames of HTTP/2 | [`h2::FrameHeader`] |
//! | read and write the header blocks of HTTP/2 | [`hpack::HpackDecoder`], [`hpack::HpackEncoder`] |
//! | parse an authority | [`host::Authority`] |
//! | know a field by number, validate names and values | [`field::Known`], [`field::is_name`], [`field::is_text`] |
//! | validate the target of a request, in any version | [`target::check`], [`target::Scheme`] |
//! | find the client behind trusted proxies | [`forwarded::client`], [`forwarded::x_forwarded_for`] |
//! | remove the fields of one connection | [`semantics::hop_by_hop`] |
//! | remove fields that clients must not set | [`semantics::protected`] |
//! | decide if a request may be repeated | [`semantics::is_idempotent`] |
//! | normalise a path, and enumerate its other readings | [`path::normalize`], [`path::other_reading`] |
//! | evaluate a request for a file: path, ranges, conditions | [`files`] |
//! | choose the format of an error page | [`semantics::accept::form`] |
//! | choose the coding of a response | [`semantics::accept_encoding::choose`] |
//!
//! The modules:
//!
//! - [`head`]: the head of a message: its bytes and an index over them, edits, and the writer
//! - [`body`]: content in parts: data, trailers
//! - [`field`]: well-known names by number, positions of fields, classes of HTTP/2 fields; `fault`, the
//!   reasons for rejecting HTTP/1, and `scan`, the search for bytes of a class
//! - [`h1`]: the guard before requests, chunked content, and the heads of responses
//! - [`h2`]: a connection in either role: frames, streams, flow control, priorities, accounting of abusive
//!   frames; `linger`, streams with a complete response and an incomplete request
//! - [`hpack`]: header blocks, into the form of heads
//! - [`target`]: the target of a request, one check for all versions
//! - [`path`]: the normal form of a path; `reading`, the other ways in which servers read one; `escape`, the
//!   decoder
//! - [`host`]: host and port
//! - [`html`]: text in pages
//! - [`files`]: requests for files: paths, conditions, ranges; directory listings
//! - [`forwarded`]: the client reported by trusted proxies
//! - [`semantics`]: `hop_by_hop`, the fields of one connection; `protected`, fields that clients must not
//!   set; header rules, and the `variables` in them; idempotent methods; `accept`
//!
//! The tests hold these laws:
//!
//! - no input panics, and no input makes a parser allocate more than the bound it states;
//! - the result for a prefix never contradicts the result for the whole;
//! - parsers read back what encoders wrote, unchanged.

pub mod body;
mod fault;
pub mod field;
pub mod files;
pub mod forwarded;
pub mod h1;
pub mod h2;
pub mod head;
pub mod host;
pub mod hpack;
pub mod html;
pub mod path;
mod scan;
pub mod semantics;
pub mod target;

pub use fault::Http1Fault;
pub use forwarded::ForwardedFault;
pub use host::{Authority, HostFault};
pub use hpack::HpackFault;
