//! Zstandard decompression (RFC 8878) of consecutive frames, with their checksums.

use std::fmt;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::parts::{CompressedPart, next_part};

/// A reader that decompresses another.
pub(super) struct Zstd<R> {
    reader: R,
    decoder: FrameDecoder,
    /// Set within a frame.
    within: bool,
    /// Bytes in the reader's buffer that are neither a frame nor padding.
    strange: Option<usize>,
}

impl<R> fmt::Debug for Zstd<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("within", &self.within).finish_non_exhaustive()
    }
}

impl<R> Zstd<R> {
    /// Returns `true` for the first bytes of a frame, skippable ones included (RFC 8878 §§3.1.1, 3.1.2).
    pub(super) fn is_frame(first: &[u8]) -> bool {
        matches!(first, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
    }

    pub(super) fn new(reader: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(LARGEST_WINDOW);
        Self { reader, decoder, within: false, strange: None }
    }

    /// The number of trailing bytes read that are not compressed data.
    pub(super) const fn strange(&self) -> Option<usize> {
        self.strange
    }
}

impl<R: BufRead> Zstd<R> {
    /// Starts the next frame; returns `false` at the end.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            match next_part(&mut self.reader, &FRAMES)? {
                CompressedPart::Begins => {}
                CompressedPart::End => return Ok(false),
                CompressedPart::Strange(bytes) => {
                    self.strange = Some(bytes);
                    return Ok(false);
                }
            }
            match self.decoder.reset(&mut self.reader) {
                Ok(()) => {
                    self.within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.reader).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error)),
            }
        }
    }

    /// Ends a frame: its checksum must be that of the output.
    fn end(&mut self) -> io::Result<()> {
        self.within = false;
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(written), Some(read)) if written != read => Err(invalid("the checksum does not match")),
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.within && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.reader, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(invalid)?;
            }
            match self.decoder.read(buffer)? {
                0 => self.end()?,
                read => return Ok(read),
            }
        }
    }
}

/// Magic numbers of frames: one with content, and sixteen that are skipped (RFC 8878 §§3.1.1, 3.1.2).
const FRAMES: [&[u8]; 17] = [
    &[0x28, 0xb5, 0x2f, 0xfd],
    &[0x50, 0x2a, 0x4d, 0x18],
    &[0x51, 0x2a, 0x4d, 0x18],
    &[0x52, 0x2a, 0x4d, 0x18],
    &[0x53, 0x2a, 0x4d, 0x18],
    &[0x54, 0x2a, 0x4d, 0x18],
    &[0x55, 0x2a, 0x4d, 0x18],
    &[0x56, 0x2a, 0x4d, 0x18],
    &[0x57, 0x2a, 0x4d, 0x18],
    &[0x58, 0x2a, 0x4d, 0x18],
    &[0x59, 0x2a, 0x4d, 0x18],
    &[0x5a, 0x2a, 0x4d, 0x18],
    &[0x5b, 0x2a, 0x4d, 0x18],
    &[0x5c, 0x2a, 0x4d, 0x18],
    &[0x5d, 0x2a, 0x4d, 0x18],
    &[0x5e, 0x2a, 0x4d, 0x18],
    &[0x5f, 0x2a, 0x4d, 0x18],
];

/// The decoder does not distinguish truncated from damaged data.
fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The window of `zstd -22 --ultra`, which the program itself accepts without an option: 128 MiB.
const LARGEST_WINDOW: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read, Write};
    use std::process::{Command, Stdio};

    use super::Zstd;

    /// Compresses with the `zstd` program, which always writes a checksum.
    fn compress(content: &[u8]) -> Vec<u8> {
        let mut zstd = Command::new("zstd");
        let child = zstd.args(["-q", "-c", "-T1"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("zstd is needed: apt-get install zstd");
        let mut input = child.stdin.take().unwrap();
        let content = content.to_vec();
        let writing = std::thread::spawn(move || input.write_all(&content));
        let output = child.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        output.stdout
    }

    fn decompress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        with_capacity(bytes, 100).map(|(found, _)| found)
    }

    /// The decompressed text, and `true` if bytes follow it that are neither data nor padding.
    fn with_capacity(bytes: &[u8], capacity: usize) -> std::io::Result<(Vec<u8>, bool)> {
        let mut found = Vec::new();
        let mut zstd = Zstd::new(BufReader::with_capacity(capacity, bytes));
        zstd.read_to_end(&mut found)?;
        Ok((found, zstd.strange().is_some()))
    }

    #[test]
    fn frames_follow_each_other() {
        let one: Vec<u8> = (0..400_000u32).flat_map(|number| (number * 7919).to_le_bytes()).collect();
        let skipped = [&[0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let all = [skipped, compress(&one), compress(b""), compress(b"two")].concat();
        assert!(Zstd::<&[u8]>::is_frame(&all));
        assert_eq!(decompress(&all).unwrap(), [&one[..], b"two"].concat());
        assert_eq!(decompress(b"").unwrap(), b"");
    }

    #[test]
    fn what_is_cut_or_changed_is_an_error() {
        let whole = compress(&b"a line of a log\n".repeat(10_000));
        for end in 1..whole.len() {
            assert!(decompress(&whole[..end]).is_err(), "cut after {end} bytes of {}", whole.len());
        }
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(decompress(&changed).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn padding_is_skipped_and_trailing_data_reported() {
        let (one, two) = (compress(b"one\n"), compress(b"two\n"));
        let skipped = [&[0x5f, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let zeros = vec![0; 70_000];
        for (parts, content, is_strange) in [
            (&[&one[..], &zeros][..], &b"one\n"[..], false),
            (&[&one, &[0; 3], &two, &[0]], b"one\ntwo\n", false),
            (&[&one, &two, &skipped], b"one\ntwo\n", false),
            (&[&skipped, &skipped, &one], b"one\n", false),
            (&[&one, b"rubbish"], b"one\n", true),
            (&[&one, &zeros, b"rubbish"], b"one\n", true),
        ] {
            for capacity in [1, 3, 5, 100, 65_536] {
                let found = with_capacity(&parts.concat(), capacity).unwrap();
                assert_eq!(found, (content.to_vec(), is_strange), "{capacity}");
            }
        }
    }
}
