//! Traffic of one route for several backends: shares and copies of its requests.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::words::words;
use super::{CookieName, HashKey, HeaderName, Name, Size};
use crate::error::{Problem, shown};

/// The shares of a route's requests, each for a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficSplit {
    /// The backends and their shares: at least two, without duplicates, and not all of weight 0.
    pub backends: Vec<BackendShare>,
    /// The key that assigns a request to a share.
    pub by: SplitBy,
    /// The header field that selects a backend by name.
    pub header: Option<HeaderName>,
    /// The cookie that selects a backend by name.
    pub cookie: Option<CookieName>,
    /// The cookie that keeps a client with its backend.
    pub sticky_cookie: Option<CookieName>,
}

/// The share of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendShare {
    /// The name of the backend.
    pub backend: Name,
    /// Its part of the sum of all weights: 0 to 1000. With 0 it gets only requests that name it.
    pub weight: u16,
}

/// The maximum weight of a share, which allows tenths of a percent.
const WEIGHT_MAX: u16 = 1000;

impl FromStr for BackendShare {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let mut words = text.split_ascii_whitespace();
        let backend = words.next().unwrap_or_default().parse()?;
        let weight = match (words.next(), words.next()) {
            (None, _) => 1,
            (Some(word), None) if word.starts_with("weight=") => {
                let number = &word["weight=".len()..];
                let weight = number.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
                weight.ok_or_else(|| {
                    let problem = Problem::new(format!("`{}` is no weight", shown(number)));
                    problem.help("weights are whole numbers from 0 to 1000")
                })?
            }
            _ => {
                let problem = Problem::new(format!("`{}` is no backend with a weight", shown(text)));
                return Err(problem.help("write the name of a backend, then ` weight=N`"));
            }
        };
        Ok(BackendShare { backend, weight })
    }
}

impl fmt::Display for BackendShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} weight={}", self.backend, self.weight)
    }
}

/// The key that assigns a request to a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// Random for each request.
    Request,
    /// A hash: the same key is always in the same share.
    Hash(HashKey),
}

impl Default for SplitBy {
    /// A hash of the client's address.
    fn default() -> Self {
        SplitBy::Hash(HashKey::Client)
    }
}

words! {
    /// The names of [`SplitBy`] in the table of keys; `NAME` stands for a name.
    pub enum SplitWay {
        /// The address of the client.
        Client = "client",
        /// Random for each request: [`SplitBy::Request`].
        Request = "request",
        /// The value of a cookie.
        Cookie = "cookie:NAME",
        /// The value of a header field.
        Header = "header:NAME",
    }
}

impl FromStr for SplitBy {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match HashKey::read(text) {
            Some(key) => key.map(SplitBy::Hash),
            None if text == SplitWay::Request.word() => Ok(SplitBy::Request),
            None => Err(Problem::new(format!("`{}` is no way to split requests", shown(text)))),
        }
    }
}

impl fmt::Display for SplitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SplitBy::Request => SplitWay::Request.fmt(f),
            SplitBy::Hash(key) => key.fmt(f),
        }
    }
}

/// Copies of requests for another backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// The backend that gets the copies.
    pub backend: Name,
    /// The maximum body of a copied request: up to 16 MiB.
    pub max_body: Size,
    /// Copies in flight per worker: 1 to 10,000.
    pub requests: u32,
    /// The sampling rate, one in this many requests: 1 to 1,000,000.
    pub one_in: NonZeroU32,
}

impl MirrorConfig {
    /// Copies of all requests for this backend, with default bounds.
    pub fn to(backend: Name) -> Self {
        MirrorConfig { backend, max_body: Size::new(64 << 10), requests: 32, one_in: NonZeroU32::MIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        for (text, expected) in
            [("a", "a weight=1"), ("a  weight=0", "a weight=0"), ("b.c weight=1000", "b.c weight=1000")]
        {
            assert_eq!(text.parse::<BackendShare>().unwrap().to_string(), expected);
        }
        for text in [
            "",
            " ",
            "a weight=1001",
            "a weight=-1",
            "a weight=5%",
            "a 5",
            "a weight=1 x",
            "a weight=1 backup",
        ] {
            assert!(text.parse::<BackendShare>().is_err(), "{text}");
        }
    }

    #[test]
    fn ways_to_split() {
        for text in ["client", "request", "cookie:session", "header:x-tenant"] {
            assert_eq!(text.parse::<SplitBy>().unwrap().to_string(), text);
        }
        for text in ["", "random", "cookie:", "cookie:a b", "header:ä", "client:a"] {
            assert!(text.parse::<SplitBy>().is_err(), "{text}");
        }
    }
}
