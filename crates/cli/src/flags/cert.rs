//! The command line of `cert`.

use clap::{Args, Subcommand};

use super::ConfigFile;

/// `cert`, and what to do.
#[derive(Debug, Args)]
pub(crate) struct Cert {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the certificates of a configuration: names, source, issuer, days left, key, routes
    ///
    /// Files are read as a start would read them. Nothing is written, and no running Offramp is asked. Exit code 2 if
    /// a certificate cannot be used.
    List(List),
    /// Show a certificate chain as a client gets it, and what is wrong with it
    ///
    /// Exit code 1 if something is wrong.
    Inspect(Inspect),
}

/// Options of `cert list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Where the configuration is.
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print one JSON object for each certificate
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `cert inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A PEM file, or a server that speaks TLS, such as example.org:443
    #[arg(value_name = "FILE|HOST:PORT")]
    pub(crate) target: String,
    /// The name to ask the server for, and to look for in the certificate [default: HOST]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A PEM file with authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) ca: Option<std::path::PathBuf>,
}
