//! Session tickets are sent with the first record that follows, or alone after a moment.

use std::future::poll_fn;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use offramp_net::Socket;
use offramp_record::RecordSize;
use offramp_tls::{Sending, TlsStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS13, client};
use crate::rig::{Client, accept_stream, run};

const PATIENCE: Duration = Duration::from_secs(60);

/// First output of a server.
type Speech = for<'s> fn(&'s mut TlsStream) -> Pin<Box<dyn Future<Output = io::Result<()>> + 's>>;

fn write(stream: &mut TlsStream) -> Pin<Box<dyn Future<Output = io::Result<()>> + '_>> {
    Box::pin(stream.write_all(b"hello"))
}

/// Writes like a body, sealed in place.
fn batch(stream: &mut TlsStream) -> Pin<Box<dyn Future<Output = io::Result<()>> + '_>> {
    Box::pin(async move {
        let mut block = vec![0; 1024];
        let layout = poll_fn(|cx| stream.poll_lay_out(cx, 1024, 5)).await?;
        layout.fill(&mut block, std::iter::once(b"hello".as_slice()));
        poll_fn(|cx| std::task::Poll::Ready(stream.send_batch(cx, &layout, &mut block, 5, false))).await
    })
}

#[test]
fn tickets_are_sent_with_the_first_record() {
    let configs = Setup::with_tickets(2).configs();
    let config = Arc::new(client(&TLS13));
    for speak in [write as Speech, batch as Speech] {
        let ((shaken, done), (speech, speaks)) = (mpsc::channel(), mpsc::channel());
        let server = async |socket| {
            let (mut stream, _) = accept_stream(socket, &configs).await;
            shaken.send(()).unwrap();
            speaks.recv_timeout(PATIENCE).unwrap();
            speak(&mut stream).await.unwrap();
            shaken.send(()).unwrap();
            // A buffer is empty when its only call has accepted it.
            assert_eq!(stream.waiting(), 0);
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        };
        let config = Arc::clone(&config);
        let ((), ()) = run(server, move |socket| {
            let mut client = Client::new(&config, NAME, socket);
            client.handshake().unwrap();
            done.recv_timeout(PATIENCE).unwrap();
            client.socket.set_nonblocking(true).unwrap();
            let early = client.socket.read(&mut [0; 4096]).map_err(|error| error.kind());
            assert_eq!(early, Err(io::ErrorKind::WouldBlock));
            speech.send(()).unwrap();
            done.recv_timeout(PATIENCE).unwrap();
            client.socket.set_nonblocking(false).unwrap();
            client.read_more().unwrap();
            assert_eq!(client.tls.tls13_tickets_received(), 2);
            let mut said = [0; 5];
            client.tls.reader().read_exact(&mut said).unwrap();
            assert_eq!(said, *b"hello");
            client.close();
        });
    }
}

#[test]
fn silent_ends_get_tickets_alone() {
    let configs = Setup::with_tickets(2).configs();
    let config = Arc::new(client(&TLS13));
    let server = async |socket| {
        let (mut stream, _) = accept_stream(socket, &configs).await;
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    };
    let ((), ()) = run(server, |socket| {
        let mut client = Client::new(&config, NAME, socket);
        client.handshake().unwrap();
        while client.tls.tls13_tickets_received() < 2 {
            client.read_more().unwrap();
        }
        client.close();
    });
}

#[test]
fn the_end_of_a_tls12_handshake_does_not_wait() {
    // The client waits for the server's Finished, which comes behind the ticket.
    let configs = Setup::with_tickets(1).configs();
    let config = Arc::new(client(&TLS12_ECDSA));
    let (shaken, done) = mpsc::channel();
    let server = async |socket| {
        let (stream, _) = accept_stream(socket, &configs).await;
        done.recv_timeout(PATIENCE).unwrap();
        drop(stream);
    };
    let ((), ()) = run(server, |socket| {
        let mut client = Client::new(&config, NAME, socket);
        client.handshake().unwrap();
        assert!(!client.tls.is_handshaking());
        shaken.send(()).unwrap();
    });
}

fn pair() -> (Socket, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (Socket::unix(OwnedFd::from(near)).unwrap(), far)
}

fn moment() -> tokio::time::Sleep {
    tokio::time::sleep(Duration::from_millis(1))
}

#[tokio::test]
async fn a_slow_connect_does_not_delay_tickets() {
    let (socket, mut far) = pair();
    let mut sending = Sending::new(RecordSize::Adaptive, b"tickets".to_vec());
    assert_eq!(sending.waiting(), 0);
    // Connecting takes as long as the tickets take to arrive.
    let reach = async {
        let mut got = [0; 16];
        loop {
            match far.read(&mut got) {
                Ok(n) => break got[..n].to_vec(),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            moment().await;
        }
    };
    let (got, refused) = tokio::time::timeout(PATIENCE, sending.beside(&socket, reach)).await.unwrap();
    assert_eq!((got.as_slice(), refused), (b"tickets".as_slice(), None));
    assert!(sending.into_waiting().is_empty());
}

#[tokio::test]
async fn after_a_fast_connect_tickets_wait_for_the_response() {
    let (socket, mut far) = pair();
    let mut sending = Sending::new(RecordSize::Adaptive, b"tickets".to_vec());
    let (done, refused) = sending.beside(&socket, async { 7 }).await;
    assert_eq!((done, refused), (7, None));
    assert_eq!(far.read(&mut [0; 16]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(sending.into_waiting(), b"tickets");
}

#[tokio::test]
async fn a_client_that_has_left_is_reported() {
    let (socket, far) = pair();
    drop(far);
    let mut sending = Sending::new(RecordSize::Adaptive, b"tickets".to_vec());
    let reach = async {
        for _ in 0..5 {
            moment().await;
        }
    };
    let ((), refused) = sending.beside(&socket, reach).await;
    assert_eq!(refused, Some(io::ErrorKind::BrokenPipe));
    assert!(sending.into_waiting().is_empty());
}
