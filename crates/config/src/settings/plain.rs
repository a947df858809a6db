//! The types of fields that are one plain value, and how each is read and written.

use std::borrow::Cow;
use std::fmt::Display;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{Origin, Scalar};
use crate::error::{Problem, shown};
use crate::model::{
    AccessOutput, AeadCipher, Bounded, Endpoint, FieldName, FilePath, GraphitePrefix, ListenAddress,
    LogOutput, Name, OtlpUrl, RecordSize, RecordSizeLimit, ServerAddress, Size, StoreUrl, SyslogAddress,
    User, Workers,
};
use crate::units::Rate;

/// A type that is one plain value.
pub(super) trait Plain: Sized {
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

/// An enum whose variants are words of the language, and a file.
pub(crate) trait WordOrFile: Sized {
    fn text(&self) -> Cow<'_, str>;
    fn from_word(word: &str) -> Option<Self>;
    fn from_file(file: FilePath) -> Self;
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
    Size: |s| Scalar::Size(s.bytes()), Scalar::Size(value) => Some(Size::new(*value));
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

texty!(
    User,
    PathBuf,
    FilePath,
    LogOutput,
    AccessOutput,
    SyslogAddress,
    Endpoint,
    ServerAddress,
    GraphitePrefix,
    OtlpUrl,
    StoreUrl
);

/// A type that is written as one string of a list.
trait Listed: FromStr<Err = Problem> + Display + PartialEq {}

impl Listed for FieldName {}
impl Listed for Name {}
impl Listed for AeadCipher {}

impl<T: Listed> Plain for Vec<T> {
    fn write(&self) -> Scalar {
        Scalar::List(self.iter().map(ToString::to_string).collect())
    }

    fn read(value: &Scalar, _: &Origin<'_>) -> Result<Self, Problem> {
        let Scalar::List(texts) = value else {
            return Err(unfit(value));
        };
        let mut names: Vec<T> = Vec::new();
        for text in texts {
            let name: T = text.parse()?;
            if names.contains(&name) {
                let problem = Problem::new(format!("`{name}` is there twice"));
                return Err(problem.help("keep one of the two"));
            }
            names.push(name);
        }
        Ok(names)
    }
}

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

impl<T: WordOrFile> Texty for T {
    fn to_text(&self) -> String {
        self.text().into_owned()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        match T::from_word(text) {
            Some(word) => Ok(word),
            None => origin.file(text).map(T::from_file),
        }
    }
}

impl Texty for FilePath {
    fn to_text(&self) -> String {
        self.path.to_text()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        origin.file(text)
    }
}

impl Texty for SyslogAddress {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        Ok(text.parse::<SyslogAddress>()?.in_folder(origin.folder))
    }
}

impl Texty for Endpoint {
    fn to_text(&self) -> String {
        self.address.to_string()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        let address = text.parse::<ListenAddress>()?.in_folder(origin.folder)?;
        Ok(Endpoint { address, at: origin.at.clone() })
    }
}

impl Texty for ServerAddress {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        text.parse::<ServerAddress>()?.in_folder(origin.folder)
    }
}

impl Texty for GraphitePrefix {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, _: &Origin<'_>) -> Result<Self, Problem> {
        text.parse()
    }
}

impl Texty for OtlpUrl {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, _: &Origin<'_>) -> Result<Self, Problem> {
        text.parse()
    }
}

impl Texty for StoreUrl {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, origin: &Origin<'_>) -> Result<Self, Problem> {
        StoreUrl::read(text, origin.folder, &origin.at)
    }
}
