//! A server that goes away in the middle of a response: the client sees that it is cut off, never a clean
//! end, and the event says whose fault it was. A client that goes away ends its server's work.

use std::io::{ErrorKind, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use offramp_testkit::process::{Process, Ready, require};
use offramp_testkit::server::{Listen, Server, faults};

use crate::support::crowd::{connect, tcp, trusting};
use crate::support::http_curl::{HTTP, command, curl};
use crate::support::instance::{CERTIFICATE, Home, LIFE, PATIENCE, cause, text};

#[test]
fn a_response_that_is_cut_off_does_not_look_whole() {
    let home = Home::new();
    let cut: [(&str, &'static [u8], bool); 5] = [
        ("length", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", false),
        ("chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", false),
        ("in-chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", false),
        ("reset-length", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", true),
        ("reset-eof", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf", true),
    ];
    let mut text_ = format!("{CERTIFICATE}{HTTP}");
    let mut servers = Vec::new();
    for (name, said, reset) in cut {
        let server = if reset {
            Server::start(&Listen::Ipv4, faults::reset_in_the_middle(said)).unwrap()
        } else {
            Server::start(&Listen::Ipv4, faults::close_in_the_middle(said)).unwrap()
        };
        text_.push_str(&format!("[[route]]\npath = \"/{name}\"\nserver = \"{}\"\n", server.address()));
        servers.push(server);
    }
    let instance = home.run(&text_);
    for (name, _, reset) in cut {
        // 18: partial file; 92: HTTP/2 stream error; 56: the connection was reset or truncated.
        for (version, codes) in
            [("--http1.0", &[18, 56][..]), ("--http1.1", &[18, 56]), ("--http2", &[92, 18])]
        {
            let answer = curl(&instance, &[version], &format!("https://localhost/{name}?{version}"));
            assert!(codes.contains(&answer.code), "{name} {version}: {answer:?}");
            // A reset may overtake what was sent before it.
            assert!(
                reset || (answer.status(), answer.text().as_str()) == (200, "half"),
                "{name} {version}: {answer:?}"
            );
            let event = instance.event(name, |event| {
                text(event, "path") == format!("/{name}") && text(event, "query") == version
            });
            assert_eq!((cause(&event), text(&event, "fault")), ("server_aborted", "server"), "{event}");
        }
    }
    let whole = "a response whose end is the end of the connection";
    drop(instance);
    // A client of HTTP/1.0 in plain text has nothing but the end of the connection.
    let plain = HTTP.replace("mode", "tls = false\nmode");
    let chunked = Server::start(&Listen::Ipv4, faults::close_in_the_middle(cut[1].1)).unwrap();
    let instance = Home::new().run(&format!("{plain}[[route]]\nserver = \"{}\"\n", chunked.address()));
    let mut client = tcp(instance.address()).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n").unwrap();
    let read = client.read_to_end(&mut Vec::new());
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    instance.stop();
    // In order that is no fault (RFC 9112 §6.3).
    let home = Home::new();
    let said = b"HTTP/1.1 200 OK\r\n\r\nto the end";
    let _app =
        Server::start(&Listen::Unix(home.file("app.sock")), faults::close_in_the_middle(said)).unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    for version in ["--http1.0", "--http1.1", "--http2"] {
        let answer = curl(&instance, &[version], "https://localhost/");
        assert_eq!((answer.code, answer.text().as_str()), (0, "to the end"), "{whole}: {answer:?}");
    }
    assert!(instance.stop().iter().all(|event| cause(event) == "completed"));
}

/// A server of HTTP/2 that breaks a rule: clients get 502, or the end of a response that had begun, and the event names
/// the rule.
#[test]
fn a_server_that_breaks_rules_of_http2_gets_no_client_into_trouble() {
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    // `:status: 200` on stream 1, and two bytes of content.
    const HEAD: &[u8] = &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88];
    const DATA: &[u8] = &[0, 0, 2, 0, 0, 0, 0, 0, 1, b'h', b'i'];
    let frames = |frames: &[&[u8]]| -> &'static [u8] { frames.concat().leak() };
    let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[0; 8]].concat().repeat(20_000);
    let rows = [
        ("push", frames(&[SETTINGS, &[0, 0, 4, 5, 4, 0, 0, 0, 1, 0, 0, 0, 2]]), 502, "PUSH_PROMISE"),
        ("ping", frames(&[SETTINGS, &ping]), 502, "too many control frames"),
        ("hpack", frames(&[SETTINGS, &[0, 0, 2, 1, 5, 0, 0, 0, 1, 0xff, 0x70]]), 502, "COMPRESSION_ERROR"),
        ("status", frames(&[SETTINGS, &[0, 0, 0, 1, 5, 0, 0, 0, 1]]), 502, "a malformed response"),
        (
            "even",
            frames(&[SETTINGS, HEAD, DATA, &[0, 0, 1, 1, 5, 0, 0, 0, 2, 0x88]]),
            200,
            "on an idle stream",
        ),
    ];
    let (mut servers, mut configuration) = (Vec::new(), format!("{CERTIFICATE}{HTTP}"));
    for (name, said, ..) in rows {
        let server = Server::start(&Listen::Ipv4, faults::close_in_the_middle(said)).unwrap();
        configuration.push_str(&format!(
            "[backend.{name}]\nservers = [\"{}\"]\nprotocol = \"h2\"\n[[route]]\npath = \"/{name}\"\nbackend = \"{name}\"\n",
            server.address()
        ));
        servers.push(server);
    }
    let instance = Home::new().run(&configuration);
    for (name, _, status, rule) in rows {
        for version in ["--http1.1", "--http2"] {
            let answer = curl(&instance, &[version], &format!("https://localhost/{name}?{version}"));
            assert_eq!(answer.code == 0, status == 502, "{name} {version}: {answer:?}");
            assert_eq!(answer.status(), status, "{name} {version}: {answer:?}");
            let event = instance.event(name, |event| {
                text(event, "path") == format!("/{name}") && text(event, "query") == version
            });
            assert_eq!(text(&event, "fault"), "server", "{event}");
            assert!(text(&event, "detail").contains(rule), "{event}");
        }
    }
    instance.stop();
}

/// The kernel tells the reset to the write of the upload. What is read then looks like the end of the response.
#[test]
fn a_reset_in_an_upload_is_no_end_of_the_response() {
    let home = Home::new();
    let said = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf";
    let app = Server::start(&Listen::Ipv4, faults::reset_in_the_middle(said)).unwrap();
    std::fs::write(home.file("body"), vec![b'x'; 30 << 20]).unwrap();
    let upload = format!("@{}", home.file("body").display());
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"{}\"\n", app.address()));
    for version in ["--http1.0", "--http1.1", "--http2"] {
        // Without a wait for 100, so that the upload is under way.
        let answer =
            curl(&instance, &[version, "-H", "Expect:", "--data-binary", &upload], "https://localhost/");
        // The head may be lost with the reset; that is answered with 502.
        let whole = answer.code == 0 && answer.status() == 200;
        assert!(!whole, "{version}: {} {}", answer.code, answer.said);
    }
    instance.stop();
}

/// A long one goes another way than a short one.
#[test]
fn a_long_response_that_is_cut_off_does_not_look_whole() {
    let home = Home::new();
    let mut said = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    said.resize(said.len() + 600_000, b'x');
    let app = faults::close_in_the_middle(said.leak());
    let _app = Server::start(&Listen::Unix(home.file("app.sock")), app).unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    for (version, codes) in [("--http1.1", &[18, 56][..]), ("--http2", &[92, 18])] {
        let answer = curl(&instance, &[version], &format!("https://localhost/?{version}"));
        assert!(codes.contains(&answer.code), "{version}: {}", answer.code);
        assert_eq!((answer.status(), answer.text().len()), (200, 600_000), "{version}");
        let event = instance.event("the cut", |event| text(event, "query") == version);
        assert_eq!((cause(&event), text(&event, "fault")), ("server_aborted", "server"), "{event}");
        assert_eq!(event["bytes_to_client"].as_u64(), Some(600_000), "{event}");
    }
}

/// Sends a head and some of the body, and no more.
const ENDLESS: &str = r#"
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("app.sock")
listener.listen()
held = []
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    held.append(connection)
    if connection.recv(4096):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
"#;

#[test]
fn a_server_that_is_killed_is_told_in_the_event() {
    let home = Home::new();
    let mut python = Command::new(require("python3", "python3"));
    python.args(["-c", ENDLESS]).current_dir(home.path());
    let application = Process::start(python, LIFE).unwrap();
    application.wait_for(&Ready::Line("listening".to_owned()), PATIENCE).unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    let mut clients: Vec<_> = ["--http1.1", "--http2"]
        .map(|version| {
            let mut curl = command(&instance, "https");
            curl.args(["--no-buffer", version, "https://localhost/"]);
            curl.stdout(Stdio::piped()).spawn().unwrap()
        })
        .into();
    for client in &mut clients {
        let mut some = [0; 1000];
        client.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    }
    // Killed, as a Process is that is dropped.
    drop(application);
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(matches!(output.status.code(), Some(18 | 56 | 92)), "{output:?}");
    }
    for event in instance.events_of(2) {
        assert_eq!((cause(&event), text(&event, "fault")), ("server_aborted", "server"), "{event}");
        assert_eq!(
            (event["status"].as_u64(), event["bytes_to_client"].as_u64()),
            (Some(200), Some(1000)),
            "{event}"
        );
    }
    instance.stop();
}

#[test]
fn a_client_that_goes_away_ends_the_work_of_its_server() {
    let home = Home::new();
    let (told, tells) = channel();
    let told = std::sync::Mutex::new(told);
    let _app = Server::start(&Listen::Unix(home.file("app.sock")), move |mut stream| {
        let mut chunk = [0; 4096];
        let request = stream.read(&mut chunk).unwrap_or(0);
        let _ = told.lock().unwrap().send(request);
        // The end of the connection is all that can come now.
        let rest = stream.read(&mut chunk).unwrap_or(0);
        let _ = told.lock().unwrap().send(rest);
    })
    .unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    tls.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(tells.recv_timeout(PATIENCE).unwrap() > 0, "a request at the server");
    drop(tls);
    assert_eq!(tells.recv_timeout(PATIENCE).unwrap(), 0);
    let event = instance.event("a client that went away", |_| true);
    assert_eq!((event["status"].as_u64(), text(&event, "fault")), (Some(0), "client"), "{event}");
    instance.stop();
}
