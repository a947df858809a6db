//! httparse as the oracle: it reads accepted requests the same way, head by head and chunk by chunk.

use httparse::{EMPTY_HEADER, Header, Status};
use offramp_http::h1::{HeadLimits, Http1Version, RequestFraming, RequestHead};
use proptest::prelude::*;

use super::{Request, feed};

/// End of the head and delimitation of the content, by httparse and a plain reading of the fields.
fn head(bytes: &[u8]) -> Option<(usize, RequestFraming)> {
    let mut fields = [EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(Status::Complete(length)) = request.parse(bytes) else { return None };
    let values = |name: &str| -> Vec<&[u8]> {
        request
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
            .collect()
    };
    let framing = match (&values("transfer-encoding")[..], &values("content-length")[..]) {
        ([], []) => RequestFraming::None,
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => RequestFraming::Chunked,
        ([], [length]) => RequestFraming::Length(std::str::from_utf8(length).ok()?.parse().ok()?),
        _ => return None,
    };
    Some((length, framing))
}

/// Length of chunked content with its trailers; `None` if it is truncated.
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
        at += usize::try_from(size).ok()?;
        if bytes.get(at..at + 2)? != b"\r\n" {
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

/// Compares the guard's view of a request with the oracle.
fn agree(stream: &[u8], request: &Request) {
    let bytes = &stream[request.start..];
    let Some((length, framing)) = head(bytes) else {
        panic!("httparse refuses {:?}", String::from_utf8_lossy(bytes))
    };
    assert_eq!((request.start + length, framing), (request.body, request.head.framing));
    same_line(bytes, &request.head);
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

fn same_line(bytes: &[u8], told: &RequestHead) {
    let mut fields: [Header<'_>; 128] = [EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut fields);
    assert!(request.parse(bytes).is_ok());
    assert_eq!(request.method.map(str::as_bytes), Some(&bytes[told.method.clone()]));
    assert_eq!(request.path.map(str::as_bytes), Some(&bytes[told.target.clone()]));
    assert_eq!(request.version, Some(u8::from(told.version == Http1Version::Http11)));
    assert_eq!(request.headers.len(), usize::from(told.fields));
    let host =
        request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host")).map(|field| field.value);
    assert_eq!(host, told.host.clone().map(|place| &bytes[place]));
}

fn hold(stream: &[u8]) -> usize {
    let story = feed(stream, HeadLimits::default(), []);
    for request in &story.requests {
        agree(stream, request);
    }
    story.requests.len()
}

/// A valid message of many shapes.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let field = ("[A-Za-z][A-Za-z0-9-]{0,20}", "[ -~\t\u{e9}]{0,40}");
    let fields = prop::collection::vec(field, 0..6);
    let content = prop_oneof![
        Just(None),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(|content| Some((false, vec![content]))),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..4)
            .prop_map(|chunks| Some((true, chunks))),
    ];
    let target = r"/[!$-;=@-\[\]-_a-~]{0,20}(\?[!$-;=?-~]{0,20})?";
    ("[A-Z]{1,8}", target, fields, content).prop_map(|(method, target, fields, content)| {
        let mut out = format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n").into_bytes();
        for (name, value) in fields {
            // Names with these lengths are reserved for framing and routing.
            if !matches!(name.len(), 4 | 10 | 14 | 17) {
                out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
        }
        match content {
            None => out.extend_from_slice(b"\r\n"),
            Some((false, content)) => {
                let content = content.concat();
                out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", content.len()).as_bytes());
                out.extend_from_slice(&content);
            }
            Some((true, chunks)) => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in chunks {
                    out.extend_from_slice(format!("{:x};e=\"f\"\r\n", chunk.len()).as_bytes());
                    out.extend_from_slice(&chunk);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\nSum: 1\r\n\r\n");
            }
        }
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn pipelines_are_framed_alike(messages in prop::collection::vec(message(), 1..5)) {
        let stream = messages.concat();
        prop_assert_eq!(hold(&stream), messages.len());
    }

    #[test]
    fn damaged_pipelines_that_pass_are_framed_alike(
        messages in prop::collection::vec(message(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut stream = messages.concat();
        for (at, value) in damage {
            let at = at.index(stream.len());
            stream[at] = value;
        }
        hold(&stream);
    }
}
