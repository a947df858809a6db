//! The three codings behind one form: bytes in, compressed bytes out, a flush, an end.
//!
//! What comes out gathers in a vector until it is taken. The tables of gzip and zstd take longer to allocate than a
//! small response takes to compress, so that a finished encoder of these gives its [`Machine`] back for the next one.

use std::io;

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::{Compress, Compression, FlushCompress, Status};
use offramp_http::semantics::accept_encoding::Coding;
use zstd::stream::raw::{CParameter, Encoder as Zstd, InBuffer, Operation as _, OutBuffer};

/// The window of brotli, as a power of two. With 16 and less its levels 5 and 6 take 18 MiB.
const BROTLI_WINDOW: i32 = 18;
/// The window of zstd, as a power of two: RFC 8878 §3.1.1.1.2 has decoders take 8 MiB, which is far more.
const ZSTD_WINDOW: u32 = 17;
/// The window of gzip, as a power of two: the largest that there is.
const GZIP_WINDOW: u8 = 15;
/// Brotli needs many times the memory above this.
const BROTLI_MOST: u8 = 6;
/// Number of bytes that brotli hands on at a time.
const BROTLI_OUTPUT: usize = 4096;
/// Minimum room for output, in bytes.
const ROOM: usize = 4096;

/// Memory that an encoder of this coding is counted as, in bytes: the window, the tables, and what waits within.
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

/// Encoder of one response.
pub(super) struct Encoder {
    machine: Machine,
    out: Vec<u8>,
}

/// Compressor of a coding.
pub(super) enum Machine {
    /// With the level that it has.
    Gzip(Box<Compress>, u8),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(Box<Zstd<'static>>),
}

impl Encoder {
    /// Begins at this level, 1 to 9, with content of this length, where it is known. `spare` is a machine of this
    /// coding that has finished.
    pub(super) fn new(
        coding: Coding,
        level: u8,
        length: Option<u64>,
        spare: Option<Machine>,
    ) -> io::Result<Self> {
        let machine = match (coding, spare) {
            (Coding::Gzip, Some(Machine::Gzip(mut compress, before))) => {
                compress.reset();
                if before != level {
                    compress.set_level(Compression::new(level.into()))?;
                }
                Machine::Gzip(compress, level)
            }
            (Coding::Gzip, _) => {
                let compress = Compress::new_gzip(Compression::new(level.into()), GZIP_WINDOW);
                Machine::Gzip(Box::new(compress), level)
            }
            (Coding::Brotli, _) => {
                let parameters = BrotliEncoderParams {
                    quality: level.into(),
                    lgwin: BROTLI_WINDOW,
                    size_hint: length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0),
                    ..BrotliEncoderParams::default()
                };
                let writer = CompressorWriter::with_params(Vec::new(), BROTLI_OUTPUT, &parameters);
                Machine::Brotli(Box::new(writer))
            }
            (Coding::Zstd, spare) => {
                let mut encoder = match spare {
                    Some(Machine::Zstd(mut encoder)) => {
                        encoder.reinit()?;
                        encoder
                    }
                    _ => Box::new(Zstd::new(level.into())?),
                };
                encoder.set_parameter(CParameter::CompressionLevel(level.into()))?;
                encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW))?;
                // Small content gets small tables.
                encoder.set_pledged_src_size(length)?;
                Machine::Zstd(encoder)
            }
        };
        Ok(Self { machine, out: Vec::new() })
    }

    /// Takes in content to compress.
    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.machine {
            Machine::Gzip(compress, _) => deflate(compress, data, &mut self.out, FlushCompress::None),
            Machine::Brotli(writer) => io::Write::write_all(&mut **writer, data),
            Machine::Zstd(encoder) => {
                let mut input = InBuffer::around(data);
                while input.pos() < data.len() {
                    room(&mut self.out, |out| encoder.run(&mut input, out))?;
                }
                Ok(())
            }
        }
    }

    /// Has everything come out that has gone in.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.machine {
            Machine::Gzip(compress, _) => deflate(compress, &[], &mut self.out, FlushCompress::Sync),
            Machine::Brotli(writer) => io::Write::flush(&mut **writer),
            Machine::Zstd(encoder) => {
                while room(&mut self.out, |out| encoder.flush(out))? > 0 {}
                Ok(())
            }
        }
    }

    /// The bytes that have come out and were not taken.
    pub(super) fn ready(&self) -> usize {
        match &self.machine {
            Machine::Brotli(writer) => writer.get_ref().len(),
            _ => self.out.len(),
        }
    }

    /// Takes what has come out.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match &mut self.machine {
            Machine::Brotli(writer) => writer.get_mut(),
            _ => &mut self.out,
        })
    }

    /// Ends the content, and gives what has come out, and what another encoder may use.
    pub(super) fn finish(self) -> io::Result<(Vec<u8>, Option<Machine>)> {
        let Self { machine, mut out } = self;
        match machine {
            Machine::Gzip(mut compress, level) => {
                deflate(&mut compress, &[], &mut out, FlushCompress::Finish)?;
                Ok((out, Some(Machine::Gzip(compress, level))))
            }
            Machine::Brotli(writer) => Ok((writer.into_inner(), None)),
            Machine::Zstd(mut encoder) => {
                while room(&mut out, |out| encoder.finish(out, true))? > 0 {}
                Ok((out, Some(Machine::Zstd(encoder))))
            }
        }
    }
}

/// Runs a step of zstd with room for what comes out.
fn room(
    out: &mut Vec<u8>,
    step: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> io::Result<usize>,
) -> io::Result<usize> {
    out.reserve(ROOM);
    let end = out.len();
    step(&mut OutBuffer::around_pos(out, end))
}

/// Puts `input` in, and takes out what `flush` has come out.
fn deflate(
    compress: &mut Compress,
    mut input: &[u8],
    out: &mut Vec<u8>,
    flush: FlushCompress,
) -> io::Result<()> {
    let ends = matches!(flush, FlushCompress::Finish);
    loop {
        out.reserve(ROOM);
        let before = compress.total_in();
        let status = compress.compress_vec(input, out, flush)?;
        // No more than `input` has went in.
        input = &input[usize::try_from(compress.total_in() - before).unwrap_or(input.len())..];
        // With room left there is nothing more to come out.
        let over = input.is_empty() && out.len() < out.capacity() && !ends;
        if over || status == Status::StreamEnd {
            return Ok(());
        }
    }
}
