//! Offramp as the client of a real rustls server: every suite, key updates, resumption, and each kind of certificate
//! that must not be believed.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use offramp_net::Socket;
use offramp_record::{Alert, RecordSize};
use offramp_tls::client::{Alpn, Connector, Preamble, PreambleFault, Secured, Settings, Verify};
use offramp_tls::{HandshakeError, HandshakeFault, Stream};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::crypto::aws_lc_rs as provider_of;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, CipherSuite, Error, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::{TLS12_ECDSA, TLS13, pki, provider};
use crate::rig::{CHOICE, run};

const HOST: &str = "db.internal";

/// An authority, and what it issues.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    fn new() -> Self {
        Self::named("trusted")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        Self { issuer: Issuer::new(params, key), roots: Arc::new(roots) }
    }

    fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([HOST.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { chain: vec![certificate.der().clone()], spki: spki(&key), key: key.serialize_der() }
    }
}

struct Leaf {
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
    spki: [u8; 32],
}

fn spki(key: &KeyPair) -> [u8; 32] {
    use rcgen::PublicKeyData as _;
    digest(&SHA256, &key.subject_public_key_info()).as_ref().try_into().unwrap()
}

/// A server with this certificate.
fn server(leaf: &Leaf, suites: &[CipherSuite], clients: Option<Arc<dyn ClientCertVerifier>>) -> ServerConfig {
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

fn settings(verify: Verify) -> Settings {
    Settings {
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

fn trusting(authority: &Authority) -> Settings {
    settings(Verify::Roots(Arc::clone(&authority.roots).into()))
}

/// The blocking server after its handshake.
struct Served {
    tls: ServerConnection,
    socket: UnixStream,
}

impl Served {
    fn stream(&mut self) -> rustls::Stream<'_, ServerConnection, UnixStream> {
        rustls::Stream::new(&mut self.tls, &mut self.socket)
    }

    fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.stream().flush();
    }
}

/// Connects; then each end's part.
fn over<S, C: Send>(
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

/// What a connection came to, as each end saw it.
struct Met {
    alpn: Option<Box<[u8]>>,
    resumed: bool,
    kind: HandshakeKind,
    name: Option<String>,
    certificate: Option<Vec<u8>>,
}

/// A connection that says `hi` and hears `ho`, and ends in order.
fn greet(connector: &Connector, config: ServerConfig, alpn: Alpn) -> Met {
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

/// A connection that must not come about: our error, and the server's.
fn refused(connector: &Connector, config: ServerConfig) -> (HandshakeError, Option<Error>) {
    let (ours, theirs) = over(
        connector,
        config,
        Alpn::Own,
        async |_socket, secured| secured.err().expect("it was believed"),
        |mut server, done| {
            // In TLS 1.3 the server is done before the client looks at its certificate.
            done.and_then(|()| server.stream().read(&mut [0]).map(drop)).err()
        },
    );
    let theirs = theirs.and_then(|error| error.into_inner()?.downcast::<Error>().ok());
    (ours, theirs.map(|error| *error))
}

const SUITES: [CipherSuite; 6] =
    [TLS13[0], TLS13[1], TLS13[2], TLS12_ECDSA[0], TLS12_ECDSA[1], TLS12_ECDSA[2]];

#[test]
fn every_suite_moves_bytes_both_ways() {
    let (authority, data) = (Authority::new(), pattern(2_000_000));
    let leaf = authority.issue(|_| ());
    for suite in SUITES {
        let connector = Connector::new(trusting(&authority)).unwrap();
        let data = &data;
        let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| {
            let stream = secured.unwrap().into_stream(socket);
            let (mut reader, mut writer) = tokio::io::split(stream);
            let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
            copied
        };
        let (copied, ()) =
            over(&connector, server(&leaf, &[suite], None), Alpn::Own, ours, |mut server, done| {
                done.unwrap();
                assert_eq!(server.tls.negotiated_cipher_suite().unwrap().suite(), suite);
                let mut back = vec![0; 60_000];
                for part in data.chunks(60_000) {
                    if suite == TLS13[0] || suite == TLS13[2] {
                        // Ours answer it, so that both directions change keys each time.
                        server.tls.refresh_traffic_keys().unwrap();
                    }
                    server.stream().write_all(part).unwrap();
                    server.stream().read_exact(&mut back[..part.len()]).unwrap();
                    assert!(back[..part.len()] == *part);
                }
                server.close();
                assert_eq!(server.stream().read(&mut back).unwrap(), 0);
            });
        assert_eq!(copied, data.len() as u64);
    }
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// However much was read before, and so wherever the turn of the stream is: what a server says unasked is not silence.
#[test]
fn what_a_server_says_unasked_is_not_silence() {
    const RECORD: usize = 16_384;
    let (authority, data) = (Authority::new(), pattern(RECORD));
    let leaf = authority.issue(|_| ());
    let connector = Connector::new(trusting(&authority)).unwrap();
    for records in 26..=34 {
        let (said, data) = (AtomicBool::new(false), &data);
        let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| {
            let mut stream = secured.unwrap().into_stream(socket);
            let mut left = records * RECORD;
            while left > 0 {
                left -= poll_fn(|cx| stream.poll_parts(cx, left, |_| ())).await.unwrap();
            }
            while !said.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            // The event loop learns of it.
            tokio::task::yield_now().await;
            stream.is_quiet()
        };
        let theirs = |mut server: Served, done: std::io::Result<()>| {
            done.unwrap();
            for _ in 0..records {
                server.stream().write_all(data).unwrap();
            }
            server.stream().write_all(b"HTTP/1.1 408 Request Timeout").unwrap();
            server.close();
            said.store(true, Ordering::SeqCst);
        };
        let config = server(&leaf, &[TLS13[0]], None);
        let (quiet, ()) = over(&connector, config, Alpn::Own, ours, theirs);
        assert!(!quiet, "behind {records} records");
    }
}

/// The server's bytes come one by one: records, tickets and key updates in all fragments that a socket can make.
#[test]
fn a_server_may_dribble() {
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let authority = Authority::new();
        let leaf = authority.issue(|_| ());
        let connector = Connector::new(trusting(&authority)).unwrap();
        let config = Arc::new(server(&leaf, &[suite], None));
        let (got, ()) = run(
            async |socket| {
                let secured = connector.handshake(&socket, Alpn::Own).await.unwrap();
                let mut stream = secured.into_stream(socket);
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await.unwrap();
                got
            },
            |mut socket| {
                let mut tls = ServerConnection::new(config).unwrap();
                let dribble = |tls: &mut ServerConnection, socket: &mut UnixStream| {
                    let mut flight = Vec::new();
                    while tls.wants_write() {
                        tls.write_tls(&mut flight).unwrap();
                    }
                    flight.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
                };
                while tls.is_handshaking() {
                    tls.read_tls(&mut socket).unwrap();
                    tls.process_new_packets().unwrap();
                    dribble(&mut tls, &mut socket);
                }
                tls.writer().write_all(&pattern(3000)).unwrap();
                tls.send_close_notify();
                dribble(&mut tls, &mut socket);
            },
        );
        assert!(got == pattern(3000), "{} bytes", got.len());
    }
}

/// Tickets of TLS 1.3 come behind the handshake, those of TLS 1.2 in it; each connector has its own.
#[test]
fn a_second_connection_resumes_the_first() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    for suite in [TLS13[0], TLS13[1], TLS12_ECDSA[0]] {
        let connector = Connector::new(trusting(&authority)).unwrap();
        let mut config = server(&leaf, &[suite], None);
        config.ticketer = provider_of::Ticketer::new().unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let kinds: Vec<_> = [Alpn::Either, Alpn::Http2, Alpn::Http1]
            .map(|alpn| greet(&connector, config.clone(), alpn))
            .into_iter()
            .map(|met| (met.resumed, met.kind == HandshakeKind::Resumed, met.alpn.unwrap()))
            .collect();
        let [h2, http1] = [&b"h2"[..], b"http/1.1"].map(Box::<[u8]>::from);
        assert_eq!(kinds, [(false, false, h2.clone()), (true, true, h2), (true, true, http1)], "{suite:?}");
        let other = Connector::new(trusting(&authority)).unwrap();
        assert!(!greet(&other, config, Alpn::Own).resumed);
    }
}

fn fault(error: &HandshakeError) -> &CertificateError {
    match &error.fault {
        HandshakeFault::Tls(Error::InvalidCertificate(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_certificates_are_refused_by_their_names() {
    use CertificateError as C;
    let authority = Authority::new();
    let expired = authority.issue(|params| params.not_after = date_time_ymd(2020, 1, 1));
    let not_yet = authority.issue(|params| params.not_before = date_time_ymd(2200, 1, 1));
    let other_name = authority.issue(|params| {
        params.subject_alt_names =
            CertificateParams::new(["x.example".to_owned()]).unwrap().subject_alt_names;
    });
    let of_a_client = authority.issue(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let strange = Authority::named("strange").issue(|_| ());
    let impostor = Authority::new().issue(|_| ());
    let self_signed = {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([HOST.to_owned()]).unwrap().self_signed(&key).unwrap();
        Leaf { chain: vec![certificate.der().clone()], spki: spki(&key), key: key.serialize_der() }
    };
    type Is = fn(&CertificateError) -> bool;
    let rows: [(&str, &Leaf, Is, Alert); 7] = [
        ("expired", &expired, |why| matches!(why, C::ExpiredContext { .. }), Alert(45)),
        ("not yet", &not_yet, |why| matches!(why, C::NotValidYetContext { .. }), Alert(45)),
        ("wrong host", &other_name, |why| matches!(why, C::NotValidForNameContext { .. }), Alert(42)),
        ("wrong purpose", &of_a_client, |why| matches!(why, C::InvalidPurposeContext { .. }), Alert(43)),
        ("strange issuer", &strange, |why| *why == C::UnknownIssuer, Alert(48)),
        ("impostor", &impostor, |why| *why == C::BadSignature, Alert(51)),
        ("self-signed", &self_signed, |why| *why == C::UnknownIssuer, Alert(48)),
    ];
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        for (what, leaf, is, alert) in &rows {
            let connector = Connector::new(trusting(&authority)).unwrap();
            let (ours, theirs) = refused(&connector, server(leaf, &[suite], None));
            assert!(is(fault(&ours)), "{what}: {ours:?}");
            assert_eq!(ours.alert, Some(*alert), "{what}");
            let Some(Error::AlertReceived(received)) = theirs else { panic!("{what}: {theirs:?}") };
            assert_eq!(u8::from(received), alert.0, "{what}");
        }
    }
}

#[test]
fn a_chain_without_its_intermediate_is_refused() {
    let root = Authority::new();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "intermediate");
    let middle = params.signed_by(&key, &root.issuer).unwrap();
    let below = Authority { issuer: Issuer::new(params, key), roots: Arc::clone(&root.roots) };
    let mut leaf = below.issue(|_| ());
    let connector = Connector::new(trusting(&root)).unwrap();
    let (ours, _) = refused(&connector, server(&leaf, &TLS13, None));
    assert_eq!(*fault(&ours), CertificateError::UnknownIssuer);
    leaf.chain.push(middle.der().clone());
    assert!(!greet(&connector, server(&leaf, &TLS13, None), Alpn::Own).resumed);
}

#[test]
fn pins_stand_for_everything_else() {
    let authority = Authority::new();
    let leaf = authority.issue(|params| params.not_after = date_time_ymd(2020, 1, 1));
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let pinned = Connector::new(settings(Verify::Pins(vec![[7; 32], leaf.spki]))).unwrap();
        assert!(!greet(&pinned, server(&leaf, &[suite], None), Alpn::Own).resumed);
        let wrong = Connector::new(settings(Verify::Pins(vec![[7; 32]]))).unwrap();
        let (ours, _) = refused(&wrong, server(&leaf, &[suite], None));
        assert_eq!(*fault(&ours), CertificateError::ApplicationVerificationFailure);
        assert_eq!(ours.alert, Some(Alert::ACCESS_DENIED));
    }
}

/// The key in the certificate must have signed the handshake, whatever else is not looked at.
#[test]
fn a_pinned_certificate_without_its_key_is_refused() {
    let authority = Authority::new();
    let (leaf, thief) = (authority.issue(|_| ()), authority.issue(|_| ()));
    let stolen = Leaf { chain: leaf.chain.clone(), key: thief.key, spki: leaf.spki };
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let key =
            provider_of::sign::any_supported_type(&PrivateKeyDer::try_from(stolen.key.clone()).unwrap());
        let mut config = server(&leaf, &[suite], None);
        let certified = CertifiedKey::new(stolen.chain.clone(), key.unwrap());
        config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        let connector = Connector::new(settings(Verify::Pins(vec![leaf.spki]))).unwrap();
        let (ours, _) = refused(&connector, config);
        assert_eq!(*fault(&ours), CertificateError::BadSignature);
    }
}

#[test]
fn the_name_is_what_is_checked_and_sni_what_is_sent() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    let name = |settings: Settings| {
        greet(&Connector::new(settings).unwrap(), server(&leaf, &TLS13, None), Alpn::Own).name
    };
    assert_eq!(name(trusting(&authority)).as_deref(), Some(HOST));
    let sni = ServerName::try_from("front.example").unwrap();
    assert_eq!(name(Settings { sni: Some(sni), ..trusting(&authority) }).as_deref(), Some("front.example"));
    let address = ServerName::try_from("127.0.0.1").unwrap();
    assert_eq!(name(Settings { sni: Some(address), ..trusting(&authority) }), None);
}

#[test]
fn a_server_that_asks_gets_the_certificate() {
    let (authority, identity) = (Authority::new(), &pki().client);
    let leaf = authority.issue(|_| ());
    let verifier = WebPkiClientVerifier::builder(Arc::clone(&pki().roots)).build().unwrap();
    let key = provider_of::sign::any_supported_type(&identity.key()).unwrap();
    let own = Arc::new(CertifiedKey::new(identity.chain.clone(), key));
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let config = || server(&leaf, &[suite], Some(verifier.clone()));
        let with = Settings { certificate: Some(Arc::clone(&own)), ..trusting(&authority) };
        let met = greet(&Connector::new(with).unwrap(), config(), Alpn::Own);
        assert_eq!(met.certificate.as_deref(), Some(identity.chain[0].as_ref()));
        // In TLS 1.3 the server says so behind what is a whole handshake for the client.
        let without = Connector::new(trusting(&authority)).unwrap();
        let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| match secured {
            Err(error) => format!("{:?}", error.fault),
            Ok(secured) => {
                let mut stream = secured.into_stream(socket);
                stream.read(&mut [0]).await.unwrap_err().to_string()
            }
        };
        let (error, done) = over(&without, config(), Alpn::Own, ours, |_, done| done);
        assert!(done.is_err());
        let said = if suite == TLS13[0] { "certificate_required" } else { "AlertReceived" };
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn what_is_no_server_ends_the_handshake() {
    let connector = Connector::new(trusting(&Authority::new())).unwrap();
    let ends = |bytes: &'static [u8]| {
        let (error, ()) = run(
            async |socket| connector.handshake(&socket, Alpn::Own).await.err().unwrap(),
            |mut far| {
                assert!(far.read(&mut [0; 4096]).unwrap() > 0);
                far.write_all(bytes).unwrap();
                far.shutdown(std::net::Shutdown::Write).unwrap();
                let _ = far.read_to_end(&mut Vec::new());
            },
        );
        error.fault
    };
    assert!(matches!(ends(b""), HandshakeFault::Closed));
    assert!(matches!(ends(&[22, 3, 3, 0, 200, 2]), HandshakeFault::Closed));
    assert!(matches!(ends(&[21, 3, 3, 0, 2, 1, 0]), HandshakeFault::Closed));
    assert!(matches!(ends(&[21, 3, 3, 0, 2, 2, 40]), HandshakeFault::Tls(Error::AlertReceived(_))));
    assert!(matches!(ends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), HandshakeFault::Tls(_)));
    assert!(matches!(ends(b"220 mail.example ESMTP\r\n"), HandshakeFault::Tls(_)));
}

/// A server of PostgreSQL is asked for TLS. Whatever it answers but `S` ends the handshake, and what it sends behind an
/// `S` in clear is no byte of the connection.
#[test]
fn a_server_is_asked_for_tls_first() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    let settings = Settings { preamble: Some(Preamble::Postgres), ..trusting(&authority) };
    let connector = Connector::new(settings).unwrap();
    let answered = |answer: &'static [u8]| {
        let (outcome, ()) = run(
            async |socket| connector.handshake(&socket, Alpn::Own).await.map(|_| ()),
            |mut far| {
                let mut asked = [0; 8];
                far.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, b"\0\0\0\x08\x04\xd2\x16\x2f");
                far.write_all(answer).unwrap();
                far.shutdown(std::net::Shutdown::Write).unwrap();
                let _ = far.read_to_end(&mut Vec::new());
            },
        );
        outcome.unwrap_err().fault
    };
    let preamble = |fault| match fault {
        HandshakeFault::Preamble(fault) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(preamble(answered(b"N")), PreambleFault::Declined);
    assert_eq!(preamble(answered(b"H")), PreambleFault::Unknown(b'H'));
    assert_eq!(preamble(answered(b"")), PreambleFault::Closed);
    let full = preamble(answered(b"E\0\0\0\x1fSFATAL\0C53300\0Msorry, full\0\0"));
    assert_eq!(full, PreambleFault::Error("sorry, full".to_owned()));
    assert!(matches!(answered(b"S"), HandshakeFault::Closed));
    assert!(matches!(answered(b"SR\0\0\0\x08\0\0\0\0"), HandshakeFault::Tls(_)));

    let config = Arc::new(server(&leaf, &TLS13, None));
    let (got, ()) = run(
        async |socket| {
            let secured = connector.handshake(&socket, Alpn::Own).await.unwrap();
            let mut stream = secured.into_stream(socket);
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            got
        },
        |mut far| {
            far.read_exact(&mut [0; 8]).unwrap();
            far.write_all(b"S").unwrap();
            let mut served = Served { tls: ServerConnection::new(config).unwrap(), socket: far };
            served.stream().write_all(b"within").unwrap();
            served.close();
        },
    );
    assert_eq!(got, b"within");
}

/// A server that sends a handshake message without an end is given up at 96 KiB.
#[test]
fn a_message_without_an_end_is_bounded() {
    let connector = Connector::new(trusting(&Authority::new())).unwrap();
    let (fault, sent) = run(
        async |socket| connector.handshake(&socket, Alpn::Own).await.err().unwrap().fault,
        |mut far| {
            assert!(far.read(&mut [0; 4096]).unwrap() > 0);
            let mut record = vec![22, 3, 3, 0x40, 0];
            record.extend([2, 0xff, 0xff, 0xff]);
            record.resize(5 + 16_384, 0);
            let sent = Mutex::new(0);
            while far.write_all(&record).is_ok() && *sent.lock().unwrap() < 1 << 24 {
                *sent.lock().unwrap() += record.len();
                record[5..].fill(0);
            }
            sent.into_inner().unwrap()
        },
    );
    assert!(matches!(fault, HandshakeFault::TooLarge | HandshakeFault::Tls(_)), "{fault:?}");
    assert!(sent < 1 << 20, "{sent}");
}

/// What the server says behind its handshake in the same packet is not lost, and a cut is no end.
#[test]
fn a_stream_that_is_cut_does_not_end_in_order() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    let connector = Connector::new(trusting(&authority)).unwrap();
    let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| {
        let mut stream: Stream = secured.unwrap().into_stream(socket);
        let mut got = Vec::new();
        let error = stream.read_to_end(&mut got).await.unwrap_err();
        (got, error.kind())
    };
    let ((got, kind), ()) =
        over(&connector, server(&leaf, &TLS13, None), Alpn::Own, ours, |mut server, done| {
            done.unwrap();
            server.stream().write_all(b"half of it").unwrap();
        });
    assert_eq!((&got[..], kind), (&b"half of it"[..], std::io::ErrorKind::UnexpectedEof));
}
