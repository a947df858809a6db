//! One HTTP/1.1 connection to a server.
//!
//! It has no task. Whoever has sent a request drives it until the response has ended; in the pool it
//! lies still, and whether the server has closed it is seen when it is taken out or swept. A response may come
//! before its request has gone: both ways move whenever one of them is asked.

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
use self::inbound::{Inbound, ServerHead};
use self::outbound::Halt;
pub(crate) use self::outbound::Outbound;
use super::outgoing::Progress;
use super::pool::ServerPool;
use super::watch::{Deadline, after};
use crate::admission::Permit;
use crate::fault::{Breach, Fault, Violation};
use crate::link::Link;

/// What can be the body of a request. It belongs to one worker and need not be `Send`.
pub trait RequestBody: Unpin + 'static {
    /// Why it breaks off.
    type Error: Into<Box<dyn StdError + Send + Sync>>;

    /// The next part; none behind the last.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Self::Error>>>;

    /// Whether nothing is to come, as far as that is known.
    fn is_end_stream(&self) -> bool;

    /// How many bytes of data are to come, where that is known.
    fn length(&self) -> Option<u64>;

    /// Waits, for a moment, until it is known if there is any content.
    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        Poll::Ready(())
    }

    /// Lends the next piece of the content to `write`, where it lies, and uses up as much of it as that takes. Pending
    /// where nothing has come. What ends or breaks the content is told by the next frame.
    fn poll_lend(&mut self, cx: &mut Context<'_>, write: &mut PieceWriter<'_>) -> Poll<Lent> {
        let _ = (cx, write);
        Poll::Ready(Lent::Nothing)
    }
}

/// Content that is there at once.
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

/// Writes a piece of content in its parts, [`MOST_PARTS`] at the most, to the server, and says how much of it was taken.
pub type PieceWriter<'w> = dyn FnMut(&mut Context<'_>, &[&[u8]]) -> Poll<io::Result<usize>> + 'w;

/// The most parts that a piece of content has: 256 KiB in full TLS records, and one more where they are a little shorter.
pub const MOST_PARTS: usize = 17;

/// What became of a piece that was lent.
#[derive(Debug)]
pub enum Lent {
    /// So much of it was taken; perhaps nothing, where other bytes had to go before it.
    Taken(usize),
    /// The server has no room for it now.
    Full,
    /// There is none that could be lent: the next frame is to be asked for.
    Nothing,
    /// The server takes nothing more.
    Lost(io::Error),
    /// The content must not go on.
    Broken(Box<dyn StdError + Send + Sync>),
}

/// Receives the interim responses (1xx) that come before the response to a request (RFC 9110 §15.2), except 101. It is
/// called on the worker's thread.
pub trait InterimListener: Send + Sync {
    /// One has come.
    fn interim(&self, status: StatusCode, fields: &Fields);

    /// How much the next read of a server's response may take, in bytes; a little is read in any case.
    fn appetite(&self) -> usize {
        usize::MAX
    }
}

/// The most interim responses to one request. Whoever works for long says so with 102 once in a while.
const MOST_INTERIM: u32 = 500;

/// A connection.
pub(crate) struct Http1Connection<B: RequestBody> {
    link: Link,
    out: Outbound<B>,
    inbound: Inbound,
    progress: Progress,
    /// Why the server takes no more of the request; it may have answered all the same.
    refused: Option<io::Error>,
    reused: bool,
    /// What is held for the response, while its body comes.
    held: Option<Held<B>>,
}

/// What is held until the body of a response has ended.
pub(crate) struct Held<B: RequestBody> {
    /// Where the connection goes afterwards.
    pub(crate) pool: Rc<ServerPool<B>>,
    /// The count on the server.
    pub(crate) _permit: Permit,
    pub(crate) deadline: Deadline,
    /// How long nothing may move.
    pub(crate) patience: Duration,
    /// When something of the response last came.
    pub(crate) moved: u64,
}

/// The final head that a server sent.
pub(crate) enum Received {
    Response(Response),
    /// The protocol changes.
    Switched(Response),
}

impl<B: RequestBody> Http1Connection<B> {
    /// Takes over a connection; `buffers` are those of the worker.
    pub(crate) fn new(link: Link, buffers: Rc<ReadBuffers>) -> Self {
        Http1Connection {
            link,
            out: Outbound::idle(),
            inbound: Inbound::new(buffers),
            progress: Progress::default(),
            refused: None,
            reused: false,
            held: None,
        }
    }

    /// Whether it has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether it can take a request: the server has not closed it as far as is known, nor sent anything
    /// unasked. Costs no system call where nothing has happened to the socket.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.link.is_quiet()
    }

    /// Gives memory back, now that it has been idle for a while.
    pub(crate) fn rest(&mut self) {
        self.out.trim(true);
        self.inbound.trim(true);
    }

    /// Takes on a request, which goes out as the response is waited for.
    ///
    /// `announce`: content of unknown length is sent with methods that have none, too.
    pub(crate) fn send(&mut self, head: &head::Request, body: B, announce: bool) {
        self.out.load(head, body, announce);
        self.begin();
    }

    /// Takes on a request that another connection gave back; `head` is its head.
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

    /// The request, if it may be sent once more after `fault`. `pooled`: the server may have closed the
    /// connection before it came.
    pub(crate) fn take_back(&mut self, fault: &Fault, pooled: bool) -> Option<Outbound<B>> {
        match fault {
            Fault::Aborted(_) if !self.inbound.has_received() => self.out.take_back(pooled),
            _ => None,
        }
    }

    /// Sends the request and waits for the head of the response, for at most `limit` while it is the server that
    /// is waited for.
    pub(crate) async fn receive_head(
        &mut self,
        listener: Option<&Arc<dyn InterimListener>>,
        deadline: &mut Deadline,
        limit: Duration,
    ) -> Result<Received, Fault> {
        let mut interim = 0;
        poll_fn(|cx| match self.poll_final(cx, listener, &mut interim) {
            Poll::Ready(received) => Poll::Ready(received),
            Poll::Pending => {
                let since = self.progress.since();
                let late = since.is_some_and(|since| deadline.wait(after(since, limit), cx.waker()));
                if late { Poll::Ready(Err(Fault::ResponseTimeout)) } else { Poll::Pending }
            }
        })
        .await
    }

    fn poll_final(
        &mut self,
        cx: &mut Context<'_>,
        listener: Option<&Arc<dyn InterimListener>>,
        interim: &mut u32,
    ) -> Poll<Result<Received, Fault>> {
        self.drive(cx)?;
        if let Some(listener) = listener {
            self.inbound.limit(listener.appetite());
        }
        loop {
            let head = ready!(self.inbound.poll_head(cx, &mut self.link, self.out.asked()));
            let ServerHead { response, framing } = head.map_err(|fault| self.explain(fault))?;
            match framing {
                ResponseFraming::Interim => {
                    *interim += 1;
                    if *interim > MOST_INTERIM {
                        return Poll::Ready(Err(Fault::BadResponse(Violation::Interim)));
                    }
                    if let Some(listener) = listener {
                        listener.interim(response.status, &response.fields);
                        // What the listener allows may be asked of the body now.
                        self.drive(cx)?;
                    }
                }
                ResponseFraming::Switched if !self.out.is_complete() => {
                    return Poll::Ready(Err(Fault::BadResponse(Violation::EarlySwitch)));
                }
                ResponseFraming::Switched => return Poll::Ready(Ok(Received::Switched(response))),
                _ => {
                    if self.refused.is_some() {
                        self.out.give_up();
                    }
                    return Poll::Ready(Ok(Received::Response(response)));
                }
            }
        }
    }

    /// Moves what can be moved of the request.
    fn drive(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        if self.out.is_over() || self.refused.is_some() {
            return Ok(());
        }
        match self.out.poll(cx, &mut self.link, &self.progress) {
            Poll::Ready(Err(Halt::Body(error))) => Err(Fault::RequestBody(error)),
            Poll::Ready(Err(Halt::Io(error))) => {
                // It may have sent a response before it closed.
                self.refused = Some(error);
                Ok(())
            }
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// A connection that broke while the request was written: that says more than its end.
    fn explain(&mut self, fault: Fault) -> Fault {
        match (fault, self.refused.take()) {
            (Fault::Aborted(_), Some(error)) => Fault::Aborted(Breach::Io(error)),
            (fault, _) => fault,
        }
    }

    /// Whether the response has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.inbound.has_ended()
    }

    /// What is known of the length of the rest of the response.
    pub(crate) fn length(&self) -> Option<u64> {
        self.inbound.length()
    }

    /// Holds what is to be held while the body comes.
    pub(crate) fn hold(&mut self, held: Held<B>) {
        self.held = Some(held);
    }

    /// The next frame of the body.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
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
            // The kernel tells a reset once: to the write. What the read found is no end.
            return Poll::Ready(Some(Err(Fault::Aborted(Breach::Io(error)))));
        }
        if self.is_stalled(cx, frame.is_ready()) { Poll::Ready(Some(Err(Fault::Stalled))) } else { frame }
    }

    /// How much of the body can be read with [`Http1Connection::poll_into`] now. Nothing while the request is under
    /// way: then both ways have to be moved.
    pub(crate) fn direct(&self) -> u64 {
        if self.out.is_over() { self.inbound.direct() } else { 0 }
    }

    /// How much memory is held for the body beside what was given out of it. What is empty is given back where content
    /// `waits` for its receiver, or is large.
    pub(crate) fn held_memory(&mut self, waits: bool) -> usize {
        self.inbound.held(waits)
    }

    /// How much memory the frame that came last keeps, at the most.
    pub(crate) fn frame_memory(&self) -> usize {
        self.inbound.made()
    }

    /// Has reads of the body take about so much at the most.
    pub(crate) fn limit(&mut self, most: usize) {
        self.inbound.limit(most);
    }

    /// Reads data of the body straight into `slots`, which have room for [`Http1Connection::direct`] bytes at the most.
    pub(crate) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<Result<usize, Fault>> {
        let read = self.inbound.poll_into(cx, &mut self.link, slots);
        if self.is_stalled(cx, read.is_ready()) { Poll::Ready(Err(Fault::Stalled)) } else { read }
    }

    /// Whether nothing of the response came for too long. `came`: something did now.
    fn is_stalled(&mut self, cx: &Context<'_>, came: bool) -> bool {
        let Some(held) = &mut self.held else { return false };
        if came {
            held.moved = coarse_ms();
            return false;
        }
        // While the client has more to send, and does not, the silence is its own.
        let Some(since) = self.progress.since() else { return false };
        held.deadline.wait(after(held.moved.max(since), held.patience), cx.waker())
    }

    /// The response has ended: keeps the connection for the next request, if it can take one.
    pub(crate) fn give_back(mut self: Box<Self>) {
        let Some(Held { pool, .. }) = self.held.take() else { return };
        // Perhaps the last of the request just waits to be written.
        let moves = self.drive(&mut Context::from_waker(Waker::noop())).is_ok();
        let over = self.out.is_complete() && self.inbound.is_settled() && self.link.is_flushed();
        if moves && self.refused.is_none() && over {
            self.out.trim(false);
            self.inbound.trim(false);
            pool.put(self);
        }
    }

    /// Says goodbye while it is idle: it is to be closed.
    pub(crate) fn part(&mut self) {
        self.link.part();
    }

    /// The connection, and what was read behind the head, for another protocol.
    pub(crate) fn into_parts(self) -> (Link, Bytes) {
        (self.link, self.inbound.into_rest())
    }
}

/// What a connection takes while the response to its request is waited for, at the most and without what the allocator adds, in
/// bytes: itself, the registration of its socket, and a head of which no more is kept than that.
#[must_use]
pub fn connection_memory<B: RequestBody>() -> usize {
    size_of::<Http1Connection<B>>() + REGISTRATION + outbound::KEEP_WRITTEN
}

/// What the runtime has of a socket.
const REGISTRATION: usize = 256;
