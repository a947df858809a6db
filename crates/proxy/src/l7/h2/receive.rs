//! Requests that have come, on their way to the tasks that serve them.

use std::rc::Rc;
use std::time::Duration;

use offramp_http::head::{ControlData, Request};

use super::handle::{Incoming, Respond};
use super::rules::judge;
use super::runner::Job;
use super::table::{Requests, Shared};
use crate::l7::session::Session;

/// Has the requests of a connection served.
pub(super) struct Intake<'c> {
    pub(super) session: &'c Rc<Session>,
    pub(super) table: &'c Shared,
    /// Bounds another protocol on a stream.
    pub(super) idle: Duration,
}

impl Requests for Intake<'_> {
    fn head(&mut self) -> Box<Request> {
        self.session.http.heads.take()
    }

    fn put_back(&mut self, head: Box<Request>) {
        self.session.http.heads.put(head);
    }

    fn serve(&mut self, id: u32, head: Box<Request>, control: ControlData, end: bool) {
        let respond = Respond::new(self.table, id);
        let incoming = (!end).then(|| Incoming::new(self.table, id));
        let refused = judge(&head, &control).err().map(Box::new);
        let session = Rc::clone(self.session);
        let job =
            Job { session, head, protocol: control.protocol, refused, incoming, respond, idle: self.idle };
        self.session.http.runners.run(job);
    }

    #[cold]
    fn memory(&self) -> Option<usize> {
        Some(self.session.view().http().map_or(usize::MAX, |http| http.limits.memory))
    }

    fn has_no_memory(&mut self) {
        let client = &self.session.brief.client.address;
        self.session.worker.shared.refusals.has_no_memory(client);
    }
}
