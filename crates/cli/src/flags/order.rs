//! Arguments of `cert order`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use offramp_config::model::{AcmeKeyType, Challenge, DirectoryUrl, HostName};

use crate::target;

/// Arguments of `cert order`.
#[derive(Debug, Args)]
pub(crate) struct Order {
    /// The names of the certificate, such as example.org or, with --challenge dns-01, *.example.org
    #[arg(value_name = "NAME", required = true, value_parser = target::host)]
    pub(crate) names: Vec<String>,
    /// The mail address for messages from the authority [default: none]
    #[arg(long, value_name = "EMAIL", value_parser = target::email)]
    pub(crate) email: Option<String>,
    /// The directory of the authority [default: that of Let's Encrypt]
    #[arg(long, value_name = "URL", value_parser = target::directory)]
    pub(crate) directory: Option<DirectoryUrl>,
    /// The authorities in PEM that the authority's API is checked against [default: the system's]
    #[arg(long, value_name = "FILE", requires = "directory", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate profile [default: that of the authority]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// The identifier of an account that exists elsewhere (external account binding)
    #[arg(long, value_name = "ID", requires = "eab_key")]
    pub(crate) eab_id: Option<String>,
    /// The file with its HMAC key, in base64url
    #[arg(long, value_name = "FILE", requires = "eab_id", value_hint = ValueHint::FilePath)]
    pub(crate) eab_key: Option<PathBuf>,
    /// How control of the names is proved
    #[arg(long, value_name = "CHALLENGE", default_value = "tls-alpn-01")]
    pub(crate) challenge: ChallengeOption,
    /// Where to answer the authority's check [default: port 443, or 80 with http-01, of every address]
    #[arg(long, short, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) dns: Dns,
    /// The kind of the key
    #[arg(long, value_name = "KIND", default_value = "p256")]
    pub(crate) key_type: CertificateKeyType,
    /// The file that gets the chain, and without --key the key too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,
    /// The file that gets the key
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,
    /// Where the account and the certificate are kept [default: the default state_dir, see offramp --help]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Log at level debug
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Options for `--challenge dns-01`: the provider of TXT records.
#[derive(Debug, Args)]
pub(crate) struct Dns {
    /// With dns-01: the program that sets and removes TXT records
    #[arg(long, value_name = "PROGRAM", conflicts_with = "dns_server", value_hint = ValueHint::FilePath)]
    pub(crate) dns_hook: Option<PathBuf>,
    /// With dns-01: the name server that takes signed updates (RFC 2136), such as 192.0.2.53:53
    #[arg(long, value_name = "ADDR", requires_all = ["dns_zone", "tsig_name", "tsig_key"])]
    pub(crate) dns_server: Option<SocketAddr>,
    /// The zone that has the records
    #[arg(long, value_name = "ZONE", requires = "dns_server", value_parser = target::host_name)]
    pub(crate) dns_zone: Option<HostName>,
    /// The name of the TSIG key
    #[arg(long, value_name = "NAME", requires = "dns_server", value_parser = target::host_name)]
    pub(crate) tsig_name: Option<HostName>,
    /// The file with the TSIG key, in base64, for HMAC with SHA-256
    #[arg(long, value_name = "FILE", requires = "dns_server", value_hint = ValueHint::FilePath)]
    pub(crate) tsig_key: Option<PathBuf>,
    /// With dns-01: how many seconds to wait after a record was set
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) dns_wait: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= 3600);
    seconds.map(Duration::from_secs).ok_or_else(|| "write a number of seconds, up to 3600".to_owned())
}

/// ACME challenge, as a value of `--challenge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChallengeOption {
    /// By a handshake on port 443
    #[value(name = "tls-alpn-01")]
    TlsAlpn01,
    /// By a response on port 80
    #[value(name = "http-01")]
    Http01,
    /// By a TXT record; the only one for wildcards
    #[value(name = "dns-01")]
    Dns01,
}

impl From<ChallengeOption> for Challenge {
    fn from(by: ChallengeOption) -> Self {
        match by {
            ChallengeOption::TlsAlpn01 => Challenge::TlsAlpn01,
            ChallengeOption::Http01 => Challenge::Http01,
            ChallengeOption::Dns01 => Challenge::Dns01,
        }
    }
}

/// Type of the certificate's key, as a value of `--key-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CertificateKeyType {
    /// ECDSA on the curve P-256
    P256,
    /// ECDSA on the curve P-384
    P384,
    /// RSA with a modulus of 2048 bits
    Rsa2048,
    /// RSA with a modulus of 4096 bits
    Rsa4096,
}

impl From<CertificateKeyType> for AcmeKeyType {
    fn from(kind: CertificateKeyType) -> Self {
        match kind {
            CertificateKeyType::P256 => AcmeKeyType::P256,
            CertificateKeyType::P384 => AcmeKeyType::P384,
            CertificateKeyType::Rsa2048 => AcmeKeyType::Rsa2048,
            CertificateKeyType::Rsa4096 => AcmeKeyType::Rsa4096,
        }
    }
}
