//! Rendering of answers for people and programs: table, JSON, CSV.

mod table;

use std::fmt::Write;

use crate::question::{QueryResult, SqlValue};

/// The output format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Aligned columns with headers.
    #[default]
    Table,
    /// A JSON array of flat objects (RFC 8259), one per line.
    Json,
    /// Comma-separated values with a header (RFC 4180).
    Csv,
}

/// Renders an answer; the text ends with a line feed.
#[must_use]
pub fn render(answer: &QueryResult, style: Style) -> String {
    match style {
        Style::Table => table::table(answer, None),
        Style::Json => json(answer),
        Style::Csv => csv(answer),
    }
}

/// Renders a table for a screen of `columns` columns: the widest columns of text are cut until it fits. Spare
/// room is used for bars beside the numbers.
#[must_use]
pub fn fit(answer: &QueryResult, columns: usize) -> String {
    table::table(answer, Some(columns))
}

/// Cuts a text to `columns` columns, with an ellipsis if it was longer.
#[must_use]
pub fn shorten(text: &str, columns: usize) -> String {
    table::shorten(text, columns)
}

/// Renders rows as JSON, one object per line.
#[must_use]
pub fn json_lines(answer: &QueryResult) -> String {
    let mut text = String::new();
    for row in &answer.rows {
        object(&mut text, &answer.columns, row);
        text.push('\n');
    }
    text
}

fn json(answer: &QueryResult) -> String {
    let mut text = String::from("[");
    for (index, row) in answer.rows.iter().enumerate() {
        text += if index == 0 { "" } else { ",\n " };
        object(&mut text, &answer.columns, row);
    }
    text += "]\n";
    text
}

fn object(text: &mut String, columns: &[String], row: &[SqlValue]) {
    text.push('{');
    for (column, (name, value)) in columns.iter().zip(row).enumerate() {
        *text += if column == 0 { "" } else { "," };
        quote(text, name);
        text.push(':');
        match value {
            SqlValue::Text(value) => quote(text, value),
            // JSON has no infinities and no NaN.
            SqlValue::Real(value) if !value.is_finite() => *text += "null",
            SqlValue::Null => *text += "null",
            other => *text += &plain(other),
        }
    }
    text.push('}');
}

/// Appends a JSON string (RFC 8259 §7).
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

fn csv(answer: &QueryResult) -> String {
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

fn plain(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => String::new(),
        SqlValue::Int(value) => value.to_string(),
        SqlValue::Real(value) => format!("{value:?}"),
        SqlValue::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> QueryResult {
        let text = |text: &str| SqlValue::Text(text.into());
        QueryResult {
            columns: vec!["host".into(), "requests".into(), "note".into()],
            rows: vec![
                vec![text("a.test"), SqlValue::Int(123), text("say \"hi\", \\ \u{1}")],
                vec![SqlValue::Null, SqlValue::Int(4), SqlValue::Real(0.5)],
            ],
            ..QueryResult::default()
        }
    }

    #[test]
    fn json_is_an_array_of_flat_objects() {
        assert_eq!(
            render(&answer(), Style::Json),
            "[{\"host\":\"a.test\",\"requests\":123,\"note\":\"say \\\"hi\\\", \\\\ \\u0001\"},\n \
             {\"host\":null,\"requests\":4,\"note\":0.5}]\n"
        );
        assert_eq!(render(&QueryResult::default(), Style::Json), "[]\n");
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let expected = "host,requests,note\r\na.test,123,\"say \"\"hi\"\", \\ \u{1}\"\r\n,4,0.5\r\n";
        assert_eq!(render(&answer(), Style::Csv), expected);
    }
}
