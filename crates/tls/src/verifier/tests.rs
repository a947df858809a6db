//! Several revocation lists under one name.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::RootCertStore;

use super::*;

/// A certificate authority. All of these have the same name.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Self {
        Self::with_key(KeyPair::generate().unwrap(), |_| ())
    }

    fn with_key(key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "one name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let root = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), root }
    }

    fn issue(&self, serial: u64) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["client.test".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
    }

    fn list(&self, number: u64, revoked: &[u64]) -> CertificateRevocationListDer<'static> {
        let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2050, 1, 1),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().der().clone()
    }
}

fn verifier(
    authorities: &[&Authority],
    lists: &[&CertificateRevocationListDer<'static>],
) -> Arc<dyn ClientCertVerifier> {
    let mut roots = RootCertStore::empty();
    authorities.iter().for_each(|authority| roots.add(authority.root.clone()).unwrap());
    let revoked = lists.iter().map(|list| (*list).clone()).collect();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    build(&Trust { revoked, ..Trust::from(Arc::new(roots)) }, true, &provider).unwrap()
}

/// Verdict on a certificate in the year 2026.
fn verdict(verifier: &Arc<dyn ClientCertVerifier>, chain: &[&CertificateDer<'static>]) -> Option<Error> {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_790_000_000));
    let [leaf, rest @ ..] = chain else { panic!("a chain has a leaf") };
    let rest: Vec<_> = rest.iter().map(|der| (*der).clone()).collect();
    verifier.verify_client_cert(leaf, &rest, now).err()
}

const REVOKED: Option<Error> = Some(Error::InvalidCertificate(CertificateError::Revoked));

#[test]
fn a_certificate_in_any_list_of_its_authority_is_rejected() {
    let authority = Authority::new();
    let (good, gone) = (authority.issue(7), authority.issue(8));
    let (old, new) = (authority.list(1, &[]), authority.list(2, &[8]));
    for lists in [&[&old, &new][..], &[&new, &old], &[&old, &old, &new, &old], &[&new]] {
        let verifier = verifier(&[&authority], lists);
        assert_eq!(verdict(&verifier, &[&good]), None);
        assert_eq!(verdict(&verifier, &[&gone]), REVOKED);
        assert_eq!(take_refused().as_deref(), Some(gone.as_ref()));
    }
}

#[test]
fn authorities_of_one_name_have_their_own_lists() {
    let (first, second) = (Authority::new(), Authority::new());
    let lists = [first.list(1, &[8]), second.list(1, &[9])];
    for order in [[0, 1], [1, 0]] {
        let authorities = order.map(|at| [&first, &second][at]);
        let verifier = verifier(&authorities, &order.map(|at| &lists[at]));
        for (authority, revoked) in [(&first, 8), (&second, 9)] {
            assert_eq!(verdict(&verifier, &[&authority.issue(7)]), None);
            assert_eq!(verdict(&verifier, &[&authority.issue(revoked)]), REVOKED);
        }
        // The list of the other key is ignored.
        assert_eq!(verdict(&verifier, &[&first.issue(9)]), None);
    }
}

#[test]
fn a_list_without_a_matching_key_rejects_all() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (good, foreign) = (authority.issue(7), [stranger.list(1, &[]), stranger.list(2, &[])]);
    for lists in [&foreign[..1], &foreign] {
        let lists: Vec<_> = lists.iter().collect();
        assert!(verdict(&verifier(&[&authority], &lists), &[&good]).is_some(), "{} lists", lists.len());
    }
    // The list of a third authority is ignored, too.
    let third = Authority::with_key(KeyPair::generate().unwrap(), |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "another name");
    });
    let others = [third.list(1, &[]), third.list(2, &[])];
    let verifier = verifier(&[&authority, &third], &[&foreign[0], &others[0], &others[1]]);
    assert!(verdict(&verifier, &[&good]).is_some());
    assert_eq!(verdict(&verifier, &[&third.issue(7)]), None);
}

/// A client may send certificates with another fault, to hide that its own is revoked.
#[test]
fn other_faults_hide_no_revocation() {
    let authority = Authority::new();
    let expired = Authority::with_key(KeyPair::generate().unwrap(), |params| {
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let strange = Authority::new();
    let (old, new) = (authority.list(1, &[]), authority.list(2, &[8]));
    let (good, gone) = (authority.issue(7), authority.issue(8));
    for lists in [[&old, &new], [&new, &old]] {
        let verifier = verifier(&[&authority], &lists);
        for more in [&expired.root, &strange.root] {
            assert!(verdict(&verifier, &[&gone, more]).is_some());
            assert!(verdict(&verifier, &[&gone, more, &authority.root]).is_some());
            assert_eq!(verdict(&verifier, &[&good, more]), None);
        }
    }
}
