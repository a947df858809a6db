//! What the program says about itself.
//!
//! A [`Log`] is a small handle that is passed to whoever has something to say; there is no global logger and
//! there are no macros. A line is written by the thread that logs it, before the call returns, so that the
//! last words of a failing start are not lost. For the same reason a call may block as long as the output
//! does: workers return facts and count, and log at most a line a minute for each limit that refuses and each reason for
//! a pause.

mod line;
mod notices;
mod value;

use std::fmt;
use std::fs::File;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

use line::Composer;
pub use notices::{Detail, Notice, NoticeKind, Notices};
pub use value::Value;

use crate::Error;
use crate::sink::{Batch, Output, Sink};

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work and needs an action.
    Error,
    /// Something is wrong, and Offramp got along.
    Warn,
    /// What an operator wants to read back: starts, reloads, renewals.
    Info,
    /// Details for debugging.
    Debug,
}

impl Level {
    /// Every level, the gravest first.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// The name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// The name as text shows it, aligned.
    const fn column(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN ",
            Self::Info => "INFO ",
            Self::Debug => "DEBUG",
        }
    }

    /// Syslog's severity (RFC 5424 §6.2.1).
    const fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warn => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }

    /// The mark by which journald learns the priority of a line of a stream (sd-daemon(3)).
    const fn journal_mark(self) -> &'static str {
        match self {
            Self::Error => "<3>",
            Self::Warn => "<4>",
            Self::Info => "<6>",
            Self::Debug => "<7>",
        }
    }
}

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `2026-11-21T20:51:00Z INFO  listening address=[::]:8443`
    #[default]
    Text,
    /// Text for a stream that journald reads: its priority mark instead of time and level.
    Journal,
    /// One JSON object per line: `time`, `level`, `message`, then the fields.
    Json,
    /// `time=… level=… msg=…`, then the fields.
    Logfmt,
}

/// One field of a line: key in `snake_case`, and value.
pub type LogField<'a> = (&'static str, Value<'a>);

/// The program's log. Cheap to clone; all clones write the same stream.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    level: AtomicU8,
    clock: fn() -> SystemTime,
    state: Mutex<State>,
}

struct State {
    composer: Composer,
    sink: Sink,
    batch: Batch,
    /// Lines lost since the last one that could be written.
    lost: u64,
}

impl Log {
    /// A log of lines of `level` and graver.
    ///
    /// # Errors
    /// The output cannot be opened.
    pub fn open(output: Output, format: LogFormat, level: Level) -> Result<Self, Error> {
        Ok(Self::with_clock(Sink::open(output)?, format, level, SystemTime::now))
    }

    /// The same, in a file that is open already, to which `output` leads when it is opened anew.
    #[must_use]
    pub fn on(output: Output, file: File, format: LogFormat, level: Level) -> Self {
        Self::with_clock(Sink::on(output, file), format, level, SystemTime::now)
    }

    /// A log that writes nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self::with_clock(Sink::none(), LogFormat::Text, Level::Error, SystemTime::now)
    }

    fn with_clock(sink: Sink, format: LogFormat, level: Level, clock: fn() -> SystemTime) -> Self {
        let composer = Composer::new(format, sink.output());
        let state = Mutex::new(State { composer, sink, batch: Batch::default(), lost: 0 });
        Self(Arc::new(Inner { level: AtomicU8::new(level as u8), clock, state }))
    }

    /// Whether lines of `level` are written; spares the caller the making of expensive fields.
    #[must_use]
    pub fn writes(&self, level: Level) -> bool {
        level as u8 <= self.0.level.load(Ordering::Relaxed)
    }

    /// Writes lines of `level` and graver from now on.
    pub fn set_level(&self, level: Level) {
        self.0.level.store(level as u8, Ordering::Relaxed);
    }

    /// Writes to another output from now on.
    ///
    /// # Errors
    /// The output cannot be opened; then everything stays as it was.
    pub fn redirect(&self, output: Output, format: LogFormat) -> Result<(), Error> {
        let sink = Sink::open(output)?;
        let mut state = self.state();
        state.composer = Composer::new(format, sink.output());
        state.sink = sink;
        Ok(())
    }

    /// Reopens a file by its path, after it was renamed.
    ///
    /// # Errors
    /// The file cannot be opened; then the old one stays in use.
    pub fn reopen(&self) -> Result<(), Error> {
        self.state().sink.reopen()
    }

    /// Says that something does not work.
    pub fn error(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Error, message, fields);
    }

    /// Says that something is wrong.
    pub fn warn(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Warn, message, fields);
    }

    /// Says what happened.
    pub fn info(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Info, message, fields);
    }

    /// Says a detail.
    pub fn debug(&self, message: &str, fields: &[LogField<'_>]) {
        self.write(Level::Debug, message, fields);
    }

    /// Writes one line. A failure to write is not fatal and has nowhere to be told; once lines can be
    /// written again, one says how many are missing.
    pub fn write(&self, level: Level, message: &str, fields: &[LogField<'_>]) {
        if self.writes(level) {
            self.write_to(&mut self.state(), level, message, fields);
        }
    }

    /// Writes one line unless another is being written for all of `limit`, perhaps by this very thread. Returns `false`
    /// then.
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

    fn write_to(&self, state: &mut State, level: Level, message: &str, fields: &[LogField<'_>]) {
        let State { composer, sink, batch, lost } = state;
        batch.clear();
        let now = (self.0.clock)();
        if *lost > 0 {
            let fields = [("lines", (*lost).into())];
            composer.add(batch, now, (Level::Warn, "lines of this log were lost", &fields));
        }
        composer.add(batch, now, (level, message, fields));
        match sink.write(batch) {
            Ok(()) => *lost = 0,
            Err(_) => *lost += 1,
        }
    }

    /// A thread that panicked while it logged left at worst an unfinished line, which is cleared.
    fn state(&self) -> MutexGuard<'_, State> {
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
    fn lost_lines_are_told_once_the_output_is_back() {
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
