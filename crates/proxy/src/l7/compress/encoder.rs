//! The three codings behind one form: bytes in, compressed bytes out, a flush, an end.

use std::io::{self, Write as _};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::write::ZlibEncoder;
use flate2::{Compress, Compression};
use offramp_http::semantics::accept_encoding::Coding;
use zstd::stream::write::Encoder as ZstdEncoder;

/// The window of brotli, as a power of two.
const BROTLI_WINDOW: i32 = 18;
/// The window of zstd, as a power of two.
const ZSTD_WINDOW: u32 = 17;
/// The window of gzip, as a power of two: the largest that there is.
const GZIP_WINDOW: u8 = 15;
/// Brotli needs many times the memory above this.
const BROTLI_MOST: u8 = 6;
/// What brotli collects before it compresses.
const BROTLI_INPUT: usize = 4096;

/// What a compressor of this coding is counted as, in bytes: the window, the tables, what waits within.
pub(super) fn memory(coding: Coding) -> usize {
    match coding {
        Coding::Gzip => 448 << 10,
        Coding::Zstd => 2 << 20,
        Coding::Brotli => 5 << 20,
    }
}

/// The level of this coding where the configuration asks for `level`, or for none.
pub(super) fn level(coding: Coding, level: Option<u8>) -> u8 {
    match (coding, level) {
        (Coding::Gzip, level) => level.unwrap_or(2),
        (Coding::Zstd, level) => level.unwrap_or(3),
        (Coding::Brotli, level) => level.unwrap_or(4).min(BROTLI_MOST),
    }
}

/// Compresses one response.
pub(super) enum Encoder {
    Gzip(Box<ZlibEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(Box<ZstdEncoder<'static, Vec<u8>>>),
}

impl Encoder {
    /// Begins at this level, 1 to 9.
    pub(super) fn new(coding: Coding, level: u8) -> io::Result<Self> {
        Ok(match coding {
            Coding::Gzip => {
                // The compressor writes header and trailer of gzip; the writer only passes bytes on.
                let compress = Compress::new_gzip(Compression::new(level.into()), GZIP_WINDOW);
                Self::Gzip(Box::new(ZlibEncoder::new_with_compress(Vec::new(), compress)))
            }
            Coding::Brotli => {
                let parameters = BrotliEncoderParams {
                    quality: level.into(),
                    lgwin: BROTLI_WINDOW,
                    ..BrotliEncoderParams::default()
                };
                Self::Brotli(Box::new(CompressorWriter::with_params(Vec::new(), BROTLI_INPUT, &parameters)))
            }
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), level.into())?;
                encoder.window_log(ZSTD_WINDOW)?;
                Self::Zstd(Box::new(encoder))
            }
        })
    }

    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(data),
            Self::Brotli(encoder) => encoder.write_all(data),
            Self::Zstd(encoder) => encoder.write_all(data),
        }
    }

    /// Has everything come out that has gone in.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }

    /// How many bytes have come out and were not taken.
    pub(super) fn ready(&self) -> usize {
        match self {
            Self::Gzip(encoder) => encoder.get_ref().len(),
            Self::Brotli(encoder) => encoder.get_ref().len(),
            Self::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    /// Takes what has come out.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the content, and gives what has come out.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}
