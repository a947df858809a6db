//! Endless reproducible bytes, and checksums of byte streams: for transfers too large to keep.

use std::fmt;

use ring::digest::{Context, SHA256};

/// A stream of bytes that follows from its seed alone (xorshift64*).
#[derive(Clone, Debug)]
pub struct Pattern {
    state: u64,
    spare: [u8; 8],
    /// How many bytes of `spare` are used up.
    used: usize,
}

impl Pattern {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // The generator stands still at 0.
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15 | 1, spare: [0; 8], used: 8 }
    }

    /// Writes the next bytes of the stream over `buffer`.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for byte in buffer {
            if self.used == self.spare.len() {
                self.spare = self.next().to_le_bytes();
                self.used = 0;
            }
            *byte = self.spare[self.used];
            self.used += 1;
        }
    }

    /// The sum of the next `length` bytes.
    #[must_use]
    pub fn sum(mut self, length: u64) -> String {
        let (mut sum, mut chunk, mut left) = (Sum::new(), vec![0; 64 * 1024], length);
        while left > 0 {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            self.fill(&mut chunk[..take]);
            sum.add(&chunk[..take]);
            left -= take as u64;
        }
        sum.to_string()
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Length and SHA-256 of a stream; prints as `LENGTH HEX`.
#[derive(Clone)]
pub struct Sum {
    length: u64,
    digest: Context,
}

impl Sum {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { length: 0, digest: Context::new(&SHA256) }
    }

    /// Takes in more of the stream.
    pub fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.digest.update(bytes);
    }

    /// How many bytes were taken in.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Default for Sum {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.length)?;
        self.digest.clone().finish().as_ref().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
