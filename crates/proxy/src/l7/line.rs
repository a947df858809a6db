//! One HTTP/1 connection, as the request that is under way on it sees it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use offramp_http::h1::{Framing, RequestHead};

use super::heads::Heads;
use super::inbound::{Inbound, Upload};
use super::intake::{GuardState, Intake};
use super::interim::Interim;
use super::transport::Transport;
use super::tunnel::Switch;

/// From this length on content is large: reads take as much of it as comes, and not a record or two.
const LARGE: u64 = 64 * 1024;

/// What the requests of an HTTP/1 connection need of it. All of it belongs to one task, in which one part after
/// the other has its turn; only the body of a request may be read in another.
pub(crate) struct ClientConnection {
    pub(crate) guard_state: Rc<GuardState>,
    /// The interim responses to the request that is under way.
    pub(crate) interim: RefCell<Arc<Interim>>,
    /// Where a connection is put down that goes on with another protocol.
    pub(crate) switch: RefCell<Option<Switch>>,
    /// Never borrowed while something else is polled.
    pub(crate) intake: RefCell<Intake>,
    /// The number of the request that is under way.
    serial: Cell<u64>,
    /// Whether its content may be large.
    large: Cell<bool>,
    /// Whether somebody has its body.
    wanted: Cell<bool>,
    /// Whether somebody waits for more of the body.
    awaited: Cell<bool>,
    /// Whether its client is to get 100 (Continue), and did not yet.
    asking: Cell<bool>,
    /// Who drives the connection.
    driver: RefCell<Option<Waker>>,
}

impl ClientConnection {
    pub(crate) fn new(transport: Transport, guard_state: Rc<GuardState>, heads: Rc<Heads>) -> Rc<Self> {
        Rc::new(Self {
            intake: RefCell::new(Intake::new(transport, Rc::clone(&guard_state), heads)),
            guard_state,
            interim: RefCell::default(),
            switch: RefCell::default(),
            serial: Cell::new(0),
            large: Cell::new(false),
            wanted: Cell::new(false),
            awaited: Cell::new(false),
            asking: Cell::new(false),
            driver: RefCell::default(),
        })
    }

    /// The connection is driven by whom `waker` wakes.
    pub(super) fn driven_by(&self, waker: &Waker) {
        *self.driver.borrow_mut() = Some(waker.clone());
    }

    /// A request with this head begins; its body.
    pub(super) fn begin(self: &Rc<Self>, head: &RequestHead) -> Inbound {
        self.end();
        Interim::renew(&mut self.interim.borrow_mut(), head.expects_continue);
        if matches!(head.framing, Framing::Chunked | Framing::Length(LARGE..)) {
            self.large.set(true);
            self.intake.borrow_mut().transport.read_ahead(true);
        }
        let upload = Upload::new(self, self.serial.get(), head.framing, head.expects_continue);
        self.wanted.set(upload.is_some());
        self.awaited.set(false);
        upload.map_or(Inbound::Empty, Inbound::Line)
    }

    /// The request is over: whoever has its body reads nothing more.
    pub(super) fn end(&self) {
        self.serial.set(self.serial.get() + 1);
        self.wanted.set(false);
        self.asking.set(false);
        if self.large.take() {
            self.intake.borrow_mut().transport.read_ahead(false);
        }
    }

    /// Whether request `serial` is under way.
    pub(super) fn is_at(&self, serial: u64) -> bool {
        self.serial.get() == serial
    }

    /// Whether somebody has the body of the request.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Whether whoever has the body waits for more of it now.
    pub(super) fn await_body(&self, awaited: bool) {
        self.awaited.set(awaited);
    }

    /// Whether the body goes to somebody who has no room for more: the server takes nothing.
    pub(super) fn is_held_up(&self) -> bool {
        self.wanted.get() && !self.awaited.get()
    }

    /// Nobody has it any more.
    pub(super) fn unwanted(&self) {
        self.wanted.set(false);
    }

    /// The client is to get 100 (Continue); by whom `waker` wakes, or the driver.
    pub(super) fn ask(&self, waker: &Waker) {
        self.asking.set(true);
        self.call(waker);
    }

    /// Whether the client is to get 100 (Continue), which whoever asks does now.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.take()
    }

    /// The body was read to its end by whom `waker` wakes: from now on the driver reads.
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
