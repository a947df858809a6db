//! Bodies of a route with `bandwidth`: what has come of one passes when it is due, and no more is read meanwhile.
//!
//! A body draws on what the clients of the route share for bytes that it has, so that one that waits for its sender holds
//! nothing of it. The stream or the request waits, not its connection. What it has read ahead is one piece.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use offramp_http::body::Frame;
use offramp_net::pace::{Pace, Way};

use super::body::{BodyError, Reply, Upload};
use super::record::Record;
use crate::snapshot::Bandwidth;

/// How much of a response is read at a time, where its server lets that be chosen.
const PIECE: usize = 16 * 1024;

type Outcome = Poll<Option<Result<Frame, BodyError>>>;

/// What holds the bytes of one direction back.
struct Gate {
    pace: Pace,
    way: Way,
    /// What has come and did not pass yet.
    piece: Bytes,
}

impl Gate {
    fn new(bandwidth: &Bandwidth, way: Way) -> Self {
        Self { pace: bandwidth.pace(), way, piece: Bytes::new() }
    }

    /// Waits until some of the piece may pass, of which there is some.
    fn poll_pass(&mut self, cx: &mut Context<'_>, held: impl FnOnce(u64)) -> Outcome {
        let Poll::Ready(room) = self.pace.poll_room(cx, self.way, self.piece.len()) else {
            held(self.pace.waited_until());
            return Poll::Pending;
        };
        let passed = self.piece.split_to(room);
        self.pace.spend(self.way, passed.len());
        Poll::Ready(Some(Ok(Frame::Data(passed))))
    }

    /// The next part of a body whose parts `poll_frame` gives. Until when one that has come waits is told to `held`.
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        held: impl FnOnce(u64),
        poll_frame: impl FnOnce(&mut Context<'_>) -> Outcome,
    ) -> Outcome {
        if self.piece.is_empty() {
            match ready!(poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) if !data.is_empty() => self.piece = data,
                frame => return Poll::Ready(frame),
            }
        }
        self.poll_pass(cx, held)
    }
}

/// The body of a request that passes as it may.
pub(crate) struct PacedUpload {
    upload: Box<Upload>,
    gate: Gate,
}

impl PacedUpload {
    pub(crate) fn new(upload: Box<Upload>, bandwidth: &Bandwidth) -> Self {
        upload.set_apart();
        Self { upload, gate: Gate::new(bandwidth, Way::In) }
    }

    /// [`Upload::poll_begun`]
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.upload.poll_begun(cx)
    }

    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Outcome {
        let record = Rc::clone(self.upload.record());
        self.gate.poll_frame(cx, |until| record.held_until(until), |cx| self.upload.poll_frame(cx))
    }

    /// Whether nothing is to come.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.gate.piece.is_empty() && self.upload.is_end_stream()
    }

    /// How many bytes of data are to come, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.upload.length().map(|left| left + self.gate.piece.len() as u64)
    }
}

/// The body of a response that passes as it may.
pub(crate) struct PacedReply {
    inner: Reply,
    record: Rc<Record>,
    gate: Gate,
    /// How much memory the frame keeps of which there is a piece.
    memory: usize,
}

impl PacedReply {
    pub(crate) fn new(mut inner: Reply, record: Rc<Record>, bandwidth: &Bandwidth) -> Self {
        inner.limit(PIECE);
        Self { inner, record, gate: Gate::new(bandwidth, Way::Out), memory: 0 }
    }

    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Outcome {
        let (inner, memory, record) = (&mut self.inner, &mut self.memory, &self.record);
        self.gate.poll_frame(
            cx,
            |until| record.held_until(until),
            |cx| {
                let frame = ready!(inner.poll_frame(cx));
                let length = if let Some(Ok(frame)) = &frame { frame.data_len() } else { 0 };
                *memory = length.max(inner.frame_memory());
                Poll::Ready(frame)
            },
        )
    }

    /// Whether nothing is to come.
    pub(crate) fn is_over(&self) -> bool {
        self.gate.piece.is_empty() && self.inner.is_end_stream()
    }

    /// How many bytes of data are to come, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.inner.length().map(|left| left + self.gate.piece.len() as u64)
    }

    /// How much memory is held for what has come and did not go out.
    pub(crate) fn held_memory(&mut self, waits: bool) -> usize {
        let piece = if self.gate.piece.is_empty() { 0 } else { self.memory };
        piece + self.inner.held_memory(waits)
    }

    /// How much memory the frame that came last keeps at the most.
    pub(crate) fn frame_memory(&self) -> usize {
        self.memory
    }

    /// How much a server may have sent ahead; see [`Reply::ahead`].
    pub(crate) fn ahead(&self) -> Option<usize> {
        self.inner.ahead()
    }

    /// How much that may be from now on.
    pub(crate) fn set_ahead(&mut self, most: usize) {
        self.inner.set_ahead(most);
    }

    /// Has the next content read in pieces of about so many bytes at the most.
    pub(crate) fn limit(&mut self, most: usize) {
        self.inner.limit(most.min(PIECE));
    }
}

#[cfg(test)]
mod tests;
