//! Requests and responses in turn: a head is read, the request served, the response written, and so on.
//!
//! One request is under way at a time. What a client sends ahead waits where it lies, and is not read before the
//! response to what came earlier has left. While a request is under way its client is watched: once it has reset
//! the connection, or broken TLS off, the response is not waited for. One that has ended its direction in order
//! gets it.

mod ahead;
mod direct;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::{Method, StatusCode};
use offramp_http::body::Frame;
use offramp_http::h1::{Http1Version, RequestHead};
use offramp_http::head::{self, Known, Response};
use offramp_observe::{Cause, Close};

use self::direct::DirectPace;
use super::outbox::Outbox;
use super::response::{self, Framing, ReplySize};
use super::{ResponseTraits, ServeEnd};
use crate::l7::answer::ErrorReply;
use crate::l7::body::Reply;
use crate::l7::exchange::IncomingRequest;
use crate::l7::h2::WindowLoan;
use crate::l7::intake::{Heading, ReadStop, RequestReader};
use crate::l7::line::ClientConnection;
use crate::l7::session::Session;

/// Steps that are taken before others have their turn; three make a request.
const STEPS: usize = 48;
/// Interim response that asks a client for its body (RFC 9110 §15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Bytes of interim responses that may wait for a client that does not read.
const INTERIM: usize = 32 * 1024;
/// The longest target that is served.
const LONGEST_TARGET: usize = u16::MAX as usize - 1;

/// A connection in the middle of requests. `F` is what serves one; its memory is used again and again.
pub(super) struct Conversation<'c, S, F> {
    session: &'c Session,
    line: &'c Rc<ClientConnection>,
    serve: &'c S,
    exchange: Pin<Box<Option<F>>>,
    step: RequestStep,
    asked: ResponseTraits,
    reply: Reply,
    framing: Framing,
    /// Set once all of the response is in the outbox.
    over: bool,
    /// Set if another request may follow.
    keep_alive: bool,
    /// Set if the request that is under way is to be the last.
    leaving: bool,
    outbox: Outbox,
    pace: DirectPace,
    /// Memory for the window of a response of a server that is far away.
    loan: Option<Box<WindowLoan>>,
}

/// Step of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestStep {
    /// A head is awaited; everything before was answered.
    Heading,
    /// The request is being served.
    Serving,
    /// The response is on its way.
    Responding,
}

/// State of a body.
enum Gathered {
    /// As much as has room.
    Some,
    /// Everything that there is now.
    Waiting,
    /// The whole body.
    All,
    /// Not all, and no more.
    Broken,
}

impl<'c, S, F> Conversation<'c, S, F>
where
    S: Fn(IncomingRequest) -> F,
    F: Future<Output = Response<Reply>>,
{
    pub(super) fn new(session: &'c Session, line: &'c Rc<ClientConnection>, serve: &'c S) -> Self {
        Self {
            session,
            line,
            serve,
            exchange: Box::pin(None),
            step: RequestStep::Heading,
            asked: ResponseTraits::default(),
            reply: Reply::nothing(),
            framing: Framing::None,
            over: false,
            keep_alive: false,
            leaving: false,
            outbox: Outbox::default(),
            pace: DirectPace::new(line.intake.borrow().transport.is_tls()),
            loan: None,
        }
    }

    /// Lets the request that is under way, or comes next, be the last. Until that one comes the connection stays: its
    /// client cannot know that it is too late.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// Returns true if no request is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.step == RequestStep::Heading
    }

    /// Returns true if a response is under way that ends with the connection: an end of the connection now must not
    /// look like the end of the response.
    pub(super) fn is_cut(&self) -> bool {
        self.step == RequestStep::Responding && matches!(self.framing, Framing::Close)
    }

    /// Goes on until there is a reason to stop.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ServeEnd> {
        self.pace.begin_turn();
        for _ in 0..STEPS {
            if self.pace.is_over() {
                break;
            }
            let stop = match self.step {
                RequestStep::Heading => ready!(self.poll_heading(cx)),
                RequestStep::Serving => ready!(self.poll_exchange(cx)),
                RequestStep::Responding => ready!(self.poll_response(cx)),
            };
            if let Some(turn) = stop {
                return Poll::Ready(turn);
            }
        }
        offramp_net::turn::poll_next(cx);
        Poll::Pending
    }

    fn poll_heading(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServeEnd>> {
        let heading = ready!(self.line.intake.borrow_mut().poll_head(cx));
        Poll::Ready(match heading {
            Heading::Request(accepted, head) => self.begin(&accepted, head),
            Heading::End => Some(ServeEnd::Done),
            Heading::Stopped => Some(ServeEnd::Stopped),
        })
    }

    /// Begins to serve a request.
    fn begin(&mut self, accepted: &RequestHead, head: Box<head::Request>) -> Option<ServeEnd> {
        if accepted.target.len() > LONGEST_TARGET {
            return Some(ServeEnd::Refused(
                ErrorReply::new(StatusCode::URI_TOO_LONG, Cause::TargetTooLong),
                head,
            ));
        }
        self.asked = ResponseTraits {
            head: head.method == Method::HEAD,
            http10: accepted.version == Http1Version::Http10,
            keep_alive: accepted.keep_alive,
            trailers: head.fields.all(Known::Te).any(takes_trailers),
        };
        let body = self.line.begin(accepted);
        self.exchange.set(Some((self.serve)(IncomingRequest { head, body, protocol: None, refused: None })));
        self.step = RequestStep::Serving;
        None
    }

    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServeEnd>> {
        let Some(exchange) = self.exchange.as_mut().as_pin_mut() else {
            return Poll::Ready(Some(ServeEnd::Done));
        };
        if let Poll::Ready(response) = exchange.poll(cx) {
            self.exchange.set(None);
            self.respond(cx, response);
            return Poll::Ready(None);
        }
        if self.line.takes_continue() {
            self.outbox.text().extend_from_slice(CONTINUE);
        }
        self.take_interim();
        if !self.outbox.is_empty()
            && let Poll::Ready(Err(turn)) = self.poll_send(cx)
        {
            return Poll::Ready(Some(turn));
        }
        self.watch(cx)
    }

    /// Interim responses go before the response that they belong to.
    fn take_interim(&mut self) {
        let interim = self.line.interim.borrow();
        if interim.is_waiting() && self.outbox.text().len() < INTERIM {
            interim.take(self.outbox.text());
        }
    }

    /// Begins to send a response.
    fn respond(&mut self, cx: &mut Context<'_>, response: Response<Reply>) {
        self.take_interim();
        let size = match response.body.length() {
            _ if response.body.is_end_stream() => ReplySize::None,
            Some(length) => ReplySize::Exact(length),
            None => ReplySize::Unknown,
        };
        // Unwanted content that has come is dropped. A server that is still sent content goes on with it; that all
        // of it will have come by the end of the response is not known, so that the client is to send nothing
        // behind it (RFC 9112 §9.3, RFC 9110 §10.1.1).
        let whole = {
            let mut intake = self.line.intake.borrow_mut();
            intake.is_between()
                || !self.line.has_reader() && {
                    // It may have taken a turn.
                    self.pace.end_turn();
                    intake.forget_content(cx)
                }
        };
        let refused = self.line.guard_state.stopped.get() != ReadStop::Not;
        // The request may have been what showed that the connection has to end.
        self.leaving |= self.session.leaves().is_some();
        let keep_alive = self.asked.keep_alive && whole && !refused && !self.leaving;
        let date = &self.session.http.date;
        let written = response::head(self.outbox.text(), &response, size, self.asked, keep_alive, date);
        (self.framing, self.keep_alive) = (written.framing, written.keep_alive);
        self.over = self.framing == Framing::None || size == ReplySize::None;
        self.reply = response.body;
        self.step = RequestStep::Responding;
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServeEnd>> {
        // What came before was taken, or is taken now.
        if !self.line.guard_state.drained.get() {
            match self.poll_send(cx) {
                Poll::Pending => return self.watch(cx),
                Poll::Ready(Err(turn)) => return Poll::Ready(Some(turn)),
                Poll::Ready(Ok(())) => {}
            }
        }
        let fresh = (self.outbox.is_empty() || self.reply.is_at_hand()) && self.direct() > 0;
        let gathered = if fresh { Gathered::Some } else { self.gather(cx) };
        if matches!(gathered, Gathered::Some)
            && let most @ 1.. = self.direct()
        {
            return self.poll_direct(cx, most);
        }
        if !self.outbox.is_empty() {
            match self.poll_send(cx) {
                Poll::Pending => return self.watch(cx),
                Poll::Ready(Err(turn)) => return Poll::Ready(Some(turn)),
                Poll::Ready(Ok(())) => {}
            }
        }
        match gathered {
            Gathered::Some => Poll::Ready(None),
            Gathered::Waiting => self.watch(cx),
            Gathered::All => Poll::Ready(self.finish(cx)),
            Gathered::Broken => Poll::Ready(Some(broken_off())),
        }
    }

    /// Takes what there is of the response's body.
    fn gather(&mut self, cx: &mut Context<'_>) -> Gathered {
        while !self.over {
            if !self.outbox.has_room() {
                return Gathered::Some;
            }
            let frame = match self.poll_frame(cx) {
                Poll::Pending => return Gathered::Waiting,
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(_))) => return Gathered::Broken,
                Poll::Ready(None) => {
                    if self.framing.end(None, &mut self.outbox).is_err() {
                        return Gathered::Broken;
                    }
                    self.over = true;
                    break;
                }
            };
            let outcome = match frame {
                Frame::Data(data) => {
                    self.framing.data(data, &mut self.outbox);
                    if !self.reply.is_end_stream() {
                        continue;
                    }
                    self.framing.end(None, &mut self.outbox)
                }
                Frame::Trailers(trailers) => self.framing.end(Some(&trailers), &mut self.outbox),
            };
            if outcome.is_err() {
                return Gathered::Broken;
            }
            self.over = true;
        }
        Gathered::All
    }

    /// The response has left.
    fn finish(&mut self, cx: &mut Context<'_>) -> Option<ServeEnd> {
        self.reply = Reply::nothing();
        self.loan = None;
        self.line.end();
        if !self.keep_alive || self.line.switch.borrow().is_some() {
            return Some(ServeEnd::Done);
        }
        let mut intake = self.line.intake.borrow_mut();
        if !intake.is_between() {
            self.pace.end_turn();
            if !intake.forget_content(cx) {
                return Some(ServeEnd::Done);
            }
        }
        self.step = RequestStep::Heading;
        None
    }

    /// Sends what is in the outbox, and waits until the kernel has it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServeEnd>> {
        let mut intake = self.line.intake.borrow_mut();
        let mut moved = false;
        let waiting = intake.transport.waiting();
        let sent = self.outbox.poll_send(cx, &mut intake.transport, &mut moved);
        moved |= intake.transport.waiting() < waiting;
        let guard_state = &self.line.guard_state;
        if moved {
            guard_state.moved.set(offramp_net::clock::coarse_ms());
        }
        guard_state.drained.set(sent.is_ready());
        sent.map(|sent| sent.map_err(|error| lost(&mut intake, error)))
    }

    /// Waits for a client that leaves in the middle.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServeEnd>> {
        let mut intake = self.line.intake.borrow_mut();
        // More bytes are content, wanted or not. While the server takes no more, each packet would wake the worker.
        if !intake.is_between() {
            if self.line.is_held_up() {
                intake.transport.socket().pause_reading();
            }
            return Poll::Pending;
        }
        if intake.ended {
            return Poll::Pending;
        }
        ready!(intake.poll_gone(cx));
        // A client that has nothing more to say may still listen (RFC 9112 §9.5). If it does not, writing the
        // response finds out.
        if intake.ended {
            return Poll::Pending;
        }
        let close = Close::from(Cause::ClientAborted).with_detail("the client left before the response had");
        Poll::Ready(Some(ServeEnd::Ended(close)))
    }
}

/// The server's fault: a client that sees the connection end knows that the response is not whole.
fn broken_off() -> ServeEnd {
    ServeEnd::Ended(Close::from(Cause::ServerAborted).with_detail("the response broke off"))
}

/// The client takes nothing more.
fn lost(intake: &mut RequestReader, error: std::io::Error) -> ServeEnd {
    let close = Close::from(Cause::ClientAborted).with_detail(&error.to_string());
    intake.failed.get_or_insert(error);
    ServeEnd::Ended(close)
}

/// Returns true if a client wants to see trailers (RFC 9110 §10.1.4).
fn takes_trailers(value: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn trailers_are_wanted_by_name() {
        for (value, wanted) in [("trailers", true), ("gzip, Trailers", true), ("gzip", false), ("", false)] {
            assert_eq!(super::takes_trailers(value.as_bytes()), wanted, "{value}");
        }
    }
}
