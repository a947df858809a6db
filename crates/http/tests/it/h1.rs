//! The guard of HTTP/1 requests, through its public interface.

mod accepted;
mod chunks;
mod oracle;
mod refused;
mod responses;
mod smuggling;
mod splits;
mod writer;

use offramp_http::Http1Fault;
use offramp_http::h1::{Guard, GuardOutcome, HeadLimits, RequestFraming, RequestHead};

/// Result of feeding a stream to the guard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Story {
    pub(crate) requests: Vec<Request>,
    pub(crate) end: Option<End>,
    /// Number of bytes that passed.
    pub(crate) passed: usize,
}

/// A request, with positions counted from the start of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) start: usize,
    pub(crate) head: RequestHead,
    /// End of its head.
    pub(crate) body: usize,
    /// End of the message, if it has one.
    pub(crate) end: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Refused(Http1Fault),
    Http2,
    Over,
}

/// Feeds a stream in pieces that end at the given positions, as a caller does. Requests to switch protocols
/// are all declined.
pub(crate) fn feed(stream: &[u8], limits: HeadLimits, ends: impl IntoIterator<Item = usize>) -> Story {
    let mut guard = Guard::new(limits);
    let mut story = Story::default();
    for end in ends.into_iter().chain([stream.len()]) {
        loop {
            let inspected = guard.inspect(&stream[story.passed..end.max(story.passed)]);
            let start = story.passed;
            story.passed += inspected.pass;
            assert!(story.passed <= end.max(start));
            match inspected.outcome {
                GuardOutcome::Wait => break,
                GuardOutcome::Head(head) => {
                    let ended = head.framing.is_empty().then_some(story.passed);
                    story.requests.push(Request { start, head, body: story.passed, end: ended });
                    guard.stayed();
                }
                GuardOutcome::End => story.requests.last_mut().unwrap().end = Some(story.passed),
                GuardOutcome::Http2 => return Story { end: Some(End::Http2), ..story },
                GuardOutcome::Over => return Story { end: Some(End::Over), ..story },
                GuardOutcome::Refused(fault) => return Story { end: Some(End::Refused(fault)), ..story },
            }
        }
    }
    story
}

/// Feeds a stream at once, with the default limits.
pub(crate) fn whole(stream: &[u8]) -> Story {
    feed(stream, HeadLimits::default(), [])
}

/// The fault of a stream.
pub(crate) fn refusal(stream: &[u8]) -> Option<Http1Fault> {
    match whole(stream).end {
        Some(End::Refused(fault)) => Some(fault),
        _ => None,
    }
}

/// Framing of the first request of a stream that ends with it.
pub(crate) fn framing(stream: &[u8]) -> Option<RequestFraming> {
    let story = whole(stream);
    assert_eq!(story.end, None, "{:?}", String::from_utf8_lossy(stream));
    story.requests.first().map(|request| request.head.framing)
}
