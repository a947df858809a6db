//! ACME authorities (RFC 8555), and the certificates to order from them.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use super::words::words;
use super::{FilePath, HostName, HostPattern, Name, OnDemand};
use crate::error::{At, Problem, shown};

/// A certificate authority with an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeAuthority {
    /// The name in certificates and logs.
    pub name: Name,
    /// The URL of its ACME directory.
    pub directory: DirectoryUrl,
    /// The contact of the account, if any.
    pub email: Option<String>,
    /// The challenge that proves control of a name.
    pub challenge: Challenge,
    /// The provider of DNS records; present with [`Challenge::Dns01`] only.
    pub dns: Option<DnsProvider>,
    /// The time between setting a record and the authority's check: up to 1 h.
    pub dns_wait: Duration,
    /// The CA certificates for its API, if not the system's.
    pub ca: Option<FilePath>,
    /// The certificate profile, if not the authority's default.
    pub profile: Option<String>,
    /// The external account to bind to, if the authority requires one.
    pub eab: Option<ExternalAccount>,
    /// The place; nowhere for a well-known authority without a section.
    pub at: At,
}

/// Well-known authorities: name, directory URL, and `true` if an external account is required.
const WELL_KNOWN: [(&str, &str, bool); 4] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory", false),
    ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory", false),
    ("zerossl", "https://acme.zerossl.com/v2/DV90", true),
    ("google", "https://dv.acme-v02.api.pki.goog/directory", true),
];

impl AcmeAuthority {
    /// An authority with the defaults of all keys but `directory`.
    pub fn new(name: Name, directory: DirectoryUrl) -> Self {
        AcmeAuthority {
            name,
            directory,
            email: None,
            challenge: Challenge::TlsAlpn01,
            dns: None,
            dns_wait: Duration::from_secs(30),
            ca: None,
            profile: None,
            eab: None,
            at: At::NOWHERE,
        }
    }

    /// The well-known authority of this name. One that requires an external account needs a section.
    pub fn well_known(name: &Name) -> Option<Self> {
        let (_, url, bound) = WELL_KNOWN.iter().find(|(known, ..)| *known == name.as_str())?;
        (!bound).then(|| AcmeAuthority::new(name.clone(), DirectoryUrl((*url).to_owned())))
    }

    /// The directory URL of a well-known authority.
    pub(crate) fn well_known_url(name: &str) -> Option<DirectoryUrl> {
        WELL_KNOWN
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|(_, url, _)| DirectoryUrl((*url).to_owned()))
    }

    /// Returns `true` if a well-known authority requires an external account.
    pub(crate) fn wants_account(name: &str) -> bool {
        WELL_KNOWN.iter().any(|(known, _, bound)| *known == name && *bound)
    }
}

/// A directory URL: `https` with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUrl(String);

impl Default for DirectoryUrl {
    /// The directory of Let's Encrypt.
    fn default() -> Self {
        DirectoryUrl(WELL_KNOWN[0].1.to_owned())
    }
}

impl DirectoryUrl {
    /// The URL as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The port to connect to, 443 by default.
    pub fn port(&self) -> u16 {
        let authority =
            self.0.trim_start_matches("https://").split(['/', '?', '#']).next().unwrap_or_default();
        let port = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
        port.and_then(|(_, port)| port.parse().ok()).unwrap_or(443)
    }
}

impl FromStr for DirectoryUrl {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let refused =
            |why| Err(Problem::new(format!("`{}` is no directory of an authority: {why}", shown(text))));
        let Some(rest) = text.strip_prefix("https://") else {
            return refused("ACME is spoken over https (RFC 8555 section 6.1)");
        };
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        if host.is_empty() || !host.chars().all(sound) {
            return refused("it names no host");
        }
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return refused("it has a character that a URL cannot have");
        }
        Ok(DirectoryUrl(text.to_owned()))
    }
}

impl std::fmt::Display for DirectoryUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

words! {
    /// The challenge that proves control of a name.
    pub enum Challenge {
        /// A handshake on port 443 (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
        /// A response on port 80 (RFC 8555 §8.3).
        Http01 = "http-01",
        /// A TXT record (RFC 8555 §8.4); the only one for wildcards.
        Dns01 = "dns-01",
    }
}

/// The provider that sets TXT records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsProvider {
    /// A program of the operator.
    Hook(FilePath),
    /// The name server itself (RFC 2136).
    Update(DnsUpdate),
}

/// A name server that accepts signed updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsUpdate {
    /// The address of the name server.
    pub server: SocketAddr,
    /// The zone of the records.
    pub zone: HostName,
    /// The name of the TSIG key.
    pub key_name: HostName,
    /// The file with the key in base64.
    pub key_file: FilePath,
    /// The algorithm of the key.
    pub algorithm: TsigAlgorithm,
}

impl DnsUpdate {
    /// The update before its keys are read, most of which must be written.
    pub(crate) fn blank() -> Self {
        DnsUpdate {
            server: SocketAddr::from(([0; 4], 0)),
            zone: HostName::localhost(),
            key_name: HostName::localhost(),
            key_file: FilePath::new(""),
            algorithm: TsigAlgorithm::HmacSha256,
        }
    }
}

/// Parses the address of a name server.
pub(crate) fn name_server(text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| {
        let problem = Problem::new(format!("`{}` is not an address with a port", shown(text)));
        problem.help("write an address such as \"192.0.2.53:53\": names are not looked up")
    })
}

words! {
    /// The algorithm of a TSIG key (RFC 8945).
    pub enum TsigAlgorithm {
        /// HMAC with SHA-256, `hmac-sha256`.
        HmacSha256 = "hmac-sha256",
        /// HMAC with SHA-512, `hmac-sha512`.
        HmacSha512 = "hmac-sha512",
    }
}

/// The binding to an external account (RFC 8555 §7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The identifier of the key.
    pub key_id: String,
    /// The file with the key in base64url.
    pub key_file: FilePath,
}

/// A certificate to order from an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeCertificate {
    /// The authorities in order of preference; at least one.
    pub authorities: Vec<Name>,
    /// The names; at least one, except for certificates on demand, which have none.
    pub names: Vec<HostPattern>,
    /// The kind of the key.
    pub key_type: AcmeKeyType,
    /// Set to keep the key on renewal.
    pub reuse_key: bool,
    /// The names to order one by one when a client first asks for them; `None` orders all of `names` at once.
    pub on_demand: Option<OnDemand>,
}

impl Default for AcmeCertificate {
    /// The defaults of all keys; without authorities and names, of which a certificate needs some.
    fn default() -> Self {
        AcmeCertificate {
            authorities: Vec::new(),
            names: Vec::new(),
            key_type: AcmeKeyType::P256,
            reuse_key: false,
            on_demand: None,
        }
    }
}

words! {
    /// The kind of a key.
    pub enum AcmeKeyType {
        /// ECDSA on the curve P-256.
        P256 = "p256",
        /// ECDSA on the curve P-384.
        P384 = "p384",
        /// RSA with a modulus of 2048 bits.
        Rsa2048 = "rsa2048",
        /// RSA with a modulus of 4096 bits.
        Rsa4096 = "rsa4096",
    }
}

words! {
    /// The source of certificates for hosts of routes that no `[[certificate]]` covers.
    pub enum ImpliedCertificates {
        /// The local CA, if there is no certificate at all.
        Local = "local",
        /// The authorities of `tls.acme`.
        Acme = "acme",
    }
}

/// Parses an e-mail address, strictly enough to catch mistakes.
///
/// # Errors
/// The text is not an address.
pub fn contact(text: &str) -> Result<String, Problem> {
    let sound = text.split_once('@').is_some_and(|(who, host)| !who.is_empty() && host.contains('.'));
    if sound && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, ',' | '?' | '<' | '>')) {
        return Ok(text.to_owned());
    }
    Err(Problem::new(format!("`{}` is no e-mail address", shown(text))))
}

/// The reason for which no public authority may issue for a name.
pub fn not_issuable(host: &HostPattern) -> Option<&'static str> {
    let text = host.to_string();
    let name = text.strip_prefix("*.").unwrap_or(&text);
    if !name.contains('.') {
        return Some("it has one label only");
    }
    let ends =
        |suffix: &&str| name.strip_suffix(*suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    SPECIAL.iter().any(ends).then_some("its domain is set aside for private use")
}

/// Domains that no public authority issues for: those of RFC 2606, 6761, 6762 and 8375, ICANN's `internal`,
/// and those in use by home routers and offices.
const SPECIAL: [&str; 13] = [
    "localhost",
    "local",
    "lan",
    "home.arpa",
    "internal",
    "test",
    "example",
    "invalid",
    "onion",
    "home",
    "corp",
    "intranet",
    "private",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_urls_of_https() {
        for (name, url, _) in WELL_KNOWN {
            assert_eq!(url.parse::<DirectoryUrl>().unwrap().as_str(), url, "{name}");
        }
        for text in ["", "http://a.org/", "https://", "https:///x", "https://a b/", "https://a.org/é"] {
            assert!(text.parse::<DirectoryUrl>().is_err(), "{text}");
        }
        for (text, port) in [
            ("https://[::1]:14000/dir", 14000),
            ("https://[::1]/dir", 443),
            ("https://ca.test:8443", 8443),
            ("https://ca.test/a:1", 443),
        ] {
            assert_eq!(text.parse::<DirectoryUrl>().unwrap().port(), port, "{text}");
        }
    }

    #[test]
    fn names_that_no_authority_may_issue() {
        let of = |text: &str| not_issuable(&text.parse().unwrap()).is_some();
        for text in ["localhost", "nas", "nas.lan", "*.home.arpa", "home.arpa", "a.b.local", "x.test"] {
            assert!(of(text), "{text}");
        }
        for text in ["example.org", "*.example.org", "mylan.org", "atlan.de", "local.org"] {
            assert!(!of(text), "{text}");
        }
    }

    #[test]
    fn well_known_names() {
        let of = |name: &str| AcmeAuthority::well_known(&name.parse().unwrap());
        assert!(of("letsencrypt").is_some() && of("other").is_none());
        assert!(of("zerossl").is_none() && AcmeAuthority::wants_account("zerossl"));
    }
}
