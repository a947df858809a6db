//! Trust anchors: certificates that are trusted as authorities, and as themselves.
//!
//! A certificate that is configured as trusted is accepted by its bytes. webpki rejects the self-signed
//! certificates of `openssl req -x509` and most devices: they claim to be an authority's (CA:TRUE), which
//! servers may not present (RFC 5280 §4.2.1.9). OpenSSL, Go and browsers accept them. This grants nothing
//! new: the holder of a trusted authority's key could issue any certificate.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, ExtendedKeyPurpose, RootCertStore};

use crate::clock;
use crate::server_verifier::{ByRule, ChainRule, ShownChain};
use crate::x509;

/// Certificates at which verification ends.
#[derive(Clone, Debug)]
pub struct Anchors {
    /// The anchors that may issue certificates.
    pub store: Arc<RootCertStore>,
    /// The certificates that a peer may present itself.
    pub exact: Exact,
}

impl Anchors {
    /// The union of both sets of anchors.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut store = RootCertStore::clone(&self.store);
        store.roots.extend_from_slice(&other.store.roots);
        let exact = self.exact.0.iter().chain(other.exact.0.iter()).cloned().collect();
        Self { store: Arc::new(store), exact: Exact(exact) }
    }
}

impl From<RootCertStore> for Anchors {
    /// Authorities that no peer presents as its own certificate, such as those of the system.
    fn from(store: RootCertStore) -> Self {
        Self { store: Arc::new(store), exact: Exact::default() }
    }
}

impl PartialEq for Anchors {
    fn eq(&self, other: &Self) -> bool {
        self.store.roots == other.store.roots && self.exact == other.exact
    }
}

/// Certificates that a peer may present itself without an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exact(Arc<[CertificateDer<'static>]>);

/// The presenter of a certificate.
#[derive(Clone, Copy, Debug)]
pub enum ShownBy<'a> {
    /// A server, which must have this name.
    Server(&'a ServerName<'a>),
    /// A client that authenticates itself.
    Client,
}

impl Exact {
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self(certificates.into())
    }

    /// The certificates that are accepted by their bytes.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0
    }

    /// Revises webpki's `verdict` on `leaf`: a certificate of this set is accepted without an issuer. Its
    /// dates, its extended key usage and the server's name are checked all the same, except that the name of
    /// a certificate without subject alternative names is not: there is nothing to compare, and its bytes
    /// match.
    ///
    /// # Errors
    /// Those of webpki.
    pub fn overrule<T>(
        &self,
        verdict: Result<T, Error>,
        accepted: T,
        leaf: &CertificateDer<'_>,
        shown: ShownBy<'_>,
        now: UnixTime,
    ) -> Result<T, Error> {
        match verdict {
            // Revoked by the list of another trusted issuer.
            Ok(_) | Err(Error::InvalidCertificate(CertificateError::Revoked)) => verdict,
            Err(_) if self.0.iter().any(|one| one == leaf) => check(leaf, shown, now).map(|()| accepted),
            // Self-issued but not trusted: report that rather than webpki's CA error.
            Err(error) if is_ca_as_leaf(&error) && is_self_issued(leaf) => {
                Err(CertificateError::UnknownIssuer.into())
            }
            Err(error) => Err(error),
        }
    }
}

fn is_ca_as_leaf(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

fn is_self_issued(der: &[u8]) -> bool {
    x509::parse(der).is_ok_and(|one| one.subject().as_raw() == one.issuer().as_raw())
}

fn check(leaf: &CertificateDer<'_>, shown: ShownBy<'_>, now: UnixTime) -> Result<(), Error> {
    let certificate = x509::parse(leaf).map_err(|_| CertificateError::BadEncoding)?;
    let seconds =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let instant = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let validity = certificate.validity();
    let [begin, end] = [validity.not_before, validity.not_after].map(|time| seconds(clock::from_asn1(time)));
    if now.as_secs() < begin {
        return Err(CertificateError::NotValidYetContext { time: now, not_before: instant(begin) }.into());
    }
    if now.as_secs() > end {
        return Err(CertificateError::ExpiredContext { time: now, not_after: instant(end) }.into());
    }
    let purpose = match shown {
        ShownBy::Server(_) => ExtendedKeyPurpose::ServerAuth,
        ShownBy::Client => ExtendedKeyPurpose::ClientAuth,
    };
    if let Ok(Some(usage)) = certificate.extended_key_usage() {
        let serves = match shown {
            ShownBy::Server(_) => usage.value.server_auth,
            ShownBy::Client => usage.value.client_auth,
        };
        if !serves && !usage.value.any {
            let error = CertificateError::InvalidPurposeContext { required: purpose, presented: Vec::new() };
            return Err(error.into());
        }
    }
    let is_named = certificate.subject_alternative_name().is_ok_and(|names| names.is_some());
    match shown {
        ShownBy::Server(name) if is_named => verify_server_name(&ParsedCertificate::try_from(leaf)?, name),
        _ => Ok(()),
    }
}

/// A verifier of servers against these anchors, for clients of plain rustls.
///
/// # Errors
/// There are no anchors.
pub fn server_verifier(
    anchors: &Anchors,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let builder =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&anchors.store), Arc::clone(provider));
    let webpki = builder.build().map_err(|error| error.to_string())?;
    Ok(Arc::new(ByRule::new(Anchored { webpki, exact: anchors.exact.clone() }, provider)))
}

#[derive(Debug)]
struct Anchored {
    webpki: Arc<WebPkiServerVerifier>,
    exact: Exact,
}

impl ChainRule for Anchored {
    fn judge(&self, chain: ShownChain<'_>) -> Result<(), Error> {
        let ShownChain { leaf, rest, name, ocsp, now } = chain;
        let verdict = self.webpki.verify_server_cert(leaf, rest, name, ocsp, now).map(drop);
        self.exact.overrule(verdict, (), leaf, ShownBy::Server(name), now)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
    };
    use rustls::crypto::aws_lc_rs;

    use super::*;

    fn made(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn anchors(certificates: &[&CertificateDer<'static>]) -> Anchors {
        let mut store = RootCertStore::empty();
        certificates.iter().for_each(|one| store.add((*one).clone()).unwrap());
        let exact = Exact::new(certificates.iter().map(|one| (*one).clone()).collect());
        Anchors { exact, ..Anchors::from(store) }
    }

    fn verdict(anchors: &Anchors, leaf: &CertificateDer<'static>, name: &str) -> Result<(), Error> {
        let verifier = server_verifier(anchors, &Arc::new(aws_lc_rs::default_provider())).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_790_000_000));
        verifier.verify_server_cert(leaf, &[], &name, &[], now).map(drop)
    }

    /// Certificates of rcgen have equal issuer names, so webpki proceeds to the signature.
    fn is_untrusted(error: &Error) -> bool {
        use CertificateError as C;
        matches!(error, Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature))
    }

    #[test]
    fn a_certificate_that_is_named_is_trusted_and_no_other_is() {
        let authority = made(&["nas.test"], |_| {});
        let leaf = made(&["nas.test"], |params| params.is_ca = IsCa::ExplicitNoCa);
        let unnamed = made(&[], |_| {});
        let servers = made(&["nas.test"], |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        for good in [&authority, &leaf, &unnamed, &servers] {
            assert_eq!(verdict(&anchors(&[good]), good, "nas.test"), Ok(()));
            let other = made(&["other.test"], |_| {});
            assert_eq!(verdict(&anchors(&[&other, good]), good, "nas.test"), Ok(()));
            // The same names, but another certificate.
            let twin = made(&["nas.test"], |params| {
                params.distinguished_name.push(rcgen::DnType::CommonName, "another");
            });
            for others in [&other, &twin] {
                let error = verdict(&anchors(&[others]), good, "nas.test").unwrap_err();
                assert!(is_untrusted(&error), "{error}");
            }
        }
        // A leaf of another issuer.
        let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
        let params = CertificateParams::new(vec!["nas.test".to_owned()]).unwrap();
        let issued = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
        assert_eq!(verdict(&anchors(&[&issued]), &issued, "nas.test"), Ok(()));
    }

    #[test]
    fn dates_names_and_purpose_count_all_the_same() {
        use CertificateError as C;
        type Expected = fn(&CertificateError) -> bool;
        let rows: [(CertificateDer<'static>, &str, Expected); 4] = [
            (made(&["nas.test"], |_| {}), "other.test", |why| {
                matches!(why, C::NotValidForNameContext { .. })
            }),
            (made(&["nas.test"], |params| params.not_after = date_time_ymd(2020, 1, 1)), "nas.test", |why| {
                matches!(why, C::ExpiredContext { .. })
            }),
            (
                made(&["nas.test"], |params| params.not_before = date_time_ymd(2200, 1, 1)),
                "nas.test",
                |why| matches!(why, C::NotValidYetContext { .. }),
            ),
            (
                made(&["nas.test"], |params| {
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                }),
                "nas.test",
                |why| matches!(why, C::InvalidPurposeContext { .. }),
            ),
        ];
        for (certificate, name, expected) in rows {
            let error = verdict(&anchors(&[&certificate]), &certificate, name).unwrap_err();
            let Error::InvalidCertificate(why) = &error else { panic!("{error}") };
            assert!(expected(why), "{why:?}");
        }
    }
}
