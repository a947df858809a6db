//! Types of fields with one plain value, and their conversions.

use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use super::{BoundField, Misfit, Scalar, ValueOrigin, WrittenValue};
use crate::error::{Problem, shown};
use crate::model::words::{Word, WordOrFile};
use crate::model::{
    AccessOutput, AskUrl, Balance, BodyTemplate, Bounded, CookieName, DefaultRole, DirectoryUrl, ErrorShare,
    FilePath, GraphitePrefix, HeaderName, HeaderValue, HostName, ListenAddress, Listeners, LogOutput,
    MailAddress, MailServer, Name, NotifyUrl, OtlpUrl, ProgramCommand, RecordSizeLimit, RecordSizePolicy,
    RedirectTo, RoutePath, ServerAddress, ServiceEndpoint, Size, SplitBy, StoreUrl, SyslogAddress, TlsName,
    User, Workers,
};
use crate::syntax::TextSyntax;
use crate::units::Rate;

/// A type with one plain value.
pub(super) trait PlainValue: Sized {
    /// The spelling of a text; `None` for other types, and for words that the row of the key has.
    const SYNTAX: Option<TextSyntax> = None;

    fn write(&self) -> Scalar;
    fn read(value: &Scalar, origin: &ValueOrigin<'_>) -> Result<Self, Problem>;
}

/// The error for a value of the wrong type, which the table of keys prevents; for values made otherwise.
pub(super) fn unfit(value: &Scalar) -> Problem {
    Problem::new(format!("`{value}` does not fit here"))
}

impl<T: Word> PlainValue for T {
    fn write(&self) -> Scalar {
        Scalar::Text(self.word().to_owned())
    }

    fn read(value: &Scalar, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
        let word = if let Scalar::Text(text) = value { T::from_word(text) } else { None };
        word.ok_or_else(|| unfit(value))
    }
}

macro_rules! plain {
    ($($type:ty: $write:expr, $pattern:pat => $read:expr;)*) => {
        $(impl PlainValue for $type {
            fn write(&self) -> Scalar {
                let write: fn(&Self) -> Scalar = $write;
                write(self)
            }

            fn read(value: &Scalar, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
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
    u8: |n| Scalar::Integer((*n).into()), Scalar::Integer(value) => u8::try_from(*value).ok();
    u16: |n| Scalar::Integer((*n).into()), Scalar::Integer(value) => u16::try_from(*value).ok();
    NonZeroU32: |n| Scalar::Integer(n.get().into()), Scalar::Integer(value) => {
        u32::try_from(*value).ok().and_then(NonZeroU32::new)
    };
    u32: |n| Scalar::Integer((*n).into()), Scalar::Integer(value) => u32::try_from(*value).ok();
    Duration: |d| Scalar::Duration(*d), Scalar::Duration(value) => Some(*value);
    Size: |s| Scalar::Size(s.bytes()), Scalar::Size(value) => Some(Size::new(*value));
    Rate: |r| Scalar::Rate(*r), Scalar::Rate(value) => Some(*value);
}

impl<const MIN: u16, const MAX: u16> PlainValue for Bounded<MIN, MAX> {
    fn write(&self) -> Scalar {
        Scalar::Integer(self.get().into())
    }

    fn read(value: &Scalar, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
        match value {
            Scalar::Integer(number) => u16::try_from(*number).ok().and_then(Self::new),
            _ => None,
        }
        .ok_or_else(|| unfit(value))
    }
}

impl PlainValue for Workers {
    fn write(&self) -> Scalar {
        match self {
            Workers::Auto => Scalar::Integer(0),
            Workers::Count(count) => Scalar::Integer(count.get().into()),
        }
    }

    fn read(value: &Scalar, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
        match value {
            Scalar::Integer(number) => u16::try_from(*number).ok(),
            _ => None,
        }
        .map(|count| NonZeroU16::new(count).map_or(Workers::Auto, Workers::Count))
        .ok_or_else(|| unfit(value))
    }
}

impl PlainValue for RecordSizePolicy {
    fn write(&self) -> Scalar {
        match self {
            RecordSizePolicy::Adaptive => Scalar::Text("adaptive".to_owned()),
            RecordSizePolicy::Fixed(size) => Scalar::Size(size.get().into()),
        }
    }

    fn read(value: &Scalar, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
        match value {
            Scalar::Text(word) if word == "adaptive" => Some(RecordSizePolicy::Adaptive),
            Scalar::Size(size) => {
                u16::try_from(*size).ok().and_then(RecordSizeLimit::new).map(RecordSizePolicy::Fixed)
            }
            _ => None,
        }
        .ok_or_else(|| unfit(value))
    }
}

impl PlainValue for ProgramCommand {
    const SYNTAX: Option<TextSyntax> = Some(TextSyntax::ProgramWord);

    fn write(&self) -> Scalar {
        Scalar::List(self.words())
    }

    fn read(value: &Scalar, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
        match value {
            Scalar::List(words) => ProgramCommand::read(words),
            _ => Err(unfit(value)),
        }
    }
}

/// A type that is written as a string.
trait Texty: Sized {
    const SPELLING: Option<TextSyntax>;

    fn to_text(&self) -> String;
    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem>;
}

macro_rules! texty {
    ($($type:ty),*) => {
        $(impl PlainValue for $type {
            const SYNTAX: Option<TextSyntax> = <Self as Texty>::SPELLING;

            fn write(&self) -> Scalar {
                Scalar::Text(self.to_text())
            }

            fn read(value: &Scalar, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
                match value {
                    Scalar::Text(text) => Self::from_text(text, origin),
                    _ => Err(unfit(value)),
                }
            }
        })*
    };
}

texty!(
    String,
    User,
    PathBuf,
    FilePath,
    LogOutput,
    AccessOutput,
    SyslogAddress,
    ServiceEndpoint,
    ServerAddress,
    StoreUrl
);

impl Texty for String {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::Any);

    fn to_text(&self) -> String {
        self.clone()
    }

    fn from_text(text: &str, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
        Ok(text.to_owned())
    }
}

impl Texty for User {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::User);

    fn to_text(&self) -> String {
        self.name.clone()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        if text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace() || c == ':') {
            let problem = Problem::new(format!("`{}` cannot be a user's name", shown(text)));
            return Err(problem.help("to stay root, write user = \"root\""));
        }
        Ok(User { name: text.to_owned(), at: origin.at.clone() })
    }
}

impl Texty for PathBuf {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::Path);

    fn to_text(&self) -> String {
        self.to_string_lossy().into_owned()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        origin.path(text)
    }
}

impl<T: WordOrFile> Texty for T {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::Path);

    fn to_text(&self) -> String {
        self.text().into_owned()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        match T::from_word(text) {
            Some(word) => Ok(word),
            None => origin.file(text).map(T::from_file),
        }
    }
}

impl Texty for FilePath {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::Path);

    fn to_text(&self) -> String {
        self.path.to_text()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        origin.file(text)
    }
}

impl Texty for SyslogAddress {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::Syslog);

    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        Ok(text.parse::<SyslogAddress>()?.in_folder(origin.folder))
    }
}

impl Texty for ServiceEndpoint {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::ListenAddress);

    fn to_text(&self) -> String {
        self.address.to_string()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        let address = text.parse::<ListenAddress>()?.in_folder(origin.folder)?;
        Ok(ServiceEndpoint { address, at: origin.at.clone() })
    }
}

impl Texty for ServerAddress {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::Server);

    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        text.parse::<ServerAddress>()?.in_folder(origin.folder)
    }
}

macro_rules! parsed {
    ($($type:ty => $syntax:expr;)*) => {
        $(impl Texty for $type {
            const SPELLING: Option<TextSyntax> = $syntax;

            fn to_text(&self) -> String {
                self.to_string()
            }

            fn from_text(text: &str, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
                text.parse()
            }
        })*

        texty!($($type),*);
    };
}

parsed! {
    GraphitePrefix => Some(TextSyntax::DottedNames);
    OtlpUrl => Some(TextSyntax::Collector);
    NotifyUrl => Some(TextSyntax::NotifyUrl);
    MailAddress => Some(TextSyntax::MailAddress);
    MailServer => Some(TextSyntax::MailServer);
    ErrorShare => Some(TextSyntax::Share);
    BodyTemplate => Some(TextSyntax::Any);
    Balance => None;
    CookieName => Some(TextSyntax::Token);
    Name => Some(TextSyntax::Name);
    HeaderName => Some(TextSyntax::Token);
    HeaderValue => Some(TextSyntax::FieldValue);
    HostName => Some(TextSyntax::Host);
    RoutePath => Some(TextSyntax::RoutePath);
    RedirectTo => Some(TextSyntax::Redirect);
    SplitBy => None;
    DirectoryUrl => Some(TextSyntax::AcmeDirectory);
    AskUrl => Some(TextSyntax::AskUrl);
    TlsName => Some(TextSyntax::HostOrAddress);
}

impl Texty for StoreUrl {
    const SPELLING: Option<TextSyntax> = Some(TextSyntax::Store);

    fn to_text(&self) -> String {
        self.to_string()
    }

    fn from_text(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        StoreUrl::read(text, origin.folder, &origin.at)
    }
}

/// `listener` of a route: without it the route applies to all.
impl BoundField for Listeners {
    fn syntax(&self) -> Option<TextSyntax> {
        Name::SYNTAX
    }

    fn fetch(&self) -> Option<Scalar> {
        match self {
            Listeners::All => None,
            Listeners::Named(names) => names.fetch(),
        }
    }

    fn store(&mut self, value: Option<&WrittenValue<'_>>) -> Vec<Misfit> {
        let mut names: Option<Vec<Name>> = None;
        let misfits = names.store(value);
        *self = names.map_or(Listeners::All, Listeners::Named);
        misfits
    }
}

/// `default` of a certificate, where absence has a meaning of its own.
impl BoundField for DefaultRole {
    fn syntax(&self) -> Option<TextSyntax> {
        None
    }

    fn fetch(&self) -> Option<Scalar> {
        match self {
            DefaultRole::Unsaid => None,
            DefaultRole::Always => true.fetch(),
            DefaultRole::Never => false.fetch(),
        }
    }

    fn store(&mut self, value: Option<&WrittenValue<'_>>) -> Vec<Misfit> {
        let mut role: Option<bool> = None;
        let misfits = role.store(value);
        *self = match role {
            None => DefaultRole::Unsaid,
            Some(true) => DefaultRole::Always,
            Some(false) => DefaultRole::Never,
        };
        misfits
    }
}
