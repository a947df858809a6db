//! Whatever cuts a client makes: what is held is bounded by what the guard needs in one piece.

use std::future::poll_fn;
use std::io::Write as _;
use std::os::unix::net::UnixStream;

use offramp_net::Socket;
use tokio::runtime::{Builder, LocalOptions};

use super::*;

/// As clients may have them by default.
const LIMITS: HeadLimits = HeadLimits { head: 32 * 1024, target: 8 * 1024, fields: 100, connect: false };
/// What is read at a time.
const ROOM: usize = 64 * 1024;

/// Runs a test with both ends of a connection.
fn over(test: impl AsyncFnOnce(RequestReader, UnixStream)) {
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let transport = Transport::plain(Socket::unix(near.into()).unwrap(), Buffer::default());
        test(RequestReader::new(transport, GuardState::new(LIMITS), Rc::default()), far).await;
    });
}

/// Lets the intake read what was sent, and gives what it made of that.
async fn now<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let mut poll = poll;
    // The socket tells of what has come when the loop has looked.
    for _ in 0..3 {
        if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(poll(cx))).await {
            return Poll::Ready(outcome);
        }
        tokio::task::yield_now().await;
    }
    Poll::Pending
}

async fn begin(intake: &mut RequestReader, far: &mut UnixStream) -> RequestHead {
    far.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    match poll_fn(|cx| intake.poll_head(cx)).await {
        Heading::Request(head, _) => head,
        _ => panic!("no head"),
    }
}

/// Each piece ends within the line of a chunk size, so that something is always held.
#[test]
fn chunk_sizes_that_are_split_hold_little() {
    for (size, cut) in [(1, 1), (10, 1), (1000, 2), (5000, 3), (16_000, 1)] {
        over(async |mut intake, mut far| {
            begin(&mut intake, &mut far).await;
            let (mut message, mut most, mut got) = (Chunked::new(), 0, 0);
            let chunk = [format!("{size:06x}\r\n").as_bytes(), &vec![7; size], b"\r\n"].concat();
            far.write_all(&chunk[..cut]).unwrap();
            let turned = [&chunk[cut..], &chunk[..cut]].concat();
            let rounds = ((8 << 20) / chunk.len()).min(20_000);
            for _ in 0..rounds {
                far.write_all(&turned).unwrap();
                while let Poll::Ready(data) = now(|cx| intake.poll_chunks(cx, &mut message)).await {
                    got += data.unwrap().unwrap().len();
                }
                most = most.max(intake.held.capacity());
            }
            assert_eq!(got, rounds * size);
            assert!(most <= 4 * ROOM, "{size} {cut}: {most} bytes are held");
        });
    }
}

/// Requests that are sent ahead, each piece of which ends within a head.
#[test]
fn heads_that_are_cut_hold_little() {
    over(async |mut intake, mut far| {
        let head = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(500)).into_bytes();
        let turned = [&head[100..], &head[..100]].concat();
        far.write_all(&head[..100]).unwrap();
        let (mut count, mut most) = (0, 0);
        for _ in 0..20_000 {
            far.write_all(&turned).unwrap();
            while let Poll::Ready(Heading::Request(..)) = now(|cx| intake.poll_head(cx)).await {
                count += 1;
            }
            most = most.max(intake.held.capacity());
        }
        assert_eq!(count, 20_000);
        assert!(most <= 4 * ROOM, "{most} bytes are held");
    });
}

/// A chunk of a byte costs as much as one of a thousand: after a turn of them others have theirs.
#[test]
fn chunks_of_a_byte_have_no_longer_turns() {
    over(async |mut intake, mut far| {
        begin(&mut intake, &mut far).await;
        let mut message = Chunked::new();
        let sender = std::thread::spawn(move || {
            for _ in 0..100 {
                far.write_all(&b"1\r\nx\r\n".repeat(1000)).unwrap();
            }
            far
        });
        let mut got = 0;
        while got < 100_000 {
            let data = poll_fn(|cx| intake.poll_chunks(cx, &mut message)).await.unwrap().unwrap();
            assert!(data.len() <= 2000, "{} chunks at a time", data.len());
            got += data.len();
        }
        sender.join().unwrap();
    });
}

/// Content that has come whole is forgotten whole, though the turn of its connection is over.
#[test]
fn the_end_of_a_turn_does_not_look_like_content_that_is_missing() {
    over(async |mut intake, mut far| {
        begin(&mut intake, &mut far).await;
        far.write_all(b"5\r\nhello\r\n0\r\n\r\n").unwrap();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        intake.turn.spend(Work::Bytes(usize::MAX));
        assert!(poll_fn(|cx| Poll::Ready(intake.forget_content(cx))).await);
        assert!(intake.is_between());
    });
}
