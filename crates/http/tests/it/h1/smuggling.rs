//! Smuggling by Content-Length, Transfer-Encoding and chunks: every form is rejected, for its own reason.

use offramp_http::Http1Fault;
use offramp_http::Http1Fault::*;

use super::{Story, refusal, whole};

/// Fields of a request with content, each with its fault.
const FIXED: &[(&str, Http1Fault)] = &[
    // Both lengths.
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", BothLengths),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5", BothLengths),
    ("content-length: 0\r\ntransfer-encoding: chunked", BothLengths),
    ("Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 0", BothLengths),
    // Invalid lengths.
    ("Content-Length:", ContentLength),
    ("Content-Length: ", ContentLength),
    ("Content-Length: +5", ContentLength),
    ("Content-Length: -5", ContentLength),
    ("Content-Length: -0", ContentLength),
    ("Content-Length: 5 5", ContentLength),
    ("Content-Length: 5\t5", ContentLength),
    ("Content-Length: 0x5", ContentLength),
    ("Content-Length: 5h", ContentLength),
    ("Content-Length: 5.0", ContentLength),
    ("Content-Length: 5e0", ContentLength),
    ("Content-Length: \"5\"", ContentLength),
    ("Content-Length: 5;a=b", ContentLength),
    ("Content-Length: 1_000", ContentLength),
    ("Content-Length: \u{665}", ContentLength),
    ("Content-Length: five", ContentLength),
    ("Content-Length: 5, 5", ContentLengthList),
    ("Content-Length: 5,5", ContentLengthList),
    ("Content-Length: 5, 6", ContentLengthList),
    ("Content-Length: 5,", ContentLengthList),
    ("Content-Length: ,5", ContentLengthList),
    ("Content-Length: 05", ContentLengthZeros),
    ("Content-Length: 00", ContentLengthZeros),
    ("Content-Length: 000000000000000000000000005", ContentLengthZeros),
    ("Content-Length: 9223372036854775808", ContentLengthTooLarge),
    ("Content-Length: 18446744073709551615", ContentLengthTooLarge),
    ("Content-Length: 18446744073709551621", ContentLengthTooLarge),
    ("Content-Length: 100000000000000000000000000000005", ContentLengthTooLarge),
    // Repeated lengths.
    ("Content-Length: 5\r\nContent-Length: 5", ContentLengthRepeated),
    ("Content-Length: 5\r\nX: y\r\ncontent-length: 5", ContentLengthRepeated),
    ("Content-Length: 5\r\nContent-Length: 6", ContentLengthConflict),
    ("Content-Length: 0\r\nContent-Length: 5", ContentLengthConflict),
    ("Content-Length: 5\r\nContent-Length: +5", ContentLength),
    // Codings other than a single chunked.
    ("Transfer-Encoding:", TransferEncoding),
    ("Transfer-Encoding: ,chunked", TransferEncoding),
    ("Transfer-Encoding: chunked,", TransferEncoding),
    ("Transfer-Encoding: \"chunked\"", TransferEncoding),
    ("Transfer-Encoding: 'chunked", TransferCodingUnknown),
    ("Transfer-Encoding: chunked;a=b", TransferEncoding),
    ("Transfer-Encoding: chunked;", TransferEncoding),
    ("Transfer-Encoding: chunked foo", TransferEncoding),
    ("Transfer-Encoding: chunked chunked", TransferEncoding),
    ("Transfer-Encoding: [chunked]", TransferEncoding),
    ("Transfer-Encoding: chunk\u{e9}d", TransferEncoding),
    ("Transfer-Encoding: chunked\u{a0}", TransferEncoding),
    ("Transfer-Encoding: : chunked", TransferEncoding),
    ("Transfer-Encoding: identity", TransferCodingUnknown),
    ("Transfer-Encoding: gzip", TransferCodingUnknown),
    ("Transfer-Encoding: xchunked", TransferCodingUnknown),
    ("Transfer-Encoding: chunked1", TransferCodingUnknown),
    ("Transfer-Encoding: chunke", TransferCodingUnknown),
    ("Transfer-Encoding: x-chunked", TransferCodingUnknown),
    ("Transfer-Encoding: gzip, chunked", TransferCodingUnknown),
    ("Transfer-Encoding: identity, chunked", TransferCodingUnknown),
    ("Transfer-Encoding: gzip;q=1, chunked", TransferCodingUnknown),
    ("Transfer-Encoding: chunked, gzip", ChunkedNotLast),
    ("Transfer-Encoding: chunked, identity", ChunkedNotLast),
    ("Transfer-Encoding: chunked,cow", ChunkedNotLast),
    ("Transfer-Encoding: chunked, chunked", TransferEncodingRepeated),
    ("Transfer-Encoding: chunked, gzip, chunked", TransferEncodingRepeated),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", TransferEncodingRepeated),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", TransferEncodingRepeated),
    ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", TransferCodingUnknown),
    // Names that only some servers treat as the real one.
    ("Content_Length: 5", AmbiguousName),
    ("Transfer_Encoding: chunked", AmbiguousName),
    ("TRANSFER_encoding: chunked", AmbiguousName),
    ("Content.Length: 5", AmbiguousName),
    ("content~length: 5", AmbiguousName),
    ("Content|Length: 5", AmbiguousName),
    ("Transfer.Encoding: chunked", AmbiguousName),
    ("transfer*encoding: chunked", AmbiguousName),
    ("Content-Length\u{0}: 5", ControlByte),
    ("Transfer-Encoding\u{b}: chunked", ControlByte),
    ("Transfer-Encoding: \u{b}chunked", ControlByte),
    ("Transfer-Encoding: \u{c}chunked", ControlByte),
    ("Transfer-Encoding: chunked\u{0}", ControlByte),
    ("Transfer-Encoding: chunked\u{8}", ControlByte),
    ("Content-Length: 5\u{7f}", ControlByte),
    ("Content-Length\u{a0}: 5", Name),
    ("Content-Length=5", Name),
    ("Transfer Encoding: chunked", Name),
    ("Transfer-Encoding chunked", Name),
    ("\"Content-Length\": 5", Name),
    ("\u{feff}Content-Length: 5", Name),
    // Lines that one parser folds, splits or drops.
    ("X: y\r\n Content-Length: 5", ObsFold),
    ("Transfer-Encoding:\r\n chunked", TransferEncoding),
    ("X:\r\n\tTransfer-Encoding: chunked", ObsFold),
    ("X: y\nContent-Length: 5", BareLineFeed),
    ("X: y\n\nGET /admin HTTP/1.1\r\nHost: a", BareLineFeed),
    ("Content-Length: 5\nX: y", BareLineFeed),
    ("Transfer-Encoding: chunked\n", BareLineFeed),
    ("X: y\rContent-Length: 5", BareCarriageReturn),
    ("Transfer-Encoding: chunked\r\r", BareCarriageReturn),
    ("Transfer-Encoding\r\n: chunked", NoColon),
    ("Connection: Content-Length\r\nContent-Length: 5", ConnectionOption),
    ("Connection: close, transfer-encoding\r\nTransfer-Encoding: chunked", ConnectionOption),
];

/// Content behind `Transfer-Encoding: chunked`.
const CHUNKS: &[(&str, Http1Fault)] = &[
    ("\r\n", ChunkSize),
    ("g\r\n", ChunkSize),
    ("-1\r\n", ChunkSize),
    ("+1\r\n", ChunkSize),
    ("0x5\r\nhello\r\n", ChunkSize),
    ("5h\r\nhello\r\n", ChunkSize),
    (";a\r\n", ChunkSize),
    ("5,5\r\nhello\r\n", ChunkSize),
    ("5.0\r\nhello\r\n", ChunkSize),
    ("\u{0}5\r\nhello\r\n", ChunkSize),
    (" 5\r\nhello\r\n", ChunkSizeSpace),
    ("\t5\r\nhello\r\n", ChunkSizeSpace),
    ("5 \r\nhello\r\n", ChunkSizeSpace),
    ("5\t\r\nhello\r\n", ChunkSizeSpace),
    ("5 ;a=b\r\nhello\r\n", ChunkSizeSpace),
    ("5 5\r\nhello\r\n", ChunkSizeSpace),
    ("0 \r\n\r\n", ChunkSizeSpace),
    ("8000000000000000\r\n", ChunkSizeTooLarge),
    ("ffffffffffffffff\r\n", ChunkSizeTooLarge),
    ("10000000000000005\r\nhello\r\n", ChunkSizeTooLarge),
    ("00000000000000005\r\nhello\r\n", ChunkSizeTooLarge),
    ("5\nhello\r\n", BareLineFeed),
    ("5\rhello\r\n", BareCarriageReturn),
    ("5\r\rhello\r\n", BareCarriageReturn),
    ("5;a\nhello\r\n", BareLineFeed),
    ("5;a=b\rc\r\nhello\r\n", BareCarriageReturn),
    ("5\r\nhello0\r\n\r\n", ChunkEnd),
    ("5\r\nhello\n0\r\n\r\n", ChunkEnd),
    ("5\r\nhello\r0\r\n\r\n", ChunkEnd),
    ("5\r\nhelloX\r\n0\r\n\r\n", ChunkEnd),
    ("4\r\nhello\r\n0\r\n\r\n", ChunkEnd),
    ("6\r\nhello\r\n0\r\n\r\n", ChunkEnd),
    ("5;\r\nhello\r\n", ChunkExtension),
    ("5;=b\r\nhello\r\n", ChunkExtension),
    ("5;a=\r\nhello\r\n", ChunkExtension),
    ("5; a=b\r\nhello\r\n", ChunkExtension),
    ("5;a =b\r\nhello\r\n", ChunkExtension),
    ("5;a=b \r\nhello\r\n", ChunkExtension),
    ("5;a=\"b\r\nhello\r\n", ChunkExtension),
    ("5;a=\"b\"c\r\nhello\r\n", ChunkExtension),
    ("5;a\u{0}\r\nhello\r\n", ControlByte),
    ("5;a=\"\\\n\"\r\nhello\r\n", BareLineFeed),
    ("0\r\nContent-Length: 5\r\n\r\n", TrailerForbidden),
    ("0\r\ntransfer-encoding: chunked\r\n\r\n", TrailerForbidden),
    ("0\r\nX: y\r\nHost: b\r\n\r\n", TrailerForbidden),
    ("0\r\nContent_Length: 5\r\n\r\n", AmbiguousName),
    ("0\r\ncontent.length: 5\r\n\r\n", AmbiguousName),
    ("0\r\nX : y\r\n\r\n", SpaceBeforeColon),
    ("0\r\nX: y\r\n z\r\n\r\n", ObsFold),
    ("0\r\n X: y\r\n\r\n", LeadingSpace),
    ("0\r\nX: y\n\r\n", BareLineFeed),
    ("0\r\n\n", BareLineFeed),
    ("0\r\n\rX", BareCarriageReturn),
    ("0\r\nX: \u{0}\r\n\r\n", ControlByte),
    ("0\r\nGET / HTTP/1.1\r\n\r\n", Name),
];

fn post(fields: &str, content: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{content}")
}

#[test]
fn fixed_forms_of_fields() {
    for (fields, fault) in FIXED {
        let story = whole(post(fields, "0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(story.end, Some(super::End::Refused(*fault)), "{fields:?}");
        assert_eq!((story.passed, story.requests.len()), (0, 0), "{fields:?}");
    }
}

#[test]
fn fixed_forms_of_chunks() {
    for (content, fault) in CHUNKS {
        let stream =
            post("Transfer-Encoding: chunked", &format!("{content}GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"));
        let story = whole(stream.as_bytes());
        assert_eq!(story.end, Some(super::End::Refused(*fault)), "{content:?}");
        assert_eq!(story.requests.len(), 1, "{content:?}");
    }
}

/// Spellings of a name or a value with a single deviation.
fn spoilt(text: &str) -> Vec<(String, Option<Http1Fault>)> {
    let mut all = Vec::new();
    for at in 0..=text.len() {
        let (before, after) = text.split_at(at);
        for (odd, fault) in
            [("\0", ControlByte), ("\x7f", ControlByte), ("\n", BareLineFeed), ("\r", BareCarriageReturn)]
        {
            all.push((format!("{before}{odd}{after}"), Some(fault)));
        }
        // Rejected, too, for a reason that depends on the position.
        for odd in ["\r\n", "\r\n ", "\u{e9}", "\"", "\\"] {
            all.push((format!("{before}{odd}{after}"), None));
        }
    }
    all
}

#[test]
fn generated_forms_of_values() {
    let mut count = 0;
    for (name, value) in [("Content-Length", "1234"), ("Transfer-Encoding", "chunked")] {
        for (spelling, fault) in spoilt(value) {
            let stream = post(&format!("{name}: {spelling}"), "0\r\n\r\n");
            let Some(refused) = refusal(stream.as_bytes()) else {
                // A whole value and a new line: the value itself, then an invalid field, unless that is
                // empty.
                assert_eq!(spelling, format!("{value}\r\n"), "{spelling:?} passed");
                continue;
            };
            assert!(fault.is_none_or(|fault| fault == refused), "{spelling:?}: {refused:?}");
            count += 1;
        }
    }
    assert!(count >= 100, "{count} forms");
}

#[test]
fn generated_forms_of_names() {
    let mut count = 0;
    for (name, value) in [("Content-Length", "1234"), ("Transfer-Encoding", "chunked")] {
        for (spelling, fault) in spoilt(name) {
            let stream = post(&format!("X: y\r\n{spelling}: {value}"), "0\r\n\r\n");
            let refused = refusal(stream.as_bytes());
            // Content or the next request follows an empty line: nothing is smuggled.
            if spelling.starts_with("\r\n") && refused.is_none() {
                continue;
            }
            let refused = refused.unwrap_or_else(|| panic!("{spelling:?} passed"));
            assert!(fault.is_none_or(|fault| fault == refused), "{spelling:?}: {refused:?}");
            count += 1;
        }
    }
    assert!(count >= 200, "{count} forms");
}

#[test]
fn covered_bytes_are_never_a_request() {
    for stream in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 36\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n1234",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n",
    ] {
        let Story { requests, end, passed } = whole(stream.as_bytes());
        assert_eq!((requests.len(), end, passed), (1, None, stream.len()), "{stream:?}");
    }
}

#[test]
fn transfer_encoding_needs_http_1_1() {
    for fields in [
        "Transfer-Encoding: chunked",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: x",
    ] {
        let stream = format!("POST / HTTP/1.0\r\nHost: a\r\n{fields}\r\n\r\n");
        assert_eq!(refusal(stream.as_bytes()), Some(TransferEncodingInHttp10));
    }
}

#[test]
fn extensions_are_bounded_by_line_and_by_message() {
    let line = |length: usize| format!("1;{}\r\nx\r\n", "a".repeat(length));
    let chunked = |content: &str| refusal(post("Transfer-Encoding: chunked", content).as_bytes());
    assert_eq!(chunked(&format!("{}0\r\n\r\n", line(254))), None);
    assert_eq!(chunked(&line(255)), Some(ChunkExtensionTooLong));
    // 16 × 250 + 96 = 4096 fit.
    let most = line(249).repeat(16);
    assert_eq!(chunked(&format!("{most}{}0\r\n\r\n", line(94))), None);
    assert_eq!(chunked(&format!("{most}{}", line(95))), None);
    assert_eq!(chunked(&format!("{most}{}", line(96))), Some(ChunkExtensionTooLong));
    assert_eq!(chunked(&format!("{most}{}1;\r\n", line(95))), Some(ChunkExtensionTooLong));
}
