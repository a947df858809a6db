//! Log formats as programs of steps: one variable each, and the text that ends it.

use crate::parse_error::ParseError;

use super::draft::EntryDraft;
use super::escape::Escapes;
use super::field::LineField;
use super::layout::NamedLayout;
use super::time::TimestampParser;

/// The program of one format, made by [`super::compile`].
#[derive(Clone, Debug)]
pub(super) struct LineProgram {
    /// The literal start of every line.
    pub(super) head: Box<[u8]>,
    pub(super) steps: Box<[FormatStep]>,
    pub(super) escapes: Escapes,
    /// Set for named formats.
    pub(super) layout: Option<NamedLayout>,
}

/// One variable and its end.
#[derive(Clone, Debug)]
pub(super) struct FormatStep {
    pub(super) field: LineField,
    /// The variable's name, for messages.
    pub(super) name: Box<str>,
    /// Set if values may contain commas followed by spaces.
    pub(super) list: bool,
    /// Set if values have a few bytes only.
    pub(super) short: bool,
    /// Set for the last step.
    pub(super) last: bool,
    pub(super) end: SegmentEnd,
}

/// The end of a variable.
#[derive(Clone, Debug)]
pub(super) enum SegmentEnd {
    /// A literal that belongs to no variable.
    Literal(Box<[u8]>),
    /// The first byte of the next variable.
    Before(u8),
    /// The end of the line.
    Line,
}

impl LineProgram {
    /// Parses a line into the draft.
    pub(super) fn run<'a>(
        &self,
        line: &'a [u8],
        draft: &mut EntryDraft<'a>,
        clock: &mut TimestampParser,
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

    /// Finds the end of the value at `at`, and the start of the next one.
    #[inline]
    fn end(&self, step: &FormatStep, line: &[u8], at: usize) -> Result<(usize, usize), ParseError> {
        match &step.end {
            SegmentEnd::Literal(literal) => {
                let end = match self.escapes {
                    // Without escapes only the last quote of the line is certain.
                    Escapes::None if step.last => {
                        line.strip_suffix(&literal[..]).map(<[u8]>::len).filter(|end| *end >= at)
                    }
                    _ => self.find(step, line, at, literal),
                };
                end.map(|end| (end, end + literal.len())).ok_or_else(|| {
                    let literal = literal.escape_ascii();
                    ParseError::new(at, format!("{}, followed by `{literal}`", step.name.escape_debug()))
                })
            }
            SegmentEnd::Before(first) => match memchr::memchr(*first, &line[at..]) {
                Some(length) => Ok((at + length, at + length)),
                None => {
                    let (name, first) = (step.name.escape_debug(), first.escape_ascii());
                    Err(ParseError::new(at, format!("{name} before `{first}`")))
                }
            },
            SegmentEnd::Line => Ok((line.len(), line.len())),
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

/// Finds a byte expected nearby: a loop is faster than a call that loads vectors.
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

/// Returns `true` if `before` ends in an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Returns `true` if a list continues at a separator: nginx writes `a, b` for servers tried in turn, `a : b`
/// for groups.
fn goes_on(list: &[u8], at: usize) -> bool {
    let (before, after) = list.split_at(at);
    before.ends_with(b",") || before.ends_with(b" :") || after.starts_with(b" : ")
}

/// The number of bytes checked one by one.
const NEAR: usize = 8;
