//! A log format as a program of steps: one variable each, and the text that ends it.

use crate::parse_error::ParseError;

use super::draft::Draft;
use super::escape::Escapes;
use super::field::Field;
use super::layout::NamedLayout;
use super::time::Clock;

/// The program of one format; made by [`super::compile`].
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// What every line begins with.
    pub(super) head: Box<[u8]>,
    pub(super) steps: Box<[FormatStep]>,
    pub(super) escapes: Escapes,
    /// Set for formats that have a name.
    pub(super) layout: Option<NamedLayout>,
}

/// One variable and what ends it.
#[derive(Clone, Debug)]
pub(super) struct FormatStep {
    pub(super) field: Field,
    /// The variable's name, for messages.
    pub(super) name: Box<str>,
    /// Whether its value may have commas followed by spaces in it.
    pub(super) list: bool,
    /// Whether its values are of a few bytes only.
    pub(super) short: bool,
    /// Whether no step follows.
    pub(super) last: bool,
    pub(super) end: End,
}

/// What ends a variable.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// This text, which belongs to no variable.
    Literal(Box<[u8]>),
    /// This byte, with which the next variable begins.
    Before(u8),
    /// The end of the line.
    Line,
}

impl Program {
    /// Takes a line apart.
    pub(super) fn run<'a>(
        &self,
        line: &'a [u8],
        draft: &mut Draft<'a>,
        clock: &mut Clock,
    ) -> Result<(), ParseError> {
        if !line.starts_with(&self.head) {
            return Err(self.no_head(line));
        }
        let mut at = self.head.len();
        for step in &self.steps {
            let (end, next) = self.end(step, line, at)?;
            draft.put(step.field, &line[at..end], clock).map_err(|error| error.moved(at))?;
            at = next;
        }
        if at == line.len() { Ok(()) } else { Err(ParseError::new(at, "the end of the line")) }
    }

    /// Where the value that begins at `at` ends, and where the next begins.
    #[inline]
    fn end(&self, step: &FormatStep, line: &[u8], at: usize) -> Result<(usize, usize), ParseError> {
        match &step.end {
            End::Literal(literal) => {
                let end = match self.escapes {
                    // Only the last of such quotes is known to be the real one.
                    Escapes::None if step.last => {
                        line.strip_suffix(&literal[..]).map(<[u8]>::len).filter(|end| *end >= at)
                    }
                    _ => self.find(step, line, at, literal),
                };
                end.map(|end| (end, end + literal.len())).ok_or_else(|| {
                    let literal = literal.escape_ascii();
                    ParseError::new(at, format!("{}, followed by `{literal}`", step.name))
                })
            }
            End::Before(first) => match memchr::memchr(*first, &line[at..]) {
                Some(length) => Ok((at + length, at + length)),
                None => Err(ParseError::new(at, format!("{} before `{}`", step.name, char::from(*first)))),
            },
            End::Line => Ok((line.len(), line.len())),
        }
    }

    #[inline]
    fn find(&self, step: &FormatStep, line: &[u8], at: usize, literal: &[u8]) -> Option<usize> {
        let (first, rest) = literal.split_first()?;
        let mut from = at;
        loop {
            let found =
                if step.short { find_near(*first, line, from)? } else { find_far(*first, line, from)? };
            let escaped =
                *first == b'"' && self.escapes == Escapes::Backslash && is_escaped(&line[at..found]);
            if begins_with(&line[found + 1..], rest)
                && !escaped
                && !(step.list && goes_on(&line[at..], found - at))
            {
                return Some(found);
            }
            from = found + 1;
        }
    }

    fn no_head(&self, line: &[u8]) -> ParseError {
        let same = line.iter().zip(&self.head).take_while(|(have, want)| have == want).count();
        ParseError::new(same, format!("`{}`", self.head[same..].escape_ascii()))
    }
}

/// Finds a byte that is expected within a few: a loop is faster than a call that loads vectors.
#[inline]
fn find_near(byte: u8, line: &[u8], from: usize) -> Option<usize> {
    let near = line[from..].iter().take(NEAR).position(|next| *next == byte);
    near.map(|offset| from + offset).or_else(|| find_far(byte, line, (from + NEAR).min(line.len())))
}

#[inline]
fn find_far(byte: u8, line: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(byte, &line[from..]).map(|offset| from + offset)
}

/// `starts_with` for the few bytes of a delimiter, without a call.
#[inline]
fn begins_with(text: &[u8], start: &[u8]) -> bool {
    text.len() >= start.len() && text.iter().zip(start).all(|(have, want)| have == want)
}

/// Whether an odd number of backslashes ends `before`.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Whether a list goes on at a separator: nginx writes `a, b` for servers tried in turn, `a : b` for groups of them.
fn goes_on(list: &[u8], at: usize) -> bool {
    let (before, after) = list.split_at(at);
    before.ends_with(b",") || before.ends_with(b" :") || after.starts_with(b" : ")
}

/// How many bytes are looked at one by one.
const NEAR: usize = 8;
