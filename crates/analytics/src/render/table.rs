//! Tables for people: columns as wide as their texts on screen, short times, bars.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::question::{QueryResult, SqlValue};
use crate::render::plain;
use crate::time::TimeStep;

/// The maximum width of all columns but the last.
const WIDEST: usize = 60;

/// The width below which no column of text is cut to fit a screen.
const NARROWEST: usize = 8;

/// The minimum and maximum width of bars.
const BAR: [usize; 2] = [10, 30];

/// The gap between two columns.
const BETWEEN: &str = "  ";

/// Renders a table, for a screen of the given width if there is one.
pub(crate) fn table(answer: &QueryResult, columns: Option<usize>) -> String {
    let cells: Vec<Vec<String>> = std::iter::once(answer.columns.clone())
        .chain(answer.rows.iter().map(|row| {
            row.iter().zip(&answer.columns).map(|(value, name)| shown(value, name, answer.step)).collect()
        }))
        .collect();
    let count = answer.columns.len();
    let natural: Vec<usize> = (0..count)
        .map(|column| cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max())
        .map(|width| width.unwrap_or(0))
        .collect();
    let is_number = |column: usize| {
        answer.rows.iter().any(|row| matches!(row.get(column), Some(SqlValue::Int(_) | SqlValue::Real(_))))
            && !answer.rows.iter().any(|row| matches!(row.get(column), Some(SqlValue::Text(_))))
    };
    let right: Vec<bool> = (0..count).map(is_number).collect();
    let widths = match columns {
        Some(columns) => fitting(natural, &right, columns),
        None => natural.into_iter().map(|width| width.min(WIDEST)).collect(),
    };
    let used = widths.iter().sum::<usize>() + BETWEEN.len() * count.saturating_sub(1);
    let bars = columns.map(|columns| bars(answer, columns.saturating_sub(used + BETWEEN.len())));
    let bars = bars.unwrap_or_default();
    let mut text = String::new();
    for (index, row) in cells.iter().enumerate() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == count;
            let width = widths.get(column).copied().unwrap_or(0);
            let shown = if last && columns.is_none() { cell.clone() } else { shorten(cell, width) };
            let padding = " ".repeat(width.saturating_sub(shown.width()));
            if right.get(column) == Some(&true) {
                line += &padding;
                line += &shown;
            } else {
                line += &shown;
                line += &padding;
            }
            if !last {
                line += BETWEEN;
            }
        }
        if let Some(bar) = index.checked_sub(1).and_then(|row| bars.get(row)) {
            line += BETWEEN;
            line += bar;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A value in the form for people.
fn shown(value: &SqlValue, column: &str, step: Option<TimeStep>) -> String {
    match value {
        SqlValue::Text(time) if column == "time" => short(time, step),
        SqlValue::Real(number) if column.ends_with("_ms") => format!("{number:.1}"),
        SqlValue::Real(number) if column.ends_with("_percent") => format!("{number:+.1}"),
        value => plain(value).replace(char::is_control, "\u{fffd}"),
    }
}

/// The part of an RFC 3339 time that distinguishes steps.
fn short(time: &str, step: Option<TimeStep>) -> String {
    let length = match step {
        Some(TimeStep::Month) => "2026-11".len(),
        Some(TimeStep::Day | TimeStep::Week) => "2026-11-22".len(),
        Some(TimeStep::Every(length)) if length.as_secs() % 60 == 0 => "2026-11-22T10:00".len(),
        Some(TimeStep::Every(_)) | None => "2026-11-22T10:00:00".len(),
    };
    time.get(..length).unwrap_or(time).replace('T', " ")
}

/// Bars proportional to the measured column, if there is room for them and something to compare.
fn bars(answer: &QueryResult, room: usize) -> Vec<String> {
    let column = answer.measured.and_then(|name| answer.columns.iter().position(|column| column == name));
    let Some(column) = column.filter(|_| room >= BAR[0] && answer.rows.len() > 1) else { return Vec::new() };
    let measured: Vec<f64> = answer
        .rows
        .iter()
        .map(|row| match row.get(column) {
            Some(SqlValue::Int(number)) => *number as f64,
            Some(SqlValue::Real(number)) => *number,
            _ => 0.0,
        })
        .collect();
    let most = measured.iter().copied().fold(0.0, f64::max);
    let width = room.min(BAR[1]) as f64;
    measured.into_iter().map(|number| bar(if most > 0.0 { number / most * width } else { 0.0 })).collect()
}

/// A bar in eighths of a column; any positive length is visible.
fn bar(length: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = if length > 0.0 { ((length * 8.0).round() as usize).max(1) } else { 0 };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Widths that fit a screen, if that is possible without cutting numbers or making columns useless.
fn fitting(mut widths: Vec<usize>, is_number: &[bool], columns: usize) -> Vec<usize> {
    let room = columns.saturating_sub(BETWEEN.len() * widths.len().saturating_sub(1));
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

/// Cuts a text to a width, with an ellipsis.
pub(crate) fn shorten(cell: &str, width: usize) -> String {
    if cell.width() <= width {
        return cell.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut shown: String = cell
        .chars()
        .take_while(|character| {
            let wide = character.width().unwrap_or(0);
            let fits = wide <= room;
            room = room.saturating_sub(wide);
            fits
        })
        .collect();
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(text: &str) -> SqlValue {
        SqlValue::Text(text.into())
    }

    fn answer(columns: &[&str], rows: Vec<Vec<SqlValue>>) -> QueryResult {
        QueryResult { rows, ..QueryResult::of(columns) }
    }

    #[test]
    fn tables_fit_a_screen() {
        let rows = vec![vec![text(&"p".repeat(70)), text("www.a.test"), SqlValue::Int(1)]];
        let answer = answer(&["page", "host", "requests"], rows);
        let lines: Vec<String> = table(&answer, Some(40)).lines().map(str::to_owned).collect();
        assert_eq!(lines[1], format!("{}…  www.a.test         1", "p".repeat(17)));
        assert!(lines.iter().all(|line| line.width() <= 40), "{lines:?}");
        assert!(table(&answer, Some(200)).contains(&"p".repeat(70)));
        assert!(table(&answer, Some(1)).contains("ppppppp…  www.a.t…         1"));
    }

    #[test]
    fn tables_align() {
        let rows = vec![
            vec![text("a.test"), SqlValue::Int(123), text("say \"hi\", \\ \u{1}")],
            vec![SqlValue::Null, SqlValue::Int(4), SqlValue::Real(0.5)],
        ];
        let expected =
            "host    requests  note\na.test       123  say \"hi\", \\ \u{fffd}\n               4  0.5\n";
        assert_eq!(table(&answer(&["host", "requests", "note"], rows), None), expected);
    }

    #[test]
    fn wide_letters_take_the_room_that_they_have_on_a_screen() {
        let rows = vec![
            vec![text("/日本語"), SqlValue::Int(1)],
            vec![text("/e\u{301}te\u{301}"), SqlValue::Int(2)],
            vec![text("/plain"), SqlValue::Int(3)],
        ];
        let shown = table(&answer(&["page", "n"], rows), None);
        // Two columns for each of the three, none for an accent of its own.
        assert_eq!(shown, "page     n\n/日本語  1\n/e\u{301}te\u{301}     2\n/plain   3\n");
        assert_eq!(shorten("日本語", 4), "日…");
    }

    #[test]
    fn bars_stand_beside_numbers_where_there_is_room() {
        let rows = vec![
            vec![text("/a"), SqlValue::Int(8)],
            vec![text("/b"), SqlValue::Int(1)],
            vec![text("/c"), SqlValue::Int(0)],
        ];
        let answer = QueryResult { measured: Some("requests"), ..answer(&["page", "requests"], rows) };
        assert!(!table(&answer, Some(25)).contains('█'), "none shorter than ten");
        let shown = table(&answer, Some(26));
        assert_eq!(shown, "page  requests\n/a           8  ██████████\n/b           1  █▎\n/c           0\n");
        assert!(!table(&answer, None).contains('█'), "nor where no terminal is");
    }

    #[test]
    fn times_are_as_long_as_their_steps_need() {
        let time = "2026-11-22T10:00:00+01:00";
        let every = |seconds| Some(TimeStep::Every(Duration::from_secs(seconds)));
        assert_eq!(short(time, None), "2026-11-22 10:00:00");
        assert_eq!(
            (short(time, every(60)), short(time, every(5))),
            ("2026-11-22 10:00".into(), "2026-11-22 10:00:00".into())
        );
        assert_eq!(
            (short(time, Some(TimeStep::Week)), short(time, Some(TimeStep::Month))),
            ("2026-11-22".into(), "2026-11".into())
        );
    }
}
