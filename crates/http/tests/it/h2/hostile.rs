//! Peers that violate the protocol: each row ends the connection or the stream with its code, at a bounded
//! cost.

use http::Method;
use offramp_http::h2::{Code, Connection, Kind, PREFACE, Reset, flag};

use super::frames::{CONFIG, Came, block, client, frame, headers, receive, request, resets, sent};

const OK: (&str, &str) = (":status", "200");

/// Expected result of a row.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Connection(Code),
    Stream(u32, Code),
    Nothing,
}

/// Passes a server's bytes to a client, in pieces of `step` bytes.
fn end(bytes: &[u8], step: usize) -> End {
    let mut client = client();
    for part in bytes.chunks(step) {
        if let Err(violation) = receive(&mut client, part) {
            let frames = sent(&mut client);
            let (kind, _, _, payload) = frames.last().unwrap();
            assert_eq!((*kind, &payload[4..8]), (Kind::GoAway, &violation.code.0.to_be_bytes()[..]));
            assert!(client.is_over());
            // Nothing more is processed.
            assert_eq!(receive(&mut client, part), Ok(0));
            return End::Connection(violation.code);
        }
    }
    let resets = resets(&sent(&mut client));
    let broken: Vec<_> = client
        .streams()
        .filter_map(|(id, came)| match &came.reset {
            Some(Reset::Violation(violation)) => Some((id, violation.code)),
            _ => None,
        })
        .collect();
    assert_eq!(resets, broken);
    match broken[..] {
        [] => End::Nothing,
        [(id, code)] => End::Stream(id, code),
        _ => panic!("{broken:?}"),
    }
}

fn check(rows: Vec<(&str, Vec<u8>, End)>) {
    for (what, bytes, wanted) in rows {
        for step in [1, 10, usize::MAX] {
            assert_eq!(end(&bytes, step), wanted, "{what}");
        }
    }
}

fn number(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn data(stream: u32, flags: u8, n: usize) -> Vec<u8> {
    frame(Kind::Data, flags, stream, &vec![b'x'; n])
}

#[test]
fn invalid_frames_end_the_connection() {
    let protocol = || End::Connection(Code::PROTOCOL_ERROR);
    let size = || End::Connection(Code::FRAME_SIZE_ERROR);
    let flow = || End::Connection(Code::FLOW_CONTROL_ERROR);
    let ok = |stream| headers(stream, 0, &[OK]);
    check(vec![
        ("SETTINGS on a stream", frame(Kind::Settings, 0, 1, &[]), protocol()),
        ("SETTINGS of half a setting", frame(Kind::Settings, 0, 0, &[0; 5]), size()),
        ("an answer to SETTINGS with something", frame(Kind::Settings, flag::ACK, 0, &[0; 6]), size()),
        ("SETTINGS that allow to push", frame(Kind::Settings, 0, 0, &[0, 2, 0, 0, 0, 1]), protocol()),
        ("a window of 2^31", frame(Kind::Settings, 0, 0, &[0, 4, 0x80, 0, 0, 0]), flow()),
        ("frames that are too small", frame(Kind::Settings, 0, 0, &[0, 5, 0, 0, 0, 1]), protocol()),
        ("PING of 7 bytes", frame(Kind::Ping, 0, 0, &[0; 7]), size()),
        ("PING on a stream", frame(Kind::Ping, 0, 1, &[0; 8]), protocol()),
        ("GOAWAY of 7 bytes", frame(Kind::GoAway, 0, 0, &[0; 7]), size()),
        ("GOAWAY on a stream", frame(Kind::GoAway, 0, 1, &[0; 8]), protocol()),
        ("PUSH_PROMISE", frame(Kind::PushPromise, 4, 1, &[0, 0, 0, 2, 0x82]), protocol()),
        ("PRIORITY of 4 bytes", frame(Kind::Priority, 0, 1, &[0; 4]), size()),
        ("RST_STREAM of 5 bytes", frame(Kind::ResetStream, 0, 1, &[0; 5]), size()),
        ("RST_STREAM on an idle stream", frame(Kind::ResetStream, 0, 7, &[0; 4]), protocol()),
        ("RST_STREAM on no stream", frame(Kind::ResetStream, 0, 0, &[0; 4]), protocol()),
        ("WINDOW_UPDATE of 0", frame(Kind::WindowUpdate, 0, 0, &[0; 4]), protocol()),
        ("WINDOW_UPDATE of 3 bytes", frame(Kind::WindowUpdate, 0, 1, &[0; 3]), size()),
        ("WINDOW_UPDATE beyond 2^31-1", frame(Kind::WindowUpdate, 0, 0, &number(0x7fff_ffff)), flow()),
        ("WINDOW_UPDATE on an idle stream", frame(Kind::WindowUpdate, 0, 7, &number(1)), protocol()),
        ("HEADERS on no stream", ok(0), protocol()),
        ("HEADERS on an idle stream", ok(7), protocol()),
        ("HEADERS on an even stream", ok(2), protocol()),
        ("HEADERS with too much padding", frame(Kind::Headers, 12, 1, &[5, 0x88]), protocol()),
        ("DATA on no stream", data(0, 0, 1), protocol()),
        ("DATA on an idle stream", data(7, 0, 1), protocol()),
        ("DATA with too much padding", frame(Kind::Data, flag::PADDED, 1, &[2, 0]), protocol()),
        ("more than the stream's window", [ok(1), data(1, 0, 1001)].concat(), flow()),
        ("a frame of 2^14+1 bytes", vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1], size()),
        ("CONTINUATION without HEADERS", frame(Kind::Continuation, 4, 1, &[]), protocol()),
        (
            "a frame within a block",
            [frame(Kind::Headers, 0, 1, &[]), frame(Kind::Ping, 0, 0, &[0; 8])].concat(),
            protocol(),
        ),
        (
            "CONTINUATION of another stream",
            [frame(Kind::Headers, 0, 1, &[]), frame(Kind::Continuation, 4, 3, &[])].concat(),
            protocol(),
        ),
        (
            "an index behind the tables",
            frame(Kind::Headers, 4, 1, &[0xff, 0x70]),
            End::Connection(Code::COMPRESSION_ERROR),
        ),
    ]);
    let mut client = Connection::client(CONFIG, 0);
    let early = receive(&mut client, &frame(Kind::Ping, 0, 0, &[0; 8])).unwrap_err();
    assert_eq!(early.code, Code::PROTOCOL_ERROR);
}

#[test]
fn invalid_responses_end_their_stream() {
    let protocol = |stream| End::Stream(stream, Code::PROTOCOL_ERROR);
    let closed = |stream| End::Stream(stream, Code::STREAM_CLOSED);
    let head = |fields: &[(&str, &str)]| headers(1, 0, fields);
    let length = |length| head(&[OK, ("content-length", length)]);
    let large = "x".repeat(2000);
    check(vec![
        ("no status", head(&[("a", "b")]), protocol(1)),
        ("two of them", head(&[OK, OK]), protocol(1)),
        ("a status behind a field", head(&[("a", "b"), OK]), protocol(1)),
        ("a status of two digits", head(&[(":status", "20")]), protocol(1)),
        ("101", head(&[(":status", "101")]), protocol(1)),
        ("an interim response that ends", headers(1, 1, &[(":status", "103")]), protocol(1)),
        ("a field of requests", head(&[OK, (":path", "/")]), protocol(1)),
        ("an unknown pseudo-header field", head(&[OK, (":x", "/")]), protocol(1)),
        ("uppercase", head(&[OK, ("Server", "x")]), protocol(1)),
        ("no token", head(&[OK, ("a b", "x")]), protocol(1)),
        ("a line feed", head(&[OK, ("a", "x\ny")]), protocol(1)),
        ("NUL", head(&[OK, ("a", "x\0y")]), protocol(1)),
        ("a field of a connection", head(&[OK, ("connection", "close")]), protocol(1)),
        ("Transfer-Encoding", head(&[OK, ("transfer-encoding", "chunked")]), protocol(1)),
        ("a head that is too large", head(&[OK, ("a", &large)]), protocol(1)),
        ("two lengths", head(&[OK, ("content-length", "1"), ("content-length", "2")]), protocol(1)),
        ("a length that is none", length("-1"), protocol(1)),
        ("a length and no content", headers(1, 1, &[OK, ("content-length", "1")]), protocol(1)),
        ("more content than was said", [length("1"), data(1, 0, 2)].concat(), protocol(1)),
        ("less content than was said", [length("2"), data(1, 1, 1)].concat(), protocol(1)),
        ("less before trailers", [length("2"), headers(1, 1, &[("a", "b")])].concat(), protocol(1)),
        ("content for HEAD", [headers(3, 0, &[OK]), data(3, 1, 1)].concat(), protocol(3)),
        ("content behind 204", [head(&[(":status", "204")]), data(1, 1, 1)].concat(), protocol(1)),
        ("content behind 304", [head(&[(":status", "304")]), data(1, 1, 1)].concat(), protocol(1)),
        ("content before the head", data(1, 0, 1), protocol(1)),
        (
            "content behind an interim response",
            [head(&[(":status", "103")]), data(1, 0, 1)].concat(),
            protocol(1),
        ),
        ("trailers that do not end", [head(&[OK]), headers(1, 0, &[("a", "b")])].concat(), protocol(1)),
        ("trailers with a status", [head(&[OK]), headers(1, 1, &[OK])].concat(), protocol(1)),
        ("malformed trailers", [head(&[OK]), headers(1, 1, &[("A", "b")])].concat(), protocol(1)),
        ("content behind the end", [headers(1, 1, &[OK]), data(1, 0, 1)].concat(), closed(1)),
        ("fields behind the end", [headers(1, 1, &[OK]), headers(1, 1, &[("a", "b")])].concat(), closed(1)),
        ("WINDOW_UPDATE of 0", frame(Kind::WindowUpdate, 0, 5, &[0; 4]), protocol(5)),
        (
            "a window beyond 2^31-1",
            frame(Kind::WindowUpdate, 0, 5, &number(0x7fff_ffff)),
            End::Stream(5, Code::FLOW_CONTROL_ERROR),
        ),
    ]);
}

#[test]
fn unusual_valid_frames_pass() {
    let same = [OK, ("content-length", "1"), ("content-length", "1")];
    check(vec![
        ("a setting that nobody knows", frame(Kind::Settings, 0, 0, &[9, 9, 0, 0, 0, 1]), End::Nothing),
        ("a frame that nobody knows", vec![0, 0, 1, 99, 7, 0, 0, 0, 1, 0], End::Nothing),
        ("a length twice", [headers(1, 0, &same), data(1, 1, 1)].concat(), End::Nothing),
        ("a length for HEAD", headers(3, 1, &[OK, ("content-length", "99")]), End::Nothing),
        ("a length with 304", headers(1, 1, &[(":status", "304"), ("content-length", "9")]), End::Nothing),
        ("nothing behind 204", [headers(1, 0, &[(":status", "204")]), data(1, 1, 0)].concat(), End::Nothing),
        ("a status of 999", headers(1, 1, &[(":status", "999")]), End::Nothing),
        ("a priority", frame(Kind::Priority, 0, 77, &[0; 5]), End::Nothing),
        ("padding and a priority", frame(Kind::Headers, 0x2d, 1, &[1, 0, 0, 0, 0, 9, 0x88, 0]), End::Nothing),
        ("RST_STREAM twice", frame(Kind::ResetStream, 0, 5, &[0; 4]).repeat(2), End::Nothing),
    ]);
}

/// Number of such frames that a client tolerates; checks what it holds and has to send then.
fn tolerates(each: &[u8], most: usize) -> usize {
    let mut client = client();
    receive(&mut client, &headers(1, 0, &[OK])).unwrap();
    for count in 0..most {
        if let Err(violation) = receive(&mut client, each) {
            assert_eq!(violation.code, Code::ENHANCE_YOUR_CALM, "{violation}");
            return count;
        }
        assert!(client.memory() < 200_000, "{}", client.memory());
    }
    most
}

#[test]
fn floods_end_the_connection() {
    for (what, each) in [
        ("PING", frame(Kind::Ping, 0, 0, &[0; 8])),
        ("answers to PING", frame(Kind::Ping, flag::ACK, 0, &[0; 8])),
        ("SETTINGS", frame(Kind::Settings, 0, 0, &[])),
        ("answers to SETTINGS", frame(Kind::Settings, flag::ACK, 0, &[])),
        ("empty DATA", data(1, 0, 0)),
        ("WINDOW_UPDATE", frame(Kind::WindowUpdate, 0, 0, &number(1))),
        ("WINDOW_UPDATE of a stream", frame(Kind::WindowUpdate, 0, 5, &number(1))),
        ("PRIORITY", frame(Kind::Priority, 0, 1, &[0; 5])),
        ("RST_STREAM", frame(Kind::ResetStream, 0, 1, &[0; 4])),
        ("GOAWAY", frame(Kind::GoAway, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0])),
        ("unknown frames", vec![0, 0, 1, 99, 0, 0, 0, 0, 1, 0]),
    ] {
        let count = tolerates(&each, 20_000);
        assert!((100..=1200).contains(&count), "{what}: {count}");
    }
    // An endless header block, in many or few pieces.
    for size in [1, 100, 16_000] {
        let mut client = client();
        receive(&mut client, &frame(Kind::Headers, 0, 1, &[])).unwrap();
        let each = frame(Kind::Continuation, 0, 1, &vec![0; size]);
        let end = (0..20_000).find_map(|_| receive(&mut client, &each).err()).unwrap();
        assert_eq!(end.code, Code::ENHANCE_YOUR_CALM);
        assert!(client.memory() < 100_000, "{}", client.memory());
    }
}

/// A server may answer each frame of a gRPC stream with two WINDOW_UPDATE and a PING.
#[test]
fn replies_to_data_are_no_flood() {
    let mut client = client();
    let answers = [
        frame(Kind::WindowUpdate, 0, 0, &number(5)),
        frame(Kind::WindowUpdate, 0, 5, &number(5)),
        frame(Kind::Ping, 0, 0, &[0; 8]),
    ]
    .concat();
    for _ in 0..20_000 {
        assert!(client.data(5, super::frames::content(5), false));
        receive(&mut client, &answers).unwrap();
        sent(&mut client);
    }
}

#[test]
fn endless_interim_responses_end_the_stream() {
    let mut client = client();
    let each = headers(1, 0, &[(":status", "102")]);
    for _ in 0..501 {
        receive(&mut client, &each).unwrap();
    }
    let came = client.stream(1).unwrap();
    assert!(
        matches!(&came.reset, Some(Reset::Violation(violation)) if violation.code == Code::ENHANCE_YOUR_CALM)
    );
    assert_eq!(came.heads.len(), 500);
}

/// A block of a few bytes that expands to very many: it ends its stream, and takes no memory.
#[test]
fn hpack_bombs_take_no_memory() {
    let mut client = client();
    let mut bomb = block(&[OK]);
    // A literal of 4000 bytes into the table, and its index repeatedly.
    bomb.extend_from_slice(&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    bomb.extend_from_slice(&[b'x'; 4000]);
    bomb.extend_from_slice(&[0xbe; 8000]);
    receive(&mut client, &frame(Kind::Headers, 5, 1, &bomb)).unwrap();
    assert!(matches!(client.stream(1).unwrap().reset, Some(Reset::Violation(_))));
    assert!(client.memory() < 100_000);
    // The table is in sync: the next response refers to it.
    let next = [&block(&[OK])[..], &[0xbe]].concat();
    receive(&mut client, &frame(Kind::Headers, 5, 3, &next)).unwrap();
    assert!(matches!(client.stream(3).unwrap().reset, Some(Reset::Violation(_))), "4 KiB are too large");
}

/// A server that causes resets of all streams by violations loses its connection.
#[test]
fn streams_with_faults_are_charged() {
    let mut client = Connection::client(CONFIG, 0);
    receive(&mut client, &frame(Kind::Settings, 0, 0, &[])).unwrap();
    let end = (0..1000).find_map(|_| {
        let id = client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
        let end = receive(&mut client, &headers(id, 1, &[("a", "b")])).err();
        client.forget(id, Code::CANCEL);
        end
    });
    assert_eq!(end.unwrap().code, Code::ENHANCE_YOUR_CALM);
}

/// Frames for streams that the client has reset are dropped, however many there were.
#[test]
fn frames_of_abandoned_streams_are_dropped() {
    let mut client = Connection::client(CONFIG, 0);
    receive(&mut client, &frame(Kind::Settings, 0, 0, &[])).unwrap();
    for _ in 0..100 {
        let id = client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
        client.forget(id, Code::CANCEL);
        receive(&mut client, &[headers(id, 0, &[OK]), data(id, 1, 900)].concat()).unwrap();
    }
    // The window of the connection was reopened.
    let given: u32 = sent(&mut client)
        .iter()
        .filter(|(kind, _, stream, _)| (*kind, *stream) == (Kind::WindowUpdate, 0))
        .map(|(.., payload)| u32::from_be_bytes(payload[..].try_into().unwrap()))
        .sum();
    assert!(given >= 34_465 + 50_000, "{given}");
}

/// Violations by clients, as far as servers have rules of their own.
#[test]
fn invalid_requests_are_rejected() {
    let begin = [&PREFACE[..], &frame(Kind::Settings, 0, 0, &[])].concat();
    let whole = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a.test")];
    let with = |more: (&'static str, &'static str)| [&whole[..], &[more]].concat();
    for (what, fields) in [
        ("no method", whole[1..].to_vec()),
        ("no path", vec![whole[0], whole[1], whole[3]]),
        ("a status", with((":status", "200"))),
        ("a path twice", with((":path", "/"))),
        ("a length without content", with(("content-length", "1"))),
        ("Connection", with(("connection", "close"))),
        ("TE", with(("te", "gzip"))),
    ] {
        let mut server: Connection<Came> = Connection::server(CONFIG, 0);
        receive(&mut server, &[&begin[..], &headers(1, 1, &fields)].concat()).unwrap();
        assert_eq!(resets(&sent(&mut server)), [(1, Code::PROTOCOL_ERROR)], "{what}");
        assert!(server.stream(1).is_none());
        // A later request is served.
        receive(&mut server, &headers(3, 1, &whole)).unwrap();
        assert!(server.stream(3).unwrap().end, "{what}");
    }
    for (what, bytes, code) in [
        ("an even stream", headers(2, 1, &whole), Code::PROTOCOL_ERROR),
        ("a stream that has ended", headers(1, 1, &whole), Code::STREAM_CLOSED),
        ("PUSH_PROMISE", frame(Kind::PushPromise, 4, 3, &[0; 4]), Code::PROTOCOL_ERROR),
    ] {
        let mut server: Connection<Came> = Connection::server(CONFIG, 0);
        receive(&mut server, &[&begin[..], &headers(3, 1, &whole)].concat()).unwrap();
        assert_eq!(receive(&mut server, &bytes).unwrap_err().code, code, "{what}");
    }
    let mut server: Connection<Came> = Connection::server(CONFIG, 0);
    assert_eq!(receive(&mut server, b"GET / HTTP/1.1\r\n").unwrap_err().code, Code::PROTOCOL_ERROR);
}
