//! The body of a request, whichever protocol it comes by.

use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use offramp_http::body::Frame;
use offramp_http::h1::RequestFraming;
use offramp_upstream::{Lent, PieceWriter};

use super::body::BodyError;
use super::content::{Chunked, UploadError};
use super::h2;
use super::line::ClientConnection;

/// The body of a request.
pub(crate) enum Inbound {
    /// The request has no body.
    Empty,
    /// It comes on a stream of HTTP/2.
    Stream(h2::StreamContent),
    /// It comes on an HTTP/1 connection.
    Line(Http1Upload),
}

/// The content of a request on an HTTP/1 connection. It is read from the connection when it is asked for. It does
/// not keep the connection: a task that still has it when its request is over reads nothing more.
pub(crate) struct Http1Upload {
    line: Weak<ClientConnection>,
    /// The number of its request on the connection.
    serial: u64,
    content: UploadContent,
    /// The client is to be asked for it (RFC 9110 §10.1.1).
    unasked: bool,
}

enum UploadContent {
    /// So many bytes are left.
    Length(u64),
    Chunked(Box<Chunked>),
}

impl Http1Upload {
    /// The content of request `serial` of `line`; nothing where it has none.
    pub(super) fn new(
        line: &Rc<ClientConnection>,
        serial: u64,
        framing: RequestFraming,
        unasked: bool,
    ) -> Option<Self> {
        let content = match framing {
            RequestFraming::None | RequestFraming::Length(0) => return None,
            RequestFraming::Length(length) => UploadContent::Length(length),
            RequestFraming::Chunked => UploadContent::Chunked(Box::new(Chunked::new())),
        };
        Some(Self { line: Rc::downgrade(line), serial, content, unasked })
    }

    fn line(&self) -> Option<Rc<ClientConnection>> {
        self.line.upgrade().filter(|line| line.is_at(self.serial))
    }

    fn is_over(&self) -> bool {
        match &self.content {
            UploadContent::Length(left) => *left == 0,
            UploadContent::Chunked(message) => message.is_over(),
        }
    }

    /// Lends the next piece of content of known length; see
    /// [`RequestReader::poll_lend`](super::intake::RequestReader::poll_lend).
    fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        if !matches!(self.content, UploadContent::Length(1..)) {
            return Poll::Ready(Lent::Nothing);
        }
        let Some(line) = self.line() else { return Poll::Ready(Lent::Nothing) };
        if std::mem::take(&mut self.unasked) {
            line.ask(cx.waker());
        }
        let lent = line.intake.borrow_mut().poll_lend(cx, write);
        line.reader_asked(lent.is_pending());
        if let (UploadContent::Length(left), Poll::Ready(Lent::Taken(n))) = (&mut self.content, &lent) {
            *left = left.saturating_sub(*n as u64);
            if *left == 0 {
                line.was_read(cx.waker());
            }
        }
        lent
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, UploadError>>> {
        if self.is_over() {
            return Poll::Ready(None);
        }
        let Some(line) = self.line() else { return Poll::Ready(Some(Err(UploadError::Gone))) };
        if std::mem::take(&mut self.unasked) {
            line.ask(cx.waker());
        }
        let data = match &mut self.content {
            UploadContent::Length(_) => line.intake.borrow_mut().poll_data(cx),
            UploadContent::Chunked(message) => line.intake.borrow_mut().poll_chunks(cx, message),
        };
        line.reader_asked(data.is_pending());
        let data = ready!(data);
        if let (UploadContent::Length(left), Ok(data)) = (&mut self.content, &data) {
            *left = left.saturating_sub(data.as_ref().map_or(0, Bytes::len) as u64);
        }
        let frame = match (data, &mut self.content) {
            (Ok(Some(data)), _) => Some(Ok(Frame::Data(data))),
            (Ok(None), UploadContent::Chunked(message)) => {
                message.take_trailers().map(|all| Ok(Frame::Trailers(all)))
            }
            (Ok(None), UploadContent::Length(_)) => None,
            (Err(broken), _) => Some(Err(broken)),
        };
        if self.is_over() {
            line.was_read(cx.waker());
        }
        Poll::Ready(frame)
    }
}

impl Drop for Http1Upload {
    fn drop(&mut self) {
        if let Some(line) = self.line() {
            line.reader_leaves();
        }
    }
}

impl Inbound {
    /// Lends the next piece to `write`, where that can be.
    pub(crate) fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        match self {
            Self::Empty | Self::Stream(_) => Poll::Ready(Lent::Nothing),
            Self::Line(upload) => upload.poll_lend(cx, write),
        }
    }

    /// Waits until it is known if there is any data, where its length was not said.
    pub(crate) fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Stream(content) => content.poll_begun(cx),
            Self::Empty | Self::Line(_) => Poll::Ready(()),
        }
    }

    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Stream(content) => content.poll_frame(cx),
            Self::Line(upload) => {
                upload.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    /// Sets the content apart, which waits for long: it is not to keep other requests of the connection from
    /// coming.
    pub(crate) fn set_apart(&self) {
        if let Self::Stream(content) = self {
            content.set_apart();
        }
    }

    /// Nothing is to come.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(content) => content.is_end_stream(),
            Self::Line(upload) => upload.is_over(),
        }
    }

    /// The bytes of data that are to come, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Stream(content) => content.length(),
            Self::Line(Http1Upload { content: UploadContent::Length(left), .. }) => Some(*left),
            Self::Line(_) => None,
        }
    }
}
