//! Types of elements of lists, and their conversions.

use super::{ValueOrigin, repeated};
use crate::error::Problem;
use crate::model::{
    AeadCipher, Allow, AlpnId, BackendServer, BackendShare, Cidr, CompressionAlgorithm, FieldName, FilePath,
    HostPattern, Ja4Pattern, ListenAddress, MailAddress, MediaRange, Name, Networks, NotifyKind, StatusRange,
    UpgradeProtocol,
};
use crate::syntax::TextSyntax;

/// A type that is written as one string of a list.
pub(super) trait Listed: Sized + PartialEq {
    /// The spelling of an element.
    const SYNTAX: TextSyntax;

    fn write(&self) -> String;
    fn read(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem>;

    /// The mistake of an element that cannot stand beside an earlier one of the list `name`.
    fn clash(&self, earlier: &Self, name: &str) -> Option<Problem> {
        (self == earlier).then(|| repeated(name))
    }
}

macro_rules! listed {
    ($($type:ty => $syntax:expr;)*) => {
        $(impl Listed for $type {
            const SYNTAX: TextSyntax = $syntax;

            fn write(&self) -> String {
                self.to_string()
            }

            fn read(text: &str, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
                text.parse()
            }
        })*
    };
}

listed! {
    FieldName => TextSyntax::EventField;
    Name => TextSyntax::Name;
    AeadCipher => TextSyntax::Words(Self::CHOICES);
    CompressionAlgorithm => TextSyntax::Words(Self::CHOICES);
    Allow => TextSyntax::CertificatePattern;
    AlpnId => TextSyntax::Alpn;
    Cidr => TextSyntax::Network;
    HostPattern => TextSyntax::HostPattern;
    Ja4Pattern => TextSyntax::Ja4;
    MediaRange => TextSyntax::MediaRange;
    NotifyKind => TextSyntax::Words(Self::CHOICES);
    MailAddress => TextSyntax::MailAddress;
    StatusRange => TextSyntax::Status;
    UpgradeProtocol => TextSyntax::Upgrade;
}

impl Listed for BackendShare {
    const SYNTAX: TextSyntax = TextSyntax::BackendShare;

    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str, _: &ValueOrigin<'_>) -> Result<Self, Problem> {
        text.parse()
    }

    fn clash(&self, earlier: &Self, _: &str) -> Option<Problem> {
        let problem = || Problem::new(format!("`{}` is in this split twice", self.backend));
        (self.backend == earlier.backend).then(|| problem().help("add the two weights up"))
    }
}

impl Listed for BackendServer {
    const SYNTAX: TextSyntax = TextSyntax::BackendServer;

    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        let server: BackendServer = text.parse()?;
        Ok(BackendServer {
            address: server.address.in_folder(origin.folder)?,
            at: origin.at.clone(),
            ..server
        })
    }

    fn clash(&self, earlier: &Self, _: &str) -> Option<Problem> {
        let problem = || Problem::new(format!("`{}` is in this backend twice", self.address));
        (self.address == earlier.address).then(|| problem().help("for a greater share, write \" weight=N\""))
    }
}

impl Listed for FilePath {
    const SYNTAX: TextSyntax = TextSyntax::Path;

    fn write(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    fn read(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        origin.file(text)
    }
}

impl Listed for ListenAddress {
    const SYNTAX: TextSyntax = TextSyntax::ListenAddress;

    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        text.parse::<ListenAddress>()?.in_folder(origin.folder)
    }
}

impl Listed for Networks {
    const SYNTAX: TextSyntax = TextSyntax::Networks;

    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str, origin: &ValueOrigin<'_>) -> Result<Self, Problem> {
        if let Some(path) = text.strip_prefix("file:") {
            return origin.file(path).map(Networks::File);
        }
        if let Some(code) = text.strip_prefix("country:") {
            return code.parse().map(Networks::Country);
        }
        if text.starts_with(['/', '.']) {
            let problem = Problem::new("this is a path, and not a network");
            return Err(problem.help("write file: before the path of a list of networks"));
        }
        text.parse().map(Networks::One)
    }
}
