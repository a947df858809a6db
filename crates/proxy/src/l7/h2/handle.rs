//! Handles of a stream: one for the task that answers, one for the task that reads the content.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use offramp_http::h2::{Code, Ends};
use offramp_http::head::Fields;
use offramp_upstream::SentAhead;

use super::table::Shared;

/// The stream takes nothing any more: its client has reset it, we have, or its connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// Handle of the task that answers a request. A stream without a whole response is reset when it is dropped.
pub(super) struct Respond {
    table: Shared,
    id: u32,
}

/// Handle of the task that reads the content of a request. Content that is not read is not asked for.
pub(super) struct Incoming {
    table: Shared,
    id: u32,
}

/// Keeps `waker` in the place of the former one.
pub(super) fn keep(place: &mut Option<Waker>, waker: &Waker) {
    if !place.as_ref().is_some_and(|known| known.will_wake(waker)) {
        *place = Some(waker.clone());
    }
}

impl Respond {
    pub(super) fn new(table: &Shared, id: u32) -> Self {
        Self { table: Rc::clone(table), id }
    }

    /// Sends an interim response (1xx).
    pub(super) fn interim(&self, status: StatusCode, all: &Fields) -> Result<(), Gone> {
        self.table.borrow_mut().interim(self.id, status, all)
    }

    /// Returns true if the client takes a response with these fields.
    pub(super) fn fits(&self, all: &Fields) -> bool {
        self.table.borrow().connection.fits(all)
    }

    /// Sends the head of the response.
    pub(super) fn head(&self, status: StatusCode, all: &Fields, ends: Ends<'_>) -> Result<(), Gone> {
        self.table.borrow_mut().respond(self.id, status, all, ends)
    }

    /// Sends data, as much as [`Respond::poll_room`] had room for.
    pub(super) fn data(&self, data: Bytes, over: bool) -> Result<(), Gone> {
        self.table.borrow_mut().write(self.id, data, over)
    }

    /// Sends trailers, which end the response.
    pub(super) fn trailers(&self, trailers: &Fields) -> Result<(), Gone> {
        self.table.borrow_mut().trailers(self.id, trailers)
    }

    /// Waits until data may be sent, and gives how many bytes; none where the stream is gone.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        self.table.borrow_mut().poll_room(self.id, cx)
    }

    /// Waits until more of the response may be read, and gives how much; none where the stream is gone.
    /// `sized`: data is known to come.
    pub(super) fn poll_read_budget(&self, cx: &mut Context<'_>, sized: bool) -> Poll<usize> {
        self.table.borrow_mut().poll_read_budget(self.id, sized, cx)
    }

    /// Waits until the response may begin, or the stream is gone, and gives how much may be read of it.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let table = &mut *self.table.borrow_mut();
        if table.can_respond(self.id) || table.wait(self.id, cx.waker()) {
            return Poll::Ready(table.first_read());
        }
        Poll::Pending
    }

    /// The response passes as the bandwidth of its route lets it: what waits of it is counted apart.
    pub(super) fn pace(&self) {
        self.table.borrow_mut().pace(self.id);
    }

    /// A piece of so many bytes of the response waits, or none.
    pub(super) fn holds(&self, n: usize) {
        self.table.borrow_mut().piece(self.id, n);
    }

    /// Records what a server may send ahead of a response; returns the bytes that it may from now on.
    pub(super) fn ahead(&self, now: SentAhead) -> usize {
        self.table.borrow_mut().ahead(self.id, now)
    }

    /// Like [`ahead`](Self::ahead), for a server that needs no more than `allowed` bytes.
    pub(super) fn has_ahead(&self, allowed: usize) -> usize {
        self.ahead(SentAhead { allowed, needed: 0 })
    }

    /// Has other streams read, if there is room for what they read.
    pub(super) fn let_others_read(&self) {
        self.table.borrow_mut().feed();
    }

    /// Returns true if the stream is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.table.borrow().is_gone(self.id)
    }

    /// Waits until the stream is gone.
    pub(super) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.table.borrow_mut().wait(self.id, cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns true unless content of the request is to come and is not read.
    pub(super) fn has_whole_upload(&self) -> bool {
        !self.table.borrow().drops_content(self.id)
    }

    /// Waits until all of the request has come, if it is not read.
    pub(super) fn poll_uploaded(&self, cx: &mut Context<'_>) -> Poll<()> {
        let table = &mut *self.table.borrow_mut();
        if !table.drops_content(self.id) || table.wait(self.id, cx.waker()) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Ends the stream at once.
    pub(super) fn reset(&self, code: Code) {
        self.table.borrow_mut().reset(self.id, code);
    }
}

impl Drop for Respond {
    fn drop(&mut self) {
        self.table.borrow_mut().answered(self.id);
    }
}

impl Incoming {
    pub(super) fn new(table: &Shared, id: u32) -> Self {
        Self { table: Rc::clone(table), id }
    }

    /// The next data; none behind the last. An error says why there is no more.
    pub(super) fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        self.table.borrow_mut().poll_data(self.id, cx)
    }

    /// Waits until it is known if there is any data.
    pub(super) fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.table.borrow_mut().poll_begun(self.id, cx)
    }

    /// The trailers, behind the last data.
    pub(super) fn take_trailers(&self) -> Option<Box<Fields>> {
        self.table.borrow_mut().take_trailers(self.id)
    }

    /// The client may send `n` bytes more.
    pub(super) fn release(&self, n: usize) {
        self.table.borrow_mut().release(self.id, n);
    }

    /// Sets the content apart, which waits for long: it is not to keep other streams from sending.
    pub(super) fn set_apart(&self) {
        self.table.borrow_mut().set_apart(self.id);
    }

    /// Returns true if all has come and was read.
    pub(super) fn is_over(&self) -> bool {
        self.table.borrow().is_over(self.id)
    }

    /// Returns true if the stream was reset before all was read.
    pub(super) fn is_broken(&self) -> bool {
        self.table.borrow().is_gone(self.id)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.table.borrow_mut().unwanted(self.id);
    }
}

/// Reason for which content does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The client reset its stream, for this reason.
    ByClient(Code),
    /// We did, for this reason.
    ByUs(Code),
    /// The connection has ended.
    Connection,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ByClient(code) => write!(f, "the client reset the stream with {}", code.name()),
            Self::ByUs(code) => write!(f, "the stream was reset with {}", code.name()),
            Self::Connection => f.write_str("the connection ended before the body did"),
        }
    }
}

impl std::error::Error for Broken {}

/// Operations of the handles on the streams table.
impl super::table::StreamTable {
    /// Waits until data may be sent on a stream.
    fn poll_room(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<usize> {
        match self.room(id) {
            0 if self.wait(id, cx.waker()) => Poll::Ready(0),
            0 => Poll::Pending,
            room => Poll::Ready(room),
        }
    }

    /// Waits until more of a response may be read.
    fn poll_read_budget(&mut self, id: u32, sized: bool, cx: &mut Context<'_>) -> Poll<usize> {
        if self.has_more(id, sized) {
            return Poll::Ready(0);
        }
        match self.read_budget(id) {
            0 => {
                keep(self.writer(id), cx.waker());
                Poll::Pending
            }
            most => Poll::Ready(most),
        }
    }

    fn poll_begun(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_data(id) || self.is_read(id) || self.is_gone(id) {
            return Poll::Ready(());
        }
        keep(self.reader(id), cx.waker());
        Poll::Pending
    }

    fn poll_data(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if let Some(data) = self.take_data(id) {
            return Poll::Ready(Some(Ok(data)));
        }
        if self.is_read(id) {
            return Poll::Ready(None);
        }
        if let Some(broken) = self.broken(id) {
            return Poll::Ready(Some(Err(broken)));
        }
        keep(self.reader(id), cx.waker());
        Poll::Pending
    }
}
