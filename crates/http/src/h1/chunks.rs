//! Chunked content for whoever reads it, in the place where it arrived.

use std::ops::Range;

use super::chunked::{ChunkStep, Chunked};
use super::{Http1Fault, Limits};

/// Takes one message apart that comes in chunks (RFC 9112 §7.1).
///
/// Call [`Chunks::next`] with what has arrived and was not used up, until it says [`Chunk::Wait`], and again
/// when there is more. It refuses what the [`Guard`](super::Guard) refuses. Behind the end, and behind a fault,
/// it says the same again.
#[derive(Debug)]
pub struct Chunks {
    chunked: Chunked,
    over: Option<Result<(), Http1Fault>>,
}

/// What is next in a chunked message. Ranges count from the front of the bytes that were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// More bytes are needed; so many from the front are used up. What is left is at most
    /// [`Limits::head`] or a line of a chunk size long, whichever is longer.
    Wait(usize),
    /// Content lies at this range, which is not empty; what stands before it is framing. Everything up to its
    /// end is used up.
    Data(Range<usize>),
    /// The message has ended: its trailer lines (without the empty line) lie at this range, and so many bytes
    /// are used up in all. [`fields`](super::fields) takes the lines apart.
    End {
        /// Where the trailers stand.
        trailers: Range<usize>,
        /// How many bytes are used up.
        length: usize,
    },
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new()
    }
}

impl Chunks {
    /// At the start of a message of a client, which is held to the letter.
    #[must_use]
    pub fn new() -> Self {
        Self { chunked: Chunked::new(), over: None }
    }

    /// At the start of a message of a server: whitespace behind a size, extensions of any form up to
    /// [`MAX_CHUNK_LINE`](super::MAX_CHUNK_LINE), and trailers of any name are let pass, since none of them
    /// changes where a chunk ends, and none is passed on as it stands.
    #[must_use]
    pub fn of_server() -> Self {
        Self { chunked: Chunked::of_server(), over: None }
    }

    /// What is next in `bytes`, which begin behind what was used up before.
    ///
    /// # Errors
    /// Why the message is refused (RFC 9112 §7.1).
    pub fn next(&mut self, bytes: &[u8], limits: &Limits) -> Result<Chunk, Http1Fault> {
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

/// The fields of a section that was accepted, each line with its end: names and values, without the whitespace around
/// them. For trailers as [`Chunk::End`] tells of them. Lines without a colon are left out.
pub fn fields(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    section.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii()))
    })
}
