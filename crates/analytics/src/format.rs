//! Formats of access logs, compiled once; the parser of lines that comes of it allocates nothing per line.
//!
//! Named formats, nginx's `log_format` strings and regular expressions with named groups all fill the same
//! [`Entry`]. Nothing is guessed: a line that differs from its format is refused with the place, and what a format
//! does not say stays absent.

mod address;
mod compile;
mod draft;
mod escape;
mod field;
mod haproxy;
mod host;
mod json;
mod layout;
mod pattern;
mod program;
mod time;

#[cfg(test)]
mod tests;

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::entry::Entry;
use crate::parse_error::ParseError;

use draft::Draft;
use escape::Escapes;
use haproxy::HaproxyLog;
use layout::{NamedLayout, Twins};
use time::Clock;

/// A format of log lines, compiled. [`LogFormat::parser`] makes parsers of it.
///
/// From text (`parse::<LogFormat>()`) it is a name, else an nginx format if it has a `$` and no named group, else a
/// regular expression.
#[derive(Clone, Debug)]
pub struct LogFormat {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Program(program::Program),
    Json,
    Haproxy(HaproxyLog),
    Pattern(pattern::Pattern),
}

impl LogFormat {
    /// One of [`NAMES`].
    ///
    /// # Errors
    /// [`FormatError::Name`] for any other name.
    pub fn named(name: &str) -> Result<Self, FormatError> {
        let kind = match (NamedLayout::named(name), name) {
            (Some(layout), _) => Kind::Program(layout.program()?),
            (_, "json" | "caddy" | "traefik") => Kind::Json,
            (_, "haproxy") => Kind::Haproxy(HaproxyLog::Either),
            (_, "httplog") => Kind::Haproxy(HaproxyLog::Http),
            (_, "httpslog") => Kind::Haproxy(HaproxyLog::Https),
            _ => return Err(FormatError::Name(name.to_owned())),
        };
        Ok(Self { kind })
    }

    /// The string of an nginx `log_format`, or the whole directive with its name, `escape=` and quotes.
    ///
    /// Variables without a meaning for an entry are stepped over. `$http_x_forwarded_for` wins over `$remote_addr`
    /// where it has an address: it is as true as whoever wrote the header.
    ///
    /// # Errors
    /// If two variables have nothing between them, so that nobody could tell where one ends; if no variable says when.
    pub fn nginx(format: &str) -> Result<Self, FormatError> {
        Ok(Self { kind: Kind::Program(compile::compile(format)?) })
    }

    /// A regular expression with named groups, matched against bytes; the groups are named as nginx's variables, or
    /// `time`, `client`, `host`, `method`, `path`, `query`, `status`, `bytes`, `referer`, `agent`, `user`, `duration`
    /// (seconds), `duration_ms`, `duration_us` …
    ///
    /// # Errors
    /// If the expression is none, if a group's name has no meaning, or if no group says when.
    pub fn regex(pattern: &str) -> Result<Self, FormatError> {
        Ok(Self { kind: Kind::Pattern(pattern::Pattern::new(pattern)?) })
    }

    /// A parser of this format. `utc_offset` is what times without an offset are taken to be ahead of UTC, in seconds:
    /// HAProxy writes none.
    #[must_use]
    pub fn parser(&self, utc_offset: i32) -> Parser {
        let locations = match &self.kind {
            Kind::Pattern(pattern) => Some(pattern.locations()),
            _ => None,
        };
        Parser {
            format: self.clone(),
            clock: Clock::new(utc_offset.into()),
            scratch: Vec::new(),
            locations,
            twins: Twins::default(),
        }
    }
}

impl FromStr for LogFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let pattern = text.contains("(?P<") || text.contains("(?<");
        match Self::named(text) {
            Err(FormatError::Name(_)) if pattern => Self::regex(text),
            Err(FormatError::Name(_)) if text.contains('$') => Self::nginx(text),
            named => named,
        }
    }
}

/// Parses lines of one format. Its memory is reused from line to line, so an entry must be done with before the next.
#[derive(Clone, Debug)]
pub struct Parser {
    format: LogFormat,
    clock: Clock,
    scratch: Vec<u8>,
    locations: Option<regex::bytes::CaptureLocations>,
    twins: Twins,
}

impl Parser {
    /// Looks at the first lines of a log, in `block`, before any is parsed: some formats can only be told apart by
    /// several lines.
    pub fn begin(&mut self, block: &[u8]) {
        self.twins = Twins::default();
        let Kind::Program(program) = &self.format.kind else { return };
        let Some(layout) = program.layout.filter(|layout| layout.has_twin()) else { return };
        for line in block.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let mut draft = Draft::default();
            if program.run(line, &mut draft, &mut self.clock).is_ok() {
                layout.look(&draft, &mut self.twins);
            }
        }
    }

    /// Goes on with a log whose lines have made sense before.
    pub fn go_on(&mut self) {
        self.twins.settle();
    }

    /// The entry in `line`, which has no line end. `None` for a line that is sound but is no request: other events in
    /// a JSON log.
    ///
    /// # Errors
    /// Where the line stops making sense.
    pub fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<Entry<'a>>, ParseError> {
        let mut draft = Draft::default();
        let clock = &mut self.clock;
        let escapes = match &self.format.kind {
            Kind::Program(program) => {
                program.run(line, &mut draft, clock)?;
                if let Some(layout) = program.layout {
                    layout.check(line, &draft, &mut self.twins)?;
                }
                program.escapes
            }
            Kind::Json => {
                if !json::run(line, &mut draft, clock)? {
                    return Ok(None);
                }
                Escapes::Backslash
            }
            Kind::Haproxy(log) => {
                haproxy::run(*log, line, &mut draft, clock)?;
                Escapes::Hash
            }
            Kind::Pattern(pattern) => {
                let locations = self.locations.get_or_insert_with(|| pattern.locations());
                pattern.run(line, &mut draft, clock, locations)?;
                Escapes::Backslash
            }
        };
        if !draft.has_time() {
            return Err(ParseError::new(line.len(), "a time somewhere in the line"));
        }
        let changed = escapes.mark().is_some_and(|mark| memchr::memchr(mark, line).is_some());
        Ok(Some(draft.finish(changed, escapes, &mut self.scratch)))
    }
}

/// Why a format is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// There is no format of this name.
    Name(String),
    /// The `log_format` directive is not as nginx would take it.
    Directive,
    /// A `$` is followed by no name.
    Variable,
    /// Two variables with nothing between them.
    Adjacent(String, String),
    /// Nothing says when a request was made.
    NoTime,
    /// The regular expression is none; the reason.
    Pattern(String),
    /// A group of the regular expression has a name without a meaning.
    Group(String),
}

impl Display for FormatError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                out,
                "no log format is called {name:?}: there are {}, any nginx log_format, and regular expressions \
                 with named groups",
                NAMES.join(", ")
            ),
            Self::Directive => {
                out.write_str("the log_format directive is not complete: log_format name 'text';")
            }
            Self::Variable => out.write_str("a `$` in the log format has no variable name after it"),
            Self::Adjacent(first, second) => {
                write!(
                    out,
                    "there is nothing between {first} and {second}: the end of {first} cannot be found"
                )
            }
            Self::NoTime => {
                out.write_str("the log format has no time: add one ($time_local, $time_iso8601, $msec)")
            }
            Self::Pattern(reason) => write!(out, "the regular expression is not valid: {reason}"),
            Self::Group(name) => write!(
                out,
                "the group `{name}` of the regular expression is not known: name it like a variable of nginx, or \
                 remove its name"
            ),
        }
    }
}

impl std::error::Error for FormatError {}

/// The named format in which most of these lines make sense, if there is one.
#[must_use]
pub fn recognise(lines: &[Vec<u8>]) -> Option<&'static str> {
    let block = lines.join(&b'\n');
    let understood = |name: &str| {
        let mut parser = LogFormat::named(name).ok()?.parser(0);
        parser.begin(&block);
        Some(lines.iter().filter(|line| matches!(parser.parse(line), Ok(Some(_)))).count())
    };
    // Of equals the last one wins.
    let counted = NAMES.iter().rev().map(|name| (understood(name).unwrap_or(0), *name));
    counted.max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0).map(|(_, name)| name)
}

/// The names that [`LogFormat::named`] knows; of several that fit a line the first is advised.
pub const NAMES: &[&str] = &[
    "combined",
    "main",
    "vhost",
    "common",
    "vhost_combined",
    "vhost_common",
    "json",
    "caddy",
    "traefik",
    "httplog",
    "httpslog",
    "haproxy",
];
