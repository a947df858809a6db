//! One HTTP/1 connection, as the request that is under way on it sees it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use offramp_http::h1::{RequestFraming, RequestHead};

use super::heads::Heads;
use super::inbound::{Http1Upload, Inbound};
use super::intake::{GuardState, RequestReader};
use super::interim::Interim;
use super::transport::Transport;
use super::tunnel::Switch;

/// From this length on content is large: reads take as much of it as comes, and not a record or two.
const LARGE: u64 = 64 * 1024;

/// An HTTP/1 connection, for its requests. All of it belongs to one task, in which one part after the other has its turn;
/// only the body of a request may be read in another.
pub(crate) struct ClientConnection {
    pub(crate) guard_state: Rc<GuardState>,
    /// The interim responses to the request that is under way.
    pub(crate) interim: RefCell<Arc<Interim>>,
    /// The protocol with which the connection goes on, if it does.
    pub(crate) switch: RefCell<Option<Switch>>,
    /// Never borrowed while something else is polled.
    pub(crate) intake: RefCell<RequestReader>,
    /// The number of the request that is under way.
    serial: Cell<u64>,
    /// The reader of its body.
    reader: Cell<BodyReader>,
    /// Its content may be large, so that reads are.
    large: Cell<bool>,
    /// Its client is to get 100 (Continue), and did not yet.
    continue_due: Cell<bool>,
    /// The task that drives the connection.
    driver: RefCell<Option<Waker>>,
}

/// The reader of the body of a request, which may be another task than the driver of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyReader {
    /// There is none: the request has no body, is over, or its reader has gone. The driver drops what comes.
    #[default]
    Absent,
    /// It has no room for more: the server takes nothing.
    Full,
    /// It waits for more.
    Waiting,
}

/// An event in the life of a [`BodyReader`].
#[derive(Clone, Copy, Debug)]
enum ReaderEvent {
    /// A request with a body begins.
    Begins,
    /// The reader has asked for more, and there was nothing.
    FindsNothing,
    /// The reader has asked for more, and got some.
    Reads,
    /// The request is over, or the reader has gone.
    Ends,
}

impl BodyReader {
    const fn after(self, event: ReaderEvent) -> Self {
        match (self, event) {
            (_, ReaderEvent::Begins) => Self::Full,
            (Self::Absent, _) | (_, ReaderEvent::Ends) => Self::Absent,
            (_, ReaderEvent::FindsNothing) => Self::Waiting,
            (_, ReaderEvent::Reads) => Self::Full,
        }
    }
}

impl ClientConnection {
    pub(crate) fn new(transport: Transport, guard_state: Rc<GuardState>, heads: Rc<Heads>) -> Rc<Self> {
        Rc::new(Self {
            intake: RefCell::new(RequestReader::new(transport, Rc::clone(&guard_state), heads)),
            guard_state,
            interim: RefCell::default(),
            switch: RefCell::default(),
            serial: Cell::new(0),
            reader: Cell::default(),
            large: Cell::new(false),
            continue_due: Cell::new(false),
            driver: RefCell::default(),
        })
    }

    /// The connection is driven by the task that `waker` wakes.
    pub(super) fn driven_by(&self, waker: &Waker) {
        *self.driver.borrow_mut() = Some(waker.clone());
    }

    /// A request with this head begins; its body.
    pub(super) fn begin(self: &Rc<Self>, head: &RequestHead) -> Inbound {
        self.end();
        Interim::renew(&mut self.interim.borrow_mut(), head.expects_continue);
        if matches!(head.framing, RequestFraming::Chunked | RequestFraming::Length(LARGE..)) {
            self.large.set(true);
            self.intake.borrow_mut().transport.read_ahead(true);
        }
        let upload = Http1Upload::new(self, self.serial.get(), head.framing, head.expects_continue);
        if upload.is_some() {
            self.reader_is(ReaderEvent::Begins);
        }
        upload.map_or(Inbound::Empty, Inbound::Line)
    }

    /// The request is over: the reader of its body gets nothing more.
    pub(super) fn end(&self) {
        self.serial.set(self.serial.get() + 1);
        self.reader_is(ReaderEvent::Ends);
        self.continue_due.set(false);
        if self.large.take() {
            self.intake.borrow_mut().transport.read_ahead(false);
        }
    }

    /// Request `serial` is under way.
    pub(super) fn is_at(&self, serial: u64) -> bool {
        self.serial.get() == serial
    }

    fn reader_is(&self, event: ReaderEvent) {
        self.reader.set(self.reader.get().after(event));
    }

    /// The body of the request has a reader.
    pub(super) fn has_reader(&self) -> bool {
        self.reader.get() != BodyReader::Absent
    }

    /// The reader of the body has asked for more. `waits`: there was nothing.
    pub(super) fn reader_asked(&self, waits: bool) {
        self.reader_is(if waits { ReaderEvent::FindsNothing } else { ReaderEvent::Reads });
    }

    /// The reader of the body has no room for more: the server takes nothing.
    pub(super) fn is_held_up(&self) -> bool {
        self.reader.get() == BodyReader::Full
    }

    /// The reader has gone.
    pub(super) fn reader_leaves(&self) {
        self.reader_is(ReaderEvent::Ends);
    }

    /// Has the driver send 100 (Continue). `waker` is that of the reader.
    pub(super) fn ask(&self, waker: &Waker) {
        self.continue_due.set(true);
        self.call(waker);
    }

    /// The client is to get 100 (Continue), which the caller sends now.
    pub(super) fn takes_continue(&self) -> bool {
        self.continue_due.take()
    }

    /// The body was read to its end by the task that `waker` wakes: from now on the driver reads.
    pub(super) fn was_read(&self, waker: &Waker) {
        self.call(waker);
    }

    /// Wakes the driver, where it is not the one at work.
    fn call(&self, at_work: &Waker) {
        if let Some(driver) = &*self.driver.borrow()
            && !driver.will_wake(at_work)
        {
            driver.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BodyReader::{Absent, Full, Waiting};
    use super::ReaderEvent::{Begins, Ends, FindsNothing, Reads};

    #[test]
    fn a_reader_comes_waits_reads_and_goes() {
        for (before, [begins, finds_nothing, reads, ends]) in [
            (Absent, [Full, Absent, Absent, Absent]),
            (Full, [Full, Waiting, Full, Absent]),
            (Waiting, [Full, Waiting, Full, Absent]),
        ] {
            let after = [Begins, FindsNothing, Reads, Ends].map(|event| before.after(event));
            assert_eq!(after, [begins, finds_nothing, reads, ends], "{before:?}");
        }
    }
}
