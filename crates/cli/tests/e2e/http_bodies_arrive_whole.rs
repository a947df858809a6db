//! 256 MiB up and down over HTTP/1.1 and HTTP/2, in little memory; slow readers on both sides hold up
//! nobody but themselves.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use offramp_testkit::server::{Listen, Pattern, Server, Stream, Sum};

use crate::support::crowd::{connect, get, trusting};
use crate::support::figures::resident;
use crate::support::http_curl::{HTTP, command};
use crate::support::http_h2;
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, cause, text};

const LENGTH: u64 = 256 << 20;

/// What Offramp may grow by, whatever the length of a body: buffers of both sides, and what the allocator
/// keeps.
const GROWTH: u64 = 24 << 20;

/// Reads a head; gives the first bytes of the body that came with it.
fn head(stream: &mut impl io::Read) -> Option<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let end = all.windows(4).position(|window: &[u8]| window == b"\r\n\r\n");
        if let Some(end) = end {
            return Some((String::from_utf8_lossy(&all[..end]).into_owned(), all.split_off(end + 4)));
        }
        match stream.read(&mut chunk) {
            Ok(length @ 1..) => all.extend_from_slice(&chunk[..length]),
            _ => return None,
        }
    }
}

/// `GET` gets the [`Pattern`] of this length, anything else the sum of its body, which has a length.
fn large(length: u64) -> impl Fn(Stream) + Send + Sync + 'static {
    let serve = move |mut stream: Stream| -> io::Result<()> {
        while let Some((head, early)) = head(&mut stream) {
            if head.starts_with("GET") {
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                let (mut pattern, mut chunk, mut left) = (Pattern::new(1), vec![0; 64 * 1024], length);
                while left > 0 {
                    pattern.fill(&mut chunk);
                    stream.write_all(&chunk)?;
                    left -= chunk.len() as u64;
                }
                continue;
            }
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            let wanted = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let wanted: u64 = wanted.unwrap().1.parse().unwrap();
            let mut sum = Sum::new();
            sum.add(&early);
            let mut chunk = vec![0; 64 * 1024];
            while sum.length() < wanted {
                match stream.read(&mut chunk)? {
                    0 => return Ok(()),
                    length => sum.add(&chunk[..length]),
                }
            }
            let body = sum.to_string();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        }
        Ok(())
    };
    move |stream| drop(serve(stream))
}

fn served(behaviour: impl Fn(Stream) + Send + Sync + 'static) -> (Server, Instance) {
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), behaviour).unwrap();
    let instance =
        home.run(&format!("workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    (app, instance)
}

#[test]
fn a_quarter_of_a_gibibyte_goes_both_ways() {
    let (_app, instance) = served(large(LENGTH));
    let expected = Pattern::new(1).sum(LENGTH);
    let mut file = io::BufWriter::new(File::create(instance.home.file("up")).unwrap());
    let (mut pattern, mut chunk) = (Pattern::new(1), vec![0; 1 << 20]);
    for _ in 0..LENGTH >> 20 {
        pattern.fill(&mut chunk);
        file.write_all(&chunk).unwrap();
    }
    drop(file);
    let before = resident(instance.process.id());
    for version in ["--http1.1", "--http2"] {
        let mut curl = command(&instance, "https");
        let mut curl = curl.args([version, "https://localhost/"]).stdout(Stdio::piped()).spawn().unwrap();
        let (mut out, mut sum) = (curl.stdout.take().unwrap(), Sum::new());
        while let Ok(length @ 1..) = out.read(&mut chunk) {
            sum.add(&chunk[..length]);
        }
        assert!(curl.wait().unwrap().success(), "{version}");
        assert_eq!(sum.to_string(), expected, "{version}");

        let mut curl = command(&instance, "https");
        let output = curl.args([version, "--upload-file", "up", "https://localhost/"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{version}");
    }
    let grown = resident(instance.process.id()).saturating_sub(before);
    assert!(grown < GROWTH, "{} KiB", grown >> 10);
    let events = instance.stop();
    for (event, [up, down]) in events.iter().zip([[0, LENGTH], [LENGTH, 0]].into_iter().cycle()) {
        assert_eq!(cause(event), "completed", "{event}");
        assert_eq!(event["bytes_from_client"].as_u64(), Some(up), "{event}");
        let bytes = event["bytes_to_client"].as_u64().unwrap();
        assert!(if down == 0 { bytes < 100 } else { bytes == down }, "{event}");
    }
}

#[test]
fn a_client_that_does_not_read_stops_its_server_and_nobody_else() {
    let (_app, instance) = served(large(LENGTH));
    let config = trusting(&instance.home.ca.certificate());
    let before = resident(instance.process.id());
    // One over HTTP/1.1, and eight streams of HTTP/2 on one connection.
    let mut idle = connect(&config, instance.address(), "localhost").unwrap();
    idle.write_all(b"GET /unread HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    http_h2::run(async {
        let mut sender = http_h2::connect(&config, instance.address()).await.unwrap();
        let mut unread = Vec::new();
        for _ in 0..8 {
            sender = sender.ready().await.unwrap();
            let request = http::Request::get("https://localhost/unread").body(()).unwrap();
            let (response, _) = sender.send_request(request, true).unwrap();
            unread.push(response.await.unwrap());
        }
        let mut other = connect(&config, instance.address(), "localhost").unwrap();
        write!(other, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut sum = Sum::new();
        let (_, early) = head(&mut other).unwrap();
        sum.add(&early);
        let mut chunk = vec![0; 1 << 16];
        while sum.length() < 32 << 20 {
            let length = other.read(&mut chunk).unwrap();
            sum.add(&chunk[..length]);
        }
        let grown = resident(instance.process.id()).saturating_sub(before);
        assert!(grown < GROWTH, "{} KiB", grown >> 10);
    });
    // What was not read is still to be had.
    let (_, early) = head(&mut idle).unwrap();
    let (mut sum, mut chunk) = (Sum::new(), vec![0; 1 << 16]);
    sum.add(&early);
    while sum.length() < 8 << 20 {
        let length = idle.read(&mut chunk).unwrap();
        sum.add(&chunk[..length]);
    }
    drop(idle);
    let aborted = instance.event("nine who went away", |event| text(event, "path") == "/unread");
    assert_eq!(text(&aborted, "fault"), "client", "{aborted}");
    drop(instance);
}

/// Reads a head, and no more until it is let go.
fn reluctant(go: Sender<Sender<()>>) -> impl Fn(Stream) + Send + Sync + 'static {
    let go = Mutex::new(go);
    move |mut stream| {
        let Some((first, early)) = head(&mut stream) else { return };
        let answer = |stream: &mut Stream, body: &str| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        };
        if first.starts_with("GET") {
            return answer(&mut stream, "at once\n");
        }
        let (let_go, wait) = channel();
        go.lock().unwrap().send(let_go).unwrap();
        let _ = wait.recv_timeout(PATIENCE);
        let mut sum = Sum::new();
        sum.add(&early);
        let mut chunk = vec![0; 1 << 16];
        while sum.length() < 64 << 20 {
            match stream.read(&mut chunk) {
                Ok(length @ 1..) => sum.add(&chunk[..length]),
                _ => return,
            }
        }
        answer(&mut stream, &sum.to_string());
    }
}

#[test]
fn a_server_that_does_not_read_stops_its_client_and_nobody_else() {
    let (go, asked) = channel();
    let (_app, instance) = served(reluctant(go));
    let config = trusting(&instance.home.ca.certificate());
    let mut body = vec![0; 64 << 20];
    Pattern::new(1).fill(&mut body);
    let expected = Pattern::new(1).sum(64 << 20);
    fs::write(instance.home.file("up"), &body).unwrap();
    let before = resident(instance.process.id());
    let upload = |version: &str| -> std::process::Child {
        let mut curl: Command = command(&instance, "https");
        curl.args([version, "--upload-file", "up", "https://localhost/"]).stdout(Stdio::piped());
        curl.spawn().unwrap()
    };
    let uploads = ["--http1.1", "--http2"].map(upload);
    let let_go: Vec<_> = (0..2).map(|_| asked.recv_timeout(PATIENCE).unwrap()).collect();
    // A stream of the tests' own is given as much window as the server takes: little.
    http_h2::run(async {
        let mut sender = http_h2::connect(&config, instance.address()).await.unwrap().ready().await.unwrap();
        let request =
            http::Request::put("https://localhost/").header("content-length", 64 << 20).body(()).unwrap();
        let (_response, mut stream) = sender.send_request(request, false).unwrap();
        stream.reserve_capacity(64 << 20);
        let mut sent = 0;
        let until = Instant::now() + Duration::from_secs(1);
        while let Ok(Some(room)) =
            tokio::time::timeout_at(until.into(), std::future::poll_fn(|cx| stream.poll_capacity(cx))).await
        {
            let room = room.unwrap();
            stream.send_data(Bytes::from(vec![b'x'; room]), false).unwrap();
            sent += room;
        }
        assert!(sent < 8 << 20, "{sent} bytes for a server that reads none");
        // Others are served, on the same connection too.
        let request = http::Request::get("https://localhost/").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
    assert_eq!(
        get(&mut connect(&config, instance.address(), "localhost").unwrap(), "/").unwrap(),
        "at once\n"
    );
    let grown = resident(instance.process.id()).saturating_sub(before);
    assert!(grown < GROWTH, "{} KiB", grown >> 10);
    for one in let_go {
        one.send(()).unwrap();
    }
    for upload in uploads {
        let output = upload.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
    instance.stop();
}
