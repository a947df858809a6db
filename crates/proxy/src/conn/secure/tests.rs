//! Who is let in behind a handshake.

use std::time::Duration;

use offramp_testkit::ca::{Ca, Leaf, Validity};
use rustls::CipherSuite;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::*;

/// rustls looks at the dates in a full handshake, and only there.
#[test]
fn a_ticket_lets_no_expired_certificate_in() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::new(directory.path()).unwrap();
    let shown = |validity| {
        let leaf = Leaf { validity, ..Leaf::client("alice", &[]) };
        let files = ca.issue("client", &leaf).unwrap();
        let der = CertificateDer::from_pem_file(files.cert).unwrap();
        Some(der.as_ref().into())
    };
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
    let expired = (Alert::CERTIFICATE_EXPIRED, Cause::ClientCertificateExpired);
    let denied = (Alert::ACCESS_DENIED, Cause::ClientCertificateNotAllowed);
    let now = SystemTime::now();
    for allow in [None, route.allow.as_ref()] {
        let refusal = |agreed, now| terms(allow).refusal(&agreed, now);
        let ever = allow.map(|_| denied);
        assert_eq!(refusal(agreed(true, shown(Validity::Expired)), now), Some(expired));
        // It was looked at just now.
        assert_eq!(refusal(agreed(false, shown(Validity::Expired)), now), ever);
        for resumed in [true, false] {
            assert_eq!(refusal(agreed(resumed, shown(Validity::Valid)), now), ever);
            assert_eq!(refusal(agreed(resumed, None), now), None);
        }
    }
    let long_before = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    assert_eq!(terms(None).refusal(&agreed(true, shown(Validity::Expired)), long_before), None);
}
