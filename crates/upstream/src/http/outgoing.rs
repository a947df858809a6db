//! Progress of a request on its way to a server, and its body, which may have to be sent again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use offramp_http::body::Frame;
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;

use super::line::RequestBody;

/// Maximum bytes kept of a sent body: enough for nearly every gRPC message.
pub(crate) const KEPT: usize = 64 * 1024;
/// Maximum bytes kept of all bodies of a worker: beyond it requests are not sent again.
pub(crate) const ALL_KEPT: usize = 16 * 1024 * 1024;

/// Bytes of bodies kept by a worker.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes(Cell<usize>);

/// Body of a request for one attempt, with its progress.
#[derive(Debug)]
pub(crate) struct Outgoing<B> {
    body: Option<Rc<ReplayableBody<B>>>,
    /// Number of the attempt. Older ones get no more data.
    attempt: u32,
    progress: SendProgress,
}

/// A body that may have to be sent again.
#[derive(Debug)]
pub(crate) struct ReplayableBody<B> {
    body: RefCell<B>,
    sent: RefCell<SentCopy>,
    /// Number of the attempt that has the body.
    attempt: Cell<u32>,
    /// Bytes kept of all bodies of the worker.
    all: Rc<KeptBytes>,
}

/// Sent part of a body.
#[derive(Debug, Default)]
struct SentCopy {
    /// Copies of the pieces sent before this attempt, and of those behind them. The pieces themselves may be
    /// slices of much larger memory.
    first: Bytes,
    rest: Vec<u8>,
    /// Memory of both, in bytes.
    memory: usize,
    trailers: Option<Box<Fields>>,
    /// Set once a piece was returned.
    touched: bool,
    /// Set if a part that was sent is not kept any more.
    lost: bool,
    /// Set once the body has ended.
    ended: bool,
    /// Set if `first` has to be sent, and if the trailers behind it have to be.
    again: bool,
    trailers_again: bool,
}

/// Progress of a request.
#[derive(Debug, Default)]
pub(crate) struct SendProgress {
    /// Time when the latest piece was accepted, in milliseconds of the coarse clock.
    moved: Cell<u64>,
    /// Set while the next piece is missing: the client is awaited, not the server.
    starved: Cell<bool>,
}

impl SendProgress {
    /// Starts a request: the server is awaited from now.
    pub(crate) fn begin(&self) {
        self.moved.set(coarse_ms());
        self.starved.set(false);
    }

    /// Time since which the server is awaited; `None` while the client is.
    pub(crate) fn since(&self) -> Option<u64> {
        (!self.starved.get()).then(|| self.moved.get())
    }

    /// Records a piece that was available, or accepted.
    pub(crate) fn note(&self) {
        self.moved.set(coarse_ms());
        self.starved.set(false);
    }

    /// Records that everything was accepted and the next piece is missing.
    pub(crate) fn starve(&self) {
        self.starved.set(true);
    }
}

impl<B> ReplayableBody<B> {
    /// Keeps a body of which nothing was sent; `all` counts the kept bytes.
    pub(crate) fn new(body: B, all: &Rc<KeptBytes>) -> Rc<Self> {
        Rc::new(ReplayableBody {
            body: RefCell::new(body),
            sent: RefCell::default(),
            attempt: Cell::new(0),
            all: Rc::clone(all),
        })
    }

    /// Returns true if a piece of it was used.
    pub(crate) fn is_touched(&self) -> bool {
        self.sent.borrow().touched
    }

    /// Returns true if all of it can be sent again.
    pub(crate) fn is_whole(&self) -> bool {
        !self.sent.borrow().lost
    }

    /// Releases the copies: it will not be sent again.
    pub(crate) fn forget(&self) {
        let mut sent = self.sent.borrow_mut();
        let ended = sent.ended;
        // A repetition in progress continues.
        if !sent.again && !sent.trailers_again {
            self.all.give(sent.memory);
            *sent = SentCopy { touched: true, lost: true, ended, ..SentCopy::default() };
        } else {
            sent.lost = true;
        }
    }

    /// Rewinds to the front; returns the number of the new attempt.
    fn rewind(&self) -> u32 {
        let mut sent = self.sent.borrow_mut();
        sent.join(&self.all);
        sent.again = !sent.first.is_empty();
        sent.trailers_again = sent.trailers.is_some();
        drop(sent);
        self.attempt.set(self.attempt.get() + 1);
        self.attempt.get()
    }
}

impl<B> Drop for ReplayableBody<B> {
    fn drop(&mut self) {
        self.all.give(self.sent.borrow().memory);
    }
}

impl KeptBytes {
    /// Reserves `n` bytes, if the bound permits.
    fn take(&self, n: usize) -> bool {
        let more = self.0.get() + n;
        if more <= ALL_KEPT {
            self.0.set(more);
        }
        more <= ALL_KEPT
    }

    fn give(&self, n: usize) {
        self.0.set(self.0.get() - n);
    }
}

impl SentCopy {
    /// Bytes of data kept.
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Returns the next part of what was sent before.
    fn next(&mut self) -> Option<Frame> {
        if std::mem::take(&mut self.again) {
            return Some(Frame::Data(self.first.clone()));
        }
        if std::mem::take(&mut self.trailers_again) {
            return self.trailers.clone().map(Frame::Trailers);
        }
        None
    }

    /// Keeps a piece, within the bounds.
    fn keep(&mut self, frame: &Frame, all: &KeptBytes) {
        self.touched = true;
        if self.lost {
            return;
        }
        let data = match frame {
            Frame::Data(data) => data,
            Frame::Trailers(trailers) => {
                self.trailers = Some(trailers.clone());
                self.ended = true;
                return;
            }
        };
        if self.len() + data.len() > KEPT || !self.has_room(data.len(), all) {
            all.give(self.memory);
            (self.first, self.rest, self.memory, self.lost) = (Bytes::new(), Vec::new(), 0, true);
        } else {
            self.rest.extend_from_slice(data);
        }
    }

    /// Reserves memory for `more` bytes, within the bound of the worker.
    fn has_room(&mut self, more: usize, all: &KeptBytes) -> bool {
        let (before, wanted) = (self.rest.capacity(), self.rest.len() + more);
        if wanted > before {
            let room = wanted.max(2 * before).min(KEPT);
            if !all.take(room - before) {
                return false;
            }
            self.rest.reserve_exact(room - self.rest.len());
            self.memory += room - before;
        }
        true
    }

    /// Joins the kept pieces.
    fn join(&mut self, all: &KeptBytes) {
        if self.rest.is_empty() {
            return;
        }
        let rest = std::mem::take(&mut self.rest);
        if self.first.is_empty() {
            self.first = rest.into();
            return;
        }
        self.first = [&self.first[..], &rest].concat().into();
        // The joined memory is not larger than both.
        all.give(self.memory - self.first.len());
        self.memory = self.first.len();
    }
}

impl<B> Outgoing<B> {
    /// No body to send.
    pub(crate) fn empty() -> Self {
        Outgoing { body: None, attempt: 0, progress: SendProgress::default() }
    }

    /// Starts the next attempt to send `kept`, from its front.
    pub(crate) fn kept(kept: &Rc<ReplayableBody<B>>) -> Self {
        Outgoing { attempt: kept.rewind(), body: Some(Rc::clone(kept)), progress: SendProgress::default() }
    }

    /// Progress of the request.
    pub(crate) fn progress(&self) -> &SendProgress {
        &self.progress
    }

    /// The body, if there is one and this is its current attempt.
    fn current(&self) -> Option<&ReplayableBody<B>> {
        self.body.as_deref().filter(|kept| kept.attempt.get() == self.attempt)
    }
}

impl<B: RequestBody> Outgoing<B> {
    /// Returns the next piece: first what was sent before, then the rest.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, B::Error>>> {
        let frame = match self.current() {
            None => Poll::Ready(None),
            Some(kept) => {
                let sent = &mut *kept.sent.borrow_mut();
                match sent.next() {
                    Some(frame) => Poll::Ready(Some(Ok(frame))),
                    None if sent.ended => Poll::Ready(None),
                    None => {
                        let frame = kept.body.borrow_mut().poll_frame(cx);
                        match &frame {
                            Poll::Ready(Some(Ok(frame))) => sent.keep(frame, &kept.all),
                            Poll::Ready(Some(Err(_))) => (sent.touched, sent.lost) = (true, true),
                            Poll::Ready(None) => (sent.touched, sent.ended) = (true, true),
                            Poll::Pending => {}
                        }
                        frame
                    }
                }
            }
        };
        self.progress.starved.set(frame.is_pending());
        if frame.is_ready() {
            self.progress.moved.set(coarse_ms());
        }
        frame
    }

    /// Returns true if nothing follows.
    pub(crate) fn is_end_stream(&self) -> bool {
        let Some(kept) = self.current() else { return true };
        let sent = kept.sent.borrow();
        !sent.again && !sent.trailers_again && (sent.ended || kept.body.borrow().is_end_stream())
    }

    /// Remaining length, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        let Some(kept) = self.current() else { return Some(0) };
        let sent = kept.sent.borrow();
        let before = if sent.again { sent.first.len() as u64 } else { 0 };
        let rest = if sent.ended { Some(0) } else { kept.body.borrow().length() };
        rest.map(|rest| rest.saturating_add(before))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    use super::*;

    /// A body of these pieces, with trailers if `trailers` is set.
    struct Pieces {
        left: VecDeque<Bytes>,
        trailers: bool,
    }

    impl RequestBody for Pieces {
        type Error = Infallible;

        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Infallible>>> {
            if let Some(piece) = self.left.pop_front() {
                return Poll::Ready(Some(Ok(Frame::Data(piece))));
            }
            let trailers = std::mem::take(&mut self.trailers).then(Box::default);
            Poll::Ready(trailers.map(|trailers| Ok(Frame::Trailers(trailers))))
        }

        fn is_end_stream(&self) -> bool {
            false
        }

        fn length(&self) -> Option<u64> {
            None
        }
    }

    fn kept(sizes: &[usize], trailers: bool) -> Rc<ReplayableBody<Pieces>> {
        let piece = |(at, size): (usize, &usize)| Bytes::from(vec![b'a' + at as u8; *size]);
        ReplayableBody::new(
            Pieces { left: sizes.iter().enumerate().map(piece).collect(), trailers },
            &Rc::default(),
        )
    }

    /// With any number of bodies, the kept bytes are bounded; the others are sent all the same.
    #[test]
    fn all_bodies_of_a_worker_are_bounded_together() {
        let all: Rc<KeptBytes> = Rc::default();
        let body = || {
            let left = [Bytes::from(vec![1; KEPT / 2]), Bytes::from(vec![2; KEPT / 2])].into();
            let kept = ReplayableBody::new(Pieces { left, trailers: false }, &all);
            let sent = read(&mut Outgoing::kept(&kept), 3);
            assert_eq!((sent.0.len(), sent.2), (KEPT, true));
            kept
        };
        let mut bodies: Vec<_> = (0..300).map(|_| body()).collect();
        assert_eq!(bodies.iter().filter(|kept| kept.is_whole()).count(), ALL_KEPT / KEPT);
        assert_eq!(all.0.get(), ALL_KEPT);
        // The response has begun, or the request is over: the next body can be kept.
        bodies[0].forget();
        bodies[1].forget();
        bodies.truncate(254);
        assert_eq!(all.0.get(), ALL_KEPT - 4 * KEPT);
        assert!(body().is_whole());
        drop(bodies);
        assert_eq!(all.0.get(), 0);
    }

    /// At most `most` frames of an attempt: the data, and flags for trailers and the end.
    fn read(outgoing: &mut Outgoing<Pieces>, most: usize) -> (Vec<u8>, bool, bool) {
        let (mut data, mut trailers) = (Vec::new(), false);
        for _ in 0..most {
            let frame = outgoing.poll_frame(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(frame) = frame else { panic!("it waits") };
            match frame.map(|frame| frame.unwrap().into_data()) {
                None => return (data, trailers, true),
                Some(Ok(piece)) => data.extend_from_slice(&piece),
                Some(Err(_)) => trailers = true,
            }
        }
        (data, trailers, false)
    }

    #[test]
    fn a_retry_sends_the_kept_part_and_then_the_rest() {
        let whole = [b"aaa".as_slice(), b"bb", b"c"].concat();
        for trailers in [false, true] {
            for used in 0..6 {
                let kept = kept(&[3, 2, 1], trailers);
                let mut first = Outgoing::kept(&kept);
                read(&mut first, used);
                assert_eq!((kept.is_touched(), kept.is_whole()), (used > 0, true));
                let mut second = Outgoing::kept(&kept);
                assert_eq!(read(&mut second, 1).0.len(), [3, 3, 5, 6, 6, 6][used]);
                // A third attempt, from the middle of the second.
                let mut third = Outgoing::kept(&kept);
                assert_eq!(read(&mut third, 9), (whole.clone(), trailers, true), "{used}");
                // Older attempts get no data, and consume none.
                assert_eq!(read(&mut first, 9), (Vec::new(), false, true));
                assert!(third.is_end_stream() && second.is_end_stream());
            }
        }
    }

    /// Memory that reports when it is freed.
    struct Large(Vec<u8>, Arc<AtomicBool>);

    impl AsRef<[u8]> for Large {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Large {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }

    /// A piece may be a small slice of large memory, which must not be retained.
    #[test]
    fn kept_pieces_do_not_retain_larger_memory() {
        let gone = Arc::new(AtomicBool::new(false));
        let large = Bytes::from_owner(Large(vec![b'a'; 1 << 20], Arc::clone(&gone)));
        let left = [large.slice(5..15), large.slice(20..1020)].into();
        drop(large);
        let all: Rc<KeptBytes> = Rc::default();
        let kept = ReplayableBody::new(Pieces { left, trailers: false }, &all);
        let mut outgoing = Outgoing::kept(&kept);
        assert_eq!(read(&mut outgoing, 3).0.len(), 1010);
        assert!(gone.load(Ordering::Relaxed), "a MiB is held for ten bytes");
        assert!((1010..2100).contains(&all.0.get()), "{} are counted", all.0.get());
        assert_eq!(read(&mut Outgoing::kept(&kept), 3).0, [b'a'; 1010]);
        drop((kept, outgoing));
        assert_eq!(all.0.get(), 0);
    }

    #[test]
    fn kept_bytes_are_bounded_and_released() {
        let fits = kept(&[KEPT - 1, 1], false);
        read(&mut Outgoing::kept(&fits), 9);
        assert!(fits.is_whole());
        let large = kept(&[KEPT, 1, 5], false);
        let mut outgoing = Outgoing::kept(&large);
        read(&mut outgoing, 2);
        assert!(!large.is_whole());
        assert_eq!(large.sent.borrow().first.len() + large.sent.borrow().rest.capacity(), 0);
        assert_eq!((large.sent.borrow().memory, large.all.0.get()), (0, 0));
        assert_eq!(read(&mut outgoing, 9).0.len(), 5, "the body itself goes on");
        let settled = kept(&[3, 2], false);
        let mut outgoing = Outgoing::kept(&settled);
        read(&mut outgoing, 1);
        settled.forget();
        assert_eq!(read(&mut outgoing, 9), (b"bb".to_vec(), false, true));
        assert!(!settled.is_whole() && settled.sent.borrow().first.is_empty());
    }
}
