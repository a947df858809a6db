//! TLS record protection, in place and without I/O.
//!
//! rustls completes the handshake and hands over its traffic secrets. From then on this crate *seals*
//! plaintext into records and *opens* records into plaintext: in the buffer that holds the bytes, a batch per
//! call, without allocation. It supports TLS 1.3 (RFC 8446 §5) and the AEAD suites of TLS 1.2 (RFC 5246 §6.2,
//! RFC 5288, RFC 7905). Handshakes, renegotiation, compression, CBC suites, TLS 1.1 and older are out of
//! scope. The crate uses no sockets, clocks, randomness or logging; time is an argument of [`Pacing`].
//!
//! The calling order, per direction:
//!
//! 1. *Keys.* [`KeyMaterial`] is what a handshake yields for one direction; [`Sealer::new`] and
//!    [`Opener::new`] take it with the sequence number that rustls had reached. In TLS 1.3 a
//!    [`TrafficSecret`] derives the keys that follow a KeyUpdate.
//! 2. *Sending.* [`Sealer::layout`] places plaintext slots in a block of memory. The caller reads from the
//!    application straight into them ([`Layout::slots`]). [`Sealer::seal`] then turns the filled part of the
//!    block into contiguous records, ready for one `send`.
//! 3. *Receiving.* [`Opener::open`] opens all whole records at the front of a buffer. Their plaintext stays
//!    in place, and its [`PlaintextSpan`]s are written to a list. It stops at a [`RecordEvent`]: anything that may change
//!    keys or end the connection.
//! 4. *Duties.* An event says what the caller must do next: derive new keys and call [`Opener::rekey`],
//!    answer with a KeyUpdate, send the alert of a [`RecordFault`] and close. [`Sealer::pressure`] says when a key
//!    is used up.
//!
//! ```
//! use offramp_record::aead::Library;
//! use offramp_record::{KeyMaterial, LibraryChoice, Opener, PlaintextSpan, RecordEvent, Sealer, Suite, Version};
//!
//! let choice = LibraryChoice::always(Library::Ring);
//! let keys = KeyMaterial::new(Version::Tls13, Suite::Aes128Gcm, &[7; 16], [9; 12], 0).expect("a key of 16 bytes");
//! let mut sealer = Sealer::new(&keys, &choice);
//! let mut opener = Opener::new(&keys, &choice);
//!
//! let mut block = vec![0; 4096];
//! let layout = sealer.layout(1024, block.len(), 3);
//! let filled = layout.fill(&mut block, [b"hello, ".as_slice(), b"world"]);
//! let length = sealer.seal(&layout, &mut block, filled);
//!
//! let received = &mut block[..length];
//! let mut spans = [PlaintextSpan::default(); 4];
//! let opened = opener.open(received, &mut spans);
//! assert!(matches!(opened.event, RecordEvent::NeedMore(_)));
//! assert_eq!(spans[0].of(received), b"hello, world");
//! ```
//!
//! The modules:
//!
//! - `suite` and `keys`: versions, AEADs, and the key material of one direction
//! - `block`: the geometry of a batch: head room, plaintext, tag
//! - `seal`, and `pacing`: the size of the next records
//! - `open` and `event`: opening stops at whatever may change keys
//! - `posthandshake`: key updates, declined renegotiation, session tickets
//! - `schedule`: the keys after a KeyUpdate
//! - `limits`: how long a key may be used
//! - `expanded`: the expanded keys of a thread
//! - [`aead`] (the seam to ring and aws-lc-rs) and `measure` (which of them is faster)
//! - `alert`: alerts as they are sent, received and named

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
pub use event::{OpenedBatch, PlaintextSpan, RecordEvent, RecordFault};
pub use keys::KeyMaterial;
pub use limits::KeyDemand;
pub use measure::{LibraryChoice, Measured, measure};
pub use open::{HEADER, MAX_RECORD, Opener, whole_record};
pub use pacing::{Pacing, RecordSize};
pub use schedule::TrafficSecret;
pub use seal::{ContentType, Sealer};
pub use suite::{Suite, Version};
