//! A server whose connections follow a script, on threads of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Timeout of a script's reads.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; stopped when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A connection within a script.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    /// Number of the connection, from 0.
    pub(crate) number: usize,
    /// Bytes read behind the last request.
    pub(crate) ahead: Vec<u8>,
}

impl Server {
    /// Runs `script` for each connection, on a thread of its own.
    pub(crate) fn start(script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let script = Arc::new(script);
        let (count, stopped) = (Arc::clone(&connections), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                let peer = Peer { stream, number: count.fetch_add(1, Ordering::SeqCst), ahead: Vec::new() };
                let script = Arc::clone(&script);
                std::thread::spawn(move || script(peer));
            }
        });
        Server { address, connections, stop, thread: Some(thread) }
    }

    /// Responds to every request with `response`.
    pub(crate) fn steady(response: &'static str) -> Self {
        Server::start(move |mut peer| while peer.answer(response).is_some() {})
    }

    /// Number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Peer {
    /// Head of the next request; `None` if the client closes instead.
    pub(crate) fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.ahead.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = self.ahead.split_off(end + 4);
                let head = std::mem::replace(&mut self.ahead, rest);
                return Some(String::from_utf8(head).unwrap());
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.ahead.extend_from_slice(&buffer[..n]),
            }
        }
    }

    /// The next `n` bytes of a body.
    pub(crate) fn body(&mut self, n: usize) -> Vec<u8> {
        let mut body: Vec<u8> = self.ahead.drain(..n.min(self.ahead.len())).collect();
        let have = body.len();
        body.resize(n, 0);
        self.stream.read_exact(&mut body[have..]).unwrap();
        body
    }

    /// Sends bytes; errors of a closed connection are ignored.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Responds to the next request, which has no body.
    pub(crate) fn answer(&mut self, response: &str) -> Option<String> {
        let head = self.head()?;
        self.say(response);
        Some(head)
    }

    /// Waits until the client closes.
    pub(crate) fn wait_for_close(&mut self) {
        let mut buffer = [0; 4096];
        while matches!(self.stream.read(&mut buffer), Ok(1..)) {}
    }
}

/// A response with a body of known length.
pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
