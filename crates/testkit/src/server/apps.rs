//! Behaviours of applications that work: echo, HTTP/1.1, large transfers.
//!
//! Each is a function for [`Server::start`](super::Server::start). A peer that goes away ends the
//! behaviour in silence: judging is the test's business.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;

use super::{Pattern, Stream, Sum};

/// Sends back whatever comes, and closes after the peer has closed.
pub fn echo(mut stream: Stream) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        if stream.write_all(&chunk[..length]).is_err() {
            return;
        }
    }
    // The peer may be gone already.
    let _ = stream.shutdown(Shutdown::Write);
}

/// HTTP/1.1 with keep-alive and Content-Length: answers `GET` with `hello PATH`, and any request that
/// has a body with that body. `Connection: close` is obeyed. Chunked bodies are refused with a 411.
pub fn http(stream: Stream) {
    // A peer that goes away in the middle of a request is no news to an application.
    let _ = http_until_close(stream);
}

/// Reads to the end, then answers with the [`Sum`] of what came, as one line.
pub fn sink(mut stream: Stream) {
    let (mut sum, mut chunk) = (Sum::new(), vec![0; CHUNK]);
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        sum.add(&chunk[..length]);
    }
    let _ = writeln!(stream, "{sum}");
    let _ = stream.shutdown(Shutdown::Write);
}

/// Sends `length` bytes of the [`Pattern`] with this seed to each peer, then closes.
pub fn source(seed: u64, length: u64) -> impl Fn(Stream) + Send + Sync + 'static {
    move |mut stream| {
        let (mut pattern, mut chunk, mut left) = (Pattern::new(seed), vec![0; CHUNK], length);
        while left > 0 {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
            pattern.fill(&mut chunk[..take]);
            if stream.write_all(&chunk[..take]).is_err() {
                return;
            }
            left -= take as u64;
        }
        let _ = stream.shutdown(Shutdown::Write);
        // Closing with bytes unread would be a reset, which could overtake the data.
        drain(&mut stream);
    }
}

/// Reads and forgets until the peer closes or the stream's timeout strikes.
pub(crate) fn drain(stream: &mut impl Read) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(1..) = stream.read(&mut chunk) {}
}

fn http_until_close(mut stream: Stream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = Request::read(&mut reader)? {
        let (status, body) = match (request.chunked, request.body) {
            (true, _) => ("411 Length Required", Vec::new()),
            (false, body) if body.is_empty() => ("200 OK", format!("hello {}\n", request.path).into_bytes()),
            (false, body) => ("200 OK", body),
        };
        let close = request.close || request.chunked;
        let connection = if close { "close" } else { "keep-alive" };
        let mut answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: {connection}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        if request.method != "HEAD" {
            answer.extend_from_slice(&body);
        }
        stream.write_all(&answer)?;
        if close {
            break;
        }
    }
    stream.shutdown(Shutdown::Write)
}

/// As much of a request as the server above wants to know.
struct Request {
    method: String,
    path: String,
    close: bool,
    chunked: bool,
    body: Vec<u8>,
}

impl Request {
    /// `None` at the end of the connection.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (mut length, mut close, mut chunked) = (0, false, false);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap_or(0),
                "connection" => close = value.eq_ignore_ascii_case("close"),
                "transfer-encoding" => chunked = true,
                _ => {}
            }
        }
        let mut body = Vec::new();
        reader.take(length).read_to_end(&mut body)?;
        Ok(Some(Self { method, path, close, chunked, body }))
    }
}

/// Bytes of each behaviour's buffer.
const CHUNK: usize = 64 * 1024;
