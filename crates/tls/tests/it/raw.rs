//! A client that sends well-sealed records which rustls never would.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use offramp_record::{
    Alert, ContentType, KeyMaterial, Opener, PlaintextSpan, RecordEvent, Sealer, Suite, Version,
};
use offramp_tls::TlsStream;
use rustls::{CipherSuite, ConnectionTrafficSecrets};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS13, client};
use crate::rig::{CHOICE, Client, accept_stream, run};

/// The client's end of the record layer.
struct Raw {
    sealer: Sealer,
    opener: Opener,
    socket: UnixStream,
}

impl Raw {
    fn new(client: Client) -> Self {
        let version = match client.tls.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => Version::Tls13,
            _ => Version::Tls12,
        };
        let secrets = client.tls.dangerous_extract_secrets().unwrap();
        let material = |(sequence, secrets)| match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                let iv = iv.as_ref().try_into().unwrap();
                KeyMaterial::new(version, Suite::Aes128Gcm, key.as_ref(), iv, sequence).unwrap()
            }
            _ => panic!("another suite"),
        };
        let sealer = Sealer::new(&material(secrets.tx), &CHOICE);
        let opener = Opener::new(&material(secrets.rx), &CHOICE);
        Self { sealer, opener, socket: client.socket }
    }

    fn send(&mut self, records: &[(ContentType, &[u8])]) {
        let mut out = Vec::new();
        for (typ, content) in records {
            self.sealer.seal_message(*typ, content, &mut out);
        }
        self.socket.write_all(&out).unwrap();
    }

    /// Everything up to the end of the stream: plaintext, and the event that ended it.
    fn read_all(mut self) -> (Vec<u8>, RecordEvent) {
        self.socket.shutdown(Shutdown::Write).unwrap();
        let (mut wire, mut got, mut spans) = (Vec::new(), Vec::new(), [PlaintextSpan::default(); 8]);
        self.socket.read_to_end(&mut wire).unwrap();
        loop {
            let opened = self.opener.open(&mut wire, &mut spans);
            for span in &spans[..opened.spans] {
                got.extend_from_slice(span.of(&wire));
            }
            wire.drain(..opened.consumed);
            if opened.event != RecordEvent::Full {
                return (got, opened.event);
            }
        }
    }
}

fn over<S, C: Send>(
    suite: CipherSuite,
    server: impl AsyncFnOnce(TlsStream) -> S,
    part: impl FnOnce(Raw) -> C + Send,
) -> (S, C) {
    let configs = Setup::with_tickets(0).configs();
    let mut config = client(&[suite]);
    config.enable_secret_extraction = true;
    let config = Arc::new(config);
    run(
        async |socket| server(accept_stream(socket, &configs).await.0).await,
        |socket| {
            let mut client = Client::new(&config, NAME, socket);
            client.handshake().unwrap();
            part(Raw::new(client))
        },
    )
}

const BOTH: [CipherSuite; 2] = [TLS13[0], TLS12_ECDSA[0]];
const DATA: ContentType = ContentType::ApplicationData;
const A: (ContentType, &[u8]) = (DATA, b"a");
const B: (ContentType, &[u8]) = (DATA, b"b");
const HELLO: (ContentType, &[u8]) = (ContentType::Handshake, &[1, 0, 0, 0]);
const CLOSE: (ContentType, &[u8]) = (ContentType::Alert, &[1, 0]);

#[test]
fn a_renegotiation_is_declined_once_then_refused() {
    let send = |records: &[(ContentType, &[u8])]| {
        over(
            TLS12_ECDSA[0],
            async |mut stream| {
                let mut got = Vec::new();
                let outcome = stream.read_to_end(&mut got).await.map_err(|error| error.kind());
                stream.shutdown().await.unwrap();
                (got, outcome.err())
            },
            |mut raw| {
                raw.send(records);
                // The warning is an alert record, whose content an opener skips.
                let mut warning = [0; 5 + 8 + 2 + 16];
                raw.socket.read_exact(&mut warning).unwrap();
                assert_eq!(warning[..5], [21, 3, 3, 0, 8 + 2 + 16]);
                assert_eq!(
                    raw.opener.open(&mut warning, &mut [PlaintextSpan::default()]).event,
                    RecordEvent::NeedMore(5)
                );
                raw.read_all().1
            },
        )
    };
    assert_eq!(send(&[A, HELLO, B, CLOSE]), ((b"ab".to_vec(), None), RecordEvent::CloseNotify));
    let refused = RecordEvent::PeerAlert(Alert::UNEXPECTED_MESSAGE);
    assert_eq!(send(&[A, HELLO, B, HELLO, A]), ((b"ab".to_vec(), Some(ErrorKind::InvalidData)), refused));
}

#[test]
fn a_fatal_alert_ends_both_directions_without_an_answer() {
    for suite in BOTH {
        let ((), (got, event)) = over(
            suite,
            async |mut stream| {
                let mut got = Vec::new();
                let error = stream.read_to_end(&mut got).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
                assert!(error.to_string().contains("bad_record_mac"), "{error}");
                assert_eq!(got, b"before");
                assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                stream.shutdown().await.unwrap();
            },
            |mut raw| {
                raw.send(&[(DATA, b"before"), (ContentType::Alert, &[2, 20]), (DATA, b"behind")]);
                raw.read_all()
            },
        );
        assert_eq!((got, event), (Vec::new(), RecordEvent::NeedMore(5)));
    }
}

#[test]
fn data_behind_close_notify_is_ignored() {
    for suite in BOTH {
        let ((), (got, event)) = over(
            suite,
            async |mut stream| {
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await.unwrap();
                assert_eq!(got, b"before");
                stream.write_all(b"still heard").await.unwrap();
                stream.shutdown().await.unwrap();
            },
            |mut raw| {
                raw.send(&[(DATA, b"before"), CLOSE, (DATA, b"behind")]);
                raw.read_all()
            },
        );
        assert_eq!((got, event), (b"still heard".to_vec(), RecordEvent::CloseNotify));
    }
}

#[test]
fn empty_records_are_skipped() {
    for suite in BOTH {
        over(
            suite,
            async |mut stream| {
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await.unwrap();
                assert_eq!(got, b"ab");
            },
            |mut raw| {
                let canceled: (ContentType, &[u8]) = (ContentType::Alert, &[1, 90]);
                raw.send(&[(DATA, b""), A, (DATA, b""), canceled, B, (DATA, b""), CLOSE]);
            },
        );
    }
}
