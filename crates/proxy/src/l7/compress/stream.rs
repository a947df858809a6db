//! The content of one response on its way through a compressor.
//!
//! What has come from the server leaves a few milliseconds later at the latest, or at once where it is a stream of
//! events: then the compressor is flushed. Content that comes without a pause is flushed only at its end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use offramp_http::body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Place;
use super::encoder::Encoder;
use crate::l7::body::{BodyError, Reply};

/// How much is compressed before other tasks have their turn: less than a millisecond at a low level.
const TURN: usize = 64 * 1024;
/// How much goes in at a time.
const SLICE: usize = 16 * 1024;
/// How much comes out before it is sent.
const PIECE: usize = 16 * 1024;
/// How long content may wait for more of it. Most of what comes in several reads comes within it, and people do not
/// notice it.
const WAIT: Duration = Duration::from_millis(5);

/// A body that is compressed as it passes.
pub(crate) struct Compressed {
    inner: Reply,
    /// Nothing behind the end.
    encoder: Option<Encoder>,
    /// What has come and was not compressed yet.
    input: Bytes,
    trailers: Option<Frame>,
    /// Whether something has gone in since the last flush.
    unflushed: bool,
    /// Whether nothing may wait.
    live: bool,
    alarm: Option<Pin<Box<Sleep>>>,
    /// The memory of the compressor.
    place: Option<Place>,
}

type Outcome = Poll<Option<Result<Frame, BodyError>>>;

impl Compressed {
    pub(super) fn new(inner: Reply, encoder: Encoder, place: Place, live: bool) -> Self {
        Self {
            inner,
            encoder: Some(encoder),
            input: Bytes::new(),
            trailers: None,
            unflushed: false,
            live,
            alarm: None,
            place: Some(place),
        }
    }

    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Outcome {
        let mut left = TURN;
        loop {
            let Some(encoder) = &mut self.encoder else {
                return Poll::Ready(self.trailers.take().map(Ok));
            };
            if encoder.ready() >= PIECE {
                return piece(encoder.take());
            }
            if !self.input.is_empty() {
                if left == 0 {
                    offramp_net::turn::poll_next(cx);
                    return Poll::Pending;
                }
                let n = self.input.len().min(SLICE).min(left);
                if let Err(error) = encoder.write(&self.input[..n]) {
                    return Poll::Ready(Some(Err(error.into())));
                }
                self.input.advance(n);
                left -= n;
                self.unflushed = true;
                continue;
            }
            match self.inner.poll_frame(cx) {
                Poll::Ready(Some(Ok(Frame::Data(data)))) => self.input = data,
                Poll::Ready(Some(Ok(trailers))) => {
                    self.trailers = Some(trailers);
                    return self.finish();
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return self.finish(),
                Poll::Pending => return self.poll_flush(cx),
            }
        }
    }

    /// All has gone in.
    fn finish(&mut self) -> Outcome {
        self.alarm = None;
        let finished = self.encoder.take().map(Encoder::finish);
        self.place = None;
        match finished {
            Some(Ok(rest)) if !rest.is_empty() => piece(rest),
            Some(Err(error)) => Poll::Ready(Some(Err(error.into()))),
            _ => Poll::Ready(self.trailers.take().map(Ok)),
        }
    }

    /// Nothing has come: what came before goes on, when it has waited long enough.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Outcome {
        let Some(encoder) = self.encoder.as_mut().filter(|_| self.unflushed) else { return Poll::Pending };
        if !self.live {
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + WAIT)));
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        (self.alarm, self.unflushed) = (None, false);
        match encoder.flush() {
            Ok(()) if encoder.ready() > 0 => piece(encoder.take()),
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Some(Err(error.into()))),
        }
    }

    /// Whether nothing is to come.
    pub(crate) fn is_over(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }

    /// How much memory is held for what has come and did not go out.
    pub(crate) fn held_memory(&mut self, waits: bool) -> usize {
        let ready = self.encoder.as_ref().map_or(0, Encoder::ready);
        self.input.len() + ready + self.inner.held_memory(waits)
    }

    /// Has the next content read in pieces of about so many bytes at the most.
    pub(crate) fn limit(&mut self, most: usize) {
        self.inner.limit(most);
    }
}

fn piece(bytes: Vec<u8>) -> Outcome {
    Poll::Ready(Some(Ok(Frame::Data(bytes.into()))))
}
