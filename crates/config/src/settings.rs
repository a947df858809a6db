//! Bindings of keys with one plain value to fields of the model.
//!
//! Reading, printing and comparing go through the [`Binding`] in the row of the key, so that a plain key is one
//! row of the table and one field of the model. A struct that gets its first such key has a line below, with
//! its defaults; a type that gets its first such field has one in [`plain`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use listed::Listed;
use plain::PlainValue;

use crate::error::{At, Problem, shown};
use crate::folder::joined;
use crate::literal::{array, quoted};
use crate::model::{
    AccessOutput, AcmeAuthority, AcmeCertificate, BackendConfig, BasicAuthConfig, CertificateConfig,
    CertificateSource, ClientAuth, ClientCertificate, CompressionConfig, Config, DirectoryUrl, DnsUpdate,
    Eject, ExternalAccount, FilePath, FixedResponse, ForwardAuthConfig, HeaderChanges, Health, Hsts,
    HttpProbe, ImpliedCertificates, Jwks, JwtAuth, KeyServer, KeySetUrl, ListenAddress, ListenerConfig,
    LogOutput, MailTarget, MaintenanceMode, MirrorConfig, Name, NotifyConfig, NotifyProgram, OnDemand,
    PathRewrite, ProxyV2, RedirectResponse, RedirectTo, RelayTarget, RouteConfig, RouteTarget, RouteTls,
    ServerTls, StaticFiles, TrafficSplit, Webhook,
};
use crate::syntax::TextSyntax;
use crate::units::{self, Rate};

pub(crate) use text::TextField;

mod listed;
mod plain;
mod text;

/// A plain value of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool(bool),
    Integer(u64),
    Text(String),
    Duration(Duration),
    /// The size in bytes.
    Size(u64),
    Rate(Rate),
    List(Vec<String>),
}

impl fmt::Display for Scalar {
    /// The value in TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(value) => value.fmt(f),
            Scalar::Integer(value) => value.fmt(f),
            Scalar::Text(value) => f.write_str(&quoted(value)),
            Scalar::Duration(value) => write!(f, "\"{}\"", units::print_duration(*value)),
            Scalar::Size(value) => write!(f, "\"{}\"", units::print_size(*value)),
            Scalar::Rate(value) => write!(f, "\"{value}\""),
            Scalar::List(values) => f.write_str(&array(values)),
        }
    }
}

/// The origin of a value: the directory that relative paths start from, and the place.
#[derive(Debug)]
pub(crate) struct ValueOrigin<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) at: At,
}

impl ValueOrigin<'_> {
    /// Resolves a path of this origin.
    pub(crate) fn path(&self, text: &str) -> Result<PathBuf, Problem> {
        if text.is_empty() || text.contains('\0') {
            return Err(Problem::new(format!("`{}` is not a path", shown(text))));
        }
        Ok(joined(self.folder, text))
    }

    /// Resolves a path of this origin, with its place.
    pub(crate) fn file(&self, text: &str) -> Result<FilePath, Problem> {
        Ok(FilePath { path: self.path(text)?, at: self.at.clone() })
    }
}

/// A value as it is written, for the field that takes it.
pub(crate) struct WrittenValue<'a> {
    /// The name of the key.
    pub(crate) name: &'a str,
    pub(crate) value: &'a Scalar,
    /// The origin of the value, or of one element of a list.
    pub(crate) origin: &'a dyn Fn(Option<usize>) -> ValueOrigin<'a>,
}

/// A mistake of a value, or of one element of a list.
pub(crate) struct Misfit {
    pub(crate) element: Option<usize>,
    pub(crate) problem: Problem,
}

/// The field of a `T` that a key is bound to.
#[derive(Debug)]
pub(crate) struct Binding<T: 'static> {
    /// The spelling of a text, by the type of the field; `None` for other types, and for one that the row reads.
    pub(crate) syntax: fn(&T) -> Option<TextSyntax>,
    /// The value of the field; `None` if the key must be absent.
    pub(crate) get: fn(&T) -> Option<Scalar>,
    /// Sets the field; without a value, one that may be absent becomes so. Of a list with mistakes the rest is set.
    pub(crate) set: fn(&mut T, Option<&WrittenValue<'_>>) -> Vec<Misfit>,
}

/// A struct of the model with fields that keys are bound to.
pub(crate) trait Bindable: Sized + 'static {
    /// The binding, if it is one of this struct.
    fn binding(field: &'static FieldBinding) -> Option<&'static Binding<Self>>;

    /// The struct as it is where no key is written.
    fn blank() -> Self;
}

macro_rules! bindable {
    ($($owner:ident => $blank:expr;)*) => {
        /// A binding, by the struct that has the field.
        #[derive(Debug)]
        pub(crate) enum FieldBinding {
            $($owner(Binding<$owner>),)*
        }

        $(impl Bindable for $owner {
            fn binding(field: &'static FieldBinding) -> Option<&'static Binding<Self>> {
                match field {
                    FieldBinding::$owner(binding) => Some(binding),
                    _ => None,
                }
            }

            fn blank() -> Self {
                $blank
            }
        })*

        impl FieldBinding {
            /// The spelling of a text of the field, by its type.
            pub(crate) fn syntax(&self) -> Option<TextSyntax> {
                match self {
                    $(FieldBinding::$owner(binding) => (binding.syntax)(&$blank),)*
                }
            }
        }

        #[cfg(test)]
        impl FieldBinding {
            /// The mistakes of a value that is written.
            pub(crate) fn misfits(&self, value: &WrittenValue<'_>) -> Vec<Misfit> {
                match self {
                    $(FieldBinding::$owner(binding) => (binding.set)(&mut $blank, Some(value)),)*
                }
            }

            /// The value of the field where no key is written.
            pub(crate) fn blank_value(&self) -> Option<Scalar> {
                match self {
                    $(FieldBinding::$owner(binding) => (binding.get)(&$blank),)*
                }
            }
        }
    };
}

bindable! {
    Config => Config::default();
    NotifyConfig => NotifyConfig::called(Name::default());
    Webhook => Webhook::default();
    NotifyProgram => NotifyProgram::default();
    MailTarget => MailTarget::blank();
    CertificateConfig => CertificateConfig::new(CertificateSource::Local { names: Vec::new() });
    AcmeCertificate => AcmeCertificate::default();
    OnDemand => OnDemand::default();
    AcmeAuthority => AcmeAuthority::new(Name::default(), DirectoryUrl::default());
    ExternalAccount => ExternalAccount { key_id: String::new(), key_file: FilePath::new("") };
    DnsUpdate => DnsUpdate::blank();
    RouteConfig => RouteConfig::to(RouteTarget::Respond(FixedResponse::default()));
    TrafficSplit => TrafficSplit::default();
    RedirectResponse => RedirectResponse::permanent(RedirectTo::Https);
    FixedResponse => FixedResponse::default();
    PathRewrite => PathRewrite::default();
    HeaderChanges => HeaderChanges::default();
    BasicAuthConfig => BasicAuthConfig::of(FilePath::new(""));
    JwtAuth => JwtAuth::of(Jwks::File(FilePath::new("")));
    KeyServer => KeyServer::at(KeySetUrl::blank());
    ForwardAuthConfig => ForwardAuthConfig::to(RelayTarget::Backend(Name::default()));
    Hsts => Hsts::default();
    MaintenanceMode => MaintenanceMode::default();
    CompressionConfig => CompressionConfig::default();
    RouteTls => RouteTls::default();
    ProxyV2 => ProxyV2::default();
    ClientAuth => ClientAuth::of(Vec::new());
    MirrorConfig => MirrorConfig::to(Name::default());
    StaticFiles => StaticFiles::new(FilePath::new(""));
    ListenerConfig => ListenerConfig::default();
    BackendConfig => BackendConfig::new(Name::default(), Vec::new());
    ServerTls => ServerTls::default();
    ClientCertificate => ClientCertificate { cert: FilePath::new(""), key: None };
    Health => Health::default();
    HttpProbe => HttpProbe::new("/");
    Eject => Eject::default();
}

/// A field that a key is bound to.
pub(crate) trait BoundField {
    /// The spelling of a text, or of one element of a list.
    fn syntax(&self) -> Option<TextSyntax>;
    fn fetch(&self) -> Option<Scalar>;
    fn store(&mut self, value: Option<&WrittenValue<'_>>) -> Vec<Misfit>;
}

/// One plain value, or the mistake that it is.
fn one<T: PlainValue>(written: &WrittenValue<'_>, misfits: &mut Vec<Misfit>) -> Option<T> {
    let read = T::read(written.value, &(written.origin)(None));
    read.map_err(|problem| misfits.push(Misfit { element: None, problem })).ok()
}

/// The elements of a list that `read` takes, without those that `clash` with an earlier one.
fn several<T>(
    written: &WrittenValue<'_>,
    misfits: &mut Vec<Misfit>,
    read: impl Fn(&str, &ValueOrigin<'_>) -> Result<T, Problem>,
    clash: impl Fn(&T, &T) -> Option<Problem>,
) -> Vec<T> {
    let Scalar::List(texts) = written.value else {
        misfits.push(Misfit { element: None, problem: plain::unfit(written.value) });
        return Vec::new();
    };
    let mut values: Vec<T> = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let value = read(text, &(written.origin)(Some(at)));
        let checked = value.and_then(|value| {
            let mistake = values.iter().find_map(|earlier| clash(&value, earlier));
            mistake.map_or(Ok(value), Err)
        });
        match checked {
            Ok(value) => values.push(value),
            Err(problem) => misfits.push(Misfit { element: Some(at), problem }),
        }
    }
    values
}

/// The mistake of an element that stands in the list already.
fn repeated(name: &str) -> Problem {
    Problem::new(format!("`{name}` contains this twice")).help("keep one of the two")
}

/// The elements of a list of a type with its own rules.
fn elements<T: Listed>(written: &WrittenValue<'_>, misfits: &mut Vec<Misfit>) -> Vec<T> {
    several(written, misfits, T::read, |value, earlier| value.clash(earlier, written.name))
}

fn list<T: Listed>(values: &[T]) -> Scalar {
    Scalar::List(values.iter().map(Listed::write).collect())
}

impl<T: PlainValue> BoundField for T {
    fn syntax(&self) -> Option<TextSyntax> {
        T::SYNTAX
    }

    fn fetch(&self) -> Option<Scalar> {
        Some(self.write())
    }

    fn store(&mut self, value: Option<&WrittenValue<'_>>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        if let Some(read) = value.and_then(|value| one(value, &mut misfits)) {
            *self = read;
        }
        misfits
    }
}

impl<T: PlainValue> BoundField for Option<T> {
    fn syntax(&self) -> Option<TextSyntax> {
        T::SYNTAX
    }

    fn fetch(&self) -> Option<Scalar> {
        self.as_ref().map(T::write)
    }

    fn store(&mut self, value: Option<&WrittenValue<'_>>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        *self = value.and_then(|value| one(value, &mut misfits));
        misfits
    }
}

impl<T: Listed> BoundField for Vec<T> {
    fn syntax(&self) -> Option<TextSyntax> {
        Some(T::SYNTAX)
    }

    fn fetch(&self) -> Option<Scalar> {
        Some(list(self))
    }

    fn store(&mut self, value: Option<&WrittenValue<'_>>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        if let Some(value) = value {
            *self = elements(value, &mut misfits);
        }
        misfits
    }
}

impl<T: Listed> BoundField for Option<Vec<T>> {
    fn syntax(&self) -> Option<TextSyntax> {
        Some(T::SYNTAX)
    }

    fn fetch(&self) -> Option<Scalar> {
        self.as_deref().map(list)
    }

    fn store(&mut self, value: Option<&WrittenValue<'_>>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        *self = value.map(|value| elements(value, &mut misfits));
        misfits
    }
}

/// A key that has an effect only with another.
pub(crate) struct Prerequisite {
    /// The path of the key.
    pub(crate) path: &'static str,
    /// The required key or setting, as a remedy names it.
    pub(crate) with: &'static str,
    /// Returns `true` if the requirement is met.
    pub(crate) met: fn(&Config) -> bool,
}

/// Keys that are errors, and are not printed, without their requirement.
pub(crate) const NEEDS: &[Prerequisite] = &[
    Prerequisite {
        path: "log.syslog",
        with: "output = \"syslog\"",
        met: |config| config.telemetry.log.output == LogOutput::Syslog,
    },
    Prerequisite {
        path: "access_log.syslog",
        with: "output = \"syslog\"",
        met: |config| config.telemetry.access_log.output == AccessOutput::Syslog,
    },
    Prerequisite {
        path: "access_log.rotate_size",
        with: "a file as `output`",
        met: |config| matches!(config.telemetry.access_log.output, AccessOutput::File(_)),
    },
    Prerequisite {
        path: "access_log.rotate_keep",
        with: "`rotate_size`",
        met: |config| config.telemetry.access_log.rotate_size.is_some(),
    },
    Prerequisite { path: "log_store.retention", with: "`url`", met: has_store },
    Prerequisite { path: "log_store.rollup_retention", with: "`url`", met: has_store },
    Prerequisite { path: "log_store.spool", with: "`url`", met: has_store },
    Prerequisite { path: "log_store.full_text", with: "`url`", met: has_store },
    Prerequisite { path: "log_store.geoip", with: "`url`", met: has_store },
    Prerequisite {
        path: "admin.token_file",
        with: "an `address` that is no Unix socket",
        met: has_admin_port,
    },
    Prerequisite { path: "admin.users", with: "an `address` that is no Unix socket", met: has_admin_port },
    Prerequisite { path: "admin.hosts", with: "an `address` that is no Unix socket", met: has_admin_port },
    Prerequisite {
        path: "admin.certificate",
        with: "`token_file` or `users`",
        met: |config| config.admin.token_file.is_some() || config.admin.users.is_some(),
    },
    Prerequisite {
        path: "admin.key",
        with: "`certificate`",
        met: |config| config.admin.certificate.is_some(),
    },
    Prerequisite {
        path: "metrics.graphite_interval",
        with: "`graphite`",
        met: |config| config.telemetry.metrics.graphite.is_some(),
    },
    Prerequisite {
        path: "metrics.graphite_prefix",
        with: "`graphite`",
        met: |config| config.telemetry.metrics.graphite.is_some(),
    },
    Prerequisite {
        path: "metrics.top_clients",
        with: "`address` or `graphite`",
        met: |config| {
            let metrics = &config.telemetry.metrics;
            let asked = metrics.endpoint.is_some() || metrics.graphite.is_some();
            asked || config.admin.endpoint.is_some() || config.telemetry.tracing.metrics
        },
    },
    Prerequisite {
        path: "tls.acme",
        with: "`certificates = \"acme\"`",
        met: |config| config.tls.certificates == ImpliedCertificates::Acme,
    },
    Prerequisite { path: "tracing.sample_one_in", with: "`otlp`", met: has_collector },
    Prerequisite { path: "tracing.metrics", with: "`otlp`", met: has_collector },
];

fn has_admin_port(config: &Config) -> bool {
    let endpoint = config.admin.endpoint.as_ref();
    endpoint.is_some_and(|endpoint| matches!(endpoint.address, ListenAddress::Ip(_)))
}

fn has_store(config: &Config) -> bool {
    config.telemetry.log_store.url.is_some()
}

fn has_collector(config: &Config) -> bool {
    config.telemetry.tracing.otlp.is_some()
}

/// The unmet requirement of a key in `config`, if any.
pub(crate) fn lacks(path: &str, config: &Config) -> Option<&'static Prerequisite> {
    NEEDS.iter().find(|need| need.path == path && !(need.met)(config))
}
