//! Verification of client certificates: rustls checks them against authorities and revocation lists; this
//! module records rejected certificates for the log.
//!
//! Of several revocation lists of one issuer rustls reads only the first. So lists are sorted into groups
//! with at most one list per issuer, and a certificate is verified by every group: one that is named by any
//! list is rejected. With one list per authority, as usual, there is one group. Certificates of servers are
//! handled in the same way.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::Arc;

use offramp_certs::anchors::{Exact, ShownBy};
use offramp_certs::client_auth::{Trust, certificate_issuer, list_issuer, trust_domain};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertRevocationListError, CertificateError, DigitallySignedStruct, DistinguishedName, Error,
    RootCertStore, SignatureScheme,
};

use crate::error::SetupError;
use crate::tickets::Expiry;

/// Builds the verifier for clients that may, or must, present a certificate.
///
/// A certificate of an issuer without a revocation list is accepted: lists often cover one of several issuers.
/// An outdated list remains in use.
pub(crate) fn build(
    trust: &Trust,
    required: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, SetupError> {
    let all = against(&trust.roots, trust, required, provider)?;
    let domains = trust
        .domains
        .iter()
        .map(|domain| Ok((domain.name.clone(), against(&domain.roots, trust, required, provider)?)));
    let domains: Result<Vec<_>, SetupError> = domains.collect();
    Ok(Arc::new(Noting { groups: all, exact: trust.exact.clone(), domains: domains? }))
}

/// Verifiers against these authorities, with the revocation lists.
fn against(
    roots: &Arc<RootCertStore>,
    trust: &Trust,
    required: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Groups, SetupError> {
    groups(&trust.revoked, |lists| {
        let roots = Arc::clone(roots);
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
        if !lists.is_empty() {
            builder = builder.with_crls(lists).allow_unknown_revocation_status();
        }
        if !required {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map_err(|error| SetupError(format!("client certificates: {error}")))
    })
}

/// One verifier per group of revocation lists.
type Groups = Vec<CrlGroup<dyn ClientCertVerifier>>;

/// A revocation list, and the name of its issuer.
type List = (Vec<u8>, CertificateRevocationListDer<'static>);

/// Sorts the lists into groups without two lists of one issuer; returns at least one group.
fn grouped(lists: &[CertificateRevocationListDer<'static>]) -> Vec<Vec<List>> {
    let mut groups: Vec<Vec<List>> = vec![Vec::new()];
    for (at, list) in lists.iter().enumerate() {
        if lists[..at].contains(list) {
            continue;
        }
        // rustls rejects lists that cannot be parsed.
        let issuer = list_issuer(list).unwrap_or_default();
        let free = groups.iter_mut().find(|group| group.iter().all(|(taken, _)| *taken != issuer));
        match free {
            Some(group) => group.push((issuer, list.clone())),
            None => groups.push(vec![(issuer, list.clone())]),
        }
    }
    groups
}

thread_local! {
    /// The certificate rejected last on this thread. The errors of rustls do not carry it.
    static REFUSED: RefCell<Option<Box<[u8]>>> = const { RefCell::new(None) };
}

/// Takes the certificate rejected on this thread since the last call. Call it right after an error of rustls:
/// another handshake on the thread would replace it.
pub(crate) fn take_refused() -> Option<Box<[u8]>> {
    REFUSED.take()
}

/// A verifier with the lists of a group.
#[derive(Debug)]
pub(crate) struct CrlGroup<V: ?Sized> {
    verifier: Arc<V>,
    /// Issuers of the lists.
    issuers: Vec<Vec<u8>>,
}

/// Builds a verifier for each group of these lists.
pub(crate) fn groups<V: ?Sized>(
    revoked: &[CertificateRevocationListDer<'static>],
    build: impl Fn(Vec<CertificateRevocationListDer<'static>>) -> Result<Arc<V>, SetupError>,
) -> Result<Vec<CrlGroup<V>>, SetupError> {
    let groups = grouped(revoked).into_iter().map(|lists| {
        let (issuers, lists): (Vec<_>, Vec<_>) = lists.into_iter().unzip();
        Ok(CrlGroup { verifier: build(lists)?, issuers })
    });
    groups.collect()
}

/// Combined verdict of all groups, by `verify`.
pub(crate) fn verdict<V: ?Sized, T>(
    groups: &[CrlGroup<V>],
    leaf: &CertificateDer<'_>,
    chain: &[CertificateDer<'_>],
    verify: impl Fn(&V) -> Result<T, Error>,
) -> Result<T, Error> {
    let (mut passed, mut verdict, mut foreign) = (Vec::new(), None, Vec::new());
    for group in groups {
        match verify(&group.verifier) {
            Ok(good) => {
                passed.push(group);
                verdict = Some(good);
            }
            Err(error) if groups.len() > 1 && is_of_another_key(&error) => foreign.push((group, error)),
            Err(error) => return Err(error),
        }
    }
    // Authorities that have changed their key have lists under one name by both keys. A list by another key
    // says nothing about this certificate, if there is one by the right key.
    let issuers = || std::iter::once(leaf).chain(chain).filter_map(|der| certificate_issuer(der));
    let vouched = |issuer: &Vec<u8>| passed.iter().any(|group| group.issuers.contains(issuer));
    for (group, error) in foreign {
        if passed.is_empty() || issuers().any(|issuer| group.issuers.contains(&issuer) && !vouched(&issuer)) {
            return Err(error);
        }
    }
    // There is at least one group, and each that has not passed was foreign.
    verdict.ok_or_else(|| Error::General("nobody has verified the certificate".to_owned()))
}

/// Records the certificates that its verifiers reject. Verifiers of a group differ in their lists alone.
#[derive(Debug)]
struct Noting {
    /// Verifiers against all authorities.
    groups: Groups,
    /// Directly trusted certificates, without trust domains.
    exact: Exact,
    /// Verifiers of each SPIFFE trust domain. If there are any, `groups` verifies no certificate: an
    /// authority vouches for the identities of its own domain only.
    domains: Vec<(String, Groups)>,
}

impl Noting {
    fn first(&self) -> &dyn ClientCertVerifier {
        // There is always a group.
        &*self.groups[0].verifier
    }

    /// Verifiers responsible for this certificate.
    fn groups_for(&self, certificate: &CertificateDer<'_>) -> Result<&Groups, Error> {
        if self.domains.is_empty() {
            return Ok(&self.groups);
        }
        let Some(domain) = trust_domain(certificate) else {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        };
        let found = self.domains.iter().find(|(name, _)| *name == domain);
        found.map(|(_, groups)| groups).ok_or_else(|| CertificateError::UnknownIssuer.into())
    }
}

/// Records the certificate if the verdict is an error.
pub(crate) fn noting<T>(verdict: Result<T, Error>, certificate: &CertificateDer<'_>) -> Result<T, Error> {
    verdict.inspect_err(|_| REFUSED.set(Some(certificate.as_ref().into())))
}

/// Returns true for a list signed by another key than the issuer's. webpki reports this only if no list names
/// the certificate: among all errors on the paths to an authority, a revocation comes first.
fn is_of_another_key(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::BadSignature
                | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
        ) | Error::InvalidCertRevocationList(
            CertRevocationListError::BadSignature
                | CertRevocationListError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
        )
    )
}

impl ClientCertVerifier for Noting {
    fn offer_client_auth(&self) -> bool {
        self.first().offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.first().client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.first().root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let said = self.groups_for(end_entity).and_then(|groups| {
            verdict(groups, end_entity, intermediates, |verifier| {
                verifier.verify_client_cert(end_entity, intermediates, now)
            })
        });
        let said = if self.domains.is_empty() {
            let accepted = ClientCertVerified::assertion();
            self.exact.overrule(said, accepted, end_entity, ShownBy::Client, now)
        } else {
            said
        };
        if said.is_ok() {
            Expiry::of_chain(end_entity, intermediates, now).note();
        }
        noting(said, end_entity)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.first().supported_verify_schemes()
    }
}
