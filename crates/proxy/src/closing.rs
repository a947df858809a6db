//! The end of a client's connection where it is not the ordinary one.
//!
//! Closing a socket with unread input makes the kernel send a reset, which can overtake and destroy
//! what was said last. So after the last bytes the direction is shut, and what still comes is read and
//! dropped for a moment.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use offramp_http::h2::connection::{LINGERS, MOST_DROPPED, STILL};
use offramp_net::Socket;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::resources::Resources;

/// The time that a client has to take the last bytes, and then to send more or to close.
const PATIENCE: Duration = Duration::from_millis(STILL);
/// The time that it has in all: many clients read the response to an upload only when all of the upload has left.
const LONGEST: Duration = Duration::from_millis(LINGERS);
/// The most bytes of one read: then others have a turn.
const PIECE: usize = 256 * 1024;
/// The connections of a worker that linger at a time. More are closed without a wait.
const LINGERING: usize = 1000;

/// Sends `last`, ends the direction, and waits a moment for the peer to close, or for the end of a drain.
///
/// Bytes that come meanwhile are dropped into the worker's scratch: a connection that lingers has no buffer.
pub(crate) async fn farewell(worker: &Resources, socket: &Socket, last: &[u8]) {
    let goodbye = async {
        let written = timeout(PATIENCE, socket.write_all(last)).await;
        written.map_err(|_| io::ErrorKind::TimedOut)??;
        socket.shutdown_write()?;
        let Some(_lingers) = Lingers::begin(&worker.lingering) else { return Ok(()) };
        drop_the_rest(worker, socket).await
    };
    // A farewell that is said because the drain ends has its moment as well.
    let before = !worker.drain.is_cut();
    tokio::select! {
        biased;
        () = worker.drain.cut(), if before => {}
        _ = timeout(LONGEST, goodbye) => {}
    }
}

/// Reads and drops as much as [`MOST_DROPPED`].
async fn drop_the_rest(worker: &Resources, socket: &Socket) -> io::Result<()> {
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

/// A connection that lingers, for the count of the worker.
struct Lingers<'a>(&'a Cell<usize>);

impl<'a> Lingers<'a> {
    /// `None` where too many linger.
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
    fn a_connection_that_lingers_has_no_buffer_of_its_own() {
        rig::block_on(|event_loop| async move {
            let worker = &event_loop.resources;
            let (client, socket) = held(&[0x5a; 3000]);
            worker.scratch.borrow_mut().bytes.fill(0);
            let mut goodbye = Box::pin(farewell(worker, &socket, b"last"));
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
    fn only_so_many_linger_and_the_next_one_is_closed_behind_its_last_bytes() {
        rig::block_on(|event_loop| async move {
            let worker = &event_loop.resources;
            let count = Cell::new(0);
            let all: Vec<_> = (0..LINGERING + 5).filter_map(|_| Lingers::begin(&count)).collect();
            assert_eq!((all.len(), count.get()), (LINGERING, LINGERING));
            drop(all);
            assert_eq!(count.get(), 0);

            worker.lingering.set(LINGERING);
            let (mut client, socket) = held(b"");
            // The client keeps its side open, and is not waited for.
            farewell(worker, &socket, b"last").await;
            drop(socket);
            let mut received = Vec::new();
            std::io::Read::read_to_end(&mut client, &mut received).unwrap();
            assert_eq!(received, b"last");
        });
    }
}
