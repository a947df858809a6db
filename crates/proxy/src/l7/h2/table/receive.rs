//! What a client says of its streams, and what there is room for.

use offramp_http::h2::{Admission, Asked, Code, Cost, Event, Handler, Reset, Violation};
use offramp_http::head::{ControlData, Request};
use offramp_net::clock::coarse_ms;
use offramp_net::turn::{Turn, Work};

use super::StreamTable;
use super::slot::{ResetBy, Slot};
use crate::l7::h2::memory::Account;

/// Server of the requests of a connection.
pub(in crate::l7::h2) trait Requests {
    /// Memory for a head.
    fn head(&mut self) -> Box<Request> {
        Box::default()
    }

    /// A head for which there is no use.
    fn put_back(&mut self, head: Box<Request>) {
        drop(head);
    }

    /// A request has come on a stream; `end`: it has no content.
    fn serve(&mut self, id: u32, head: Box<Request>, control: ControlData, end: bool);

    /// Bytes that all connections of the worker may hold now.
    fn memory(&self) -> Option<usize> {
        None
    }

    /// A request was refused because of what the worker holds.
    fn has_no_memory(&mut self) {}
}

impl StreamTable {
    /// Takes in what the client has sent until the turn is over, and gives how many bytes were used up.
    pub(in crate::l7::h2) fn receive(
        &mut self,
        bytes: &[u8],
        turn: &mut Turn,
        requests: &mut impl Requests,
    ) -> Result<usize, Violation> {
        let account = &mut self.account;
        let mut receiver = Receiver { requests, account, turn, now: coarse_ms() };
        let used = self.connection.receive_with(bytes, receiver.now, &mut receiver);
        self.account.content(self.connection.claimed());
        if self.connection.lendable() > 0 {
            self.lend();
        }
        // Windows may have changed.
        self.feed();
        used
    }

    /// So many bytes of what was written have left: others may write.
    pub(in crate::l7::h2) fn sent(&mut self, n: usize) {
        self.connection.output_moved_with(n, &mut Caller);
    }
}

/// Takes what comes to where it belongs.
struct Receiver<'r, R> {
    requests: &'r mut R,
    account: &'r mut Account,
    turn: &'r mut Turn,
    now: u64,
}

impl<R: Requests> Handler<Slot> for Receiver<'_, R> {
    fn event(&mut self, id: u32, slot: &mut Slot, event: Event<'_>) {
        match event {
            Event::Request { request, control, size, end } => {
                self.account.begin(size);
                slot.begin(size, end);
                self.requests.serve(id, request, control, end);
            }
            Event::Data(data) => slot.put(data, self.now),
            Event::End(trailers) => slot.content_ends(trailers),
            Event::Writable => slot.wake_writer(),
            Event::Reset(Reset::Peer(code) | Reset::GoAway(code)) => slot.end(code, ResetBy::Client),
            Event::Reset(Reset::Violation(violation)) => slot.end(violation.code, ResetBy::Proxy),
            Event::Reset(Reset::NoRoom) => slot.end(Code::ENHANCE_YOUR_CALM, ResetBy::Proxy),
            // Clients send no responses, and the connection sets their windows itself.
            Event::Interim(_) | Event::Response { .. } | Event::Stalled(_) => {}
        }
    }

    fn head(&mut self) -> Box<Request> {
        self.requests.head()
    }

    fn put_back(&mut self, head: Box<Request>) {
        self.requests.put_back(head);
    }

    fn admit(&mut self, asked: Asked) -> Admission {
        self.account.content(asked.content);
        let is_full = |account: &Account| asked.streams > 0 && account.is_full(asked.fields);
        // A reload may have raised the limit.
        if !is_full(self.account)
            || self.requests.memory().is_some_and(|limit| self.account.limit(limit)) && !is_full(self.account)
        {
            return Admission::Admitted;
        }
        if self.account.has_many_fields(asked.fields) {
            return Admission::TooMuch;
        }
        self.requests.has_no_memory();
        Admission::Busy
    }

    /// Trailers count as fields of their request.
    fn admit_trailers(&mut self, slot: &mut Slot, size: usize, streams: usize) -> bool {
        let has_room = streams <= 1 || !self.account.has_many_fields(size);
        if has_room {
            slot.budget.fields += size as u32;
            self.account.more_fields(size);
        }
        has_room
    }

    fn grow(&mut self, more: usize) -> usize {
        self.account.grow(more)
    }

    #[inline]
    fn spend(&mut self, cost: Cost) {
        self.turn.spend(match cost {
            Cost::Pieces(count) => Work::Pieces(count),
            Cost::Bytes(count) => Work::Bytes(count),
            Cost::Turn => Work::Pieces(usize::MAX),
        });
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.turn.is_over()
    }

    fn waits(&self, slot: &Slot) -> u64 {
        slot.waits(self.now)
    }
}

/// Calls those that wait to write.
struct Caller;

impl Handler<Slot> for Caller {
    fn event(&mut self, _: u32, slot: &mut Slot, _: Event<'_>) {
        slot.wake_writer();
    }

    fn waits(&self, slot: &Slot) -> u64 {
        slot.waits(coarse_ms())
    }
}
