//! The canonical layout of a configuration's text: spaces, blank lines, quotes, and the lines of arrays.
//!
//! Comments, the order of everything and every value stay. Long arrays are divided, one element a line. Tables in braces
//! are never divided, as TOML 1.0, which other tools read, has them on one line; those that were written on several lines
//! stay so.

use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml_parser::Source;

use crate::error::{Errors, Problem, ProblemCollector, SourceText};
use crate::raw;

mod lines;
mod tree;

/// Lays out the text of one file; `file_name` is for messages. A text with mistakes of meaning is laid out too.
///
/// # Errors
/// The text is not TOML: every mistake, as [`parse`](crate::parse) reports it.
pub fn formatted(text: &str, file_name: &str) -> Result<String, Errors> {
    let source = SourceText::new(file_name, Path::new(""), text);
    let mut report = ProblemCollector::new(&source);
    let before = raw::parse(text, &mut report);
    report.finish(())?;
    let document = tree::read(Source::new(text));
    let out = lines::of_document(&document);
    // A fault here would change a configuration unnoticed.
    let (after, mistakes) = DeTable::parse_recoverable(&out);
    if !mistakes.is_empty() || !same_table(before.get_ref(), after.get_ref()) {
        let problem =
            Problem::new(format!("{file_name} cannot be formatted without a change of its meaning"));
        return Err(Errors::new(file_name, vec![problem.help("please report it, with the file")]));
    }
    Ok(out)
}

fn same_table(one: &DeTable<'_>, other: &DeTable<'_>) -> bool {
    one.len() == other.len()
        && one.iter().zip(other.iter()).all(|((name, value), (other_name, other))| {
            name.get_ref() == other_name.get_ref() && same(value.get_ref(), other.get_ref())
        })
}

fn same(one: &DeValue<'_>, other: &DeValue<'_>) -> bool {
    match (one, other) {
        (DeValue::Table(one), DeValue::Table(other)) => same_table(one, other),
        (DeValue::Array(one), DeValue::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other.iter()).all(|(one, other)| same(one.get_ref(), other.get_ref()))
        }
        (DeValue::String(one), DeValue::String(other)) => one == other,
        (DeValue::Integer(one), DeValue::Integer(other)) => {
            one.as_str() == other.as_str() && one.radix() == other.radix()
        }
        (DeValue::Float(one), DeValue::Float(other)) => one.as_str() == other.as_str(),
        (DeValue::Boolean(one), DeValue::Boolean(other)) => one == other,
        (DeValue::Datetime(one), DeValue::Datetime(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
