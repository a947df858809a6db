//! Records that arrive together are opened together, and their plaintext is taken in any pieces.

use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use offramp_tls::TlsStream;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::sync::oneshot;

use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS13, client};
use crate::rig::{Client, accept_stream, run};

/// Lengths of the records, with a key change in the middle if the version supports it.
const RECORDS: [usize; 5] = [100, 5000, 1, 6000, 300];

/// All records, and the end of the stream.
fn flight(client: &mut Client, updates: bool) -> Vec<u8> {
    for (number, length) in RECORDS.into_iter().enumerate() {
        if updates && number == 2 {
            client.tls.refresh_traffic_keys().unwrap();
        }
        client.tls.writer().write_all(&vec![number as u8; length]).unwrap();
    }
    client.tls.send_close_notify();
    client.flight()
}

fn content() -> Vec<u8> {
    RECORDS.into_iter().enumerate().flat_map(|(number, length)| vec![number as u8; length]).collect()
}

/// Waits for plaintext, and opens the records behind it; returns the lengths of the parts, and the data.
async fn opened(stream: &mut TlsStream, most: usize) -> (Vec<usize>, Vec<u8>) {
    stream.fill_buf().await.unwrap();
    poll_fn(|cx: &mut Context<'_>| Poll::Ready(stream.open_further(cx, most))).await.unwrap();
    (stream.opened().map(<[u8]>::len).collect(), stream.opened().collect::<Vec<_>>().concat())
}

#[test]
fn records_that_came_together_are_opened_together() {
    for (suite, updates) in [(TLS13[0], false), (TLS13[0], true), (TLS12_ECDSA[0], false)] {
        for step in [1, 99, 100, 101, 5100, 5101, 5102, 11_401, 20_000] {
            let (configs, config) = (Setup::with_tickets(0).configs(), Arc::new(client(&[suite])));
            let (accepted, wait_for_accept) = oneshot::channel();
            let (written, wait) = oneshot::channel();
            run(
                async |socket| {
                    let (mut stream, _) = accept_stream(socket, &configs).await;
                    accepted.send(()).unwrap();
                    wait.await.unwrap();
                    assert_eq!(opened(&mut stream, 1).await.0, RECORDS[..1]);
                    assert_eq!(opened(&mut stream, 2).await.0, RECORDS[..2]);
                    let (parts, all) = opened(&mut stream, 17).await;
                    assert_eq!(parts, RECORDS);
                    assert!(all == content());
                    let mut left = &content()[..];
                    while !left.is_empty() {
                        let n = step.min(left.len());
                        Pin::new(&mut stream).consume(n);
                        left = &left[n..];
                        assert!(opened(&mut stream, 17).await.1 == left, "{step}: {} are left", left.len());
                    }
                    assert!(stream.fill_buf().await.unwrap().is_empty(), "the end");
                },
                |socket| {
                    let mut client = Client::new(&config, NAME, socket);
                    client.handshake().unwrap();
                    // Records that arrive with the end of the handshake are read with it.
                    wait_for_accept.blocking_recv().unwrap();
                    let flight = flight(&mut client, updates);
                    client.socket.write_all(&flight).unwrap();
                    written.send(()).unwrap();
                },
            );
        }
    }
}
