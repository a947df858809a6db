//! Callbacks of a connection to its owner.

use super::Event;
use crate::head::Request;

/// Receives the events of a [`Connection`](super::Connection) while it processes bytes, and answers requests
/// for memory. Any closure over events implements it.
pub trait Handler<T> {
    /// Handles an event of a stream.
    fn event(&mut self, id: u32, user: &mut T, event: Event<'_>);

    /// Provides memory for the head of a request (server).
    fn head(&mut self) -> Box<Request> {
        Box::default()
    }

    /// Takes back an unused head.
    fn put_back(&mut self, head: Box<Request>) {
        drop(head);
    }

    /// Decides if another request is admitted (server).
    fn admit(&mut self, _: Asked) -> Admission {
        Admission::Admitted
    }

    /// Decides if trailers of a request, of `size` bytes, are admitted while `streams` streams are known
    /// (server).
    fn admit_trailers(&mut self, _user: &mut T, _size: usize, _streams: usize) -> bool {
        true
    }

    /// Grants growth of the windows, at most `more` bytes: they limit the peer (server).
    fn grow(&mut self, _more: usize) -> usize {
        0
    }

    /// Accounts work that was done.
    #[inline]
    fn spend(&mut self, _: Cost) {}

    /// Returns true if processing is to pause, because other tasks have their turn.
    #[inline]
    fn is_over(&self) -> bool {
        false
    }

    /// Time for which the stream has waited to send, in milliseconds. Called if streams have priorities.
    fn waits(&self, _: &T) -> u64 {
        0
    }
}

impl<T> Handler<T> for dyn FnMut(u32, &mut T, Event<'_>) + '_ {
    #[inline]
    fn event(&mut self, id: u32, user: &mut T, event: Event<'_>) {
        self(id, user, event);
    }
}

/// Demands of a new request (server).
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Size of its fields in bytes.
    pub fields: usize,
    /// Number of known streams, without this one.
    pub streams: usize,
    /// Content bytes of these streams that are not released, or may arrive because windows have grown.
    pub content: usize,
}

/// Decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request is admitted.
    Admitted,
    /// Refuse the stream, and count it like one beyond the maximum: the peer demands too much at a time.
    TooMuch,
    /// Refuse the stream; the peer is not at fault.
    Busy,
}

/// Cost of processing received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Number of frames, or equivalent work.
    Pieces(usize),
    /// Bytes that were copied and compared.
    Bytes(usize),
    /// The caller must run first: many ended streams are not forgotten yet.
    Turn,
}
