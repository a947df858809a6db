//! Regular expressions with named groups: for logs that no other format describes, at several times the cost.

use regex::bytes::{CaptureLocations, Regex, RegexBuilder};

use crate::parse_error::ParseError;

use super::FormatError;
use super::draft::EntryDraft;
use super::field::LineField;
use super::time::TimestampParser;

/// A regular expression and the meanings of its groups.
#[derive(Clone, Debug)]
pub(super) struct LinePattern {
    regex: Regex,
    groups: Box<[(usize, LineField)]>,
}

impl LinePattern {
    /// Compiles an expression, which matches bytes, not characters.
    pub(super) fn new(pattern: &str) -> Result<Self, FormatError> {
        let regex = RegexBuilder::new(pattern)
            .unicode(false)
            .size_limit(MAX_SIZE)
            .build()
            .map_err(|error| FormatError::Pattern(error.to_string()))?;
        let mut groups = Vec::new();
        for (number, name) in regex.capture_names().enumerate() {
            let Some(name) = name else { continue };
            let field =
                LineField::named(name.as_bytes()).ok_or_else(|| FormatError::Group(name.to_owned()))?;
            groups.push((number, field));
        }
        if !groups.iter().any(|(_, field)| field.is_time()) {
            return Err(FormatError::NoTime);
        }
        Ok(Self { regex, groups: groups.into() })
    }

    /// A buffer for the positions of the groups, reused for every line.
    pub(super) fn locations(&self) -> CaptureLocations {
        self.regex.capture_locations()
    }

    /// Parses a line into the draft.
    pub(super) fn run<'a>(
        &self,
        line: &'a [u8],
        draft: &mut EntryDraft<'a>,
        clock: &mut TimestampParser,
        locations: &mut CaptureLocations,
    ) -> Result<(), ParseError> {
        if self.regex.captures_read(locations, line).is_none() {
            return Err(ParseError::new(0, "a line that matches the regular expression"));
        }
        for (group, field) in &self.groups {
            if let Some((start, end)) = locations.get(*group) {
                draft.put(*field, &line[start..end], clock).map_err(|error| error.moved(start))?;
            }
        }
        Ok(())
    }
}

/// The size limit of a compiled expression, in bytes.
const MAX_SIZE: usize = 2 << 20;
