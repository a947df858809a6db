//! The small applications do what they say, over TCP and Unix sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use offramp_testkit::Error;
use offramp_testkit::process::temp_dir;
use offramp_testkit::server::{Listen, Pattern, Recording, Refusing, Server, Stream, Sum, apps, faults};

const SOON: Duration = Duration::from_secs(60);

/// Runs `check` over every kind of address.
fn everywhere(check: impl Fn(&Listen)) {
    let directory = temp_dir();
    check(&Listen::Ipv4);
    check(&Listen::Ipv6);
    check(&Listen::Unix(directory.path().join("app.sock")));
}

fn connect(server: &Server) -> Stream {
    let stream = server.address().connect().unwrap();
    stream.set_timeout(Some(SOON)).unwrap();
    stream
}

fn rest(stream: &mut Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn an_echo_ends_with_its_peer() {
    everywhere(|listen| {
        let server = Server::start(listen, apps::echo).unwrap();
        let mut stream = connect(&server);
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut stream), b"hello");
        assert_eq!(server.accepted(), 1);
    });
}

#[test]
fn http_keeps_the_connection() {
    everywhere(|listen| {
        let server = Server::start(listen, apps::http).unwrap();
        let mut stream = connect(&server);
        stream.write_all(b"GET /one HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream.write_all(b"POST /two HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").unwrap();
        stream.write_all(b"HEAD /three HTTP/1.1\r\nconnection: close\r\n\r\n").unwrap();
        let answer = String::from_utf8(rest(&mut stream)).unwrap();
        assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{answer}");
        assert!(answer.contains("\r\n\r\nhello /one\nHTTP/1.1") && answer.contains("\r\n\r\nabcHTTP/1.1"));
        assert!(answer.ends_with("connection: close\r\n\r\n"), "{answer}");
    });
}

#[test]
fn sums_tell_what_passed() {
    everywhere(|listen| {
        let length = 3_000_001;
        let server = Server::start(listen, apps::source(7, length)).unwrap();
        let mut stream = connect(&server);
        let bytes = rest(&mut stream);
        let mut sum = Sum::new();
        sum.add(&bytes);
        assert_eq!(sum.to_string(), Pattern::new(7).sum(length));
        assert_eq!(sum.length(), length);
        assert_ne!(Pattern::new(8).sum(length), Pattern::new(7).sum(length));
        drop((stream, server));

        let server = Server::start(listen, apps::sink).unwrap();
        let mut stream = connect(&server);
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut stream), format!("{sum}\n").into_bytes());
    });
}

#[test]
fn broken_servers_are_broken_in_their_own_way() {
    let fault = |listen: &Listen, behaviour: Box<dyn Fn(Stream) + Send + Sync>| {
        let server = Server::start(listen, behaviour).unwrap();
        let mut stream = connect(&server);
        (stream.write_all(b"hello"), server, stream)
    };
    everywhere(|listen| {
        let (_, _server, mut stream) = fault(listen, Box::new(faults::hang));
        stream.set_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
    everywhere(|listen| {
        let (_, _server, mut stream) = fault(listen, Box::new(faults::close_in_the_middle(b"hal")));
        assert_eq!(rest(&mut stream), b"hal");
    });
    everywhere(|listen| {
        let (_, _server, mut stream) = fault(listen, Box::new(faults::answer_after_eof(b"bye")));
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut stream), b"bye");
    });
    everywhere(|listen| {
        let (_, _server, mut stream) = fault(listen, Box::new(faults::close_own_side_first(b"hi")));
        assert_eq!(rest(&mut stream), b"hi");
        stream.write_all(b"still read").unwrap();
    });
}

#[test]
fn a_reset_is_a_reset() {
    for listen in [Listen::Ipv4, Listen::Ipv6] {
        let server = Server::start(&listen, faults::reset_in_the_middle(b"hal")).unwrap();
        let mut stream = connect(&server);
        stream.write_all(b"hello").unwrap();
        let mut bytes = Vec::new();
        assert_eq!(stream.read_to_end(&mut bytes).unwrap_err().kind(), ErrorKind::ConnectionReset);

        let server = Server::start(&listen, faults::reset).unwrap();
        // The reset may be faster than the connecting.
        let kind = match server.address().connect() {
            Ok(mut stream) => stream.read(&mut [0]).unwrap_err().kind(),
            Err(Error::Io(error)) => error.kind(),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(kind, ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_refusing_address_refuses() {
    everywhere(|listen| {
        let refusing = Refusing::new(listen).unwrap();
        for _ in 0..3 {
            assert!(refusing.address().connect().unwrap_err().to_string().contains("refused"));
        }
    });
}

#[test]
fn a_recording_keeps_connections_apart() {
    everywhere(|listen| {
        let (server, recording) = Recording::start(listen).unwrap();
        let mut first = connect(&server);
        first.write_all(b"PROXY UNKNOWN\r\n").unwrap();
        recording.wait_until(SOON, |all| all.len() == 1 && all[0].len() == 15).unwrap();
        let mut second = connect(&server);
        second.write_all(b"two").unwrap();
        let all = recording.wait_until(SOON, |all| all.len() == 2 && all[1].len() == 3).unwrap();
        assert_eq!(all, [b"PROXY UNKNOWN\r\n".to_vec(), b"two".to_vec()]);
        assert_eq!(recording.snapshot(), all);
        assert!(recording.wait_until(Duration::ZERO, |all| all.len() == 3).is_err());
    });
}
