//! The demo without the proxy: raw HTTP behind a PROXY header, over its socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use offramp_wire::proxy::{CLIENT_SSL, OutboundHeader, ProxyEndpoint, TlsInfo};

use super::DemoApplication;

fn header() -> Vec<u8> {
    let address = |text: &str| ProxyEndpoint::Inet(text.parse().unwrap());
    let tls = TlsInfo { client: CLIENT_SSL, version: Some("TLSv1.3"), ..TlsInfo::default() };
    let mut header = Vec::new();
    OutboundHeader {
        authority: Some("localhost"),
        tls: Some(tls),
        ..OutboundHeader::new(address("192.0.2.1:50000"), address("192.0.2.2:443"))
    }
    .encode_v2(&mut header);
    header
}

/// Sends bytes in one write and returns the whole answer.
fn exchange(demo: &DemoApplication, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(demo.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn get(demo: &DemoApplication, request: &str) -> String {
    exchange(demo, &[header(), request.as_bytes().to_vec()].concat())
}

#[test]
fn every_path_answers() {
    let demo = DemoApplication::start().unwrap();
    let end = "HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";
    let page = get(&demo, &format!("GET / {end}\r\n"));
    for part in ["HTTP/1.1 200", "192.0.2.1:50000", "TLSv1.3", "<td>localhost", "content-security-policy"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(get(&demo, &format!("GET /hello {end}\r\n")).ends_with("\r\n\r\nHello from behind Offramp.\n"));
    let large = get(&demo, &format!("GET /large?bytes=100001 {end}\r\n"));
    assert!(large.contains("content-length: 100001\r\n"));
    assert_eq!(large.split_once("\r\n\r\n").unwrap().1.len(), 100_001);
    let echo = get(&demo, &format!("POST /echo {end}content-length: 5\r\n\r\nabcde"));
    assert!(echo.ends_with("\r\n\r\nabcde"), "{echo}");
    for (request, status) in [
        ("GET /nowhere", "404"),
        ("POST /hello", "405"),
        ("GET /echo", "405"),
        ("GET /large?bytes=x", "400"),
        ("GET /large?bytes=1099511627777", "400"),
    ] {
        let answer = get(&demo, &format!("{request} {end}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
}

#[test]
fn a_connection_without_a_header_is_closed() {
    let demo = DemoApplication::start().unwrap();
    let mut stream = UnixStream::connect(demo.socket()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    // A close with unread bytes may be a reset.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn nothing_is_left_behind() {
    let demo = DemoApplication::start().unwrap();
    let socket = demo.socket();
    let mut open = UnixStream::connect(&socket).unwrap();
    assert!(socket.exists());
    drop(demo);
    assert!(!socket.exists() && !socket.parent().unwrap().exists());
    // A reset if it had not been accepted yet.
    assert!(matches!(open.read(&mut [0; 1]), Ok(0) | Err(_)));
}
