//! ClientHellos in files: captures of packets (pcap, pcapng), and hellos in binary, hexadecimal or base64.
//!
//! [`CaptureReader`] takes a capture in pieces of any size, so that the caller decides how much of a large file is
//! read. It follows the first bytes of each TCP connection, whatever the order, the overlaps and the
//! retransmissions of its segments, and keeps those that are a ClientHello. [`hello`] reads a single hello that
//! was written to a file, or sent as text.
//!
//! The bytes come from a file that may be hostile: every table and buffer has a bound, and a damaged packet loses that
//! packet only. What is beyond a bound is counted in [`Capture`].

mod flows;
mod framing;
mod packet;
mod text;

use std::fmt;
use std::net::SocketAddr;

pub use text::hello;

use crate::client_hello::{MAX_HELLO, MAX_RECORDS};
use flows::FlowTable;
use framing::CaptureBlocks;

/// Number of hellos that are kept of a capture.
pub const MAX_HELLOS: usize = 64;

/// A ClientHello of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedHello {
    /// The end that sent it.
    pub client: SocketAddr,
    /// The end that it was sent to.
    pub server: SocketAddr,
    /// The TLS records of the hello.
    pub records: Vec<u8>,
}

/// The content of a capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capture {
    /// The hellos, in the order in which they were complete; at most [`MAX_HELLOS`].
    pub hellos: Vec<CapturedHello>,
    /// Packets that were read.
    pub packets: u64,
    /// Connections that begin like TLS, of whose hello bytes are missing.
    pub incomplete: usize,
}

/// The reason why a file has no ClientHello for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureFault {
    /// Neither pcap nor pcapng.
    NotACapture,
    /// A block or a packet has an impossible length, at this offset in the file.
    BadLength(u64),
    /// The link layer, by its number in the registry of tcpdump, is not supported.
    LinkType(u16),
    /// Neither a TLS record, nor a handshake message, nor hexadecimal or base64 digits of one.
    NotAHello,
    /// The text or the hello is too long.
    TooLong,
}

impl fmt::Display for CaptureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACapture => f.write_str("this is neither a pcap nor a pcapng file"),
            Self::BadLength(offset) => {
                write!(f, "the capture is damaged at byte {offset}: it has a block of impossible length")
            }
            Self::LinkType(number) => write!(
                f,
                "the capture has link type {number}, which is not supported; capture with tcpdump -i any -w FILE"
            ),
            Self::NotAHello => f.write_str(
                "this is no ClientHello: neither a TLS record or handshake message, nor its digits in hexadecimal or \
                 base64",
            ),
            Self::TooLong => write!(
                f,
                "this is longer than a ClientHello can be: {MAX_HELLO} bytes, in {MAX_RECORDS} records at most"
            ),
        }
    }
}

impl std::error::Error for CaptureFault {}

/// Returns true for the first bytes of a pcap or pcapng file.
#[must_use]
pub fn is_capture(front: &[u8]) -> bool {
    framing::is_capture(front)
}

/// Reads a capture piece by piece. Call [`CaptureReader::push`] with each piece, then [`CaptureReader::finish`].
#[derive(Debug, Default)]
pub struct CaptureReader {
    framing: CaptureBlocks,
    flows: FlowTable,
    hellos: Vec<CapturedHello>,
    packets: u64,
}

impl CaptureReader {
    /// Takes the next bytes of the file. Returns false when no more hellos are kept, so that reading can end.
    ///
    /// # Errors
    /// The file is no capture, is damaged, or has a link layer that is not supported. The hellos up to there are
    /// still given by [`CaptureReader::finish`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, CaptureFault> {
        let Self { framing, flows, hellos, packets } = self;
        framing.push(bytes, |link, data| {
            *packets += 1;
            if let Some(segment) = packet::segment(link, data)?
                && let Some(found) = flows.take(&segment)
                && hellos.len() < MAX_HELLOS
                // A retransmission of the segment that completed it.
                && !hellos.contains(&found)
            {
                hellos.push(found);
            }
            Ok(())
        })?;
        Ok(hellos.len() < MAX_HELLOS)
    }

    /// The hellos that were found.
    #[must_use]
    pub fn finish(self) -> Capture {
        let incomplete = self.flows.incomplete();
        Capture { hellos: self.hellos, packets: self.packets, incomplete }
    }
}

#[cfg(test)]
mod tests;
