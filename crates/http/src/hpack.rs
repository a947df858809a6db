//! HPACK without I/O: header blocks of HTTP/2 into fields and back (RFC 7541).
//!
//! An [`HpackDecoder`] and an [`HpackEncoder`] each belong to one direction of one connection, because every
//! block changes the table that the next one is decoded with. Blocks are therefore decoded whole and in the
//! order of arrival, even those of streams that are closed.
//!
//! **Class of a field.** It is determined once, when the field arrives as a literal:
//! [`FieldClass`](crate::field::FieldClass) also says if the field is valid (RFC 9113 §8.2, §8.3). The
//! decoder's table stores it with the field's line, in the form that heads have, so that a repeated field is
//! one copy. Invalid fields are not rejected here; names and values may contain any byte.
//!
//! **Bounds.** A decoder holds at most twice the table that it offered, and one literal, with strings of at
//! most 8/5 of their coded length. An index of one byte stands for up to a whole table, so the caller counts
//! the sizes of fields and stops at its own limit (RFC 9113 §10.5.1).
//!
//! A fault leaves the tables of decoder and peer out of sync: the connection ends with COMPRESSION_ERROR (RFC
//! 9113 §4.3).

mod decode;
mod encode;
mod fault;
mod hash;
mod huffman;
mod integer;
mod received;
mod sent;
mod tables;

pub use decode::{DecodedField, HpackDecoder};
pub use encode::{HpackEncoder, Indexing};
pub use fault::HpackFault;
pub use tables::STATIC;

/// Size that a field counts beyond its bytes, in tables and in lists (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// Default size of a table (RFC 9113 §6.5.2).
const INITIAL: usize = 4096;
