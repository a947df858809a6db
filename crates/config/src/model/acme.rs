//! Certificate authorities that speak ACME (RFC 8555), and what is asked of them.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use super::words::words;
use super::{FilePath, HostName, HostPattern, Name, OnDemand};
use crate::error::{At, Problem, shown};

/// A certificate authority, and the account with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// What certificates and the log call it.
    pub name: Name,
    /// The URL of its directory.
    pub directory: DirectoryUrl,
    /// The contact for the account, if any.
    pub email: Option<String>,
    /// How control of a name is proved.
    pub challenge: Challenge,
    /// Who sets the records of [`Challenge::Dns01`]; there with it, absent without.
    pub dns: Option<DnsProvider>,
    /// How long a record has been set before the authority looks for it: up to 1 h.
    pub dns_wait: Duration,
    /// The authorities that vouch for its API, if not the system's.
    pub ca: Option<FilePath>,
    /// The certificate profile, if not the authority's default.
    pub profile: Option<String>,
    /// The binding to an account that exists elsewhere, if it wants one.
    pub eab: Option<ExternalAccount>,
    /// Where it is written; nowhere for a well-known one without a section.
    pub at: At,
}

/// How long a record of DNS has been set before the authority looks for it.
pub(crate) const DNS_WAIT: Duration = Duration::from_secs(30);

/// The names that need no directory: the URL, and whether an account must be bound to one elsewhere.
const WELL_KNOWN: [(&str, &str, bool); 4] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory", false),
    ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory", false),
    ("zerossl", "https://acme.zerossl.com/v2/DV90", true),
    ("google", "https://dv.acme-v02.api.pki.goog/directory", true),
];

impl Authority {
    /// An authority with the defaults of all keys but `directory`.
    pub fn new(name: Name, directory: DirectoryUrl) -> Self {
        Authority {
            name,
            directory,
            email: None,
            challenge: Challenge::TlsAlpn01,
            dns: None,
            dns_wait: DNS_WAIT,
            ca: None,
            profile: None,
            eab: None,
            at: At::NOWHERE,
        }
    }

    /// The authority that needs no section, by its name. One that wants an account elsewhere does.
    pub fn well_known(name: &Name) -> Option<Self> {
        let (_, url, bound) = WELL_KNOWN.iter().find(|(known, ..)| *known == name.as_str())?;
        (!bound).then(|| Authority::new(name.clone(), DirectoryUrl((*url).to_owned())))
    }

    /// The URL of a well-known authority.
    pub(crate) fn well_known_url(name: &str) -> Option<DirectoryUrl> {
        WELL_KNOWN
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|(_, url, _)| DirectoryUrl((*url).to_owned()))
    }

    /// Whether a well-known authority wants an account elsewhere.
    pub(crate) fn wants_account(name: &str) -> bool {
        WELL_KNOWN.iter().any(|(known, _, bound)| *known == name && *bound)
    }
}

/// The URL of an authority's directory: `https` and a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryUrl(String);

impl DirectoryUrl {
    /// The URL as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The port that is connected: 443 where none is written.
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
    /// How control of a name is proved.
    pub enum Challenge {
        /// By a handshake on port 443 (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
        /// By a response on port 80 (RFC 8555 section 8.3).
        Http01 = "http-01",
        /// By a TXT record (RFC 8555 section 8.4); the only one for wildcards.
        Dns01 = "dns-01",
    }
}

/// Who sets TXT records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsProvider {
    /// A program.
    Hook(FilePath),
    /// The name server itself (RFC 2136).
    Update(DnsUpdate),
}

/// A name server that takes signed updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsUpdate {
    /// Its address.
    pub server: SocketAddr,
    /// The zone that the records are in.
    pub zone: HostName,
    /// The name of the TSIG key.
    pub key_name: HostName,
    /// The file with the key, in base64.
    pub key_file: FilePath,
    /// The algorithm of the key.
    pub algorithm: TsigAlgorithm,
}

words! {
    /// The algorithm of a TSIG key (RFC 8945).
    pub enum TsigAlgorithm {
        /// HMAC with SHA-256.
        HmacSha256 = "hmac-sha256",
        /// HMAC with SHA-512.
        HmacSha512 = "hmac-sha512",
    }
}

/// The binding to an account that exists elsewhere (RFC 8555 section 7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The identifier of the key.
    pub key_id: String,
    /// The file with the key, in base64url.
    pub key_file: FilePath,
}

/// A certificate that an authority is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeCertificate {
    /// The authorities, the preferred one first; at least one.
    pub authorities: Vec<Name>,
    /// What it is for; at least one, but for one on demand, which has none.
    pub names: Vec<HostPattern>,
    /// The kind of its key.
    pub key_type: KeyType,
    /// Whether a renewal keeps the key.
    pub reuse_key: bool,
    /// Which names are ordered, one by one, when the first client asks for them; `None`: all of `names` at once.
    pub on_demand: Option<OnDemand>,
}

words! {
    /// The kind of a key.
    pub enum KeyType {
        /// ECDSA on P-256.
        P256 = "p256",
        /// ECDSA on P-384.
        P384 = "p384",
        /// RSA of 2048 bits.
        Rsa2048 = "rsa2048",
        /// RSA of 4096 bits.
        Rsa4096 = "rsa4096",
    }
}

words! {
    /// Where the certificates of routes' hosts come from that no `[[certificate]]` covers.
    pub enum ImpliedCertificates {
        /// The local CA, where there is no certificate at all.
        Local = "local",
        /// The authorities of `tls.acme`.
        Acme = "acme",
    }
}

/// Reads an e-mail address: enough to tell one from a mistake. Who has it is the authority's to find out.
///
/// # Errors
/// It is none.
pub fn contact(text: &str) -> Result<String, Problem> {
    let sound = text.split_once('@').is_some_and(|(who, host)| !who.is_empty() && host.contains('.'));
    if sound && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, ',' | '?' | '<' | '>')) {
        return Ok(text.to_owned());
    }
    Err(Problem::new(format!("`{}` is no e-mail address", shown(text))))
}

/// Why no public authority may issue for a name, if it may not.
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

/// Domains that no public authority issues for: those of RFC 2606, 6761, 6762 and 8375, ICANN's `internal`, and those that
/// home routers and offices use.
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
        let of = |name: &str| Authority::well_known(&name.parse().unwrap());
        assert!(of("letsencrypt").is_some() && of("other").is_none());
        assert!(of("zerossl").is_none() && Authority::wants_account("zerossl"));
    }
}
