//! Access log formats, compiled once into parsers that do not allocate per line.
//!
//! Named formats, nginx's `log_format` strings and regular expressions with named groups all fill the same
//! [`LogEntry`]. Nothing is guessed: a line that differs from its format is rejected with the offset, and fields
//! that a format does not have stay absent.

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

use crate::entry::LogEntry;
use crate::parse_error::ParseError;

use draft::EntryDraft;
use escape::Escapes;
use haproxy::HaproxyLog;
use layout::{NamedLayout, Twins};
use time::TimestampParser;

/// A compiled log format. [`InputFormat::parser`] makes parsers of it.
///
/// Parsed from text (`parse::<InputFormat>()`) it is a name, else an nginx format if it has a `$` and no named
/// group, else a regular expression.
#[derive(Clone, Debug)]
pub struct InputFormat {
    kind: ParserKind,
}

#[derive(Clone, Debug)]
enum ParserKind {
    Program(program::LineProgram),
    Json,
    Haproxy(HaproxyLog),
    Pattern(pattern::LinePattern),
}

impl InputFormat {
    /// One of [`NAMES`].
    ///
    /// # Errors
    /// [`FormatError::Name`] for any other name.
    pub fn named(name: &str) -> Result<Self, FormatError> {
        let kind = match (NamedLayout::named(name), name) {
            (Some(layout), _) => ParserKind::Program(layout.program()?),
            (_, "json" | "caddy" | "traefik") => ParserKind::Json,
            (_, "haproxy") => ParserKind::Haproxy(HaproxyLog::Either),
            (_, "httplog") => ParserKind::Haproxy(HaproxyLog::Http),
            (_, "httpslog") => ParserKind::Haproxy(HaproxyLog::Https),
            _ => return Err(FormatError::Name(name.to_owned())),
        };
        Ok(Self { kind })
    }

    /// The string of an nginx `log_format`, or the whole directive with its name, `escape=` and quotes.
    ///
    /// Variables without a meaning for an entry are skipped. `$http_x_forwarded_for` takes precedence over
    /// `$remote_addr` if it has an address; it is only as trustworthy as its sender.
    ///
    /// # Errors
    /// Two variables have nothing between them, so the end of the first is ambiguous; or no variable has the
    /// time.
    pub fn nginx(format: &str) -> Result<Self, FormatError> {
        Ok(Self { kind: ParserKind::Program(compile::compile(format)?) })
    }

    /// A regular expression with named groups, matched against bytes. Groups are named like nginx's
    /// variables, or `time`, `client`, `host`, `method`, `path`, `query`, `status`, `bytes`, `referer`,
    /// `agent`, `user`, `duration` (seconds), `duration_ms`, `duration_us` …
    ///
    /// # Errors
    /// The expression is invalid, a group's name has no meaning, or no group has the time.
    pub fn regex(pattern: &str) -> Result<Self, FormatError> {
        Ok(Self { kind: ParserKind::Pattern(pattern::LinePattern::new(pattern)?) })
    }

    /// A parser of this format. `utc_offset` is the offset from UTC, in seconds, of times without one:
    /// HAProxy writes none.
    #[must_use]
    pub fn parser(&self, utc_offset: i32) -> Parser {
        let locations = match &self.kind {
            ParserKind::Pattern(pattern) => Some(pattern.locations()),
            _ => None,
        };
        Parser {
            format: self.clone(),
            clock: TimestampParser::new(utc_offset.into()),
            scratch: Vec::new(),
            locations,
            twins: Twins::default(),
        }
    }
}

impl FromStr for InputFormat {
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

/// A parser of lines in one format. Its memory is reused, so each entry must be dropped before the next line.
#[derive(Clone, Debug)]
pub struct Parser {
    format: InputFormat,
    clock: TimestampParser,
    scratch: Vec<u8>,
    locations: Option<regex::bytes::CaptureLocations>,
    twins: Twins,
}

impl Parser {
    /// Inspects the first lines of a log, in `block`, before any is parsed: some formats differ only over
    /// several lines.
    pub fn begin(&mut self, block: &[u8]) {
        self.twins = Twins::default();
        let ParserKind::Program(program) = &self.format.kind else { return };
        let Some(layout) = program.layout.filter(|layout| layout.has_twin()) else { return };
        for line in block.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let mut draft = EntryDraft::default();
            if program.run(line, &mut draft, &mut self.clock).is_ok() {
                layout.look(&draft, &mut self.twins);
            }
        }
    }

    /// Continues with a log of which lines have parsed before.
    pub fn go_on(&mut self) {
        self.twins.settle();
    }

    /// Parses `line`, which has no line end. Returns `None` for a valid line that is not a request, such as
    /// another event in a JSON log.
    ///
    /// # Errors
    /// The offset at which the line deviates from the format.
    pub fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<LogEntry<'a>>, ParseError> {
        self.parse_whole(line).map_err(|error| {
            if is_traefik_text(line) { ParseError { expected: TRAEFIK.into(), ..error } } else { error }
        })
    }

    fn parse_whole<'a>(&'a mut self, line: &'a [u8]) -> Result<Option<LogEntry<'a>>, ParseError> {
        let mut draft = EntryDraft::default();
        let clock = &mut self.clock;
        let escapes = match &self.format.kind {
            ParserKind::Program(program) => {
                program.run(line, &mut draft, clock)?;
                if let Some(layout) = program.layout {
                    layout.check(line, &draft, &mut self.twins)?;
                }
                program.escapes
            }
            ParserKind::Json => {
                if !json::run(line, &mut draft, clock)? {
                    return Ok(None);
                }
                Escapes::Backslash
            }
            ParserKind::Haproxy(log) => {
                haproxy::run(*log, line, &mut draft, clock)?;
                Escapes::Hash
            }
            ParserKind::Pattern(pattern) => {
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

/// Set for the lines that Traefik writes by default: `common`, and behind it referer, agent, the number of the request,
/// router, server and the duration.
fn is_traefik_text(line: &[u8]) -> bool {
    let Some(rest) = line.strip_suffix(b"ms") else { return false };
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let quotes = line.iter().filter(|byte| **byte == b'"').count();
    digits > 0 && quotes >= 10 && rest[..rest.len() - digits].ends_with(b"\" ")
}

const TRAEFIK: &str = "another format: this is Traefik's text, which is not read; have Traefik write JSON \
                       (`accessLog: { format: json }`), and read that with --format traefik";

/// The reason for which a format is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// There is no format of this name.
    Name(String),
    /// nginx would not accept the `log_format` directive.
    Directive,
    /// A `$` without a name.
    Variable,
    /// Two variables with nothing between them.
    Adjacent(String, String),
    /// No variable has the time.
    NoTime,
    /// The regular expression is invalid, for this reason.
    Pattern(String),
    /// A group of the regular expression has an unknown name.
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

/// The named format that fits the most of these lines, if any fits.
#[must_use]
pub fn recognise(lines: &[Vec<u8>]) -> Option<&'static str> {
    let block = lines.join(&b'\n');
    let understood = |name: &str| {
        let mut parser = InputFormat::named(name).ok()?.parser(0);
        parser.begin(&block);
        Some(lines.iter().filter(|line| matches!(parser.parse(line), Ok(Some(_)))).count())
    };
    // `max_by_key` returns the last maximum, hence `rev`.
    let counted = NAMES.iter().rev().map(|name| (understood(name).unwrap_or(0), *name));
    counted.max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0).map(|(_, name)| name)
}

/// The names for [`InputFormat::named`], in the order in which they are suggested for a line.
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
