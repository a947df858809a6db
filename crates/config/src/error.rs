//! What is wrong with a configuration, where, and what to do about it.
//!
//! A [`Problem`] is one mistake or warning; [`Errors`] is the crate's error type, all problems of one file
//! in the order of the file. Both print as people read them: line, caret, remedy. Nothing here is fit for
//! being matched on by programs: a configuration is mended by a person.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use render::Excerpt;
pub(crate) use source::{Source, Span};

mod render;
mod source;

/// Where something is written: file, line and column, both counted from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file as it was named to the parser.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Where an item of the model was written, if it came from a file.
///
/// Two of them always compare equal: where something is written is no part of what it means, and a
/// comment inserted above must not look like a change of everything below.
#[derive(Clone, Debug, Default)]
pub struct At(Option<Arc<Place>>);

impl At {
    /// For items that were made in code.
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

/// Whether a problem stops the configuration from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but probably does not do what was meant.
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

/// One mistake (or warning): what is wrong, where, and what to do.
///
/// With a place it prints over several lines with the line in question and a caret; without (a value given
/// in code or on the command line) as one line.
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

    /// Adds the nearest valid word as help, or else the words that are valid.
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

    /// Whether it stops the configuration from being used.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// What is wrong, in one line without markup.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it, where something general can be said.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Where it is; `None` for values that did not come from a file.
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

/// How many valid words a remedy lists; the top level has fewer keys.
const LISTED: usize = 16;

/// How many problems are printed in full; a file of garbage has thousands.
const PRINTED: usize = 100;

impl Errors {
    pub(crate) fn new(file: impl Into<String>, problems: Vec<Problem>) -> Self {
        Errors { file: file.into(), problems }
    }

    /// All problems, errors and warnings, in the order of the file.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The problems as they are printed, each followed by an empty line, without the count at the end.
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

    /// How many of the problems are errors.
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

/// A name from the file as it may stand in a message: bounded and without control characters.
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
pub(crate) struct Report<'a> {
    pub(crate) source: &'a Source,
    problems: Vec<(usize, Problem)>,
    broken_lines: BTreeSet<usize>,
    /// Parts could not be read, other than by a fault of the TOML.
    incomplete: bool,
    /// Where the text of the file that is being read begins in the source.
    base: usize,
}

impl<'a> Report<'a> {
    pub(crate) fn new(source: &'a Source) -> Self {
        Report { source, problems: Vec::new(), broken_lines: BTreeSet::new(), incomplete: false, base: 0 }
    }

    /// From now on [`Report::here`] is told of ranges of the file that begins at this offset.
    pub(crate) fn begin(&mut self, base: usize) {
        self.base = base;
    }

    /// A range of the file that is being read as a range of the source.
    pub(crate) fn here(&self, span: Span) -> Span {
        self.base + span.start..self.base + span.end
    }

    /// A fault of the TOML itself. What else is found wrong in its line is most likely its consequence.
    pub(crate) fn syntax(&mut self, span: &Span, problem: Problem) {
        let line = self.source.line(span.start);
        if self.broken_lines.insert(line) {
            self.push(span, problem);
        }
    }

    /// A mistake in the text at `span` alone.
    pub(crate) fn local(&mut self, span: &Span, problem: Problem) {
        if !self.broken_lines.contains(&self.source.line(span.start)) {
            self.push(span, problem);
        }
    }

    /// A fault of something missing or contradictory: not trusted where parts of the file were unreadable.
    pub(crate) fn whole(&mut self, span: &Span, problem: Problem) {
        if self.broken_lines.is_empty() && !self.incomplete {
            self.push(span, problem);
        }
    }

    /// A file that is included could not be read: what seems to be missing may be in it.
    pub(crate) fn mistrust_what_is_missing(&mut self) {
        self.incomplete = true;
    }

    pub(crate) fn warn(&mut self, span: &Span, mut problem: Problem) {
        problem.severity = Severity::Warning;
        self.whole(span, problem);
    }

    /// How many mistakes there are so far. A warning is none: what it is about is whole, and keeps its place.
    pub(crate) fn len(&self) -> usize {
        self.problems.iter().filter(|(_, problem)| problem.severity == Severity::Error).count()
    }

    fn push(&mut self, span: &Span, mut problem: Problem) {
        problem.excerpt = Some(Box::new(Excerpt::new(self.source, span)));
        self.problems.push((span.start, problem));
    }

    /// The configuration with its warnings, or all that is wrong.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<(T, Vec<Problem>), Errors> {
        self.problems.sort_by_key(|(offset, _)| *offset);
        // What several routes share is wrong once.
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
