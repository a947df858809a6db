//! Problems of a configuration, with place and remedy.
//!
//! A [`Problem`] is one mistake or warning; [`Errors`] is the crate's error type, all problems of one file in
//! the order of the file. Both print for people: line, caret, remedy. They are not meant to be matched on by
//! programs.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use render::Excerpt;
pub(crate) use source::{SourceText, Span};

mod render;
mod source;

/// A place in a file. Line and column are counted from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file under the name given to the parser.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The place of an item of the model, if it came from a file.
///
/// Any two values compare equal: the place of an item is not part of its meaning, and a comment inserted
/// above must not look like a change of everything below.
#[derive(Clone, Debug, Default)]
pub struct At(Option<Arc<Place>>);

impl At {
    /// The value for items made in code.
    pub const NOWHERE: At = At(None);

    /// The place, or `None` for an item that was made in code or by default.
    pub fn place(&self) -> Option<&Place> {
        self.0.as_deref()
    }
}

impl From<Place> for At {
    fn from(place: Place) -> Self {
        At(Some(Arc::new(place)))
    }
}

impl PartialEq for At {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for At {}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(place) => place.fmt(f),
            None => f.write_str("(not from a file)"),
        }
    }
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but is probably not what was intended.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One mistake or warning: the fault, its place, and the remedy.
///
/// With a place it prints the line in question with a caret; without one (a value from code or the command
/// line) as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    severity: Severity,
    message: String,
    help: Option<String>,
    excerpt: Option<Box<Excerpt>>,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Problem { severity: Severity::Error, message: message.into(), help: None, excerpt: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the most similar valid word as help, or else all valid words.
    pub(crate) fn suggest(self, kind: &str, nearest: Option<&str>, valid: &[&str]) -> Self {
        match nearest {
            Some(word) => self.help(format!("the nearest {kind} is `{word}`")),
            None if valid.is_empty() => self,
            None if valid.len() == 1 => self.help(format!("write `{}`", valid[0])),
            None => {
                let list: Vec<String> = valid.iter().take(LISTED).map(|word| format!("`{word}`")).collect();
                let more = if valid.len() > LISTED { " ..." } else { "" };
                self.help(format!("write one of {}{more}", list.join(", ")))
            }
        }
    }

    /// The severity: error or warning.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The fault in one line without markup.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The remedy, if there is a general one.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The column after the faulty part, if the problem has a place. A part of several lines counts to the end of its
    /// first line.
    pub fn end_column(&self) -> Option<usize> {
        self.excerpt.as_ref().map(|excerpt| excerpt.end_column)
    }

    /// The place; `None` for values that did not come from a file.
    pub fn place(&self) -> Option<&Place> {
        self.excerpt.as_ref().map(|excerpt| &excerpt.place)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.excerpt, &self.help) {
            (Some(excerpt), help) => {
                writeln!(f, "{}: {}", self.severity, self.message)?;
                excerpt.render(f, help.as_deref())
            }
            (None, Some(help)) => write!(f, "{}; {help}", self.message),
            (None, None) => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Problem {}

/// Every problem of one configuration, errors and warnings, in the order of the file; at least one is an
/// error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    file: String,
    problems: Vec<Problem>,
}

/// The number of valid words that a remedy lists; the top level has fewer keys.
const LISTED: usize = 16;

/// The number of problems printed in full; a file of garbage has thousands.
const PRINTED: usize = 100;

impl Errors {
    pub(crate) fn new(file: impl Into<String>, problems: Vec<Problem>) -> Self {
        Errors { file: file.into(), problems }
    }

    /// All problems, errors and warnings, in the order of the file.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The printed problems, each followed by an empty line, without the final count.
    pub fn listed(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.list(&mut text);
        text
    }

    fn list(&self, f: &mut impl fmt::Write) -> fmt::Result {
        for problem in self.problems.iter().take(PRINTED) {
            match problem.excerpt {
                Some(_) => writeln!(f, "{problem}\n")?,
                None => writeln!(f, "{}: {problem}\n", problem.severity)?,
            }
        }
        match self.problems.len().checked_sub(PRINTED).filter(|more| *more > 0) {
            Some(more) => writeln!(f, "... and {more} more\n"),
            None => Ok(()),
        }
    }

    /// The number of errors among the problems.
    pub fn count(&self) -> usize {
        self.problems.iter().filter(|p| p.severity == Severity::Error).count()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list(f)?;
        let errors = self.count();
        let warnings = self.problems.len() - errors;
        write!(f, "{}: {errors} error{}", self.file, plural(errors))?;
        if warnings > 0 {
            write!(f, ", {warnings} warning{}", plural(warnings))?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// A name from the file in a form for messages: bounded and without control characters.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut out: String =
        text.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}

/// Collects the problems of one source.
#[derive(Debug)]
pub(crate) struct ProblemCollector<'a> {
    pub(crate) source: &'a SourceText,
    problems: Vec<(usize, Problem)>,
    broken_lines: BTreeSet<usize>,
    /// Set if parts could not be read, other than by invalid TOML.
    incomplete: bool,
    /// The offset in the source of the file that is being read.
    base: usize,
}

impl<'a> ProblemCollector<'a> {
    pub(crate) fn new(source: &'a SourceText) -> Self {
        ProblemCollector {
            source,
            problems: Vec::new(),
            broken_lines: BTreeSet::new(),
            incomplete: false,
            base: 0,
        }
    }

    /// Sets the start of the current file in the source, for [`ProblemCollector::here`].
    pub(crate) fn begin(&mut self, base: usize) {
        self.base = base;
    }

    /// Converts a range of the current file to a range of the source.
    pub(crate) fn here(&self, span: Span) -> Span {
        self.base + span.start..self.base + span.end
    }

    /// Reports invalid TOML. Other problems in its line are most likely its consequence.
    pub(crate) fn syntax(&mut self, span: &Span, problem: Problem) {
        let line = self.source.line(span.start);
        if self.broken_lines.insert(line) {
            self.push(span, problem);
        }
    }

    /// Reports a mistake in the text at `span` only.
    pub(crate) fn local(&mut self, span: &Span, problem: Problem) {
        if !self.broken_lines.contains(&self.source.line(span.start)) {
            self.push(span, problem);
        }
    }

    /// Reports something missing or contradictory: dropped if parts of the file were unreadable.
    pub(crate) fn whole(&mut self, span: &Span, problem: Problem) {
        if self.broken_lines.is_empty() && !self.incomplete {
            self.push(span, problem);
        }
    }

    /// Records that an included file could not be read: missing items may be in it.
    pub(crate) fn mistrust_what_is_missing(&mut self) {
        self.incomplete = true;
    }

    pub(crate) fn warn(&mut self, span: &Span, mut problem: Problem) {
        problem.severity = Severity::Warning;
        self.whole(span, problem);
    }

    /// The number of mistakes so far. Warnings do not count: their items are valid and stay.
    pub(crate) fn len(&self) -> usize {
        self.problems.iter().filter(|(_, problem)| problem.severity == Severity::Error).count()
    }

    fn push(&mut self, span: &Span, mut problem: Problem) {
        problem.excerpt = Some(Box::new(Excerpt::new(self.source, span)));
        self.problems.push((span.start, problem));
    }

    /// Returns the configuration with its warnings, or all problems.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<(T, Vec<Problem>), Errors> {
        self.problems.sort_by_key(|(offset, _)| *offset);
        // A mistake in shared settings counts once.
        let mut seen = BTreeSet::new();
        self.problems.retain(|(offset, problem)| seen.insert((*offset, problem.message.clone())));
        let problems: Vec<Problem> = self.problems.into_iter().map(|(_, problem)| problem).collect();
        if problems.iter().any(|p| p.severity == Severity::Error) {
            Err(Errors::new(self.source.name(), problems))
        } else {
            Ok((value, problems))
        }
    }
}
