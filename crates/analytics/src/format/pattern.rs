//! Regular expressions with named groups: for whatever no other format describes, at several times the cost.

use regex::bytes::{CaptureLocations, Regex, RegexBuilder};

use crate::parse_error::ParseError;

use super::FormatError;
use super::draft::Draft;
use super::field::Field;
use super::time::Clock;

/// An expression and the meanings of its groups.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Regex,
    groups: Box<[(usize, Field)]>,
}

impl Pattern {
    /// Compiles it; it matches bytes, not characters.
    pub(super) fn new(pattern: &str) -> Result<Self, FormatError> {
        let regex = RegexBuilder::new(pattern)
            .unicode(false)
            .size_limit(MAX_SIZE)
            .build()
            .map_err(|error| FormatError::Pattern(error.to_string()))?;
        let mut groups = Vec::new();
        for (number, name) in regex.capture_names().enumerate() {
            let Some(name) = name else { continue };
            let field = Field::named(name.as_bytes()).ok_or_else(|| FormatError::Group(name.to_owned()))?;
            groups.push((number, field));
        }
        if !groups.iter().any(|(_, field)| field.is_time()) {
            return Err(FormatError::NoTime);
        }
        Ok(Self { regex, groups: groups.into() })
    }

    /// Room for the places of the groups, to be used again for every line.
    pub(super) fn locations(&self) -> CaptureLocations {
        self.regex.capture_locations()
    }

    /// Takes a line apart.
    pub(super) fn run<'a>(
        &self,
        line: &'a [u8],
        draft: &mut Draft<'a>,
        clock: &mut Clock,
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

/// What a compiled expression may take, in bytes.
const MAX_SIZE: usize = 2 << 20;
