//! HPACK without I/O: header blocks of HTTP/2 into fields and back (RFC 7541).
//!
//! A [`Decoder`] and an [`Encoder`] belong to one direction of one connection each, because every block changes
//! the table that the next one is read with. Blocks are therefore decoded whole and in the order of their
//! arrival, also those of streams that nobody wants any more.
//!
//! **What a field is** is found out once, when it comes as a literal: [`Kind`](crate::head::Kind) says it, and whether the
//! field may be one (RFC 9113 §8.2, §8.3). The decoder's table keeps that with the field's line, in the form that heads
//! have, so that a field that comes again is one copy. Nothing is refused here for it; any byte may occur in names and
//! values.
//!
//! **What a block may cost.** A decoder holds at most twice the table that it offered, and one literal, whose strings are
//! at most 8/5 of their coded length. An index of one byte stands for up to a whole table, so whoever
//! reads counts the sizes that it is told and stops by its own limit (RFC 9113 §10.5.1).
//!
//! A fault leaves decoder and peer with different tables: the connection ends with COMPRESSION_ERROR (RFC 9113
//! §4.3).

mod decode;
mod encode;
mod fault;
mod hash;
mod huffman;
mod integer;
mod received;
mod sent;
mod tables;

pub use decode::{Decoder, Field};
pub use encode::{Encoder, Indexing};
pub use fault::HpackFault;
pub use tables::STATIC;

/// What a field counts beyond its bytes, in sizes of tables and of lists (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// The size of a table before anybody has said another (RFC 9113 §6.5.2).
const INITIAL: usize = 4096;
