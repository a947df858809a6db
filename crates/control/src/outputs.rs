//! Where the logs go: from the words of the configuration to those of `observe`.

use std::io;
use std::path::{Path, PathBuf};

use offramp_config::model::{self, AccessFormat, AccessLog, AccessOutput, Anonymize, Config, SyslogAddress};
use offramp_net::ownership;
use offramp_observe::sink::{FILE_MODE, JOURNALD_SOCKET};
use offramp_observe::{
    EventFormat, EventStyle, Field, HashKey, Level, Log, LogFormat, Output, Rotation, Selection, SyslogTarget,
};

use offramp_proxy::refusals::Show;

use crate::error::{Error, Finding};
use crate::privileges;
use crate::state;

/// Opens the program's log as the configuration has it. Root that becomes another user later follows no link of that
/// user's to it: it could lead to any file of the system.
///
/// # Errors
/// Why it cannot be opened.
pub fn open_log(config: &Config, journal: bool) -> Result<Log, String> {
    let (output, format, level) = log(&config.log, journal);
    match &output {
        Output::File(path) if privileges::will_switch(config) => {
            let file = ownership::append(path, FILE_MODE)
                .map_err(|error| format!("cannot open {}: {error}", path.display()))?;
            Ok(Log::on(output, file, format, level))
        }
        _ => Log::open(output, format, level).map_err(|error| error.to_string()),
    }
}

/// Where the program's log goes, how, and from which level on. `journal` says that journald reads
/// standard output and standard error, as `JOURNAL_STREAM` tells: text then leaves time and level to it.
#[must_use]
pub fn log(log: &model::Log, journal: bool) -> (Output, LogFormat, Level) {
    let output = match &log.output {
        model::LogOutput::Stderr => Output::Stderr,
        model::LogOutput::Stdout => Output::Stdout,
        model::LogOutput::Journald => Output::Journald(JOURNALD_SOCKET.into()),
        model::LogOutput::Syslog => Output::Syslog(syslog(&log.syslog)),
        model::LogOutput::File(file) => Output::File(file.path.clone()),
    };
    let is_stream = matches!(output, Output::Stdout | Output::Stderr);
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

/// Which standard streams are terminals: a person gets other lines than a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminals {
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
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

/// Where events go, and how.
///
/// # Errors
/// [`prepare`] would complain, or the key under which fields are hashed cannot be read.
pub(crate) fn access_log(config: &Config, terminals: Terminals) -> Result<(Output, EventStyle), Error> {
    let log = &config.access_log;
    let output = match &log.output {
        AccessOutput::Stdout => Output::Stdout,
        AccessOutput::Stderr => Output::Stderr,
        AccessOutput::None => Output::None,
        AccessOutput::Journald => Output::Journald(JOURNALD_SOCKET.into()),
        AccessOutput::Syslog => Output::Syslog(syslog(&log.syslog)),
        AccessOutput::File(file) => match log.rotate_size {
            Some(size) => {
                let rotation = Rotation { size: size.bytes(), keep: log.rotate_keep };
                Output::Rotated(file.path.clone(), rotation)
            }
            None => Output::File(file.path.clone()),
        },
    };
    let format = match log.format {
        AccessFormat::Json => EventFormat::Json,
        AccessFormat::Logfmt => EventFormat::Logfmt,
        AccessFormat::Text if config.log.level != model::Level::Debug && terminals.shows(&output) => {
            EventFormat::Terminal
        }
        AccessFormat::Text => EventFormat::Text,
        AccessFormat::Combined => EventFormat::Combined,
        AccessFormat::Vhost => EventFormat::Vhost,
    };
    Ok((output, EventStyle { format, selection: selection(config)? }))
}

/// Whether events tell the JA4 fingerprints of clients, so that they are worth their computation.
pub(crate) fn tell_ja4(config: &Config) -> bool {
    let log = &config.access_log;
    let format = match log.format {
        AccessFormat::Json | AccessFormat::Logfmt => true,
        AccessFormat::Text => config.log.level == model::Level::Debug,
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
    let log = &config.access_log;
    let fields = Field::ALL.map(Field::key).join(", ");
    let named = log.omit.iter().map(|name| ("omit", name)).chain(log.hash.iter().map(|name| ("hash", name)));
    let unknown = named.filter(|(_, name)| Field::from_key(name.as_str()).is_none());
    let mut findings: Vec<_> = unknown
        .map(|(key, name)| {
            let name = name.as_str();
            Finding::nowhere(format!("access_log.{key}: events have no field `{name}`; they have {fields}"))
        })
        .collect();
    if mint && config.log_store.url.is_some() {
        // What the store does not take for now waits there.
        findings.extend(state::prepare(&config.state_dir).err().iter().flat_map(Error::findings).cloned());
    }
    if mint && !log.hash.is_empty() {
        match state::prepare(&config.state_dir) {
            Err(error) => findings.extend(error.findings().iter().cloned()),
            Ok(_) => findings.extend(hash_key(&config.state_dir).err().map(unusable(&config.state_dir))),
        }
    }
    findings
}

/// How much of clients' addresses the program's own log shows: no more than events do.
pub(crate) fn shown_clients(config: &Config) -> Show {
    let log = &config.access_log;
    match log.anonymize {
        _ if log.omit.iter().chain(&log.hash).any(|name| name.as_str() == Field::Client.key()) => {
            Show::Nothing
        }
        Anonymize::Ip => Show::Network,
        _ => Show::Address,
    }
}

fn selection(config: &Config) -> Result<Selection, Error> {
    let AccessLog { omit, hash, anonymize, .. } = &config.access_log;
    let field = |name: &model::FieldName| {
        let unknown = || Error::one(format!("events have no field `{}`", name.as_str()));
        Field::from_key(name.as_str()).ok_or_else(unknown)
    };
    let mut selection = Selection::default();
    if config.access_log.format == AccessFormat::Text && !tell_ja4(config) {
        selection = selection.omit(Field::Ja4);
    }
    for name in omit {
        selection = selection.omit(field(name)?);
    }
    if !hash.is_empty() {
        let fields = hash.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let key = hash_key(&config.state_dir).map_err(unusable(&config.state_dir));
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
fn hash_key(state_dir: &Path) -> io::Result<HashKey> {
    state::secret(&key_path(state_dir)).map(HashKey::from)
}

fn key_path(state_dir: &Path) -> PathBuf {
    state_dir.join("hash.key")
}

fn unusable(state_dir: &Path) -> impl Fn(io::Error) -> Finding {
    let path = key_path(state_dir);
    move |error| {
        Finding::nowhere(format!("access_log.hash: the key {} cannot be used: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Terminals, access_log, hash_key, log, prepare};
    use offramp_config::Environment;
    use offramp_config::model::Config;
    use offramp_observe::{
        EventFormat, EventStyle, Field, LogFormat, Output, Rotation, Selection, SyslogTarget,
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
            access_log(&config, Terminals::default()).unwrap()
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
            &config(dir.path(), "[log]\noutput = \"syslog\"\nsyslog = \"udp://192.0.2.1:514\"").log,
            true,
        );
        assert_eq!((told.0, told.1), (Output::Syslog(udp), LogFormat::Text));
    }

    #[test]
    fn a_terminal_gets_short_lines_unless_everything_is_to_be_told() {
        let dir = tempfile::tempdir().unwrap();
        let form = |text: &str, stdout, stderr| {
            access_log(&config(dir.path(), text), Terminals { stdout, stderr }).unwrap().1.format
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
        let key = hash_key(&config.state_dir).unwrap();
        let selection = Selection::default().omit(Field::Referer).hash([Field::Client], key).anonymize();
        let style = EventStyle { format: EventFormat::Json, selection };
        let told = || access_log(&config, Terminals::default()).unwrap().1;
        assert_eq!(told(), style);
        assert_eq!(told(), style, "the key stays");
        let files: Vec<_> = fs::read_dir(&config.state_dir).unwrap().map(|file| file.unwrap()).collect();
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
        assert!(!wrong.state_dir.exists(), "a check writes nothing");
        let hashed = config(dir.path(), "[access_log]\nhash = [\"client\"]");
        fs::create_dir(&hashed.state_dir).unwrap();
        fs::write(hashed.state_dir.join("hash.key"), "short").unwrap();
        assert!(prepare(&hashed, true)[0].text.contains("hash.key cannot be used"));
        assert!(access_log(&hashed, Terminals::default()).is_err());
    }
}
