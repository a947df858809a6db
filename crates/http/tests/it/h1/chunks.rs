//! The parser of chunked content, compared with the guard.

use offramp_http::Http1Fault;
use offramp_http::h1::{Chunk, Chunks, Guard, GuardOutcome, HeadLimits, MAX_CHUNK_LINE, fields};
use proptest::prelude::*;

/// Result of reading a message.
#[derive(Debug, Default, PartialEq)]
struct ReadResult {
    content: Vec<u8>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Length of the message, if it ended.
    length: Option<usize>,
    fault: Option<Http1Fault>,
}

/// Reads a message that arrives in pieces which end at the given positions.
fn read(mut chunks: Chunks, bytes: &[u8], ends: &[usize]) -> ReadResult {
    let limits = HeadLimits::default();
    let (mut told, mut used) = (ReadResult::default(), 0);
    for &end in ends.iter().chain([&bytes.len()]) {
        loop {
            let rest = &bytes[used..end.max(used)];
            match chunks.next(rest, &limits) {
                Ok(Chunk::Wait(n)) => {
                    used += n;
                    break;
                }
                Ok(Chunk::Data(range)) => {
                    assert!(!range.is_empty());
                    told.content.extend_from_slice(&rest[range.clone()]);
                    used += range.end;
                }
                Ok(Chunk::End { trailers, length }) => {
                    let lines = fields(&rest[trailers]);
                    told.trailers = lines.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                    told.length = Some(used + length);
                    assert_eq!(
                        chunks.next(&rest[length..], &limits),
                        Ok(Chunk::End { trailers: 0..0, length: 0 })
                    );
                    return told;
                }
                Err(fault) => {
                    assert_eq!(chunks.next(rest, &limits), Err(fault), "it stays refused");
                    told.fault = Some(fault);
                    return told;
                }
            }
        }
    }
    told
}

/// End of the message as seen by the guard, and its fault.
fn guarded(bytes: &[u8]) -> (Option<usize>, Option<Http1Fault>) {
    let mut stream = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let head = stream.len();
    stream.extend_from_slice(bytes);
    let mut guard = Guard::new(HeadLimits::default());
    assert_eq!(guard.inspect(&stream).pass, head);
    let inspected = guard.inspect(&stream[head..]);
    match inspected.outcome {
        GuardOutcome::End => (Some(inspected.pass), None),
        GuardOutcome::Refused(fault) => (None, Some(fault)),
        GuardOutcome::Wait => (None, None),
        other => panic!("{other:?}"),
    }
}

/// Content in chunks, as sent.
fn message(chunks: &[Vec<u8>], extension: &str, trailers: &str) -> Vec<u8> {
    let mut message = Vec::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        message.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        message.extend_from_slice(chunk);
        message.extend_from_slice(b"\r\n");
    }
    message.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    message
}

proptest! {
    #[test]
    fn content_round_trips(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        extension in prop::sample::select(vec!["", ";a", ";a=b", ";a=\"b;\\\"c\""]),
        trailers in prop::sample::select(vec!["", "T: u\r\n", "T:u \r\nV:\r\n"]),
        behind in "(GET /)?",
        mut cuts in prop::collection::vec(0_usize..300, 0..8),
    ) {
        let mut stream = message(&parts, extension, trailers);
        let length = stream.len();
        stream.extend_from_slice(behind.as_bytes());
        cuts.iter_mut().for_each(|cut| *cut %= stream.len());
        cuts.sort_unstable();
        for chunks in [Chunks::new(), Chunks::of_server()] {
            let told = read(chunks, &stream, &cuts);
            prop_assert_eq!(&told.content, &parts.concat());
            prop_assert_eq!(told.length, Some(length));
            prop_assert_eq!(told.trailers.len(), trailers.matches(':').count());
        }
        prop_assert_eq!(guarded(&stream), (Some(length), None));
    }

    #[test]
    fn the_guard_agrees_on_faults(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..4),
        place in any::<prop::sample::Index>(),
        byte in prop::sample::select(b"0aF;=\" \t\r\n\0:xZ".to_vec()),
        cut in any::<prop::sample::Index>(),
        insert in any::<bool>(),
    ) {
        let mut stream = message(&parts, ";a=b", "T: u\r\n");
        let at = place.index(stream.len());
        if insert { stream.insert(at, byte) } else { stream[at] = byte }
        let told = read(Chunks::new(), &stream, &[cut.index(stream.len())]);
        prop_assert_eq!((told.length, told.fault), guarded(&stream));
        // Leniency for servers never moves the end of a message.
        let lenient = read(Chunks::of_server(), &stream, &[]);
        if told.length.is_some() {
            prop_assert_eq!(lenient, told);
        }
    }
}

#[test]
fn servers_may_be_sloppy_where_framing_is_unaffected() {
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(MAX_CHUNK_LINE));
    let table: &[(&str, Result<&str, Http1Fault>)] = &[
        ("5 \r\nhello\r\n0   \r\n\r\n", Ok("hello")),
        ("5\t; a = b ;;\r\nhello\r\n0\r\n\r\n", Ok("hello")),
        ("0005\r\nhello\r\n000\r\nContent-Length: 3\r\nHost: x\r\n\r\n", Ok("hello")),
        ("5 \u{b2}\u{b2}\u{b2}\nhello", Err(Http1Fault::ChunkSizeSpace)),
        ("5 5\r\nhello\r\n0\r\n\r\n", Err(Http1Fault::ChunkSizeSpace)),
        (" 5\r\nhello\r\n0\r\n\r\n", Err(Http1Fault::ChunkSizeSpace)),
        ("5\nhello\r\n0\r\n\r\n", Err(Http1Fault::BareLineFeed)),
        ("5 \nhello\r\n0\r\n\r\n", Err(Http1Fault::BareLineFeed)),
        ("5;a\rb\r\nhello\r\n0\r\n\r\n", Err(Http1Fault::BareCarriageReturn)),
        ("5;a\0b\r\nhello\r\n0\r\n\r\n", Err(Http1Fault::ControlByte)),
        ("0x5\r\nhello\r\n0\r\n\r\n", Err(Http1Fault::ChunkSize)),
        ("5\r\nhello!\r\n0\r\n\r\n", Err(Http1Fault::ChunkEnd)),
        ("8000000000000000\r\n", Err(Http1Fault::ChunkSizeTooLarge)),
        (&long, Err(Http1Fault::ChunkExtensionTooLong)),
    ];
    for (stream, expected) in table {
        for step in [1, 2, 7, stream.len()] {
            let ends: Vec<_> = (0..stream.len()).step_by(step).collect();
            let told = read(Chunks::of_server(), stream.as_bytes(), &ends);
            match (expected, told.fault) {
                (Ok(content), None) => {
                    assert_eq!((&*told.content, told.length), (content.as_bytes(), Some(stream.len())));
                }
                (Err(expected), Some(fault)) => assert_eq!(*expected, fault, "{stream:?}"),
                other => panic!("{stream:?}: {other:?}"),
            }
        }
    }
}
