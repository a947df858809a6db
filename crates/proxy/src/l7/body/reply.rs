//! The body of a response, wherever it comes from.

mod direct;

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use offramp_http::body::Frame;
use offramp_http::semantics::protected::clean_response_trailers;
use offramp_observe::{Cause, Close};
use offramp_upstream::{ServerBody, Tunnel};

use super::{BodyError, ClientBody};
use crate::failure;
use crate::l7::compress::Compressed;
use crate::l7::files::FileContent;
use crate::l7::paced::PacedReply;
use crate::l7::record::RecordGuard;
use crate::l7::tunnel::Switch;
use crate::snapshot::Bandwidth;

/// The body of a response, which ends the record of its request.
pub(crate) struct Reply {
    content: ReplyContent,
    /// Ends the record; `None` where it has ended already, or ends elsewhere.
    record_guard: Option<RecordGuard>,
    /// The end that the last byte means.
    close: Option<Close>,
}

/// The content of a response.
pub(crate) enum ReplyContent {
    Empty,
    Own(Bytes),
    Server(ServerBody<ClientBody>),
    /// Like `Server`, with a bound.
    Bounded(Box<LimitedBody>),
    File(Box<FileContent>),
    /// The content of another reply, compressed.
    Compressed(Box<Compressed>),
    /// The content of another reply, as the bandwidth of its route lets it pass.
    Paced(Box<PacedReply>),
    /// Another protocol follows the head.
    Tunnel(Tunnel),
    /// The server broke off, which is reported when the content before it has left.
    Broken(BodyError),
}

/// A body that a server sends, and how many bytes of it may still come.
pub(crate) struct LimitedBody {
    body: ServerBody<ClientBody>,
    left: u64,
}

impl ReplyContent {
    /// Content of our own.
    pub(crate) fn own(body: Bytes) -> Self {
        if body.is_empty() { Self::Empty } else { Self::Own(body) }
    }

    /// The body that a server sends.
    pub(crate) fn server(body: ServerBody<ClientBody>) -> Self {
        if body.is_end_stream() { Self::Empty } else { Self::Server(body) }
    }

    /// The body that an authentication server sends in the place of a server, cut off behind `most` bytes.
    pub(crate) fn bounded(body: ServerBody<ClientBody>, most: u64) -> Self {
        if body.is_end_stream() {
            Self::Empty
        } else {
            Self::Bounded(Box::new(LimitedBody { body, left: most }))
        }
    }

    /// Content from a file.
    pub(crate) fn file(content: FileContent) -> Self {
        if content.left() == 0 { Self::Empty } else { Self::File(Box::new(content)) }
    }

    /// The number of bytes, where it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Empty | Self::Tunnel(_) => Some(0),
            Self::Own(bytes) => Some(bytes.len() as u64),
            Self::Server(body) => body.length(),
            Self::Bounded(bounded) => bounded.body.length(),
            Self::File(content) => Some(content.left()),
            Self::Paced(body) => body.length(),
            Self::Broken(_) | Self::Compressed(_) => None,
        }
    }
}

impl Reply {
    /// A body that ends the record with `close` as its last byte leaves. One without a byte ends it at once.
    pub(crate) fn new(content: ReplyContent, record_guard: RecordGuard, close: Close) -> Self {
        if matches!(content, ReplyContent::Empty) {
            record_guard.0.end(close);
            return Self::nothing();
        }
        Self { content, record_guard: Some(record_guard), close: Some(close) }
    }

    /// A file that could not be read further.
    fn file_failed(&mut self, error: std::io::Error) -> BodyError {
        if let Some(record_guard) = &self.record_guard {
            let close = Close::from(Cause::FileFailed).with_detail(&error.to_string());
            *record_guard.0.body_fault.borrow_mut() = Some(close);
        }
        let error: BodyError = error.into();
        self.broken(&error);
        error
    }

    /// No body; the record ends elsewhere.
    pub(crate) const fn nothing() -> Self {
        Self { content: ReplyContent::Empty, record_guard: None, close: None }
    }

    /// Another protocol follows the head, on the stream of the request.
    pub(crate) fn tunnel(Switch { server, record_guard }: Switch) -> Self {
        Self { content: ReplyContent::Tunnel(server), record_guard: Some(record_guard), close: None }
    }

    /// A body without a record.
    #[cfg(test)]
    pub(crate) const fn of(body: Bytes) -> Self {
        Self { content: ReplyContent::Own(body), record_guard: None, close: None }
    }

    /// The same content through a compressor, which `start` gives; the end is reported as before.
    pub(crate) fn compressed(mut self, start: impl FnOnce(Self) -> Compressed) -> Self {
        let content = std::mem::replace(&mut self.content, ReplyContent::Empty);
        let inner = Self { content, record_guard: None, close: None };
        self.content = ReplyContent::Compressed(Box::new(start(inner)));
        self
    }

    /// The same content, of which no more passes than may; the end is reported as before.
    pub(crate) fn paced(mut self, bandwidth: &Bandwidth) -> Self {
        if let Some(record_guard) = &self.record_guard
            && !self.is_end_stream()
        {
            let content = std::mem::replace(&mut self.content, ReplyContent::Empty);
            let inner = Self { content, record_guard: None, close: None };
            let paced = PacedReply::new(inner, Rc::clone(&record_guard.0), bandwidth);
            self.content = ReplyContent::Paced(Box::new(paced));
        }
        self
    }

    /// The bandwidth of a route bounds it.
    pub(crate) fn is_paced(&self) -> bool {
        matches!(self.content, ReplyContent::Paced(_))
    }

    /// Takes out the protocol that follows the head, if one does.
    pub(crate) fn take_tunnel(&mut self) -> Option<Switch> {
        match std::mem::replace(&mut self.content, ReplyContent::Empty) {
            ReplyContent::Tunnel(server) => Some(Switch { server, record_guard: self.record_guard.take()? }),
            content => {
                self.content = content;
                None
            }
        }
    }

    fn end(&mut self) {
        self.content = ReplyContent::Empty;
        if let (Some(close), Some(record_guard)) = (self.close.take(), &self.record_guard) {
            record_guard.0.end(close);
        }
    }

    fn sent(&self, n: usize) {
        if let Some(record_guard) = &self.record_guard {
            record_guard.0.sent(n);
        }
    }

    fn broken(&mut self, error: &BodyError) {
        let Some(record_guard) = &self.record_guard else { return };
        let fault = record_guard.0.body_fault.take();
        self.close = Some(fault.unwrap_or_else(|| failure::response(&**error)));
        self.end();
    }
}

impl Reply {
    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match &mut self.content {
            ReplyContent::Empty | ReplyContent::Tunnel(_) => Poll::Ready(None),
            ReplyContent::Own(bytes) => {
                let bytes = std::mem::take(bytes);
                self.sent(bytes.len());
                self.end();
                Poll::Ready(Some(Ok(Frame::Data(bytes))))
            }
            ReplyContent::Broken(_) => {
                let ReplyContent::Broken(error) = std::mem::replace(&mut self.content, ReplyContent::Empty)
                else {
                    return Poll::Ready(None);
                };
                Poll::Ready(Some(Err(error)))
            }
            ReplyContent::File(content) => {
                let outcome = std::task::ready!(content.poll_frame(cx));
                let over = content.left() == 0;
                match outcome {
                    Ok(data) => {
                        self.sent(data.len());
                        if over {
                            self.end();
                        }
                        Poll::Ready(Some(Ok(Frame::Data(data))))
                    }
                    Err(error) => {
                        // As where a server breaks off, below.
                        self.content = ReplyContent::Broken(self.file_failed(error));
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                }
            }
            ReplyContent::Compressed(body) => {
                let frame = std::task::ready!(body.poll_frame(cx));
                let over = body.is_over();
                Poll::Ready(self.came(frame, over))
            }
            ReplyContent::Paced(body) => {
                let frame = std::task::ready!(body.poll_frame(cx));
                let over = body.is_over();
                Poll::Ready(self.came(frame, over))
            }
            ReplyContent::Server(_) | ReplyContent::Bounded(_) => self.poll_server(cx),
        }
    }

    /// A part has come of another reply that this one has, perhaps the last.
    fn came(
        &mut self,
        frame: Option<Result<Frame, BodyError>>,
        over: bool,
    ) -> Option<Result<Frame, BodyError>> {
        match &frame {
            Some(Ok(Frame::Data(data))) => self.sent(data.len()),
            Some(Err(error)) => self.broken(error),
            _ => {}
        }
        if over {
            self.end();
        }
        frame
    }

    /// The next part of what a server sends.
    fn poll_server(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let (body, left) = match &mut self.content {
            ReplyContent::Server(body) => (body, None),
            ReplyContent::Bounded(bounded) => (&mut bounded.body, Some(&mut bounded.left)),
            _ => return Poll::Ready(None),
        };
        let mut frame = std::task::ready!(body.poll_frame(cx)).map(|frame| frame.map_err(BodyError::from));
        let over = body.is_end_stream();
        if let (Some(left), Some(Ok(part))) = (left, &frame) {
            match left.checked_sub(part.data_len() as u64) {
                Some(less) => *left = less,
                None => frame = Some(Err(self.too_large())),
            }
        }
        match frame {
            None => {
                self.end();
                Poll::Ready(None)
            }
            Some(Ok(mut frame)) => {
                match &mut frame {
                    Frame::Data(data) => self.sent(data.len()),
                    Frame::Trailers(trailers) => clean_response_trailers(trailers),
                }
                if over {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.broken(&error);
                // A stream of HTTP/2 forgets what it has not sent when it is reset, and sends it when it has to
                // wait.
                self.content = ReplyContent::Broken(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// An authentication server sends more than it may.
    fn too_large(&self) -> BodyError {
        let close = Close::from(Cause::AuthUnavailable).with_detail("its response has more than 1 MiB");
        // Another reply may have this one, and tell of it.
        failure::BodyAbort(close).into()
    }

    /// Nothing is to come.
    pub(crate) fn is_end_stream(&self) -> bool {
        match &self.content {
            ReplyContent::Empty | ReplyContent::Tunnel(_) => true,
            ReplyContent::Own(_) | ReplyContent::Broken(_) => false,
            ReplyContent::Compressed(body) => body.is_over(),
            ReplyContent::Paced(body) => body.is_over(),
            ReplyContent::Server(body) => body.is_end_stream(),
            ReplyContent::Bounded(bounded) => bounded.body.is_end_stream(),
            ReplyContent::File(content) => content.left() == 0,
        }
    }

    /// Bytes of data that are to come, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.content.length()
    }
}
