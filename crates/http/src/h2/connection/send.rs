//! What we send: heads, content, trailers, and the end of streams.

use bytes::Bytes;
use http::{Method, StatusCode};

use super::streams::{Remote, Stream};
use super::{Connection, LAST, ROOM, Role, Unopened};
use crate::h1::content_length;
use crate::h2::Code;
use crate::head::{Fields, Known, Request};
use crate::hpack::{Encoder, Indexing};

/// Heads beyond this much output wait for other connections.
const MOST_OUTPUT: usize = 4 * ROOM;
/// The longest path that is put into the table of fields: longer ones mostly come once.
const SHORT_PATH: usize = 64;
/// Data below this size that leaves no window is as small because the peer gave no more.
const SMALL: usize = 512;

impl<T> Connection<T> {
    /// Whether another stream can be opened (client): the peer allows one more, and the connection is not about to end.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.takes_streams() && self.streams.active < self.peer.max_streams
    }

    /// Whether streams can be opened, now or when others have ended (client).
    #[must_use]
    pub fn takes_streams(&self) -> bool {
        let closing = &self.closing;
        let ends = closing.over || closing.said.is_some() || closing.heard.is_some();
        !ends && self.output.len() < MOST_OUTPUT && self.streams.highest < LAST - 1
    }

    /// Opens a stream with the head of a request (client), and gives its number. `scheme` is `http` or `https`. `length`
    /// is said where no field says it. `end`: there is no content.
    ///
    /// How many streams the peer allows is for the caller to heed, with [`Connection::can_open`].
    ///
    /// # Errors
    /// Why none was opened, and `user` back.
    pub fn open(
        &mut self,
        user: T,
        request: &Request,
        scheme: &str,
        length: Option<u64>,
        end: bool,
    ) -> Result<u32, (Unopened, T)> {
        debug_assert!(self.role == Role::Client, "servers open no streams");
        if !self.takes_streams() {
            return Err((Unopened::Closed, user));
        }
        let Some(host) = request.host().filter(|host| is_authority(host)) else {
            return Err((Unopened::NoAuthority, user));
        };
        let id = if self.streams.highest == 0 { 1 } else { self.streams.highest + 2 };
        let windows = (self.peer.stream_window, self.first_room(), self.config.stream_window);
        let mut stream = Stream::new(id, user, windows, self.output.end());
        (stream.sent_all, stream.bodiless) = (end, request.method == Method::HEAD);
        self.streams.insert(stream);
        let encoder = &mut self.encoder;
        self.output.fields(id, end, self.peer.frame, |block| {
            encode_request(encoder, request, (scheme, host), length, block);
        });
        self.counted.traffic.answer();
        Ok(id)
    }

    /// Sends an interim response (server). Nothing happens where the stream is over.
    pub fn interim(&mut self, id: u32, status: StatusCode, fields: &Fields) {
        self.head(id, status, fields, false);
    }

    /// Sends the head of a response (server). `end`: there is no content. Nothing happens where the stream is over.
    pub fn respond(&mut self, id: u32, status: StatusCode, fields: &Fields, end: bool) {
        self.counted.traffic.answer();
        if let Some(stream) = self.streams.live(id) {
            stream.answered = true;
        }
        if let Some(said) = fields.get(Known::Priority) {
            self.streams.prioritize(id, |asked| asked.of_response(said));
        }
        self.head(id, status, fields, end);
    }

    fn head(&mut self, id: u32, status: StatusCode, fields: &Fields, end: bool) {
        self.fields(id, end, |encoder, block| {
            encoder.begin(block);
            encoder.status(status.as_u16(), block);
            fields.iter().for_each(|(name, value)| field(encoder, name, value, block));
        });
    }

    /// How many bytes of content may be sent on a stream now. Where it is 0, [`Event::Writable`] says when that changes,
    /// unless the stream is over.
    ///
    /// [`Event::Writable`]: super::Event::Writable
    pub fn capacity(&mut self, id: u32) -> usize {
        let full = self.output.len() >= ROOM;
        let window = self.flow.window;
        let Some(stream) = self.streams.live(id) else { return 0 };
        let room = stream.flow.window.min(window);
        stream.flow.blocked = full || room <= 0;
        if stream.flow.blocked {
            return 0;
        }
        // Both are positive, and bounded by the size of a frame.
        self.peer.frame.min(room as usize)
    }

    /// Sends content, at most [`Connection::capacity`] bytes of it; `end`: it is the last. Gives whether the stream is
    /// still there.
    ///
    /// # Panics
    /// Never in release builds; in others if it is more than may be sent.
    pub fn data(&mut self, id: u32, data: Bytes, end: bool) -> bool {
        let Some(stream) = self.streams.live(id).filter(|stream| !stream.sent_all) else { return false };
        // No frame is longer than 24 bits can say.
        let n = data.len() as i64;
        debug_assert!(n == 0 || n <= stream.flow.window.min(self.flow.window), "more than the window");
        self.flow.window -= n;
        stream.flow.window -= n;
        let blocked = stream.flow.window <= 0 || self.flow.window <= 0;
        stream.sent_all = end;
        match data.len() {
            0 => {}
            small @ ..SMALL if blocked && !end => self.counted.traffic.dribble(small),
            n => self.counted.traffic.data(n),
        }
        self.streams.turn = id;
        self.output.data(id, data, end);
        if end {
            self.streams.settle(id);
        }
        true
    }

    /// Sends trailers, which end our direction.
    pub fn trailers<'f>(&mut self, id: u32, trailers: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        self.fields(id, true, |encoder, block| {
            encoder.begin(block);
            trailers.for_each(|(name, value)| field(encoder, name, value, block));
        });
    }

    fn fields(&mut self, id: u32, end: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let Some(stream) = self.streams.live(id).filter(|stream| !stream.sent_all) else { return };
        stream.sent_all = end;
        let encoder = &mut self.encoder;
        self.output.fields(id, end, self.peer.frame, |block| write(encoder, block));
        if end {
            self.streams.settle(id);
        }
    }

    /// Ends a stream at once. Nothing happens where it is over.
    pub fn reset(&mut self, id: u32, code: Code) {
        let Some(stream) = self.streams.live(id) else { return };
        if stream.sent_all && stream.remote == Remote::Ended {
            return;
        }
        stream.reset = true;
        self.streams.settle(id);
        self.streams.remember(id);
        if !self.closing.over {
            self.output.reset(id, code);
        }
    }

    /// Forgets a stream, and ends it at once with `code` if it has not ended. What the user has of its data and did not
    /// release, the peer may send again on the connection.
    pub fn forget(&mut self, id: u32, code: Code) -> Option<T> {
        self.reset(id, code);
        let stream = self.streams.remove(id)?;
        self.used(stream.flow.held);
        Some(stream.user)
    }

    /// The user has used `n` bytes of a stream's data: the peer may send as much again.
    pub fn release(&mut self, id: u32, n: usize) {
        let Some(stream) = self.streams.get(id) else { return };
        // No more than the window was given.
        let n = (n as u32).min(stream.flow.held);
        stream.flow.held -= n;
        stream.flow.owed += n;
        self.say_window(id);
        self.used(n);
    }

    /// How much data of the peer's there may be on a stream at a time, sent and not released: at least
    /// [`Config::stream_window`], with which it begins. A larger window is said to the peer at once, in one frame for all
    /// of it; a smaller one takes effect as data is released. Gives what there may be now.
    ///
    /// [`Config::stream_window`]: super::Config::stream_window
    pub fn set_window(&mut self, id: u32, target: u32) -> u32 {
        let least = self.config.stream_window;
        let Some(stream) = self.streams.get(id) else { return least };
        let (flow, target) = (&mut stream.flow, target.clamp(least, LAST));
        if target < flow.target {
            let less = (flow.target - target).min(flow.owed);
            flow.target -= less;
            flow.owed -= less;
        } else {
            flow.owed += target - flow.target;
            flow.target = target;
        }
        let target = flow.target;
        self.say_window(id);
        target
    }

    /// Tells the peer of what it may send again on a stream, if that is worth a frame.
    fn say_window(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        let half = stream.flow.target / 2;
        if stream.flow.owed >= half && stream.is_live() && stream.remote != Remote::Ended {
            let owed = std::mem::take(&mut stream.flow.owed);
            stream.flow.room += i64::from(owed);
            self.output.window(id, owed);
        }
    }

    /// The user has used `n` bytes of the connection's window.
    fn used(&mut self, n: u32) {
        if self.config.shared_window {
            self.give_back(n);
        }
    }

    /// The peer may send `n` bytes more on the connection.
    pub(super) fn give_back(&mut self, n: u32) {
        let flow = &mut self.flow;
        flow.owed += n;
        if flow.owed >= self.config.connection_window / 2 && !self.closing.over {
            flow.room += i64::from(flow.owed);
            self.output.window(0, std::mem::take(&mut flow.owed));
        }
    }
}

/// Whether it can be `:authority`: something visible, and no user information (RFC 9113 §8.3.1).
fn is_authority(host: &[u8]) -> bool {
    !host.is_empty() && host.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'@')
}

/// The head of a request, without the fields of a connection (RFC 9113 §8.2.2).
fn encode_request(
    encoder: &mut Encoder,
    request: &Request,
    (scheme, host): (&str, &[u8]),
    length: Option<u64>,
    block: &mut Vec<u8>,
) {
    encoder.begin(block);
    encoder.field(b":method", request.method.as_str().as_bytes(), Indexing::Yes, block);
    // What is behind such a host is no resource (RFC 9113 §8.5).
    if request.method != Method::CONNECT {
        let path = request.target().as_bytes();
        let short = path.len() <= SHORT_PATH && !path.contains(&b'?');
        encoder.field(b":scheme", scheme.as_bytes(), Indexing::Yes, block);
        encoder.field(b":path", path, if short { Indexing::Yes } else { Indexing::No }, block);
    }
    encoder.field(b":authority", host, Indexing::Yes, block);
    request.fields.iter().for_each(|(name, value)| field(encoder, name, value, block));
    if let Some(length) = length.filter(|_| !request.fields.contains(Known::ContentLength)) {
        encoder.field(b"content-length", length.to_string().as_bytes(), Indexing::No, block);
    }
}

/// A field, unless it is one of a connection, or says what `:authority` says.
fn field(encoder: &mut Encoder, name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    let indexing = match name {
        b"connection" | b"host" | b"http2-settings" | b"keep-alive" | b"proxy-connection"
        | b"transfer-encoding" | b"upgrade" => return,
        b"te" if value != b"trailers" => return,
        // Whose secret it is must not be found out by trying (RFC 7541 §7.1.3).
        b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie" => Indexing::Never,
        // Said once, and never again.
        b"age" | b"content-length" | b"content-range" | b"etag" | b"grpc-timeout" | b"if-modified-since"
        | b"if-none-match" | b"location" | b"range" | b"traceparent" | b"tracestate" | b"x-request-id" => {
            Indexing::No
        }
        _ => Indexing::Yes,
    };
    encoder.field(name, value, indexing, block);
}

/// The length that the fields of a message say: `Err` where they say none that can be, or two.
pub(super) fn said_length(fields: &Fields) -> Result<Option<u64>, ()> {
    let mut said = None;
    for value in fields.all(Known::ContentLength) {
        let length = match content_length(value) {
            Ok(length) => length,
            Err(_) => return Err(()),
        };
        if said.replace(length).is_some_and(|before| before != length) {
            return Err(());
        }
    }
    Ok(said)
}
