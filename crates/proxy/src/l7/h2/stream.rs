//! One request on a stream of HTTP/2, from its head to the last frame of its response.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use offramp_http::body::Frame;
use offramp_http::h2::connection::{STILL, declared_length};
use offramp_http::h2::{Code, Ends};
use offramp_http::head::{Fields, Known, Request, Response};
use offramp_observe::{Cause, Close};
use tokio::time::timeout;

use super::content::StreamContent;
use super::end::StreamEnd;
use super::handle::{Gone, Incoming, Respond};
use super::hints::Hints;
use super::runner::Job;
use crate::l7::body::{BodyError, Reply};
use crate::l7::exchange::{self, RequestTransport};
use crate::l7::inbound::Inbound;
use crate::l7::record::RequestRecord;
use crate::l7::session::Session;
use crate::l7::tunnel;

/// Time for which a success waits for the rest of an upload that is not read. A client that gets one before it has
/// sent all need not stop, and curl before 8 reads nothing more then, also no windows, and waits for ever.
const UPLOAD_FIRST: Duration = Duration::from_millis(STILL);

/// Serves the request that began a stream. A stream that is dropped before its response is whole is reset.
/// `hints` takes the interim responses to it. A block, for the reason of [`exchange::serve`].
pub(super) fn serve(job: Job, hints: Arc<Hints>) -> impl Future<Output = ()> {
    let Job { session, head, protocol, refused, incoming, respond, idle } = job;
    async move {
        if respond.is_gone() {
            // Its client took it back with the same breath: no server is asked.
            session.http.heads.put(head);
            return;
        }
        let (connects, uploads) = (head.method == Method::CONNECT, incoming.is_some());
        let (body, rest) = body(&head, incoming);
        let request = exchange::IncomingRequest { head, body, protocol, refused };
        let mut life = Life::default();
        let response = {
            let client = RequestTransport::Stream(Arc::clone(&hints));
            let mut exchange = pin!(exchange::serve(Rc::clone(&session), client, request));
            poll_fn(|cx| life.exchange(cx, exchange.as_mut(), &session, &hints, &respond)).await
        };
        // By value: a reference would be kept with the task.
        let fitting = |response| life.fitting(&session, &respond, response);
        let Some(response) = response.and_then(fitting) else { return };
        let status = response.status;
        let response = if uploads && status.is_success() && !respond.has_whole_upload() {
            // Rare. The response is there meanwhile: kept here, it would be part of every stream's task.
            Box::pin(life.uploaded(&respond, response)).await
        } else {
            response
        };
        let Response { fields, mut body, .. } = response;
        let over = body.is_end_stream();
        match body.take_tunnel() {
            Some(switch) if connects => {
                let start = ResponseStart { status, fields: &fields, end: false, length: None };
                if begin(&session, &respond, start).is_err() {
                    return;
                }
                drop(fields);
                let mut client = StreamEnd::new(respond, rest);
                let tunnel = tunnel::run(&session, &mut client, Vec::new(), switch, idle);
                // As large as all the rest, and rare.
                Box::pin(life.bound(tunnel)).await;
            }
            // Only the answer to a CONNECT is a tunnel.
            Some(_) => respond.reset(Code::INTERNAL_ERROR),
            None => {
                let length = body.length().filter(|_| !over);
                let start = ResponseStart { status, fields: &fields, end: over, length };
                let begun = begin(&session, &respond, start);
                // It is written by now, and its memory would be held as long as the client takes.
                drop(fields);
                if begun.is_ok() && !over {
                    let mut pipe = begin_content(respond, body);
                    life.bound(poll_fn(|cx| pipe.poll(cx))).await;
                }
            }
        }
    }
}

/// The head of a response, and the content behind it.
#[derive(Clone, Copy)]
struct ResponseStart<'r> {
    status: StatusCode,
    fields: &'r Fields,
    /// There is no content.
    end: bool,
    /// The length of the content, where it is known.
    length: Option<u64>,
}

/// Sends the head of a response.
fn begin(session: &Session, respond: &Respond, start: ResponseStart<'_>) -> Result<(), Gone> {
    let ResponseStart { status, fields, end, length } = start;
    let date = (!fields.contains(Known::Date)).then(|| session.http.date.now());
    let date = date.as_ref().map(HeaderValue::as_bytes);
    respond.head(status, fields, Ends { end, length, date })
}

/// Begins to send the content of a response.
fn begin_content(respond: Respond, mut body: Reply) -> Pipe {
    // Until it is known what the connection has room for.
    body.set_ahead(0);
    if body.is_paced() {
        respond.pace();
    }
    Pipe::new(respond, body)
}

/// The body of the request that began a stream, and what comes behind its head where that belongs to a tunnel, if there
/// will be one.
fn body(head: &Request, incoming: Option<Incoming>) -> (Inbound, Option<Incoming>) {
    match incoming {
        incoming if head.method == Method::CONNECT => (Inbound::Empty, incoming),
        None => (Inbound::Empty, None),
        Some(incoming) => {
            let length = declared_length(&head.fields);
            (Inbound::Stream(StreamContent::new(incoming, length)), None)
        }
    }
}

/// Reasons from outside that end a stream: it stood still for too long, or its connection ends.
#[derive(Default)]
struct Life {
    record: Option<Rc<RequestRecord>>,
}

impl Life {
    /// Has the request served; nothing where its client, or time, has ended it.
    fn exchange(
        &mut self,
        cx: &mut Context<'_>,
        exchange: Pin<&mut impl Future<Output = Response<Reply>>>,
        session: &Session,
        hints: &Hints,
        respond: &Respond,
    ) -> Poll<Option<Response<Reply>>> {
        if self.record.is_none() && respond.is_gone() {
            // It was taken back before it began.
            return Poll::Ready(None);
        }
        // A response that is here already may wait where it is.
        let outcome = match respond.poll_writable(cx) {
            Poll::Ready(read_budget) => {
                hints.limit(read_budget);
                exchange.poll(cx)
            }
            Poll::Pending => Poll::Pending,
        };
        hints.send(respond);
        if self.record.is_none() {
            // The first poll has begun it.
            self.record = session.requests.unclaimed.take();
        }
        match outcome {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending if self.is_over(cx) || respond.poll_gone(cx).is_ready() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    /// A response that fits into the client's limit of heads; another one is answered with an error in its place.
    fn fitting(
        &self,
        session: &Session,
        respond: &Respond,
        response: Response<Reply>,
    ) -> Option<Response<Reply>> {
        if respond.fits(&response.fields) {
            return Some(response);
        }
        self.refuse_head(session, respond, response);
        None
    }

    #[cold]
    fn refuse_head(&self, session: &Session, respond: &Respond, response: Response<Reply>) {
        if let Some(record) = &self.record {
            record.answered(StatusCode::BAD_GATEWAY.as_u16());
            let detail = "the head of the response is larger than the client's SETTINGS_MAX_HEADER_LIST_SIZE";
            record.end(Close::from(Cause::BadResponse).with_detail(detail));
        }
        drop(response);
        // A client that is gone gets none.
        let start = ResponseStart {
            status: StatusCode::BAD_GATEWAY,
            fields: &Fields::new(),
            end: true,
            length: None,
        };
        let _ = begin(session, respond, start);
    }

    /// The response, when the upload is whole or has had [`UPLOAD_FIRST`].
    async fn uploaded(&self, respond: &Respond, response: Response<Reply>) -> Response<Reply> {
        self.bound(timeout(UPLOAD_FIRST, poll_fn(|cx| respond.poll_uploaded(cx)))).await;
        response
    }

    /// Runs `future` while the stream lives.
    async fn bound(&self, future: impl Future) {
        let mut future = pin!(future);
        poll_fn(|cx| if self.is_over(cx) { Poll::Ready(()) } else { future.as_mut().poll(cx).map(drop) })
            .await;
    }

    fn is_over(&self, cx: &Context<'_>) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_cancelled(cx.waker()))
    }
}

/// The body of a response on its way to the client.
struct Pipe {
    respond: Respond,
    body: Reply,
    /// A piece for which there is no room yet, and whether it is the last.
    waiting: Option<(Bytes, bool)>,
    /// Memory that it keeps, in bytes, and set if that is its own: it is counted as that.
    size: usize,
    copied: bool,
    held: usize,
    /// Bytes that the server may have sent ahead, as they are counted.
    ahead: usize,
}

impl Pipe {
    fn new(respond: Respond, body: Reply) -> Self {
        Self { respond, body, waiting: None, size: 0, copied: false, held: 0, ahead: 0 }
    }

    /// Moves what the client has room for; ready when it has everything or wants no more.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let moved = self.poll_body(cx);
        if moved.is_pending() {
            self.compact();
            self.note_held(true);
            // A task that waits for the server lets others read meanwhile.
            self.respond.let_others_read();
        }
        match moved {
            Poll::Ready(Ok(()) | Err(Gone)) => Poll::Ready(()),
            // A reset wakes a task that waits for the server, too.
            Poll::Pending => self.respond.poll_gone(cx),
        }
    }

    /// A small part of what was read would keep all of it for as long as the client takes.
    fn compact(&mut self) {
        if let Some((piece, _)) = &mut self.waiting
            && piece.len() * 2 < self.size
        {
            *piece = Bytes::copy_from_slice(piece);
            (self.size, self.copied) = (piece.len(), true);
        }
    }

    /// Notes how much memory waits for the client; `waits`: the task does so, too.
    fn note_held(&mut self, waits: bool) {
        let behind = self.body.held_memory(waits);
        let holds = match self.waiting {
            Some(_) if self.copied => self.size + behind,
            Some(_) => self.size.max(behind),
            None => behind,
        };
        if holds != self.held {
            self.respond.holds(holds);
            self.held = holds;
        }
        if self.ahead > 0 && self.body.ahead().is_none() {
            // The body has ended.
            self.ahead = 0;
            self.respond.has_ahead(0);
        }
    }

    /// The next part of the body. A server that speaks HTTP/2 may send as much ahead as the connection has room for.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let Some(ahead) = self.body.ahead() else { return self.body.poll_frame(cx) };
        let most = self.respond.ahead(ahead);
        self.body.set_ahead(most);
        let frame = self.body.poll_frame(cx);
        let ahead = self.body.ahead().map_or(0, |ahead| ahead.allowed);
        if ahead != self.ahead {
            self.ahead = ahead;
            self.respond.has_ahead(ahead);
        }
        frame
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        loop {
            if let Some((mut piece, last)) = self.waiting.take() {
                let Poll::Ready(room) = self.respond.poll_room(cx) else {
                    self.waiting = Some((piece, last));
                    return Poll::Pending;
                };
                if room == 0 {
                    return Poll::Ready(Err(Gone));
                }
                let now = piece.split_to(room.min(piece.len()));
                let over = last && piece.is_empty();
                self.respond.data(now, over)?;
                if over {
                    return Poll::Ready(Ok(()));
                }
                self.waiting = (!piece.is_empty()).then_some((piece, last));
                continue;
            }
            self.note_held(false);
            let sized = self.body.length().is_some_and(|left| left > 0);
            match self.respond.poll_read_budget(cx, sized) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(0) => return Poll::Ready(Err(Gone)),
                Poll::Ready(most) => self.body.limit(most),
            }
            let Poll::Ready(frame) = self.poll_frame(cx) else {
                return Poll::Pending;
            };
            match frame {
                Some(Ok(Frame::Data(piece))) => {
                    let last = self.body.is_end_stream();
                    if !piece.is_empty() {
                        (self.size, self.copied) = (piece.len().max(self.body.frame_memory()), false);
                        self.waiting = Some((piece, last));
                    } else if last {
                        return Poll::Ready(self.respond.data(Bytes::new(), true));
                    }
                }
                Some(Ok(Frame::Trailers(trailers))) => {
                    return Poll::Ready(self.respond.trailers(&trailers));
                }
                Some(Err(_)) => {
                    self.respond.reset(Code::INTERNAL_ERROR);
                    return Poll::Ready(Err(Gone));
                }
                None => return Poll::Ready(self.respond.data(Bytes::new(), true)),
            }
        }
    }
}
