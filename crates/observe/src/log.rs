//! The program's own log.
//!
//! A [`Log`] is a small handle that is passed to the code that needs it; there is no global logger and there
//! are no macros. The calling thread writes the line before the call returns, so that the last words of a
//! failing start are not lost. A call may therefore block as long as the output does: workers return facts
//! and counts instead, and log at most a line a minute for each limit that refuses and each reason for a
//! pause.

mod line;
mod notices;
mod value;

use std::fmt;
use std::fs::File;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

use line::{Composer, LogLine};
pub use notices::{Detail, Notice, NoticeKind, Notices};
pub use value::LogValue;

use crate::OutputError;
use crate::sink::{Batch, Output, Sink};

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A failure that needs an action.
    Error,
    /// A problem that Offramp handled.
    Warn,
    /// Events worth reading back: starts, reloads, renewals.
    Info,
    /// Details that help to find a fault.
    Debug,
}

impl Level {
    /// Every level, in order of decreasing severity.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// The name in upper case, padded to the width of the column.
    const fn column(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN ",
            Self::Info => "INFO ",
            Self::Debug => "DEBUG",
        }
    }

    /// The severity in syslog (RFC 5424 §6.2.1).
    const fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warn => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }

    /// The prefix that sets the priority of a line on a stream read by journald (sd-daemon(3)).
    const fn journal_mark(self) -> &'static str {
        match self {
            Self::Error => "<3>",
            Self::Warn => "<4>",
            Self::Info => "<6>",
            Self::Debug => "<7>",
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text: `2026-11-21T20:51:00Z INFO  listening address=[::]:8443`
    #[default]
    Text,
    /// Text for streams that journald reads: its priority prefix in place of time and level.
    Journal,
    /// JSON, one object per line: `time`, `level`, `message`, then the fields.
    Json,
    /// logfmt: `time=… level=… msg=…`, then the fields.
    Logfmt,
}

/// A field of a line: key in `snake_case`, and value.
pub type LogField<'a> = (&'static str, LogValue<'a>);

/// A handle to the program's log. Cheap to clone; all clones write to the same output.
#[derive(Clone)]
pub struct Log(Arc<LogInner>);

struct LogInner {
    level: AtomicU8,
    clock: fn() -> SystemTime,
    state: Mutex<LogState>,
}

struct LogState {
    composer: Composer,
    sink: Sink,
    batch: Batch,
    /// Lines that could not be written since the last one that was.
    lost: u64,
}

impl Log {
    /// Opens a log for lines of `level` and above.
    ///
    /// # Errors
    /// The output cannot be opened.
    pub fn open(output: Output, format: LogFormat, level: Level) -> Result<Self, OutputError> {
        Ok(Self::with_clock(Sink::open(output)?, format, level, SystemTime::now))
    }

    /// Like [`open`](Self::open), for a file that is already open; `output` is the path by which it is
    /// reopened.
    #[must_use]
    pub fn on(output: Output, file: File, format: LogFormat, level: Level) -> Self {
        Self::with_clock(Sink::on(output, file), format, level, SystemTime::now)
    }

    /// A log that discards everything.
    #[must_use]
    pub fn silent() -> Self {
        Self::with_clock(Sink::none(), LogFormat::Text, Level::Error, SystemTime::now)
    }

    fn with_clock(sink: Sink, format: LogFormat, level: Level, clock: fn() -> SystemTime) -> Self {
        let composer = Composer::new(format, sink.output());
        let state = Mutex::new(LogState { composer, sink, batch: Batch::default(), lost: 0 });
        Self(Arc::new(LogInner { level: AtomicU8::new(level as u8), clock, state }))
    }

    /// Returns `true` if lines of `level` are written; lets the caller skip expensive fields.
    #[must_use]
    pub fn writes(&self, level: Level) -> bool {
        level as u8 <= self.0.level.load(Ordering::Relaxed)
    }

    /// Changes the lowest level that is written.
    pub fn set_level(&self, level: Level) {
        self.0.level.store(level as u8, Ordering::Relaxed);
    }

    /// Switches to another output.
    ///
    /// # Errors
    /// The output cannot be opened; the old one stays in use.
    pub fn redirect(&self, output: Output, format: LogFormat) -> Result<(), OutputError> {
        let sink = Sink::open(output)?;
        let mut state = self.state();
        state.composer = Composer::new(format, sink.output());
        state.sink = sink;
        Ok(())
    }

    /// Reopens a file by its path, after it was renamed.
    ///
    /// # Errors
    /// The file cannot be opened; the old one stays in use.
    pub fn reopen(&self) -> Result<(), OutputError> {
        self.state().sink.reopen()
    }

    /// Logs a line at [`Level::Error`].
    pub fn error(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Error, message, fields);
    }

    /// Logs a line at [`Level::Warn`].
    pub fn warn(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Warn, message, fields);
    }

    /// Logs a line at [`Level::Info`].
    pub fn info(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Info, message, fields);
    }

    /// Logs a line at [`Level::Debug`].
    pub fn debug(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Debug, message, fields);
    }

    /// Logs one line. Failures to write are not fatal; once the output works again, a line states the number
    /// of lines lost.
    pub fn write(&self, level: Level, message: &str, fields: &[LogField<'_>]) {
        if self.writes(level) {
            self.write_to(&mut self.state(), level, message, fields);
        }
    }

    /// Logs one line, unless the lock stays taken for all of `limit`, perhaps by the calling thread itself.
    /// Returns `false` in that case.
    pub(crate) fn write_within(
        &self,
        limit: Duration,
        level: Level,
        message: &str,
        fields: &[LogField<'_>],
    ) -> bool {
        const STEP: Duration = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        loop {
            match self.0.state.try_lock() {
                Ok(mut state) => break self.write_to(&mut state, level, message, fields),
                Err(TryLockError::Poisoned(state)) => {
                    break self.write_to(&mut state.into_inner(), level, message, fields);
                }
                Err(TryLockError::WouldBlock) if waited >= limit => return false,
                Err(TryLockError::WouldBlock) => {}
            }
            std::thread::sleep(STEP);
            waited += STEP;
        }
        true
    }

    fn write_to(&self, state: &mut LogState, level: Level, message: &str, fields: &[LogField<'_>]) {
        let LogState { composer, sink, batch, lost } = state;
        batch.clear();
        let now = (self.0.clock)();
        if *lost > 0 {
            let fields = [("lines", (*lost).into())];
            let line =
                LogLine { level: Level::Warn, message: "lines of this log were lost", fields: &fields };
            composer.add(batch, now, line);
        }
        composer.add(batch, now, LogLine { level, message, fields });
        match sink.write(batch) {
            Ok(()) => *lost = 0,
            Err(_) => *lost += 1,
        }
    }

    /// Locks the state. A thread that panicked while logging leaves at worst an unfinished line, which is
    /// cleared.
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("level", &self.0.level).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Log, LogFormat};
    use crate::sink::{Output, Sink};
    use std::fs;
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    fn clock() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_795_294_260)
    }

    fn log(format: LogFormat) -> (tempfile::TempDir, PathBuf, Log) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let sink = Sink::open(Output::File(path.clone())).unwrap();
        (dir, path, Log::with_clock(sink, format, Level::Info, clock))
    }

    fn say(format: LogFormat) -> String {
        let (_dir, path, log) = log(format);
        let address: SocketAddr = "[::]:8443".parse().unwrap();
        log.info("listening", &[("address", (&address).into()), ("workers", 2_usize.into())]);
        log.warn(
            "bad \"name\"",
            &[("name", "a b\u{1b}".into()), ("fatal", false.into()), ("code", (-1).into())],
        );
        log.debug("not seen", &[]);
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn text() {
        assert_eq!(
            say(LogFormat::Text),
            "2026-11-21T20:51:00Z INFO  listening address=[::]:8443 workers=2\n\
             2026-11-21T20:51:00Z WARN  bad \"name\" name=\"a b\\u001b\" fatal=false code=-1\n"
        );
    }

    #[test]
    fn journal() {
        assert_eq!(
            say(LogFormat::Journal),
            "<6>listening address=[::]:8443 workers=2\n\
             <4>bad \"name\" name=\"a b\\u001b\" fatal=false code=-1\n"
        );
    }

    #[test]
    fn json() {
        let lines: Vec<serde_json::Value> =
            say(LogFormat::Json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            lines[0],
            serde_json::json!({
                "time": "2026-11-21T20:51:00.000000Z", "level": "info", "message": "listening",
                "address": "[::]:8443", "workers": 2
            })
        );
        assert_eq!(lines[1]["name"], "a b\u{1b}");
        assert_eq!((&lines[1]["fatal"], &lines[1]["code"]), (&false.into(), &(-1).into()));
    }

    #[test]
    fn logfmt() {
        let text = say(LogFormat::Logfmt);
        let first = "time=2026-11-21T20:51:00.000000Z level=info msg=listening address=[::]:8443 workers=2";
        assert_eq!(text.lines().next(), Some(first));
    }

    #[test]
    fn threads_do_not_tear_lines() {
        let (_dir, path, log) = log(LogFormat::Text);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let log = log.clone();
                scope.spawn(move || (0..200).for_each(|_| log.info("a line of some length", &[])));
            }
        });
        let text = fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 800);
        assert!(text.lines().all(|line| line == "2026-11-21T20:51:00Z INFO  a line of some length"));
    }

    #[test]
    fn lost_lines_are_reported_once_the_output_is_back() {
        let (_dir, path, log) = log(LogFormat::Journal);
        log.redirect(Output::File("/dev/full".into()), LogFormat::Journal).unwrap();
        log.error("one", &[]);
        log.error("two", &[]);
        log.redirect(Output::File(path.clone()), LogFormat::Journal).unwrap();
        log.set_level(Level::Error);
        log.error("three", &[]);
        log.error("four", &[]);
        let expected = "<4>lines of this log were lost lines=2\n<3>three\n<3>four\n";
        assert_eq!(fs::read_to_string(path).unwrap(), expected);
    }

    #[test]
    fn a_silent_log_is_silent() {
        Log::silent().error("nobody hears it", &[]);
    }
}
