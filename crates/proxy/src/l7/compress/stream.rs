//! The content of one response on its way through a compressor.
//!
//! What has come from the server leaves a few milliseconds later at the latest, or at once where it is a stream of
//! events: then the compressor is flushed. Content that comes without a pause is flushed only at its end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use offramp_http::body::Frame;
use offramp_upstream::SentAhead;
use tokio::time::{Instant, Sleep, sleep_until};

use super::CompressorSlot;
use super::encoder::Encoder;
use crate::l7::body::{BodyError, Reply};

/// Bytes that are compressed before other tasks have their turn: less than a millisecond at a low level.
const TURN: usize = 64 * 1024;
/// Bytes that go in at a time.
const SLICE: usize = 16 * 1024;
/// Bytes that come out before they are sent.
const PIECE: usize = 16 * 1024;
/// Maximum wait of content for more of it. Most content that takes several reads comes within it, and people do not
/// notice it.
const WAIT: Duration = Duration::from_millis(5);

/// A body that is compressed as it passes.
pub(crate) struct Compressed {
    inner: Reply,
    /// Nothing behind the end.
    encoder: Option<Encoder>,
    /// Content that was not compressed yet.
    input: Bytes,
    trailers: Option<Frame>,
    /// Set if content has gone in since the last flush.
    unflushed: bool,
    /// Set if nothing may wait.
    live: bool,
    alarm: Option<Pin<Box<Sleep>>>,
    /// Bytes that went in since others last had their turn.
    spent: usize,
    /// Memory that the latest piece keeps, in bytes.
    piece: usize,
    /// The memory of the compressor.
    place: Option<CompressorSlot>,
}

type Outcome = Poll<Option<Result<Frame, BodyError>>>;

impl Compressed {
    pub(super) fn new(inner: Reply, encoder: Encoder, place: CompressorSlot, live: bool) -> Self {
        Self {
            inner,
            encoder: Some(encoder),
            input: Bytes::new(),
            trailers: None,
            unflushed: false,
            live,
            alarm: None,
            spent: 0,
            piece: 0,
            place: Some(place),
        }
    }

    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Outcome {
        loop {
            let Some(encoder) = &mut self.encoder else {
                return Poll::Ready(self.trailers.take().map(Ok));
            };
            if encoder.ready() >= PIECE {
                let piece = encoder.take();
                return self.piece(piece);
            }
            if !self.input.is_empty() {
                // Also where a client takes each piece at once and asks for the next.
                if self.spent >= TURN {
                    self.spent = 0;
                    offramp_net::turn::poll_next(cx);
                    return Poll::Pending;
                }
                let n = self.input.len().min(SLICE);
                if let Err(error) = encoder.write(&self.input[..n]) {
                    return Poll::Ready(Some(Err(error.into())));
                }
                self.input.advance(n);
                self.spent += n;
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
        let place = self.place.take();
        match self.encoder.take().map(Encoder::finish) {
            Some(Ok((rest, machine))) => {
                if let Some(place) = place {
                    place.finished(machine);
                }
                if rest.is_empty() { Poll::Ready(self.trailers.take().map(Ok)) } else { self.piece(rest) }
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error.into()))),
            None => Poll::Ready(self.trailers.take().map(Ok)),
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
        (self.alarm, self.unflushed, self.spent) = (None, false, 0);
        match encoder.flush() {
            Ok(()) if encoder.ready() > 0 => {
                let piece = encoder.take();
                self.piece(piece)
            }
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Some(Err(error.into()))),
        }
    }

    /// Returns true at the end of the content.
    pub(crate) fn is_over(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }

    /// Memory held for content that did not go out, in bytes.
    pub(crate) fn held_memory(&mut self, waits: bool) -> usize {
        let ready = self.encoder.as_ref().map_or(0, Encoder::ready);
        // What is left of a frame keeps all of it.
        let input = if self.input.is_empty() { 0 } else { self.inner.frame_memory().max(self.input.len()) };
        input + ready + self.inner.held_memory(waits)
    }

    /// Maximum memory that the latest frame keeps, in bytes.
    pub(crate) fn frame_memory(&self) -> usize {
        self.piece
    }

    /// Bytes that a server may send ahead; see [`Reply::ahead`].
    pub(crate) fn ahead(&self) -> Option<SentAhead> {
        self.inner.ahead()
    }

    /// Sets the number of bytes that may be sent ahead.
    pub(crate) fn set_ahead(&mut self, most: usize) {
        self.inner.set_ahead(most);
    }

    /// Has the next content read in pieces of about so many bytes at the most.
    pub(crate) fn limit(&mut self, most: usize) {
        self.inner.limit(most);
    }

    fn piece(&mut self, bytes: Vec<u8>) -> Outcome {
        self.piece = bytes.capacity();
        Poll::Ready(Some(Ok(Frame::Data(bytes.into()))))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use offramp_http::semantics::accept_encoding::Coding;

    use super::super::Compressors;
    use super::*;

    /// How much goes in before others have their turn, of content that cannot be compressed and of content that can,
    /// whatever comes out and is taken at once.
    #[test]
    fn the_work_of_a_turn_is_bounded() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..1 << 20).map(|_| noise()).collect();
        for content in [vec![b'a'; 1 << 20], noise] {
            for coding in [Coding::Gzip, Coding::Zstd, Coding::Brotli] {
                let encoder = Encoder::new(coding, 1, None, None).unwrap();
                let place = Compressors::default().take(coding, usize::MAX).unwrap();
                let inner = Reply::of(content.clone().into());
                let mut body = Compressed::new(inner, encoder, place, false);
                let mut cx = Context::from_waker(Waker::noop());
                let (mut left, mut turns) = (content.len(), 1);
                while !body.is_over() {
                    if body.poll_frame(&mut cx).is_pending() {
                        let gone = left - body.input.len();
                        assert!(gone <= TURN, "{gone} bytes of {coding:?} in a turn");
                        (left, turns) = (body.input.len(), turns + 1);
                    }
                }
                assert_eq!(turns, content.len() / TURN, "{coding:?}");
            }
        }
    }
}
