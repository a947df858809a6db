//! Bodies of a route with `bandwidth`: what has come of one passes when it is due, and no more is read meanwhile.
//!
//! A body draws on what the clients of the route share for bytes that it has, so that one that waits for its sender holds
//! nothing of it. The stream or the request waits, not its connection. What it has read ahead is one piece.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use offramp_http::body::Frame;
use offramp_net::pace::{BandwidthLimiter, TransferDirection};
use offramp_upstream::SentAhead;

use super::body::{BodyError, PolicedUpload, Reply};
use super::record::RequestRecord;
use crate::snapshot::Bandwidth;

/// Bytes of a response that are read at a time, where its server lets that be chosen.
const PIECE: usize = 16 * 1024;

type Outcome = Poll<Option<Result<Frame, BodyError>>>;

/// Gate that holds the bytes of one direction back.
struct Gate {
    pace: BandwidthLimiter,
    way: TransferDirection,
    /// Content that has come and did not pass yet.
    piece: Bytes,
}

impl Gate {
    fn new(bandwidth: &Bandwidth, way: TransferDirection) -> Self {
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

    /// The next part of a body with parts that `poll_frame` gives. `held` gets the time until when a part that has
    /// come waits.
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
    upload: Box<PolicedUpload>,
    gate: Gate,
}

impl PacedUpload {
    pub(crate) fn new(upload: Box<PolicedUpload>, bandwidth: &Bandwidth) -> Self {
        upload.set_apart();
        Self { upload, gate: Gate::new(bandwidth, TransferDirection::In) }
    }

    /// Waits like [`PolicedUpload::poll_begun`].
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.upload.poll_begun(cx)
    }

    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Outcome {
        let record = Rc::clone(self.upload.record());
        self.gate.poll_frame(cx, |until| record.held_until(until), |cx| self.upload.poll_frame(cx))
    }

    /// Returns true at the end of the body.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.gate.piece.is_empty() && self.upload.is_end_stream()
    }

    /// Number of bytes that are to come, if it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.upload.length().map(|left| left + self.gate.piece.len() as u64)
    }
}

/// The body of a response that passes as it may.
pub(crate) struct PacedReply {
    inner: Reply,
    record: Rc<RequestRecord>,
    gate: Gate,
    /// Memory that the frame keeps of which there is a piece, in bytes.
    memory: usize,
}

impl PacedReply {
    pub(crate) fn new(mut inner: Reply, record: Rc<RequestRecord>, bandwidth: &Bandwidth) -> Self {
        inner.limit(PIECE);
        Self { inner, record, gate: Gate::new(bandwidth, TransferDirection::Out), memory: 0 }
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

    /// Returns true at the end of the body.
    pub(crate) fn is_over(&self) -> bool {
        self.gate.piece.is_empty() && self.inner.is_end_stream()
    }

    /// Number of bytes that are to come, if it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.inner.length().map(|left| left + self.gate.piece.len() as u64)
    }

    /// Memory held for content that did not go out, in bytes.
    pub(crate) fn held_memory(&mut self, waits: bool) -> usize {
        let piece = if self.gate.piece.is_empty() { 0 } else { self.memory };
        piece + self.inner.held_memory(waits)
    }

    /// Maximum memory that the latest frame keeps, in bytes.
    pub(crate) fn frame_memory(&self) -> usize {
        self.memory
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
        self.inner.limit(most.min(PIECE));
    }
}

#[cfg(test)]
mod tests;
