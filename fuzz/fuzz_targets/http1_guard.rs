//! Arbitrary bytes as requests of HTTP/1: nothing panics, how the bytes arrive does not matter, and what passes
//! the guard, httparse reads and frames the same.
//!
//! The first byte of the input chooses the limits and the pieces in which the rest arrives.

#![no_main]

use httparse::{EMPTY_HEADER, Status};
use libfuzzer_sys::fuzz_target;
use offramp_http::Http1Fault;
use offramp_http::h1::{Guard, GuardOutcome, HeadLimits, Http1Version, Phase, RequestFraming, RequestHead};

/// How long the pieces are.
const PIECES: [usize; 8] = [1, 2, 3, 7, 16, 33, 100, 1000];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, stream)) = data.split_first() else { return };
    let mut limits = match choice >> 3 & 3 {
        0 => HeadLimits { head: 120, target: 20, fields: 4, connect: false },
        // The bound of the target is behind that of the head.
        1 => HeadLimits { head: 60, target: 80, fields: 100, connect: false },
        _ => HeadLimits::default(),
    };
    limits.connect = choice & 0x20 != 0;
    let switches = choice & 0x40 != 0;
    let whole = feed(stream, limits, stream.len().max(1), switches);
    let pieces = feed(stream, limits, PIECES[usize::from(choice & 7)], switches);
    assert_eq!(whole, pieces);
    for request in &whole.requests {
        agree(stream, request);
    }
});

/// What became of a stream.
#[derive(Debug, PartialEq, Default)]
struct Story {
    requests: Vec<Request>,
    end: Option<GuardOutcome>,
    passed: usize,
}

/// A request, with its places counted from the start of the stream, but for those in the head.
#[derive(Debug, PartialEq)]
struct Request {
    start: usize,
    head: RequestHead,
    body: usize,
    end: Option<usize>,
}

fn feed(stream: &[u8], limits: HeadLimits, piece: usize, switches: bool) -> Story {
    let mut guard = Guard::new(limits);
    let mut story = Story::default();
    let mut end = 0;
    while end < stream.len() {
        end = (end + piece).min(stream.len());
        loop {
            let inspected = guard.inspect(&stream[story.passed..end]);
            let start = story.passed;
            story.passed += inspected.pass;
            assert!(story.passed <= end);
            match inspected.outcome {
                GuardOutcome::Wait => break,
                GuardOutcome::Head(head) => {
                    let ended = head.framing.is_empty().then_some(story.passed);
                    if head.switches && switches {
                        guard.switched();
                    } else {
                        guard.stayed();
                    }
                    story.requests.push(Request { start, head, body: story.passed, end: ended });
                }
                GuardOutcome::End => {
                    let request = story.requests.last_mut().expect("something ended that had begun");
                    request.end = Some(story.passed);
                }
                last => {
                    assert!(guard.phase() == Phase::Over);
                    if let GuardOutcome::Refused(fault) = &last {
                        assert!(Http1Fault::ALL.contains(fault));
                        assert!(matches!(fault.status(), 400 | 414 | 431 | 501 | 505));
                    }
                    story.end = Some(last);
                    return story;
                }
            }
        }
        let held = end - story.passed;
        assert!(held <= limits.head.max(512) as usize + 2 || guard.phase() == Phase::Switched);
    }
    story
}

/// Holds what the guard said of a request against the oracle.
fn agree(stream: &[u8], request: &Request) {
    let bytes = &stream[request.start..];
    let told = &request.head;
    let mut fields = [EMPTY_HEADER; 128];
    let mut read = httparse::Request::new(&mut fields);
    let Ok(Status::Complete(length)) = read.parse(bytes) else { panic!("httparse refuses what passed") };
    assert_eq!(request.start + length, request.body);
    assert_eq!(read.method.map(str::as_bytes), Some(&bytes[told.method.clone()]));
    assert_eq!(read.path.map(str::as_bytes), Some(&bytes[told.target.clone()]));
    assert_eq!(read.version, Some(u8::from(told.version == Http1Version::Http11)));
    assert_eq!(read.headers.len(), usize::from(told.fields));
    let values = |name: &str| -> Vec<&[u8]> {
        read.headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
            .collect()
    };
    assert_eq!(values("host"), told.host.clone().map(|place| &bytes[place]).into_iter().collect::<Vec<_>>());
    let framing = match (&values("transfer-encoding")[..], &values("content-length")[..]) {
        ([], []) => RequestFraming::None,
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => RequestFraming::Chunked,
        ([], [length]) => {
            let length = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            RequestFraming::Length(length.expect("a length that passed is a number"))
        }
        other => panic!("{other:?} passed"),
    };
    assert_eq!(framing, told.framing);
    let end = match framing {
        RequestFraming::None => Some(request.body),
        RequestFraming::Length(length) => {
            usize::try_from(length).ok().and_then(|length| request.body.checked_add(length))
        }
        RequestFraming::Chunked => chunked(&stream[request.body..]).map(|length| request.body + length),
    };
    match request.end {
        Some(told) => assert_eq!(Some(told), end),
        None => assert!(framing == RequestFraming::Chunked || end.is_none_or(|end| end > stream.len())),
    }
}

/// The length of chunked content with its trailers; `None` where it is cut short or broken.
fn chunked(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let Ok(Status::Complete((line, size))) = httparse::parse_chunk_size(&bytes[at..]) else {
            return None;
        };
        at += line;
        if size == 0 {
            break;
        }
        at = at.checked_add(usize::try_from(size).ok()?)?;
        if bytes.get(at..at.checked_add(2)?)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
    let mut trailers = [EMPTY_HEADER; 128];
    match httparse::parse_headers(&bytes[at..], &mut trailers) {
        Ok(Status::Complete((length, _))) => Some(at + length),
        _ => None,
    }
}
