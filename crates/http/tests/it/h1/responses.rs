//! Heads of responses: a table of sloppy and hostile servers, and httparse as the oracle.

use httparse::{EMPTY_HEADER, Status};
use offramp_http::Http1Fault;
use offramp_http::h1::{
    HeadLimits, Http1Version, RequestKind, ResponseFault, ResponseFraming, ResponseHead, ResponseReader,
};
use proptest::prelude::*;

use ResponseFault::{Head as Bad, StatusLine};
use ResponseFraming::{Chunked, Interim, Length, None as Nothing, Switched, UntilClose};

/// A head with its fields, if it is complete.
type Read = Result<Option<(ResponseHead, Vec<(String, Vec<u8>)>)>, ResponseFault>;

/// Reads a head that arrives in pieces of `piece` bytes.
fn read(stream: &[u8], limits: &HeadLimits, asked: RequestKind, piece: usize) -> Read {
    let mut reader = ResponseReader::default();
    let mut end = 0;
    while end < stream.len() {
        end = (end + piece).min(stream.len());
        let bytes = &stream[..end];
        if let Some(head) = reader.read(bytes, limits, asked)? {
            let text = |range: &std::ops::Range<usize>| String::from_utf8(bytes[range.clone()].to_vec());
            let fields = reader.fields().iter();
            let fields =
                fields.map(|field| (text(&field.name()).unwrap(), bytes[field.value_in(bytes)].to_vec()));
            return Ok(Some((head, fields.collect())));
        }
    }
    Ok(None)
}

/// Reads the head in pieces of various sizes.
fn head(stream: &str, asked: RequestKind) -> Result<ResponseHead, ResponseFault> {
    let whole = read(stream.as_bytes(), &HeadLimits::default(), asked, stream.len());
    for piece in [1, 2, 5, 16] {
        assert_eq!(read(stream.as_bytes(), &HeadLimits::default(), asked, piece), whole, "{stream:?}");
    }
    whole.map(|head| head.unwrap_or_else(|| panic!("{stream:?} is not complete")).0)
}

#[test]
fn heads_of_real_servers() {
    let table: &[(&str, u16, ResponseFraming, bool)] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", 200, Chunked, true),
        ("HTTP/1.1 200 OK\r\n\r\n", 200, UntilClose, false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, Length(0), false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", 200, Length(0), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: x, Close\r\n\r\n", 200, Length(1), false),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, Nothing, true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, Nothing, true),
        ("HTTP/1.1 100 Continue\r\n\r\n", 100, Interim, true),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 101, Switched, false),
        ("HTTP/1.1 999 Beyond\r\nContent-Length: 2\r\n\r\n", 999, Length(2), true),
        // Sloppy, but with a single reading.
        ("HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 200 OK\nContent-Length: 5\n\n", 200, Length(5), true),
        ("HTTP/1.1 200 OK\r\nContent-Length:5  \n\r\n", 200, Length(5), true),
        ("\r\n\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 005\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 200 OK\r\nContent_Length: 7\r\nX:\r\nContent-Length: 5\r\n\r\n", 200, Length(5), true),
        ("HTTP/1.1 404 Nicht gefunden \u{fc}\r\nContent-Length: 5\r\n\r\n", 404, Length(5), true),
    ];
    for (stream, status, framing, keep_alive) in table {
        let head = head(stream, RequestKind::Other).unwrap_or_else(|fault| panic!("{stream:?}: {fault}"));
        assert_eq!(
            (head.status, head.framing, head.keep_alive),
            (*status, *framing, *keep_alive),
            "{stream:?}"
        );
        assert_eq!(head.length, stream.len());
    }
}

#[test]
fn the_request_determines_the_content() {
    let stream = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(head(stream, RequestKind::Head).unwrap().framing, Nothing);
    assert_eq!(head(stream, RequestKind::Connect).unwrap().framing, Switched);
    let stream = "HTTP/1.1 407 No\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(head(stream, RequestKind::Connect).unwrap().framing, Length(5));
    assert_eq!(head("HTTP/1.1 100 Continue\r\n\r\n", RequestKind::Head).unwrap().framing, Interim);
}

#[test]
fn noncanonical_lengths_are_reported() {
    for (lengths, odd) in [
        ("Content-Length: 5\r\n", None),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Some(5)),
        ("Content-Length: 5,5\r\n", Some(5)),
        ("Content-Length: 05\r\n", Some(5)),
        ("", None),
    ] {
        let stream = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n");
        assert_eq!(head(&stream, RequestKind::Other).unwrap().odd_length, odd, "{lengths}");
    }
}

#[test]
fn ambiguous_heads_are_rejected() {
    let table: &[(&str, ResponseFault)] = &[
        ("SSH-2.0-OpenSSH_9.2\r\n", StatusLine),
        ("\x16\x03\x01", StatusLine),
        ("hello", StatusLine),
        ("http/1.1 200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1  200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1\t200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 20 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 2000 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 099 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 -20 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 200\tOK\r\n\r\n", StatusLine),
        ("HTTP/1.1\r\n\r\n", StatusLine),
        ("HTTP/1.x 200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.2 200 OK\r\n\r\n", ResponseFault::Version),
        ("HTTP/2 200\r\n\r\n", ResponseFault::Version),
        ("HTTP/0.9 200 OK\r\n\r\n", ResponseFault::Version),
        ("HTTP/1.1 200 O\0K\r\n\r\n", Bad(Http1Fault::ControlByte)),
        ("HTTP/1.1 200 O\rK\r\n\r\n", Bad(Http1Fault::BareCarriageReturn)),
        ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", Bad(Http1Fault::BareCarriageReturn)),
        ("HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n", Bad(Http1Fault::ControlByte)),
        ("HTTP/1.1 200 OK\r\n A: b\r\n\r\n", Bad(Http1Fault::LeadingSpace)),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", Bad(Http1Fault::ObsFold)),
        ("HTTP/1.1 200 OK\r\n : b\r\n\r\n", Bad(Http1Fault::LeadingSpace)),
        ("HTTP/1.1 200 OK\r\nA: b\r\n : c\r\n\r\n", Bad(Http1Fault::ObsFold)),
        ("HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", Bad(Http1Fault::Name)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length : 6\r\n\r\n",
            Bad(Http1Fault::ContentLengthConflict),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length : 5\r\nTransfer-Encoding\t: chunked\r\n\r\n",
            Bad(Http1Fault::BothLengths),
        ),
        ("HTTP/1.1 200 OK\r\nA\r\n\r\n", Bad(Http1Fault::NoColon)),
        ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", Bad(Http1Fault::EmptyName)),
        ("HTTP/1.1 200 OK\r\nA\u{e4}: b\r\n\r\n", Bad(Http1Fault::Name)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            Bad(Http1Fault::ContentLengthConflict),
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", Bad(Http1Fault::ContentLengthConflict)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5,\r\n\r\n", Bad(Http1Fault::ContentLength)),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", Bad(Http1Fault::ContentLength)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5 5\r\n\r\n", Bad(Http1Fault::ContentLength)),
        ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", Bad(Http1Fault::ContentLength)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n", Bad(Http1Fault::ContentLength)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
            Bad(Http1Fault::ContentLengthTooLarge),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 09223372036854775808\r\n\r\n",
            Bad(Http1Fault::ContentLengthTooLarge),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            Bad(Http1Fault::BothLengths),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            Bad(Http1Fault::BothLengths),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            Bad(Http1Fault::TransferCodingUnknown),
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", Bad(Http1Fault::ChunkedNotLast)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", Bad(Http1Fault::TransferCodingUnknown)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            Bad(Http1Fault::TransferEncodingRepeated),
        ),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Bad(Http1Fault::TransferEncodingInHttp10)),
        ("HTTP/1.1 200 OK\r\nConnection: transfer-encoding\r\n\r\n", Bad(Http1Fault::ConnectionOption)),
    ];
    for (stream, fault) in table {
        assert_eq!(head(stream, RequestKind::Other), Err(*fault), "{stream:?}");
        assert!(!fault.to_string().is_empty());
    }
}

#[test]
fn limits_of_heads_are_exact() {
    let limits = HeadLimits { head: 40, fields: 2, ..HeadLimits::default() };
    for piece in [1, 3, 64] {
        let fits = b"HTTP/1.1 200 OK\r\nA: 2345678901234567\r\n\r\n";
        assert_eq!(fits.len(), 40);
        assert!(read(fits, &limits, RequestKind::Other, piece).unwrap().is_some());
        let long = b"HTTP/1.1 200 OK\r\nA: 23456789012345678\r\n\r\n";
        assert_eq!(read(long, &limits, RequestKind::Other, piece), Err(Bad(Http1Fault::HeadTooLong)));
        let empty = b"\n".repeat(50);
        assert_eq!(read(&empty, &limits, RequestKind::Other, piece), Err(Bad(Http1Fault::HeadTooLong)));
        let many = b"HTTP/1.1 200 OK\r\nA:\r\nB:\r\nC:\r\n\r\n";
        assert_eq!(read(many, &limits, RequestKind::Other, piece), Err(Bad(Http1Fault::TooManyFields)));
    }
}

#[test]
fn a_reader_reads_one_head_after_the_other() {
    let mut reader = ResponseReader::default();
    let limits = HeadLimits::default();
    let stream = b"HTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.0 200 Fine\r\nContent-Length: 3\r\n\r\nabc";
    let first = reader.read(stream, &limits, RequestKind::Other).unwrap().unwrap();
    assert_eq!((first.status, reader.fields().len()), (103, 1));
    reader.clear();
    let rest = &stream[first.length..];
    let second = reader.read(rest, &limits, RequestKind::Other).unwrap().unwrap();
    assert_eq!((second.status, second.version, second.framing), (200, Http1Version::Http10, Length(3)));
    assert_eq!((&rest[second.reason], &rest[second.length..]), (&b"Fine"[..], &b"abc"[..]));
}

/// Heads with many kinds of errors.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"HTTP/1.1 200 OK\r\n"[..],
        b"HTTP/1.0 404\r\n",
        b"HTTP/1.1 ",
        b"200",
        b"Content-Length: 5\r\n",
        b"Content-Length: 05, 5\r\n",
        b"Content-Length: 6\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"X: y\xff \t\r\n",
        b"Y",
        b":",
        b" ",
        b"\t",
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\0",
        b"a=b;c",
    ]);
    let begun = prop::bool::weighted(0.8);
    (begun, prop::collection::vec(piece, 0..10)).prop_map(|(begun, pieces)| {
        let mut stream = if begun { b"HTTP/1.1 200 OK\r\n".to_vec() } else { Vec::new() };
        stream.extend(pieces.concat());
        stream
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_split_gives_the_same_and_the_oracle_agrees(stream in likely(), piece in 1_usize..20) {
        let limits = HeadLimits { head: 120, fields: 5, ..HeadLimits::default() };
        for limits in [limits, HeadLimits::default()] {
            let whole = read(&stream, &limits, RequestKind::Other, stream.len().max(1));
            prop_assert_eq!(&whole, &read(&stream, &limits, RequestKind::Other, piece));
            let Ok(Some((head, fields))) = whole else { continue };
            let mut headers = [EMPTY_HEADER; 64];
            let mut response = httparse::Response::new(&mut headers);
            // RFC 9112 §5.1: a proxy removes blanks before the colon.
            let mut oracle = httparse::ParserConfig::default();
            oracle.allow_spaces_after_header_name_in_responses(true);
            let parsed = oracle.parse_response(&mut response, &stream);
            prop_assert_eq!(parsed, Ok(Status::Complete(head.length)));
            prop_assert_eq!(response.code, Some(head.status));
            prop_assert_eq!(response.version, Some(u8::from(head.version == Http1Version::Http11)));
            let theirs: Vec<_> =
                response.headers.iter().map(|field| (field.name.to_owned(), field.value.to_vec())).collect();
            prop_assert_eq!(theirs, fields);
        }
    }
}
