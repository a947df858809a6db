//! Admission of requests by a server, and its behaviour without memory.

use http::{Method, StatusCode};
use offramp_http::h2::connection::{LINGERS, MOST_DROPPED, STILL};
use offramp_http::h2::{
    Admission, Asked, Code, Config, Connection, Cost, Ends, Event, Handler, Kind, PREFACE, Reset, Violation,
    flag,
};
use offramp_http::head::{ControlData, Fields, Request, Unserved};

use super::frames::{CONFIG, Came, content, frame, headers, receive, resets, sent};

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")];

/// A handler with limited memory and time.
struct User {
    admission: Admission,
    trailers: bool,
    /// Pieces of work left in its turn.
    left: usize,
    asked: Vec<Asked>,
    heads: usize,
    requests: Vec<(u32, Box<Request>, ControlData)>,
}

impl Default for User {
    fn default() -> Self {
        let (admission, trailers, left) = (Admission::Admitted, true, usize::MAX);
        Self { admission, trailers, left, asked: Vec::new(), heads: 0, requests: Vec::new() }
    }
}

impl Handler<Came> for User {
    fn event(&mut self, id: u32, came: &mut Came, event: Event<'_>) {
        match event {
            Event::Request { request, control, .. } => self.requests.push((id, request, control)),
            other => came.put(other),
        }
    }

    fn head(&mut self) -> Box<Request> {
        self.heads += 1;
        Box::default()
    }

    fn put_back(&mut self, _: Box<Request>) {
        self.heads -= 1;
    }

    fn admit(&mut self, asked: Asked) -> Admission {
        self.asked.push(asked);
        self.admission
    }

    fn admit_trailers(&mut self, _: &mut Came, _: usize, _: usize) -> bool {
        self.trailers
    }

    fn spend(&mut self, cost: Cost) {
        self.left = match cost {
            Cost::Pieces(count) => self.left.saturating_sub(count),
            Cost::Bytes(_) => self.left,
            Cost::Turn => 0,
        };
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }
}

fn server(config: Config) -> Connection<Came> {
    let mut server = Connection::server(config, 0);
    receive(&mut server, &[&PREFACE[..], &frame(Kind::Settings, 0, 0, &[])].concat()).unwrap();
    sent(&mut server);
    server
}

fn get(id: u32) -> Vec<u8> {
    headers(id, flag::END_STREAM, &GET)
}

fn post(id: u32) -> Vec<u8> {
    headers(id, 0, &GET)
}

fn give(server: &mut Connection<Came>, user: &mut User, bytes: &[u8]) -> Result<usize, Violation> {
    server.receive_with(bytes, 0, user)
}

#[test]
fn requests_without_memory_are_refused_and_their_heads_returned() {
    let mut server = server(CONFIG);
    let mut user = User::default();
    give(&mut server, &mut user, &[post(1), frame(Kind::Data, 0, 1, b"abc")].concat()).unwrap();
    user.admission = Admission::Busy;
    give(&mut server, &mut user, &get(3)).unwrap();
    assert_eq!(resets(&sent(&mut server)), [(3, Code::REFUSED_STREAM)]);
    let (asked, fields) = (user.asked[1], 7 + 3 + 7 + 5 + 5 + 1 + 10 + 6 + 4 * 32);
    assert_eq!((asked.streams, asked.content, asked.fields), (1, 3, fields));
    assert_eq!((user.heads, user.requests.len(), server.known_streams()), (1, 1, 1));
    // Never a violation, however often.
    for n in 2..2000 {
        give(&mut server, &mut user, &get(1 + 2 * n)).unwrap();
        sent(&mut server);
    }
    // A client that demands too much at a time pays with its allowance of other frames.
    user.admission = Admission::TooMuch;
    let end = (2000..4000).find_map(|n| give(&mut server, &mut user, &get(1 + 2 * n)).err());
    assert_eq!(end.unwrap().code, Code::ENHANCE_YOUR_CALM);
    assert_eq!(server.faults().count, 0);
}

#[test]
fn trailers_without_memory_end_their_stream() {
    let mut server = server(CONFIG);
    let mut user = User { trailers: false, ..User::default() };
    let bytes = [post(1), headers(1, flag::END_STREAM, &[("a", "b")])].concat();
    give(&mut server, &mut user, &bytes).unwrap();
    assert_eq!(resets(&sent(&mut server)), [(1, Code::ENHANCE_YOUR_CALM)]);
    assert_eq!(server.stream(1).unwrap().reset, Some(Reset::NoRoom));
    assert_eq!(server.faults().count, 0);
}

/// A handler gets at most a turn of frames, however small they are, and none is lost.
#[test]
fn turns_end_and_nothing_is_lost() {
    let data = |flags, payload: &[u8]| frame(Kind::Data, flags, 1, payload);
    for (what, each, count) in [
        ("PING", frame(Kind::Ping, 0, 0, &[0; 8]), 900),
        ("SETTINGS", frame(Kind::Settings, 0, 0, &[]), 200),
        ("DATA of a byte", data(0, b"x"), 900),
        ("DATA that is all padding", data(flag::PADDED, &[1, 0]), 300),
        ("CONTINUATION of nothing", frame(Kind::Continuation, 0, 3, &[]), 400),
    ] {
        let mut server = server(CONFIG);
        let mut user = User::default();
        let begin = if what.starts_with("CONT") { frame(Kind::Headers, 0, 3, &[]) } else { post(1) };
        give(&mut server, &mut user, &begin).unwrap();
        let (bytes, before) = (each.repeat(count), server.frames());
        let (mut rest, mut turns) = (&bytes[..], 0);
        while !rest.is_empty() {
            user.left = 50;
            let used = give(&mut server, &mut user, rest).unwrap();
            assert!(used > 0 && used <= 50 * each.len(), "{what}: {used}");
            rest = &rest[used..];
            turns += 1;
        }
        assert!(turns >= count / 50, "{what}: {turns}");
        if !what.starts_with("CONT") {
            assert_eq!(server.frames() - before, count as u64, "{what}");
        }
    }
    // Each request is more work; so are streams that are not forgotten yet.
    let mut server = server(CONFIG);
    let mut user = User { left: 320, ..User::default() };
    let all: Vec<_> = (0..100).map(|n| get(1 + 2 * n)).collect();
    let used = give(&mut server, &mut user, &all.concat()).unwrap();
    assert!((3..=10).contains(&user.requests.len()), "{}", user.requests.len());
    assert_eq!(used, all[..user.requests.len()].concat().len());
    user.left = usize::MAX;
    let resets: Vec<_> = (0..4).map(|n| frame(Kind::ResetStream, 0, 1 + 2 * n, &[0, 0, 0, 8])).collect();
    let mut server = Connection::server(CONFIG, 0);
    let begin =
        [PREFACE.to_vec(), frame(Kind::Settings, 0, 0, &[]), all[..10].concat(), resets.concat()].concat();
    let bytes = [&begin[..], &frame(Kind::Ping, 0, 0, &[0; 8])].concat();
    assert_eq!(give(&mut server, &mut user, &bytes).unwrap(), begin.len());
}

/// A client that resets streams faster than they can be forgotten loses its connection.
#[test]
fn ended_streams_are_bounded() {
    let mut server = server(Config { max_streams: 4, ..CONFIG });
    let mut user = User::default();
    let mut ended = None;
    for n in 0..100 {
        let reset = frame(Kind::ResetStream, 0, 1 + 2 * n, &[0, 0, 0, 8]);
        user.left = usize::MAX;
        ended = give(&mut server, &mut user, &[get(1 + 2 * n), reset].concat()).err();
        assert!(server.known_streams() <= 4 + 12);
        if ended.is_some() {
            break;
        }
    }
    assert_eq!(ended.unwrap().code, Code::ENHANCE_YOUR_CALM);
}

/// Behind a client's own reset, DATA is a fault of its stream and a header block ends the connection. Behind
/// a reset of ours, both were under way.
#[test]
fn frames_behind_a_reset() {
    let data = frame(Kind::Data, 0, 1, b"x");
    let fields = headers(1, flag::END_STREAM, &[("a", "b")]);
    let reset = frame(Kind::ResetStream, 0, 1, &[0, 0, 0, 8]);
    for forgotten in [false, true] {
        let mut theirs = server(CONFIG);
        receive(&mut theirs, &[post(1), reset.clone()].concat()).unwrap();
        if forgotten {
            theirs.forget(1, Code::NO_ERROR);
        }
        receive(&mut theirs, &data).unwrap();
        assert_eq!(resets(&sent(&mut theirs)), [(1, Code::STREAM_CLOSED)]);
        assert_eq!((theirs.faults().count, theirs.faults().last), (1, Some(Code::STREAM_CLOSED)));
        let mut theirs = server(CONFIG);
        receive(&mut theirs, &[post(1), reset.clone()].concat()).unwrap();
        if forgotten {
            theirs.forget(1, Code::NO_ERROR);
        }
        assert_eq!(receive(&mut theirs, &fields).unwrap_err().code, Code::STREAM_CLOSED);
        let mut ours = server(CONFIG);
        receive(&mut ours, &post(1)).unwrap();
        ours.reset(1, Code::CANCEL);
        if forgotten {
            ours.forget(1, Code::NO_ERROR);
        }
        receive(&mut ours, &[data.clone(), fields.clone()].concat()).unwrap();
        assert_eq!(resets(&sent(&mut ours)), [(1, Code::CANCEL)]);
        assert_eq!((ours.faults().count, ours.unreleased()), (0, 0));
    }
}

/// Data that is held for long is lent to the connection as far as memory permits, and returned once.
#[test]
fn data_set_apart_leaves_the_connection_window_to_others() {
    for (lent, discards) in [(0, false), (300, false), (400, false), (400, true), (usize::MAX, false)] {
        let mut server = server(CONFIG);
        receive(&mut server, &[post(1), frame(Kind::Data, 0, 1, &content(400))].concat()).unwrap();
        server.set_apart(1);
        receive(&mut server, &[post(3), frame(Kind::Data, 0, 3, &content(50))].concat()).unwrap();
        assert_eq!((server.lendable(), server.unreleased()), (400, 450));
        server.lend(lent);
        assert_eq!((server.lendable(), server.unreleased()), (400 - lent.min(400), 450), "it is there");
        receive(&mut server, &frame(Kind::Data, 0, 1, &content(100))).unwrap();
        server.release(3, 50);
        assert_eq!((server.lendable(), server.unreleased()), (500 - lent.min(400), 500));
        server.release(1, 150);
        assert_eq!(server.unreleased(), 350);
        assert!(server.lendable() <= 350);
        if discards {
            server.discard(1);
        } else {
            server.forget(1, Code::NO_ERROR);
        }
        assert_eq!((server.lendable(), server.unreleased()), (0, 0));
    }
}

/// Discarded data is returned to the connection and its stream, until [`MOST_DROPPED`] bytes were dropped.
#[test]
fn discarded_data_reopens_both_windows() {
    let mut server = server(CONFIG);
    receive(&mut server, &[post(1), frame(Kind::Data, 0, 1, &content(400))].concat()).unwrap();
    assert_eq!(server.unreleased(), 400);
    server.discard(1);
    assert_eq!(server.unreleased(), 0);
    receive(&mut server, &frame(Kind::Data, 0, 1, &content(600))).unwrap();
    assert_eq!(windows(&sent(&mut server)), [(1, 1000)]);
    let mut dropped = 1000;
    while receive(&mut server, &frame(Kind::Data, 0, 1, &content(1000))).is_ok() {
        dropped += 1000;
    }
    // The initial window remains, as another one was not acknowledged.
    assert!((MOST_DROPPED..MOST_DROPPED + 66_000).contains(&dropped), "{dropped}");

    let mut server = self::server(CONFIG);
    receive(&mut server, &post(1)).unwrap();
    server.discard(1);
    receive(&mut server, &frame(Kind::Data, flag::END_STREAM, 1, &content(600))).unwrap();
    assert!(server.stream(1).unwrap().end && sent(&mut server).is_empty());
}

/// Stream and increment of each WINDOW_UPDATE of a stream among frames.
fn windows(frames: &[(Kind, u8, u32, Vec<u8>)]) -> Vec<(u32, u32)> {
    let of_streams = frames.iter().filter(|(kind, _, id, _)| *kind == Kind::WindowUpdate && *id > 0);
    of_streams.map(|(_, _, id, size)| (*id, u32::from_be_bytes(size[..].try_into().unwrap()))).collect()
}

/// A server whose response on stream 1 is complete and written, and whose request is not.
fn answered() -> Connection<Came> {
    let mut server = server(CONFIG);
    receive(&mut server, &[post(1), frame(Kind::Data, 0, 1, &content(700))].concat()).unwrap();
    server.respond(1, StatusCode::OK, &Fields::new(), true);
    assert!(server.forget(1, Code::CANCEL));
    server
}

/// No RST_STREAM accompanies an early response: the rest of the request is received until it ends.
#[test]
fn the_rest_of_a_request_is_dropped_behind_its_response() {
    let data = |flags| frame(Kind::Data, flags, 1, &content(600));
    for (what, end, reset) in [
        ("END_STREAM", data(flag::END_STREAM), &[][..]),
        ("trailers", headers(1, flag::END_STREAM, &[("a", "b")]), &[]),
        ("RST_STREAM", frame(Kind::ResetStream, 0, 1, &[0, 0, 0, 8]), &[]),
        ("a fault", headers(1, 0, &[("a", "b")]), &[(1, Code::PROTOCOL_ERROR)]),
    ] {
        let mut server = answered();
        let frames = sent(&mut server);
        assert_eq!((resets(&frames), windows(&frames)), (vec![], vec![(1, 700)]), "{what}");
        assert_eq!((server.unreleased(), server.known_streams(), server.open_streams()), (0, 1, 1));
        assert_eq!(server.streams().count() + server.windows().count(), 0, "nobody has it: {what}");
        for now in [0, 4000, 8000, 12_000] {
            server.end_lingering(now);
            receive(&mut server, &data(0)).unwrap();
            let frames = sent(&mut server);
            assert_eq!((resets(&frames), windows(&frames)), (vec![], vec![(1, 600)]), "{what}");
        }
        // Trailers of a forgotten stream are not held.
        let mut user = User { trailers: false, ..User::default() };
        give(&mut server, &mut user, &end).unwrap();
        assert_eq!(resets(&sent(&mut server)), reset, "{what}");
        assert_eq!((server.known_streams(), server.open_streams(), server.unreleased()), (0, 0, 0), "{what}");
        assert_eq!(server.faults().count as usize, reset.len());
        server.end_lingering(1 << 30);
        assert!(sent(&mut server).is_empty(), "{what}");
    }
    // A stream without a complete response is reset at once.
    let mut server = answered();
    receive(&mut server, &post(3)).unwrap();
    server.forget(3, Code::CANCEL);
    assert_eq!(resets(&sent(&mut server)), [(3, Code::CANCEL)]);
}

/// Time and size limits end it, and it waits for a response that is not sent yet.
#[test]
fn dropping_behind_a_response_is_bounded() {
    let data = frame(Kind::Data, 0, 1, &content(600));
    let no_error = [(1, Code::NO_ERROR)];
    // Nothing arrives.
    let mut server = answered();
    sent(&mut server);
    server.end_lingering(1000);
    server.end_lingering(1000 + STILL - 1);
    assert!(sent(&mut server).is_empty());
    server.end_lingering(1000 + STILL);
    assert_eq!((resets(&sent(&mut server)), server.known_streams()), (no_error.to_vec(), 0));
    receive(&mut server, &data).unwrap();
    assert!(sent(&mut server).is_empty() && server.faults().count == 0, "it was under way");
    // Content without end.
    let mut server = answered();
    let mut now = 0;
    while resets(&sent(&mut server)).is_empty() {
        now += 1000;
        receive(&mut server, &data).unwrap();
        server.end_lingering(now);
    }
    assert_eq!(now, 1000 + LINGERS);
    // Content above the limit.
    let mut server = answered();
    let mut dropped = 700;
    while server.known_streams() > 0 {
        receive(&mut server, &data).unwrap();
        dropped += 600;
        server.end_lingering(0);
        sent(&mut server);
    }
    assert!((MOST_DROPPED..MOST_DROPPED + 2000).contains(&dropped), "{dropped}");
    // The client does not read the response.
    let mut server = answered();
    server.end_lingering(0);
    server.end_lingering(1 << 30);
    assert_eq!(resets(&sent(&mut server)), []);
    server.end_lingering(1 << 30);
    assert_eq!(resets(&sent(&mut server)), no_error);
    // During shutdown, it waits for the stream for a short time.
    let mut server = answered();
    server.drain();
    server.stop();
    sent(&mut server);
    server.end_lingering(0);
    assert!(!server.is_over());
    server.end_lingering(1000);
    assert_eq!(resets(&sent(&mut server)), no_error);
    assert!(server.is_over());
}

/// Well-formed requests that cannot be served are passed to the handler with the reason.
#[test]
fn requests_that_cannot_be_served_come_with_the_reason() {
    let mut server = server(CONFIG);
    let mut user = User::default();
    let large = "x".repeat(3000);
    let with = |more| [&GET[..], &[more]].concat();
    let connect = [
        (":method", "CONNECT"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", "a.test"),
        (":protocol", "websocket"),
    ];
    let bytes = [
        headers(1, flag::END_STREAM, &with(("a", &large))),
        headers(3, 0, &connect),
        headers(5, flag::END_STREAM, &with(("content-length", "05x"))),
    ];
    give(&mut server, &mut user, &bytes.concat()).unwrap();
    assert!(sent(&mut server).is_empty());
    let [(_, _, first), (_, second, extended), (_, third, _)] = &user.requests[..] else { panic!() };
    assert_eq!(first.unserved, Some(Unserved::TooLarge));
    assert_eq!((&second.method, extended.protocol.as_deref()), (&Method::CONNECT, Some(&b"websocket"[..])));
    assert_eq!(third.fields.get(offramp_http::head::Known::ContentLength), Some(&b"05x"[..]));
    // A CONNECT has no content (RFC 9110 §9.3.6).
    let connect = [(":method", "CONNECT"), (":authority", "a.test"), ("content-length", "1")];
    give(&mut server, &mut user, &headers(7, 0, &connect)).unwrap();
    assert_eq!(resets(&sent(&mut server)), [(7, Code::PROTOCOL_ERROR)]);
}

/// Heads wait for space in the output, not for a window.
#[test]
fn heads_wait_for_output_space_not_for_windows() {
    let mut server = server(CONFIG);
    receive(&mut server, &[get(1), get(3), frame(Kind::Settings, 0, 0, &[0, 4, 0, 0, 0, 0])].concat())
        .unwrap();
    assert!(server.can_respond(1) && server.capacity(1) == 0);
    let large = "x".repeat(120_000);
    let fields: Fields = [("a", large.as_str())].into_iter().collect();
    server.respond(1, StatusCode::OK, &fields, Ends { end: true, length: None, date: None });
    assert!(!server.can_respond(3));
    let n = server.output().len();
    let mut called = Vec::new();
    server.output_moved(n - 40_000, &mut |id, _, _| called.push(id));
    assert!(called.is_empty());
    server.output_moved(20_000, &mut |id, _, _| called.push(id));
    assert_eq!(called, [3]);
    assert!(server.can_respond(3));
}
