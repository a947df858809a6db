use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

#[test]
fn name_servers_are_those_of_the_resolver() {
    let text = "# nameserver 192.0.2.9\nsearch a.test\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 # x\n\
                nameserver fe80::1%eth0\noptions edns0\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n";
    let servers: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]);
}

/// A name server that knows the record of `example.test` alone.
async fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut datagram = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut datagram).await {
            let mut answer = datagram[..length].to_vec();
            answer[2] |= 0x80;
            if answer[12..].starts_with(b"\x07example\x04test\0") {
                answer[7] = 1;
                answer.extend(b"\xc0\x0c\x01\x01\0\x01\0\0\0\x3c\0\x0d\0\x05issueca.org");
                let at = answer.len() - 13;
                answer[at - 1] = 13;
            } else if answer[12..].starts_with(b"\x06broken") {
                answer[3] |= 2;
            }
            // What is none of ours is passed over.
            socket.send_to(b"noise", from).await.unwrap();
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn the_nearest_domain_with_records_decides() {
    let server = [name_server().await];
    let found = look_for_caa(&server, "www.shop.example.test").await.unwrap();
    assert_eq!(found.at.as_deref(), Some("example.test"));
    assert_eq!(found.records[0].value, "ca.org");
    let none = look_for_caa(&server, "www.other.test").await.unwrap();
    assert!(none.at.is_none() && none.records.is_empty());
    let failed = look_for_caa(&server, "broken.test").await.unwrap_err();
    assert!(failed.ends_with("answers with code 2 for broken.test"), "{failed}");
}

/// The conduct of a name server over TCP.
#[derive(Clone, Copy, PartialEq)]
enum OverTcp {
    Tells,
    Truncates,
    Hangs,
    BreaksOff,
}

/// A question with so many records of 46 bytes as its answer.
fn with_records(question: &[u8], count: u16) -> Vec<u8> {
    let mut answer = question.to_vec();
    answer[2] |= 0x80;
    answer[6..8].copy_from_slice(&count.to_be_bytes());
    for number in 0..count {
        answer.extend(b"\xc0\x0c\x01\x01\0\x01\0\0\0\x3c\0\x20\0\x05issue");
        answer.extend(format!("ca{number:05}.authority.example").as_bytes());
    }
    answer
}

/// A name server that has no room in a datagram, on one port of both protocols.
async fn roomless_server(conduct: OverTcp) -> SocketAddr {
    // The port of one protocol may be another program's for the other.
    let (stream, socket) = loop {
        let stream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(stream.local_addr().unwrap()).await {
            break (stream, socket);
        }
    };
    let address = stream.local_addr().unwrap();
    tokio::spawn(async move {
        let mut datagram = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut datagram).await {
            let mut answer = datagram[..length].to_vec();
            answer[2] |= 0x82;
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut client, _)) = stream.accept().await {
            let length = client.read_u16().await.unwrap();
            let mut question = vec![0; length.into()];
            client.read_exact(&mut question).await.unwrap();
            let mut answer = with_records(&question, 200);
            match conduct {
                OverTcp::Tells => {}
                OverTcp::Truncates => answer[2] |= 2,
                OverTcp::BreaksOff => answer.truncate(20),
                OverTcp::Hangs => {
                    open.push(client);
                    continue;
                }
            }
            let length = if conduct == OverTcp::BreaksOff { u16::MAX } else { answer.len() as u16 };
            client.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn answers_that_are_truncated_come_over_tcp() {
    let server = roomless_server(OverTcp::Tells).await;
    let found = look_for_caa(&[server], "www.example.test").await.unwrap();
    assert_eq!(found.at.as_deref(), Some("www.example.test"));
    // A bound on records holds for them, too.
    assert_eq!(found.records.len(), 64);
    assert_eq!(found.records[63].value, "ca00063.authority.example");
}

#[tokio::test]
async fn a_name_server_without_an_answer_over_tcp_is_passed_over() {
    let second = name_server().await;
    for (conduct, part) in [
        (OverTcp::Truncates, "tells the records of example.test in part only, over TCP, too"),
        (OverTcp::Hangs, "does not fit into a datagram, and over TCP: no answer within 2 s"),
        (OverTcp::BreaksOff, "does not fit into a datagram, and over TCP: "),
    ] {
        let first = roomless_server(conduct).await;
        let failed = look_for_caa(&[first], "example.test").await.unwrap_err();
        assert!(failed.contains(part), "{failed}");
        let found = look_for_caa(&[first, second], "example.test").await.unwrap();
        assert_eq!(found.records[0].value, "ca.org");
    }
}
