//! Messages as a server and a client read them, by another parser than the one that is fuzzed.

use httparse::{EMPTY_HEADER, Header, Status};
use offramp_http::h1::RequestFraming;

/// A request, as a server or the model knows it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Vec<u8>,
    /// `None` where the proxy says it in another form.
    pub(super) target: Option<Vec<u8>>,
    /// The proxy's name for it; nothing in the model.
    pub(super) id: Vec<u8>,
    pub(super) content: Vec<u8>,
    pub(super) whole: bool,
}

/// Reads a head that the worker sent, which must be one that every server reads the same way.
pub(super) fn head(bytes: &[u8]) -> Option<(usize, Request, RequestFraming)> {
    let mut fields = [EMPTY_HEADER; 160];
    let mut read = httparse::Request::new(&mut fields);
    let length = match read.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return None,
        Err(fault) => panic!("{fault} in {}", bytes.escape_ascii()),
    };
    let shown = || bytes[..length].escape_ascii().to_string();
    assert!(!bytes.starts_with(b"\r") && !bytes.starts_with(b"\n"), "{}", shown());
    assert_eq!(read.version, Some(1), "{}", shown());
    let bare = |at: &usize| bytes[*at] == b'\n' && bytes[at - 1] != b'\r';
    assert_eq!((1..length).find(bare), None, "{}", shown());
    let target = read.path.unwrap_or_default().as_bytes();
    assert!(target.iter().all(|byte| *byte > b' ' && *byte != 0x7f), "{}", shown());
    clean(read.headers);
    let values = |name: &str| -> Vec<&[u8]> {
        let fields = read.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        fields.map(|field| field.value).collect()
    };
    let framing = match (&values("transfer-encoding")[..], &values("content-length")[..]) {
        ([], []) => RequestFraming::None,
        ([b"chunked"], []) => RequestFraming::Chunked,
        ([], [length]) => {
            assert!(length.iter().all(u8::is_ascii_digit), "{}", shown());
            let length = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
            RequestFraming::Length(length.expect("a length is a number"))
        }
        _ => panic!("more than one framing: {}", shown()),
    };
    assert_eq!(values("host").len(), 1, "{}", shown());
    let [id] = values("x-request-id")[..] else { panic!("not from the worker: {}", shown()) };
    let request = Request {
        method: read.method.unwrap_or_default().into(),
        target: Some(target.to_vec()),
        id: id.to_vec(),
        content: Vec::new(),
        whole: false,
    };
    Some((length, request, framing))
}

pub(super) fn clean(fields: &[Header<'_>]) {
    for field in fields {
        assert!(!field.name.is_empty());
        let control = |byte: &u8| matches!(byte, 0..=8 | 10..=31 | 127);
        assert!(!field.value.iter().any(control), "{field:?}");
    }
}

/// The content at the front of `bytes`, as far as it has come, and where it ends.
pub(super) fn content(bytes: &[u8], framing: RequestFraming) -> (Vec<u8>, Option<usize>) {
    match framing {
        RequestFraming::None => (Vec::new(), Some(0)),
        RequestFraming::Length(length) => {
            let whole = usize::try_from(length).ok().filter(|length| *length <= bytes.len());
            (bytes[..whole.unwrap_or(bytes.len())].to_vec(), whole)
        }
        RequestFraming::Chunked => chunks(bytes),
    }
}

pub(super) fn chunks(bytes: &[u8]) -> (Vec<u8>, Option<usize>) {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let size = match httparse::parse_chunk_size(&bytes[at..]) {
            Ok(Status::Complete((line, size))) => {
                at += line;
                usize::try_from(size).expect("a chunk has a size that fits")
            }
            Ok(Status::Partial) => return (data, None),
            Err(_) => panic!("no chunk size: {}", bytes[at..].escape_ascii()),
        };
        if size == 0 {
            break;
        }
        let rest = &bytes[at..];
        data.extend_from_slice(&rest[..size.min(rest.len())]);
        match rest.get(size..).unwrap_or_default() {
            [b'\r', b'\n', ..] => at += size + 2,
            [] | [b'\r'] => return (data, None),
            other => panic!("a chunk does not end: {}", other.escape_ascii()),
        }
    }
    let mut trailers = [EMPTY_HEADER; 160];
    match httparse::parse_headers(&bytes[at..], &mut trailers) {
        Ok(Status::Complete((length, fields))) => {
            clean(fields);
            (data, Some(at + length))
        }
        Ok(Status::Partial) => (data, None),
        Err(fault) => panic!("{fault} in {}", bytes[at..].escape_ascii()),
    }
}

/// What the client got is a sequence of responses, of which the last may be cut short, and not more than it asked
/// for, but for one to what is no request. How many are whole; `None` where the last ends with the connection.
pub(super) fn responses(mut got: &[u8], model: &[Request]) -> Option<usize> {
    let mut count = 0;
    let mut asked = model.iter();
    let mut unasked = false;
    while !got.is_empty() {
        let mut fields = [EMPTY_HEADER; 160];
        let mut read = httparse::Response::new(&mut fields);
        let length = match read.parse(got) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => break,
            Err(fault) => panic!("{fault} in {}", got.escape_ascii()),
        };
        clean(read.headers);
        let status = read.code.unwrap_or_default();
        let value = |name: &str| {
            let mut fields = read.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            let value = fields.next().map(|field| field.value);
            assert!(fields.next().is_none(), "{name} twice in {}", got.escape_ascii());
            value
        };
        let framing = match (value("transfer-encoding"), value("content-length")) {
            (None, None) => None,
            (Some(b"chunked"), None) => Some(RequestFraming::Chunked),
            (None, Some(length)) => {
                let length = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
                Some(RequestFraming::Length(length.expect("a length is a number")))
            }
            _ => panic!("more than one framing: {}", got.escape_ascii()),
        };
        got = &got[length..];
        match status {
            101 => return None,
            100..=199 => continue,
            _ => {}
        }
        let request = asked.next();
        assert!(request.is_some() || !unasked, "a response to nothing");
        unasked = request.is_none();
        if request.is_some_and(|request| request.method == b"HEAD") || matches!(status, 204 | 304) {
            count += 1;
            continue;
        }
        let (_, Some(end)) = content(got, framing?) else { break };
        got = &got[end..];
        count += 1;
    }
    Some(count)
}
