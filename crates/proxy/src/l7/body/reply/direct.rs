//! The body of a response that is read straight to where it is needed.

use std::io::IoSliceMut;
use std::task::{Context, Poll, ready};

use offramp_upstream::{FIRST_READ, SentAhead};

use super::{BodyError, Reply, ReplyContent};

impl Reply {
    /// The bytes that can be read with [`Reply::poll_into`] now; 0 where the next frame has to be asked for.
    pub(crate) fn direct(&self) -> u64 {
        match &self.content {
            ReplyContent::Server(body) => body.direct(),
            ReplyContent::File(content) => content.direct(),
            _ => 0,
        }
    }

    /// The first bytes can be read at once, without a wait for a server.
    pub(crate) fn is_at_hand(&self) -> bool {
        matches!(self.content, ReplyContent::File(_))
    }

    /// Memory held for what was read and did not come out yet, in bytes. `waits`: content waits for the client.
    pub(crate) fn held_memory(&mut self, waits: bool) -> usize {
        match &mut self.content {
            ReplyContent::Server(body) => body.held_memory(waits),
            ReplyContent::Bounded(bounded) => bounded.body.held_memory(waits),
            ReplyContent::File(content) => content.held_memory(),
            ReplyContent::Compressed(body) => body.held_memory(waits),
            ReplyContent::Paced(body) => body.held_memory(waits),
            _ => 0,
        }
    }

    /// Maximum memory that the latest frame keeps, in bytes, if that is more than the frame.
    pub(crate) fn frame_memory(&self) -> usize {
        match &self.content {
            ReplyContent::Server(body) => body.frame_memory(),
            ReplyContent::Bounded(bounded) => bounded.body.frame_memory(),
            ReplyContent::Compressed(body) => body.frame_memory(),
            ReplyContent::Paced(body) => body.frame_memory(),
            _ => 0,
        }
    }

    /// Bytes that an HTTP/2 server may send ahead, beyond the first read of a response; `None` for a body from
    /// elsewhere, and where the first read suffices.
    pub(crate) fn ahead(&self) -> Option<SentAhead> {
        match &self.content {
            ReplyContent::Server(body) => body.ahead(),
            ReplyContent::Bounded(bounded) => bounded.body.ahead(),
            ReplyContent::Compressed(body) => body.ahead(),
            ReplyContent::Paced(body) => body.ahead(),
            _ => None,
        }
    }

    /// Sets the number of bytes that may be sent ahead.
    pub(crate) fn set_ahead(&mut self, most: usize) {
        match &mut self.content {
            ReplyContent::Server(body) => body.set_ahead(FIRST_READ + most),
            ReplyContent::Bounded(bounded) => bounded.body.set_ahead(FIRST_READ + most),
            ReplyContent::Compressed(body) => body.set_ahead(most),
            ReplyContent::Paced(body) => body.set_ahead(most),
            _ => {}
        }
    }

    /// Has the next frames read in pieces of about so many bytes at the most.
    pub(crate) fn limit(&mut self, most: usize) {
        match &mut self.content {
            ReplyContent::Server(body) => body.limit(most),
            ReplyContent::Bounded(bounded) => bounded.body.limit(most),
            ReplyContent::File(content) => content.limit(most),
            ReplyContent::Compressed(body) => body.limit(most),
            ReplyContent::Paced(body) => body.limit(most),
            _ => {}
        }
    }

    /// Reads data straight into `slots`, in order, and tells how much. They have room for 1 to [`Reply::direct`]
    /// bytes.
    pub(crate) fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<Result<usize, BodyError>> {
        if let ReplyContent::File(content) = &mut self.content {
            let outcome = ready!(content.poll_into(cx, slots));
            let over = content.left() == 0;
            return Poll::Ready(match outcome {
                Ok(n) => {
                    self.sent(n);
                    if over {
                        self.end();
                    }
                    Ok(n)
                }
                Err(error) => Err(self.file_failed(error)),
            });
        }
        let ReplyContent::Server(body) = &mut self.content else {
            return Poll::Ready(Err("there is nothing to read from".into()));
        };
        Poll::Ready(match ready!(body.poll_into(cx, slots)) {
            Ok(n) => {
                let over = body.is_end_stream();
                self.sent(n);
                if over {
                    self.end();
                }
                Ok(n)
            }
            Err(error) => {
                let error: BodyError = error.into();
                self.broken(&error);
                Err(error)
            }
        })
    }
}
