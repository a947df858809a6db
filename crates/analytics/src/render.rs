//! Answers as people and programs read them: a table, JSON, CSV.

mod table;

use std::fmt::Write;

use crate::question::{Answer, Value};

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Aligned columns under their names.
    #[default]
    Table,
    /// One array of flat objects (RFC 8259), a line each.
    Json,
    /// Comma-separated values under their names (RFC 4180).
    Csv,
}

/// Writes an answer; the text ends with a line feed.
#[must_use]
pub fn render(answer: &Answer, style: Style) -> String {
    match style {
        Style::Table => table::table(answer, None),
        Style::Json => json(answer),
        Style::Csv => csv(answer),
    }
}

/// A table for a screen of so many columns: the widest columns of text are cut until it fits. Where there is room
/// left, bars stand beside the numbers.
#[must_use]
pub fn fit(answer: &Answer, columns: usize) -> String {
    table::table(answer, Some(columns))
}

/// As much of a text as fits into so many columns of a screen, with an ellipsis where it was cut.
#[must_use]
pub fn shorten(text: &str, columns: usize) -> String {
    table::shorten(text, columns)
}

/// An answer's rows as JSON, an object on each line.
#[must_use]
pub fn json_lines(answer: &Answer) -> String {
    let mut text = String::new();
    for row in &answer.rows {
        object(&mut text, &answer.columns, row);
        text.push('\n');
    }
    text
}

fn json(answer: &Answer) -> String {
    let mut text = String::from("[");
    for (index, row) in answer.rows.iter().enumerate() {
        text += if index == 0 { "" } else { ",\n " };
        object(&mut text, &answer.columns, row);
    }
    text += "]\n";
    text
}

fn object(text: &mut String, columns: &[String], row: &[Value]) {
    text.push('{');
    for (column, (name, value)) in columns.iter().zip(row).enumerate() {
        *text += if column == 0 { "" } else { "," };
        quote(text, name);
        text.push(':');
        match value {
            Value::Text(value) => quote(text, value),
            // JSON has no word for what is not a number.
            Value::Real(value) if !value.is_finite() => *text += "null",
            Value::Null => *text += "null",
            other => *text += &plain(other),
        }
    }
    text.push('}');
}

/// A string of JSON's (RFC 8259 §7).
fn quote(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => *text += "\\\"",
            '\\' => *text += "\\\\",
            '\n' => *text += "\\n",
            control if u32::from(control) < 0x20 => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

fn csv(answer: &Answer) -> String {
    let line = |cells: Vec<String>| {
        let quoted: Vec<String> = cells
            .iter()
            .map(|cell| {
                let plain =
                    !cell.contains([',', '"', '\n', '\r']) && !cell.starts_with(' ') && !cell.ends_with(' ');
                if plain { cell.clone() } else { format!("\"{}\"", cell.replace('"', "\"\"")) }
            })
            .collect();
        quoted.join(",") + "\r\n"
    };
    let mut text = line(answer.columns.clone());
    for row in &answer.rows {
        text += &line(row.iter().map(plain).collect());
    }
    text
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Int(value) => value.to_string(),
        Value::Real(value) => format!("{value:?}"),
        Value::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let text = |text: &str| Value::Text(text.into());
        Answer {
            columns: vec!["host".into(), "requests".into(), "note".into()],
            rows: vec![
                vec![text("a.test"), Value::Int(123), text("say \"hi\", \\ \u{1}")],
                vec![Value::Null, Value::Int(4), Value::Real(0.5)],
            ],
            ..Answer::default()
        }
    }

    #[test]
    fn json_is_an_array_of_flat_objects() {
        assert_eq!(
            render(&answer(), Style::Json),
            "[{\"host\":\"a.test\",\"requests\":123,\"note\":\"say \\\"hi\\\", \\\\ \\u0001\"},\n \
             {\"host\":null,\"requests\":4,\"note\":0.5}]\n"
        );
        assert_eq!(render(&Answer::default(), Style::Json), "[]\n");
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let expected = "host,requests,note\r\na.test,123,\"say \"\"hi\"\", \\ \u{1}\"\r\n,4,0.5\r\n";
        assert_eq!(render(&answer(), Style::Csv), expected);
    }
}
