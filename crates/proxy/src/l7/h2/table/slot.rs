//! A stream as the tasks of its request and response see it.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use offramp_http::h2::Code;
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;

/// Maximum size of a piece of content in bytes. It is copied as it grows, and may have twice its memory.
const PIECE: usize = 256 * 1024;

/// State of a stream besides that of the protocol. It lives while one task answers the request, or another reads its
/// content.
#[derive(Default)]
pub(in crate::l7::h2) struct Slot {
    pub(super) request: RequestSide,
    pub(super) response: ResponseSide,
    pub(super) budget: StreamBudget,
    /// Set once either side has aborted the stream.
    pub(super) reset: Option<StreamReset>,
}

/// The cost of each stream beside its content.
const _: () = assert!(size_of::<Slot>() <= 136);

/// State of a stream's request.
#[derive(Default)]
pub(in crate::l7::h2) enum RequestSide {
    /// A task reads the content.
    Read(Unread),
    /// The rest of the content is dropped as it arrives.
    Dropped,
    /// All of it has arrived, and no task reads it.
    #[default]
    Over,
}

/// Content of a request that has arrived and was not taken.
#[derive(Default)]
pub(in crate::l7::h2) struct Unread {
    /// One piece, however it arrived; further pieces where it is more than [`PIECE`].
    pub(super) content: BytesMut,
    #[allow(clippy::box_collection)] // Nearly every stream has none, and then it is a word.
    pub(super) behind: Option<Box<VecDeque<BytesMut>>>,
    pub(super) end: ContentEnd,
    /// Time of the last content, in milliseconds of the coarse clock; or 0.
    pub(super) moved: u64,
    pub(super) reader: Option<Waker>,
}

/// End of a request's content.
#[derive(Default)]
pub(in crate::l7::h2) enum ContentEnd {
    /// More content may arrive.
    #[default]
    Awaited,
    /// All of it has arrived, without trailers that were not taken.
    Arrived,
    /// All of it has arrived, and these trailers behind it.
    Trailers(Box<Fields>),
}

/// State of a stream's response.
#[derive(Default)]
pub(in crate::l7::h2) enum ResponseSide {
    /// A task answers the request.
    Answering(ResponseProgress),
    /// The task that answered has ended.
    #[default]
    Answered,
}

/// Progress of a response.
#[derive(Default)]
pub(in crate::l7::h2) struct ResponseProgress {
    pub(super) turn: ReadTurn,
    /// Set once content was sent.
    pub(super) begun: bool,
    /// Set while more content is known to come.
    pub(super) sized: bool,
    /// Set if its content waits for the bandwidth of a route.
    pub(super) paced: bool,
    /// Time since which nothing can be written, in milliseconds of the coarse clock; or 0.
    pub(super) blocked: u64,
    pub(super) writer: Option<Waker>,
}

/// Place of a response among those that read in turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::l7::h2) enum ReadTurn {
    /// It has asked for no turn.
    #[default]
    Unasked,
    /// It is in the queue, and reads nothing.
    Queued,
    /// Its turn has come, and it has not read yet.
    Called,
}

/// Memory that a stream is counted as, in bytes.
#[derive(Default)]
pub(in crate::l7::h2) struct StreamBudget {
    /// Fields of its request, those of the head included.
    pub(super) fields: u32,
    /// Fields of the head, until the response begins.
    pub(super) head: u32,
    /// Piece of the response that waits.
    pub(super) piece: u32,
    /// Content that a server may have sent ahead of the response.
    pub(super) ahead: u32,
}

/// Abortion of a stream.
#[derive(Clone, Copy)]
pub(in crate::l7::h2) struct StreamReset {
    pub(super) code: Code,
    pub(super) by: ResetBy,
    /// Set if all of the request was taken by then.
    pub(super) request_read: bool,
}

/// Side that aborted a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::l7::h2) enum ResetBy {
    Client,
    Proxy,
}

impl Slot {
    /// Begins a request with `fields` bytes of fields, which has no content if `over` is set.
    pub(super) fn begin(&mut self, fields: usize, over: bool) {
        (self.budget.fields, self.budget.head) = (fields as u32, fields as u32);
        self.response = ResponseSide::Answering(ResponseProgress::default());
        self.request = if over { RequestSide::Over } else { RequestSide::Read(Unread::default()) };
    }

    /// Adds content that has arrived.
    pub(super) fn put(&mut self, data: &[u8], now: u64) {
        if let RequestSide::Read(unread) = &mut self.request {
            unread.put(data);
            unread.moved = now;
            unread.wake();
        }
    }

    /// Records that all content has arrived.
    pub(super) fn content_ends(&mut self, trailers: Option<Fields>) {
        match &mut self.request {
            RequestSide::Read(unread) => {
                unread.end = trailers.map_or(ContentEnd::Arrived, |all| ContentEnd::Trailers(Box::new(all)));
                unread.wake();
            }
            RequestSide::Dropped => {
                self.request = RequestSide::Over;
                self.wake_writer();
            }
            RequestSide::Over => {}
        }
    }

    /// Drops what was not taken of the content, and what will arrive: no task reads it any more.
    pub(super) fn drop_content(&mut self) {
        self.request = match &self.request {
            RequestSide::Read(Unread { end: ContentEnd::Awaited, .. }) | RequestSide::Dropped => {
                RequestSide::Dropped
            }
            RequestSide::Read(_) | RequestSide::Over => RequestSide::Over,
        };
    }

    /// Aborts the stream. Its content is dropped.
    pub(super) fn end(&mut self, code: Code, by: ResetBy) {
        let request_read = match &mut self.request {
            RequestSide::Read(unread) => {
                let read = unread.is_taken() && !matches!(unread.end, ContentEnd::Trailers(_));
                unread.clear();
                read
            }
            RequestSide::Dropped => false,
            RequestSide::Over => true,
        };
        self.reset = Some(StreamReset { code, by, request_read });
        self.wake_reader();
        self.wake_writer();
    }

    /// Content for the task that reads it.
    #[inline]
    pub(super) fn reading(&mut self) -> &mut Unread {
        match &mut self.request {
            RequestSide::Read(unread) => unread,
            // The task has the handle that ends this state when it is dropped.
            RequestSide::Dropped | RequestSide::Over => unreachable!("no task reads the content"),
        }
    }

    /// Progress of the response for the task that answers.
    #[inline]
    pub(super) fn answering(&mut self) -> &mut ResponseProgress {
        match &mut self.response {
            ResponseSide::Answering(progress) => progress,
            // As above.
            ResponseSide::Answered => unreachable!("no task answers the request"),
        }
    }

    /// Returns true if the response waits for the bandwidth of a route.
    pub(super) fn is_paced(&self) -> bool {
        matches!(&self.response, ResponseSide::Answering(progress) if progress.paced)
    }

    /// Time since which nothing was written although something waits, in milliseconds of the coarse clock.
    pub(super) fn blocked_since(&self) -> Option<u64> {
        match &self.response {
            ResponseSide::Answering(progress) => Some(progress.blocked).filter(|since| *since > 0),
            ResponseSide::Answered => None,
        }
    }

    /// Time of the last content of the request, in milliseconds of the coarse clock; or 0.
    pub(super) fn moved(&self) -> u64 {
        if let RequestSide::Read(unread) = &self.request { unread.moved } else { 0 }
    }

    /// Time for which nothing could be written, in milliseconds.
    pub(super) fn waits(&self, now: u64) -> u64 {
        self.blocked_since().map_or(0, |since| now.saturating_sub(since))
    }

    pub(super) fn wake_reader(&self) {
        if let RequestSide::Read(unread) = &self.request {
            unread.wake();
        }
    }

    pub(super) fn wake_writer(&self) {
        if let ResponseSide::Answering(ResponseProgress { writer: Some(writer), .. }) = &self.response {
            writer.wake_by_ref();
        }
    }
}

impl Unread {
    fn put(&mut self, data: &[u8]) {
        let last = self.behind.as_mut().and_then(|behind| behind.back_mut()).unwrap_or(&mut self.content);
        if last.is_empty() || last.len() + data.len() <= PIECE {
            last.extend_from_slice(data);
        } else {
            self.behind.get_or_insert_default().push_back(BytesMut::from(data));
        }
    }

    /// Takes `n` bytes of content, at most those of the first piece.
    pub(super) fn take(&mut self, n: usize) -> Bytes {
        let taken = self.content.split_to(n).freeze();
        if self.content.is_empty()
            && let Some(pieces) = &mut self.behind
        {
            self.content = pieces.pop_front().unwrap_or_default();
            if pieces.is_empty() {
                self.behind = None;
            }
        }
        taken
    }

    /// Takes the trailers, if they have arrived.
    pub(super) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        match std::mem::take(&mut self.end) {
            ContentEnd::Awaited => None,
            ContentEnd::Arrived => {
                self.end = ContentEnd::Arrived;
                None
            }
            ContentEnd::Trailers(trailers) => {
                self.end = ContentEnd::Arrived;
                Some(trailers)
            }
        }
    }

    /// Returns true if all has arrived.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self.end, ContentEnd::Awaited)
    }

    /// Returns true if all has arrived and was taken, except trailers.
    pub(super) fn is_taken(&self) -> bool {
        self.is_whole() && self.content.is_empty()
    }

    fn clear(&mut self) {
        (self.content, self.behind) = (BytesMut::new(), None);
        if let ContentEnd::Trailers(_) = self.end {
            self.end = ContentEnd::Arrived;
        }
    }

    fn wake(&self) {
        if let Some(reader) = &self.reader {
            reader.wake_by_ref();
        }
    }
}

impl ResponseProgress {
    /// Records that nothing can be written.
    pub(super) fn block(&mut self) {
        if self.blocked == 0 {
            self.blocked = coarse_ms().max(1);
        }
    }
}
