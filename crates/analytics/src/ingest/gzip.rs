//! gzip decompression (RFC 1952) of consecutive members.

use std::fmt;
use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

use super::parts::{CompressedPart, next_part};

/// A reader that decompresses another.
pub(super) struct Gzip<R> {
    state: GzipState<R>,
    /// Bytes in the reader's buffer that are neither a member nor padding.
    strange: Option<usize>,
}

enum GzipState<R> {
    Within(Box<GzDecoder<R>>),
    Between(R),
    /// The placeholder during a change of state.
    Moving,
}

impl<R> fmt::Debug for Gzip<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gzip").field("strange", &self.strange).finish_non_exhaustive()
    }
}

impl<R: BufRead> Gzip<R> {
    pub(super) const fn new(reader: R) -> Self {
        Self { state: GzipState::Between(reader), strange: None }
    }

    /// The number of trailing bytes read that are not compressed data.
    pub(super) const fn strange(&self) -> Option<usize> {
        self.strange
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, GzipState::Moving) {
                GzipState::Within(mut decoder) => match decoder.read(buffer) {
                    Ok(0) if !buffer.is_empty() => self.state = GzipState::Between(decoder.into_inner()),
                    result => {
                        self.state = GzipState::Within(decoder);
                        return result;
                    }
                },
                GzipState::Between(mut reader) => match next_part(&mut reader, &[MEMBER]) {
                    Ok(CompressedPart::Begins) => {
                        self.state = GzipState::Within(Box::new(GzDecoder::new(reader)));
                    }
                    other => {
                        self.state = GzipState::Between(reader);
                        if let CompressedPart::Strange(bytes) = other? {
                            self.strange = Some(bytes);
                        }
                        return Ok(0);
                    }
                },
                // A panic of the decoder lost the reader.
                GzipState::Moving => return Ok(0),
            }
        }
    }
}

/// The first bytes of a member with the only method defined (RFC 1952 §2.3).
pub(super) const MEMBER: &[u8] = &[0x1f, 0x8b, 8];

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::Gzip;

    fn compress(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// Decompresses with a read buffer of `capacity` bytes; returns the text, and `true` if other bytes
    /// follow it.
    fn decompress(bytes: &[u8], capacity: usize) -> std::io::Result<(Vec<u8>, bool)> {
        let mut found = Vec::new();
        let mut gzip = Gzip::new(BufReader::with_capacity(capacity, bytes));
        gzip.read_to_end(&mut found)?;
        Ok((found, gzip.strange().is_some()))
    }

    #[test]
    fn members_and_padding_follow_each_other() {
        let (one, two) = (compress(b"one\n"), compress(b"two\n"));
        let empty = compress(b"");
        let zeros = vec![0; 70_000];
        for (parts, content, is_strange) in [
            (&[&one[..]][..], &b"one\n"[..], false),
            (&[&one, &two], b"one\ntwo\n", false),
            (&[&one, &empty, &two], b"one\ntwo\n", false),
            (&[&one, &[0]], b"one\n", false),
            (&[&one, &zeros], b"one\n", false),
            (&[&one, &[0; 3], &two, &zeros], b"one\ntwo\n", false),
            (&[&empty, &zeros], b"", false),
            (&[&one, b"rubbish"], b"one\n", true),
            (&[&one, &zeros, b"rubbish"], b"one\n", true),
            (&[&one, b"\x1e"], b"one\n", true),
        ] {
            let whole = parts.concat();
            for capacity in [1, 2, 3, 5, 7, 100, 65_536] {
                let found = decompress(&whole, capacity).unwrap();
                assert_eq!(found, (content.to_vec(), is_strange), "{capacity} {:?}", content.escape_ascii());
            }
        }
    }

    #[test]
    fn a_member_that_is_cut_or_damaged_is_an_error() {
        let whole = [compress(&b"a line of a log\n".repeat(1000)), compress(b"two\n")].concat();
        let first = compress(&b"a line of a log\n".repeat(1000)).len();
        for end in (1..whole.len()).filter(|end| *end != first) {
            assert!(decompress(&whole[..end], 100).is_err(), "cut after {end} of {}", whole.len());
        }
        let mut damaged = whole;
        damaged[first - 6] ^= 1;
        assert!(decompress(&damaged, 100).is_err(), "the checksum does not match");
    }
}
