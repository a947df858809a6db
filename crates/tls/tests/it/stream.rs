//! [`TlsStream`] as `AsyncRead` and `AsyncWrite`.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

use aws_lc_rs::digest::{Context as Sha, SHA256};
use offramp_tls::TlsStream;
use rustls::{AlertDescription, CipherSuite};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS13, client};
use crate::rig::{Client, accept_stream, alert, run};

/// A handshake with default settings, then each end's part.
fn over<S, C: Send>(
    suite: CipherSuite,
    server: impl AsyncFnOnce(TlsStream) -> S,
    part: impl FnOnce(Client) -> C + Send,
) -> (S, C) {
    let (configs, config) = (Setup::with_tickets(0).configs(), Arc::new(client(&[suite])));
    run(
        async |socket| {
            let (stream, _) = accept_stream(socket, &configs).await;
            server(stream).await
        },
        |socket| {
            let mut client = Client::new(&config, NAME, socket);
            client.handshake().unwrap();
            part(client)
        },
    )
}

const BOTH: [CipherSuite; 2] = [TLS13[0], TLS12_ECDSA[0]];

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

#[test]
fn a_copy_is_an_echo() {
    for suite in BOTH {
        let data = pattern(3_000_000);
        let (copied, ()) = over(
            suite,
            async |stream| {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
                copied
            },
            |mut client| {
                let mut back = vec![0; 60_000];
                for part in data.chunks(60_000) {
                    client.stream().write_all(part).unwrap();
                    client.stream().read_exact(&mut back[..part.len()]).unwrap();
                    assert!(back[..part.len()] == *part);
                }
                client.close();
                assert_eq!(client.stream().read(&mut back).unwrap(), 0);
            },
        );
        assert_eq!(copied, 3_000_000);
    }
}

/// Batches of all sizes, alone and between ordinary writes, to a slower client.
#[test]
fn batches_are_sealed_in_place() {
    for suite in BOTH {
        let data = pattern(3_000_000);
        let ((), got) = over(
            suite,
            async |mut stream| {
                let mut block = vec![0xee; 300_000];
                let mut left = &data[..];
                for (number, size) in
                    [1, 1369, 1370, 65_536, 262_144, 300_000].into_iter().cycle().enumerate()
                {
                    if left.is_empty() {
                        break;
                    }
                    let most = left.len().min(size);
                    let layout = poll_fn(|cx| stream.poll_lay_out(cx, block.len(), most)).await.unwrap();
                    let n = layout.fill(&mut block, [&left[..most]]);
                    assert!(n > 0 && n == most.min(layout.capacity()));
                    let more = number % 2 == 0;
                    poll_fn(|cx| Poll::Ready(stream.send_batch(cx, &layout, &mut block, n, more)))
                        .await
                        .unwrap();
                    left = &left[n..];
                    if more && number % 3 == 0 {
                        stream.push();
                    }
                    if number % 5 == 0 {
                        let some = left.len().min(100);
                        stream.write_all(&left[..some]).await.unwrap();
                        left = &left[some..];
                    }
                }
                stream.flush().await.unwrap();
                assert_eq!(stream.waiting(), 0);
                stream.shutdown().await.unwrap();
            },
            |mut client| {
                let mut got = Vec::new();
                client.stream().read_to_end(&mut got).unwrap();
                got
            },
        );
        assert!(got == data, "{suite:?}: {} bytes", got.len());
    }
}

/// Bytes each way in [`both_ways_at_once`].
const MUCH: usize = 64 << 20;

#[test]
fn both_ways_at_once() {
    for suite in [TLS13[2], TLS12_ECDSA[0]] {
        let (hashes, client) = over(
            suite,
            async |stream| {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let down = tokio::spawn(async move {
                    let (mut hash, part) = (Sha::new(&SHA256), pattern(100_001));
                    let mut left = MUCH;
                    while left > 0 {
                        let part = &part[..left.min(part.len())];
                        hash.update(part);
                        writer.write_all(part).await.unwrap();
                        left -= part.len();
                    }
                    writer.shutdown().await.unwrap();
                    hash.finish().as_ref().to_vec()
                });
                let up = tokio::spawn(async move {
                    let (mut hash, mut part, mut total) = (Sha::new(&SHA256), vec![0; 50_000], 0);
                    loop {
                        let n = reader.read(&mut part).await.unwrap();
                        if n == 0 {
                            break;
                        }
                        hash.update(&part[..n]);
                        total += n;
                    }
                    assert_eq!(total, MUCH);
                    hash.finish().as_ref().to_vec()
                });
                (up.await.unwrap(), down.await.unwrap())
            },
            |client| exchange(client, suite == TLS13[2]),
        );
        assert!(hashes == client);
    }
}

/// Sends and receives [`MUCH`] at once, with a key update now and then; returns the checksums.
fn exchange(client: Client, updates: bool) -> (Vec<u8>, Vec<u8>) {
    let Client { mut tls, mut socket } = client;
    socket.set_nonblocking(true).unwrap();
    let mut hashes = (Sha::new(&SHA256), Sha::new(&SHA256));
    let part = pattern(50_000);
    let (mut sent, mut got, mut ended) = (0, 0, false);
    let mut plain = vec![0; 32_768];
    while !ended || tls.wants_write() || sent < MUCH {
        let mut idle = true;
        if !tls.wants_write() && sent < MUCH {
            let n = tls.writer().write(&part[..part.len().min(MUCH - sent)]).unwrap();
            hashes.0.update(&part[..n]);
            if updates && sent >> 20 != (sent + n) >> 20 {
                tls.refresh_traffic_keys().unwrap();
            }
            sent += n;
            if sent == MUCH {
                tls.send_close_notify();
            }
        }
        while tls.wants_write() && tls.write_tls(&mut socket).is_ok() {
            idle = false;
        }
        if !ended && tls.read_tls(&mut socket).is_ok() {
            idle = false;
            ended = tls.process_new_packets().unwrap().peer_has_closed();
            while let Ok(n @ 1..) = tls.reader().read(&mut plain) {
                hashes.1.update(&plain[..n]);
                got += n;
            }
        }
        if idle {
            std::thread::yield_now();
        }
    }
    assert_eq!(got, MUCH);
    (hashes.0.finish().as_ref().to_vec(), hashes.1.finish().as_ref().to_vec())
}

#[test]
fn a_vectored_write_takes_its_parts_in_order() {
    let data = pattern(200_000);
    let (_, got) = over(
        TLS13[0],
        async |mut stream| {
            assert!(stream.is_write_vectored());
            let mut rest = &data[..];
            while !rest.is_empty() {
                let sizes = [0, 1, 0, 30_000, 5, 60_000];
                let mut parts = Vec::new();
                let mut after = rest;
                for size in sizes {
                    let (part, more) = after.split_at(size.min(after.len()));
                    parts.push(IoSlice::new(part));
                    after = more;
                }
                let n = stream.write_vectored(&parts).await.unwrap();
                assert_ne!(n, 0);
                rest = &rest[n..];
            }
            assert_eq!(stream.write(&[]).await.unwrap(), 0);
            assert_eq!(stream.write_vectored(&[]).await.unwrap(), 0);
            stream.shutdown().await.unwrap();
        },
        |mut client| {
            let mut got = Vec::new();
            client.stream().read_to_end(&mut got).unwrap();
            got
        },
    );
    assert!(got == data);
}

#[test]
fn flushed_data_arrives() {
    over(
        TLS13[0],
        async |mut stream| {
            stream.write_all(b"question").await.unwrap();
            stream.flush().await.unwrap();
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
        },
        |mut client| {
            let mut question = [0; 8];
            client.stream().read_exact(&mut question).unwrap();
            client.stream().write_all(b"answer").unwrap();
        },
    );
}

#[test]
fn the_client_may_close_first() {
    for suite in BOTH {
        over(
            suite,
            async |mut stream| {
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await.unwrap();
                assert_eq!(got, b"last words");
                assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 0, "the end stays the end");
                stream.write_all(&pattern(100_000)).await.unwrap();
                stream.shutdown().await.unwrap();
            },
            |mut client| {
                client.stream().write_all(b"last words").unwrap();
                client.close();
                let mut got = Vec::new();
                client.stream().read_to_end(&mut got).unwrap();
                assert!(got == pattern(100_000));
            },
        );
    }
}

#[test]
fn the_server_may_close_first_and_then_answers_no_key_update() {
    for suite in BOTH {
        over(
            suite,
            async |mut stream| {
                stream.write_all(b"bye").await.unwrap();
                stream.shutdown().await.unwrap();
                let refused = stream.write_all(b"more").await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await.unwrap();
                assert!(got == pattern(100_000));
                stream.shutdown().await.unwrap();
            },
            |mut client| {
                let mut got = Vec::new();
                client.stream().read_to_end(&mut got).unwrap();
                assert_eq!(got, b"bye");
                for part in pattern(100_000).chunks(30_000) {
                    if suite == TLS13[0] {
                        client.tls.refresh_traffic_keys().unwrap();
                    }
                    client.stream().write_all(part).unwrap();
                }
                client.close();
                assert_eq!(client.socket.read(&mut [0; 64]).unwrap(), 0, "nothing behind close_notify");
            },
        );
    }
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    for suite in BOTH {
        for cut in [0, 1, 4, 5, 20] {
            over(
                suite,
                async |mut stream| {
                    let mut got = Vec::new();
                    let error = stream.read_to_end(&mut got).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                    assert_eq!(got, b"whole");
                    let again = stream.read(&mut [0]).await.unwrap_err();
                    assert_eq!(again.kind(), ErrorKind::UnexpectedEof);
                },
                |mut client| {
                    client.stream().write_all(b"whole").unwrap();
                    client.tls.writer().write_all(b"in part").unwrap();
                    let record = client.flight();
                    client.socket.write_all(&record[..cut]).unwrap();
                },
            );
        }
    }
}

#[test]
fn a_damaged_record_is_reported_to_the_client() {
    for suite in BOTH {
        let ((), error) = over(
            suite,
            async |mut stream| {
                let mut got = Vec::new();
                let error = stream.read_to_end(&mut got).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidData);
                assert_eq!(got, b"good");
                let refused = stream.write(b"x").await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
                stream.shutdown().await.unwrap();
            },
            |mut client| {
                client.stream().write_all(b"good").unwrap();
                client.tls.writer().write_all(b"bad").unwrap();
                let mut record = client.flight();
                *record.last_mut().unwrap() ^= 1;
                client.socket.write_all(&record).unwrap();
                client.stream().read(&mut [0]).unwrap_err()
            },
        );
        assert_eq!(alert(&error), Some(AlertDescription::BadRecordMac));
    }
}

#[test]
fn a_key_update_is_answered_while_only_reading() {
    over(
        TLS13[0],
        async |mut stream| assert_eq!(stream.read_u8().await.unwrap(), b'x'),
        |mut client| {
            client.tls.refresh_traffic_keys().unwrap();
            let update = client.flight();
            client.socket.write_all(&update).unwrap();
            read_key_update(&mut client);
            client.stream().write_all(b"x").unwrap();
        },
    );
}

/// Reads plaintext until a record of the length of a KeyUpdate arrives.
fn read_key_update(client: &mut Client) {
    let mut wire = Vec::new();
    let mut at = 0;
    loop {
        let mut part = [0; 16_384];
        let n = client.socket.read(&mut part).expect("the answer does not come");
        assert_ne!(n, 0, "the server closed");
        wire.extend_from_slice(&part[..n]);
        while let Some(length) = offramp_record::whole_record(&wire[at..]) {
            at += length;
            if length == 5 + 5 + 1 + 16 {
                assert_eq!(at, wire.len());
                return;
            }
        }
    }
}

/// Writes until the socket accepts no more; returns the number of bytes.
fn fill(stream: &mut TlsStream) -> usize {
    let mut context = Context::from_waker(Waker::noop());
    let mut taken = 0;
    while let Poll::Ready(n) = Pin::new(&mut *stream).poll_write(&mut context, &pattern(50_000)) {
        taken += n.unwrap();
    }
    taken
}

fn send_key_update(client: &mut Client) {
    client.tls.refresh_traffic_keys().unwrap();
    let update = client.flight();
    client.socket.write_all(&update).unwrap();
}

#[test]
fn a_delayed_reply_is_sent_by_the_reader() {
    let (updated, wait_for_update) = tokio::sync::oneshot::channel();
    let (drain, wait_for_drain) = mpsc::channel();
    over(
        TLS13[0],
        async |mut stream| {
            fill(&mut stream);
            wait_for_update.await.unwrap();
            let (mut context, mut byte) = (Context::from_waker(Waker::noop()), [0]);
            // Answers the update, which the socket does not accept.
            let read = Pin::new(&mut stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
            assert!(read.is_pending());
            drain.send(()).unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'x');
        },
        move |mut client| {
            send_key_update(&mut client);
            updated.send(()).unwrap();
            wait_for_drain.recv().unwrap();
            read_key_update(&mut client);
            client.stream().write_all(b"x").unwrap();
        },
    );
}

#[test]
fn a_reply_of_the_reader_does_not_block_the_writer() {
    let (updated, wait_for_update) = tokio::sync::oneshot::channel();
    let (drain, wait_for_drain) = mpsc::channel();
    over(
        TLS13[0],
        async |mut stream| {
            fill(&mut stream);
            wait_for_update.await.unwrap();
            let (mut reader, mut writer) = tokio::io::split(stream);
            // The tasks run in this order: first the writer waits for the socket, then the reader.
            let writing = tokio::spawn(async move {
                writer.write_all(&pattern(1_000_000)).await.unwrap();
                writer.shutdown().await.unwrap();
            });
            let reading = tokio::spawn(async move { reader.read_u8().await.unwrap() });
            let draining = tokio::spawn(async move { drain.send(()).unwrap() });
            draining.await.unwrap();
            writing.await.unwrap();
            assert_eq!(reading.await.unwrap(), b'x');
        },
        move |mut client| {
            send_key_update(&mut client);
            updated.send(()).unwrap();
            wait_for_drain.recv().unwrap();
            let mut got = Vec::new();
            client.stream().read_to_end(&mut got).unwrap();
            assert!(got.len() > 1_000_000);
            client.stream().write_all(b"x").unwrap();
        },
    );
}

#[test]
fn received_data_is_readable_after_a_failed_reply() {
    let (gone, wait_until_gone) = tokio::sync::oneshot::channel();
    over(
        TLS13[0],
        async |mut stream| {
            wait_until_gone.await.unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"before and after");
            // The writer gets the error, even if it has nothing more to write.
            assert_eq!(stream.flush().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!(stream.shutdown().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        },
        move |mut client| {
            client.stream().write_all(b"before ").unwrap();
            send_key_update(&mut client);
            client.stream().write_all(b"and after").unwrap();
            client.close();
            drop::<UnixStream>(client.socket);
            gone.send(()).unwrap();
        },
    );
}

/// Nearly empty records never make the reader wait for its socket, so it yields after some of them; each key
/// update counts as many records.
#[test]
fn small_records_do_not_keep_a_reader_from_yielding() {
    // Number of records, and the maximum between two yields.
    for (what, count, most, updates) in
        [("records of a byte", 6000, 2500, false), ("key updates", 600, 100, true)]
    {
        let (sent, wait_until_sent) = tokio::sync::oneshot::channel();
        let ((), ()) = over(
            TLS13[0],
            async |mut stream| {
                wait_until_sent.await.unwrap();
                let (mut got, mut bytes) = (0, [0; 64]);
                poll_fn(|cx| {
                    let before = got;
                    while got < count {
                        let mut buffer = ReadBuf::new(&mut bytes[..1]);
                        match Pin::new(&mut stream).poll_read(cx, &mut buffer) {
                            Poll::Ready(outcome) => outcome.unwrap(),
                            Poll::Pending => return Poll::Pending,
                        }
                        got += buffer.filled().len();
                        assert!(got - before <= most, "{what}: {} in one turn", got - before);
                    }
                    Poll::Ready(())
                })
                .await;
            },
            |mut client| {
                let mut flight = Vec::new();
                for _ in 0..count {
                    if updates {
                        client.tls.refresh_traffic_keys().unwrap();
                    }
                    client.tls.writer().write_all(b"x").unwrap();
                    flight.append(&mut client.flight());
                }
                // The socket accepts all of it.
                client.socket.write_all(&flight).unwrap();
                sent.send(()).unwrap();
                let mut answers = Vec::new();
                let _ = client.socket.read_to_end(&mut answers);
            },
        );
    }
}
