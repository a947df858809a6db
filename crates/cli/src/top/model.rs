//! State of the screen: figures, the chosen table and row, and what is asked. It changes by messages and keys alone; it
//! reads no clock and does no I/O.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use super::act::{self, TopAsk};
use super::history::TopHistory;
use super::rows::TopRows;
use super::tables::TopTable;
use super::{help, text};

/// Maximum number of requests that the table of requests keeps.
const MAX_REQUESTS: usize = 500;
/// Maximum length of the filter, in characters.
const MAX_FILTER: usize = 64;

/// Something that has happened.
#[derive(Debug)]
pub(super) enum TopMessage {
    Figures(Value),
    /// Reason why no figures come. It is tried again.
    Away(String),
    /// Open connections; the flag is set where there are more.
    Connections(Vec<Value>, bool),
    /// A request that has ended.
    Request(Value),
    /// Number of requests that the stream has left out.
    Lost(u64),
    /// Reason why a table that is asked for apart has no rows.
    Missing(TopTable, String),
    Answer(TopAsk, Result<Value, String>),
    Key(KeyEvent),
    Resize,
}

impl TopMessage {
    /// Returns true for keys and sizes, whose effect a user waits for.
    pub(super) fn is_by_user(&self) -> bool {
        matches!(self, Self::Key(_) | Self::Resize)
    }
}

/// Something that the caller has to do after a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopEffect {
    Quit,
    /// Stop the process until the shell continues it (job control).
    Suspend,
    /// Draw every cell anew, where something else has written on the terminal.
    Redraw,
    Ask(TopAsk),
}

/// Use of the keyboard.
#[derive(Debug)]
pub(super) enum TopMode {
    Browse,
    /// The filter is typed; the text is the one before, for Esc.
    Filter {
        before: String,
    },
    Question(TopAsk),
    Detail(TopDetail),
}

/// More about one row.
#[derive(Debug)]
pub(super) struct TopDetail {
    pub(super) title: String,
    /// The request whose answer is shown.
    pub(super) ask: Option<TopAsk>,
    pub(super) lines: Vec<String>,
    pub(super) scroll: usize,
}

/// State of the screen.
#[derive(Debug)]
pub(super) struct TopModel {
    /// The admin interface, and the interval of figures, as typed.
    pub(super) source: String,
    pub(super) interval: &'static str,
    /// The latest figures without their lists; null before the first.
    pub(super) figures: Value,
    pub(super) history: TopHistory,
    /// Reason why figures do not come.
    pub(super) away: Option<String>,
    pub(super) table: TopTable,
    tables: [TopRows; TopTable::ALL.len()],
    pub(super) filter: String,
    pub(super) mode: TopMode,
    pub(super) paused: bool,
    /// Outcome of the latest change, or advice on a key.
    pub(super) notice: Option<String>,
    /// Number of requests that the table of requests has left out.
    pub(super) lost: u64,
    /// Height of the table's body and of the detail, as drawn last.
    page: usize,
}

impl TopModel {
    pub(super) fn new(source: &str, interval: &'static str) -> Self {
        Self {
            source: text::clean(source).into_owned(),
            interval,
            figures: Value::Null,
            history: TopHistory::default(),
            away: None,
            table: TopTable::Hosts,
            tables: TopTable::ALL.map(TopRows::new),
            filter: String::new(),
            mode: TopMode::Browse,
            paused: false,
            notice: None,
            lost: 0,
            page: 1,
        }
    }

    /// Rows of the chosen table.
    pub(super) fn rows(&self) -> &TopRows {
        &self.tables[self.table as usize]
    }

    fn rows_mut(&mut self) -> &mut TopRows {
        &mut self.tables[self.table as usize]
    }

    /// The table that is asked for apart from figures, if it is looked at.
    pub(super) fn wanted(&self) -> Option<TopTable> {
        let is_apart = matches!(self.table, TopTable::Connections | TopTable::Requests);
        (is_apart && !self.paused).then_some(self.table)
    }

    /// Brings the chosen row into view of a table with `height` rows.
    pub(super) fn arrange(&mut self, height: usize) {
        self.page = height.max(1);
        self.settle();
        self.rows_mut().scroll_to_selected(height);
        if let TopMode::Detail(detail) = &mut self.mode {
            detail.scroll = detail.scroll.min(detail.lines.len().saturating_sub(1));
        }
    }

    /// Takes in what has happened.
    pub(super) fn update(&mut self, message: TopMessage) -> Option<TopEffect> {
        match message {
            TopMessage::Figures(figures) => self.take(figures),
            TopMessage::Away(reason) => self.away = Some(text::clean(&reason).into_owned()),
            TopMessage::Connections(rows, more) => {
                let note = more.then(|| format!("the first {} of more connections", rows.len()));
                self.fill(TopTable::Connections, rows, note);
            }
            TopMessage::Request(request) => {
                if !self.paused {
                    self.tables[TopTable::Requests as usize].add(request, MAX_REQUESTS);
                }
            }
            TopMessage::Lost(count) => self.lost += count,
            TopMessage::Missing(table, reason) => {
                let reason = text::clean(&reason).into_owned();
                self.fill(table, Vec::new(), Some(reason));
            }
            TopMessage::Answer(ask, outcome) => self.answered(&ask, outcome),
            TopMessage::Key(key) => return self.key(key),
            TopMessage::Resize => {}
        }
        None
    }

    fn take(&mut self, mut figures: Value) {
        self.away = None;
        // The first event of a new stream has no rates: those on the screen are better.
        let has_rates = !figures["interval_s"].is_null();
        if self.paused || (!has_rates && !self.figures.is_null()) {
            return;
        }
        self.history.add(&figures);
        for table in TopTable::ALL {
            if let Some(rows) = table.take(&mut figures) {
                self.fill(table, rows, None);
            }
        }
        self.figures = figures;
    }

    fn fill(&mut self, table: TopTable, rows: Vec<Value>, note: Option<String>) {
        self.tables[table as usize].set(rows, note);
        self.sort(table);
    }

    /// Sorts a table, if it is the one that is shown.
    fn sort(&mut self, table: TopTable) {
        if table == self.table {
            let filter = self.filter.to_lowercase();
            self.tables[table as usize].arrange(&filter);
        }
    }

    /// Sorts the table that is shown, if rows were added. Hundreds may be added between two looks.
    fn settle(&mut self) {
        if self.rows().is_stale() {
            self.sort(self.table);
        }
    }

    fn choose(&mut self, table: TopTable) {
        self.table = table;
        self.sort(table);
    }

    /// The table `step` further on, from the last one to the first.
    fn step(&mut self, step: usize) {
        let next = (self.table as usize + step) % TopTable::ALL.len();
        self.choose(TopTable::ALL[next]);
    }

    fn answered(&mut self, ask: &TopAsk, outcome: Result<Value, String>) {
        if ask.question().is_some() {
            self.notice = Some(match outcome {
                Ok(_) => ask.done(),
                Err(reason) => text::clean(&reason).into_owned(),
            });
            return;
        }
        // The answer to a detail that was left is dropped.
        if let TopMode::Detail(detail) = &mut self.mode
            && detail.ask.as_ref() == Some(ask)
        {
            detail.lines = match outcome {
                Ok(answer) => ask.lines(&answer),
                Err(reason) => {
                    let reason = reason.lines().map(|line| text::clean(line).into_owned());
                    reason.chain([String::new()]).chain(std::mem::take(&mut detail.lines)).collect()
                }
            };
        }
    }

    fn key(&mut self, key: KeyEvent) -> Option<TopEffect> {
        self.settle();
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(TopEffect::Quit),
                KeyCode::Char('z') => Some(TopEffect::Suspend),
                KeyCode::Char('l') => Some(TopEffect::Redraw),
                _ => None,
            };
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            // Esc and another key in one read, as from a slow connection, have the bytes of Alt with that key.
            let first = self.key(KeyCode::Esc.into());
            return first.or_else(|| self.key(key.code.into()));
        }
        match &mut self.mode {
            TopMode::Browse => self.browse(key.code),
            TopMode::Filter { .. } => {
                self.type_filter(key.code);
                None
            }
            TopMode::Question(ask) => match key.code {
                KeyCode::Char('y' | 'Y') => {
                    let ask = ask.clone();
                    self.mode = TopMode::Browse;
                    Some(TopEffect::Ask(ask))
                }
                KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => {
                    self.mode = TopMode::Browse;
                    self.notice = Some("nothing was changed".to_owned());
                    None
                }
                // Any other key neither agrees nor refuses.
                _ => None,
            },
            TopMode::Detail(detail) => {
                let page = self.page;
                match key.code {
                    KeyCode::Up => detail.scroll = detail.scroll.saturating_sub(1),
                    KeyCode::Down => detail.scroll += 1,
                    KeyCode::PageUp => detail.scroll = detail.scroll.saturating_sub(page),
                    KeyCode::PageDown => detail.scroll += page,
                    KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?') => self.mode = TopMode::Browse,
                    _ => {}
                }
                None
            }
        }
    }

    fn browse(&mut self, key: KeyCode) -> Option<TopEffect> {
        self.notice = None;
        let page = self.page;
        match key {
            KeyCode::Char('q') => return Some(TopEffect::Quit),
            KeyCode::Char('?') => self.help(),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.mode = TopMode::Filter { before: self.filter.clone() },
            KeyCode::Esc => {
                self.filter.clear();
                self.sort(self.table);
            }
            KeyCode::Tab | KeyCode::Right => self.step(1),
            KeyCode::BackTab | KeyCode::Left => self.step(TopTable::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='7') => {
                self.choose(TopTable::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Char('s') => self.reorder(TopRows::next_order),
            KeyCode::Char('r') => self.reorder(TopRows::reverse_order),
            KeyCode::Up => self.rows_mut().select_by(-1),
            KeyCode::Down => self.rows_mut().select_by(1),
            KeyCode::PageUp => self.rows_mut().select_by(-(page as isize)),
            KeyCode::PageDown => self.rows_mut().select_by(page as isize),
            KeyCode::Home => self.rows_mut().select_by(isize::MIN),
            KeyCode::End => self.rows_mut().select_by(isize::MAX),
            KeyCode::Enter => return self.open(),
            KeyCode::Char(change @ ('d' | 'e' | 'k')) => {
                match TopAsk::change(change, self.table, self.rows().selected()) {
                    Ok(ask) => self.mode = TopMode::Question(ask),
                    Err(reason) => self.notice = Some(reason.to_owned()),
                }
            }
            _ => {}
        }
        None
    }

    fn reorder(&mut self, change: fn(&mut TopRows)) {
        change(self.rows_mut());
        self.sort(self.table);
    }

    fn type_filter(&mut self, key: KeyCode) {
        let TopMode::Filter { before } = &mut self.mode else { return };
        match key {
            KeyCode::Enter => self.mode = TopMode::Browse,
            KeyCode::Esc => {
                self.filter = std::mem::take(before);
                self.mode = TopMode::Browse;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < MAX_FILTER => self.filter.push(c),
            _ => {}
        }
        self.sort(self.table);
    }

    fn help(&mut self) {
        let (title, lines) = ("keys".to_owned(), help::lines());
        self.mode = TopMode::Detail(TopDetail { title, ask: None, lines, scroll: 0 });
    }

    /// Opens the detail of the chosen row.
    fn open(&mut self) -> Option<TopEffect> {
        let row = self.rows().selected()?;
        let ask = TopAsk::about(self.table, row);
        let (title, lines) = (act::title(self.table, row), act::whole(row));
        self.mode = TopMode::Detail(TopDetail { title, ask: ask.clone(), lines, scroll: 0 });
        ask.map(TopEffect::Ask)
    }
}

#[cfg(test)]
pub(in crate::top) mod tests;
