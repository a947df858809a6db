//! Answers as people and programs read them: a table, JSON, CSV.

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

/// Columns of tables are cut at this many characters, but for the last one: they are there to be seen at once.
const WIDEST: usize = 60;

/// No column of text is cut below this to fit a screen.
const NARROWEST: usize = 8;

/// Writes an answer; the text ends with a line feed.
#[must_use]
pub fn render(answer: &Answer, style: Style) -> String {
    match style {
        Style::Table => table(answer, None),
        Style::Json => json(answer),
        Style::Csv => csv(answer),
    }
}

/// A table for a screen of so many columns: the widest columns of text are cut until it fits.
#[must_use]
pub fn fit(answer: &Answer, columns: usize) -> String {
    table(answer, Some(columns))
}

fn table(answer: &Answer, columns: Option<usize>) -> String {
    let cells: Vec<Vec<String>> =
        std::iter::once(answer.columns.clone())
            .chain(answer.rows.iter().map(|row| {
                row.iter().map(|value| plain(value).replace(char::is_control, "\u{fffd}")).collect()
            }))
            .collect();
    let count = answer.columns.len();
    let natural: Vec<usize> = (0..count)
        .map(|column| cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max())
        .map(|width| width.unwrap_or(0))
        .collect();
    let is_number = |column: usize| {
        answer.rows.iter().any(|row| matches!(row.get(column), Some(Value::Int(_) | Value::Real(_))))
            && !answer.rows.iter().any(|row| matches!(row.get(column), Some(Value::Text(_))))
    };
    let right: Vec<bool> = (0..count).map(is_number).collect();
    let widths = match columns {
        Some(columns) => fitting(natural, &right, columns),
        None => natural.into_iter().map(|width| width.min(WIDEST)).collect(),
    };
    let mut text = String::new();
    for row in &cells {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == count;
            let width = widths.get(column).copied().unwrap_or(0);
            let shown = if last && columns.is_none() { cell.clone() } else { shorten(cell, width) };
            let padding = " ".repeat(width.saturating_sub(shown.chars().count()));
            if right.get(column) == Some(&true) {
                line += &padding;
                line += &shown;
            } else {
                line += &shown;
                line += &padding;
            }
            if !last {
                line += "  ";
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Widths that fit a screen, if that is possible without cutting numbers or making columns useless.
fn fitting(mut widths: Vec<usize>, is_number: &[bool], columns: usize) -> Vec<usize> {
    let room = columns.saturating_sub(2 * widths.len().saturating_sub(1));
    loop {
        let excess = widths.iter().sum::<usize>().saturating_sub(room);
        let mut texts: Vec<usize> = (0..widths.len()).filter(|column| !is_number[*column]).collect();
        texts.sort_unstable_by_key(|column| std::cmp::Reverse(widths[*column]));
        let Some(&widest) = texts.first().filter(|widest| excess > 0 && widths[**widest] > NARROWEST) else {
            return widths;
        };
        // Down to the next widest at once, then together.
        let next = texts.get(1).map_or(0, |next| widths[*next]).max(NARROWEST);
        let cut = (widths[widest] - next).clamp(1, excess);
        widths[widest] -= cut;
    }
}

fn shorten(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let mut shown: String = cell.chars().take(width.saturating_sub(1)).collect();
    shown.push('…');
    shown
}

fn json(answer: &Answer) -> String {
    let mut text = String::from("[");
    for (index, row) in answer.rows.iter().enumerate() {
        text += if index == 0 { "" } else { ",\n " };
        text.push('{');
        for (column, (name, value)) in answer.columns.iter().zip(row).enumerate() {
            text += if column == 0 { "" } else { "," };
            quote(&mut text, name);
            text.push(':');
            match value {
                Value::Text(value) => quote(&mut text, value),
                // JSON has no word for what is not a number.
                Value::Real(value) if !value.is_finite() => text += "null",
                Value::Null => text += "null",
                other => text += &plain(other),
            }
        }
        text.push('}');
    }
    text += "]\n";
    text
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

    #[test]
    fn tables_fit_a_screen() {
        let text = |text: &str| Value::Text(text.into());
        let answer = Answer {
            columns: vec!["page".into(), "host".into(), "requests".into()],
            rows: vec![vec![text(&"p".repeat(70)), text("www.a.test"), Value::Int(1)]],
        };
        let lines: Vec<String> = fit(&answer, 40).lines().map(str::to_owned).collect();
        assert_eq!(lines[1], format!("{}…  www.a.test         1", "p".repeat(17)));
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        assert!(fit(&answer, 200).contains(&"p".repeat(70)));
        assert!(fit(&answer, 1).contains("ppppppp…  www.a.t…         1"));
    }

    #[test]
    fn tables_align() {
        let expected =
            "host    requests  note\na.test       123  say \"hi\", \\ \u{fffd}\n             4  0.5\n";
        assert_eq!(
            render(&answer(), Style::Table),
            expected.replace("\n             4", "\n               4")
        );
    }
}
