//! Splitting the input does not change the result, and prefixes of valid streams are not rejected.

use offramp_http::h1::{HeadLimits, Phase};
use proptest::prelude::*;

use super::feed;

const STREAMS: &[&[u8]] = &[
    b"GET /a?b=c HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8.10.1\r\nAccept: */*\r\n\r\n",
    b"\r\nPOST /1 HTTP/1.1\r\nHost: a.example:443\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d\\\"e\"\r\nhello\r\n\
      00a\r\n0123456789\r\n0\r\nT: u\r\nV: w\r\n\r\nGET /2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\
      OPTIONS * HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n",
];

/// Small limits, so that streams reach them.
const TIGHT: HeadLimits = HeadLimits { head: 150, target: 24, fields: 5, connect: false };

#[test]
fn no_prefix_of_a_valid_stream_is_refused() {
    for stream in STREAMS {
        let whole = feed(stream, HeadLimits::default(), []);
        assert_eq!((whole.end, whole.passed), (None, stream.len()));
        for end in 0..stream.len() {
            let story = feed(&stream[..end], HeadLimits::default(), []);
            assert_eq!(story.end, None, "{:?}", String::from_utf8_lossy(&stream[..end]));
            for (part, request) in story.requests.iter().zip(&whole.requests) {
                assert_eq!((part.start, &part.head, part.body), (request.start, &request.head, request.body));
            }
        }
    }
}

#[test]
fn byte_by_byte_and_at_once_agree() {
    for stream in STREAMS {
        for limits in [HeadLimits::default(), TIGHT] {
            assert_eq!(feed(stream, limits, 0..stream.len()), feed(stream, limits, []));
            for cut in 0..stream.len() {
                assert_eq!(feed(stream, limits, [cut]), feed(stream, limits, []), "cut at {cut}");
            }
        }
    }
}

/// Heads with many kinds of errors.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"GET / HTTP/1.1\r\n"[..],
        b"POST /some/path?query HTTP/1.1\r\n",
        b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b" HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"GET http://a/ HTTP/1.0\r\n",
        b"MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM",
        b"Host: a\r\n",
        b"Host: b\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: upgrade\r\n",
        b"Upgrade: x\r\n",
        b"X: y\r\n",
        b"X",
        b":",
        b" ",
        b"\t",
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\0",
        b"#",
        b"hello",
        b"5\r\nhello\r\n",
        b"5;a=b\r\nhello\r\n",
        b";a=\"b",
        b"0\r\n\r\n",
        b"0\r\nT: u\r\n\r\n",
        b"ffff",
        b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// A valid stream with a few changed bytes.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::sample::select(STREAMS.to_vec()), damage).prop_map(|(stream, damage)| {
        let mut bytes = stream.to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_split_agrees(
        stream in prop_oneof![likely(), damaged(), prop::collection::vec(any::<u8>(), 0..200)],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        tight in any::<bool>(),
    ) {
        let limits = if tight { TIGHT } else { HeadLimits::default() };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = feed(&stream, limits, []);
        prop_assert_eq!(&feed(&stream, limits, cuts), &whole);
        prop_assert_eq!(&feed(&stream, limits, 0..stream.len()), &whole);
        prop_assert!(whole.passed <= stream.len());
    }
}

#[test]
fn a_fault_is_final() {
    let mut guard = offramp_http::h1::Guard::new(HeadLimits::default());
    let refused = guard.inspect(b"GET / HTTP/1.1\nHost: a\r\n\r\n");
    assert_eq!(refused.pass, 0);
    assert_eq!(guard.inspect(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), refused);
    assert_eq!(guard.phase(), Phase::Over);
}
