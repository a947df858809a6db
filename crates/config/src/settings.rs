//! The keys with one plain value each, bound to the fields of the model.
//!
//! Reading, printing and comparing all go through [`BINDINGS`], so that a knob is one row of the table of
//! keys, one field of the model and one line here. What has parts of its own (listeners, routes) is not
//! here.

use std::fmt;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{At, Problem, shown};
use crate::model::{
    AccessOutput, Bounded, Config, FilePath, ListenAddress, LogOutput, Metrics, RecordSize, RecordSizeLimit,
    User, Workers,
};
use crate::units::{self, Rate};

/// A plain value of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool(bool),
    Integer(u64),
    Text(String),
    Duration(Duration),
    /// In bytes.
    Size(u64),
    Rate(Rate),
}

impl fmt::Display for Scalar {
    /// As it is written in TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => value.fmt(f),
            Scalar::Integer(value) => value.fmt(f),
            Scalar::Text(value) => f.write_str(&crate::print::quoted(value)),
            Scalar::Duration(value) => write!(f, "\"{}\"", units::print_duration(*value)),
            Scalar::Size(value) => write!(f, "\"{}\"", units::print_size(*value)),
            Scalar::Rate(value) => write!(f, "\"{value}\""),
        }
    }
}

/// Where a value comes from: the folder that relative paths start at, and the place.
#[derive(Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) at: At,
}

impl Origin<'_> {
    /// A path of this origin.
    pub(crate) fn path(&self, text: &str) -> Result<PathBuf, Problem> {
        if text.is_empty() || text.contains('\0') {
            return Err(Problem::new(format!("`{}` is not a path", shown(text))));
        }
        Ok(self.folder.join(text))
    }

    /// A path of this origin that remembers its place.
    pub(crate) fn file(&self, text: &str) -> Result<FilePath, Problem> {
        Ok(FilePath { path: self.path(text)?, at: self.at.clone() })
    }
}

/// A key and its field.
pub(crate) struct Binding {
    pub(crate) path: &'static str,
    /// The value of the field; `None` where the key must be absent.
    pub(crate) get: fn(&Config) -> Option<Scalar>,
    /// Sets the field; `None` for an absent key.
    pub(crate) set: fn(&mut Config, Option<&Scalar>, &Origin<'_>) -> Result<(), Problem>,
}

macro_rules! bindings {
    ($($path:literal => $($field:ident).+;)*) => {
        &[$(Binding {
            path: $path,
            get: |config| config.$($field).+.fetch(),
            set: |config, value, origin| config.$($field).+.store(value, origin),
        }),*]
    };
}

/// Every supported key with one plain value that is not in a repeated section, in the order of the table of
/// keys.
pub(crate) const BINDINGS: &[Binding] = bindings! {
    "workers" => workers;
    "user" => user;
    "state_dir" => state_dir;
    "log.level" => log.level;
    "log.format" => log.format;
    "log.output" => log.output;
    "access_log.format" => access_log.format;
    "access_log.output" => access_log.output;
    "metrics.address" => metrics;
    "tls.policy" => tls.policy;
    "tls.tickets" => tls.tickets;
    "tls.ticket_rotation" => tls.ticket_rotation;
    "tls.record_size" => tls.record_size;
    "tls.post_quantum" => tls.post_quantum;
    "limits.connections" => limits.connections;
    "limits.connections_per_client" => limits.connections_per_client;
    "limits.handshakes_per_client" => limits.handshakes_per_client;
    "limits.handshake_timeout" => limits.handshake_timeout;
    "limits.connect_timeout" => limits.connect_timeout;
    "limits.idle_timeout" => limits.idle_timeout;
    "limits.drain_timeout" => limits.drain_timeout;
};

/// A field that a key is bound to.
trait Field {
    fn fetch(&self) -> Option<Scalar>;
    fn store(&mut self, value: Option<&Scalar>, origin: &Origin<'_>) -> Result<(), Problem>;
}

impl<T: Plain> Field for T {
    fn fetch(&self) -> Option<Scalar> {
        Some(self.write())
    }

    fn store(&mut self, value: Option<&Scalar>, origin: &Origin<'_>) -> Result<(), Problem> {
        if let Some(value) = value {
            *self = T::read(value, origin)?;
        }
        Ok(())
    }
}

impl<T: Plain> Field for Option<T> {
    fn fetch(&self) -> Option<Scalar> {
        self.as_ref().map(T::write)
    }

    fn store(&mut self, value: Option<&Scalar>, origin: &Origin<'_>) -> Result<(), Problem> {
        *self = value.map(|value| T::read(value, origin)).transpose()?;
        Ok(())
    }
}

/// A type that is one plain value.
trait Plain: Sized {
    fn write(&self) -> Scalar;
    fn read(value: &Scalar, origin: &Origin<'_>) -> Result<Self, Problem>;
}

/// The table of keys lets only the right kind of value through; this is for values made otherwise.
fn unfit(value: &Scalar) -> Problem {
    Problem::new(format!("`{value}` does not fit here"))
}

/// An enum whose variants are words of the language.
pub(crate) trait Word: Sized {
    fn word(&self) -> &'static str;
    fn from_word(word: &str) -> Option<Self>;
}

impl<T: Word> Plain for T {
    fn write(&self) -> Scalar {
        Scalar::Text(self.word().to_owned())
    }

    fn read(value: &Scalar, _: &Origin<'_>) -> Result<Self, Problem> {
        let word = if let Scalar::Text(text) = value { T::from_word(text) } else { None };
        word.ok_or_else(|| unfit(value))
    }
}

macro_rules! plain {
    ($($type:ty: $write:expr, $pattern:pat => $read:expr;)*) => {
        $(impl Plain for $type {
            fn write(&self) -> Scalar {
                let write: fn(&Self) -> Scalar = $write;
                write(self)
            }

            fn read(value: &Scalar, _: &Origin<'_>) -> Result<Self, Problem> {
                match value {
                    $pattern => $read,
                    _ => None,
                }
                .ok_or_else(|| unfit(value))
            }
        })*
    };
}

plain! {
    bool: |b| Scalar::Bool(*b), Scalar::Bool(value) => Some(*value);
    u32: |n| Scalar::Integer((*n).into()), Scalar::Integer(value) => u32::try_from(*value).ok();
    Duration: |d| Scalar::Duration(*d), Scalar::Duration(value) => Some(*value);
    Rate: |r| Scalar::Rate(*r), Scalar::Rate(value) => Some(*value);
}

impl<const MIN: u16, const MAX: u16> Plain for Bounded<MIN, MAX> {
    fn write(&self) -> Scalar {
        Scalar::Integer(self.get().into())
    }

    fn read(value: &Scalar, _: &Origin<'_>) -> Result<Self, Problem> {
        match value {
            Scalar::Integer(number) => u16::try_from(*number).ok().and_then(Self::new),
            _ => None,
        }
        .ok_or_else(|| unfit(value))
    }
}

impl Plain for Workers {
    fn write(&self) -> Scalar {
        match self {
            Workers::Auto => Scalar::Integer(0),
            Workers::Count(count) => Scalar::Integer(count.get().into()),
        }
    }

    fn read(value: &Scalar, _: &Origin<'_>) -> Result<Self, Problem> {
        match value {
            Scalar::Integer(number) => u16::try_from(*number).ok(),
            _ => None,
        }
        .map(|count| NonZeroU16::new(count).map_or(Workers::Auto, Workers::Count))
        .ok_or_else(|| unfit(value))
    }
}

impl Plain for RecordSize {
    fn write(&self) -> Scalar {
        match self {
            RecordSize::Adaptive => Scalar::Text("adaptive".to_owned()),
            RecordSize::Fixed(size) => Scalar::Size(size.get().into()),
        }
    }

    fn read(value: &Scalar, _: &Origin<'_>) -> Result<Self, Problem> {
        match value {
            Scalar::Text(word) if word == "adaptive" => Some(RecordSize::Adaptive),
            Scalar::Size(size) => {
                u16::try_from(*size).ok().and_then(RecordSizeLimit::new).map(RecordSize::Fixed)
            }
            _ => None,
        }
        .ok_or_else(|| unfit(value))
    }
}

/// A type that is written as a string.
trait Texty: Sized {
    fn to_text(&self) -> String;
    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem>;
}

macro_rules! texty {
    ($($type:ty),*) => {
        $(impl Plain for $type {
            fn write(&self) -> Scalar {
                Scalar::Text(self.to_text())
            }

            fn read(value: &Scalar, origin: &Origin<'_>) -> Result<Self, Problem> {
                match value {
                    Scalar::Text(text) => Self::from_text(text, origin),
                    _ => Err(unfit(value)),
                }
            }
        })*
    };
}

texty!(User, PathBuf, LogOutput, AccessOutput, Metrics);

impl Texty for User {
    fn to_text(&self) -> String {
        self.name.clone()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        if text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace() || c == ':') {
            let problem = Problem::new(format!("`{}` cannot be a user's name", shown(text)));
            return Err(problem.help("to stay root, write user = \"root\""));
        }
        Ok(User { name: text.to_owned(), at: origin.at.clone() })
    }
}

impl Texty for PathBuf {
    fn to_text(&self) -> String {
        self.to_string_lossy().into_owned()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        origin.path(text)
    }
}

impl Texty for LogOutput {
    fn to_text(&self) -> String {
        match self {
            LogOutput::Stderr => "stderr".to_owned(),
            LogOutput::Stdout => "stdout".to_owned(),
            LogOutput::File(file) => file.path.to_text(),
        }
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        Ok(match text {
            "stderr" => LogOutput::Stderr,
            "stdout" => LogOutput::Stdout,
            path => LogOutput::File(origin.file(path)?),
        })
    }
}

impl Texty for AccessOutput {
    fn to_text(&self) -> String {
        match self {
            AccessOutput::Stdout => "stdout".to_owned(),
            AccessOutput::Stderr => "stderr".to_owned(),
            AccessOutput::None => "none".to_owned(),
            AccessOutput::File(file) => file.path.to_text(),
        }
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        Ok(match text {
            "stdout" => AccessOutput::Stdout,
            "stderr" => AccessOutput::Stderr,
            "none" => AccessOutput::None,
            path => AccessOutput::File(origin.file(path)?),
        })
    }
}

impl Texty for Metrics {
    fn to_text(&self) -> String {
        self.address.to_string()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        let address = text.parse::<ListenAddress>()?.in_folder(origin.folder)?;
        Ok(Metrics { address, at: origin.at.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Default as KeyDefault, TABLE};

    /// The supported keys that need a binding.
    fn plain_keys() -> impl Iterator<Item = &'static crate::keys::Key> {
        let repeated = ["certificate", "listener", "route", "backend"];
        TABLE.iter().filter(move |key| {
            let top = key.path.split('.').next().unwrap();
            key.support.is_now() && !key.kind.is_section() && !repeated.contains(&top)
        })
    }

    #[test]
    fn every_plain_key_is_bound_in_the_order_of_the_table() {
        let bound: Vec<_> = BINDINGS.iter().map(|binding| binding.path).collect();
        assert_eq!(bound, plain_keys().map(|key| key.path).collect::<Vec<_>>());
    }

    #[test]
    fn defaults_of_the_model_are_those_of_the_table() {
        let config = Config::default();
        for (key, binding) in plain_keys().zip(BINDINGS) {
            if let KeyDefault::Toml(default) = key.default {
                assert_eq!((binding.get)(&config).unwrap().to_string(), default, "{}", key.path);
            }
        }
    }
}
