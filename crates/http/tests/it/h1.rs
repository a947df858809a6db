//! The guard of HTTP/1 requests, from outside.

mod accepted;
mod chunks;
mod oracle;
mod refused;
mod responses;
mod smuggling;
mod splits;
mod writer;

use offramp_http::Http1Fault;
use offramp_http::h1::{Framing, Guard, Limits, Outcome, RequestHead};

/// What became of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Story {
    pub(crate) requests: Vec<Request>,
    pub(crate) end: Option<End>,
    /// How many bytes passed.
    pub(crate) passed: usize,
}

/// A request, with its places counted from the start of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) start: usize,
    pub(crate) head: RequestHead,
    /// Where its head ends.
    pub(crate) body: usize,
    /// Where the message ends, if it does.
    pub(crate) end: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Refused(Http1Fault),
    Http2,
    Over,
}

/// Feeds a stream in pieces that end at the given places, as a caller does. Requests to switch protocols are
/// all turned down.
pub(crate) fn feed(stream: &[u8], limits: Limits, ends: impl IntoIterator<Item = usize>) -> Story {
    let mut guard = Guard::new(limits);
    let mut story = Story::default();
    for end in ends.into_iter().chain([stream.len()]) {
        loop {
            let inspected = guard.inspect(&stream[story.passed..end.max(story.passed)]);
            let start = story.passed;
            story.passed += inspected.pass;
            assert!(story.passed <= end.max(start));
            match inspected.outcome {
                Outcome::Wait => break,
                Outcome::Head(head) => {
                    let ended = head.framing.is_empty().then_some(story.passed);
                    story.requests.push(Request { start, head, body: story.passed, end: ended });
                    guard.stayed();
                }
                Outcome::End => story.requests.last_mut().unwrap().end = Some(story.passed),
                Outcome::Http2 => return Story { end: Some(End::Http2), ..story },
                Outcome::Over => return Story { end: Some(End::Over), ..story },
                Outcome::Refused(fault) => return Story { end: Some(End::Refused(fault)), ..story },
            }
        }
    }
    story
}

/// Feeds a stream at once, with the default limits.
pub(crate) fn whole(stream: &[u8]) -> Story {
    feed(stream, Limits::default(), [])
}

/// The refusal of a stream.
pub(crate) fn refusal(stream: &[u8]) -> Option<Http1Fault> {
    match whole(stream).end {
        Some(End::Refused(fault)) => Some(fault),
        _ => None,
    }
}

/// The framing of the first request, where the stream has nothing behind it.
pub(crate) fn framing(stream: &[u8]) -> Option<Framing> {
    let story = whole(stream);
    assert_eq!(story.end, None, "{:?}", String::from_utf8_lossy(stream));
    story.requests.first().map(|request| request.head.framing)
}
