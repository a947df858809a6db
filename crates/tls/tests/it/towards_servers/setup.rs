//! A rustls server, and what a connection to it was like.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use offramp_net::Socket;
use offramp_record::RecordSize;
use offramp_tls::HandshakeError;
use offramp_tls::client::{Alpn, Connector, ConnectorSettings, Secured, ServerVerification};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::{CipherSuite, Error, HandshakeKind, RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::provider;
use crate::rig::{CHOICE, run};
pub(super) const HOST: &str = "db.internal";

/// An authority, and the certificates that it issues.
pub(super) struct Authority {
    pub(super) issuer: Issuer<'static, KeyPair>,
    pub(super) roots: Arc<RootCertStore>,
}

impl Authority {
    pub(super) fn new() -> Self {
        Self::named("trusted")
    }

    pub(super) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        Self { issuer: Issuer::new(params, key), roots: Arc::new(roots) }
    }

    pub(super) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([HOST.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { chain: vec![certificate.der().clone()], spki: spki(&key), key: key.serialize_der() }
    }
}

pub(super) struct Leaf {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: Vec<u8>,
    pub(super) spki: [u8; 32],
}

pub(super) fn spki(key: &KeyPair) -> [u8; 32] {
    use rcgen::PublicKeyData as _;
    digest(&SHA256, &key.subject_public_key_info()).as_ref().try_into().unwrap()
}

/// A server with this certificate.
pub(super) fn server(
    leaf: &Leaf,
    suites: &[CipherSuite],
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(Arc::new(provider(suites, &[])))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let key = PrivateKeyDer::try_from(leaf.key.clone()).unwrap();
    builder.with_single_cert(leaf.chain.clone(), key).unwrap()
}

pub(super) fn settings(verify: ServerVerification) -> ConnectorSettings {
    ConnectorSettings {
        verify,
        name: ServerName::try_from(HOST).unwrap(),
        sni: None,
        certificate: None,
        preamble: None,
        alpn: Vec::new(),
        post_quantum: true,
        choice: CHOICE,
        record_size: RecordSize::Fixed(16_384),
    }
}

pub(super) fn trusting(authority: &Authority) -> ConnectorSettings {
    settings(ServerVerification::Roots(Arc::clone(&authority.roots).into()))
}

/// The blocking server after its handshake.
pub(super) struct Served {
    pub(super) tls: ServerConnection,
    pub(super) socket: UnixStream,
}

impl Served {
    pub(super) fn stream(&mut self) -> rustls::Stream<'_, ServerConnection, UnixStream> {
        rustls::Stream::new(&mut self.tls, &mut self.socket)
    }

    pub(super) fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.stream().flush();
    }
}

/// Connects; then each end's part.
pub(super) fn over<S, C: Send>(
    connector: &Connector,
    config: ServerConfig,
    alpn: Alpn,
    ours: impl AsyncFnOnce(Socket, Result<Secured, HandshakeError>) -> S,
    theirs: impl FnOnce(Served, std::io::Result<()>) -> C + Send,
) -> (S, C) {
    let config = Arc::new(config);
    run(
        async |socket| {
            let secured = connector.handshake(&socket, alpn).await;
            ours(socket, secured).await
        },
        |mut socket| {
            let mut tls = ServerConnection::new(config).unwrap();
            let mut done = Ok(());
            while tls.is_handshaking() && done.is_ok() {
                done = tls.complete_io(&mut socket).map(drop);
            }
            theirs(Served { tls, socket }, done)
        },
    )
}

/// Result of a connection, as seen by each end.
pub(super) struct Met {
    pub(super) alpn: Option<Box<[u8]>>,
    pub(super) resumed: bool,
    pub(super) kind: HandshakeKind,
    pub(super) name: Option<String>,
    pub(super) certificate: Option<Vec<u8>>,
}

/// A connection that sends `hi` and receives `ho`, and ends in order.
pub(super) fn greet(connector: &Connector, config: ServerConfig, alpn: Alpn) -> Met {
    let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| {
        let secured = secured.unwrap();
        let agreed = (secured.alpn.clone(), secured.resumed);
        let mut stream = secured.into_stream(socket);
        stream.write_all(b"hi").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"ho");
        agreed
    };
    let ((alpn, resumed), (kind, name, certificate)) =
        over(connector, config, alpn, ours, |mut server, done| {
            done.unwrap();
            let mut got = Vec::new();
            server.stream().read_to_end(&mut got).unwrap();
            assert_eq!(got, b"hi");
            server.stream().write_all(b"ho").unwrap();
            server.close();
            let tls = &server.tls;
            let certificate = tls.peer_certificates().map(|chain| chain[0].to_vec());
            (tls.handshake_kind().unwrap(), tls.server_name().map(str::to_owned), certificate)
        });
    Met { alpn, resumed, kind, name, certificate }
}

/// A connection that must fail: our error, and the server's.
pub(super) fn refused(connector: &Connector, config: ServerConfig) -> (HandshakeError, Option<Error>) {
    let (ours, theirs) = over(
        connector,
        config,
        Alpn::Own,
        async |_socket, secured| secured.err().expect("it was believed"),
        |mut server, done| {
            // In TLS 1.3 the server is done before the client checks its certificate.
            done.and_then(|()| server.stream().read(&mut [0]).map(drop)).err()
        },
    );
    let theirs = theirs.and_then(|error| error.into_inner()?.downcast::<Error>().ok());
    (ours, theirs.map(|error| *error))
}
