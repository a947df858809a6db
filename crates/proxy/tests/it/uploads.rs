//! Content of requests on its way to servers: all of it and nothing else, whatever its records, and however little at a
//! time the server takes.

use std::io::{BufRead, BufReader, Read, Write};

use offramp_testkit::server::{Listen, Server, Stream};
use proptest::prelude::*;

use crate::requests::response;
use crate::test_proxy::{Setup, TestProxy};

/// Reads content as slowly as the request says, and answers with its length and hash.
fn slow(stream: Stream) {
    let mut stream = BufReader::with_capacity(256, stream);
    loop {
        let (mut length, mut step) = (0_usize, 1_usize);
        loop {
            let mut line = String::new();
            if !matches!(stream.read_line(&mut line), Ok(1..)) {
                return;
            }
            match line.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("x-step", value)) => step = value.parse().unwrap(),
                None if line == "\r\n" => break,
                _ => {}
            }
        }
        let mut content = vec![0; length];
        for piece in content.chunks_mut(step) {
            if stream.read_exact(piece).is_err() {
                return;
            }
            std::thread::yield_now();
        }
        let answer = told(&content);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
        if stream.get_mut().write_all((head + &answer).as_bytes()).is_err() {
            return;
        }
    }
}

/// The length of content, and a hash by which any two that are unlike differ here.
fn told(content: &[u8]) -> String {
    let hash = content.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} {hash:x}", content.len())
}

/// Content in which no two places look alike for long.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

fn arrives(listen: &Listen) {
    let server = Server::start(listen, slow).unwrap();
    let proxy = TestProxy::open(&[server.address()], &Setup::default());
    // From a part of a record to many, around the sizes at which pieces are put together.
    let length = prop_oneof![
        1..300_usize,
        8_000..8_400_usize,
        16_000..17_000_usize,
        60_000..70_000_usize,
        100_000..400_000_usize
    ];
    let request = (length, prop::sample::select(&[97_usize, 4_096, 65_536][..]));
    let records = prop_oneof![
        3 => prop::collection::vec(1..20_000_usize, 1..6),
        1 => prop::collection::vec(5_000..9_000_usize, 1..3),
        1 => Just(vec![usize::MAX]),
    ];
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(requests in prop::collection::vec(request, 1..4), records in records)| {
        let (mut all, mut expected) = (Vec::new(), Vec::new());
        for (at, (length, step)) in requests.iter().enumerate() {
            let content = content(*length, at);
            all.extend_from_slice(
                format!("POST / HTTP/1.1\r\nhost: a.test\r\nx-step: {step}\r\ncontent-length: {length}\r\n\r\n")
                    .as_bytes(),
            );
            all.extend_from_slice(&content);
            expected.push(told(&content));
        }
        // Several requests one behind the other, cut anywhere.
        let mut stream = BufReader::new(proxy.https());
        let mut rest = &all[..];
        for size in records.iter().cycle() {
            let (record, more) = rest.split_at(rest.len().min(*size));
            stream.get_mut().write_all(record).unwrap();
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        for expected in expected {
            prop_assert_eq!(response(&mut stream, false).text(), expected);
        }
    });
    proxy.end();
}

#[test]
fn content_arrives_whole_over_tcp() {
    arrives(&Listen::Ipv4);
}

#[test]
fn content_arrives_whole_over_unix_sockets() {
    let place = tempfile::tempdir().unwrap();
    arrives(&Listen::Unix(place.path().join("app.sock")));
}
