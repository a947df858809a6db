//! An application that is strict about requests, and keeps every byte that it was sent.
//!
//! `GET /bytes/N` is answered with so many bytes, everything else with its body, or `ok` where there is none.
//! On a connection that was asked for `/deaf` nothing more is read or said.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex};

use offramp_testkit::server::{Address, Listen, Server, Stream};

/// A running application.
pub(crate) struct Backend {
    server: Server,
    seen: Arc<Seen>,
}

/// What it was sent.
#[derive(Default)]
struct Seen {
    raw: Mutex<Vec<u8>>,
    whole: Mutex<Vec<Request>>,
    deaf: Mutex<Vec<Stream>>,
}

/// A request that came whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The head with its empty line.
    pub(crate) head: String,
    /// The body as it was sent, chunks and trailers included.
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The head without what the proxy tells of the client, which differs from connection to connection.
    pub(crate) fn plain_head(&self) -> String {
        let told = |line: &&str| {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            name.starts_with("x-forwarded-") || matches!(&*name, "forwarded" | "x-request-id" | "x-real-ip")
        };
        self.head.split_inclusive("\r\n").filter(|line| !told(line)).collect()
    }
}

impl Backend {
    pub(crate) fn start() -> Self {
        let seen = Arc::<Seen>::default();
        let server = Server::start(&Listen::Ipv4, {
            let seen = Arc::clone(&seen);
            move |stream| {
                let open = stream.try_clone();
                // A client that goes away in the middle is no news.
                if serve(stream, &seen).is_err_and(|error| error.kind() == std::io::ErrorKind::Other)
                    && let Ok(open) = open
                {
                    seen.deaf.lock().unwrap().push(open);
                }
            }
        });
        Self { server: server.unwrap(), seen }
    }

    pub(crate) fn address(&self) -> &Address {
        self.server.address()
    }

    /// How many requests have begun since [`Backend::take`].
    pub(crate) fn heads(&self) -> usize {
        let raw = self.seen.raw.lock().unwrap();
        raw.windows(11).filter(|bytes| bytes == b" HTTP/1.1\r\n").count()
    }

    /// All bytes and all whole requests since this was last asked.
    pub(crate) fn take(&self) -> (Vec<u8>, Vec<Request>) {
        (
            std::mem::take(&mut self.seen.raw.lock().unwrap()),
            std::mem::take(&mut self.seen.whole.lock().unwrap()),
        )
    }
}

/// Keeps what is read through it.
struct Tap<'s> {
    stream: Stream,
    seen: &'s Seen,
}

impl Read for Tap<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.stream.read(buffer)?;
        self.seen.raw.lock().unwrap().extend_from_slice(&buffer[..n]);
        Ok(n)
    }
}

fn serve(stream: Stream, seen: &Seen) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(Tap { stream, seen });
    while let Some(request) = read(&mut reader)? {
        let target = request.head.split(' ').nth(1).unwrap_or_default().to_owned();
        let body = match target.strip_prefix("/bytes/") {
            Some(count) => vec![b'x'; count.parse().unwrap_or(0)],
            None if request.body.is_empty() => b"ok".to_vec(),
            None => request.body.clone(),
        };
        let head = request.head.starts_with("HEAD ");
        seen.whole.lock().unwrap().push(request);
        write!(out, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len())?;
        if !head {
            out.write_all(&body)?;
        }
    }
    Ok(())
}

/// One request; `None` at the end, or where what comes is none.
fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let lower = head.to_ascii_lowercase();
    let field = |name: &str| {
        let mut lines = lower.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.next().map(|value| value.trim().to_owned())
    };
    let mut body = Vec::new();
    if head.split(' ').nth(1) == Some("/deaf") {
        return Err(std::io::ErrorKind::Other.into());
    }
    if field("transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            body.extend_from_slice(line.as_bytes());
            let Ok(size) = usize::from_str_radix(line.trim_end(), 16) else { return Ok(None) };
            if size == 0 {
                break;
            }
            let begun = body.len();
            body.resize(begun + size + 2, 0);
            reader.read_exact(&mut body[begun..])?;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            body.extend_from_slice(line.as_bytes());
            if line == "\r\n" {
                break;
            }
        }
    } else if let Some(length) = field("content-length") {
        let Ok(length) = length.parse() else { return Ok(None) };
        body = vec![0; length];
        reader.read_exact(&mut body)?;
    }
    Ok(Some(Request { head, body }))
}
