//! Who is told what a peer says, and asked for what there is room for.

use super::Event;
use crate::head::Request;

/// The user of a [`Connection`](super::Connection) while this takes in what the peer has sent. A closure that takes
/// events is one.
pub trait Handler<T> {
    /// Something came on a stream.
    fn event(&mut self, id: u32, user: &mut T, event: Event<'_>);

    /// Memory for the head of a request (server).
    fn head(&mut self) -> Box<Request> {
        Box::default()
    }

    /// A head for which there is no use.
    fn put_back(&mut self, head: Box<Request>) {
        drop(head);
    }

    /// Whether there is room for another request (server).
    fn admit(&mut self, _: Asked) -> Admission {
        Admission::Admitted
    }

    /// Whether there is room for the trailers of a request, which have so many bytes, where so many streams are known
    /// (server).
    fn admit_trailers(&mut self, _user: &mut T, _size: usize, _streams: usize) -> bool {
        true
    }

    /// How many of these bytes the windows of the connection may be larger by, besides what they are: the peer is held up by
    /// them (server).
    fn grow(&mut self, _more: usize) -> usize {
        0
    }

    /// Work was done.
    #[inline]
    fn spend(&mut self, _: Cost) {}

    /// Whether the rest of what came is to wait, because others have their turn.
    #[inline]
    fn is_over(&self) -> bool {
        false
    }

    /// For how long the stream has waited to send, in milliseconds. It is asked for where there are priorities.
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

/// What a new request needs (server).
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Bytes of its fields.
    pub fields: usize,
    /// How many streams are known, without this one.
    pub streams: usize,
    /// Bytes of content that came on them and were not released, or may come as windows have grown.
    pub content: usize,
}

/// Whether there is room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is.
    Admitted,
    /// The peer asks for too much at a time. The stream is refused, and counts as one beyond those that are allowed.
    TooMuch,
    /// There is none, which is no fault of the peer's. The stream is refused.
    Busy,
}

/// What taking something in has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Frames, or as much work as so many.
    Pieces(usize),
    /// Bytes that were copied and compared.
    Bytes(usize),
    /// The user has to do something first: streams that are over and that it has not forgotten are many.
    Turn,
}
