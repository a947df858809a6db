//! Arbitrary bytes of a client on the whole way of a request: a worker, as it runs in the product, between a client
//! and a server that are played here. Nothing panics; once the client has said its last byte everything ends; the
//! server gets requests of one reading only, and none but those that the guard finds in the same bytes, with the
//! same content; the client gets a sequence of whole responses, each to a request of its own.
//!
//! The first byte of the input chooses how the client sends, the second what the server says. What
//! stands behind the first [`BORDER`] is said by the server, where there is one.

#![no_main]

use std::cell::RefCell;
use std::io::{ErrorKind, Write as _};
use std::num::NonZeroU32;
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use libfuzzer_sys::fuzz_target;
use offramp_config::model::{PlainRules, Size};
use offramp_http::h1::{Guard, GuardOutcome, HeadLimits, RequestFraming, TargetForm};
use offramp_net::{Address, listen};
use offramp_observe::{Counters, EventFormat, Flusher, FlusherSettings, Log, Output};
use offramp_proxy::{
    AcceptorId, Access, Action, AuthClass, Challenges, ClientLimits, ClientTable, ConnectionLimit, Current,
    Demand, Detours, HeaderPolicy, Http, HttpRoute, HttpTls, Lateness, Listener, Match, PathHandling,
    PathMatch, Paths, Pressure, Proxy, Refusals, RequestLimits, Respond, Rewrite, Route, RouteBackends,
    RouteRule, RouteTable, SharedResources, Snapshot, StreamMemory, Target, Worker, WorkerCommand,
    WorkerHandle,
};
use offramp_record::aead::Library;
use offramp_record::{LibraryChoice, RecordSize};
use offramp_upstream::{Backend, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

#[path = "request_path/messages.rs"]
mod messages;

use messages::{Request, content, head, responses};

/// How long the pieces are that the client sends first; the rest follows at once.
const PIECES: [usize; 8] = [usize::MAX, 1, 2, 7, 16, 33, 100, 1000];
/// How many pieces are sent before the rest.
const CUTS: usize = 6;
/// How long the worker has to read a piece before the next. Nothing depends on whether it does.
const PAUSE: Duration = Duration::from_micros(60);
/// The longest that a run may take. The bounds of the worker are longer, so that nothing ends by them.
const PATIENCE: Duration = Duration::from_secs(8);
/// The bounds of the worker.
const NEVER: Duration = Duration::from_secs(600);
/// The most bytes of a body on the route that has such a bound.
const SMALL: u64 = 16;
/// What divides the client's bytes from the server's.
const BORDER: &[u8] = b"\n\0\n";

/// What a server says to one request.
#[derive(Clone, Copy)]
struct Answer {
    bytes: &'static [u8],
    /// Whether it ends its direction then.
    closes: bool,
    /// Whether it says so before it has read the content.
    early: bool,
}

const fn answer(bytes: &'static [u8]) -> Answer {
    Answer { bytes, closes: false, early: false }
}

const fn closing(bytes: &'static [u8]) -> Answer {
    Answer { bytes, closes: true, early: false }
}

/// What the server says; the request after the one that got one of them gets the next.
const ANSWERS: [Answer; 16] = [
    answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n"),
    closing(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"),
    answer(b"HTTP/1.1 204 No Content\r\n\r\n"),
    answer(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\netag: \"a\"\r\n\r\n"),
    closing(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold"),
    answer(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404\r\ncontent-length:0\r\n\r\n"),
    closing(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nraw bytes"),
    Answer { early: true, ..answer(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig") },
    // A head that is said to have content, and content that is not there.
    closing(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort"),
    closing(b""),
    closing(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
    // More than was asked for.
    answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"),
    Answer { early: true, ..closing(b"HTTP/1.1 500 Oh\nno-carriage: return\ncontent-length: 1\n\n!") },
    closing(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"),
    closing(b"SSH-2.0-OpenSSH_9.7\r\n"),
];

/// What the server has seen and said in one run.
#[derive(Default)]
struct Seen {
    requests: Vec<Request>,
    choice: usize,
    said: Option<Vec<u8>>,
}

/// What lives on from one input to the next.
struct Stage {
    runtime: Runtime,
    front: PathBuf,
    backlog: StdListener,
    worker: WorkerHandle,
    _counters: Counters,
    _flusher: Flusher,
}

thread_local! {
    static STAGE: Stage = Stage::build();
}

fuzz_target!(|data: &[u8]| {
    let [pieces, choice, stream @ ..] = data else { return };
    let border = stream.windows(BORDER.len()).position(|part| part == BORDER);
    let (stream, said) = match border {
        Some(at) => (&stream[..at], Some(stream[at + BORDER.len()..].to_vec())),
        None => (stream, None),
    };
    let seen = Rc::new(RefCell::new(Seen { choice: usize::from(*choice), said, ..Seen::default() }));
    let (model, http2) = model(stream);
    let manner = Manner { piece: PIECES[usize::from(*pieces & 7)], at_once: http2 || *pieces & 8 != 0 };
    let got = STAGE.with(|stage| stage.play(stream, manner, &model, &seen));
    if !http2 {
        hold_against(&model, &seen.borrow().requests);
        responses(&got, &model);
    }
});

/// How the client sends.
#[derive(Clone, Copy)]
struct Manner {
    /// How long the first pieces are.
    piece: usize,
    /// Whether it ends before it has all responses.
    at_once: bool,
}

impl Stage {
    fn build() -> Self {
        let directory = std::env::temp_dir().join(format!("offramp-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("there is a place for sockets");
        let (front, app) = (directory.join("front"), directory.join("app"));
        let _ = std::fs::remove_file(&app);
        let backlog = StdListener::bind(&app).expect("a socket for the server");
        backlog.set_nonblocking(true).expect("a socket that does not block");
        let settings = FlusherSettings::new(1, Output::None, EventFormat::Json, Log::silent());
        let (flusher, mut senders) = Flusher::start(settings).expect("a thread for events");
        let (counters, mut own) = Counters::new(1);
        let shared = SharedResources {
            current: Current::new(snapshot(app)),
            admission: ConnectionLimit::new(),
            clients: ClientTable::new(Instant::now()),
            held: StreamMemory::new(),
            pressure: Pressure::new(),
            late: Lateness::new(),
            refusals: Refusals::new(Log::silent()),
            challenges: Challenges::none(),
            demand: Demand::new().0,
            logins: offramp_proxy::credentials::Logins::new(),
            log: Log::silent(),
        };
        let (counters_of_worker, events) = (own.remove(0), senders.remove(0));
        let worker = Worker { index: 0, core: None, counters: counters_of_worker, events, shared, seed: 7 };
        let worker = worker.start().expect("a worker");
        let fd = listen::open(&Address::Unix(front.clone()), 1).expect("a socket for the worker").remove(0);
        worker.send(WorkerCommand::Listen { id: AcceptorId(0), listener: "front".into(), fd });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a loop");
        Self { runtime, front, backlog, worker, _counters: counters, _flusher: flusher }
    }

    /// Has a client send `stream`, and end; what it gets.
    fn play(&self, stream: &[u8], manner: Manner, model: &[Request], seen: &Rc<RefCell<Seen>>) -> Vec<u8> {
        let local = LocalSet::new();
        let run = async { timeout(PATIENCE, self.run(stream, manner, model, seen)).await };
        let played = local.block_on(&self.runtime, run);
        assert!(!self.worker.is_finished(), "the worker has ended");
        played.expect("all is answered, and everything ends when the client has ended")
    }

    async fn run(
        &self,
        stream: &[u8],
        manner: Manner,
        model: &[Request],
        seen: &Rc<RefCell<Seen>>,
    ) -> Vec<u8> {
        let listener = self.backlog.try_clone().and_then(UnixListener::from_std).expect("a server");
        let (end, over) = watch::channel(false);
        let serving = Rc::new(RefCell::new(Vec::new()));
        let open = |stream: UnixStream| -> JoinHandle<()> {
            spawn_local(serve(stream, over.clone(), Rc::clone(seen)))
        };
        let accepting = async {
            while let Ok((stream, _)) = listener.accept().await {
                serving.borrow_mut().push(open(stream));
            }
        };
        let got = tokio::select! {
            got = client(StdStream::connect(&self.front), stream, manner, model) => got,
            () = accepting => panic!("the server's socket broke"),
        };
        // Connections that nobody has accepted yet would be taken for those of the next input.
        while let Ok((stream, _)) = self.backlog.accept() {
            stream.set_nonblocking(true).expect("a socket that does not block");
            serving.borrow_mut().push(open(UnixStream::from_std(stream).expect("a connection")));
        }
        // Nor must one be left for it. The worker looks after those that lie idle once a second, too rarely to be
        // waited for, and before it uses one.
        end.send_replace(true);
        for connection in serving.take() {
            if let Err(failed) = connection.await {
                std::panic::resume_unwind(failed.into_panic());
            }
        }
        got
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(directory) = self.front.parent() {
            // What is left behind is two sockets.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Sends `bytes` and ends when it has the responses to all requests of the model; everything that comes back.
async fn client(
    connected: std::io::Result<StdStream>,
    bytes: &[u8],
    Manner { piece, at_once }: Manner,
    model: &[Request],
) -> Vec<u8> {
    let mut stream = connected.expect("the worker listens");
    let mut rest = bytes;
    for _ in 0..CUTS {
        if piece >= rest.len() {
            break;
        }
        // A worker that has had enough closes.
        if stream.write_all(&rest[..piece]).is_err() {
            break;
        }
        rest = &rest[piece..];
        std::thread::sleep(PAUSE);
    }
    stream.set_nonblocking(true).expect("a socket that does not block");
    let (mut reader, mut writer) = UnixStream::from_std(stream).expect("a connection").into_split();
    let enough = Notify::new();
    let sending = async {
        let _ = writer.write_all(rest).await;
        if !at_once {
            enough.notified().await;
        }
        let _ = writer.shutdown().await;
    };
    let whole = model.iter().filter(|request| request.whole).count();
    let mut got = Vec::new();
    let reading = async {
        loop {
            if !at_once && responses(&got, model).is_none_or(|count| count >= whole) {
                enough.notify_one();
            }
            // A socket that is closed with unread bytes is reset.
            if !matches!(reader.read_buf(&mut got).await, Ok(1..)) {
                break enough.notify_one();
            }
        }
    };
    tokio::join!(sending, reading);
    got
}

/// Serves a connection of the worker until the worker ends it.
async fn serve(mut stream: UnixStream, mut over: watch::Receiver<bool>, seen: Rc<RefCell<Seen>>) {
    let mut held = Vec::new();
    let mut open: Option<(usize, RequestFraming, Option<Answer>)> = None;
    let mut mute = false;
    // Whether other bytes than requests are to be expected.
    let mut opaque = false;
    loop {
        while !opaque {
            let (number, framing, answer) = match open.take() {
                Some(known) => known,
                None => {
                    let Some((length, request, framing)) = head(&held) else { break };
                    held.drain(..length);
                    let (number, answer) = seen.borrow_mut().enter(request);
                    if answer.early && !mute {
                        mute |= say(&mut stream, &seen, answer).await;
                    }
                    (number, framing, (!answer.early).then_some(answer))
                }
            };
            let (content, end) = content(&held, framing);
            seen.borrow_mut().came(number, content, end.is_some());
            let Some(end) = end else {
                open = Some((number, framing, answer));
                break;
            };
            held.drain(..end);
            if let Some(answer) = answer.filter(|_| !mute) {
                opaque = seen.borrow().switches(answer);
                mute |= say(&mut stream, &seen, answer).await;
            }
        }
        if *over.borrow() {
            // The worker has said everything that it had to say.
            match stream.try_read_buf(&mut held) {
                Ok(1..) => {
                    mute = true;
                    continue;
                }
                _ => return,
            }
        }
        let read = tokio::select! {
            read = stream.read_buf(&mut held) => read,
            changed = over.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        match read {
            Ok(1..) => {}
            Ok(0) => {
                assert!(opaque || open.is_some() || held.is_empty(), "a head is cut short: {held:?}");
                return;
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Seen {
    /// Notes a request whose head has come; its number, and what is said to it.
    fn enter(&mut self, request: Request) -> (usize, Answer) {
        let number = self.requests.len();
        self.requests.push(request);
        (number, ANSWERS[(self.choice + number) % ANSWERS.len()])
    }

    /// Notes the content of a request, as far as it has come.
    fn came(&mut self, number: usize, content: Vec<u8>, whole: bool) {
        let request = &mut self.requests[number];
        request.content = content;
        request.whole = whole;
    }

    /// Whether another protocol may follow an answer.
    fn switches(&self, answer: Answer) -> bool {
        let said = self.said.as_deref().unwrap_or(answer.bytes);
        said.windows(4).any(|part| part == b" 101")
    }
}

/// Says what is to be said; whether that was all for this connection. Whoever has gone does not hear it.
async fn say(stream: &mut UnixStream, seen: &RefCell<Seen>, answer: Answer) -> bool {
    let said = seen.borrow().said.clone();
    let _ = stream.write_all(said.as_deref().unwrap_or(answer.bytes)).await;
    let closes = answer.closes || said.is_some();
    if closes {
        let _ = stream.shutdown().await;
    }
    closes
}

/// The requests that the guard finds, where no protocol is changed, and whether HTTP/2 follows.
fn model(stream: &[u8]) -> (Vec<Request>, bool) {
    let mut guard = Guard::new(HeadLimits::default());
    let (mut requests, mut at) = (Vec::<(Request, RequestFraming, Vec<u8>)>::new(), 0);
    let http2 = loop {
        let inspected = guard.inspect(&stream[at..]);
        let passed = &stream[at..at + inspected.pass];
        at += inspected.pass;
        if let GuardOutcome::Head(head) = inspected.outcome {
            guard.stayed();
            let request = Request {
                method: passed[head.method].to_vec(),
                target: (head.form != TargetForm::Absolute).then(|| passed[head.target].to_vec()),
                id: Vec::new(),
                content: Vec::new(),
                whole: false,
            };
            requests.push((request, head.framing, Vec::new()));
            continue;
        }
        if let Some((_, _, raw)) = requests.last_mut() {
            raw.extend_from_slice(passed);
        }
        match inspected.outcome {
            GuardOutcome::End => {}
            outcome => break outcome == GuardOutcome::Http2,
        }
    };
    let known = |(mut request, framing, raw): (Request, RequestFraming, Vec<u8>)| {
        let (content, end) = content(&raw, framing);
        request.content = content;
        request.whole = end.is_some();
        request
    };
    (requests.into_iter().map(known).collect(), http2)
}

/// Each request that the server saw is one of the client's, in their order. One that was sent again on another
/// connection has the same id.
fn hold_against(model: &[Request], seen: &[Request]) {
    let mut place = None;
    let mut id: &[u8] = &[];
    for request in seen {
        let is = |known: &Request| {
            known.method == request.method
                && known.target.as_ref().is_none_or(|target| Some(target) == request.target.as_ref())
                && known.content.starts_with(&request.content)
                && (!request.whole || known.whole && known.content == request.content)
        };
        let from = match place {
            Some(place) if id == request.id => place,
            Some(place) => place + 1,
            None => 0,
        };
        let found = model.get(from..).and_then(|rest| rest.iter().position(is));
        let Some(found) = found else { panic!("nobody asked for {request:?}: {model:?}") };
        assert!(id != request.id || found == 0, "two requests have one id: {request:?}");
        place = Some(from + found);
        id = &request.id;
    }
}

fn snapshot(app: PathBuf) -> Snapshot {
    let route = |path: &str, action, max_body| {
        let route = HttpRoute {
            name: path.into(),
            action,
            client_auth: AuthClass::default(),
            access: Access::default(),
            xfcc: false,
            headers: HeaderPolicy::default(),
            upgrade: ["websocket".into()].into(),
            plain: PlainRules { max_body, ..PlainRules::default() },
            connect_timeout: None,
            detours: Detours::default(),
            error_pages: None,
            compress: None,
            mirror: None,
            bandwidth: None,
            log_one_in: NonZeroU32::MIN,
        };
        (PathMatch { hosts: Vec::new(), path: path.to_owned(), entry: 0 }, route)
    };
    let proxied = || {
        Action::Proxy(Proxy {
            to: RouteBackends::Backend(0),
            send_proxy: None,
            rewrite: Rewrite::Keep,
            paths: PathHandling::default(),
        })
    };
    let respond = Respond { status: StatusCode::OK, content_type: None, body: "said".into() };
    let http = Http {
        routes: Paths::new(vec![
            route("/", proxied(), None),
            route("/small", proxied(), Some(Size::new(SMALL))),
            route("/said", Action::Respond(respond), None),
        ]),
        trusted_proxies: Vec::new(),
        via: true,
        limits: http_limits(),
        error_pages: None,
    };
    let target = Target::Http(HttpTls {
        tls: None,
        allow: None,
        configured: Arc::default(),
        client_auth: AuthClass::default(),
    });
    let to = Route {
        name: "front".into(),
        target,
        deny_ja4: Arc::default(),
        addresses: None,
        bandwidth: None,
        log_one_in: NonZeroU32::MIN,
    };
    let routes = RouteTable::new(vec![RouteRule { matches: Match::default(), to }]);
    let listener = Listener {
        name: "front".into(),
        accept_proxy: Vec::new(),
        addresses: None,
        tls: None,
        routes,
        http: Some(http),
    };
    let server =
        Server { name: "app".into(), target: offramp_upstream::UpstreamAddress::Fixed(Address::Unix(app)) };
    Snapshot {
        generation: 1,
        listeners: [("front".into(), Arc::new(listener))].into(),
        sockets: std::collections::HashMap::new(),
        backends: vec![Arc::new(Backend::new("app", [server.into()]))],
        limits: ClientLimits {
            connections: 1000,
            connections_per_client: 1000,
            handshakes_per_client: None,
            bandwidth_per_client: None,
            handshake_timeout: NEVER,
            idle_timeout: NEVER,
            max_age: None,
            max_age_grace: NEVER,
        },
        record_size: RecordSize::Adaptive,
        choice: LibraryChoice::always(Library::Ring),
        bandwidths: offramp_proxy::Bandwidths::default(),
        tracing: None,
    }
}

/// Bounds behind which nothing ends.
fn http_limits() -> RequestLimits {
    RequestLimits {
        request_header_timeout: NEVER,
        request_body_timeout: NEVER,
        min_body_rate: 0,
        keepalive_timeout: NEVER,
        request_headers: HeadLimits::default().fields.into(),
        request_header_size: HeadLimits::default().head,
        request_target_size: HeadLimits::default().target,
        requests_per_client: None,
        streams: 100,
        memory: 256 << 20,
        max_window: 8 << 20,
        file_cache: 0,
        compression_memory: 0,
    }
}
