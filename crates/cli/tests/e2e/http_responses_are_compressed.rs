//! Responses are compressed as they pass, as the client accepts it, and curl gets back what the application sent.

use std::io::{self, Read as _, Write as _};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use offramp_testkit::server::{Listen, Server, Stream};

use crate::crowd::{connect, trusting};
use crate::http_app::{Request, app, respond};
use crate::http_curl::{HTTP, curl, get};
use crate::instance::{CERTIFICATE, Home, Instance};

fn content() -> String {
    (0..2000).map(|n| format!("{{\"number\":{n},\"name\":\"name {n}\"}}\n")).collect()
}

/// Answers by path; what is asked for under `/live` goes on when the other end of the channel says so.
fn answer(request: &Request, stream: &mut Stream, live: &Mutex<Vec<Sender<()>>>) -> io::Result<()> {
    let content = content();
    let body = if request.method == "HEAD" { "" } else { &content };
    let length = format!("Content-Length: {}\r\n", content.len());
    let fields = match request.target.as_str() {
        "/json" => "Content-Type: application/json\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n",
        "/encoded" => "Content-Type: text/plain\r\nContent-Encoding: x-own\r\n",
        "/fixed" => "Content-Type: text/plain\r\nCache-Control: no-transform\r\n",
        "/picture" => "Content-Type: image/png\r\n",
        "/part" => {
            let head =
                "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/9\r\n";
            return stream.write_all(format!("{head}Content-Length: 2\r\n\r\nab").as_bytes());
        }
        "/none" => return stream.write_all(b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        "/small" => return respond(stream, 200, &["Content-Type: text/plain"], b"small"),
        "/live" => {
            let (go, gone) = channel();
            live.lock().unwrap().push(go);
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes())?;
            stream.write_all(b"d\r\ndata: first\n\n\r\n")?;
            // The second event comes only when the client has seen the first.
            let _ = gone.recv();
            return stream.write_all(b"e\r\ndata: second\n\n\r\n0\r\n\r\n");
        }
        _ => return respond(stream, 404, &[], b"nothing"),
    };
    stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}{length}\r\n{body}").as_bytes())
}

struct Site {
    instance: Instance,
    _app: Server,
    live: std::sync::Arc<Mutex<Vec<Sender<()>>>>,
}

fn site(compress: &str) -> Site {
    let home = Home::new();
    let live = std::sync::Arc::<Mutex<Vec<Sender<()>>>>::default();
    let app = app(&Listen::Unix(home.file("app.sock")), {
        let live = std::sync::Arc::clone(&live);
        move |request, stream| answer(request, stream, &live)
    });
    let text = format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n{compress}");
    Site { instance: home.run(&text), _app: app, live }
}

#[test]
fn curl_gets_back_what_the_application_sent() {
    let site = site("compress = true\n");
    let (instance, content) = (&site.instance, content());
    for version in ["--http1.1", "--http2"] {
        for (accept, coding) in [("gzip", "gzip"), ("br", "br"), ("zstd", "zstd"), ("gzip, br;q=0.5", "gzip")]
        {
            let accept = format!("Accept-Encoding: {accept}");
            let arguments = [version, "--header", &accept];
            let raw = get(instance, &arguments, "https://localhost/json");
            assert_eq!((raw.field("content-encoding"), raw.field("vary")), (coding, "Accept-Encoding"));
            assert_eq!((raw.field("etag"), raw.field("accept-ranges")), ("W/\"a\"", ""), "{raw:?}");
            assert_eq!(raw.field("content-length"), "", "{raw:?}");
            assert!(raw.body.len() < content.len() / 4, "{coding}: {}", raw.body.len());
            let decoded =
                get(instance, &[&arguments[..], &["--compressed"]].concat(), "https://localhost/json");
            assert!(decoded.text() == content, "{coding} over {version}");

            let head = get(instance, &[&arguments[..], &["--head"]].concat(), "https://localhost/json");
            for field in ["content-encoding", "vary", "etag", "content-length", "accept-ranges"] {
                assert_eq!(head.field(field), raw.field(field), "{field}");
            }
        }
        let plain = get(instance, &[version], "https://localhost/json");
        assert_eq!((plain.field("content-encoding"), plain.field("vary")), ("", "Accept-Encoding"));
        assert_eq!((plain.field("etag"), plain.field("accept-ranges")), ("\"a\"", "bytes"));
        assert!(plain.text() == content);
        for path in ["encoded", "fixed", "picture", "small", "part", "none"] {
            let url = format!("https://localhost/{path}");
            let same = get(instance, &[version, "--header", "Accept-Encoding: gzip"], &url);
            let coding = if path == "encoded" { "x-own" } else { "" };
            assert_eq!((same.field("content-encoding"), same.field("vary")), (coding, ""), "{same:?}");
        }
        // Thousands of members are no error and no work.
        for hostile in ["x;q=NaN,".repeat(1500), "gzip;q=NaN".to_owned(), ",;".repeat(5000)] {
            let accept = format!("Accept-Encoding: {hostile}");
            let answer = curl(instance, &[version, "--header", &accept], "https://localhost/json");
            assert_eq!((answer.status(), answer.field("content-encoding")), (200, ""), "{answer:?}");
        }
    }
    site.instance.stop();
}

#[test]
fn events_are_not_held_back() {
    let site = site("compress = { algorithms = [\"gzip\"], min_size = \"0B\" }\n");
    let config = trusting(&site.instance.home.ca.certificate());
    let mut tls = connect(&config, site.instance.address(), "localhost").unwrap();
    tls.write_all(
        b"GET /live HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n",
    )
    .unwrap();
    let mut come = Vec::new();
    // The application sends no more before it is told to: what is flushed must say all of the first event.
    while !events(&come).contains("data: first\n\n") {
        let mut piece = [0; 1024];
        let n = tls.read(&mut piece).unwrap();
        assert!(n > 0, "{}", come.escape_ascii());
        come.extend_from_slice(&piece[..n]);
    }
    assert!(come.windows(22).any(|part| part == b"content-encoding: gzip"), "{}", come.escape_ascii());
    for go in site.live.lock().unwrap().drain(..) {
        go.send(()).unwrap();
    }
    tls.read_to_end(&mut come).unwrap();
    assert_eq!(events(&come), "data: first\n\ndata: second\n\n");
    site.instance.stop();
}

/// What can be decompressed of a response in chunks, as far as it has come.
fn events(response: &[u8]) -> String {
    let Some(head) = response.windows(4).position(|end| end == b"\r\n\r\n") else { return String::new() };
    let (mut rest, mut content) = (&response[head + 4..], Vec::new());
    while let Some(end) = rest.windows(2).position(|end| end == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let Some(piece) = rest.get(end + 2..end + 2 + size) else { break };
        content.extend_from_slice(piece);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    let mut text = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&content[..]);
    let mut byte = [0];
    while decoder.read(&mut byte).is_ok_and(|n| n > 0) {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}
