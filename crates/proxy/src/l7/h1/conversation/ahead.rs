//! Responses of far HTTP/2 servers: the window that their path needs, as far as memory permits.

use std::future::Future;
use std::task::{Context, Poll};

use offramp_http::body::Frame;
use offramp_http::head::Response;
use offramp_upstream::SentAhead;

use super::Conversation;
use crate::l7::body::{BodyError, Reply};
use crate::l7::exchange::IncomingRequest;
use crate::l7::h2::{USUAL_AHEAD, WindowLoan};

impl<S, F> Conversation<'_, S, F>
where
    S: Fn(IncomingRequest) -> F,
    F: Future<Output = Response<Reply>>,
{
    /// Polls the next part of the response.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.reply.ahead() {
            Some(ahead) if ahead.needed > USUAL_AHEAD || self.loan.is_some() => self.poll_far(cx, ahead),
            _ => self.reply.poll_frame(cx),
        }
    }

    #[cold]
    fn poll_far(&mut self, cx: &mut Context<'_>, ahead: SentAhead) -> Poll<Option<Result<Frame, BodyError>>> {
        let view = self.session.view();
        let (memory, most) =
            view.http().map_or((0, 0), |http| (http.limits.memory, http.limits.max_window as usize));
        let loan = self
            .loan
            .get_or_insert_with(|| Box::new(WindowLoan::new(&self.session.http.runners.memory, memory)));
        self.reply.set_ahead(loan.room(ahead, most));
        let frame = self.reply.poll_frame(cx);
        loan.count(self.reply.ahead().map_or(0, |ahead| ahead.allowed));
        frame
    }
}
