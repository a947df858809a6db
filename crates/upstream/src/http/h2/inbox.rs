//! Received events of a stream that were not taken yet.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use offramp_http::h2::{Event, Reset};
use offramp_http::head::{Fields, Response};

/// Maximum number of waiting interim responses; further ones are dropped.
const MOST_INTERIM: usize = 8;
/// Data from this size on is referenced instead of copied, unless its read was many times as large and would
/// be retained as a whole. Above the initial window of a stream, so that many unread responses retain no more
/// than their own data.
const LARGE: usize = 12 * 1024;
/// Maximum ratio of read to data: a full read of 64 KiB has four frames of the size that most servers send.
const TIMES: usize = 4;
/// Maximum number of pieces that are kept without a copy, about those of the usual window. With more, the caller
/// is behind anyway, and a large window must not keep more memory than its size.
const MANY: usize = 16;
/// Maximum size of a piece that grows as data is copied into it, in bytes: it may occupy twice its size, and is freed
/// as a whole.
const COPIED: usize = 64 * 1024;

/// Received events. The data is bounded by the window of the stream.
#[derive(Default)]
pub(super) struct Inbox {
    interim: VecDeque<Response>,
    head: Option<Box<FinalHead>>,
    /// Data in order: large pieces, and small ones behind them in one buffer.
    large: VecDeque<Bytes>,
    small: BytesMut,
    trailers: Option<Box<Fields>>,
    /// Set once everything was received.
    pub(super) ended: bool,
    pub(super) reset: Option<Reset>,
    /// Size of the window that the path needs, in bytes; 0 if the current one does not limit the server.
    stalled: u32,
    waker: Option<Waker>,
}

/// Final head of a response, with the length of its content.
pub(crate) struct FinalHead {
    pub(crate) response: Response,
    /// Length of the content, if known.
    pub(crate) length: Option<u64>,
}

impl Inbox {
    /// Stores an event; its data is in `chunk`, if that may be referenced.
    pub(super) fn put(&mut self, event: Event<'_>, chunk: Option<&Bytes>) {
        match event {
            Event::Interim(response) => {
                if self.interim.len() < MOST_INTERIM {
                    self.interim.push_back(response);
                }
            }
            Event::Response { response, length, end } => {
                let length = if end { Some(0) } else { length };
                self.head = Some(Box::new(FinalHead { response, length }));
                self.ended = end;
            }
            Event::Data(data) => self.data(data, chunk),
            Event::End(trailers) => {
                self.trailers = trailers.map(Box::new);
                self.ended = true;
            }
            Event::Reset(reset) => self.reset = Some(reset),
            Event::Stalled(window) => self.stalled = window,
            // The waker serves both directions. Servers send no requests.
            Event::Writable | Event::Request { .. } => {}
        }
        self.wake();
    }

    fn data(&mut self, data: &[u8], chunk: Option<&Bytes>) {
        let keeps = |chunk: &&Bytes| data.len() >= LARGE && data.len() * TIMES >= chunk.len();
        match chunk.filter(|_| self.large.len() < MANY).filter(keeps) {
            Some(chunk) => {
                if !self.small.is_empty() {
                    self.large.push_back(std::mem::take(&mut self.small).freeze());
                }
                self.large.push_back(chunk.slice_ref(data));
            }
            None if self.small.is_empty() => self.small = BytesMut::from(data),
            None if self.small.len() + data.len() > COPIED => {
                let full = std::mem::replace(&mut self.small, BytesMut::from(data));
                self.large.push_back(full.freeze());
            }
            None => self.small.extend_from_slice(data),
        }
    }

    /// Takes the next interim response.
    pub(super) fn take_interim(&mut self) -> Option<Response> {
        self.interim.pop_front()
    }

    /// Takes the final head.
    pub(super) fn take_head(&mut self) -> Option<Box<FinalHead>> {
        self.head.take()
    }

    /// Takes data, at most `most` bytes.
    pub(super) fn take_data(&mut self, most: usize) -> Option<Bytes> {
        if let Some(first) = self.large.front_mut() {
            return if first.len() > most { Some(first.split_to(most)) } else { self.large.pop_front() };
        }
        match self.small.len() {
            0 => None,
            all if all > most => Some(self.small.split_to(most).freeze()),
            _ => Some(std::mem::take(&mut self.small).freeze()),
        }
    }

    /// Takes the size of the window that the path needs, if the current one limits the server.
    pub(super) fn take_stall(&mut self) -> Option<u32> {
        Some(std::mem::take(&mut self.stalled)).filter(|window| *window > 0)
    }

    /// Takes the trailers, behind all data.
    pub(super) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.trailers.take()
    }

    /// Returns true if everything was received and taken.
    pub(super) fn is_taken(&self) -> bool {
        self.ended && self.large.is_empty() && self.small.is_empty() && self.trailers.is_none()
    }

    /// Registers the waker for the next event.
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(inbox: &mut Inbox, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(piece) = inbox.take_data(most) {
            assert!((1..=most).contains(&piece.len()));
            all.extend_from_slice(&piece);
        }
        all
    }

    /// Data stays in order however it arrives and is taken, and small pieces do not retain large chunks.
    #[test]
    fn data_stays_in_order_and_keeps_little() {
        for most in [1, 100, 5000, usize::MAX] {
            let (mut inbox, mut wanted) = (Inbox::default(), Vec::new());
            for turn in 0..50_usize {
                let length = [1, 10, LARGE - 1, LARGE, 3 * LARGE][turn % 5];
                let chunk = Bytes::from(vec![turn as u8; length + turn % 3 * LARGE]);
                inbox.put(Event::Data(&chunk[..length]), (turn % 2 == 0).then_some(&chunk));
                wanted.extend_from_slice(&chunk[..length]);
            }
            assert!(all(&mut inbox, most) == wanted, "{most}");
        }
        let mut inbox = Inbox::default();
        let chunk = Bytes::from(vec![1; 64 * 1024]);
        for at in 0..10 {
            inbox.put(Event::Data(&chunk[at..at + LARGE]), Some(&chunk));
        }
        drop(chunk.clone());
        assert!(chunk.is_unique(), "a part of it is kept");
    }

    #[test]
    fn unread_interim_responses_are_bounded() {
        let mut inbox = Inbox::default();
        for _ in 0..500 {
            inbox.put(Event::Interim(Response::new(http::StatusCode::PROCESSING, ())), None);
        }
        assert_eq!(std::iter::from_fn(|| inbox.take_interim()).count(), MOST_INTERIM);
    }
}
