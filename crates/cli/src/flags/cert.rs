//! Arguments of `offramp cert`.

use clap::{Args, Subcommand};

use super::ConfigFile;
use super::order::Order;

/// Arguments of `offramp cert`.
#[derive(Debug, Args)]
pub(crate) struct Cert {
    #[command(subcommand)]
    pub(crate) command: CertCommand,
}

/// Subcommands of `offramp cert`.
#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// List the certificates of a configuration: names, source, issuer, days left, key, routes
    ///
    /// Reads the files as `run` does, writes nothing, and does not ask a running Offramp. Exit code 2 if a certificate
    /// cannot be used.
    List(CertList),
    /// Show a certificate chain as a client gets it, and what is wrong with it
    ///
    /// Exit code 1 if something is wrong.
    Inspect(Inspect),
    /// Have the running Offramp renew a certificate of an authority now
    ///
    /// Waits until the authority has issued it, and the running Offramp uses it from then on. It obeys the limits of
    /// authorities: after failed orders it may refuse to ask again, and says until when. Exit code 1 if there is no new
    /// certificate; the old one then stays in use.
    Renew(Renew),
    /// Order a certificate from an authority once, without a server
    ///
    /// With an order you agree to the authority's terms of service. Until the order ends, Offramp answers the
    /// authority's check on port 443, or 80 with --challenge http-01; with dns-01 it does not listen. The state
    /// directory keeps the account and the certificate, and the certificate is written to --cert and --key as well.
    /// Exit code 1 if no certificate was issued.
    Order(Box<Order>),
}

/// Options of `cert list`.
#[derive(Debug, Args)]
pub(crate) struct CertList {
    #[command(flatten)]
    pub(crate) file: ConfigFile,
    /// Print one JSON object for each certificate
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `cert renew`.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// A name of the certificate, such as example.org or *.example.org
    #[arg(value_name = "NAME", value_parser = crate::target::host)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
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
    /// A PEM file with certificates to trust, as authorities or themselves, instead of the system's
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) ca: Option<std::path::PathBuf>,
    /// The protocol in which the server is asked for TLS first
    #[arg(long, value_name = "PROTOCOL")]
    pub(crate) starttls: Option<StartTls>,
}

/// Protocol in which a client requests TLS within the connection.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum StartTls {
    /// PostgreSQL, with an SSLRequest
    Postgres,
}
