//! Outputs for operators: the program's own log, and the access log.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::words::words;
use super::{LogStore, Metrics, NotifyConfig, ServerAddress, Size, TracingConfig};
use crate::error::{Problem, shown};
use crate::folder::joined;

/// The outputs for operators: logs, metrics and traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// The program's own log.
    pub log: LogConfig,
    /// The access log: one event per connection or request.
    pub access_log: AccessLog,
    /// The queryable access log, if its URL is set.
    pub log_store: LogStore,
    /// The export of metrics.
    pub metrics: Metrics,
    /// The export to an OpenTelemetry collector, if its URL is set.
    pub tracing: TracingConfig,
    /// The receivers of notifications, their names unique.
    pub notify: Vec<NotifyConfig>,
}

/// The program's own log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The lowest level that is written.
    pub level: LogLevel,
    /// The format of messages.
    pub format: ProgramLogFormat,
    /// The destination of messages.
    pub output: LogOutput,
    /// The address for [`LogOutput::Syslog`].
    pub syslog: SyslogAddress,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            level: LogLevel::Info,
            format: ProgramLogFormat::Text,
            output: LogOutput::Stderr,
            syslog: SyslogAddress::default(),
        }
    }
}

words! {
    /// The severity of a message.
    pub enum LogLevel {
        /// Failures that need an action.
        Error = "error",
        /// Problems, present or imminent.
        Warn = "warn",
        /// Events of interest to operators.
        Info = "info",
        /// Details of interest to developers.
        Debug = "debug",
    }
}

words! {
    /// The format of the program's messages.
    pub enum ProgramLogFormat {
        /// Text meant for people.
        Text = "text",
        /// JSON, one object per line.
        Json = "json",
        /// logfmt: `key=value` pairs.
        Logfmt = "logfmt",
    }
}

words! {
    /// The destination of the program's messages.
    pub enum LogOutput or file {
        /// The standard error stream.
        Stderr = "stderr",
        /// The standard output stream.
        Stdout = "stdout",
        /// systemd's journal, by its native protocol.
        Journald = "journald",
        /// The syslog receiver at [`LogConfig::syslog`].
        Syslog = "syslog",
    }
}

/// The access log: one event per connection or request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The format of events.
    pub format: AccessFormat,
    /// The destination of events.
    pub output: AccessOutput,
    /// The address for [`AccessOutput::Syslog`].
    pub syslog: SyslogAddress,
    /// The size at which the file of [`AccessOutput::File`] is rotated: 64 KiB to 1 TiB; only with a file.
    pub rotate_size: Option<Size>,
    /// The number of rotated files to keep: 1 to 1000.
    pub rotate_keep: u32,
    /// Fields that are omitted.
    pub omit: Vec<FieldName>,
    /// Fields replaced by a keyed hash; none of them is in `omit`.
    pub hash: Vec<FieldName>,
    /// The anonymisation of client addresses.
    pub anonymize: Anonymize,
}

impl Default for AccessLog {
    fn default() -> Self {
        AccessLog {
            format: AccessFormat::Json,
            output: AccessOutput::Stdout,
            syslog: SyslogAddress::default(),
            rotate_size: None,
            rotate_keep: 5,
            omit: Vec::new(),
            hash: Vec::new(),
            anonymize: Anonymize::None,
        }
    }
}

words! {
    /// The format of events.
    pub enum AccessFormat {
        /// JSON, one object per line.
        Json = "json",
        /// logfmt: `key=value` pairs.
        Logfmt = "logfmt",
        /// Text meant for people.
        Text = "text",
        /// The `combined` format of nginx and Apache.
        Combined = "combined",
        /// `combined` followed by the quoted host.
        Vhost = "vhost",
    }
}

words! {
    /// The anonymisation of client addresses, in events, metrics and the log store.
    pub enum Anonymize {
        /// No anonymisation: addresses are kept whole.
        None = "none",
        /// Zeroes the last byte of IPv4 addresses and the last 80 bits of IPv6 addresses.
        Ip = "ip",
    }
}

words! {
    /// The destination of events.
    pub enum AccessOutput or file {
        /// The standard output stream.
        Stdout = "stdout",
        /// The standard error stream.
        Stderr = "stderr",
        /// No destination: events are discarded.
        None = "none",
        /// systemd's journal, by its native protocol, one field per fact.
        Journald = "journald",
        /// The syslog receiver at [`AccessLog::syslog`].
        Syslog = "syslog",
    }
}

/// A standard stream, under its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardStream {
    /// The standard output stream.
    Stdout,
    /// The standard error stream.
    Stderr,
}

impl StandardStream {
    /// The stream of a path such as `/dev/stdout`. The inherited descriptor is used: another user cannot open root's pipe
    /// by its path. Symbolic links to such paths are not resolved.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.to_str()? {
            "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" | "/proc/thread-self/fd/1" => Some(Self::Stdout),
            "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" | "/proc/thread-self/fd/2" => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// The address of a syslog receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A Unix socket: `/dev/log`, `unix:/run/log.sock`.
    Unix(PathBuf),
    /// A UDP port: `udp://log.home.arpa:514`. The address is never a Unix socket.
    Udp(ServerAddress),
}

impl Default for SyslogAddress {
    fn default() -> Self {
        SyslogAddress::Unix(PathBuf::from("/dev/log"))
    }
}

impl SyslogAddress {
    /// The address with a relative socket path joined to `folder`.
    pub(crate) fn in_folder(self, folder: &Path) -> Self {
        match self {
            SyslogAddress::Unix(path) => SyslogAddress::Unix(joined(folder, path)),
            udp @ SyslogAddress::Udp(_) => udp,
        }
    }
}

impl FromStr for SyslogAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if let Some(address) = text.strip_prefix("udp://") {
            return match address.parse()? {
                ServerAddress::Unix(_) => Err(Problem::new(format!("`{}` is no UDP port", shown(text)))
                    .help("write \"udp://host:port\", or \"unix:/path\" for a socket")),
                address => Ok(SyslogAddress::Udp(address)),
            };
        }
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        match path {
            Some(path) if !path.is_empty() && !path.ends_with('/') && !path.contains('\0') => {
                Ok(SyslogAddress::Unix(PathBuf::from(path)))
            }
            _ => Err(Problem::new(format!("`{}` is not where a syslog listens", shown(text)))
                .help("write \"/dev/log\", \"unix:/path\" or \"udp://host:514\"")),
        }
    }
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyslogAddress::Unix(path) if path.is_absolute() => path.display().fmt(f),
            SyslogAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            SyslogAddress::Udp(address) => write!(f, "udp://{address}"),
        }
    }
}

/// The name of an event field: 1 to 64 of the characters `a-z 0-9 _`. Its existence is checked by the writer
/// of events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldName(String);

impl FieldName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FieldName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if text.is_empty() || text.len() > 64 || !text.bytes().all(allowed) {
            let problem = Problem::new(format!("`{}` is not the name of a field of events", shown(text)));
            return Err(problem.help("names are as in JSON events, such as \"user_agent\""));
        }
        Ok(FieldName(text.to_owned()))
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_syslog() {
        for text in ["/dev/log", "udp://10.0.0.1:514", "udp://log.home.arpa:514"] {
            assert_eq!(text.parse::<SyslogAddress>().unwrap().to_string(), text);
        }
        assert_eq!("unix:/run/log".parse::<SyslogAddress>().unwrap().to_string(), "/run/log");
        for text in ["", "dev/log", "udp://", "udp://h", "udp://unix:/x", "tcp://h:1", "unix:", "/dev/"] {
            assert!(text.parse::<SyslogAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_fields() {
        assert!("user_agent".parse::<FieldName>().is_ok());
        for text in ["", "User-Agent", "a b", &"x".repeat(65)] {
            assert!(text.parse::<FieldName>().is_err(), "{text}");
        }
    }
}
