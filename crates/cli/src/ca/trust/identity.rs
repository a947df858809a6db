//! The CA, and the names under which stores keep it.
//!
//! A name has the path of the certificate and its fingerprint: an entry with the same path and another fingerprint is an
//! older CA, and two CAs of one machine, such as root's and a user's, do not displace each other.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use offramp_certs::inspect;

/// A CA to trust.
#[derive(Debug)]
pub(super) struct CaIdentity {
    /// Path of the certificate.
    pub(super) path: PathBuf,
    /// The certificate in PEM; empty if the file is gone, for `untrust`.
    pub(super) pem: String,
    /// Common name in the certificate.
    subject: String,
    place: String,
    fingerprint: String,
    /// End of the validity period; `None` if the file is gone.
    not_after: Option<SystemTime>,
}

/// Beginning of the nicknames in databases of browsers.
const NICKNAME: &str = "Offramp Local CA";
/// Beginning of file names and of the aliases in keystores.
const STEM: &str = "offramp-local-ca-";

impl CaIdentity {
    /// Reads the certificate.
    ///
    /// # Errors
    /// It cannot be read, or is no CA; `may_be_gone` allows for a file that is not there.
    pub(super) fn read(path: &Path, may_be_gone: bool) -> Result<Self, String> {
        let place = hash(path.as_os_str().as_encoded_bytes());
        let shown = path.display();
        let pem = match std::fs::read_to_string(path) {
            Ok(pem) => pem,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && may_be_gone => {
                let (pem, subject, fingerprint) = (String::new(), NICKNAME.to_owned(), String::new());
                let path = path.to_owned();
                return Ok(Self { path, pem, subject, place, fingerprint, not_after: None });
            }
            Err(error) => return Err(format!("error: cannot read {shown}: {error}")),
        };
        if pem.contains("PRIVATE KEY") {
            return Err(format!("error: {shown} has a private key; give only the certificate, ca.pem"));
        }
        let chain = inspect::chain_of_file(path).map_err(|error| format!("error: {error}"))?;
        let [der] = chain.as_slice() else {
            return Err(format!("error: {shown} has {} certificates; give one CA alone", chain.len()));
        };
        let fields = inspect::read(der).map_err(|why| format!("error: {shown}: {why}"))?;
        if !fields.is_ca {
            return Err(format!("error: {shown} is the certificate of {}, which is no CA", fields.subject));
        }
        let (path, subject, fingerprint) = (path.to_owned(), fields.subject, hash(der));
        Ok(Self { path, pem, subject, place, fingerprint, not_after: Some(fields.not_after) })
    }

    /// Day on which the CA ended, if it has.
    pub(super) fn expired(&self, now: SystemTime) -> Option<String> {
        self.not_after.filter(|end| *end <= now).map(inspect::date)
    }

    /// Returns true if a text in PEM, such as a bundle, has the certificate.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let body = |text: &str| text.split_whitespace().collect::<String>();
        let wanted = self.pem.split("-----").find(|part| part.len() > 64).map(body);
        wanted.is_some_and(|wanted| body(text).contains(&wanted))
    }

    /// The subject, for people.
    pub(super) fn name(&self) -> &str {
        &self.subject
    }

    /// Set if the certificate is there.
    pub(super) fn is_there(&self) -> bool {
        !self.pem.is_empty()
    }

    /// Name of a file or alias of this certificate, without an extension.
    pub(super) fn stem(&self) -> String {
        format!("{STEM}{}-{}", self.place, self.fingerprint)
    }

    /// Returns true for the stem of another certificate from the same path.
    pub(super) fn is_older_stem(&self, stem: &str) -> bool {
        stem.strip_prefix(STEM).is_some_and(|rest| self.is_older(rest))
    }

    /// Returns true for the stem of this certificate, from whatever path.
    pub(super) fn is_own_stem(&self, stem: &str) -> bool {
        stem.strip_prefix(STEM).is_some_and(|rest| self.is_own(rest))
    }

    /// Nickname of this certificate.
    pub(super) fn nickname(&self) -> String {
        format!("{NICKNAME} {}-{} {}", self.place, self.fingerprint, self.path.display())
    }

    /// Returns true for the nickname of another certificate from the same path.
    pub(super) fn is_older_nickname(&self, nickname: &str) -> bool {
        key(nickname).is_some_and(|key| self.is_older(key))
    }

    /// Returns true for the nickname of this certificate, from whatever path.
    pub(super) fn is_own_nickname(&self, nickname: &str) -> bool {
        key(nickname).is_some_and(|key| self.is_own(key))
    }

    fn is_older(&self, key: &str) -> bool {
        key.split_once('-').is_some_and(|(place, _)| place == self.place) && !self.is_own(key)
    }

    /// Without the certificate, its fingerprint is not known: every entry of the path is then an older one.
    fn is_own(&self, key: &str) -> bool {
        self.is_there() && key.split_once('-').is_some_and(|(_, fingerprint)| fingerprint == self.fingerprint)
    }
}

/// Place and fingerprint in a nickname.
fn key(nickname: &str) -> Option<&str> {
    nickname.strip_prefix(NICKNAME)?.strip_prefix(' ')?.split(' ').next()
}

/// FNV-1a, folded to 32 bits, in hexadecimal digits: names must be the same for ever, and nobody attacks them.
fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(path: &str, fingerprint: &str) -> CaIdentity {
        CaIdentity {
            path: path.into(),
            pem: "x".to_owned(),
            subject: "x".to_owned(),
            place: hash(path.as_bytes()),
            fingerprint: fingerprint.to_owned(),
            not_after: None,
        }
    }

    #[test]
    fn names_tell_places_and_certificates_apart() {
        let (one, newer, other) =
            (identity("/a/ca.pem", "1"), identity("/a/ca.pem", "2"), identity("/b/ca.pem", "1"));
        assert!(newer.is_older_stem(&one.stem()) && newer.is_older_nickname(&one.nickname()));
        for same in [&one, &other] {
            assert!(!one.is_older_stem(&same.stem()) && !one.is_older_nickname(&same.nickname()));
        }
        // The same certificate by another path is the same entry.
        assert!(one.is_own_stem(&other.stem()) && one.is_own_nickname(&other.nickname()));
        assert!(!one.is_own_stem(&newer.stem()) && !one.is_own_nickname(&newer.nickname()));
        assert!(!one.is_older_stem("offramp-local-ca") && !one.is_older_nickname("Offramp Local CA"));
        assert_eq!(hash(b"/var/lib/offramp/ca/ca.pem").len(), 8);
        assert_ne!(hash(b"a"), hash(b"b"));
    }

    #[test]
    fn a_certificate_is_found_however_its_lines_are_divided() {
        let body = "MIIB".repeat(30);
        let pem = |body: &str| {
            format!(
                "-----BEGIN CERTIFICATE-----\n{}\n{}\n-----END CERTIFICATE-----\n",
                &body[..64],
                &body[64..]
            )
        };
        let listed = format!(
            "Alias name: x\n\n-----BEGIN CERTIFICATE-----\r\n{}\r\n{}\r\n-----END",
            &body[..76],
            &body[76..]
        );
        let with = |pem: String| CaIdentity { pem, ..identity("/a", "1") };
        assert!(with(pem(&body)).is_in(&listed));
        assert!(!with(pem(&body.replace("MIIB", "MIIC"))).is_in(&listed));
        assert!(!with(String::new()).is_in(&listed));
    }
}
