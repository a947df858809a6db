//! What has come on a stream and was not taken yet.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use offramp_http::h2::{Event, Reset};
use offramp_http::head::{Fields, Response};

/// The most interim responses that wait. Nobody misses those behind them.
const MOST_INTERIM: usize = 8;
/// Data from this size on is not copied, if what was read at once is not many times as large: it would keep all of that.
/// More than the first window of a stream, so that many responses that nobody reads keep no more than their own.
const LARGE: usize = 12 * 1024;
/// How many times: a full read of 64 KiB has four frames of the size that most servers send.
const TIMES: usize = 4;

/// What has come. Its data is bounded by the window of the stream.
#[derive(Default)]
pub(super) struct Inbox {
    interim: VecDeque<Response>,
    head: Option<Box<Head>>,
    /// Data in its order: large pieces, and behind them small ones as one.
    large: VecDeque<Bytes>,
    small: BytesMut,
    trailers: Option<Box<Fields>>,
    /// Whether all has come.
    pub(super) ended: bool,
    pub(super) reset: Option<Reset>,
    waker: Option<Waker>,
}

/// The final head of a response, and what is known of its content.
pub(crate) struct Head {
    pub(crate) response: Response,
    /// The length of the content, where it is known.
    pub(crate) length: Option<u64>,
}

impl Inbox {
    /// Takes in what has come; data lies in `chunk`, if that may be kept.
    pub(super) fn put(&mut self, event: Event<'_>, chunk: Option<&Bytes>) {
        match event {
            Event::Interim(response) => {
                if self.interim.len() < MOST_INTERIM {
                    self.interim.push_back(response);
                }
            }
            Event::Response { response, length, end } => {
                let length = if end { Some(0) } else { length };
                self.head = Some(Box::new(Head { response, length }));
                self.ended = end;
            }
            Event::Data(data) => self.data(data, chunk),
            Event::End(trailers) => {
                self.trailers = trailers.map(Box::new);
                self.ended = true;
            }
            Event::Reset(reset) => self.reset = Some(reset),
            // The waker is for both directions. A server asks for nothing.
            Event::Writable | Event::Request { .. } => {}
        }
        self.wake();
    }

    fn data(&mut self, data: &[u8], chunk: Option<&Bytes>) {
        match chunk.filter(|chunk| data.len() >= LARGE && data.len() * TIMES >= chunk.len()) {
            Some(chunk) => {
                if !self.small.is_empty() {
                    self.large.push_back(std::mem::take(&mut self.small).freeze());
                }
                self.large.push_back(chunk.slice_ref(data));
            }
            None if self.small.is_empty() => self.small = BytesMut::from(data),
            None => self.small.extend_from_slice(data),
        }
    }

    /// The next interim response.
    pub(super) fn take_interim(&mut self) -> Option<Response> {
        self.interim.pop_front()
    }

    /// The final head.
    pub(super) fn take_head(&mut self) -> Option<Box<Head>> {
        self.head.take()
    }

    /// Data, at most `most` bytes of it.
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

    /// The trailers, behind all data.
    pub(super) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.trailers.take()
    }

    /// Whether all has come and was taken.
    pub(super) fn is_taken(&self) -> bool {
        self.ended && self.large.is_empty() && self.small.is_empty() && self.trailers.is_none()
    }

    /// Who is woken when something comes.
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

    /// However data comes and is taken, it stays in order, and small pieces of large chunks do not keep these.
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
    fn interim_responses_that_nobody_takes_do_not_pile_up() {
        let mut inbox = Inbox::default();
        for _ in 0..500 {
            inbox.put(Event::Interim(Response::new(http::StatusCode::PROCESSING, ())), None);
        }
        assert_eq!(std::iter::from_fn(|| inbox.take_interim()).count(), MOST_INTERIM);
    }
}
