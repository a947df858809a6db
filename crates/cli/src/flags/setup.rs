//! Arguments of `offramp setup`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// Arguments of `offramp setup`.
// Names, application and address are read later, so that all mistakes are reported at once.
#[derive(Debug, Args)]
pub(crate) struct SetupArguments {
    /// A name of the site, such as app.example.org; may be repeated [default: the names of this machine]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) name: Vec<String>,
    /// The application: a port of this machine, host:port, unix:PATH, tls://host:port, or a directory with files
    #[arg(long, short, value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub(crate) app: Option<String>,
    /// The e-mail address at which the authority of the certificate can reach you
    #[arg(long, value_name = "EMAIL")]
    pub(crate) email: Option<String>,
    /// Source of the certificate
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub(crate) certificate: CertificateChoice,
    /// Relay the bytes of any protocol, instead of HTTP
    #[arg(long)]
    pub(crate) tcp: bool,
    /// The port of TLS
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) https_port: u16,
    /// The port on which browsers without TLS are sent to https; 0 for none
    #[arg(long, value_name = "PORT", default_value_t = 80)]
    pub(crate) http_port: u16,
    /// Write the configuration to this file
    #[arg(long, short, value_name = "FILE", default_value = "/etc/offramp/offramp.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Set up the tree of files below this directory, such as an image, instead of this machine; nothing is started
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    /// Ask nothing
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Replace a configuration that setup has not written; the old file is kept beside it
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Install everything, but do not start the service
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Change nothing; print the commands of a shell that do the same
    #[arg(long)]
    pub(crate) print: bool,
    /// Take back what setup has done on this machine, and nothing else
    #[arg(long, conflicts_with_all = ["name", "app", "email", "tcp", "overwrite", "no_start"])]
    pub(crate) undo: bool,
}

/// Source of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CertificateChoice {
    /// Let's Encrypt, if the names lead to public addresses, else the local CA
    Auto,
    /// Let's Encrypt, whatever the names lead to
    Acme,
    /// The local CA, which clients must be told to trust
    Local,
}
