//! A client of HTTP/2 that says whatever it is told: frames by hand (RFC 9113 §4.1), header fields as
//! literals (RFC 7541 §6.2.2). It knows just enough of answers to judge them.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::support::crowd::{Tls, connect, offering};

/// What a client says first (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 §6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// ACK of SETTINGS and PING.
pub(crate) const ACK: u8 = 1;
/// END_STREAM of DATA and HEADERS.
pub(crate) const END_STREAM: u8 = 1;
/// END_HEADERS of HEADERS and CONTINUATION.
pub(crate) const END_HEADERS: u8 = 4;
/// PADDED of DATA and HEADERS.
pub(crate) const PADDED: u8 = 8;
/// PRIORITY of HEADERS.
pub(crate) const PRIORITY: u8 = 0x20;
/// A whole request without a body.
pub(crate) const WHOLE: u8 = END_STREAM | END_HEADERS;

/// One frame.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, flags, stream, payload } = self;
        let start = &payload[..payload.len().min(40)];
        write!(f, "[type {kind} flags {flags} stream {stream}: {}]", start.escape_ascii())
    }
}

impl Frame {
    /// The number in the last four bytes of RST_STREAM, or behind the stream of GOAWAY.
    pub(crate) fn code(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    /// The status that a HEADERS frame begins with (RFC 9113 §8.3.2).
    ///
    /// # Panics
    /// If it begins with something else.
    pub(crate) fn status(&self) -> u16 {
        let mut block = &self.payload[..];
        // Updates of the size of the table (RFC 7541 §6.3), one byte each where the size is below 31.
        while block[0] >> 5 == 1 {
            block = &block[1..];
        }
        match block {
            // Entries 8 to 14 of the static table (RFC 7541 appendix A).
            [index @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)],
            [0x48..=0x4e | 0x08..=0x0e | 0x18..=0x1e, length, text @ ..] => {
                let text = &text[..usize::from(length & 0x7f)];
                let digits = if length & 0x80 == 0 { text.to_vec() } else { unhuffed(text) };
                String::from_utf8(digits).unwrap().parse().unwrap()
            }
            _ => panic!("no status in {self:?}"),
        }
    }
}

/// Three digits of the Huffman code (RFC 7541 appendix B): 0 to 2 have five bits, the others six.
fn unhuffed(text: &[u8]) -> Vec<u8> {
    let bits: String = text.iter().map(|byte| format!("{byte:08b}")).collect();
    let (mut rest, mut digits) = (&bits[..], Vec::new());
    while digits.len() < 3 {
        let five = u8::from_str_radix(&rest[..5], 2).unwrap();
        let (digit, length) = match five {
            0..=2 => (five, 5),
            _ => (u8::from_str_radix(&rest[..6], 2).unwrap() - 0x19 + 3, 6),
        };
        digits.push(b'0' + digit);
        rest = &rest[length..];
    }
    digits
}

/// The bytes of a frame whose head tells the truth about its length.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Fields as literals that leave no trace in the table (RFC 7541 §6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        text(&mut bytes, name.as_bytes());
        text(&mut bytes, value.as_bytes());
    }
    bytes
}

/// A string as it is (RFC 7541 §5.2).
pub(crate) fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    match u8::try_from(text.len()) {
        Ok(short @ ..127) => bytes.push(short),
        _ => {
            bytes.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap() | 0x80);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
        }
    }
    bytes.extend_from_slice(text);
}

/// HEADERS with all fields in it.
pub(crate) fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, flags, stream, &block(fields))
}

/// The fields of a request with a method, and `more` behind them.
pub(crate) fn request<'a>(
    method: &'a str,
    path: &'a str,
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let mut fields =
        vec![(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
    fields.extend_from_slice(more);
    fields
}

/// A whole GET.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    headers(stream, WHOLE, &request("GET", path, &[]))
}

/// A POST whose body is still to come.
pub(crate) fn post(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    headers(stream, END_HEADERS, &request("POST", path, more))
}

/// A setting (RFC 9113 §6.5.1).
pub(crate) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in pairs {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// WINDOW_UPDATE.
pub(crate) fn window(stream: u32, more: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// RST_STREAM.
pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// DATA.
pub(crate) fn data(stream: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, bytes)
}

/// A connection that has agreed on `h2`.
pub(crate) struct H2 {
    tls: Tls,
    unread: Vec<u8>,
    /// The port of the client's end, by which events name it.
    pub(crate) port: u16,
}

impl H2 {
    /// What frames go over.
    pub(crate) fn into_stream(self) -> Tls {
        self.tls
    }

    /// Nothing is said yet.
    pub(crate) fn silent(config: &Arc<ClientConfig>, address: SocketAddr) -> Self {
        let tls = connect(&offering(config, &["h2"]), address, "localhost").unwrap();
        assert_eq!(tls.conn.alpn_protocol(), Some(&b"h2"[..]));
        let port = tls.sock.local_addr().unwrap().port();
        Self { tls, unread: Vec::new(), port }
    }

    /// The preface and these settings are said.
    pub(crate) fn open(config: &Arc<ClientConfig>, address: SocketAddr, pairs: &[(u16, u32)]) -> Self {
        let mut h2 = Self::silent(config, address);
        assert!(h2.send(&[PREFACE, &settings(pairs)].concat()));
        h2
    }

    /// Sends bytes; `false` where the connection has ended.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.tls.write_all(bytes).and_then(|()| self.tls.flush()).is_ok()
    }

    /// Bounds how long the next frame is waited for.
    pub(crate) fn patience(&self, limit: std::time::Duration) {
        self.tls.sock.set_read_timeout(Some(limit)).unwrap();
    }

    /// The next frame; `None` at the end of the connection, or when none came in time.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, rest @ ..] = &self.unread[..]
                && let Some((stream, rest)) = rest.split_first_chunk()
                && let length = u32::from_be_bytes([0, *a, *b, *c]) as usize
                && rest.len() >= length
            {
                let payload = rest[..length].to_vec();
                let frame =
                    Frame { kind: *kind, flags: *flags, stream: u32::from_be_bytes(*stream), payload };
                self.unread.drain(..9 + length);
                return Some(frame);
            }
            let mut chunk = vec![0; 16 * 1024];
            match self.tls.read(&mut chunk) {
                Ok(n @ 1..) => self.unread.extend_from_slice(&chunk[..n]),
                _ => return None,
            }
        }
    }

    /// The next frame that is `wanted`; what comes before it is dropped.
    #[track_caller]
    pub(crate) fn find(&mut self, what: &str, wanted: impl Fn(&Frame) -> bool) -> Frame {
        let mut before = Vec::new();
        while let Some(frame) = self.next() {
            if wanted(&frame) {
                return frame;
            }
            before.push(frame);
        }
        panic!("no {what} in {before:?}");
    }

    /// Asks for `/` on a stream and expects 200.
    #[track_caller]
    pub(crate) fn is_well(&mut self, stream: u32) {
        assert!(self.send(&get(stream, "/well")), "the connection has ended");
        let answer = self.find("answer", |frame| frame.kind == kind::HEADERS && frame.stream == stream);
        assert_eq!(answer.status(), 200);
    }
}
