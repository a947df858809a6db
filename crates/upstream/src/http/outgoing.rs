//! How a request comes along on its way to a server, and its body where it may have to be sent again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use offramp_http::body::Frame;
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;

use super::line::RequestBody;

/// How much is kept of what was sent of a body, in bytes: enough for nearly every message of gRPC.
pub(crate) const KEPT: usize = 64 * 1024;
/// How much is kept of all bodies of a worker: beyond it a request is just not sent again.
pub(crate) const ALL_KEPT: usize = 16 * 1024 * 1024;

/// How many bytes of bodies a worker keeps.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes(Cell<usize>);

/// A request's body, for one attempt: tells how it comes along.
#[derive(Debug)]
pub(crate) struct Outgoing<B> {
    body: Option<Rc<Kept<B>>>,
    /// Which attempt this is. An older one gets nothing more.
    attempt: u32,
    progress: Progress,
}

/// A body that may have to be sent again.
#[derive(Debug)]
pub(crate) struct Kept<B> {
    body: RefCell<B>,
    sent: RefCell<Sent>,
    /// Which attempt has the body.
    attempt: Cell<u32>,
    /// What all bodies of the worker come to.
    all: Rc<KeptBytes>,
}

/// What was sent of a body.
#[derive(Debug, Default)]
struct Sent {
    /// Copies of the pieces that were sent before this attempt, and of those behind them. The pieces themselves may be
    /// parts of much larger memory.
    first: Bytes,
    rest: Vec<u8>,
    /// How much memory both have.
    memory: usize,
    trailers: Option<Box<Fields>>,
    /// Whether a piece was ever asked for and came.
    touched: bool,
    /// Whether something that was sent is not here any more.
    lost: bool,
    /// Whether the body has ended.
    ended: bool,
    /// Whether `first` has to be sent, and whether the trailers behind it.
    again: bool,
    trailers_again: bool,
}

/// How a request comes along.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// When the latest piece was taken, in milliseconds of the coarse clock.
    moved: Cell<u64>,
    /// Whether the next piece is not there yet: the wait is the client's, not the server's.
    starved: Cell<bool>,
}

impl Progress {
    /// A request begins.
    pub(crate) fn begin(&self) {
        self.moved.set(coarse_ms());
        self.starved.set(false);
    }

    /// Since when the server is waited for; `None` where the client is.
    pub(crate) fn since(&self) -> Option<u64> {
        (!self.starved.get()).then(|| self.moved.get())
    }

    /// A piece was there, or was taken.
    pub(crate) fn note(&self) {
        self.moved.set(coarse_ms());
        self.starved.set(false);
    }

    /// All that there was is taken, and the next piece is not there yet.
    pub(crate) fn starve(&self) {
        self.starved.set(true);
    }
}

impl<B> Kept<B> {
    /// Nothing was sent; `all` counts what is kept.
    pub(crate) fn new(body: B, all: &Rc<KeptBytes>) -> Rc<Self> {
        Rc::new(Kept {
            body: RefCell::new(body),
            sent: RefCell::default(),
            attempt: Cell::new(0),
            all: Rc::clone(all),
        })
    }

    /// Whether a piece of it was used.
    pub(crate) fn is_touched(&self) -> bool {
        self.sent.borrow().touched
    }

    /// Whether all of it can be sent again.
    pub(crate) fn is_whole(&self) -> bool {
        !self.sent.borrow().lost
    }

    /// It is not sent again.
    pub(crate) fn forget(&self) {
        let mut sent = self.sent.borrow_mut();
        let ended = sent.ended;
        // What is still to be sent again goes out all the same.
        if !sent.again && !sent.trailers_again {
            self.all.give(sent.memory);
            *sent = Sent { touched: true, lost: true, ended, ..Sent::default() };
        } else {
            sent.lost = true;
        }
    }

    /// Begins at the front again; the number of this attempt.
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

impl<B> Drop for Kept<B> {
    fn drop(&mut self) {
        self.all.give(self.sent.borrow().memory);
    }
}

impl KeptBytes {
    /// Keeps `n` bytes more, if there is room for them.
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

impl Sent {
    /// How many bytes of data are kept.
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// What comes next of what was sent before.
    fn next(&mut self) -> Option<Frame> {
        if std::mem::take(&mut self.again) {
            return Some(Frame::Data(self.first.clone()));
        }
        if std::mem::take(&mut self.trailers_again) {
            return self.trailers.clone().map(Frame::Trailers);
        }
        None
    }

    /// Keeps a piece, while that is not too much.
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

    /// Makes room for `more` bytes, if all bodies of the worker leave some.
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

    /// Puts together what was kept.
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
        // It has no more than both had.
        all.give(self.memory - self.first.len());
        self.memory = self.first.len();
    }
}

impl<B> Outgoing<B> {
    /// No body.
    pub(crate) fn empty() -> Self {
        Outgoing { body: None, attempt: 0, progress: Progress::default() }
    }

    /// The next attempt to send `kept`, from its front.
    pub(crate) fn kept(kept: &Rc<Kept<B>>) -> Self {
        Outgoing { attempt: kept.rewind(), body: Some(Rc::clone(kept)), progress: Progress::default() }
    }

    /// How it comes along.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The body, if there is one and this attempt has it.
    fn current(&self) -> Option<&Kept<B>> {
        self.body.as_deref().filter(|kept| kept.attempt.get() == self.attempt)
    }
}

impl<B: RequestBody> Outgoing<B> {
    /// The next piece: what was sent before, and then what follows.
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

    /// Whether nothing more comes.
    pub(crate) fn is_end_stream(&self) -> bool {
        let Some(kept) = self.current() else { return true };
        let sent = kept.sent.borrow();
        !sent.again && !sent.trailers_again && (sent.ended || kept.body.borrow().is_end_stream())
    }

    /// What is known of the length of what comes.
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

    /// A body of these pieces, the last of them trailers where `trailers`.
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

    fn kept(sizes: &[usize], trailers: bool) -> Rc<Kept<Pieces>> {
        let piece = |(at, size): (usize, &usize)| Bytes::from(vec![b'a' + at as u8; *size]);
        Kept::new(Pieces { left: sizes.iter().enumerate().map(piece).collect(), trailers }, &Rc::default())
    }

    /// However many bodies there are, only so much of them is kept; the others are sent all the same.
    #[test]
    fn all_bodies_of_a_worker_are_bounded_together() {
        let all: Rc<KeptBytes> = Rc::default();
        let body = || {
            let left = [Bytes::from(vec![1; KEPT / 2]), Bytes::from(vec![2; KEPT / 2])].into();
            let kept = Kept::new(Pieces { left, trailers: false }, &all);
            let sent = read(&mut Outgoing::kept(&kept), 3);
            assert_eq!((sent.0.len(), sent.2), (KEPT, true));
            kept
        };
        let mut bodies: Vec<_> = (0..300).map(|_| body()).collect();
        assert_eq!(bodies.iter().filter(|kept| kept.is_whole()).count(), ALL_KEPT / KEPT);
        assert_eq!(all.0.get(), ALL_KEPT);
        // The response has begun, or the request is over: there is room for another.
        bodies[0].forget();
        bodies[1].forget();
        bodies.truncate(254);
        assert_eq!(all.0.get(), ALL_KEPT - 4 * KEPT);
        assert!(body().is_whole());
        drop(bodies);
        assert_eq!(all.0.get(), 0);
    }

    /// Up to so many frames of an attempt: the data, and whether trailers or the end came.
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
    fn what_was_sent_is_sent_again_and_then_the_rest() {
        let whole = [b"aaa".as_slice(), b"bb", b"c"].concat();
        for trailers in [false, true] {
            for used in 0..6 {
                let kept = kept(&[3, 2, 1], trailers);
                let mut first = Outgoing::kept(&kept);
                read(&mut first, used);
                assert_eq!((kept.is_touched(), kept.is_whole()), (used > 0, true));
                let mut second = Outgoing::kept(&kept);
                assert_eq!(read(&mut second, 1).0.len(), [3, 3, 5, 6, 6, 6][used]);
                // A third time, from the middle of the second.
                let mut third = Outgoing::kept(&kept);
                assert_eq!(read(&mut third, 9), (whole.clone(), trailers, true), "{used}");
                // The older ones get nothing more, and take nothing.
                assert_eq!(read(&mut first, 9), (Vec::new(), false, true));
                assert!(third.is_end_stream() && second.is_end_stream());
            }
        }
    }

    /// Memory that tells when it is gone.
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

    /// A piece may be a small part of large memory, which is not held on to.
    #[test]
    fn what_is_kept_holds_on_to_nothing_larger() {
        let gone = Arc::new(AtomicBool::new(false));
        let large = Bytes::from_owner(Large(vec![b'a'; 1 << 20], Arc::clone(&gone)));
        let left = [large.slice(5..15), large.slice(20..1020)].into();
        drop(large);
        let all: Rc<KeptBytes> = Rc::default();
        let kept = Kept::new(Pieces { left, trailers: false }, &all);
        let mut outgoing = Outgoing::kept(&kept);
        assert_eq!(read(&mut outgoing, 3).0.len(), 1010);
        assert!(gone.load(Ordering::Relaxed), "a MiB is held for ten bytes");
        assert!((1010..2100).contains(&all.0.get()), "{} are counted", all.0.get());
        assert_eq!(read(&mut Outgoing::kept(&kept), 3).0, [b'a'; 1010]);
        drop((kept, outgoing));
        assert_eq!(all.0.get(), 0);
    }

    #[test]
    fn what_is_kept_is_bounded_and_let_go() {
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
