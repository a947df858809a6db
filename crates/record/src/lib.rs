//! TLS record protection, in place and without I/O.
//!
//! rustls does the handshake and hands over its traffic secrets. From then on this crate *seals* plaintext into records
//! and *opens* records into plaintext. It works in the buffer where the bytes lie, on a batch per call, and does not
//! allocate. It speaks TLS 1.3 (RFC 8446 §5) and the AEAD suites of TLS 1.2 (RFC 5246 §6.2, RFC 5288, RFC 7905).
//!
//! The calling order, per direction:
//!
//! 1. *Keys.* [`KeyMaterial`] is what a handshake yields for one direction; [`Sealer::new`] and
//!    [`Opener::new`] take it with the sequence number that rustls had reached. In TLS 1.3 a [`TrafficSecret`] gives
//!    the keys that follow a KeyUpdate.
//! 2. *Sending.* [`Sealer::layout`] says where plaintext slots lie in a block of memory. The caller reads from the
//!    application straight into them ([`Layout::slots`]). [`Sealer::seal`] then turns the filled part of the block
//!    into contiguous records, ready for one `send`.
//! 3. *Receiving.* [`Opener::open`] opens all whole records at the front of a buffer. Their plaintext stays where it
//!    is, and its [`Span`]s are noted. It stops at an [`Event`]: anything that may change keys or end the connection.
//! 4. *Duties.* An event says what the caller must do next: fetch new keys and call
//!    [`Opener::rekey`], answer with a KeyUpdate, send the alert of a [`Fault`] and close.
//!    [`Sealer::pressure`] says when keys are used up.
//!
//! Nothing here knows sockets, clocks, randomness or logging; time is an argument of [`Pacing`].
//! What it refuses to do: handshakes, renegotiation, compression, CBC suites, TLS 1.1 and older.

pub mod aead;
mod alert;
mod block;
mod event;
mod expanded;
mod keys;
mod limits;
mod measure;
mod open;
mod pacing;
mod posthandshake;
mod schedule;
mod seal;
mod suite;

pub use alert::Alert;
pub use block::{Layout, MAX_PLAINTEXT};
pub use event::{Event, Fault, Opened, Span};
pub use keys::KeyMaterial;
pub use limits::Pressure;
pub use measure::{Choice, Measured, measure};
pub use open::{HEADER, MAX_RECORD, Opener, whole_record};
pub use pacing::{Pacing, RecordSize};
pub use schedule::TrafficSecret;
pub use seal::{ContentType, Sealer};
pub use suite::{Suite, Version};
