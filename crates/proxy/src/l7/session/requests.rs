//! The requests of a connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use offramp_net::clock::coarse_ms;

use crate::l7::record::RequestRecord;

/// The requests of a connection.
pub(crate) struct RequestTracker {
    /// Requests that have begun, ever.
    pub(crate) begun: Cell<u64>,
    /// Requests that are under way.
    pub(super) open: RefCell<Vec<Rc<RequestRecord>>>,
    /// The time at which a request last began or ended, in milliseconds of the coarse clock.
    pub(crate) touched: Cell<u64>,
    /// Work that the client has given up, in control frames of HTTP/2, and that was not counted yet.
    pub(crate) owed: Cell<u32>,
    /// The request that began last, until the task that polled it then has taken it.
    pub(crate) unclaimed: RefCell<Option<Rc<RequestRecord>>>,
}

impl RequestTracker {
    pub(super) fn new() -> Self {
        Self {
            begun: Cell::new(0),
            open: RefCell::default(),
            touched: Cell::new(coarse_ms()),
            owed: Cell::new(0),
            unclaimed: RefCell::default(),
        }
    }

    /// Adds a request that begins.
    pub(crate) fn begin(&self, record: &Rc<RequestRecord>) {
        self.begun.set(self.begun.get() + 1);
        self.touched.set(coarse_ms());
        self.open.borrow_mut().push(Rc::clone(record));
        *self.unclaimed.borrow_mut() = Some(Rc::clone(record));
    }

    /// A request has ended.
    pub(crate) fn end(&self, record: &RequestRecord) {
        self.touched.set(coarse_ms());
        self.open.borrow_mut().retain(|one| !std::ptr::eq(&raw const **one, record));
    }

    /// The number of requests that are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.open.borrow().len()
    }

    /// The requests that are under way.
    pub(crate) fn all_open(&self) -> Vec<Rc<RequestRecord>> {
        self.open.borrow().clone()
    }
}
