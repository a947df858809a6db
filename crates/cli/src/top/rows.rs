//! The rows of one table: their order, and the one that is chosen.

use std::collections::VecDeque;

use serde_json::Value;

use super::tables::{TopOrder, TopTable};

/// Number of rows that a new row is compared with; a stream repeats ten.
const REPEATED: usize = 32;

/// The rows of one table.
#[derive(Debug)]
pub(super) struct TopRows {
    table: TopTable,
    all: VecDeque<Value>,
    /// Indices of the rows that the filter lets through, in their order.
    shown: Vec<usize>,
    pub(super) order: TopOrder,
    /// The chosen row as it was last: it stays chosen wherever a new order puts it.
    chosen: Option<Value>,
    /// Set while `shown` does not belong to `all`.
    is_stale: bool,
    /// Index of the chosen row within `shown`.
    at: usize,
    /// Index of the topmost row on the screen within `shown`.
    top: usize,
    /// Reason why rows are missing.
    pub(super) note: Option<String>,
}

impl TopRows {
    pub(super) fn new(table: TopTable) -> Self {
        Self {
            table,
            all: VecDeque::new(),
            shown: Vec::new(),
            order: table.order(),
            chosen: None,
            is_stale: false,
            at: 0,
            top: 0,
            note: None,
        }
    }

    /// Replaces all rows, and the reason why some are missing.
    pub(super) fn set(&mut self, rows: Vec<Value>, note: Option<String>) {
        (self.all, self.note) = (rows.into(), note);
        self.shown.clear();
        self.is_stale = true;
    }

    /// Adds a row, and drops the oldest beyond `most`. A stream that begins anew repeats the latest rows: they are
    /// there already.
    pub(super) fn add(&mut self, row: Value, most: usize) {
        self.note = None;
        if self.all.iter().rev().take(REPEATED).any(|one| self.table.is_same(one, &row)) {
            return;
        }
        self.all.push_back(row);
        if self.all.len() > most {
            self.all.pop_front();
        }
        self.shown.clear();
        self.is_stale = true;
    }

    /// Returns true if [`TopRows::arrange`] must be called before rows are shown.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Sorts the rows that have the `filter`, which is in lower case, and finds the chosen one among them.
    pub(super) fn arrange(&mut self, filter: &str) {
        self.is_stale = false;
        let Self { table, all, shown, order, .. } = self;
        shown.clear();
        shown.extend((0..all.len()).filter(|row| filter.is_empty() || table.matches(&all[*row], filter)));
        // A stable sort: equal rows stay in the order of the figures.
        shown.sort_by(|one, other| table.compare(&all[*one], &all[*other], *order));
        let chosen = self.chosen.as_ref();
        let found = chosen
            .and_then(|chosen| self.shown.iter().position(|row| self.table.is_same(&self.all[*row], chosen)));
        self.at = found.unwrap_or(self.at).min(self.shown.len().saturating_sub(1));
    }

    pub(super) fn len(&self) -> usize {
        self.shown.len()
    }

    /// Number of rows with and without the filter.
    pub(super) fn total(&self) -> usize {
        self.all.len()
    }

    /// The rows of the screen, and whether each is the chosen one.
    pub(super) fn visible(&self, height: usize) -> impl Iterator<Item = (&Value, bool)> {
        let rows = self.shown.iter().enumerate().skip(self.top).take(height);
        rows.map(|(at, row)| (&self.all[*row], at == self.at))
    }

    pub(super) fn selected(&self) -> Option<&Value> {
        self.shown.get(self.at).map(|row| &self.all[*row])
    }

    /// Chooses the row that is `step` further down, or the nearest there is.
    pub(super) fn select_by(&mut self, step: isize) {
        let last = self.shown.len().saturating_sub(1);
        self.at = self.at.saturating_add_signed(step).min(last);
        self.chosen = self.selected().cloned();
    }

    pub(super) fn scroll_to_selected(&mut self, height: usize) {
        let first = (self.at + 1).saturating_sub(height);
        let last = self.shown.len().saturating_sub(height);
        self.top = self.top.clamp(first, self.at.max(first)).min(last.max(first));
    }

    /// Orders by the next column, numbers with the largest first.
    pub(super) fn next_order(&mut self) {
        let columns = self.table.columns();
        let column = (self.order.column + 1) % columns.len();
        self.order = TopOrder { column, descending: columns[column].is_number() };
    }

    pub(super) fn reverse_order(&mut self) {
        self.order.descending = !self.order.descending;
    }
}
