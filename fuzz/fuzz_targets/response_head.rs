//! Arbitrary bytes as a response of HTTP/1: nothing panics, how the bytes arrive does not matter, and what is
//! accepted, httparse reads the same. Chunked content behind the head is taken apart too.
//!
//! The first byte of the input chooses what was asked, the limits and the pieces in which the rest arrives.

#![no_main]

use httparse::{EMPTY_HEADER, ParserConfig, Status};
use libfuzzer_sys::fuzz_target;
use offramp_http::field::FieldLine;
use offramp_http::h1::{
    Chunk, Chunks, HeadLimits, Http1Version, RequestKind, ResponseFault, ResponseFraming, ResponseHead,
    ResponseReader,
};

/// How long the pieces are.
const PIECES: [usize; 8] = [1, 2, 3, 7, 16, 33, 100, 1000];

type Read = Result<Option<(ResponseHead, Vec<FieldLine>)>, ResponseFault>;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, stream)) = data.split_first() else { return };
    let limits = match choice >> 3 & 1 {
        0 => HeadLimits { head: 100, fields: 4, ..HeadLimits::default() },
        _ => HeadLimits::default(),
    };
    let asked = match choice >> 4 & 3 {
        0 => RequestKind::Head,
        1 => RequestKind::Connect,
        _ => RequestKind::Other,
    };
    let piece = PIECES[usize::from(choice & 7)];
    let whole = head(stream, &limits, asked, stream.len().max(1));
    assert_eq!(whole, head(stream, &limits, asked, piece));
    let Ok(Some((head, fields))) = whole else { return };
    agree(stream, &head, &fields);
    if head.framing == ResponseFraming::Chunked {
        let rest = &stream[head.length..];
        assert_eq!(content(rest, &limits, rest.len().max(1)), content(rest, &limits, piece));
    }
});

fn head(stream: &[u8], limits: &HeadLimits, asked: RequestKind, piece: usize) -> Read {
    let mut reader = ResponseReader::default();
    let mut end = 0;
    while end < stream.len() {
        end = (end + piece).min(stream.len());
        if let Some(head) = reader.read(&stream[..end], limits, asked)? {
            return Ok(Some((head, reader.fields().to_vec())));
        }
        assert!(end < limits.head as usize, "a head that does not end is refused in time");
    }
    Ok(None)
}

/// Holds a head against the oracle.
fn agree(stream: &[u8], head: &ResponseHead, fields: &[FieldLine]) {
    let mut headers = [EMPTY_HEADER; 128];
    let mut read = httparse::Response::new(&mut headers);
    // RFC 9112 §5.1: a proxy removes blanks before the colon.
    let mut oracle = ParserConfig::default();
    oracle.allow_spaces_after_header_name_in_responses(true);
    assert_eq!(oracle.parse_response(&mut read, stream), Ok(Status::Complete(head.length)));
    assert_eq!(read.code, Some(head.status));
    assert_eq!(read.version, Some(u8::from(head.version == Http1Version::Http11)));
    assert!(!head.keep_alive || head.framing != ResponseFraming::UntilClose);
    let ours: Vec<_> =
        fields.iter().map(|field| (&stream[field.name()], &stream[field.value_in(stream)])).collect();
    let theirs: Vec<_> = read.headers.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
    assert_eq!(ours, theirs);
    let has = |name: &str| read.headers.iter().any(|field| field.name.eq_ignore_ascii_case(name));
    assert!(!has("transfer-encoding") || !has("content-length"));
}

/// The data of chunked content, and how it ended.
fn content(stream: &[u8], limits: &HeadLimits, piece: usize) -> (Vec<u8>, Option<Result<usize, String>>) {
    let mut chunks = Chunks::of_server();
    let (mut data, mut used, mut end) = (Vec::new(), 0, 0);
    while end < stream.len() {
        end = (end + piece).min(stream.len());
        loop {
            let rest = &stream[used..end];
            match chunks.next(rest, limits) {
                Ok(Chunk::Wait(n)) => {
                    used += n;
                    assert!(end - used <= limits.head.max(512) as usize);
                    break;
                }
                Ok(Chunk::Data(range)) => {
                    data.extend_from_slice(&rest[range.clone()]);
                    used += range.end;
                }
                Ok(Chunk::End { length, .. }) => return (data, Some(Ok(used + length))),
                Err(fault) => return (data, Some(Err(fault.to_string()))),
            }
        }
    }
    (data, None)
}
