//! The model of a proxy is no proxy: any sequence of requests over one connection gives what it gives where
//! the application is asked directly.
//!
//! Both ways are asked with the same bytes in the same pieces. Interim responses may be more or fewer, and
//! a body may be framed otherwise; nothing else may differ but the fields of [`MAY_DIFFER`].

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use offramp_testkit::server;
use proptest::prelude::*;

use crate::requests::{Got, head};
use crate::test_proxy::{ListenerKind, PATIENCE, Setup, TestProxy};

/// What a proxy adds, or may do its own way.
const MAY_DIFFER: [&str; 5] = ["date", "connection", "x-request-id", "content-length", "transfer-encoding"];

/// One request.
#[derive(Clone, Debug)]
struct Ask {
    method: &'static str,
    path: String,
    upload: Upload,
    modern: bool,
    close: bool,
    expects: bool,
}

/// The body of a request.
#[derive(Clone, Debug)]
enum Upload {
    Nothing,
    Length(usize),
    Chunks(Vec<usize>),
}

/// What a client does with its connection.
#[derive(Clone, Debug)]
struct Script {
    asks: Vec<Ask>,
    /// Whether a request is sent before the one before it is answered.
    pipelined: bool,
    /// The sizes of the pieces that the bytes are sent in, over and over.
    pieces: Vec<usize>,
}

impl Ask {
    fn bytes(&self) -> Vec<u8> {
        let version = if self.modern { "1.1" } else { "1.0" };
        let mut head = format!("{} {} HTTP/{version}\r\nHost: a.test\r\n", self.method, self.path);
        match (self.modern, self.close) {
            (true, true) => head.push_str("Connection: close\r\n"),
            (false, false) => head.push_str("Connection: keep-alive\r\n"),
            _ => {}
        }
        if self.expects {
            head.push_str("Expect: 100-continue\r\n");
        }
        let mut bytes = Vec::new();
        match &self.upload {
            Upload::Nothing => {}
            Upload::Length(length) => {
                head.push_str(&format!("Content-Length: {length}\r\n"));
                bytes = letters(*length);
            }
            Upload::Chunks(sizes) => {
                head.push_str("Transfer-Encoding: chunked\r\n");
                for size in sizes {
                    bytes.extend_from_slice(format!("{size:x}\r\n").as_bytes());
                    bytes.extend_from_slice(&letters(*size));
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
        }
        [head.as_bytes(), b"\r\n", &bytes].concat()
    }
}

impl Script {
    /// Without what is sent behind the end: the application resets such a connection, and a response may be
    /// lost by it. A proxy waits until its client has heard the end.
    fn up_to_the_end(&self) -> Self {
        let unframed = |ask: &Ask| !ask.modern && ask.method != "HEAD" && ask.path.contains("pieces");
        let ends = |ask: &Ask| ask.close || unframed(ask);
        let count = self.asks.iter().position(ends).map_or(self.asks.len(), |last| last + 1);
        Self { asks: self.asks[..count].to_vec(), ..self.clone() }
    }
}

/// A body that shows where a byte is lost.
pub(crate) fn letters(length: usize) -> Vec<u8> {
    (b'a'..=b'z').cycle().take(length).collect()
}

fn upload() -> impl Strategy<Value = Upload> {
    prop_oneof![
        3 => Just(Upload::Nothing),
        1 => Just(Upload::Length(0)),
        3 => (1..5000_usize).prop_map(Upload::Length),
        1 => (50_000..200_000_usize).prop_map(Upload::Length),
        3 => prop::collection::vec(1..3000_usize, 0..5).prop_map(Upload::Chunks),
        1 => prop::collection::vec(1..60_000_usize, 2..4).prop_map(Upload::Chunks),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("/echo".to_owned()),
        2 => Just("/echo-pieces".to_owned()),
        2 => (0..3000_usize).prop_map(|length| format!("/length/{length}?q=%20x")),
        1 => (60_000..300_000_usize).prop_map(|length| format!("/length/{length}")),
        2 => (0..3000_usize).prop_map(|length| format!("/pieces/{length}")),
        1 => (60_000..300_000_usize).prop_map(|length| format!("/pieces/{length}")),
        2 => prop::sample::select(vec![200, 201, 204, 304, 404, 500]).prop_map(|status| format!("/status/{status}")),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let methods =
        prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"]);
    let odds = (prop::bool::weighted(0.85), prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    (methods, path(), upload(), odds).prop_map(|(method, path, upload, (modern, close, expects))| {
        let (modern, expects) = match upload {
            Upload::Nothing | Upload::Length(0) => (modern, false),
            Upload::Length(_) => (modern, modern && expects),
            Upload::Chunks(_) => (true, expects),
        };
        Ask { method, path, upload, modern, close, expects }
    })
}

fn script() -> impl Strategy<Value = Script> {
    let pieces = prop_oneof![
        Just(vec![usize::MAX]),
        prop::collection::vec(1..100_usize, 1..4).prop_map(|sizes| [&sizes[..], &[20_000]].concat()),
        prop::collection::vec(100..20_000_usize, 1..4),
    ];
    (prop::collection::vec(ask(), 1..8), any::<bool>(), pieces).prop_map(|(asks, pipelined, pieces)| Script {
        asks,
        pipelined,
        pieces,
    })
}

/// A response, as far as a proxy may not change it.
#[derive(Debug, PartialEq)]
struct Shown {
    status: u16,
    fields: Vec<String>,
    length: Option<String>,
    body: String,
    /// Whether the connection can be used again.
    goes_on: bool,
}

/// Plays a script; the responses up to the end of the connection or of the script.
fn play(script: &Script, stream: TcpStream) -> Vec<Shown> {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = Some(stream);
    let whole: Vec<_> = script.asks.iter().map(Ask::bytes).collect();
    let mut sending = None;
    if script.pipelined {
        let (stream, all, pieces) = (writer.take().unwrap(), whole.concat(), script.pieces.clone());
        sending = Some(std::thread::spawn(move || send(&stream, &all, &pieces)));
    }
    let mut answers = Vec::new();
    for (ask, bytes) in script.asks.iter().zip(&whole) {
        let uploading = writer.as_ref().map(|stream| {
            let (stream, bytes, pieces) = (stream.try_clone().unwrap(), bytes.clone(), script.pieces.clone());
            std::thread::spawn(move || send(&stream, &bytes, &pieces))
        });
        let mut got = response(&mut reader, ask.method);
        while got.status < 200 {
            got = response(&mut reader, ask.method);
        }
        if let Some(uploading) = uploading {
            uploading.join().unwrap();
        }
        let goes_on = goes_on(ask, &got);
        answers.push(shown(&got, goes_on));
        if !goes_on {
            assert_eq!(reader.read(&mut [0]).unwrap_or(0), 0, "something follows the last answer");
            break;
        }
    }
    drop((reader, writer));
    if let Some(sending) = sending {
        sending.join().unwrap();
    }
    answers
}

/// Reads one response.
fn response(from: &mut impl BufRead, method: &str) -> Got {
    let head = head(from);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut got = Got { status, head, body: Vec::new() };
    if method == "HEAD" || matches!(status, 100..=199 | 204 | 304) {
        return got;
    }
    if let Some(length) = got.field("content-length") {
        got.body = vec![0; length.parse().unwrap()];
        from.read_exact(&mut got.body).unwrap();
    } else if got.field("transfer-encoding") == Some("chunked") {
        while let size @ 1.. = chunk(from) {
            let begun = got.body.len();
            got.body.resize(begun + size, 0);
            from.read_exact(&mut got.body[begun..]).unwrap();
            assert_eq!(line(from), "\r\n");
        }
        assert_eq!(line(from), "\r\n", "the application sends no trailers");
    } else {
        from.read_to_end(&mut got.body).unwrap();
    }
    got
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line
}

/// The size of the chunk that follows.
fn chunk(from: &mut impl BufRead) -> usize {
    usize::from_str_radix(line(from).trim_end(), 16).unwrap()
}

/// Sends bytes in pieces; what comes behind the last answer is heard by nobody.
fn send(mut stream: &TcpStream, mut bytes: &[u8], pieces: &[usize]) {
    for size in pieces.iter().cycle() {
        let (piece, rest) = bytes.split_at((*size).min(bytes.len()));
        if stream.write_all(piece).is_err() || rest.is_empty() {
            return;
        }
        bytes = rest;
    }
}

/// What the client reads from a response (RFC 9112 §9.3).
fn goes_on(ask: &Ask, got: &Got) -> bool {
    let connection = got.field("connection").unwrap_or_default().to_ascii_lowercase();
    let delimited = got.field("content-length").is_some()
        || got.field("transfer-encoding").is_some()
        || ask.method == "HEAD"
        || matches!(got.status, 204 | 304);
    let keeps =
        if got.head.starts_with("HTTP/1.1") { connection != "close" } else { connection == "keep-alive" };
    keeps && delimited && !ask.close
}

fn shown(got: &Got, goes_on: bool) -> Shown {
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let lines = got.head.lines().skip(1).filter(|line| line.contains(':'));
    let mut fields: Vec<_> =
        lines.filter(|line| !MAY_DIFFER.contains(&&*name(line))).map(str::to_ascii_lowercase).collect();
    fields.sort();
    let length = got.field("content-length").map(ToOwned::to_owned);
    Shown { status: got.status, fields, length, body: got.text(), goes_on }
}

/// A body in pieces, whose length nobody knows before its end.
enum Pieces {
    Known(Bytes),
    Unknown(VecDeque<Bytes>),
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Self::Known(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Self::Unknown(pieces) => pieces.pop_front(),
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Known(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Unknown(_) => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Known(bytes) if bytes.is_empty())
    }
}

/// The application: what it answers is all in the request.
async fn answer(request: Request<Incoming>) -> Result<Response<Pieces>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let seen = format!("{} {} {}", parts.method, parts.uri, body.len());
    let mut words = parts.uri.path().trim_start_matches('/').split('/');
    let (what, number) = (words.next().unwrap_or_default(), words.next().and_then(|word| word.parse().ok()));
    let cut = |bytes: &[u8]| Pieces::Unknown(bytes.chunks(700).map(Bytes::copy_from_slice).collect());
    let mut status = 200;
    let content = match (what, number.unwrap_or(0)) {
        ("echo", _) => Pieces::Known(body),
        ("echo-pieces", _) => cut(&body),
        ("length", length) => Pieces::Known(letters(length).into()),
        ("pieces", length) => cut(&letters(length)),
        (_, code) => {
            status = u16::try_from(code).unwrap_or(500);
            Pieces::Known(if matches!(status, 204 | 304) { Bytes::new() } else { "status".into() })
        }
    };
    let content = if parts.method == Method::HEAD && matches!(content, Pieces::Unknown(_)) {
        Pieces::Known(Bytes::new())
    } else {
        content
    };
    Ok(Response::builder().status(status).header("x-seen", seen).body(content).unwrap())
}

/// Runs the application on a thread of its own, for as long as the process lives.
pub(crate) fn application() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                // A client that goes away early is no news.
                tokio::spawn(
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)),
                );
            }
        });
    });
    address
}

fn direct(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_proxied_connection_gives_what_a_direct_one_gives() {
    let address = application();
    let proxy = TestProxy::open(&[&server::Address::Tcp(address)], &Setup::default());
    let config = ProptestConfig {
        cases: CASES,
        max_shrink_time: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(script in script())| {
        let through = play(&script, proxy.connect(ListenerKind::Http));
        let model = play(&script.up_to_the_end(), direct(address));
        prop_assert_eq!(through.len(), model.len());
        for ((through, mut model), ask) in through.into_iter().zip(model).zip(&script.asks) {
            // A proxy may stream what the application has measured, not contradict it.
            model.length = model.length.filter(|_| through.length.is_some());
            prop_assert_eq!(&through, &model, "{:?}", ask);
        }
    });
    proxy.end();
}

/// How many sequences are tried.
const CASES: u32 = 600;
