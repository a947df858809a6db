//! What routes say of the compression of responses.

use std::fmt;
use std::str::FromStr;

use super::Size;
use super::words::words;
use crate::error::{Problem, shown};

/// How responses are compressed as they pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// What is offered, the preferred one first; at least one, each once.
    pub algorithms: Vec<Algorithm>,
    /// The least content that is worth it, where its length is known: up to 1 GiB.
    pub min_size: Size,
    /// The media types that gain; at least one.
    pub types: Vec<MediaRange>,
    /// How hard it tries, 1 to 9; `None`: what suits each algorithm.
    pub level: Option<u8>,
    /// Whether responses have secrets in them: those of one user then pass as they are.
    pub secrets: bool,
}

impl Default for Compress {
    fn default() -> Self {
        Compress {
            algorithms: Algorithm::ALL.to_vec(),
            min_size: Size::new(1024),
            types: TYPES.iter().map(|text| MediaRange((*text).to_owned())).collect(),
            level: None,
            secrets: false,
        }
    }
}

/// The types that gain by default: text in whatever form.
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
    /// A way to compress.
    pub enum Algorithm {
        /// Zstandard (RFC 8878).
        Zstd = "zstd",
        /// Brotli (RFC 7932).
        Brotli = "br",
        /// gzip (RFC 1952).
        Gzip = "gzip",
    }
}

/// A media type in lower case without parameters, in which one `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRange(String);

impl MediaRange {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
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
