//! Client certificates that a route allows.

use offramp_testkit::ca::{Ca, Leaf};
use rustls::CipherSuite;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::*;
use crate::snapshot::Destination;

/// A resumed session of another rule never gets here; a certificate that is not allowed is refused in either case.
#[test]
fn a_certificate_that_is_not_allowed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::new(directory.path()).unwrap();
    let files = ca.issue("client", &Leaf::client("alice", &[])).unwrap();
    let alice: Box<[u8]> = CertificateDer::from_pem_file(files.cert).unwrap().as_ref().into();
    let route = Relay {
        to: Destination { backend: 0, send_proxy: None, connect_timeout: None },
        tls: None,
        allow: Some(AllowList::new(vec!["cn:bob".parse().unwrap()])),
        configured: Arc::default(),
    };
    let terms = |allow| TlsTerms {
        configs: None,
        configured: &route.configured,
        allow,
        after: AfterTls::Relay(&route),
    };
    let agreed = |resumed, client_certificate| Negotiated {
        version: Version::Tls13,
        suite: CipherSuite::TLS13_AES_128_GCM_SHA256,
        group: None,
        resumed,
        alpn: None,
        client_certificate,
        client_chain: Box::default(),
    };
    let denied = (Alert::ACCESS_DENIED, Cause::ClientCertificateNotAllowed);
    for allow in [None, route.allow.as_ref()] {
        for resumed in [true, false] {
            let refusal = |certificate| terms(allow).refusal(&agreed(resumed, certificate));
            assert_eq!(refusal(Some(alice.clone())), allow.map(|_| denied));
            assert_eq!(refusal(None), None);
        }
    }
}
