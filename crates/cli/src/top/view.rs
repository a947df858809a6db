//! The screen: widgets of the model.
//!
//! Columns and rows come from [`TopTable`]; only rows that are visible are formatted.

mod frame;
mod overlay;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Row, Table};
use unicode_width::UnicodeWidthStr as _;

use super::model::{TopMode, TopModel};
use super::rows::TopRows;
use super::tables::{TopColumn, TopTable, TopUnit};
use super::text;

/// The smallest screen, in columns and rows.
const SMALLEST: (u16, u16) = (60, 14);
/// Rows of the title and of the summary.
const HEAD: u16 = 6;

/// Colours of states, which are left out where the user wants none.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopPalette {
    pub(super) colour: bool,
}

impl TopPalette {
    fn with(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.with(Color::Green)
    }

    fn bad(self) -> Style {
        self.with(Color::Red)
    }

    fn warning(self) -> Style {
        self.with(Color::Yellow)
    }

    fn curve(self) -> Style {
        self.with(Color::Cyan)
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
/// Style of the chosen row and table.
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Number of rows that a table has on a screen of this height.
pub(super) fn table_height(height: u16) -> usize {
    // Tabs, titles of columns, and the last line.
    usize::from(height.saturating_sub(HEAD + 3))
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &TopModel, palette: TopPalette) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        too_small(frame, area);
        return;
    }
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(HEAD),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame::head(frame, head, model, palette);
    frame.render_widget(tab_line(model, tabs.width), tabs);
    match &model.mode {
        TopMode::Detail(detail) => overlay::detail(frame, body, detail),
        TopMode::Browse | TopMode::Filter { .. } | TopMode::Question(_) => {
            table(frame, body, model.table, model.rows(), palette);
        }
    }
    frame::foot(frame, foot, model, palette);
}

fn too_small(frame: &mut Frame<'_>, area: Rect) {
    let (columns, rows) = SMALLEST;
    let says = format!(
        "offramp top needs {columns} columns and {rows} rows; this has {} and {}.\nq ends it.",
        area.width, area.height
    );
    let width = usize::from(area.width.max(1));
    let lines: Vec<Line<'_>> = says.lines().flat_map(|line| overlay::wrapped(line, width)).collect();
    frame.render_widget(Text::from(lines), area);
}

/// Numbers and names of the tables; on a narrow screen the name of the chosen one alone.
fn tab_line(model: &TopModel, columns: u16) -> Line<'static> {
    let names = TopTable::ALL.map(|table| format!("{} {}", table as usize + 1, table.name()));
    let is_wide = names.iter().map(|name| width(name) + 2).sum::<u16>() <= columns + 2;
    let mut line = Line::default();
    for (table, name) in TopTable::ALL.into_iter().zip(names) {
        let is_chosen = table == model.table;
        let name = if is_wide || is_chosen { name } else { (table as usize + 1).to_string() };
        line.push_span(Span::styled(name, if is_chosen { CHOSEN } else { Style::new() }));
        line.push_span("  ");
    }
    line
}

fn table(frame: &mut Frame<'_>, area: Rect, table: TopTable, rows: &TopRows, palette: TopPalette) {
    let columns = table.columns();
    let widths = widths(columns, area.width);
    let height = usize::from(area.height.saturating_sub(1));
    let titles = columns.iter().zip(&widths).enumerate().map(|(index, (column, width))| {
        let is_order = rows.order.column == index;
        let mark = if !is_order {
            ""
        } else if rows.order.descending {
            "↓"
        } else {
            "↑"
        };
        Text::from(text::padded(&format!("{}{mark}", column.title), usize::from(*width), column.is_number()))
    });
    let cells = rows.visible(height).map(|(row, is_chosen)| {
        let cells = columns.iter().zip(&widths).map(|(column, width)| {
            let cell = column.cell(row);
            let style = if is_chosen { Style::new() } else { cell_style(column, &cell, palette) };
            let shown = text::padded(&cell, usize::from(*width), column.is_number());
            Text::from(shown).style(style)
        });
        Row::new(cells).style(if is_chosen { CHOSEN } else { Style::new() })
    });
    let constraints = widths.iter().map(|width| Constraint::Length(*width));
    let widget = Table::new(cells, constraints).header(Row::new(titles).style(BOLD)).column_spacing(1);
    frame.render_widget(widget, area);
    if rows.len() == 0 && area.height > 1 {
        let says = match &rows.note {
            Some(note) => note.clone(),
            None if rows.total() > 0 => format!("none of {} has the filter's text", rows.total()),
            None => table.nothing().to_owned(),
        };
        let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
        let lines = says.lines().flat_map(|line| overlay::wrapped(line, usize::from(area.width)));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), below);
    }
}

/// Widths of columns; those without a width of their own share what is left.
fn widths(columns: &[TopColumn], width: u16) -> Vec<u16> {
    let gaps = columns.len().saturating_sub(1) as u16;
    let fixed: u16 = columns.iter().map(|column| column.width).sum();
    let flexible = columns.iter().filter(|column| column.width == 0).count().max(1) as u16;
    let left = width.saturating_sub(fixed + gaps);
    let mut extra = left % flexible;
    let one = |column: &TopColumn| match column.width {
        0 => {
            let more = u16::from(extra > 0);
            extra -= more;
            left / flexible + more
        }
        fixed => fixed,
    };
    columns.iter().map(one).collect()
}

fn cell_style(column: &TopColumn, cell: &str, palette: TopPalette) -> Style {
    match (column.key, cell) {
        ("state", "up") => palette.good(),
        ("state", "down" | "ejected" | "unresolved") => palette.bad(),
        ("state", _) => palette.warning(),
        ("errors_per_second", cell) if !matches!(cell, "0" | "-") => palette.bad(),
        ("status", cell) if cell.starts_with('5') && column.unit == TopUnit::Count => palette.bad(),
        ("status", cell) if cell.starts_with('4') => palette.warning(),
        _ => Style::new(),
    }
}

/// Width of a text on the screen.
fn width(text: &str) -> u16 {
    u16::try_from(text.width()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
