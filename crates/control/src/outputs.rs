//! Where the logs go: from the words of the configuration to those of `observe`.

use offramp_config::model;
use offramp_observe::{EventFormat, Level, LogFormat, Output};

/// Where the program's log goes, how, and from which level on. `journal` says that journald reads
/// standard output and standard error, as `JOURNAL_STREAM` tells: text then leaves time and level to it.
#[must_use]
pub fn log(log: &model::Log, journal: bool) -> (Output, LogFormat, Level) {
    let output = match &log.output {
        model::LogOutput::Stderr => Output::Stderr,
        model::LogOutput::Stdout => Output::Stdout,
        model::LogOutput::File(file) => Output::File(file.path.clone()),
    };
    let is_stream = !matches!(output, Output::File(_));
    let format = match log.format {
        model::LogFormat::Text if journal && is_stream => LogFormat::Journal,
        model::LogFormat::Text => LogFormat::Text,
        model::LogFormat::Json => LogFormat::Json,
        model::LogFormat::Logfmt => LogFormat::Logfmt,
    };
    let level = match log.level {
        model::Level::Error => Level::Error,
        model::Level::Warn => Level::Warn,
        model::Level::Info => Level::Info,
        model::Level::Debug => Level::Debug,
    };
    (output, format, level)
}

/// Where events go, and how.
#[must_use]
pub fn access_log(log: &model::AccessLog) -> (Output, EventFormat) {
    let output = match &log.output {
        model::AccessOutput::Stdout => Output::Stdout,
        model::AccessOutput::Stderr => Output::Stderr,
        model::AccessOutput::None => Output::None,
        model::AccessOutput::File(file) => Output::File(file.path.clone()),
    };
    let format = match log.format {
        model::AccessFormat::Json => EventFormat::Json,
        model::AccessFormat::Logfmt => EventFormat::Logfmt,
        model::AccessFormat::Text => EventFormat::Text,
    };
    (output, format)
}
