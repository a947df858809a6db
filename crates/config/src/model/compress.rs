//! Compression of responses.

use std::fmt;
use std::str::FromStr;

use super::Size;
use super::words::words;
use crate::error::{Problem, shown};

/// The compression of responses by a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionConfig {
    /// The algorithms in order of preference; at least one, without duplicates.
    pub algorithms: Vec<CompressionAlgorithm>,
    /// The minimum content length, if known: up to 1 GiB.
    pub min_size: Size,
    /// The media types to compress; at least one.
    pub types: Vec<MediaRange>,
    /// The level, 1 to 9; `None` for the default of each algorithm.
    pub level: Option<u8>,
    /// Set if responses contain secrets: those of one user are then not compressed.
    pub secrets: bool,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        CompressionConfig {
            algorithms: CompressionAlgorithm::ALL.to_vec(),
            min_size: Size::new(1024),
            types: TYPES.iter().map(|text| MediaRange((*text).to_owned())).collect(),
            level: None,
            secrets: false,
        }
    }
}

/// The default media types: text of all kinds.
const TYPES: [&str; 11] = [
    "text/*",
    "application/json",
    "application/javascript",
    "application/xml",
    "application/wasm",
    "application/x-ndjson",
    "application/*+json",
    "application/*+xml",
    "image/svg+xml",
    "font/ttf",
    "font/otf",
];

words! {
    /// An algorithm for content coding.
    pub enum CompressionAlgorithm {
        /// Zstandard, `zstd` of RFC 8878.
        Zstd = "zstd",
        /// Brotli, `br` of RFC 7932.
        Brotli = "br",
        /// gzip, as defined in RFC 1952.
        Gzip = "gzip",
    }
}

/// A media type in lower case without parameters, in which one `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRange(String);

impl MediaRange {
    /// The media range as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CompressionAlgorithm {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        Self::from_word(text).ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|one| one.word()).collect();
            Problem::new("responses cannot be compressed in this way").suggest("algorithm", None, &words)
        })
    }
}

impl FromStr for MediaRange {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let sound = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        };
        let parts = text.split_once('/').filter(|(kind, subtype)| sound(kind) && sound(subtype));
        if parts.is_none() || text.matches('*').count() > 1 || text.len() > 127 {
            let problem = Problem::new(format!("`{}` is not a media type", shown(text)));
            return Err(problem.help("write \"text/html\", \"text/*\" or \"application/*+json\""));
        }
        Ok(MediaRange(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for MediaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_ranges() {
        for (text, range) in [("text/*", "text/*"), ("Application/*+JSON", "application/*+json")] {
            assert_eq!(text.parse::<MediaRange>().unwrap().as_str(), range);
        }
        for text in ["", "*", "text", "/", "text/", "text/html; charset=utf-8", "*/*", "a/b/c"] {
            assert!(text.parse::<MediaRange>().is_err(), "{text}");
        }
        for text in TYPES {
            assert_eq!(text.parse::<MediaRange>().unwrap().as_str(), text);
        }
    }
}
