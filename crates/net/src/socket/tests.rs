use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::task::Waker;

use tokio::task::yield_now;

use super::*;

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (near, far)
}

/// A connected pair over TCP: the near end is registered, the far end is not.
async fn tcp() -> (Socket, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (Socket::tcp(near.into()).unwrap(), far)
}

fn fill(socket: &Socket, cx: &mut Context<'_>) -> usize {
    let mut sent = 0;
    while let Poll::Ready(n) = socket.poll_write(cx, &[7; 65_536]) {
        sent += n.unwrap();
    }
    sent
}

fn drain(far: &mut impl io::Read) -> usize {
    let mut bin = vec![0; 65_536];
    std::iter::from_fn(|| far.read(&mut bin).ok()).sum()
}

#[tokio::test]
async fn a_blocked_write_resumes() {
    let (near, far) = pair();
    let unix = Socket::unix(near.into()).unwrap();
    let (tcp, far_tcp) = tcp().await;
    let rows: [(Socket, Box<dyn io::Read>); 2] = [(unix, Box::new(far)), (tcp, Box::new(far_tcp))];
    for (socket, mut far) in rows {
        for _ in 0..3 {
            let mut cx = Context::from_waker(Waker::noop());
            let sent = fill(&socket, &mut cx);
            assert!(sent > 0);
            let mut read = 0;
            // TCP delivers with a delay.
            while read < sent {
                read += drain(&mut far);
            }
            let n = std::future::poll_fn(|cx| socket.poll_write(cx, b"x")).await.unwrap();
            assert_eq!(n, 1);
            while drain(&mut far) == 0 {}
        }
    }
}

/// If the descriptor cannot be duplicated, the timer replaces readiness.
#[tokio::test]
async fn a_socket_without_registration_is_retried() {
    let (near, mut far) = pair();
    let socket = Socket::unix(near.into()).unwrap();
    fill(&socket, &mut Context::from_waker(Waker::noop()));
    let mut write = |fd: BorrowedFd<'_>| send(fd, b"x", SendFlags::NOSIGNAL);
    let mut sent = pin!(std::future::poll_fn(|cx| {
        if socket.is_unwatched() {
            ready!(socket.poll_retry(cx));
        }
        socket.poll_unwatched_write(cx, &mut write)
    }));
    for _ in 0..3 {
        assert!(sent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        sleep(2 * RETRY).await;
    }
    drain(&mut far);
    assert_eq!(sent.await.unwrap(), 1);
}

#[tokio::test]
async fn a_paused_socket_is_read_and_registered_again() {
    let (socket, mut far) = tcp().await;
    socket.pause_reading();
    assert!(socket.watch.borrow().is_none());
    io::Write::write_all(&mut far, b"hello").unwrap();
    let mut buffer = [0; 16];
    // Bytes that have arrived are read without a registration.
    while socket.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer).is_pending() {
        socket.pause_reading();
    }
    assert!(socket.watch.borrow().is_none());
    let mut reading = pin!(socket.read(&mut buffer));
    assert!(reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(socket.watch.borrow().is_some());
    io::Write::write_all(&mut far, b"bye").unwrap();
    assert_eq!(reading.await.unwrap(), 3);
}

#[tokio::test]
async fn reading_is_not_paused_during_a_blocked_write() {
    let (socket, mut far) = tcp().await;
    let sent = fill(&socket, &mut Context::from_waker(Waker::noop()));
    socket.pause_reading();
    assert!(socket.watch.borrow().is_some());
    let mut read = 0;
    while read < sent {
        read += drain(&mut far);
        yield_now().await;
    }
    std::future::poll_fn(|cx| socket.poll_write(cx, b"x")).await.unwrap();
    socket.pause_reading();
    assert!(socket.watch.borrow().is_none());
    // A write that has to wait needs the registration again.
    fill(&socket, &mut Context::from_waker(Waker::noop()));
    assert!(socket.watch.borrow().is_some());
}

fn watches_room(socket: &Socket) -> bool {
    socket.rare.borrow().as_ref().is_some_and(|rare| rare.writable.is_some())
}

/// Each proxied connection has two sockets.
#[test]
fn an_idle_socket_is_small() {
    assert!(size_of::<Socket>() <= 64, "{} bytes", size_of::<Socket>());
}

#[tokio::test]
async fn a_unix_socket_is_registered_for_writing_while_there_is_something_to_write() {
    let (near, mut far) = pair();
    let socket = Socket::unix(near.into()).unwrap();
    for _ in 0..3 {
        assert!(!watches_room(&socket));
        let sent = fill(&socket, &mut Context::from_waker(Waker::noop()));
        // A write waits.
        socket.pause_writing();
        assert!(watches_room(&socket));
        assert_eq!(drain(&mut far), sent);
        std::future::poll_fn(|cx| socket.poll_write(cx, b"x")).await.unwrap();
        // The next write would block at once.
        assert!(watches_room(&socket));
        socket.pause_writing();
        assert!(!watches_room(&socket));
        drain(&mut far);
    }
}

#[tokio::test]
async fn a_peer_has_left_after_its_last_byte_is_read() {
    let (socket, far) = tcp().await;
    assert!(!socket.peer_left());
    (&far).write_all(b"x").unwrap();
    drop(far);
    let mut byte = [0];
    // The byte and the end arrive in order, possibly not yet.
    std::future::poll_fn(|cx| socket.poll_read(cx, &mut byte)).await.unwrap();
    while !socket.peer_left() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let (socket, far) = tcp().await;
    rustix::net::sockopt::set_socket_linger(&far, Some(std::time::Duration::ZERO)).unwrap();
    drop(far);
    while !socket.peer_left() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
