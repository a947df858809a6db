//! Rules of RFC 9113 between conforming peers.

use http::{Method, StatusCode};
use offramp_http::h2::{Code, Connection, Kind, Reset, Unopened, Violation};
use offramp_http::head::{Fields, Request};

use super::frames::{CONFIG, Came, client, content, frame, headers, output, receive, request, resets, sent};

const OK: (&str, &str) = (":status", "200");

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let bytes = |&(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(Kind::Settings, 0, 0, &pairs.iter().flat_map(bytes).collect::<Vec<_>>())
}

fn window(stream: u32, more: u32) -> Vec<u8> {
    frame(Kind::WindowUpdate, 0, stream, &more.to_be_bytes())
}

#[test]
fn a_response_has_heads_content_and_trailers() {
    let mut client = client();
    let bytes = [
        headers(1, 0, &[(":status", "103"), ("link", "x")]),
        headers(1, 0, &[OK, ("content-length", "5")]),
        frame(Kind::Data, 0, 1, b"he"),
        frame(Kind::Data, 0, 1, b"llo"),
        headers(1, 1, &[("grpc-status", "0")]),
    ]
    .concat();
    receive(&mut client, &bytes).unwrap();
    let came = client.stream(1).unwrap();
    assert_eq!((&came.heads[..], &came.data[..], came.end), (&[103, 200][..], &b"hello"[..], true));
    let trailers = came.trailers.as_ref().unwrap();
    assert_eq!(trailers.iter().collect::<Vec<_>>(), [(&b"grpc-status"[..], &b"0"[..])]);
    assert_eq!(client.open_streams(), 2);
    assert!(client.forget(1, Code::CANCEL) && client.stream(1).is_none());
    assert!(resets(&sent(&mut client)).is_empty(), "it has ended in order");
}

#[test]
fn a_request_has_the_fields_of_http2() {
    let mut client: Connection<Came> = Connection::client(CONFIG, 0);
    let mut server: Connection<Came> = Connection::server(CONFIG, 0);
    let mut request = request(Method::POST, "/a?b");
    for (name, value) in [("te", "trailers"), ("x-a", "1"), ("cookie", "a=b"), ("connection", "x")] {
        request.fields.append(name.as_bytes(), value.as_bytes());
    }
    for (name, value) in [("transfer-encoding", "chunked"), ("upgrade", "x"), ("keep-alive", "1")] {
        request.fields.append(name.as_bytes(), value.as_bytes());
    }
    for _ in 0..3 {
        client.open(Came::default(), &request, "https", Some(7), false).unwrap();
    }
    let bytes = output(&mut client, usize::MAX);
    let mut got = Vec::new();
    server
        .receive(&bytes, 0, &mut |id, _, event| {
            let offramp_http::h2::Event::Request { request, end, .. } = event else { panic!() };
            got.push((id, request, end));
        })
        .unwrap();
    assert_eq!(got.iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [1, 3, 5]);
    for (_, request, end) in got {
        assert!(!end && request.method == Method::POST);
        assert_eq!((request.target(), request.host()), ("/a?b", Some(&b"a.test"[..])));
        let fields: Vec<_> = request.fields.iter().filter(|(name, _)| *name != b"host").collect();
        let wanted: [(&[u8], &[u8]); 4] =
            [(b"te", b"trailers"), (b"x-a", b"1"), (b"cookie", b"a=b"), (b"content-length", b"7")];
        assert_eq!(fields, wanted);
    }
}

#[test]
fn a_request_without_a_host_is_not_sent() {
    let mut client: Connection<Came> = Connection::client(CONFIG, 0);
    for host in [None, Some(&b""[..]), Some(b"user@a.test"), Some(b"a b")] {
        let mut request = Request::new();
        if let Some(host) = host {
            request.fields.set_host(host);
        }
        let unopened = client.open(Came::default(), &request, "https", None, true).unwrap_err();
        assert_eq!(unopened.0, Unopened::NoAuthority);
    }
    assert_eq!(client.open_streams(), 0);
}

#[test]
fn windows_bound_what_is_sent() {
    let mut client = client();
    assert_eq!(client.capacity(5), 16_384);
    let mut left = 65_535;
    while left > 0 {
        let n = client.capacity(5);
        assert_eq!(n, left.min(16_384));
        assert!(client.data(5, content(n), false));
        left -= n;
        sent(&mut client);
    }
    assert_eq!(client.capacity(5), 0);
    // A window of the stream alone is not enough, nor is one of the connection.
    receive(&mut client, &window(5, 10)).unwrap();
    assert_eq!((client.capacity(5), client.stream(5).unwrap().writable), (0, 0));
    receive(&mut client, &window(0, 7)).unwrap();
    assert_eq!((client.capacity(5), client.stream(5).unwrap().writable), (7, 1));
    assert!(client.data(5, content(7), false));
    assert_eq!(client.capacity(5), 0);
    receive(&mut client, &window(0, 70_000)).unwrap();
    assert_eq!((client.capacity(5), client.stream(5).unwrap().writable), (3, 2));
    // A change of the initial window applies to open streams, even below zero (RFC 9113 §6.9.2).
    receive(&mut client, &settings(&[(4, 65_535 - 5)])).unwrap();
    assert_eq!(client.capacity(5), 0);
    receive(&mut client, &settings(&[(4, 65_535 + 5)])).unwrap();
    assert_eq!((client.capacity(5), client.stream(5).unwrap().writable), (8, 3));
    // Only the last value counts: the first one would overflow a grown window.
    receive(&mut client, &window(5, 200_000)).unwrap();
    receive(&mut client, &settings(&[(4, 0x7fff_ffff), (4, 65_535 + 30_000)])).unwrap();
    assert_eq!(client.capacity(5), 16_384);
}

#[test]
fn released_bytes_reopen_the_windows() {
    let mut client = client();
    receive(&mut client, &headers(1, 0, &[OK])).unwrap();
    let data = |n| frame(Kind::Data, 0, 1, &content(n));
    receive(&mut client, &data(1000)).unwrap();
    assert!(sent(&mut client).is_empty());
    client.release(1, 499);
    assert!(sent(&mut client).is_empty(), "it is said when it is half of the window");
    client.release(1, 1);
    assert_eq!(sent(&mut client), [(Kind::WindowUpdate, 0, 1, 500_u32.to_be_bytes().to_vec())]);
    receive(&mut client, &data(500)).unwrap();
    // Padding is released automatically.
    client.release(1, 1000);
    sent(&mut client);
    let padded = [&[200][..], &[0; 200]].concat();
    for _ in 0..10 {
        receive(&mut client, &frame(Kind::Data, 8, 1, &padded)).unwrap();
    }
    // No more is released than was received.
    client.release(1, 1 << 20);
    let given = |frames: &[(Kind, u8, u32, Vec<u8>)], stream| {
        let of = frames.iter().filter(|(kind, _, of, _)| (*kind, *of) == (Kind::WindowUpdate, stream));
        of.map(|(.., payload)| u32::from_be_bytes(payload[..].try_into().unwrap())).sum::<u32>()
    };
    let frames = sent(&mut client);
    assert!((1500..=2010).contains(&given(&frames, 1)), "{frames:?}");
}

#[test]
fn an_unshared_window_reopens_as_data_arrives() {
    let config = offramp_http::h2::Config { shared_window: false, ..CONFIG };
    let mut client = Connection::client(config, 0);
    receive(&mut client, &frame(Kind::Settings, 0, 0, &[])).unwrap();
    sent(&mut client);
    // 60 streams that are not read: the window of the connection was 100,000, and was reopened.
    for _ in 0..60 {
        let id = client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
        receive(&mut client, &[headers(id, 0, &[OK]), frame(Kind::Data, 0, id, &content(1000))].concat())
            .unwrap();
    }
    let frames = sent(&mut client);
    assert!(frames.contains(&(Kind::WindowUpdate, 0, 0, 50_000_u32.to_be_bytes().to_vec())));
    assert!(!frames.iter().any(|(kind, _, stream, _)| *kind == Kind::WindowUpdate && *stream > 0));
}

#[test]
fn waiting_streams_take_turns() {
    let mut client: Connection<Came> = Connection::client(CONFIG, 0);
    receive(&mut client, &[settings(&[(4, 1 << 20)]), window(0, 1 << 20)].concat()).unwrap();
    let ids: Vec<_> = (0..4)
        .map(|_| client.open(Came::default(), &request(Method::PUT, "/"), "http", None, false).unwrap())
        .collect();
    let (mut order, mut called) = (Vec::new(), ids.clone());
    for _ in 0..40 {
        // The first stream takes all the space.
        for id in std::mem::take(&mut called) {
            while client.capacity(id) > 0 {
                let n = client.capacity(id);
                assert!(client.data(id, content(n), false));
                order.push(id);
            }
        }
        while !client.output().is_empty() {
            let n = client.output().len().min(20_000);
            client.output_moved(n, &mut |id, _, _| called.push(id));
        }
    }
    for id in &ids {
        let turns = order.iter().filter(|turn| *turn == id).count();
        assert!((16..=20).contains(&turns), "{order:?}");
    }
}

/// A server reports streams that wait in the order of RFC 9218; a client has no priorities.
#[test]
fn urgent_streams_continue_first() {
    let (mut client, mut server): (Connection<Came>, Connection<Came>) =
        (Connection::client(CONFIG, 0), Connection::server(CONFIG, 0));
    for priority in ["u=6", "u=1", "u=4", ""] {
        let mut request = request(Method::GET, "/");
        if !priority.is_empty() {
            request.fields.append(b"priority", priority.as_bytes());
        }
        client.open(Came::default(), &request, "http", None, true).unwrap();
    }
    receive(&mut server, &output(&mut client, usize::MAX)).unwrap();
    let update = |id: u32, value: &[u8]| [&id.to_be_bytes()[..], value].concat();
    receive(&mut server, &frame(Kind::PriorityUpdate, 0, 0, &update(5, b"u=0"))).unwrap();
    for id in [1, 3, 5, 7] {
        let fields: Fields =
            if id == 7 { [("priority", "u=2")].into_iter().collect() } else { Fields::new() };
        server.respond(id, StatusCode::OK, &fields, false);
        let room = server.capacity(id);
        server.data(id, content(room), false);
        assert_eq!(server.capacity(id), 0);
    }
    output(&mut server, usize::MAX);
    let mut called = Vec::new();
    server.receive(&settings(&[(4, 1 << 20)]), 0, &mut |id, _, _| called.push(id)).unwrap();
    server.receive(&window(0, 1 << 20), 0, &mut |id, _, _| called.push(id)).unwrap();
    assert_eq!(called, [5, 3, 7, 1]);
    let bad = [
        (frame(Kind::PriorityUpdate, 0, 3, &update(5, b"")), Code::PROTOCOL_ERROR),
        (frame(Kind::PriorityUpdate, 0, 0, &update(0, b"")), Code::PROTOCOL_ERROR),
        (frame(Kind::PriorityUpdate, 0, 0, &[0; 3]), Code::FRAME_SIZE_ERROR),
    ];
    for (bytes, code) in bad {
        let mut server: Connection<Came> = Connection::server(CONFIG, 0);
        let greeting = [offramp_http::h2::PREFACE, &settings(&[])[..]].concat();
        receive(&mut server, &greeting).unwrap();
        assert_eq!(receive(&mut server, &bytes).unwrap_err().code, code);
    }
    receive(&mut client, &settings(&[])).unwrap();
    let of_server = receive(&mut client, &frame(Kind::PriorityUpdate, 0, 0, &update(1, b""))).unwrap_err();
    assert_eq!(of_server.code, Code::PROTOCOL_ERROR);
}

/// Before a client has seen smaller windows, it may use the initial ones (RFC 9113 §6.9.2). A server has seen
/// them when it receives a request, which follows them.
#[test]
fn smaller_windows_apply_once_acknowledged() {
    let data = |stream, n| frame(Kind::Data, 0, stream, &content(n));
    let acknowledged = frame(Kind::Settings, 1, 0, &[]);
    let too_much = |more: Result<usize, Violation>| more.map_err(|violation| violation.code).err();
    for heard in [false, true] {
        let (mut client, mut server): (Connection<Came>, Connection<Came>) =
            (Connection::client(CONFIG, 0), Connection::server(CONFIG, 0));
        client.open(Came::default(), &request(Method::POST, "/"), "http", None, false).unwrap();
        receive(&mut server, &output(&mut client, usize::MAX)).unwrap();
        receive(&mut server, &data(1, 1000)).unwrap();
        receive(&mut client, &[settings(&[]), headers(1, 0, &[OK]), data(1, 1000)].concat()).unwrap();
        if heard {
            receive(&mut client, &acknowledged).unwrap();
            receive(&mut server, &acknowledged).unwrap();
        }
        let wanted = Some(Code::FLOW_CONTROL_ERROR);
        assert_eq!(too_much(receive(&mut server, &data(1, 1))), wanted.filter(|_| heard));
        assert_eq!(too_much(receive(&mut client, &data(1, 1))), wanted);
    }
}

/// A larger window of a stream is announced in one frame, and a smaller one takes effect as data is released.
#[test]
fn the_window_of_a_stream_can_be_changed() {
    let mut client = client();
    receive(&mut client, &headers(1, 0, &[OK])).unwrap();
    let data = |n| frame(Kind::Data, 0, 1, &content(n));
    let said = |n: u32| (Kind::WindowUpdate, 0, 1, n.to_be_bytes().to_vec());
    assert_eq!(client.set_window(1, 10_000), 10_000);
    assert_eq!(sent(&mut client), [said(9000)]);
    receive(&mut client, &data(6000)).unwrap();
    // Nothing was released that could be taken back.
    assert_eq!(client.set_window(1, 2000), 10_000);
    client.release(1, 4000);
    assert_eq!(client.set_window(1, 2000), 6000);
    client.release(1, 2000);
    assert_eq!(client.set_window(1, 2000), 4000);
    assert!(sent(&mut client).is_empty());
    // The announced window remains valid.
    receive(&mut client, &data(4000)).unwrap();
    client.release(1, 4000);
    assert_eq!((client.set_window(1, 0), sent(&mut client)), (4000, vec![said(4000)]));
    receive(&mut client, &data(4000)).unwrap();
    let over = receive(&mut client, &data(1)).unwrap_err();
    assert_eq!(over.code, Code::FLOW_CONTROL_ERROR);
    // It is never below that of the settings, and ended streams get none.
    assert_eq!(client.set_window(9, 7), CONFIG.stream_window);
}

#[test]
fn goaway_returns_unprocessed_requests() {
    let mut client = client();
    receive(&mut client, &frame(Kind::GoAway, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 11])).unwrap();
    assert_eq!(client.goaway(), Some((3, Code::ENHANCE_YOUR_CALM)));
    assert_eq!(client.stream(5).unwrap().reset, Some(Reset::GoAway(Code::ENHANCE_YOUR_CALM)));
    assert!(client.stream(1).unwrap().reset.is_none() && !client.can_open() && !client.is_over());
    // A later GOAWAY may lower the number, not raise it.
    receive(&mut client, &frame(Kind::GoAway, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0])).unwrap();
    receive(&mut client, &frame(Kind::GoAway, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).unwrap();
    assert_eq!(client.stream(3).unwrap().reset, Some(Reset::GoAway(Code::NO_ERROR)));
    receive(&mut client, &headers(1, 1, &[OK])).unwrap();
    assert!(client.stream(1).unwrap().end);
    for id in [1, 3, 5] {
        client.forget(id, Code::CANCEL);
    }
    assert!(client.is_over());
    assert!(
        resets(&sent(&mut client)).is_empty(),
        "nothing is said of streams that the server does not know"
    );
}

#[test]
fn a_client_obeys_the_maximum_of_streams() {
    let mut client = client();
    assert_eq!((client.max_streams(), client.open_streams()), (100, 3));
    receive(&mut client, &settings(&[(3, 4)])).unwrap();
    assert!(client.can_open());
    client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
    assert!(!client.can_open() && client.takes_streams());
    receive(&mut client, &headers(1, 1, &[OK])).unwrap();
    assert!(client.can_open(), "a stream that has ended does not count");
    receive(&mut client, &frame(Kind::ResetStream, 0, 3, &8_u32.to_be_bytes())).unwrap();
    assert_eq!(client.stream(3).unwrap().reset, Some(Reset::Peer(Code::CANCEL)));
    assert_eq!(client.open_streams(), 2);
}

#[test]
fn a_server_refuses_streams_beyond_its_maximum() {
    let config = offramp_http::h2::Config { max_streams: 2, ..CONFIG };
    let mut client: Connection<Came> = Connection::client(CONFIG, 0);
    let mut server: Connection<Came> = Connection::server(config, 0);
    for _ in 0..3 {
        client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
    }
    let bytes = output(&mut client, usize::MAX);
    receive(&mut server, &bytes).unwrap();
    let bytes = output(&mut server, usize::MAX);
    receive(&mut client, &bytes).unwrap();
    assert_eq!(client.stream(5).unwrap().reset, Some(Reset::Peer(Code::REFUSED_STREAM)));
    assert_eq!((server.open_streams(), client.max_streams()), (2, 2));
}

/// The server knows nothing of heads that were not sent when a connection ends.
#[test]
fn sent_heads_are_known() {
    let mut client: Connection<Came> = Connection::client(CONFIG, 0);
    let begin = client.output().len();
    client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
    let first = client.output().len();
    client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
    assert!(!client.has_left(1) && !client.has_left(3));
    output(&mut client, begin);
    assert!(!client.has_left(1));
    output(&mut client, 1);
    assert!(client.has_left(1));
    output(&mut client, first - begin - 1);
    assert!(!client.has_left(3));
    output(&mut client, 1);
    assert!(client.has_left(3));
}

/// A draining server serves requests that were sent before the client saw GOAWAY (RFC 9113 §6.8).
#[test]
fn a_server_that_drains_loses_no_request() {
    let mut client: Connection<Came> = Connection::client(CONFIG, 0);
    let mut server: Connection<Came> = Connection::server(CONFIG, 0);
    let carry = |from: &mut Connection<Came>, to: &mut Connection<Came>| {
        let bytes = output(from, usize::MAX);
        receive(to, &bytes).unwrap();
    };
    carry(&mut client, &mut server);
    carry(&mut server, &mut client);
    server.drain();
    let id = client.open(Came::default(), &request(Method::GET, "/"), "http", None, true).unwrap();
    carry(&mut client, &mut server);
    carry(&mut server, &mut client);
    assert!(client.stream(id).unwrap().reset.is_none() && !client.can_open());
    carry(&mut client, &mut server);
    server.respond(id, StatusCode::OK, &Fields::new(), true);
    carry(&mut server, &mut client);
    assert_eq!((client.goaway(), client.stream(id).unwrap().end), (Some((1, Code::NO_ERROR)), true));
    assert!(!server.is_over());
    server.forget(id, Code::CANCEL);
    client.forget(id, Code::CANCEL);
    assert!(server.is_over() && client.is_over());
}

#[test]
fn a_client_that_drains_opens_no_more() {
    let mut client = client();
    client.drain();
    assert!(!client.can_open() && !client.is_over());
    assert_eq!(sent(&mut client), [(Kind::GoAway, 0, 0, vec![0; 8])]);
    for id in [1, 3, 5] {
        client.forget(id, Code::CANCEL);
    }
    assert!(client.is_over());
    assert_eq!(resets(&sent(&mut client)), [(1, Code::CANCEL), (3, Code::CANCEL), (5, Code::CANCEL)]);
}

#[test]
fn pings_are_answered_and_memory_is_given_back() {
    let mut client = client();
    receive(&mut client, &frame(Kind::Ping, 0, 0, b"12345678")).unwrap();
    assert_eq!(sent(&mut client), [(Kind::Ping, 1, 0, b"12345678".to_vec())]);
    for id in [1, 3, 5] {
        client.forget(id, Code::CANCEL);
    }
    sent(&mut client);
    client.rest();
    assert!(client.memory() < 10_000, "{}", client.memory());
}
