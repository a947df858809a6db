//! Lines in the place of the table.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthChar as _;

use super::BOLD;
use crate::top::model::TopDetail;

/// Draws a detail from its first line on.
pub(super) fn detail(frame: &mut Frame<'_>, area: Rect, detail: &TopDetail) {
    let mut lines = vec![Line::from(Span::styled(detail.title.as_str(), BOLD))];
    let room = usize::from(area.height.saturating_sub(1));
    let width = usize::from(area.width);
    let text = detail.lines.iter().skip(detail.scroll).flat_map(|line| wrapped(line, width)).take(room);
    lines.extend(text);
    frame.render_widget(Paragraph::new(lines), area);
}

/// Cuts a line into lines of `width` columns at most.
pub(super) fn wrapped(line: &str, width: usize) -> Vec<Line<'_>> {
    let mut out = Vec::new();
    let (mut from, mut used, mut blank) = (0, 0, None);
    for (at, c) in line.char_indices() {
        let wide = c.width().unwrap_or(0);
        if used + wide > width && at > from {
            // A word goes to the next line as a whole, if it is not wider than a line.
            let end = blank.filter(|blank| *blank > from).unwrap_or(at);
            out.push(Line::from(line[from..end].trim_end()));
            from = end;
            used = line[from..at].chars().map(|c| c.width().unwrap_or(0)).sum();
            blank = None;
        }
        used += wide;
        if c == ' ' {
            blank = Some(at + 1);
        }
    }
    out.push(Line::from(&line[from..]));
    out
}
