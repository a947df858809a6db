//! Answers as they are compared: status, fields, and the hash of what was read of the body.

use std::fmt::Write as _;
use std::io::Read;
use std::time::Duration;

use aws_lc_rs::digest::{self, SHA256};
use hyper::HeaderMap;
use hyper::header::CONTENT_ENCODING;

/// An answer of one side.
#[derive(Clone, Debug)]
pub(super) struct SideAnswer {
    pub(super) status: u16,
    pub(super) fields: HeaderMap,
    pub(super) body: AnswerBody,
    /// From the request, on an open connection, to the end of the body.
    pub(super) time: Duration,
}

/// A body, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerBody {
    /// The size without compression.
    pub(super) bytes: u64,
    /// SHA-256 of the content without compression, in hexadecimal digits.
    pub(super) hash: String,
    pub(super) end: BodyEnd,
}

/// The end of reading a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// All of it was read.
    Whole,
    /// It goes on after the size that is read.
    Long,
    /// It had not ended in time, as streams of events do not.
    Endless,
    /// It broke off, or its compression is damaged.
    Broken(String),
}

impl BodyEnd {
    /// The end in words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Whole => "whole".to_owned(),
            Self::Long => "longer than --max-body".to_owned(),
            Self::Endless => "not ended within --timeout".to_owned(),
            Self::Broken(why) => format!("broken off: {why}"),
        }
    }
}

/// The codings of a body, the innermost first; none for an identity.
pub(super) fn codings(fields: &HeaderMap) -> Vec<String> {
    let lines = fields.get_all(CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let names = lines.flat_map(|line| line.split(',')).map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty() && name != "identity").collect()
}

/// Hashes what was read of a body, without its compression where that is known. `most` bounds the size of the content, too.
pub(super) fn body_of(raw: &[u8], fields: &HeaderMap, end: BodyEnd, most: u64) -> AnswerBody {
    let codings = codings(fields);
    if raw.is_empty() {
        return hashed(raw, end);
    }
    match codings.as_slice() {
        [one] if matches!(one.as_str(), "gzip" | "x-gzip" | "br") => {
            let content: Box<dyn Read> = match one.as_str() {
                "br" => Box::new(brotli::Decompressor::new(raw, 4096)),
                _ => Box::new(flate2::read::MultiGzDecoder::new(raw)),
            };
            let mut plain = Vec::new();
            let outcome = content.take(most + 1).read_to_end(&mut plain);
            let end = match outcome {
                _ if plain.len() as u64 > most => BodyEnd::Long,
                Err(error) if end == BodyEnd::Whole => {
                    BodyEnd::Broken(format!("its {one} is damaged ({error})"))
                }
                _ => end,
            };
            plain.truncate(usize::try_from(most).unwrap_or(usize::MAX));
            hashed(&plain, end)
        }
        _ => hashed(raw, end),
    }
}

fn hashed(content: &[u8], end: BodyEnd) -> AnswerBody {
    let digest = digest::digest(&SHA256, content);
    let mut hash = String::with_capacity(64);
    for byte in digest.as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    AnswerBody { bytes: content.len() as u64, hash, end }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn fields(coding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, coding.parse().unwrap())])
    }

    fn gzip(content: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bodies_are_the_same_however_they_were_compressed() {
        let content = b"the same content ".repeat(500);
        let plain = body_of(&content, &HeaderMap::new(), BodyEnd::Whole, 1 << 20);
        let mut small = Vec::new();
        brotli::CompressorWriter::new(&mut small, 4096, 5, 20).write_all(&content).unwrap();
        for (raw, coding) in [(gzip(&content, 1), "gzip"), (gzip(&content, 9), "x-gzip"), (small, "br")] {
            assert_eq!(body_of(&raw, &fields(coding), BodyEnd::Whole, 1 << 20), plain, "{coding}");
        }
        assert_eq!(plain.hash.len(), 64);
    }

    #[test]
    fn bombs_are_bounded_and_damage_is_named() {
        let bomb = gzip(&vec![0; 10 << 20], 9);
        let body = body_of(&bomb, &fields("gzip"), BodyEnd::Whole, 1 << 20);
        assert_eq!((body.bytes, body.end), (1 << 20, BodyEnd::Long));
        let half = body_of(&bomb[..bomb.len() / 2], &fields("gzip"), BodyEnd::Whole, 1 << 30);
        assert!(matches!(half.end, BodyEnd::Broken(_)), "{half:?}");
        let cut = body_of(&bomb[..bomb.len() / 2], &fields("gzip"), BodyEnd::Endless, 1 << 30);
        assert_eq!(cut.end, BodyEnd::Endless);
        // An unknown coding is compared as it came.
        let raw = body_of(b"\x28\xb5", &fields("zstd"), BodyEnd::Whole, 1 << 20);
        assert_eq!((raw.bytes, raw.end), (2, BodyEnd::Whole));
    }
}
