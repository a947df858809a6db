//! Where the logs go: from the words of the configuration to those of `observe`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use offramp_config::model::{self, AccessFormat, AccessLog, AccessOutput, Anonymize, Config, SyslogAddress};
use offramp_net::ownership;
use offramp_net::process::is_root;
use offramp_observe::sink::{FILE_MODE, JOURNALD_SOCKET};
use offramp_observe::{
    EventFormat, EventStyle, Field, FieldHashKey, FieldSelection, Level, Log, LogFormat, Output, Rotation,
    Sink, SyslogTarget,
};
use offramp_process::{Error, Finding, privileges, standard_stream, state_dir};

use offramp_proxy::refusals::Show;

/// Opens the program's log as the configuration has it. Root that becomes another user later follows no link of that
/// user's to it: it could lead to any file of the system.
///
/// # Errors
/// Why it cannot be opened.
pub fn open_log(config: &Config, journal: bool) -> Result<Log, String> {
    let (output, format, level) = log(&config.telemetry.log, journal);
    match OpenAs::of(config).file(&output)? {
        Some(file) => Ok(Log::on(output, file, format, level)),
        None => Log::open(output, format, level).map_err(|error| error.to_string()),
    }
}

/// The user that opens files of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenAs {
    /// The user of the process.
    Own,
    /// Root, until the process becomes another user: no link of that user's is followed.
    RootAtFirst,
}

impl OpenAs {
    /// The user that opens outputs in a process with this configuration.
    pub(crate) fn of(config: &Config) -> Self {
        if privileges::will_switch(config) { Self::RootAtFirst } else { Self::Own }
    }

    /// Opens the file of an output as root; `None` for other outputs, and for another user.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn file(self, output: &Output) -> Result<Option<File>, String> {
        match output {
            Output::File(path) | Output::Rotated(path, _) if self == Self::RootAtFirst && is_root() => {
                let file = ownership::append(path, FILE_MODE);
                file.map(Some).map_err(|error| format!("cannot open {}: {error}", path.display()))
            }
            _ => Ok(None),
        }
    }

    /// Finds out whether an output can be opened.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(crate) fn try_out(self, output: &Output) -> Result<(), String> {
        match self.file(output)? {
            Some(_) => Ok(()),
            None => Sink::open(output.clone()).map(drop).map_err(|error| error.to_string()),
        }
    }
}

/// False for an output that cannot be opened and closed again without effect on others: the reader of a named pipe would
/// take that for its end.
pub(crate) fn is_plain_file(output: &Output) -> bool {
    match output {
        Output::File(path) | Output::Rotated(path, _) => {
            path.metadata().map_or(true, |found| found.is_file())
        }
        _ => false,
    }
}

/// The output, form and level of the program's log. `journal` says that journald reads
/// standard output and standard error, as `JOURNAL_STREAM` tells: text then leaves time and level to it.
#[must_use]
pub fn log(log: &model::LogConfig, journal: bool) -> (Output, LogFormat, Level) {
    let output = match &log.output {
        model::LogOutput::Stderr => Output::Stderr,
        model::LogOutput::Stdout => Output::Stdout,
        model::LogOutput::Journald => Output::Journald(JOURNALD_SOCKET.into()),
        model::LogOutput::Syslog => Output::Syslog(syslog(&log.syslog)),
        model::LogOutput::File(file) => {
            standard_stream::of(&file.path).unwrap_or_else(|| Output::File(file.path.clone()))
        }
    };
    let is_stream = matches!(output, Output::Stdout | Output::Stderr);
    let format = match log.format {
        model::ProgramLogFormat::Text if journal && is_stream => LogFormat::Journal,
        model::ProgramLogFormat::Text => LogFormat::Text,
        model::ProgramLogFormat::Json => LogFormat::Json,
        model::ProgramLogFormat::Logfmt => LogFormat::Logfmt,
    };
    (output, format, level(log))
}

/// The level of the program's log.
pub(crate) fn level(log: &model::LogConfig) -> Level {
    match log.level {
        model::LogLevel::Error => Level::Error,
        model::LogLevel::Warn => Level::Warn,
        model::LogLevel::Info => Level::Info,
        model::LogLevel::Debug => Level::Debug,
    }
}

/// The standard streams that are terminals: a person gets other lines than a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminals {
    /// Set if standard output is one.
    pub stdout: bool,
    /// Set if standard error is one.
    pub stderr: bool,
}

/// The standard streams, as the log and the access log write to them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streams {
    /// Set where journald reads them (`JOURNAL_STREAM`).
    pub journal: bool,
    /// Those that a person reads.
    pub terminals: Terminals,
}

impl Terminals {
    fn shows(self, output: &Output) -> bool {
        match output {
            Output::Stdout => self.stdout,
            Output::Stderr => self.stderr,
            _ => false,
        }
    }
}

/// The part of a configuration that the access log follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSettings {
    pub(crate) access_log: AccessLog,
    /// At the level debug a terminal gets long lines.
    pub(crate) log_level: model::LogLevel,
    /// The directory of the key that hashes fields.
    state_dir: PathBuf,
}

impl From<&Config> for EventSettings {
    fn from(config: &Config) -> Self {
        let (access_log, state_dir) = (config.telemetry.access_log.clone(), config.process.state_dir.clone());
        Self { access_log, log_level: config.telemetry.log.level, state_dir }
    }
}

/// The output of events, and their form.
pub(crate) type Events = (Output, EventStyle);

/// The output of events, and their form.
///
/// # Errors
/// [`prepare`] would complain, or the key under which fields are hashed cannot be read.
pub(crate) fn access_log(settings: &EventSettings, terminals: Terminals) -> Result<Events, Error> {
    let log = &settings.access_log;
    let output = match &log.output {
        AccessOutput::Stdout => Output::Stdout,
        AccessOutput::Stderr => Output::Stderr,
        AccessOutput::None => Output::None,
        AccessOutput::Journald => Output::Journald(JOURNALD_SOCKET.into()),
        AccessOutput::Syslog => Output::Syslog(syslog(&log.syslog)),
        AccessOutput::File(file) => match (standard_stream::of(&file.path), log.rotate_size) {
            (Some(stream), _) => stream,
            (None, Some(size)) => {
                let rotation = Rotation { size: size.bytes(), keep: log.rotate_keep };
                Output::Rotated(file.path.clone(), rotation)
            }
            (None, None) => Output::File(file.path.clone()),
        },
    };
    let format = match log.format {
        AccessFormat::Json => EventFormat::Json,
        AccessFormat::Logfmt => EventFormat::Logfmt,
        AccessFormat::Text if settings.log_level != model::LogLevel::Debug && terminals.shows(&output) => {
            EventFormat::Terminal
        }
        AccessFormat::Text => EventFormat::Text,
        AccessFormat::Combined => EventFormat::Combined,
        AccessFormat::Vhost => EventFormat::Vhost,
    };
    Ok((output, EventStyle { format, selection: selection(settings)? }))
}

/// True if events have the JA4 fingerprints of clients, which are then worth their computation.
pub(crate) fn tell_ja4(log: &AccessLog, log_level: model::LogLevel) -> bool {
    let format = match log.format {
        AccessFormat::Json | AccessFormat::Logfmt => true,
        AccessFormat::Text => log_level == model::LogLevel::Debug,
        AccessFormat::Combined | AccessFormat::Vhost => false,
    };
    // journald gets all fields, in whatever format.
    let output = match log.output {
        AccessOutput::None => false,
        AccessOutput::Journald => true,
        _ => format,
    };
    output && !log.omit.iter().any(|name| name.as_str() == Field::Ja4.key())
}

/// Finds out whether [`access_log`] will have what it needs, and, if it may `mint`, makes the key under which
/// fields are hashed. Called while the state directory can still be made. Gives what is wrong.
pub(crate) fn prepare(config: &Config, mint: bool) -> Vec<Finding> {
    let log = &config.telemetry.access_log;
    let fields = Field::ALL.map(Field::key).join(", ");
    let named = log.omit.iter().map(|name| ("omit", name)).chain(log.hash.iter().map(|name| ("hash", name)));
    let unknown = named.filter(|(_, name)| Field::from_key(name.as_str()).is_none());
    let mut findings: Vec<_> = unknown
        .map(|(key, name)| {
            let name = name.as_str();
            Finding::nowhere(format!("access_log.{key}: events have no field `{name}`; they have {fields}"))
        })
        .collect();
    if mint && config.telemetry.log_store.url.is_some() {
        // What the store does not take for now waits there.
        findings.extend(
            state_dir::prepare(&config.process.state_dir).err().iter().flat_map(Error::findings).cloned(),
        );
    }
    if mint && !log.hash.is_empty() {
        match state_dir::prepare(&config.process.state_dir) {
            Err(error) => findings.extend(error.findings().iter().cloned()),
            Ok(_) => findings
                .extend(hash_key(&config.process.state_dir).err().map(unusable(&config.process.state_dir))),
        }
    }
    findings
}

/// The part of clients' addresses that the program's own log shows: no more than events do.
pub(crate) fn shown_clients(config: &Config) -> Show {
    let log = &config.telemetry.access_log;
    match log.anonymize {
        _ if log.omit.iter().chain(&log.hash).any(|name| name.as_str() == Field::Client.key()) => {
            Show::Nothing
        }
        Anonymize::Ip => Show::Network,
        _ => Show::Address,
    }
}

fn selection(settings: &EventSettings) -> Result<FieldSelection, Error> {
    let EventSettings { access_log, log_level, state_dir } = settings;
    let AccessLog { omit, hash, anonymize, .. } = access_log;
    let field = |name: &model::FieldName| {
        let unknown = || Error::one(format!("events have no field `{}`", name.as_str()));
        Field::from_key(name.as_str()).ok_or_else(unknown)
    };
    let mut selection = FieldSelection::default();
    if access_log.format == AccessFormat::Text && !tell_ja4(access_log, *log_level) {
        selection = selection.omit(Field::Ja4);
    }
    for name in omit {
        selection = selection.omit(field(name)?);
    }
    if !hash.is_empty() {
        let fields = hash.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let key = hash_key(state_dir).map_err(unusable(state_dir));
        selection = selection.hash(fields, key.map_err(|finding| Error::one(finding.text))?);
    }
    Ok(match anonymize {
        Anonymize::None => selection,
        Anonymize::Ip => selection.anonymize(),
    })
}

fn syslog(address: &SyslogAddress) -> SyslogTarget {
    match address {
        SyslogAddress::Unix(path) => SyslogTarget::Unix(path.clone()),
        SyslogAddress::Udp(address) => SyslogTarget::Udp(address.to_string().into()),
    }
}

/// The key under which fields are hashed; made where there is none yet.
fn hash_key(state_dir: &Path) -> io::Result<FieldHashKey> {
    state_dir::secret(&key_path(state_dir)).map(FieldHashKey::from)
}

fn key_path(state_dir: &Path) -> PathBuf {
    state_dir.join("hash.key")
}

fn unusable(state_dir: &Path) -> impl Fn(io::Error) -> Finding {
    let path = key_path(state_dir);
    move |error| {
        let path = path.display();
        Finding::nowhere(format!(
            "access_log.hash: the key {path} cannot be used: {error}; restore it, or remove it to have a new one made: \
             what is hashed then has other values than before"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Terminals, access_log, hash_key, log, prepare};
    use offramp_config::Environment;
    use offramp_config::model::Config;
    use offramp_observe::{
        EventFormat, EventStyle, Field, FieldSelection, LogFormat, Output, Rotation, SyslogTarget,
    };
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn config(folder: &Path, text: &str) -> Config {
        let text = format!("state_dir = {:?}\n{text}", folder.join("state"));
        offramp_config::parse(&text, "/offramp.toml", &Environment::default()).unwrap().0
    }

    #[test]
    fn every_word_of_the_language_has_its_output() {
        let dir = tempfile::tempdir().unwrap();
        let output = |text: &str| {
            let config = config(dir.path(), &format!("[access_log]\n{text}"));
            access_log(&(&config).into(), Terminals::default()).unwrap()
        };
        assert_eq!(output(""), (Output::Stdout, EventFormat::Json.into()));
        assert_eq!(output("output = \"none\"\nformat = \"vhost\"").1.format, EventFormat::Vhost);
        let journald = Output::Journald("/run/systemd/journal/socket".into());
        assert_eq!(output("output = \"journald\"").0, journald);
        let local = SyslogTarget::Unix("/dev/log".into());
        assert_eq!(output("output = \"syslog\"").0, Output::Syslog(local));
        let udp = SyslogTarget::Udp("192.0.2.1:514".into());
        let told = output("output = \"syslog\"\nsyslog = \"udp://192.0.2.1:514\"").0;
        assert_eq!(told, Output::Syslog(udp.clone()));
        let rotation = Rotation { size: 1 << 20, keep: 3 };
        let told = output("output = \"/var/log/a.log\"\nrotate_size = \"1MiB\"\nrotate_keep = 3").0;
        assert_eq!(told, Output::Rotated("/var/log/a.log".into(), rotation));
        let told = log(
            &config(dir.path(), "[log]\noutput = \"syslog\"\nsyslog = \"udp://192.0.2.1:514\"").telemetry.log,
            true,
        );
        assert_eq!((told.0, told.1), (Output::Syslog(udp), LogFormat::Text));
    }

    #[test]
    fn paths_of_standard_streams_are_those_streams() {
        let dir = tempfile::tempdir().unwrap();
        let link = |name: &str, to: &str| {
            let path = dir.path().join(name);
            std::os::unix::fs::symlink(to, &path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let pid = std::process::id();
        let stdout = link("access.log", "/dev/stdout");
        link("second", "access.log");
        let paths = [
            ("/dev/stdout".to_owned(), Some(Output::Stdout)),
            ("/dev/stderr".to_owned(), Some(Output::Stderr)),
            ("/dev/fd/2".to_owned(), Some(Output::Stderr)),
            ("/proc/self/fd/1".to_owned(), Some(Output::Stdout)),
            ("/proc/self/fd/../fd/1".to_owned(), None),
            ("/dev/fd/3".to_owned(), None),
            (format!("/proc/{pid}/fd/1"), Some(Output::Stdout)),
            (format!("/proc/{}/fd/1", pid + 1), None),
            (stdout, Some(Output::Stdout)),
            (link("third", "./second"), Some(Output::Stdout)),
            (link("error.log", &format!("/proc/{pid}/fd/2")), Some(Output::Stderr)),
            (link("round", "round"), None),
            (link("elsewhere", "/dev/null"), None),
            ("/dev/null".to_owned(), None),
        ];
        for (path, stream) in paths {
            let stream = stream.unwrap_or_else(|| Output::File(path.clone().into()));
            let told =
                config(dir.path(), &format!("[access_log]\noutput = {path:?}\n[log]\noutput = {path:?}"));
            assert_eq!(access_log(&(&told).into(), Terminals::default()).unwrap().0, stream, "{path}");
            assert_eq!(log(&told.telemetry.log, false).0, stream, "{path}");
        }
    }

    #[test]
    fn a_terminal_gets_short_lines_unless_everything_is_to_be_told() {
        let dir = tempfile::tempdir().unwrap();
        let form = |text: &str, stdout, stderr| {
            access_log(&(&config(dir.path(), text)).into(), Terminals { stdout, stderr }).unwrap().1.format
        };
        let text = "[access_log]\nformat = \"text\"\n";
        assert_eq!(form(text, true, false), EventFormat::Terminal);
        assert_eq!(form(text, false, true), EventFormat::Text);
        assert_eq!(form(&format!("{text}output = \"stderr\"\n"), false, true), EventFormat::Terminal);
        assert_eq!(form(&format!("{text}output = \"./events\"\n"), true, true), EventFormat::Text);
        assert_eq!(form(&format!("{text}[log]\nlevel = \"debug\"\n"), true, true), EventFormat::Text);
        assert_eq!(form("", true, true), EventFormat::Json);
    }

    #[test]
    fn fields_are_chosen_by_name_and_hashed_under_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[access_log]\nomit = [\"referer\"]\nhash = [\"client\"]\nanonymize = \"ip\"";
        let config = config(dir.path(), text);
        assert!(prepare(&config, true).is_empty());
        let key = hash_key(&config.process.state_dir).unwrap();
        let selection = FieldSelection::default().omit(Field::Referer).hash([Field::Client], key).anonymize();
        let style = EventStyle { format: EventFormat::Json, selection };
        let told = || access_log(&(&config).into(), Terminals::default()).unwrap().1;
        assert_eq!(told(), style);
        assert_eq!(told(), style, "the key stays");
        let files: Vec<_> =
            fs::read_dir(&config.process.state_dir).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn unknown_fields_and_broken_keys_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let wrong = config(dir.path(), "[access_log]\nomit = [\"refferer\"]\nhash = [\"xyzzy_plugh\"]");
        let told: Vec<_> = prepare(&wrong, false).into_iter().map(|finding| finding.text).collect();
        assert!(told[0].contains("no field `refferer`; they have time, event"), "{told:?}");
        assert!(told[1].contains("access_log.hash: events have no field `xyzzy_plugh`"), "{told:?}");
        assert!(!wrong.process.state_dir.exists(), "a check writes nothing");
        let hashed = config(dir.path(), "[access_log]\nhash = [\"client\"]");
        fs::create_dir(&hashed.process.state_dir).unwrap();
        fs::write(hashed.process.state_dir.join("hash.key"), "short").unwrap();
        let told = &prepare(&hashed, true)[0].text;
        for part in ["hash.key cannot be used: it is damaged: it has 5 bytes", "remove it"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(access_log(&(&hashed).into(), Terminals::default()).is_err());
    }
}
