//! Parser of chunked content, in place.

use std::ops::Range;

use super::HeadLimits;
use super::chunked::{ChunkStep, ChunkedReader};
use crate::fault::Http1Fault;

/// Splits a chunked message into its parts (RFC 9112 §7.1).
///
/// Call [`Chunks::next`] with the bytes that are not used up, until it returns [`Chunk::Wait`], and again
/// when more have arrived. It rejects what the [`Guard`](super::Guard) rejects. Behind the end, and behind a
/// fault, it repeats its last result.
#[derive(Debug)]
pub struct Chunks {
    chunked: ChunkedReader,
    over: Option<Result<(), Http1Fault>>,
}

/// Next part of a chunked message. Ranges count from the front of the given bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// More bytes are needed; this many from the front are used up. The rest is at most [`HeadLimits::head`]
    /// or a chunk-size line long, whichever is longer.
    Wait(usize),
    /// Content at this range, which is not empty, behind framing. Everything up to its end is used up.
    Data(Range<usize>),
    /// End of the message, with the range of its trailer lines (without the empty line).
    /// [`fields`](super::fields()) splits the lines.
    End {
        /// Range of the trailer lines.
        trailers: Range<usize>,
        /// Number of bytes used up in all.
        length: usize,
    },
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunks {
    /// Starts a message of a client, which is held to the grammar.
    #[must_use]
    pub fn new() -> Self {
        Self { chunked: ChunkedReader::new(), over: None }
    }

    /// Starts a message of a server: whitespace behind a size, extensions of any form up to
    /// [`MAX_CHUNK_LINE`](super::MAX_CHUNK_LINE) and trailers of any name are accepted, since none of them
    /// changes where a chunk ends, and none is forwarded as it is.
    #[must_use]
    pub fn of_server() -> Self {
        Self { chunked: ChunkedReader::of_server(), over: None }
    }

    /// Parses the next part of `bytes`, which begin behind those used up before.
    ///
    /// # Errors
    /// The reason for the rejection (RFC 9112 §7.1).
    pub fn next(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Chunk, Http1Fault> {
        if let Some(over) = self.over {
            return over.map(|()| Chunk::End { trailers: 0..0, length: 0 });
        }
        let mut at = 0;
        loop {
            match self.chunked.step(&bytes[at..], limits) {
                Ok(ChunkStep::Framing(length)) => at += length,
                Ok(ChunkStep::Data(length)) => return Ok(Chunk::Data(at..at + length)),
                Ok(ChunkStep::Wait) => return Ok(Chunk::Wait(at)),
                Ok(ChunkStep::End { trailers, length }) => {
                    self.over = Some(Ok(()));
                    return Ok(Chunk::End { trailers: at..at + trailers, length: at + length });
                }
                Err(fault) => {
                    self.over = Some(Err(fault));
                    return Err(fault);
                }
            }
        }
    }
}

/// Names and values of an accepted section of lines with their ends, without surrounding whitespace;
/// for the trailers of [`Chunk::End`]. Lines without a colon are skipped.
pub fn fields(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    section.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii()))
    })
}
