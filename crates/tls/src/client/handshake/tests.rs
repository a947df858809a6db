//! Turns of handshakes with servers.

use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use offramp_record::aead::Library;
use offramp_record::{LibraryChoice, RecordSize};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::yield_now;

use super::*;
use crate::client::{ConnectorSettings, ServerVerification};

/// A connector, and a server that it trusts.
fn ends() -> (Connector, ServerConnection) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let settings = ConnectorSettings {
        verify: ServerVerification::Roots(Arc::new(roots).into()),
        name: ServerName::try_from("localhost").unwrap(),
        sni: None,
        certificate: None,
        alpn: Vec::new(),
        post_quantum: true,
        choice: LibraryChoice::always(Library::Ring),
        preamble: None,
        record_size: RecordSize::Adaptive,
    };
    (Connector::new(settings).unwrap(), ServerConnection::new(Arc::new(server)).unwrap())
}

/// Thousands of servers may reply at the same time.
#[test]
fn the_answer_of_a_server_waits_for_its_turn() {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let (connector, mut server) = ends();
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let socket = Socket::unix(near.into()).unwrap();
        let mut handshake = pin!(connector.handshake(&socket, Alpn::Own));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(handshake.as_mut().poll(cx).is_pending());
        let mut hello = [0; 4096];
        let n = far.read(&mut hello).unwrap();
        server.read_tls(&mut &hello[..n]).unwrap();
        server.process_new_packets().unwrap();
        let mut answer = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut answer).unwrap();
        }
        far.write_all(&answer).unwrap();
        // The budget is used up, and another handshake is first in the queue.
        let queue = QUEUE.with(Rc::clone);
        let caller = HandshakeRequest::anyone(&queue);
        caller.spend(Duration::from_secs(1));
        let mut other = Box::pin(caller.enter(false));
        assert!(other.as_mut().poll(cx).is_pending());
        for _ in 0..100 {
            let polled = poll_fn(|cx| Poll::Ready(handshake.as_mut().poll(cx).is_pending()));
            assert!(polled.await, "it went before who was there first");
            yield_now().await;
        }
        assert_eq!(queue.len(), 2);
        drop(other);
        handshake.await.unwrap();
    });
}
