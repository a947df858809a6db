//! Arbitrary bytes for a connection of HTTP/2, as a client with requests under way and as a server that answers. Nothing
//! panics, how the bytes arrive does not matter, events come in an order that can be, data stays within the windows, and
//! what is held and is to be sent is bounded.
//!
//! The first byte of the input chooses the role, the pieces in which the rest arrives, and whether SETTINGS come first.

#![no_main]

use libfuzzer_sys::fuzz_target;
use offramp_http::h2::connection::LINGERS;
use offramp_http::h2::{Code, Config, Connection, Event, PREFACE, Reset};
use offramp_http::head::{Fields, Request};

/// How long the pieces are.
const PIECES: [usize; 8] = [1, 2, 3, 7, 9, 33, 100, 1000];
const WINDOW: u32 = 100_000;
const CONFIG: Config = Config {
    stream_window: WINDOW,
    connection_window: 3 * WINDOW,
    shared_window: true,
    growth: 2 * WINDOW,
    max_streams: 10,
    max_head: 4096,
};
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// What came on a stream, and whether its message has ended.
#[derive(Debug, Default, Clone, PartialEq)]
struct Came {
    heads: Vec<String>,
    data: Vec<u8>,
    end: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    reset: Option<Reset>,
}

type Outcome = (Vec<(u32, Came)>, Result<(), String>);

fuzz_target!(|data: &[u8]| {
    let Some((&choice, stream)) = data.split_first() else { return };
    let mut bytes = Vec::new();
    let is_client = choice & 1 == 0;
    if choice & 2 == 0 {
        bytes.extend_from_slice(if is_client { &[] } else { PREFACE });
        bytes.extend_from_slice(SETTINGS);
    }
    bytes.extend_from_slice(stream);
    let piece = PIECES[usize::from(choice >> 2 & 7)];
    let whole = run(is_client, &bytes, bytes.len().max(1));
    let pieces = run(is_client, &bytes, piece);
    // A flood is counted at the end of what came at once.
    if whole.1.is_ok() && pieces.1.is_ok() {
        assert_eq!(whole, pieces);
    }
});

fn run(is_client: bool, bytes: &[u8], piece: usize) -> Outcome {
    let mut connection: Connection<Came> = match is_client {
        true => Connection::client(CONFIG, 0),
        false => Connection::server(CONFIG, 0),
    };
    if is_client {
        for method in [http::Method::GET, http::Method::HEAD, http::Method::POST, http::Method::GET] {
            let mut request = Request::new();
            request.fields.set_host(b"a.test");
            let end = method != http::Method::POST;
            request.set_method(method);
            assert!(connection.open(Came::default(), &request, "https", None, end).is_ok());
        }
    }
    let mut end = Ok(());
    for part in bytes.chunks(piece) {
        let before = connection.output().len();
        let heard = connection.receive(part, 0, &mut |_, came, event| put(came, event));
        // Each byte that came asks for little.
        assert!(connection.output().len() <= before + 64 + 16 * part.len());
        assert!(connection.memory() < 200_000 + connection.output().len());
        if let Err(violation) = heard {
            assert!(connection.is_over());
            end = Err(violation.to_string());
            break;
        }
    }
    let ids: Vec<u32> = connection.streams().map(|(id, _)| id).collect();
    let mut all: Vec<_> = connection.streams().map(|(id, came)| (id, came.clone())).collect();
    all.sort_by_key(|(id, _)| *id);
    for id in ids {
        connection.release(id, usize::MAX);
        if !is_client {
            connection.respond(id, http::StatusCode::OK, &Fields::new(), false);
        }
        let n = connection.capacity(id);
        connection.data(id, vec![0; n].into(), true);
        assert!(connection.forget(id, Code::CANCEL));
    }
    // Streams whose request has not ended linger behind their response.
    let queued = connection.output().len();
    connection.output_moved(queued, &mut |_, _, _| {});
    connection.end_lingering(0);
    connection.end_lingering(LINGERS);
    assert_eq!(connection.open_streams(), 0);
    (all, end)
}

fn put(came: &mut Came, event: Event<'_>) {
    assert!(came.reset.is_none(), "behind a reset: {event:?}");
    match event {
        Event::Request { request, end, .. } => {
            assert!(came.heads.is_empty());
            came.heads.push(format!("{} {:?}", request.method, request.target()));
            came.end = end.then(Vec::new);
        }
        Event::Interim(response) => came.heads.push(response.status.to_string()),
        Event::Response { response, end, length } => {
            assert!(came.end.is_none() && response.status.as_u16() >= 200);
            came.heads.push(format!("{} {length:?}", response.status));
            came.end = end.then(Vec::new);
        }
        Event::Data(data) => {
            assert!(!data.is_empty() && came.end.is_none() && !came.heads.is_empty());
            came.data.extend_from_slice(data);
            assert!(came.data.len() <= WINDOW as usize, "nothing was released");
        }
        Event::End(trailers) => {
            assert!(came.end.is_none() && !came.heads.is_empty());
            let fields = trailers.unwrap_or_default();
            came.end = Some(fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect());
        }
        Event::Writable | Event::Stalled(_) => {}
        Event::Reset(reset) => came.reset = Some(reset),
    }
}
