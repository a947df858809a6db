//! What routes say of several backends: shares of their requests, and copies of them.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::words::words;
use super::{CookieName, HashKey, HeaderName, Name, Size};
use crate::error::{Problem, shown};

/// The requests of a route in shares, each for a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The backends and their shares: at least two, each once, and not all of weight 0.
    pub backends: Vec<Share>,
    /// What a request's share is known by.
    pub by: SplitBy,
    /// The field whose value names the backend of a request.
    pub header: Option<HeaderName>,
    /// The cookie whose value names the backend of a request.
    pub cookie: Option<CookieName>,
    /// The cookie that keeps a client with its backend.
    pub sticky_cookie: Option<CookieName>,
}

/// The share of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The backend.
    pub backend: Name,
    /// Its part of the sum of all weights: 0 to 1000. With 0 it gets the requests that name it.
    pub weight: u16,
}

/// The greatest weight of a share: tenths of a percent can be said.
const WEIGHT_MAX: u16 = 1000;

impl FromStr for Share {
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
        Ok(Share { backend, weight })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} weight={}", self.backend, self.weight)
    }
}

/// What the share of a request is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// By chance, each request anew.
    Request,
    /// By a hash: the same key is always in the same share.
    Hash(HashKey),
}

words! {
    /// The words for [`SplitBy`], as the table of keys lists them; `NAME` stands for a name.
    pub enum SplitWay {
        /// By the client's address.
        Client = "client",
        /// [`SplitBy::Request`].
        Request = "request",
        /// By a cookie.
        Cookie = "cookie:NAME",
        /// By a field of the header.
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
pub struct Mirror {
    /// Who gets them.
    pub backend: Name,
    /// Requests with larger bodies are not copied: up to 16 MiB.
    pub max_body: Size,
    /// How many copies each worker has under way: 1 to 10,000.
    pub requests: u32,
    /// One in so many requests is copied: 1 to 1,000,000.
    pub one_in: NonZeroU32,
}

impl Mirror {
    /// All requests to this backend, within the bounds that suit most.
    pub fn to(backend: Name) -> Self {
        Mirror { backend, max_body: Size::new(64 << 10), requests: 32, one_in: NonZeroU32::MIN }
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
            assert_eq!(text.parse::<Share>().unwrap().to_string(), expected);
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
            assert!(text.parse::<Share>().is_err(), "{text}");
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
