//! Hand-made frames, and connections that receive them.

use bytes::Bytes;
use http::Method;
use offramp_http::h2::{Code, Config, Connection, Event, FrameHeader, HEAD, Kind, Reset, Violation};
use offramp_http::head::{Fields, Request};
use offramp_http::hpack::{HpackEncoder, Indexing};

pub(super) const CONFIG: Config = Config {
    stream_window: 1000,
    connection_window: 100_000,
    shared_window: true,
    growth: 0,
    max_streams: 100,
    max_head: 2000,
};

/// Events of a stream.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// Status codes of responses, or 0 for a request.
    pub(super) heads: Vec<u16>,
    pub(super) data: Vec<u8>,
    pub(super) end: bool,
    pub(super) trailers: Option<Fields>,
    pub(super) reset: Option<Reset>,
    /// Number of `Writable` events.
    pub(super) writable: usize,
}

impl Came {
    pub(super) fn put(&mut self, event: Event<'_>) {
        assert!(self.reset.is_none() || matches!(event, Event::Writable), "behind a reset: {event:?}");
        match event {
            Event::Request { end, .. } => {
                self.heads.push(0);
                self.end = end;
            }
            Event::Interim(response) => self.heads.push(response.status.as_u16()),
            Event::Response { response, end, .. } => {
                self.heads.push(response.status.as_u16());
                self.end = end;
            }
            Event::Data(data) => {
                assert!(!data.is_empty() && !self.end);
                self.data.extend_from_slice(data);
            }
            Event::End(trailers) => {
                assert!(!self.end);
                (self.end, self.trailers) = (true, trailers);
            }
            Event::Writable => self.writable += 1,
            Event::Stalled(_) => {}
            Event::Reset(reset) => self.reset = Some(reset),
        }
    }
}

/// Encodes one frame.
pub(super) fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHeader { length: payload.len(), kind, flags, stream };
    [&head.bytes()[..], payload].concat()
}

/// A header block without use of the tables.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut block) = (HpackEncoder::new(), Vec::new());
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Never, &mut block);
    }
    block
}

/// HEADERS with a whole block; `flags` are added to END_HEADERS.
pub(super) fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(Kind::Headers, flags | 4, stream, &block(fields))
}

/// Head of a request for a path.
pub(super) fn request(method: Method, path: &str) -> Request {
    let mut request = Request::new();
    request.set_method(method);
    request.set_target(path.as_bytes());
    request.fields.set_host(b"a.test");
    request
}

/// A client with open streams 1 (GET), 3 (HEAD) and 5 (POST without its end), after the exchange of settings.
pub(super) fn client() -> Connection<Came> {
    let mut client = Connection::client(CONFIG, 0);
    for (method, end) in [(Method::GET, true), (Method::HEAD, true), (Method::POST, false)] {
        client.open(Came::default(), &request(method, "/"), "https", None, end).unwrap();
    }
    let settings = [frame(Kind::Settings, 0, 0, &[]), frame(Kind::Settings, 1, 0, &[])].concat();
    receive(&mut client, &settings).unwrap();
    sent(&mut client);
    client
}

/// Passes bytes to a connection.
pub(super) fn receive(connection: &mut Connection<Came>, bytes: &[u8]) -> Result<usize, Violation> {
    connection.receive(bytes, 0, &mut |_, came, event| came.put(event))
}

/// Takes the output of a connection.
pub(super) fn output(connection: &mut Connection<Came>, most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < most && !connection.output().is_empty() {
        let mut parts = [std::io::IoSlice::new(&[])];
        assert_eq!(connection.output().slices(&mut parts), 1);
        let n = parts[0].len().min(most - out.len());
        out.extend_from_slice(&parts[0][..n]);
        connection.output_moved(n, &mut |_, came, event| came.put(event));
    }
    out
}

/// Frames in the output of a connection: type, flags, stream and payload.
pub(super) fn sent(connection: &mut Connection<Came>) -> Vec<(Kind, u8, u32, Vec<u8>)> {
    let bytes = output(connection, usize::MAX);
    let mut rest = bytes.strip_prefix(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]).unwrap_or(&bytes);
    let mut frames = Vec::new();
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD>() {
        let head = FrameHeader::read(head);
        let (payload, behind) = behind.split_at(head.length);
        frames.push((head.kind, head.flags, head.stream, payload.to_vec()));
        rest = behind;
    }
    frames
}

/// Stream and code of each RST_STREAM among frames.
pub(super) fn resets(frames: &[(Kind, u8, u32, Vec<u8>)]) -> Vec<(u32, Code)> {
    let code = |payload: &[u8]| Code(u32::from_be_bytes(payload.try_into().unwrap()));
    let resets = frames.iter().filter(|(kind, ..)| *kind == Kind::ResetStream);
    resets.map(|(_, _, stream, payload)| (*stream, code(payload))).collect()
}

/// Content of `n` bytes.
pub(super) fn content(n: usize) -> Bytes {
    vec![b'x'; n].into()
}
