//! One of the two sides: its URL, its address, and the authorities that its certificate is checked against.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hyper::Uri;
use offramp_certs::anchors::{Anchors, server_verifier};
use offramp_certs::client_auth::load_roots;
use offramp_certs::server_verifier::{ByRule, ChainRule, ShownChain};
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, Error, RootCertStore};
use tokio::net::lookup_host;

use super::location::AnswerPlace;
use super::request::{ReplayRequest, authority};
use crate::failure::Failure;
use crate::flags::compare::SideOptions;
use crate::measured_url::MeasuredUrl;
use crate::other_machine::confirm;

/// The name of a side in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideName {
    Old,
    New,
}

impl SideName {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }
}

/// One side.
#[derive(Clone, Debug)]
pub(super) struct ComparedSide {
    pub(super) name: SideName,
    /// The URL as it is shown.
    pub(super) url: String,
    pub(super) address: SideAddress,
    /// Set for `https`.
    pub(super) is_tls: bool,
    /// The host of the URL, with its port if that is not the usual one.
    pub(super) authority: String,
    pub(super) port: Option<u16>,
}

/// The address that is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SideAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ComparedSide {
    /// Finds both sides.
    ///
    /// # Errors
    /// A URL has a path, a name has no address, or a machine is another one and was not named.
    pub(super) async fn both(options: &SideOptions) -> Result<[Self; 2], Failure> {
        let old = Self::find(SideName::Old, &options.old, options.old_at, &options.remote).await?;
        Ok([old, Self::find(SideName::New, &options.new, options.new_at, &options.remote).await?])
    }

    async fn find(
        name: SideName,
        url: &MeasuredUrl,
        at: Option<SocketAddr>,
        remote: &[String],
    ) -> Result<Self, Failure> {
        let flag = name.word();
        let uri = match url {
            MeasuredUrl::Unix(path) => return Self::socket(name, path, at),
            MeasuredUrl::Http(uri) => uri,
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(Failure::usage(format_args!(
                "error: --{flag}: paths come from the requests; write the URL without one, such as --{flag} \
                 http://127.0.0.1:8080"
            )));
        }
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let address = match at {
            Some(address) => address,
            None => {
                let found = lookup_host((host.as_str(), port)).await.map(|mut found| found.next());
                let found = found
                    .map_err(|error| Failure::usage(format_args!("error: --{flag}: {host}: {error}")))?;
                found.ok_or_else(|| Failure::usage(format_args!("error: --{flag}: {host} has no address")))?
            }
        };
        // With --old-at, the address is what must be confirmed.
        let called = if at.is_some() { address.ip().to_string() } else { host };
        let harm = format!("the requests of --{flag} would go there");
        confirm(&called, address.ip(), remote, &harm, "ask")?;
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default().to_ascii_lowercase();
        Ok(Self {
            name,
            url: shown(uri),
            address: SideAddress::Tcp(address),
            is_tls,
            authority,
            port: Some(port),
        })
    }

    fn socket(name: SideName, path: &Path, at: Option<SocketAddr>) -> Result<Self, Failure> {
        if at.is_some() {
            let flag = name.word();
            return Err(Failure::usage(format_args!("error: --{flag}-at is for http:// and https://")));
        }
        Ok(Self {
            name,
            url: format!("unix:{}", path.display()),
            address: SideAddress::Unix(path.to_owned()),
            is_tls: false,
            authority: "localhost".to_owned(),
            port: None,
        })
    }

    pub(super) const fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The place of an answer to a request with this host.
    pub(super) fn place(&self, request: &ReplayRequest, authority: &str) -> AnswerPlace {
        let address = match &self.address {
            SideAddress::Tcp(address) => Some(address.port()),
            SideAddress::Unix(_) => None,
        };
        let ports = self.port.into_iter().chain(address).collect();
        AnswerPlace {
            scheme: self.scheme(),
            authority: authority.to_owned(),
            ports,
            path: request.path().to_owned(),
        }
    }
}

fn shown(uri: &Uri) -> String {
    uri.to_string().trim_end_matches('/').to_owned()
}

/// The host that both sides get for requests that have none: `--host`, else that of `--old`.
///
/// # Errors
/// `--host` is no host.
pub(super) fn default_authority(host: Option<&str>, old: &ComparedSide) -> Result<String, Failure> {
    match host {
        None => Ok(old.authority.clone()),
        Some(host) => authority(host.as_bytes()).ok_or_else(|| {
            Failure::usage(format_args!("error: --host {host}: write a name, such as --host www.example.org"))
        }),
    }
}

/// Checks certificates, and keeps the last chain with what is wrong with it.
#[derive(Debug)]
pub(super) struct WatchingRule {
    verifier: Option<Arc<dyn ServerCertVerifier>>,
    is_insecure: bool,
    seen: Mutex<Option<SeenChain>>,
}

/// A chain as a side has shown it.
#[derive(Clone, Debug)]
pub(super) struct SeenChain {
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// The reason why it is not trusted.
    pub(super) fault: Option<Error>,
}

impl WatchingRule {
    /// Takes the chain that was shown last.
    pub(super) fn take(&self) -> Option<SeenChain> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ChainRule for WatchingRule {
    fn judge(&self, shown: ShownChain<'_>) -> Result<(), Error> {
        let ShownChain { leaf, rest, name, ocsp, now } = shown;
        let verdict = match &self.verifier {
            Some(verifier) => verifier.verify_server_cert(leaf, rest, name, ocsp, now).map(drop),
            None => Err(rustls::CertificateError::UnknownIssuer.into()),
        };
        let chain = std::iter::once(leaf).chain(rest).map(|one| one.clone().into_owned()).collect();
        let fault = verdict.as_ref().err().cloned();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(SeenChain { chain, fault });
        if self.is_insecure { Ok(()) } else { verdict }
    }
}

/// TLS towards one side.
#[derive(Clone)]
pub(super) struct SideTls {
    pub(super) rule: Arc<ByRule<WatchingRule>>,
    /// For requests.
    pub(super) config: Arc<ClientConfig>,
    /// For a look at what is offered, which is both versions of HTTP.
    pub(super) looking: Arc<ClientConfig>,
}

impl SideTls {
    /// # Errors
    /// The authorities cannot be read.
    pub(super) fn new(options: &SideOptions, now: SystemTime) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::usage(format_args!("error: {error}"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = match &options.ca {
            Some(file) => {
                let loaded = load_roots(file, now).map_err(|error| failed(&error))?;
                Some(server_verifier(&loaded.anchors, &provider).map_err(|error| failed(&error))?)
            }
            None => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                // A machine without authorities trusts none.
                server_verifier(&Anchors::from(roots), &provider).ok()
            }
        };
        let rule = WatchingRule { verifier, is_insecure: options.insecure, seen: Mutex::new(None) };
        let rule = Arc::new(ByRule::new(rule, &provider));
        let config = |protocols: &[&[u8]]| -> Result<Arc<ClientConfig>, Failure> {
            let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
            let builder = builder.with_safe_default_protocol_versions().map_err(|error| failed(&error))?;
            let verifier = Arc::clone(&rule) as Arc<dyn ServerCertVerifier>;
            let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
            let mut config = builder.with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            // Each connection shows its certificate.
            config.resumption = rustls::client::Resumption::disabled();
            Ok(Arc::new(config))
        };
        let wanted: &[u8] = if options.http2 { b"h2" } else { b"http/1.1" };
        Ok(Self { config: config(&[wanted])?, looking: config(&[b"h2", b"http/1.1"])?, rule })
    }
}
