//! The keys with one plain value each, bound to the fields of the model.
//!
//! Reading, printing and comparing all go through [`BINDINGS`], so that a knob is one row of the table of
//! keys, one field of the model and one line here. What has parts of its own (listeners, routes) is not
//! here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plain::Plain;

use crate::error::{At, Problem, shown};
use crate::model::{AccessOutput, Config, FilePath, ImpliedCertificates, ListenAddress, LogOutput};
use crate::units::{self, Rate};

pub(crate) use plain::{Word, WordOrFile};

mod plain;

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
    List(Vec<String>),
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
            Scalar::List(values) => f.write_str(&crate::print::array(values)),
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
    "watch" => watch;
    "sandbox" => sandbox;
    "geoip" => geoip;
    "admin.enabled" => admin.enabled;
    "admin.address" => admin.endpoint;
    "admin.token_file" => admin.token_file;
    "admin.certificate" => admin.certificate;
    "admin.key" => admin.key;
    "log.level" => log.level;
    "log.format" => log.format;
    "log.output" => log.output;
    "log.syslog" => log.syslog;
    "access_log.format" => access_log.format;
    "access_log.output" => access_log.output;
    "access_log.syslog" => access_log.syslog;
    "access_log.rotate_size" => access_log.rotate_size;
    "access_log.rotate_keep" => access_log.rotate_keep;
    "access_log.omit" => access_log.omit;
    "access_log.hash" => access_log.hash;
    "access_log.anonymize" => access_log.anonymize;
    "log_store.url" => log_store.url;
    "log_store.retention" => log_store.retention;
    "log_store.rollup_retention" => log_store.rollup_retention;
    "log_store.spool" => log_store.spool;
    "log_store.full_text" => log_store.full_text;
    "log_store.geoip" => log_store.geoip;
    "metrics.address" => metrics.endpoint;
    "metrics.graphite" => metrics.graphite;
    "metrics.graphite_interval" => metrics.graphite_interval;
    "metrics.graphite_prefix" => metrics.graphite_prefix;
    "metrics.top_clients" => metrics.top_clients;
    "tracing.otlp" => tracing.otlp;
    "tracing.sample_one_in" => tracing.sample_one_in;
    "tracing.metrics" => tracing.metrics;
    "tls.policy" => tls.policy;
    "tls.max_version" => tls.max_version;
    "tls.aeads" => tls.aeads;
    "tls.no_server_name" => tls.no_server_name;
    "tls.unknown_name" => tls.unknown_name;
    "tls.tickets" => tls.tickets;
    "tls.ticket_rotation" => tls.ticket_rotation;
    "tls.record_size" => tls.record_size;
    "tls.post_quantum" => tls.post_quantum;
    "tls.certificates" => tls.certificates;
    "tls.acme" => tls.acme;
    "limits.connections" => limits.connections;
    "limits.connections_per_client" => limits.connections_per_client;
    "limits.handshakes_per_client" => limits.handshakes_per_client;
    "limits.bandwidth_per_client" => limits.bandwidth_per_client;
    "limits.handshake_timeout" => limits.handshake_timeout;
    "limits.connect_timeout" => limits.connect_timeout;
    "limits.idle_timeout" => limits.idle_timeout;
    "limits.max_age" => limits.max_age;
    "limits.request_header_timeout" => limits.http.request_header_timeout;
    "limits.request_body_timeout" => limits.http.request_body_timeout;
    "limits.min_body_rate" => limits.http.min_body_rate;
    "limits.keepalive_timeout" => limits.http.keepalive_timeout;
    "limits.response_timeout" => limits.http.response_timeout;
    "limits.request_headers" => limits.http.request_headers;
    "limits.request_header_size" => limits.http.request_header_size;
    "limits.request_target_size" => limits.http.request_target_size;
    "limits.requests_per_client" => limits.http.requests_per_client;
    "limits.streams" => limits.http.streams;
    "limits.memory" => limits.http.memory;
    "limits.max_window" => limits.http.max_window;
    "limits.file_cache" => limits.http.file_cache;
    "limits.compression_memory" => limits.http.compression_memory;
    "limits.process_memory" => limits.process_memory;
    "limits.drain_timeout" => limits.drain_timeout;
    "limits.upgrade_timeout" => limits.upgrade_timeout;
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

/// A key that has an effect only with another.
pub(crate) struct Need {
    /// The key.
    pub(crate) path: &'static str,
    /// What it has an effect with, as a remedy names it.
    pub(crate) with: &'static str,
    /// Whether that is there.
    pub(crate) met: fn(&Config) -> bool,
}

/// The keys that are an error, and are not printed, where what they need is absent.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        path: "log.syslog",
        with: "output = \"syslog\"",
        met: |config| config.log.output == LogOutput::Syslog,
    },
    Need {
        path: "access_log.syslog",
        with: "output = \"syslog\"",
        met: |config| config.access_log.output == AccessOutput::Syslog,
    },
    Need {
        path: "access_log.rotate_size",
        with: "a file as `output`",
        met: |config| matches!(config.access_log.output, AccessOutput::File(_)),
    },
    Need {
        path: "access_log.rotate_keep",
        with: "`rotate_size`",
        met: |config| config.access_log.rotate_size.is_some(),
    },
    Need { path: "log_store.retention", with: "`url`", met: has_store },
    Need { path: "log_store.rollup_retention", with: "`url`", met: has_store },
    Need { path: "log_store.spool", with: "`url`", met: has_store },
    Need { path: "log_store.full_text", with: "`url`", met: has_store },
    Need { path: "log_store.geoip", with: "`url`", met: has_store },
    Need { path: "admin.token_file", with: "an `address` that is no Unix socket", met: has_admin_port },
    Need { path: "admin.certificate", with: "`token_file`", met: |config| config.admin.token_file.is_some() },
    Need { path: "admin.key", with: "`certificate`", met: |config| config.admin.certificate.is_some() },
    Need {
        path: "metrics.graphite_interval",
        with: "`graphite`",
        met: |config| config.metrics.graphite.is_some(),
    },
    Need {
        path: "metrics.graphite_prefix",
        with: "`graphite`",
        met: |config| config.metrics.graphite.is_some(),
    },
    Need {
        path: "metrics.top_clients",
        with: "`address` or `graphite`",
        met: |config| {
            let metrics = &config.metrics;
            let asked = metrics.endpoint.is_some() || metrics.graphite.is_some();
            asked || config.admin.endpoint.is_some() || config.tracing.metrics
        },
    },
    Need {
        path: "tls.acme",
        with: "`certificates = \"acme\"`",
        met: |config| config.tls.certificates == ImpliedCertificates::Acme,
    },
    Need { path: "tracing.sample_one_in", with: "`otlp`", met: has_collector },
    Need { path: "tracing.metrics", with: "`otlp`", met: has_collector },
];

fn has_admin_port(config: &Config) -> bool {
    let endpoint = config.admin.endpoint.as_ref();
    endpoint.is_some_and(|endpoint| matches!(endpoint.address, ListenAddress::Ip(_)))
}

fn has_store(config: &Config) -> bool {
    config.log_store.url.is_some()
}

fn has_collector(config: &Config) -> bool {
    config.tracing.otlp.is_some()
}

/// What the key lacks to have an effect in `config`, if something.
pub(crate) fn lacks(path: &str, config: &Config) -> Option<&'static Need> {
    NEEDS.iter().find(|need| need.path == path && !(need.met)(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Default as KeyDefault, TABLE};

    /// The supported keys that need a binding.
    fn plain_keys() -> impl Iterator<Item = &'static crate::keys::Key> {
        // And what is gone when the files are read.
        let repeated = ["include", "certificate", "acme", "listener", "route", "backend"];
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
    fn what_is_needed_is_a_key() {
        for need in NEEDS {
            assert!(BINDINGS.iter().any(|binding| binding.path == need.path), "{}", need.path);
        }
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
