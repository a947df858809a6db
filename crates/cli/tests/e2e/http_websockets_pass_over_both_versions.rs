//! WebSocket over HTTP/1.1 and HTTP/2 (RFC 6455, RFC 8441), and other protocols by `Upgrade`.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use offramp_testkit::server::{Listen, Server, websocket_accept};

use crate::support::crowd::{connect, get, trusting};
use crate::support::h2_client::kind::{DATA, HEADERS, SETTINGS};
use crate::support::h2_client::{self, ACK, END_HEADERS, END_STREAM, H2, data, headers, request};
use crate::support::http_app::{app, respond};
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};
use crate::support::{http_h2, http_node};

/// A masked frame (RFC 6455 §5.2) whose mask is nothing but zeros.
fn frame(opcode: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode, 0x80 | 127];
    frame.extend_from_slice(&(data.len() as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(data);
    frame
}

/// The same as a server sends it, for data of 64 KiB or more.
fn answer(opcode: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode, 127];
    frame.extend_from_slice(&(data.len() as u64).to_be_bytes());
    frame.extend_from_slice(data);
    frame
}

/// The beginning of a response that changes the protocol.
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n";

const ROUTE: &str = "[[route]]\nserver = \"unix:app.sock\"\n";

/// Reads a head, and not a byte more.
pub(crate) fn head(stream: &mut impl std::io::Read) -> String {
    raw_head(stream).to_ascii_lowercase()
}

fn raw_head(stream: &mut impl std::io::Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_websocket_passes_over_http_1() {
    let home = Home::new();
    let _application = http_node::start(&home);
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{ROUTE}"));
    let mut tls =
        connect(&trusting(&instance.home.ca.certificate()), instance.address(), "localhost").unwrap();
    // A request before it on the same connection, and a frame that does not wait for the 101.
    assert!(get(&mut tls, "/before").unwrap().contains("/before"));
    let message = vec![b'm'; 1 << 20];
    tls.write_all(
        b"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    )
    .unwrap();
    let head = head(&mut tls);
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    // RFC 6455 §1.3.
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    tls.write_all(&frame(2, &message)).unwrap();
    let expected = answer(2, &message);
    let mut back = vec![0; expected.len()];
    tls.read_exact(&mut back).unwrap();
    assert!(back == expected);
    tls.write_all(&frame(8, &[])).unwrap();
    let mut end = Vec::new();
    tls.read_to_end(&mut end).unwrap();
    assert_eq!(end, [0x88, 0]);
    tls.conn.send_close_notify();
    tls.flush().unwrap();
    let event = instance.event("the WebSocket", |event| event["status"] == 101);
    assert_eq!((cause(&event), text(&event, "path")), ("completed", "/socket"), "{event}");
    assert!(event["bytes_to_client"].as_u64().unwrap() > 1 << 20, "{event}");
    instance.stop();
}

#[test]
fn a_websocket_passes_over_http_2() {
    let home = Home::new();
    let _application = http_node::start(&home);
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{ROUTE}"));
    let config = trusting(&instance.home.ca.certificate());
    http_h2::run(async {
        let mut sender = http_h2::connect(&config, instance.address()).await.unwrap().ready().await.unwrap();
        while !sender.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let request = || {
            http::Request::connect("https://localhost/socket")
                .version(http::Version::HTTP_2)
                .header("sec-websocket-version", "13")
                .extension(Protocol::from_static("websocket"))
                .body(())
                .unwrap()
        };
        let (response, mut up) = sender.send_request(request(), false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("sec-websocket-accept"), "{response:?}");
        let mut down = response.into_body();
        let message = vec![b'm'; 200_000];
        let expected = answer(1, &message);
        up.send_data(Bytes::from(frame(1, &message)), false).unwrap();
        let mut back = Vec::new();
        while back.len() < expected.len() {
            let part = down.data().await.unwrap().unwrap();
            down.flow_control().release_capacity(part.len()).unwrap();
            back.extend_from_slice(&part);
        }
        assert!(back == expected);
        // Other requests go on beside it.
        let beside = http::Request::get("https://localhost/beside").body(()).unwrap();
        let (beside, _) = sender.send_request(beside, true).unwrap();
        assert_eq!(beside.await.unwrap().status(), 200);
        up.send_data(Bytes::from(frame(8, &[])), true).unwrap();
        assert_eq!(http_h2::body(down).await.unwrap(), [0x88, 0]);

        // One that is reset ends at the server too.
        let (response, mut up) = sender.send_request(request(), false).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
        up.send_reset(h2::Reason::CANCEL);
        let aborted = || instance.events().into_iter().find(|event| cause(event) == "client_left");
        while aborted().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let events = instance.stop();
    let sockets: Vec<_> = events.iter().filter(|event| text(event, "path") == "/socket").collect();
    let told: Vec<_> = sockets.iter().map(|e| (text(e, "method"), e["status"].as_u64(), cause(e))).collect();
    // As over HTTP/1.1.
    assert_eq!(told, [("GET", Some(101), "completed"), ("GET", Some(101), "client_left")]);
}

/// Sends back what it is sent, piece by piece, from the answer 101 on.
pub(crate) fn shouting_back(home: &Home) -> Server {
    Server::start(&Listen::Unix(home.file("app.sock")), |mut stream| {
        let accept = websocket_accept(&raw_head(&mut stream));
        let switch = format!("{SWITCH}Upgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n");
        stream.write_all(switch.as_bytes()).unwrap();
        let mut piece = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            if stream.write_all(&piece[..n]).is_err() {
                break;
            }
        }
    })
    .unwrap()
}

/// Opens a tunnel on a stream, sends `bytes` cut at `cuts`, and reads them back, with windows of `window` bytes.
fn there_and_back(h2: &mut H2, stream: u32, bytes: &[u8], cuts: &[usize], window: usize) {
    let mut fields = request("CONNECT", "/socket", &[]);
    fields.extend([(":protocol", "websocket"), ("sec-websocket-version", "13")]);
    assert!(h2.send(&headers(stream, END_HEADERS, &fields)));
    let answer = h2.find("answer", |frame| frame.kind == HEADERS && frame.stream == stream);
    assert_eq!(answer.status(), 200);
    let mut back = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([bytes.len()]) {
        assert!(h2.send(&data(stream, 0, &bytes[from..to])));
        from = to;
    }
    while back.len() < bytes.len() {
        let frame = h2.find("data", |frame| frame.kind == DATA && frame.stream == stream);
        let n = u32::try_from(frame.payload.len()).unwrap();
        assert!(frame.payload.len() <= window, "{frame:?}");
        back.extend_from_slice(&frame.payload);
        assert!(h2.send(&[h2_client::window(stream, n), h2_client::window(0, n)].concat()));
    }
    assert!(back == bytes);
    assert!(h2.send(&data(stream, END_STREAM, &[])));
    h2.find("end", |frame| frame.kind == DATA && frame.stream == stream && frame.flags & END_STREAM > 0);
}

/// A short message, a long one and an empty one, in frames cut anywhere: the last bytes come back like the first.
#[test]
fn no_message_is_left_behind() {
    let home = Home::new();
    let _app = shouting_back(&home);
    let instance = home.run(&format!("workers = 1\n{CERTIFICATE}{HTTP}{ROUTE}"));
    let config = trusting(&instance.home.ca.certificate());
    let messages = [
        &[0x81, 0x84, 1, 2, 3, 4, b't', b'e', b'x', b't'][..],
        &[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70, 1, 2, 3, 4],
        &[7; 70_000],
        &[0x81, 0x80, 1, 2, 3, 4],
    ]
    .concat();
    let mut seed = 1_u64;
    let mut below = |most: usize| {
        // Xorshift: the same cuts in every run.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % most as u64).unwrap()
    };
    for window in [65_535, 16_384, 70_019, 6 << 20] {
        let mut h2 = H2::open(&config, instance.address(), &[(4, u32::try_from(window).unwrap())]);
        // The server's own windows hold when they are acknowledged.
        h2.find("settings", |frame| frame.kind == SETTINGS && frame.flags == 0);
        assert!(h2.send(&h2_client::frame(SETTINGS, ACK, 0, &[])));
        for round in 0..50 {
            // As browsers do, then a frame for each part, then anyhow; a frame holds 16 KiB at the most.
            let mut cuts = match round % 3 {
                0 => vec![10, 24, 70_024],
                1 => vec![10, 11, 12, 70_023, 70_024, 70_027],
                _ => (0..below(8)).map(|_| below(messages.len())).collect(),
            };
            cuts.extend((1..5).map(|n| n * 16_384));
            cuts.sort_unstable();
            there_and_back(&mut h2, 1 + 2 * round, &messages, &cuts, window);
        }
    }
    let events = instance.stop();
    assert_eq!(events.len(), 200);
    assert!(events.iter().all(|event| cause(event) == "completed"), "{events:?}");
}

#[test]
fn any_protocol_may_be_agreed_on_and_ends_half_by_half() {
    let home = Home::new();
    let _app = Server::start(&Listen::Unix(home.file("app.sock")), |mut stream| {
        let head = head(&mut stream);
        assert!(head.contains("upgrade: shout/1") && head.contains("connection: upgrade"), "{head}");
        // The first words of the new protocol come with the answer.
        stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: shout/1\r\n\r\nready ",
            )
            .unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.make_ascii_uppercase();
        stream.write_all(&all).unwrap();
    })
    .unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{ROUTE}upgrade = \"shout/1\"\n"));
    let mut tls =
        connect(&trusting(&instance.home.ca.certificate()), instance.address(), "localhost").unwrap();
    tls.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: shout/1\r\n\r\n")
        .unwrap();
    let head = head(&mut tls);
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: shout/1"), "{head}");
    tls.write_all(b"anybody there?").unwrap();
    tls.conn.send_close_notify();
    tls.flush().unwrap();
    let mut said = String::new();
    tls.read_to_string(&mut said).unwrap();
    assert_eq!(said, "ready ANYBODY THERE?");
    let event = &instance.stop()[0];
    assert_eq!((event["status"].as_u64(), cause(event)), (Some(101), "completed"), "{event}");
    assert_eq!(
        (event["bytes_from_client"].as_u64(), event["bytes_to_client"].as_u64()),
        (Some(14), Some(20)),
        "{event}"
    );
}

#[test]
fn a_server_may_decline_to_change_the_protocol() {
    let home = Home::new();
    let _app = app(&Listen::Unix(home.file("app.sock")), |request, stream| {
        respond(stream, 200, &[], format!("stay {}\n", request.target).as_bytes())
    });
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{ROUTE}"));
    let mut tls =
        connect(&trusting(&instance.home.ca.certificate()), instance.address(), "localhost").unwrap();
    tls.write_all(b"GET /1 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: other/1\r\n\r\n")
        .unwrap();
    let head = head(&mut tls);
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let mut body = [0; 8];
    tls.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"stay /1\n");
    assert_eq!(get(&mut tls, "/2").unwrap(), "stay /2\n");
    drop(tls);
    instance.stop();
}

/// The answer to an extended CONNECT for a protocol; 0 where there is none.
fn connect_for(instance: &Instance, protocol: &str) -> u16 {
    connect_to(instance, protocol, "/socket")
}

/// The answer to an extended CONNECT for a protocol at a path; 0 where there is none.
pub(crate) fn connect_to(instance: &Instance, protocol: &str, path: &str) -> u16 {
    let config = trusting(&instance.home.ca.certificate());
    let mut h2 = H2::open(&config, instance.address(), &[]);
    let fields = [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
        ("sec-websocket-version", "13"),
    ];
    h2.send(&headers(1, END_HEADERS, &fields));
    let end = h2.find("end", |frame| matches!(frame.kind, HEADERS | h2_client::kind::RST_STREAM));
    if end.kind == HEADERS { end.status() } else { 0 }
}

/// Of another protocol no route and no log would see what follows (RFC 8441 §4).
#[test]
fn connect_is_for_websocket_alone() {
    let home = Home::new();
    let (_app, seen) = crate::support::http_app::named(&Listen::Unix(home.file("app.sock")), "app");
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{ROUTE}"));
    for protocol in ["h2c", "connect-udp", "webtransport", "websocket, h2c", "websocket/13", "HTTP/2.0"] {
        assert_eq!(connect_for(&instance, protocol), 501, "{protocol}");
        assert!(seen.take().is_empty(), "{protocol} reached the application");
    }
    instance.stop();
}

/// RFC 8441 is not asked of servers: without the handshake they would take the request for a plain GET.
#[test]
fn a_websocket_to_a_server_of_http_2_alone_is_refused_over_both_versions() {
    let home = Home::new();
    let (app, seen) = crate::support::http_app::named(&Listen::Unix(home.file("app.sock")), "app");
    let backend =
        "[backend.app]\nservers = \"unix:app.sock\"\nprotocol = \"h2\"\n[[route]]\nbackend = \"app\"\n";
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{backend}"));
    assert_eq!(connect_for(&instance, "websocket"), 501);
    assert_eq!(upgrade(&instance, "Upgrade: websocket\r\n", "socket"), 501);
    for path in ["the extended CONNECT", "the upgrade"] {
        let event = instance.event(path, |event| event["status"] == 501);
        let detail = text(&event, "detail");
        assert!(detail.contains("`protocol = \"h2\"` is not supported"), "{event}");
    }
    assert!(seen.take().is_empty(), "a request has reached the application");
    instance.stop();
    drop(app);
}

/// A client of RFC 8441 takes 200 for an open WebSocket (§5): only the switch of the server is one.
#[test]
fn a_response_that_is_no_switch_opens_no_websocket() {
    let home = Home::new();
    let answers =
        ["200 OK", "201 Created", "204 No Content", "101 Switching Protocols", "403 Forbidden", "302 Found"];
    let next = std::sync::atomic::AtomicUsize::new(0);
    let _app = app(&Listen::Unix(home.file("app.sock")), move |request, stream| {
        assert_eq!(request.field("upgrade"), "websocket");
        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // The switch is to another protocol than the one that was asked for.
        let fields = if answers[at].starts_with("101") {
            "Connection: upgrade\r\nUpgrade: other"
        } else {
            "Content-Length: 0"
        };
        write!(stream, "HTTP/1.1 {}\r\n{fields}\r\n\r\n", answers[at])
    });
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{ROUTE}"));
    for (answer, status) in answers.iter().zip([502, 502, 502, 502, 403, 302]) {
        assert_eq!(connect_for(&instance, "WebSocket"), status, "{answer}");
    }
    instance.stop();
}

/// A server that agrees to whatever the path says, in fields with `, ` between them; `ACCEPT` stands for the right answer to the
/// key.
fn agreeing(home: &Home) -> Server {
    Server::start(&Listen::Unix(home.file("app.sock")), |mut stream| {
        let head = raw_head(&mut stream);
        let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
        let fields = path.replace(';', "\r\n").replace('=', ": ");
        let fields = fields.replace("ACCEPT", &websocket_accept(&head));
        let _ = write!(stream, "{SWITCH}{fields}\r\n\r\n");
        // Until Offramp has gone.
        let _ = stream.read(&mut [0]);
    })
    .unwrap()
}

/// The status of a request by HTTP/1.1 for a protocol, to a server that agrees to what `path` says.
fn upgrade(instance: &Instance, asked: &str, path: &str) -> u16 {
    let mut tls =
        connect(&trusting(&instance.home.ca.certificate()), instance.address(), "localhost").unwrap();
    let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let request =
        format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n{asked}{key}\r\n");
    tls.write_all(request.as_bytes()).unwrap();
    let head = head(&mut tls);
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// RFC 9110 §15.2.2: a 101 names what was asked for. RFC 6455 §4.1: who made the key checks the answer to it.
#[test]
fn a_switch_is_the_one_that_was_asked_for() {
    let home = Home::new();
    let _app = agreeing(&home);
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{ROUTE}upgrade = [\"websocket\", \"shout/1\"]\n"));
    for (asked, agreed, status) in [
        ("Upgrade: websocket\r\n", "Upgrade=websocket;Sec-WebSocket-Accept=ACCEPT", 101),
        ("Upgrade: WebSocket\r\n", "Upgrade=WEBSOCKET", 101),
        ("Upgrade: h2c, websocket\r\n", "Upgrade=websocket", 101),
        ("Upgrade: h2c, websocket\r\n", "Upgrade=h2c", 502),
        ("Upgrade: shout/1\r\nUpgrade: websocket\r\n", "Upgrade=shout/1", 101),
        ("Upgrade: shout/1\r\n", "Upgrade=websocket", 502),
        ("Upgrade: websocket\r\n", "Upgrade=other", 502),
        ("Upgrade: websocket\r\n", "Upgrade=websocket,h2c", 502),
        ("Upgrade: websocket\r\n", "Upgrade=websocket;Upgrade=h2c", 502),
        ("Upgrade: websocket\r\n", "X=1", 502),
        ("Upgrade: websocket\r\n", "Upgrade=", 502),
        // None of them passes, so that the server is asked for nothing.
        ("Upgrade: h2c\r\n", "Upgrade=h2c", 502),
        ("", "Upgrade=websocket", 502),
    ] {
        assert_eq!(upgrade(&instance, asked, agreed), status, "{asked:?}: {agreed}");
    }
    for (agreed, status) in [
        ("Upgrade=websocket;Sec-WebSocket-Accept=ACCEPT", 200),
        ("Upgrade=WebSocket;sec-websocket-accept=ACCEPT;Sec-WebSocket-Protocol=chat", 200),
        ("Upgrade=websocket", 502),
        ("Upgrade=websocket;Sec-WebSocket-Accept=AAAA", 502),
        ("Upgrade=websocket;Sec-WebSocket-Accept=", 502),
        ("Upgrade=websocket;Sec-WebSocket-Accept=ACCEPTx", 502),
        ("Upgrade=websocket;Sec-WebSocket-Accept=ACCEPT;Sec-WebSocket-Accept=ACCEPT", 502),
        ("Upgrade=websocket;Sec-WebSocket-Accept=ACCEPT;Sec-WebSocket-Accept=AAAA", 502),
        ("Upgrade=websocket;Sec-WebSocket-Accept=AAAA;Sec-WebSocket-Accept=ACCEPT", 502),
        ("Upgrade=websocket;Sec-WebSocket-Accept=ACCEPT,ACCEPT", 502),
        ("Upgrade=other;Sec-WebSocket-Accept=ACCEPT", 502),
        ("Upgrade=websocket,other;Sec-WebSocket-Accept=ACCEPT", 502),
        ("Sec-WebSocket-Accept=ACCEPT", 502),
    ] {
        assert_eq!(connect_to(&instance, "websocket", &format!("/{agreed}")), status, "{agreed}");
    }
    let events = instance.stop();
    let refused = events.iter().filter(|event| event["status"] == 502);
    assert!(refused.clone().all(|event| cause(event) == "bad_response"), "{events:?}");
    assert_eq!(refused.count(), 20);
}

/// A route passes WebSocket alone where it does not say more, and nothing where it says so.
#[test]
fn a_server_is_offered_the_protocols_that_its_route_passes() {
    let home = Home::new();
    let (_app, seen) = crate::support::http_app::named(&Listen::Unix(home.file("app.sock")), "app");
    let path = |path: &str, upgrade: &str| format!("{ROUTE}path = \"/{path}\"\n{upgrade}\n");
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}{}{}{}",
        path("default", ""),
        path("none", "upgrade = []"),
        path("more", "upgrade = [\"shout/1\", \"websocket\"]")
    ));
    for (route, asked, offered) in [
        ("default", "websocket", "websocket"),
        ("default", "h2c, websocket", "websocket"),
        ("default", "shout/1", ""),
        ("none", "websocket", ""),
        ("more", "shout/1, h2c,websocket", "shout/1, websocket"),
    ] {
        assert_eq!(upgrade(&instance, &format!("Upgrade: {asked}\r\n"), route), 200);
        let request = seen.one();
        let connection = if offered.is_empty() { "" } else { "upgrade" };
        assert_eq!(
            (request.field("upgrade"), request.field("connection")),
            (offered, connection),
            "{route} {asked}"
        );
    }
    assert_eq!(connect_to(&instance, "websocket", "/none"), 501);
    assert!(seen.take().is_empty());
    instance.stop();
}
