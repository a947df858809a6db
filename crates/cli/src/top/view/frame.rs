//! Title, summary with curves, and the last line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline};

use super::{BOLD, CHOSEN, TopPalette, width};
use crate::top::model::{TopMode, TopModel};
use crate::top::tables::{TopTable, clock};
use crate::top::{history, summary, text};

/// Columns of the summary's titles, and of the texts beside curves.
const TITLE: u16 = 13;
const TEXT: u16 = 49;

/// Draws the title and the summary.
pub(super) fn head(frame: &mut Frame<'_>, area: Rect, model: &TopModel, palette: TopPalette) {
    frame.render_widget(title(model, area.width, palette), row(area, 0));
    if model.figures.is_null() {
        frame.render_widget(Line::from("waiting for figures"), row(area, 1));
        return;
    }
    let lines = summary::lines(&model.figures);
    for (index, (name, says)) in (1..).zip(lines) {
        let style = if name == "responses" && summary::failures(&model.figures) > Some(0.0) {
            palette.bad()
        } else {
            Style::new()
        };
        let says = text::fit(&says, usize::from(area.width.saturating_sub(TITLE))).into_owned();
        let line = Line::from(vec![
            Span::styled(format!("{name:<width$}", width = usize::from(TITLE)), BOLD),
            Span::styled(says, style),
        ]);
        frame.render_widget(line, row(area, index));
    }
    let curves = [&model.history.requests, &model.history.failures, &model.history.bytes];
    let used = TITLE + TEXT;
    let room = area.width.saturating_sub(used).min(history::POINTS as u16);
    for (index, curve) in (1..).zip(curves) {
        let place = Rect { x: area.x + area.width - room, width: room, ..row(area, index) };
        let widget = Sparkline::default().data(curve.iter().copied()).style(palette.curve());
        frame.render_widget(widget.direction(RenderDirection::RightToLeft), place);
    }
}

fn row(area: Rect, index: u16) -> Rect {
    Rect { y: area.y + index, height: 1, ..area }
}

fn title(model: &TopModel, columns: u16, palette: TopPalette) -> Line<'static> {
    let at = clock(&model.figures["at"]).into_owned();
    let state = match &model.away {
        Some(_) if model.figures.is_null() => Span::styled(" no answer", palette.bad()),
        Some(_) => Span::styled(format!(" no answer since {at} UTC"), palette.bad()),
        None if model.paused => Span::styled(format!(" paused at {at} UTC"), palette.warning()),
        None => Span::raw(format!(" {at} UTC, every {}", model.interval)),
    };
    let state_width = width(&state.content);
    let name = "offramp top ";
    let room = columns.saturating_sub(width(name) + state_width);
    let source = text::padded(&model.source, usize::from(room), false);
    Line::from(vec![Span::styled(name, BOLD), Span::raw(source), state])
}

/// Draws the last line: a question, the filter, a notice, or the keys.
pub(super) fn foot(frame: &mut Frame<'_>, area: Rect, model: &TopModel, palette: TopPalette) {
    let columns = usize::from(area.width);
    let fitted = |says: &str| text::fit(says, columns).into_owned();
    let line = match &model.mode {
        TopMode::Question(ask) => {
            let answers = " y/n ";
            let question = ask.question().unwrap_or_default();
            let question = text::fit(&question, columns - answers.len()).into_owned();
            Line::from(vec![Span::raw(question), Span::styled(answers, CHOSEN)]).style(palette.warning())
        }
        TopMode::Filter { .. } => Line::from(format!("/{}_", text::clean(&model.filter))),
        TopMode::Detail(_) => Line::from("Up, Down, PageUp, PageDown scroll   Esc goes back"),
        TopMode::Browse => match (&model.notice, &model.away) {
            (Some(notice), _) => Line::from(fitted(notice.lines().next().unwrap_or_default())),
            (None, Some(reason)) => Line::from(fitted(reason)).style(palette.bad()),
            (None, None) => Line::from(fitted(&keys(model))),
        },
    };
    frame.render_widget(line, area);
}

fn keys(model: &TopModel) -> String {
    let rows = model.rows();
    let change = match model.table {
        TopTable::Servers => "d drain  e enable  ",
        TopTable::Connections => "k close  ",
        _ => "",
    };
    let count = if rows.len() < rows.total() {
        format!("{} of {} have `{}`  ", rows.len(), rows.total(), text::clean(&model.filter))
    } else if let (Some(note), true) = (&rows.note, rows.len() > 0) {
        format!("{note}  ")
    } else if model.table == TopTable::Requests && model.lost > 0 {
        format!("{} left out  ", model.lost)
    } else {
        String::new()
    };
    format!("{count}{change}Enter detail  s order  / filter  Space pause  ? help  q quit")
}
