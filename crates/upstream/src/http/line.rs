//! An HTTP/1.1 connection to a server.
//!
//! It has no task. The request drives it until the response has ended; in the pool it is idle, and a close by
//! the server is detected when the connection is taken out or swept. A response may precede the end of its
//! request: polling either direction drives both.

mod buffers;
mod encode;
mod inbound;
mod outbound;

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use offramp_http::body::Frame;
use offramp_http::h1::ResponseFraming;
use offramp_http::head::{self, Fields, Response};
use offramp_net::clock::coarse_ms;

pub(crate) use self::buffers::ReadBuffers;
pub use self::inbound::FIRST_READ;
use self::inbound::{InboundResponses, ServerHead};
use self::outbound::Halt;
pub(crate) use self::outbound::Outbound;
use super::outgoing::SendProgress;
use super::pool::ServerPool;
use super::watch::{Deadline, after};
use crate::admission::Permit;
use crate::fault::{Breach, ResponseViolation, UpstreamFault};
use crate::link::ServerStream;

/// Body of a request. It belongs to one worker and need not be `Send`.
pub trait RequestBody: Unpin + 'static {
    /// Error that aborts the body.
    type Error: Into<Box<dyn StdError + Send + Sync>>;

    /// Returns the next part; `None` behind the last.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Self::Error>>>;

    /// Returns true if the body is known to have ended.
    fn is_end_stream(&self) -> bool;

    /// Remaining bytes of data, if known.
    fn length(&self) -> Option<u64>;

    /// Waits, for a moment, until it is known if there is any content.
    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        Poll::Ready(())
    }

    /// Lends the next piece of the content to `write`, in place, and consumes as much of it as `write`
    /// accepts. Pending if nothing has arrived. The end and errors of the content are reported by the next
    /// frame.
    fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        let _ = (cx, write);
        Poll::Ready(Lent::Nothing)
    }
}

/// Content that is available at once.
impl RequestBody for String {
    type Error = Infallible;

    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Infallible>>> {
        let all = std::mem::take(self);
        Poll::Ready((!all.is_empty()).then(|| Ok(Frame::Data(all.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn length(&self) -> Option<u64> {
        Some(self.len() as u64)
    }
}

/// Writes a piece of content in its parts, at most [`MOST_PARTS`], to the server, and returns the number of
/// bytes accepted.
pub type PieceWriter<'w> = dyn FnMut(&mut Context<'_>, &[&[u8]]) -> Poll<io::Result<usize>> + 'w;

/// Maximum number of parts of a piece: 256 KiB in full TLS records, and one more if they are a little
/// shorter.
pub const MOST_PARTS: usize = 17;

/// Result of lending a piece.
#[derive(Debug)]
pub enum Lent {
    /// This many bytes were accepted; possibly none, if other bytes had to go first.
    Taken(usize),
    /// The server accepts no bytes now.
    Full,
    /// No piece can be lent: poll the next frame.
    Nothing,
    /// The server accepts nothing more.
    Lost(io::Error),
    /// The content must be aborted.
    Broken(Box<dyn StdError + Send + Sync>),
}

/// Receives the interim responses (1xx) before the response to a request (RFC 9110 §15.2), except 101. Called
/// on the worker's thread.
pub trait InterimListener: Send + Sync {
    /// Handles an interim response.
    fn interim(&self, status: StatusCode, fields: &Fields);

    /// Maximum size of the next read of the response, in bytes; a small read is made in any case.
    fn read_budget(&self) -> usize {
        usize::MAX
    }
}

/// Maximum number of interim responses per request. Servers that work for long send 102 now and then.
const MOST_INTERIM: u32 = 500;

/// A connection to a server.
pub(crate) struct Http1Connection<B: RequestBody> {
    link: ServerStream,
    out: Outbound<B>,
    inbound: InboundResponses,
    progress: SendProgress,
    /// Error of sending the request; the server may have responded all the same.
    refused: Option<io::Error>,
    reused: bool,
    /// State held while the body of the response is read.
    held: Option<ResponseLease<B>>,
}

/// State held until the body of a response has ended.
pub(crate) struct ResponseLease<B: RequestBody> {
    /// Pool that the connection returns to.
    pub(crate) pool: Rc<ServerPool<B>>,
    /// Count on the server.
    pub(crate) _permit: Permit,
    pub(crate) deadline: Deadline,
    /// Maximum pause of the body.
    pub(crate) patience: Duration,
    /// Time of the last data of the response.
    pub(crate) moved: u64,
}

/// Final head sent by a server.
pub(crate) enum ReceivedHead {
    Response(Response),
    /// A head that switches the protocol.
    Switched(Response),
}

impl<B: RequestBody> Http1Connection<B> {
    /// Takes over a connection; `buffers` belong to the worker.
    pub(crate) fn new(link: ServerStream, buffers: Rc<ReadBuffers>) -> Self {
        Http1Connection {
            link,
            out: Outbound::idle(),
            inbound: InboundResponses::new(buffers),
            progress: SendProgress::default(),
            refused: None,
            reused: false,
            held: None,
        }
    }

    /// Returns true if it has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Returns true if it can take a request: the server has neither closed it, as far as is known, nor sent
    /// unsolicited data. Costs no system call without an event on the socket.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.link.is_quiet()
    }

    /// Releases memory of a connection that has been idle for a while.
    pub(crate) fn rest(&mut self) {
        self.out.trim(true);
        self.inbound.trim(true);
    }

    /// Starts a request, which is sent while the response is awaited.
    ///
    /// `announce` also sends content of unknown length with methods that usually have none.
    pub(crate) fn send(&mut self, head: &head::Request, body: B, announce: bool) {
        self.out.load(head, body, announce);
        self.begin();
    }

    /// Starts a request that another connection has returned; `head` is its head.
    pub(crate) fn send_again(&mut self, head: &head::Request, request: Outbound<B>) {
        self.out = request;
        self.out.load_again(head);
        self.begin();
    }

    fn begin(&mut self) {
        self.inbound.begin();
        self.progress.begin();
        self.reused = true;
    }

    /// Returns the request if it may be sent again after `fault`. `pooled` is set if the server may have
    /// closed the connection before the request arrived.
    pub(crate) fn take_back(&mut self, fault: &UpstreamFault, pooled: bool) -> Option<Outbound<B>> {
        match fault {
            UpstreamFault::Aborted(_) if !self.inbound.has_received() => self.out.take_back(pooled),
            _ => None,
        }
    }

    /// Sends the request and waits for the head of the response, for at most `limit` while the server is
    /// awaited.
    pub(crate) async fn receive_head(
        &mut self,
        listener: Option<&Arc<dyn InterimListener>>,
        deadline: &mut Deadline,
        limit: Duration,
    ) -> Result<ReceivedHead, UpstreamFault> {
        let mut interim = 0;
        poll_fn(|cx| match self.poll_final(cx, listener, &mut interim) {
            Poll::Ready(received) => Poll::Ready(received),
            Poll::Pending => {
                let since = self.progress.since();
                let late = since.is_some_and(|since| deadline.wait(after(since, limit), cx.waker()));
                if late { Poll::Ready(Err(UpstreamFault::ResponseTimeout)) } else { Poll::Pending }
            }
        })
        .await
    }

    fn poll_final(
        &mut self,
        cx: &mut Context<'_>,
        listener: Option<&Arc<dyn InterimListener>>,
        interim: &mut u32,
    ) -> Poll<Result<ReceivedHead, UpstreamFault>> {
        self.drive(cx)?;
        if let Some(listener) = listener {
            self.inbound.limit(listener.read_budget());
        }
        loop {
            let head = ready!(self.inbound.poll_head(cx, &mut self.link, self.out.asked()));
            let ServerHead { response, framing } = head.map_err(|fault| self.explain(fault))?;
            match framing {
                ResponseFraming::Interim => {
                    *interim += 1;
                    if *interim > MOST_INTERIM {
                        return Poll::Ready(Err(UpstreamFault::BadResponse(ResponseViolation::Interim)));
                    }
                    if let Some(listener) = listener {
                        listener.interim(response.status, &response.fields);
                        // The listener's budget may permit reading more of the body.
                        self.drive(cx)?;
                    }
                }
                ResponseFraming::Switched if !self.out.is_complete() => {
                    return Poll::Ready(Err(UpstreamFault::BadResponse(ResponseViolation::EarlySwitch)));
                }
                ResponseFraming::Switched => return Poll::Ready(Ok(ReceivedHead::Switched(response))),
                _ => {
                    if self.refused.is_some() {
                        self.out.give_up();
                    }
                    return Poll::Ready(Ok(ReceivedHead::Response(response)));
                }
            }
        }
    }

    /// Sends as much of the request as possible.
    fn drive(&mut self, cx: &mut Context<'_>) -> Result<(), UpstreamFault> {
        if self.out.is_over() || self.refused.is_some() {
            return Ok(());
        }
        match self.out.poll(cx, &mut self.link, &self.progress) {
            Poll::Ready(Err(Halt::Body(error))) => Err(UpstreamFault::RequestBody(error)),
            Poll::Ready(Err(Halt::Io(error))) => {
                // The server may have sent a response before it closed.
                self.refused = Some(error);
                Ok(())
            }
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Prefers an error of sending the request to the end of the connection, since it says more.
    fn explain(&mut self, fault: UpstreamFault) -> UpstreamFault {
        match (fault, self.refused.take()) {
            (UpstreamFault::Aborted(_), Some(error)) => UpstreamFault::Aborted(Breach::Io(error)),
            (fault, _) => fault,
        }
    }

    /// Returns true if the response has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.inbound.has_ended()
    }

    /// Remaining length of the response, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.inbound.length()
    }

    /// Holds the state of the response while its body is read.
    pub(crate) fn hold(&mut self, held: ResponseLease<B>) {
        self.held = Some(held);
    }

    /// Returns the next frame of the body.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, UpstreamFault>>> {
        if let Err(fault) = self.drive(cx) {
            return Poll::Ready(Some(Err(fault)));
        }
        if self.refused.is_some() {
            self.out.give_up();
        }
        let until_close = self.inbound.ends_with_connection();
        let frame = self.inbound.poll_frame(cx, &mut self.link);
        if until_close
            && matches!(frame, Poll::Ready(None))
            && let Some(error) = self.refused.take_if(|error| error.kind() == io::ErrorKind::ConnectionReset)
        {
            // The kernel reports a reset once, to the write. The end seen by the read is not orderly.
            return Poll::Ready(Some(Err(UpstreamFault::Aborted(Breach::Io(error)))));
        }
        if self.is_stalled(cx, frame.is_ready()) {
            Poll::Ready(Some(Err(UpstreamFault::Stalled)))
        } else {
            frame
        }
    }

    /// Number of body bytes that [`Http1Connection::poll_into`] can read now. 0 while the request is under
    /// way: then both directions have to be driven.
    pub(crate) fn direct(&self) -> u64 {
        if self.out.is_over() { self.inbound.direct() } else { 0 }
    }

    /// Memory held for the body, apart from returned frames. Empty buffers are released if content `waits`
    /// for its receiver, or if they are large.
    pub(crate) fn held_memory(&mut self, waits: bool) -> usize {
        self.inbound.held(waits)
    }

    /// Memory retained by the last frame, at most.
    pub(crate) fn frame_memory(&self) -> usize {
        self.inbound.made()
    }

    /// Limits the size of body reads to about `most` bytes.
    pub(crate) fn limit(&mut self, most: usize) {
        self.inbound.limit(most);
    }

    /// Reads body data into `slots`, which have room for at most [`Http1Connection::direct`] bytes.
    pub(crate) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<Result<usize, UpstreamFault>> {
        let read = self.inbound.poll_into(cx, &mut self.link, slots);
        if self.is_stalled(cx, read.is_ready()) { Poll::Ready(Err(UpstreamFault::Stalled)) } else { read }
    }

    /// Returns true if the response has paused for too long. `came` is set if data was received now.
    fn is_stalled(&mut self, cx: &Context<'_>, came: bool) -> bool {
        let Some(held) = &mut self.held else { return false };
        if came {
            held.moved = coarse_ms();
            return false;
        }
        // While the client has not sent its part, the pause is its own.
        let Some(since) = self.progress.since() else { return false };
        held.deadline.wait(after(held.moved.max(since), held.patience), cx.waker())
    }

    /// Returns the connection to the pool after the response, if it can take another request.
    pub(crate) fn give_back(mut self: Box<Self>) {
        let Some(ResponseLease { pool, .. }) = self.held.take() else { return };
        // The last bytes of the request may be ready to be sent.
        let moves = self.drive(&mut Context::from_waker(Waker::noop())).is_ok();
        let over = self.out.is_complete() && self.inbound.is_settled() && self.link.is_flushed();
        if moves && self.refused.is_none() && over {
            self.out.trim(false);
            self.inbound.trim(false);
            pool.put(self);
        }
    }

    /// Closes an idle connection in order.
    pub(crate) fn part(&mut self) {
        self.link.part();
    }

    /// The connection, and the bytes read behind the head, for another protocol.
    pub(crate) fn into_parts(self) -> (ServerStream, Bytes) {
        (self.link, self.inbound.into_rest())
    }
}

/// Maximum memory of a connection that waits for its response, in bytes, without the allocator's overhead:
/// its state, the registration of its socket, and the retained part of a head.
#[must_use]
pub fn connection_memory<B: RequestBody>() -> usize {
    size_of::<Http1Connection<B>>() + REGISTRATION + outbound::KEEP_WRITTEN
}

/// Memory of the runtime per socket, in bytes.
const REGISTRATION: usize = 256;
