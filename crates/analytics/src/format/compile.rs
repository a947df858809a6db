//! Compiler from nginx's `log_format` to a program.

use super::FormatError;
use super::escape::Escapes;
use super::field::LineField;
use super::program::{FormatStep, LineProgram, SegmentEnd};

/// Compiles the string of a `log_format`, or the whole directive as in nginx's configuration.
pub(super) fn compile(format: &str) -> Result<LineProgram, FormatError> {
    let (text, escapes) = directive(format)?;
    let (head, mut steps) = pieces(text.trim_end_matches(['\r', '\n']))?;
    join_uri_and_args(&mut steps);
    let count = steps.len();
    if !steps.iter().any(|(variable, _)| variable.field.is_time()) {
        return Err(FormatError::NoTime);
    }
    let mut program = Vec::with_capacity(count);
    for at in 0..count {
        let next = steps.get(at + 1).map(|(next, _)| next.clone());
        let (variable, literal) = &steps[at];
        let end = match next {
            _ if !literal.is_empty() => SegmentEnd::Literal(literal.as_bytes().into()),
            None => SegmentEnd::Line,
            Some(next) if next.field.begins_with_slash() => SegmentEnd::Before(b'/'),
            Some(next) => return Err(FormatError::Adjacent(variable.name.clone(), next.name)),
        };
        let FormatVariable { field, name, list } = variable.clone();
        program.push(FormatStep {
            field,
            short: field.is_short(),
            name: name.into(),
            list,
            last: at + 1 == count,
            end,
        });
    }
    Ok(LineProgram { head: head.into_bytes().into(), steps: program.into(), escapes, layout: None })
}

#[derive(Clone)]
struct FormatVariable {
    field: LineField,
    /// The name, dollar sign included.
    name: String,
    list: bool,
}

/// The format string and its escapes, from a directive or a bare string.
fn directive(format: &str) -> Result<(String, Escapes), FormatError> {
    let trimmed = format.trim();
    let Some(rest) = trimmed.strip_prefix("log_format") else {
        return Ok((format.to_owned(), Escapes::Backslash));
    };
    let rest = rest.trim_start().trim_end_matches(';');
    let (_, mut rest) = rest.split_once(char::is_whitespace).ok_or(FormatError::Directive)?;
    let mut escapes = Escapes::Backslash;
    rest = rest.trim_start();
    if let Some(after) = rest.strip_prefix("escape=") {
        let (kind, after) = after.split_once(char::is_whitespace).ok_or(FormatError::Directive)?;
        escapes = match kind {
            "default" | "json" => Escapes::Backslash,
            "none" => Escapes::None,
            _ => return Err(FormatError::Directive),
        };
        rest = after;
    }
    Ok((strings(rest)?, escapes))
}

/// Concatenates the strings of a directive: quoted either way, or bare words.
fn strings(mut rest: &str) -> Result<String, FormatError> {
    let mut text = String::new();
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { break };
        if !matches!(first, '"' | '\'') {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let mut characters = rest.char_indices().skip(1);
        let end = loop {
            match characters.next().ok_or(FormatError::Directive)? {
                (at, character) if character == first => break at + 1,
                (_, '\\') => match characters.next().ok_or(FormatError::Directive)?.1 {
                    't' => text.push('\t'),
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    character @ ('"' | '\'' | '\\') => text.push(character),
                    character => text.extend(['\\', character]),
                },
                (_, character) => text.push(character),
            }
        };
        rest = &rest[end..];
    }
    Ok(text)
}

/// Splits a format into the text before the first variable, and each variable with the text after it.
fn pieces(format: &str) -> Result<(String, Vec<(FormatVariable, String)>), FormatError> {
    let mut parts = format.split('$');
    let head = parts.next().unwrap_or_default().to_owned();
    let mut pieces = Vec::new();
    for part in parts {
        let (name, literal) = if let Some(braced) = part.strip_prefix('{') {
            braced.split_once('}').ok_or(FormatError::Variable)?
        } else {
            let end =
                part.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(part.len());
            part.split_at(end)
        };
        if name.is_empty() {
            return Err(FormatError::Variable);
        }
        let bytes = name.as_bytes();
        let variable = FormatVariable {
            field: LineField::named(bytes).unwrap_or(LineField::Skip),
            name: format!("${name}"),
            list: LineField::is_list(bytes),
        };
        pieces.push((variable, literal.to_owned()));
    }
    Ok((head, pieces))
}

/// Merges `$uri$is_args$args`, a target in three variables.
fn join_uri_and_args(steps: &mut Vec<(FormatVariable, String)>) {
    let is = |step: &(FormatVariable, String), name: &str| step.0.name == name;
    while let Some(at) = steps.windows(3).position(|window| {
        window[0].0.field == LineField::Uri
            && is(&window[1], "$is_args")
            && (is(&window[2], "$args") || is(&window[2], "$query_string"))
            && window[0].1.is_empty()
            && window[1].1.is_empty()
    }) {
        let (_, literal) = steps.remove(at + 2);
        steps.remove(at + 1);
        steps[at].1 = literal;
    }
}
