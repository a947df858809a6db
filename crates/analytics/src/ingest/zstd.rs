//! Zstandard (RFC 8878): frames one after the other, with their checksums.

use std::fmt;
use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Decompresses what a reader gives.
pub(super) struct Zstd<R> {
    reader: R,
    decoder: FrameDecoder,
    /// Whether a frame has begun and not ended.
    within: bool,
}

impl<R> fmt::Debug for Zstd<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("within", &self.within).finish_non_exhaustive()
    }
}

impl<R> Zstd<R> {
    /// Whether a frame begins like this, one to be skipped too (RFC 8878, sections 3.1.1 and 3.1.2).
    pub(super) fn is_frame(first: &[u8]) -> bool {
        matches!(first, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
    }

    pub(super) fn new(reader: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(LARGEST_WINDOW);
        Self { reader, decoder, within: false }
    }

    pub(super) const fn get_ref(&self) -> &R {
        &self.reader
    }
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; `false` at the end.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.reader.fill_buf()?.is_empty() {
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
        Ok(false)
    }

    /// The frame is over: what it says must be what was written.
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

/// Whether it breaks off or is damaged, the decoder does not tell apart.
fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// What `zstd -22 --ultra` needs, as the program itself decompresses without being asked to: 128 MiB.
const LARGEST_WINDOW: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read, Write};
    use std::process::{Command, Stdio};

    use super::Zstd;

    /// By the program itself, with the checksum that it always writes.
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
        let mut found = Vec::new();
        Zstd::new(BufReader::with_capacity(100, bytes)).read_to_end(&mut found).map(|_| found)
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
        assert!(decompress(&[&whole[..], b"rubbish"].concat()).is_err());
    }
}
