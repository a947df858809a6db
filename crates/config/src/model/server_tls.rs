//! TLS to servers.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{AlpnId, FilePath, HostName, PreambleProtocol};
use crate::error::{At, Problem, shown};

/// The TLS settings for the servers of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// The verification of their certificates.
    pub verify: Verify,
    /// The files with revocation lists of their authorities; if empty, revocation is not checked.
    pub crl: Vec<FilePath>,
    /// The name that their certificates must have; `None` for the host of each server.
    pub name: Option<TlsName>,
    /// The SNI name to send; `None` for the name that is verified.
    pub sni: Option<HostName>,
    /// The certificate for servers that request one.
    pub certificate: Option<ClientCertificate>,
    /// The protocol that negotiates TLS; `None` if connections start with it.
    pub preamble: Option<PreambleProtocol>,
    /// The ALPN offer to servers of connections; empty for none, or that of `preamble`.
    pub alpn: Vec<AlpnId>,
    /// The place in the configuration.
    pub at: At,
}

/// The verification of servers' certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Against the authorities of the system.
    #[default]
    System,
    /// Against the authorities of a PEM file.
    File(FilePath),
    /// By hashes of public keys, of which one must match; at least one.
    Pins(Vec<Pin>),
    /// None: any host on the path can impersonate the server.
    Nothing,
}

/// The certificate that servers get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The PEM file with the chain.
    pub cert: FilePath,
    /// The PEM file with the key; `None` if it is in the file of the chain.
    pub key: Option<FilePath>,
}

/// The name of a server in its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsName {
    /// A DNS host name.
    Host(HostName),
    /// An IP address of the certificate.
    Ip(std::net::IpAddr),
}

impl FromStr for TlsName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text.parse() {
            Ok(address) => Ok(Self::Ip(address)),
            Err(_) => text.parse().map(Self::Host),
        }
    }
}

impl fmt::Display for TlsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => name.fmt(f),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// The SHA-256 of a public key (SubjectPublicKeyInfo), written as `sha256/` and base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin(pub [u8; 32]);

impl FromStr for Pin {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        // curl writes two slashes.
        let encoded = text
            .strip_prefix("sha256/")
            .map(|rest| rest.strip_prefix('/').filter(|rest| rest.len() == 44).unwrap_or(rest));
        encoded.and_then(decode).map(Self).ok_or_else(|| {
            let problem = Problem::new(format!("`{}` is not the hash of a public key", shown(text)));
            problem.help(
                "write \"sha256/\" and 44 characters of base64: `openssl x509 -pubkey -noout -in cert.pem | \
                 openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64`",
            )
        })
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256/{}", BASE64_STANDARD.encode(self.0))
    }
}

/// Decodes 32 bytes of base64 with padding.
fn decode(text: &str) -> Option<[u8; 32]> {
    BASE64_STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_read_back() {
        // The SHA-256 of nothing.
        let text = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        let pin: Pin = text.parse().unwrap();
        assert_eq!((pin.0[0], pin.0[31]), (0xe3, 0x55));
        assert_eq!(pin.to_string(), text);
        assert_eq!(text.replacen('/', "//", 1).parse::<Pin>().unwrap(), pin);
        for byte in 0..=255 {
            let pin = Pin([byte; 32]);
            assert_eq!(pin.to_string().parse::<Pin>().unwrap(), pin);
        }
        for text in [
            "",
            "sha256/",
            "sha1/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
            "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=",
            "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
            "sha256/47DEQpj8HBSa+_TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        ] {
            assert!(text.parse::<Pin>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_hosts_or_addresses() {
        for text in ["gitea.internal", "10.0.0.7", "::1"] {
            assert_eq!(text.parse::<TlsName>().unwrap().to_string(), text);
        }
        assert!("a b".parse::<TlsName>().is_err());
    }
}
