//! What honest clients and old servers say in other words than most is served, and passed on in the strict form.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use offramp_testkit::server::{Listen, Server, Stream};
use rustls::ClientConfig;

use crate::support::crowd::{connect, tcp, trusting};
use crate::support::h2_client::kind::{DATA, HEADERS};
use crate::support::h2_client::{END_HEADERS, END_STREAM, H2, WHOLE, data, headers, request};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE};

/// Two listeners, with TLS and without, before an application; and what that was asked for.
struct Stage {
    instance: Instance,
    config: Arc<ClientConfig>,
    heads: Receiver<String>,
    _app: Server,
}

/// The head of a request, whose content is left where it is; none at the end.
fn head(reader: &mut impl io::BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

impl Stage {
    /// `answer` gets each head, what follows it, and the way back; it ends the connection by an error.
    fn new(
        answer: impl Fn(&str, &mut dyn io::BufRead, &mut Stream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let (tell, heads) = channel();
        let app = Server::start(&Listen::Ipv4, move |mut stream| {
            let Ok(way) = stream.try_clone() else { return };
            let mut reader = BufReader::new(way);
            while let Some(head) = head(&mut reader) {
                let _ = tell.send(head.clone());
                if answer(&head, &mut reader, &mut stream).is_err() {
                    return;
                }
            }
        })
        .unwrap();
        let home = Home::new();
        let config = trusting(&home.ca.certificate());
        let instance = home.run(&format!(
            "workers = 1\n{CERTIFICATE}[[listener]]\nname = \"default\"\nmode = \"http\"\naddress = \"127.0.0.1:0\"\n\
             [[listener]]\nname = \"plain\"\nmode = \"http\"\ntls = false\naddress = \"127.0.0.1:0\"\n\
             [[route]]\npath = \"/refused\"\nmax_body = \"1KiB\"\nserver = \"{0}\"\n[[route]]\nserver = \"{0}\"\n",
            app.address()
        ));
        Self { instance, config, heads, _app: app }
    }

    fn plain(&self) -> TcpStream {
        tcp(self.instance.address_of("plain")).unwrap()
    }

    /// All that is answered to this, up to the end of the connection.
    fn said(&self, text: &str) -> String {
        let mut stream = self.plain();
        stream.write_all(text.as_bytes()).unwrap();
        whole(&mut stream)
    }

    fn asked(&self) -> String {
        self.heads.recv_timeout(PATIENCE).unwrap().to_ascii_lowercase()
    }
}

/// All that comes until the end.
#[track_caller]
fn whole(stream: &mut impl Read) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    String::from_utf8(all).unwrap()
}

fn ok(_: &str, _: &mut dyn io::BufRead, stream: &mut Stream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
}

#[test]
fn a_port_may_be_empty_and_is_not_passed_on() {
    let stage = Stage::new(ok);
    for (target, host) in [
        ("/", "localhost:"),
        ("/", "LOCALHOST:"),
        ("/", "127.0.0.1:"),
        ("/", "[::1]:"),
        ("http://localhost:/", "localhost"),
        ("http://localhost/", "localhost:"),
        ("http://localhost:80/", "localhost:"),
    ] {
        let answer =
            stage.said(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{target} {host}: {answer}");
        let asked = stage.asked();
        let line = asked.lines().find(|line| line.starts_with("host:")).unwrap();
        assert!(!line.ends_with(':') && !asked.contains(":/ http"), "{target} {host}: {asked}");
        let forwarded = asked.lines().find(|line| line.starts_with("x-forwarded-host:")).unwrap();
        assert!(!forwarded.ends_with(':'), "{asked}");
    }
    for host in [":", "localhost::", "localhost:: ", "localhost:x", "[::1]::"] {
        let answer = stage.said(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{host}: {answer}");
    }
    let ask = |authority: Option<&str>, host: Option<&str>| {
        let mut fields = vec![(":method", "GET"), (":scheme", "https"), (":path", "/")];
        fields.extend(authority.map(|authority| (":authority", authority)));
        fields.extend(host.map(|host| ("host", host)));
        let mut h2 = H2::open(&stage.config, stage.instance.address(), &[]);
        h2.send(&headers(1, WHOLE, &fields));
        assert_eq!(h2.find("an answer", |frame| frame.kind == HEADERS).status(), 200, "{fields:?}");
        let asked = stage.asked();
        assert!(asked.contains("\r\nhost: localhost\r\n"), "{fields:?}: {asked}");
    };
    ask(Some("localhost:"), None);
    ask(None, Some("localhost:"));
    ask(Some("localhost"), Some("localhost:"));
    stage.instance.stop();
}

#[test]
fn no_content_is_said_to_servers() {
    let stage = Stage::new(ok);
    for method in ["POST", "PUT", "PATCH"] {
        let fields = request(method, "/", &[]);
        type Way<'w> = (&'w str, Vec<Vec<u8>>);
        let ways: [Way<'_>; 4] = [
            ("with the head", vec![headers(1, WHOLE, &fields)]),
            ("at once", vec![[headers(1, END_HEADERS, &fields), data(1, END_STREAM, b"")].concat()]),
            ("later", vec![headers(1, END_HEADERS, &fields), data(1, END_STREAM, b"")]),
            (
                "behind another",
                vec![headers(1, END_HEADERS, &fields), data(1, 0, b""), data(1, END_STREAM, b"")],
            ),
        ];
        for (way, pieces) in ways {
            let mut h2 = H2::open(&stage.config, stage.instance.address(), &[]);
            for piece in pieces {
                assert!(h2.send(&piece));
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(h2.find("an answer", |frame| frame.kind == HEADERS).status(), 200);
            let asked = stage.asked();
            let framed = asked.contains("\r\ncontent-length: 0\r\n") && !asked.contains("transfer-encoding");
            assert!(framed, "{method} {way}: {asked}");
        }
        let answer =
            stage.said(&format!("{method} / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(stage.asked().contains("\r\ncontent-length: 0\r\n"), "{method}");
    }
    stage.instance.stop();
}

#[test]
fn whitespace_before_a_colon_of_a_server_is_removed() {
    let stage = Stage::new(|head, _, stream| {
        let line = match head.split(' ').nth(1) {
            Some("/space") => "X-A : one",
            Some("/tab") => "X-A\t: one",
            Some("/many") => "X-A \t : one",
            Some("/close") => "X-A :one",
            Some("/length") => "X-A: one\r\nContent-Length : 2",
            Some("/coded") => "X-A: one\r\nTransfer-Encoding : chunked",
            _ => "X-A: one\r\nSet-Cookie : a=1",
        };
        let content = match head.split(' ').nth(1) {
            Some("/length") => "\r\n\r\nhi",
            Some("/coded") => "\r\n\r\n2\r\nhi\r\n0\r\nX-B : two\r\n\r\n",
            _ => "\r\nContent-Length: 2\r\n\r\nhi",
        };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{line}{content}").as_bytes())
    });
    for path in ["/space", "/tab", "/many", "/close", "/length", "/coded", "/cookie"] {
        let ask = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n"
        );
        let answer = stage.said(&ask).to_ascii_lowercase();
        assert!(
            answer.starts_with("http/1.1 200 ") && answer.contains("\r\nx-a: one\r\n"),
            "{path}: {answer}"
        );
        assert!(!answer.contains(" :") && !answer.contains("\t:"), "{path}: {answer}");
        let expected = match path {
            "/coded" => "2\r\nhi\r\n0\r\nx-b: two\r\n\r\n",
            _ => "\r\ncontent-length: 2\r\n",
        };
        assert!(answer.contains(expected), "{path}: {answer}");
        let mut h2 = H2::open(&stage.config, stage.instance.address(), &[]);
        h2.send(&headers(1, WHOLE, &request("GET", path, &[])));
        assert_eq!(h2.find("an answer", |frame| frame.kind == HEADERS).status(), 200, "{path}");
    }
    stage.instance.stop();
}

#[test]
fn trailers_that_nobody_announced_reach_who_takes_them() {
    let stage = Stage::new(|_, _, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n")?;
        stream.write_all(b"Grpc-Status: 0\r\nContent-Length: 9\r\nConnection: x\r\nSet-Cookie: a=1\r\n\r\n")
    });
    let ask =
        |te: &str| stage.said(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{te}Connection: close\r\n\r\n"));
    let taken = ask("TE: trailers\r\n");
    assert!(taken.ends_with("\r\n2\r\nhi\r\n0\r\ngrpc-status: 0\r\n\r\n"), "{taken}");
    let untaken = ask("");
    assert!(untaken.ends_with("\r\n2\r\nhi\r\n0\r\n\r\n"), "{untaken}");
    stage.instance.stop();
}

/// The end of a client's direction, in order, is that of its request alone.
#[test]
fn a_client_that_has_said_all_gets_its_answer() {
    let stage = Stage::new(|head, rest, stream| {
        if head.starts_with("POST") {
            io::copy(&mut rest.take(5), &mut io::sink())?;
        }
        // The end of the client's direction has come by then, most of the time.
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")?;
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(b"0\r\n\r\n")
    });
    let get = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned();
    let post = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello".to_owned();
    for text in [&get, &post] {
        let mut stream = stage.plain();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = whole(&mut stream);
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n2\r\nhi\r\n0\r\n\r\n"),
            "{answer}"
        );
        for shuts in [false, true] {
            let mut tls = connect(&stage.config, stage.instance.address(), "localhost").unwrap();
            tls.write_all(text.as_bytes()).unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
            if shuts {
                tls.sock.shutdown(Shutdown::Write).unwrap();
            }
            let answer = whole(&mut tls);
            assert!(answer.ends_with("\r\n2\r\nhi\r\n0\r\n\r\n"), "{shuts}: {answer}");
        }
    }
    // Half a request gets none.
    let mut stream = stage.plain();
    stream.write_all(&post.as_bytes()[..post.len() - 1]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(!whole(&mut stream).starts_with("HTTP/1.1 200 "));
    stage.instance.stop();
}

#[test]
fn an_answer_that_leaves_content_unread_is_the_last() {
    let stage = Stage::new(ok);
    for (text, status) in [
        // Its answer comes before the content, which then need not be sent.
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\nhello", 200),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 200),
        ("POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\nhello", 413),
        (
            "POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\nExpect: 100-continue\r\n\r\n",
            413,
        ),
    ] {
        let mut stream = stage.plain();
        stream.write_all(text.as_bytes()).unwrap();
        let answer = whole(&mut stream).to_ascii_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{text}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{text}: {answer}");
        assert!(!answer.contains("100 continue"), "{text}: {answer}");
    }
    stage.instance.stop();
}

/// What a client takes of fields, it has said (RFC 9113 §6.5.2).
#[test]
fn a_head_that_is_too_large_for_its_client_is_not_sent() {
    let stage = Stage::new(|head, _, stream| {
        if head.starts_with("GET /well ") {
            return ok(head, &mut io::empty(), stream);
        }
        let size = head.split(' ').nth(1).and_then(|path| path[1..].parse().ok()).unwrap_or(0);
        let large =
            format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Large: {}\r\n\r\nhi", "x".repeat(size));
        stream.write_all(large.as_bytes())
    });
    for (most, size, status) in
        [(16_384, 1000, 200), (16_384, 20_000, 502), (1000, 2000, 502), (u32::MAX, 20_000, 200)]
    {
        let mut h2 = H2::open(&stage.config, stage.instance.address(), &[(6, most)]);
        h2.send(&headers(1, WHOLE, &request("GET", &format!("/{size}"), &[])));
        let answer = h2.find("an answer", |frame| frame.kind == HEADERS);
        assert_eq!(answer.status(), status, "{most} {size}");
        if status == 200 {
            h2.find("content", |frame| frame.kind == DATA);
        }
        // The connection goes on.
        h2.is_well(3);
    }
    let refused = |event: &serde_json::Value| event["status"] == 502;
    let event = stage.instance.event("a response that does not fit", refused);
    assert!(event["detail"].as_str().unwrap().contains("SETTINGS_MAX_HEADER_LIST_SIZE"), "{event}");
    stage.instance.stop();
}
