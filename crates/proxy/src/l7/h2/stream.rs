//! One request on a stream of HTTP/2, from its head to the last frame of its response.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, DATE};
use http::{Method, Request, Response};
use hyper::body::Body;
use offramp_upstream::InterimListener;
use offramp_wire::http1::content_length;

use super::content::Content;
use super::end::StreamEnd;
use super::hints::Hints;
use super::runner::Job;
use crate::l7::body::Reply;
use crate::l7::exchange::{self, Client};
use crate::l7::inbound::Inbound;
use crate::l7::record::Record;
use crate::l7::session::Session;
use crate::l7::{hop, tunnel};

/// Serves the request that began a stream. A stream that is dropped before its response is whole is reset.
/// `hints` takes the interim responses to it. A block, for the reason of [`exchange::serve`].
pub(super) fn serve(job: Job, hints: Arc<Hints>) -> impl Future<Output = ()> {
    let Job { session, request, mut respond, idle } = job;
    async move {
        let Some((request, rest)) = open(request, &mut respond) else { return };
        let mut life = Life::default();
        let response = {
            let client = Client::Stream(Arc::clone(&hints) as Arc<dyn InterimListener>);
            let mut exchange = pin!(exchange::serve(Rc::clone(&session), client, request));
            poll_fn(|cx| life.exchange(cx, exchange.as_mut(), &session, (&hints, &mut respond))).await
        };
        let Some(response) = response else { return };
        let (head, mut body) = dressed(response, &session);
        let over = body.is_end_stream();
        match (body.take_tunnel(), rest) {
            (Some(switch), Some(recv)) => {
                let Some(send) = begin(&mut respond, head, false) else { return };
                let mut client = StreamEnd::new(send, recv);
                let tunnel = tunnel::run(&session, &mut client, Vec::new(), switch, idle);
                // As large as all the rest, and rare.
                Box::pin(life.bound(tunnel)).await;
            }
            // Only the answer to a CONNECT is a tunnel.
            (Some(_), None) => respond.send_reset(Reason::INTERNAL_ERROR),
            (None, _) => {
                let Some(send) = begin(&mut respond, head, over) else { return };
                if !over {
                    let mut pipe = Pipe { send, body, waiting: None };
                    life.bound(poll_fn(|cx| pipe.poll(cx))).await;
                }
            }
        }
    }
}

/// The request that began a stream, and what comes behind its head where that belongs to a tunnel, if there will
/// be one. Nothing where the stream was reset.
fn open(
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
) -> Option<(Request<Inbound>, Option<RecvStream>)> {
    let connects = request.method() == Method::CONNECT;
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|value| content_length(value.as_bytes()).ok());
    if connects && length.is_some_and(|length| length > 0) {
        // What follows such a head is no content (RFC 9110 §9.3.6).
        respond.send_reset(Reason::PROTOCOL_ERROR);
        return None;
    }
    let (head, recv) = request.into_parts();
    let (inbound, rest) = match connects {
        true => (Inbound::Empty, Some(recv)),
        false => (Content::new(recv, length).into(), None),
    };
    Some((Request::from_parts(head, inbound), rest))
}

/// What can end a stream from outside: it stood still for too long, or its connection ends.
#[derive(Default)]
struct Life {
    record: Option<Rc<Record>>,
}

impl Life {
    /// Has the request served; nothing where its client, or time, has ended it.
    fn exchange(
        &mut self,
        cx: &mut Context<'_>,
        exchange: Pin<&mut impl Future<Output = Response<Reply>>>,
        session: &Session,
        (hints, respond): (&Hints, &mut SendResponse<Bytes>),
    ) -> Poll<Option<Response<Reply>>> {
        let outcome = exchange.poll(cx);
        hints.send(respond);
        if self.record.is_none() {
            // The first poll has begun it.
            self.record = session.newborn.take();
        }
        match outcome {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending if self.is_over(cx) || respond.poll_reset(cx).is_ready() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
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

/// Makes a response one of HTTP/2: without fields of a connection (RFC 9113 §8.2.2), with its length and a date.
fn dressed(response: Response<Reply>, session: &Session) -> (Response<()>, Reply) {
    let (mut head, body) = response.into_parts();
    hop::clean_response(&mut head.headers);
    head.headers.entry(DATE).or_insert_with(|| session.worker.date.now());
    if let Some(length) = body.size_hint().exact().filter(|_| !body.is_end_stream()) {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    (Response::from_parts(head, ()), body)
}

/// Sends the head of a response; nothing where the stream is gone.
fn begin(respond: &mut SendResponse<Bytes>, head: Response<()>, over: bool) -> Option<SendStream<Bytes>> {
    let sent = respond.send_response(head, over);
    if sent.is_err() {
        respond.send_reset(Reason::INTERNAL_ERROR);
    }
    sent.ok()
}

/// The body of a response on its way to the client.
struct Pipe {
    send: SendStream<Bytes>,
    body: Reply,
    /// A piece for which there is no room yet, and whether it is the last.
    waiting: Option<(Bytes, bool)>,
}

impl Pipe {
    /// Moves what the client has room for; ready when it has everything or wants no more.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some((piece, last)) = self.waiting.take() {
                if poll_room(cx, &mut self.send).is_pending() {
                    self.waiting = Some((piece, last));
                    return self.poll_reset(cx);
                }
                if self.send.send_data(piece, last).is_err() || last {
                    return Poll::Ready(());
                }
                continue;
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return self.poll_reset(cx);
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => {
                        let last = self.body.is_end_stream();
                        if !piece.is_empty() {
                            // Not asked for before there is something to send: what is reserved is taken from
                            // the other streams. The library asks for the rest of the piece when it has it.
                            self.send.reserve_capacity(1);
                            self.waiting = Some((piece, last));
                        } else if last {
                            let _ = self.send.send_data(piece, true);
                            return Poll::Ready(());
                        }
                    }
                    Err(frame) => {
                        let Ok(trailers) = frame.into_trailers() else { continue };
                        self.send.reserve_capacity(0);
                        let _ = self.send.send_trailers(trailers);
                        return Poll::Ready(());
                    }
                },
                Some(Err(_)) => {
                    self.send.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
                None => {
                    let _ = self.send.send_data(Bytes::new(), true);
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl Pipe {
    /// Waits for a reset: who waits for room or for the server is woken by one too. Who need not wait learns of it
    /// when it sends.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.send.poll_reset(cx).map(drop)
    }
}

/// Waits until some of what was reserved is there; ready also where the stream is gone, which sending tells.
pub(super) fn poll_room(cx: &mut Context<'_>, send: &mut SendStream<Bytes>) -> Poll<()> {
    while send.capacity() == 0 {
        match ready!(send.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => break,
        }
    }
    Poll::Ready(())
}
