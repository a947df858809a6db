//! Who is let in behind a handshake.

use offramp_testkit::ca::{Ca, Leaf};
use rustls::CipherSuite;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::*;

/// A resumed session of another rule never gets here; whoever is not allowed is refused in either case.
#[test]
fn who_is_not_allowed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::new(directory.path()).unwrap();
    let files = ca.issue("client", &Leaf::client("alice", &[])).unwrap();
    let alice: Box<[u8]> = CertificateDer::from_pem_file(files.cert).unwrap().as_ref().into();
    let route = Relay {
        backend: 0,
        tls: None,
        allow: Some(Allow::new(vec!["cn:bob".parse().unwrap()])),
        send_proxy: None,
        configured: Arc::default(),
    };
    let terms =
        |allow| Terms { configs: None, configured: &route.configured, allow, to: Ends::Relay(&route) };
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
