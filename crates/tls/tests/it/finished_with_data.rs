//! Data that the client sends right behind its Finished is not lost, however the bytes arrive.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use offramp_tls::{ClientVerification, Configs};
use rustls::{CipherSuite, ClientConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS13, client, client_with, pki};
use crate::rig::{Client, accept_stream, run};

/// Echoes one connection; `send` delivers the client's second flight, including data, to the server.
fn echo(
    configs: &Configs,
    config: &Arc<ClientConfig>,
    data: &[u8],
    send: impl FnOnce(&[u8], &mut UnixStream) + Send,
) {
    let server = async |socket| {
        let (mut stream, _) = accept_stream(socket, configs).await;
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        stream.write_all(&got).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let ((), got) = run(server, |socket| {
        let mut client = Client::new(config, NAME, socket);
        client.tls.set_buffer_limit(None);
        client.tls.writer().write_all(data).unwrap();
        client.read_answer().unwrap();
        client.tls.send_close_notify();
        let flight = client.flight();
        send(&flight, &mut client.socket);
        let mut got = Vec::new();
        client.stream().read_to_end(&mut got).unwrap();
        got
    });
    assert!(got == data, "{} bytes instead of {}", got.len(), data.len());
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn in_one_write() {
    let configs = Setup::default().configs();
    for suite in TLS13 {
        let config = Arc::new(client(&[suite]));
        for size in [0, 1, 100, 16_384, 16_385, 150_000] {
            echo(&configs, &config, &pattern(size), |flight, socket| socket.write_all(flight).unwrap());
        }
    }
}

#[test]
fn in_two_writes_split_at_every_byte() {
    let configs = Setup::default().configs();
    let config = Arc::new(client(&[CipherSuite::TLS13_AES_128_GCM_SHA256]));
    let data = pattern(40);
    // change_cipher_spec, Finished, data, close_notify; longer ones would only lengthen the bodies.
    let length = 6 + (5 + 4 + 32 + 17) + (5 + 40 + 17) + (5 + 2 + 17);
    for at in 1..length {
        echo(&configs, &config, &data, |flight, socket| {
            assert_eq!(flight.len(), length);
            socket.write_all(&flight[..at]).unwrap();
            // Yields to the server now and then; either order is right.
            std::thread::yield_now();
            socket.write_all(&flight[at..]).unwrap();
        });
    }
}

#[test]
fn byte_by_byte() {
    let configs = Setup::with_auth(ClientVerification::Required(Arc::clone(&pki().roots).into())).configs();
    let config = Arc::new(client_with(&TLS13, &pki().client));
    echo(&configs, &config, &pattern(300), |flight, socket| {
        for byte in flight.chunks(1) {
            socket.write_all(byte).unwrap();
        }
    });
}

#[test]
fn tls12_has_data_behind_the_finished_of_a_resumed_session() {
    // There the client's Finished comes last, as in TLS 1.3.
    let configs = Setup::default().configs();
    let config = Arc::new(client(&TLS12_ECDSA));
    for size in [10, 20_000, 100_000] {
        let data = pattern(size);
        let server = async |socket| {
            let (mut stream, negotiated) = accept_stream(socket, &configs).await;
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            stream.shutdown().await.unwrap();
            (got, negotiated.resumed)
        };
        let ((got, resumed), ()) = run(server, |socket| {
            let mut client = Client::new(&config, NAME, socket);
            client.tls.set_buffer_limit(None);
            client.tls.writer().write_all(&data).unwrap();
            client.handshake().unwrap();
            client.close();
            client.stream().read_to_end(&mut Vec::new()).unwrap();
        });
        assert_eq!(resumed, size != 10);
        assert!(got == data);
    }
}

#[test]
fn data_of_a_client_that_leaves_at_once_is_read() {
    let configs = Setup::default().configs();
    let config = Arc::new(client(&TLS13));
    // The tickets may or may not reach the client; its data counts anyway.
    for _ in 0..50 {
        let server = async |socket| {
            let (mut stream, _) = accept_stream(socket, &configs).await;
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            got
        };
        let (got, ()) = run(server, |socket| {
            let mut client = Client::new(&config, NAME, socket);
            client.tls.writer().write_all(b"a line for the log").unwrap();
            client.read_answer().unwrap();
            client.tls.send_close_notify();
            let flight = client.flight();
            client.socket.write_all(&flight).unwrap();
        });
        assert_eq!(got, b"a line for the log");
    }
}
