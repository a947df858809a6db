//! The logs: what the program says about itself, and what it says about connections and requests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::words::words;
use super::{ServerAddress, Size};
use crate::error::{Problem, shown};

/// What the program says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The least important messages that are written.
    pub level: Level,
    /// How they are written.
    pub format: LogFormat,
    /// Where they go.
    pub output: LogOutput,
    /// Where [`LogOutput::Syslog`] listens.
    pub syslog: SyslogAddress,
}

impl Default for Log {
    fn default() -> Self {
        Log {
            level: Level::Info,
            format: LogFormat::Text,
            output: LogOutput::Stderr,
            syslog: SyslogAddress::default(),
        }
    }
}

words! {
    /// How important a message is.
    pub enum Level {
        /// Something does not work.
        Error = "error",
        /// Something will not work, or not as meant.
        Warn = "warn",
        /// What an operator wants to know.
        Info = "info",
        /// What a developer wants to know.
        Debug = "debug",
    }
}

words! {
    /// How a message of the program is written.
    pub enum LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
        /// `key=value` pairs.
        Logfmt = "logfmt",
    }
}

words! {
    /// Where the messages of the program go.
    pub enum LogOutput or file {
        /// Standard error.
        Stderr = "stderr",
        /// Standard output.
        Stdout = "stdout",
        /// systemd's journal, by its native protocol.
        Journald = "journald",
        /// The syslog at [`Log::syslog`].
        Syslog = "syslog",
    }
}

/// One event per connection or request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// How an event is written.
    pub format: AccessFormat,
    /// Where events go.
    pub output: AccessOutput,
    /// Where [`AccessOutput::Syslog`] listens.
    pub syslog: SyslogAddress,
    /// The size at which the file of [`AccessOutput::File`] is renamed and a new one begun: 64 KiB to 1 TiB;
    /// only with a file.
    pub rotate_size: Option<Size>,
    /// How many renamed files are kept: 1 to 1000.
    pub rotate_keep: u32,
    /// Fields that are left out.
    pub omit: Vec<FieldName>,
    /// Fields of which only a keyed hash is written; none of them is in `omit`.
    pub hash: Vec<FieldName>,
    /// What is hidden of clients' addresses.
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
    /// How an event is written.
    pub enum AccessFormat {
        /// One JSON object per line.
        Json = "json",
        /// `key=value` pairs.
        Logfmt = "logfmt",
        /// For people.
        Text = "text",
        /// The `combined` format of nginx and Apache.
        Combined = "combined",
        /// `combined`, and the host in quotes after it.
        Vhost = "vhost",
    }
}

words! {
    /// What is hidden of clients' addresses, in events, metrics and the log store.
    pub enum Anonymize {
        /// Nothing.
        None = "none",
        /// The last byte of IPv4 addresses and the last 80 bits of IPv6 addresses: they become zero.
        Ip = "ip",
    }
}

words! {
    /// Where events go.
    pub enum AccessOutput or file {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
        /// Nowhere.
        None = "none",
        /// systemd's journal, by its native protocol, one field per fact.
        Journald = "journald",
        /// The syslog at [`AccessLog::syslog`].
        Syslog = "syslog",
    }
}

/// Where a syslog listens.
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
            SyslogAddress::Unix(path) => SyslogAddress::Unix(folder.join(path)),
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

/// The name of a field of events: 1 to 64 of the characters `a-z 0-9 _`. Whether there is such a field is for
/// those who write events to know.
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
