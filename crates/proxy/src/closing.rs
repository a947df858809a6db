//! The end of a client's connection where it is not the ordinary one.
//!
//! Closing a socket with unread input makes the kernel send a reset, which can overtake and destroy
//! what was said last. So after a last word the direction is shut, and what still comes is read and
//! dropped for a moment.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use offramp_http::h2::connection::{LINGERS, MOST_DROPPED, STILL};
use offramp_net::Socket;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::worker::Worker;

/// How long a client has to take a last word, and then to send more or to close.
const PATIENCE: Duration = Duration::from_millis(STILL);
/// How long it has in all: many clients look at the answer to an upload only when all of the upload has left.
const LONGEST: Duration = Duration::from_millis(LINGERS);
/// How much of it is read at a time, at the most: then others have a turn.
const PIECE: usize = 256 * 1024;
/// How many connections of a worker are waited for at a time. The next ones are closed without a wait.
const LINGERING: usize = 1000;

/// Sends `last`, ends the direction, and waits a moment for the peer to close, or for the end of a drain.
///
/// What comes meanwhile is dropped into the worker's scratch: a connection that lingers has no buffer.
pub(crate) async fn farewell(worker: &Worker, socket: &Socket, last: &[u8]) {
    let goodbye = async {
        let written = timeout(PATIENCE, socket.write_all(last)).await;
        written.map_err(|_| io::ErrorKind::TimedOut)??;
        socket.shutdown_write()?;
        let Some(_lingers) = Lingers::begin(&worker.lingering) else { return Ok(()) };
        drop_the_rest(worker, socket).await
    };
    // Who is told goodbye because the drain ends has its moment as well.
    let before = !worker.cut.is_now();
    tokio::select! {
        biased;
        () = worker.cut.wait(), if before => {}
        _ = timeout(LONGEST, goodbye) => {}
    }
}

/// Reads and drops as much as [`MOST_DROPPED`].
async fn drop_the_rest(worker: &Worker, socket: &Socket) -> io::Result<()> {
    let mut dropped = 0;
    loop {
        let read = poll_fn(|cx| {
            let bytes = &mut worker.scratch.borrow_mut().bytes;
            let most = bytes.len().min(PIECE);
            socket.poll_read(cx, &mut bytes[..most])
        });
        let read = timeout(PATIENCE, read).await.map_err(|_| io::ErrorKind::TimedOut)?;
        match read? {
            0 => return Ok(()),
            n if dropped + n > MOST_DROPPED as usize => return Ok(()),
            n => dropped += n,
        }
        yield_now().await;
    }
}

/// One of those that are waited for.
struct Lingers<'a>(&'a Cell<usize>);

impl<'a> Lingers<'a> {
    /// `None` where there are too many.
    fn begin(count: &'a Cell<usize>) -> Option<Self> {
        (count.get() < LINGERING).then(|| {
            count.set(count.get() + 1);
            Self(count)
        })
    }
}

impl Drop for Lingers<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::worker::rig;

    /// A connection whose client has sent this much and does not close.
    fn held(bytes: &[u8]) -> (TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(bytes).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, Socket::tcp(server.into()).unwrap())
    }

    #[test]
    fn who_lingers_has_no_buffer_of_its_own() {
        rig::block_on(|worker| async move {
            let (client, socket) = held(&[0x5a; 3000]);
            worker.scratch.borrow_mut().bytes.fill(0);
            let mut goodbye = Box::pin(farewell(&worker, &socket, b"last"));
            assert!(size_of_val(&*goodbye) <= 512, "{} bytes", size_of_val(&*goodbye));
            let dropped = poll_fn(|cx| {
                assert!(goodbye.as_mut().poll(cx).is_pending(), "the client has not closed");
                let dropped = worker.scratch.borrow().bytes[..3000].iter().all(|byte| *byte == 0x5a);
                if dropped { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            });
            dropped.await;
            assert_eq!(worker.lingering.get(), 1);
            drop(client);
            goodbye.await;
            assert_eq!(worker.lingering.get(), 0);
        });
    }

    #[test]
    fn only_so_many_linger_and_the_next_one_is_told_and_closed() {
        rig::block_on(|worker| async move {
            let count = Cell::new(0);
            let all: Vec<_> = (0..LINGERING + 5).filter_map(|_| Lingers::begin(&count)).collect();
            assert_eq!((all.len(), count.get()), (LINGERING, LINGERING));
            drop(all);
            assert_eq!(count.get(), 0);

            worker.lingering.set(LINGERING);
            let (mut client, socket) = held(b"");
            // The client keeps its side open, and is not waited for.
            farewell(&worker, &socket, b"last").await;
            drop(socket);
            let mut received = Vec::new();
            std::io::Read::read_to_end(&mut client, &mut received).unwrap();
            assert_eq!(received, b"last");
        });
    }
}
