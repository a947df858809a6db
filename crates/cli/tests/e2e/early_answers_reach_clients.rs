//! Uploads that are answered before they have come: every client sees the answer, whoever gives it, also those that look
//! at it only when all of the upload has left, and curl 7, which loses it to an RST_STREAM that comes close behind.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::require;
use offramp_testkit::server::{Listen, Server, Stream};

use crate::support::crowd::{connect, offering, trusting};
use crate::support::h2_client::kind::{DATA, HEADERS, PING, RST_STREAM, WINDOW_UPDATE};
use crate::support::h2_client::{END_HEADERS, END_STREAM, Frame, H2, data, frame, headers, post, request};
use crate::support::http_curl::{HTTP, curl};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, ask};
use crate::support::venv::environment;

/// More than all windows and buffers on the way together, and less than what is dropped.
const UPLOAD: usize = 24 << 20;
/// Who answers, and how.
const ANSWERS: [(&str, u16); 9] = [
    ("/early", 413),
    ("/large", 413),
    ("/users", 401),
    ("/denied", 403),
    ("/moved", 308),
    ("/closed", 503),
    ("/fixed", 200),
    ("/dead", 502),
    ("/nowhere", 404),
];

/// Answers a request as soon as its head has come, and reads nothing more of it.
fn answer_early(mut stream: Stream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
    }
    let answer = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 10\r\n\r\ntoo large\n";
    if stream.write_all(answer).is_ok() {
        // Until its connection is closed.
        while matches!(stream.read(&mut [0; 1]), Ok(1)) {
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

struct Rig {
    instance: Instance,
    _app: Server,
}

fn rig() -> Rig {
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), answer_early).unwrap();
    fs::write(home.file("users"), "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n")
        .unwrap();
    fs::write(home.file("upload"), vec![b'x'; UPLOAD]).unwrap();
    let server = "server = \"unix:app.sock\"\n";
    let instance = home.run(&format!(
        "workers = 1\n{CERTIFICATE}{HTTP}\
         [[route]]\npath = \"/early\"\n{server}\
         [[route]]\npath = \"/large\"\nmax_body = \"1KiB\"\n{server}\
         [[route]]\npath = \"/users\"\nbasic_auth = \"users\"\n{server}\
         [[route]]\npath = \"/denied\"\ndeny = \"127.0.0.0/8\"\n{server}\
         [[route]]\npath = \"/moved\"\nredirect = {{ to = \"https://localhost/fixed\", status = 308 }}\n\
         [[route]]\npath = \"/closed\"\nmaintenance = true\n{server}\
         [[route]]\npath = \"/fixed\"\nrespond = {{ body = \"enough\" }}\n\
         [[route]]\npath = \"/dead\"\nserver = \"unix:nobody.sock\"\n"
    ));
    Rig { instance, _app: app }
}

#[test]
fn curl_sees_early_answers() {
    let Rig { instance, _app } = rig();
    for version in ["--http1.1", "--http2"] {
        for (path, status) in ANSWERS {
            let url = format!("https://localhost{path}");
            let answer = curl(&instance, &[version, "--upload-file", "upload", "--header", "Expect:"], &url);
            assert_eq!((answer.code, answer.status()), (0, status), "{version} {path}: {}", answer.said);
        }
    }
    instance.stop();
}

/// Sends all of an upload as windows allow it; gives the status, once the response has ended.
fn upload(h2: &mut H2, id: u32, head: &[u8], windows: &mut [usize; 2]) -> u16 {
    assert!(h2.send(head));
    windows[1] = 256 * 1024;
    let (mut left, mut status, mut ended) = (UPLOAD, 0, false);
    let piece = vec![b'x'; 16 * 1024];
    loop {
        let n = left.min(piece.len()).min(windows[0]).min(windows[1]);
        if n > 0 {
            left -= n;
            windows.iter_mut().for_each(|window| *window -= n);
            let flags = if left == 0 { END_STREAM } else { 0 };
            assert!(h2.send(&data(id, flags, &piece[..n])), "the connection has ended");
            continue;
        }
        if left == 0 && ended {
            break;
        }
        let frame = h2.next().unwrap_or_else(|| panic!("{left} bytes are left, and nothing comes: {status}"));
        note(&frame, id, windows);
        match frame.kind {
            HEADERS => status = frame.status(),
            RST_STREAM => panic!("{frame:?} with {left} bytes left"),
            _ => {}
        }
        ended |= matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM > 0;
    }
    status
}

fn note(frame: &Frame, id: u32, windows: &mut [usize; 2]) {
    if frame.kind == WINDOW_UPDATE {
        let more = u32::from_be_bytes(frame.payload[..4].try_into().unwrap()) as usize;
        match frame.stream {
            0 => windows[0] += more,
            of if of == id => windows[1] += more,
            _ => {}
        }
    }
}

/// A client as java.net.http and httpx are: nothing is looked at but windows until all is sent.
#[test]
fn who_sends_all_first_sees_early_answers() {
    let Rig { instance, _app } = rig();
    let config = trusting(&instance.home.ca.certificate());
    // Without a table, so that each status is said as it is (RFC 9113 §6.5.2).
    let mut h2 = H2::open(&config, instance.address(), &[(1, 0)]);
    h2.patience(PATIENCE);
    let mut windows = [65_535, 0];
    let length = UPLOAD.to_string();
    for (at, (path, status)) in (0..).zip(ANSWERS) {
        let id = 1 + 2 * at;
        let head = post(id, path, &[("content-length", &length)]);
        assert_eq!(upload(&mut h2, id, &head, &mut windows), status, "{path}");
    }
    // A WebSocket that is refused.
    let mut websocket = request("CONNECT", "/users", &[]);
    websocket.insert(0, (":protocol", "websocket"));
    let id = 101;
    assert_eq!(upload(&mut h2, id, &headers(id, END_HEADERS, &websocket), &mut windows), 401);
    // No reset was under way, either.
    assert!(h2.send(&frame(PING, 0, 0, b"finished")));
    let last = h2.find("PING", |frame| matches!(frame.kind, PING | RST_STREAM));
    assert_eq!(last.kind, PING, "{last:?}");
    drop(h2);

    for (path, status) in ANSWERS {
        let mut tls = connect(&offering(&config, &["http/1.1"]), instance.address(), "localhost").unwrap();
        tls.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {UPLOAD}\r\n\r\n");
        tls.write_all(head.as_bytes()).unwrap();
        let piece = vec![b'x'; 64 * 1024];
        (0..UPLOAD / piece.len()).for_each(|_| tls.write_all(&piece).unwrap());
        let mut answer = [0; 12];
        tls.read_exact(&mut answer).unwrap();
        assert_eq!(answer, format!("HTTP/1.1 {status}").as_bytes(), "{path}");
    }
    instance.stop();
}

/// Who neither ends nor resets its upload has the stream ended after a while, without an error.
#[test]
fn who_never_ends_is_reset_in_the_end() {
    let Rig { instance, _app } = rig();
    let config = trusting(&instance.home.ca.certificate());
    let mut h2 = H2::open(&config, instance.address(), &[]);
    h2.patience(PATIENCE);
    assert!(h2.send(&post(1, "/closed", &[("content-length", "100000")])));
    h2.find("END_STREAM", |frame| frame.kind == DATA && frame.flags & END_STREAM > 0);
    let reset = h2.find("RST_STREAM", |frame| frame.kind == RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (1, 0));
    assert!(h2.send(&frame(PING, 0, 0, b"still ok")));
    h2.find("PING", |frame| frame.kind == PING);
    instance.stop();
}

const HTTPX: &str = "\
import httpx, sys
base, ca, h2 = sys.argv[1:4]
with httpx.Client(http2=h2 == '2', http1=h2 == '1', verify=ca, timeout=60) as client:
    for path in sys.argv[4:]:
        answer = client.post(base + path, content=open('upload', 'rb').read())
        print(path, answer.status_code, answer.http_version)
";

#[test]
fn httpx_sees_early_answers() {
    let python = environment(&[("httpx", "0.28.1"), ("h2", "4.3.0")]);
    let Rig { instance, _app } = rig();
    for version in ["1", "2"] {
        let mut command = Command::new(&python);
        command.args([
            "-W",
            "ignore",
            "-c",
            HTTPX,
            &format!("https://localhost:{}", instance.address().port()),
        ]);
        command.arg(instance.home.ca.certificate()).arg(version).args(ANSWERS.map(|(path, _)| path));
        command.current_dir(instance.home.path());
        is_told(command, if version == "1" { "HTTP/1.1" } else { "HTTP/2" });
    }
    instance.stop();
}

const JAVA: &str = "\
import java.net.*; import java.net.http.*; import java.nio.file.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
class Upload {
    public static void main(String[] args) throws Exception {
        var keys = KeyStore.getInstance(KeyStore.getDefaultType());
        keys.load(null, null);
        try (var in = Files.newInputStream(Path.of(args[1]))) {
            keys.setCertificateEntry(\"ca\", CertificateFactory.getInstance(\"X.509\").generateCertificate(in));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(keys);
        var tls = SSLContext.getInstance(\"TLS\");
        tls.init(null, trust.getTrustManagers(), null);
        var version = HttpClient.Version.valueOf(args[2]);
        var client = HttpClient.newBuilder().version(version).sslContext(tls).build();
        for (int at = 3; at < args.length; at++) {
            var request = HttpRequest.newBuilder(URI.create(args[0] + args[at]))
                .POST(HttpRequest.BodyPublishers.ofFile(Path.of(\"upload\"))).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(args[at] + \" \" + answer.statusCode() + \" \" + answer.version());
        }
    }
}
";

/// The client of the JDK. It wants to see `WWW-Authenticate` with 401, which is here.
#[test]
fn java_sees_early_answers() {
    let Rig { instance, _app } = rig();
    fs::write(instance.home.file("Upload.java"), JAVA).unwrap();
    for version in ["HTTP_1_1", "HTTP_2"] {
        let mut command = Command::new(require("java", "openjdk-17-jdk-headless"));
        command.args(["Upload.java", &format!("https://localhost:{}", instance.address().port())]);
        command.arg(instance.home.ca.certificate()).arg(version).args(ANSWERS.map(|(path, _)| path));
        command.current_dir(instance.home.path());
        is_told(command, version);
    }
    instance.stop();
}

/// Runs a client that is to print the status of each path.
#[track_caller]
fn is_told(command: Command, version: &str) {
    let output = ask(command, b"", Duration::from_secs(240));
    let said = String::from_utf8_lossy(&output.stdout);
    let wanted: String =
        ANSWERS.iter().map(|(path, status)| format!("{path} {status} {version}\n")).collect();
    assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&output.stderr));
}
