//! What the user sees while a run goes on: one line that is rewritten on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Steps done of steps to do, on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    total: usize,
    done: usize,
    start: Instant,
    terminal: bool,
    /// Plain lines: the last heading printed, so that a round is not a line of its own.
    heading: String,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { total, done: 0, start: Instant::now(), terminal, heading: String::new() }
    }

    /// Shows what begins now: a case, and where in it the run is.
    pub(crate) fn step(&mut self, heading: &str, detail: &str) {
        if self.terminal {
            const WIDTH: usize = 24;
            let filled = WIDTH * self.done / self.total.max(1);
            let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled.min(WIDTH)));
            let left = self.left().map(|t| format!(", {t} left")).unwrap_or_default();
            eprint!("\r\x1b[K{bar} {}/{} {heading} {detail}{left}", self.done, self.total);
            let _ = std::io::stderr().flush();
        } else if self.heading != heading {
            self.heading = heading.to_owned();
            eprintln!("[{}/{}] {heading}", self.done, self.total);
        }
        self.done = (self.done + 1).min(self.total);
    }

    /// Leaves out steps that will not be made.
    pub(crate) fn skip(&mut self, steps: usize) {
        self.done = (self.done + steps).min(self.total);
    }

    /// Prints a line that stays.
    pub(crate) fn note(&mut self, text: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}  {text}");
    }

    /// Ends the line that is rewritten.
    pub(crate) fn end(&mut self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn left(&self) -> Option<String> {
        let each = self.start.elapsed().checked_div(u32::try_from(self.done).ok()?)?;
        let left = each.saturating_mul(u32::try_from(self.total - self.done).ok()?);
        Some(minutes(left))
    }
}

/// "42 s" or "3 min".
pub(crate) fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=90 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
