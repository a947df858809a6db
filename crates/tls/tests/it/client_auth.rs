//! Client certificates: accepted clients, and the alerts of rejected ones.

use std::sync::Arc;

use offramp_tls::{ClientVerification, HandshakeFault};
use rustls::{AlertDescription, CertificateError, CipherSuite, Error};

use crate::fixtures::{Identity, NAME, Setup, TLS12_ECDSA, TLS13, client, client_with, pki};
use crate::rig::{Refused, alert, connect, meet};

fn both_versions() -> [Vec<CipherSuite>; 2] {
    [TLS13.to_vec(), TLS12_ECDSA.to_vec()]
}

fn required() -> Setup {
    Setup::with_auth(ClientVerification::Required(Arc::clone(&pki().roots).into()))
}

fn optional() -> Setup {
    Setup::with_auth(ClientVerification::Optional(Arc::clone(&pki().roots).into()))
}

/// Connects, must be rejected, and both ends must name the same alert.
fn refused(setup: &Setup, suites: &[CipherSuite], identity: Option<&Identity>) -> (AlertDescription, Error) {
    let config = match identity {
        None => client(suites),
        Some(identity) => client_with(suites, identity),
    };
    let Refused { server, client } = *connect(setup, &Arc::new(config), NAME).unwrap_err();
    let alert = alert(&client).unwrap_or_else(|| panic!("no alert: {client}"));
    assert_eq!(server.alert.map(|sent| sent.0), Some(alert.into()), "{server:?}");
    match server.fault {
        HandshakeFault::Tls(error) => (alert, error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_of_the_ca_is_let_in() {
    for suites in both_versions() {
        for setup in [required(), optional()] {
            let met = meet(&setup, &Arc::new(client_with(&suites, &pki().client)));
            assert_eq!(met.server.client_certificate.as_deref(), Some(&*pki().client.chain[0]));
        }
    }
}

#[test]
fn a_certificate_of_another_ca_is_refused() {
    for suites in both_versions() {
        for setup in [required(), optional()] {
            let (alert, error) = refused(&setup, &suites, Some(&pki().stranger));
            assert_eq!(alert, AlertDescription::UnknownCA);
            assert_eq!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer));
        }
    }
}

#[test]
fn a_missing_certificate_is_refused_only_where_it_is_required() {
    for suites in both_versions() {
        let (alert, error) = refused(&required(), &suites, None);
        assert_eq!(alert, AlertDescription::CertificateRequired);
        assert_eq!(error, Error::NoCertificatesPresented);
        let met = meet(&optional(), &Arc::new(client(&suites)));
        assert_eq!(met.server.client_certificate, None);
    }
}

#[test]
fn a_certificate_is_not_asked_for_without_need() {
    for suites in both_versions() {
        let met = meet(&Setup::default(), &Arc::new(client_with(&suites, &pki().stranger)));
        assert_eq!(met.server.client_certificate, None);
    }
}
