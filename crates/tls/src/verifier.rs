//! The verification of client certificates: rustls does it against authorities and revocation lists; here is noted
//! which certificate it refused, for the event of the refusal.
//!
//! Of several revocation lists with the same issuer rustls looks at the first one only. So lists are put into groups,
//! each with one list of an issuer at the most, and a certificate is verified by every group: whoever is named by any
//! list is refused. With one list for each authority, which is usual, there is one group. It is the same with the
//! certificates of servers.

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

use crate::setup::SetupError;
use crate::tickets::Expiry;

/// The verifier for clients that may, or must, show a certificate.
///
/// A certificate whose issuer has no revocation list is let in: lists are often those of one issuer of several. A list
/// that should have been replaced is used on: whom it names is refused.
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

/// The verifiers against these authorities, with the revocation lists.
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

/// Who verifies the certificates of clients.
type Groups = Vec<Group<dyn ClientCertVerifier>>;

/// A revocation list, and the name of its issuer.
type List = (Vec<u8>, CertificateRevocationListDer<'static>);

/// The lists in groups, of which none has two lists of one issuer. There is one group at least.
fn grouped(lists: &[CertificateRevocationListDer<'static>]) -> Vec<Vec<List>> {
    let mut groups: Vec<Vec<List>> = vec![Vec::new()];
    for (at, list) in lists.iter().enumerate() {
        if lists[..at].contains(list) {
            continue;
        }
        // One that cannot be parsed is refused by rustls.
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
    /// The certificate that was refused last on this thread. rustls has no other place for it: the error of a
    /// handshake does not carry the certificate.
    static REFUSED: RefCell<Option<Box<[u8]>>> = const { RefCell::new(None) };
}

/// The certificate that was refused since the last call, on this thread. To be asked for right after rustls has
/// refused something: another connection's turn would answer for another certificate.
pub(crate) fn take_refused() -> Option<Box<[u8]>> {
    REFUSED.take()
}

/// The verifier with the lists of a group.
#[derive(Debug)]
pub(crate) struct Group<V: ?Sized> {
    verifier: Arc<V>,
    /// The issuers of the lists.
    issuers: Vec<Vec<u8>>,
}

/// A verifier for each group of these lists.
pub(crate) fn groups<V: ?Sized>(
    revoked: &[CertificateRevocationListDer<'static>],
    build: impl Fn(Vec<CertificateRevocationListDer<'static>>) -> Result<Arc<V>, SetupError>,
) -> Result<Vec<Group<V>>, SetupError> {
    let groups = grouped(revoked).into_iter().map(|lists| {
        let (issuers, lists): (Vec<_>, Vec<_>) = lists.into_iter().unzip();
        Ok(Group { verifier: build(lists)?, issuers })
    });
    groups.collect()
}

/// The verdict of all groups, each of which has its own by `verify`.
pub(crate) fn verdict<V: ?Sized, T>(
    groups: &[Group<V>],
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
    // Authorities that have changed their key have lists under one name by both. A list by another key says nothing
    // of this certificate, if there is one by the right key.
    let told = || std::iter::once(leaf).chain(chain).filter_map(|der| certificate_issuer(der));
    let vouched = |issuer: &Vec<u8>| passed.iter().any(|group| group.issuers.contains(issuer));
    for (group, error) in foreign {
        if passed.is_empty() || told().any(|issuer| group.issuers.contains(&issuer) && !vouched(&issuer)) {
            return Err(error);
        }
    }
    // There always is a group, and each that has not passed was foreign.
    verdict.ok_or_else(|| Error::General("nobody has verified the certificate".to_owned()))
}

/// Notes what the verifiers in it refuse. Those of a group differ in their lists alone.
#[derive(Debug)]
struct Noting {
    /// Those against all authorities.
    groups: Groups,
    /// The certificates that are trusted themselves, where there are no trust domains.
    exact: Exact,
    /// Those of each SPIFFE trust domain. Where there are any, `groups` verifies no certificate: an authority vouches for
    /// the identities of its own domain, and for no others.
    domains: Vec<(String, Groups)>,
}

impl Noting {
    fn first(&self) -> &dyn ClientCertVerifier {
        // There always is one.
        &*self.groups[0].verifier
    }

    /// Who verifies this certificate.
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

/// Notes this certificate, if the verdict is that it is refused.
pub(crate) fn noting<T>(verdict: Result<T, Error>, certificate: &CertificateDer<'_>) -> Result<T, Error> {
    verdict.inspect_err(|_| REFUSED.set(Some(certificate.as_ref().into())))
}

/// Whether a signature is by another key than that of the issuer. webpki reports this only if no list has named the
/// certificate: of all that is wrong on the ways to an authority it reports a revocation first.
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
