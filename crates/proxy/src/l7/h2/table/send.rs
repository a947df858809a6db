//! What the tasks of a stream say and take.

use std::task::Waker;

use bytes::Bytes;
use http::StatusCode;
use offramp_http::h2::connection::{MOST_WAITING, ROOM};
use offramp_http::h2::{Code, Ends};
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;
use offramp_upstream::SentAhead;

use super::StreamTable;
use super::slot::{ContentEnd, ReadTurn, RequestSide, ResetBy, ResponseSide, Slot, StreamReset};
use crate::l7::h2::handle::{Broken, Gone, keep};

/// Bytes of requests' content that are on their way to servers at a time, so that the last pieces of many are not
/// much more than that of one; but for each at least so much.
const TAKEN: usize = 256 * 1024;
const LEAST_TAKEN: usize = 8 * 1024;
/// The same for the last piece of each: its client may send as much again before it has left.
const LAST_TAKEN: usize = 32 * 1024;
const LEAST_LAST: usize = 1024;

/// Maximum size of the last piece of a request's content with so many streams.
pub(super) fn last_piece(streams: usize) -> usize {
    (LAST_TAKEN / streams.max(1)).max(LEAST_LAST)
}

impl StreamTable {
    /// Returns true if nothing can be sent or received on a stream any more.
    pub(in crate::l7::h2) fn is_gone(&self, id: u32) -> bool {
        self.dead || self.peek(id).reset.is_some()
    }

    /// Returns true while content of a request is to come and is not read.
    pub(in crate::l7::h2) fn drops_content(&self, id: u32) -> bool {
        matches!(self.peek(id).request, RequestSide::Dropped)
    }

    /// Returns true if a stream is gone; if it is not, `waker` is woken when that changes, or when more may be sent
    /// on it.
    pub(in crate::l7::h2) fn wait(&mut self, id: u32, waker: &Waker) -> bool {
        let dead = self.dead;
        let slot = self.slot(id);
        let gone = dead || slot.reset.is_some();
        if !gone {
            keep(&mut slot.answering().writer, waker);
        }
        gone
    }

    /// Returns true if a stream is gone; if it is not, `sized` says if more data is known to come on it.
    pub(in crate::l7::h2) fn has_more(&mut self, id: u32, sized: bool) -> bool {
        let dead = self.dead;
        let slot = self.slot(id);
        slot.answering().sized = sized;
        dead || slot.reset.is_some()
    }

    /// Waker of the task that answers: more may be sent on a stream, or it is gone.
    pub(in crate::l7::h2) fn writer(&mut self, id: u32) -> &mut Option<Waker> {
        &mut self.slot(id).answering().writer
    }

    /// Waker of the task that reads: more has come on a stream, or it is gone.
    pub(in crate::l7::h2) fn reader(&mut self, id: u32) -> &mut Option<Waker> {
        &mut self.slot(id).reading().reader
    }

    /// Bytes of a response that may be read for a stream that has nothing to write; 0 if the output has to leave
    /// first, which wakes its writer. A stream without a window gets little: perhaps its response has nothing more,
    /// and that can be said.
    pub(in crate::l7::h2) fn read_budget(&mut self, id: u32) -> usize {
        let open = self.connection.connection_window() > 0;
        // Without a window of the connection nothing would call it: it gets little, for the end needs no window.
        if self.connection.output().len() >= ROOM && open {
            return self.room(id);
        }
        if !self.can_respond(id) {
            return 0;
        }
        let room = self.connection.max_frame().min(self.connection.window(id).max(1) as usize);
        let slot = self.slot(id);
        let holds_piece = slot.budget.piece > 0;
        let response = slot.answering();
        response.blocked = 0;
        // What was read already needs no turn, and would never leave if it waited for one.
        let may_wait = response.begun && !holds_piece;
        let (sized, is_called) = (response.sized, response.turn == ReadTurn::Called);
        if is_called {
            response.turn = ReadTurn::Unasked;
        }
        if response.paced {
            // What it reads waits for time, and never for a turn.
            return room.min(self.account.paced_read_budget(self.connection.known_streams()));
        }
        let piece = self.account.read_budget(self.connection.known_streams());
        if let Some(piece) = piece.filter(|_| is_called || self.read_queue.is_empty()) {
            return piece;
        }
        // Without a window of the connection nothing can be sent but an end, which comes behind the last data.
        // One that goes before others is to have something when the window opens.
        let is_closed = || !open && sized && !self.connection.goes_before_others(id);
        // A response that begins does not wait for those that are long: what is read of it can be sent at once.
        if !may_wait || !(piece.is_some() || is_closed() || self.will_move()) {
            return room;
        }
        if std::mem::replace(&mut self.slot(id).answering().turn, ReadTurn::Queued) != ReadTurn::Queued {
            if is_called { self.read_queue.push_front(id) } else { self.read_queue.push_back(id) }
        }
        if piece.is_some() {
            self.feed();
        }
        0
    }

    /// Returns true if a piece that waits can leave as soon as the output has: a window lets it.
    fn will_move(&self) -> bool {
        let moves =
            |(_, window, slot): (u32, i64, &Slot)| slot.budget.piece > 0 && window > 0 && !slot.is_paced();
        self.connection.connection_window() > 0 && self.connection.windows().any(moves)
    }

    /// Has the next of those that read nothing go on, if there is room for a piece; all of them, if those that wait
    /// may wait for long.
    pub(in crate::l7::h2) fn feed(&mut self) {
        if self.read_queue.is_empty() {
            return;
        }
        let closed = self.connection.connection_window() <= 0;
        let (count, sized) = match self.account.read_budget(self.connection.known_streams()) {
            Some(_) => (1, true),
            None if self.will_move() => return,
            None => (usize::MAX, !closed),
        };
        let mut queue = std::mem::take(&mut self.read_queue);
        if queue.len() > 1 {
            let now = coarse_ms();
            queue.make_contiguous().sort_by_key(|id| self.connection.rank(*id, self.peek(*id).waits(now)));
        }
        let mut left = count;
        queue.retain(|id| {
            let slot = self.slot(*id);
            let response = slot.answering();
            if left == 0 || (response.sized && !sized) {
                return true;
            }
            left -= 1;
            response.turn = ReadTurn::Called;
            slot.wake_writer();
            false
        });
        self.read_queue = queue;
    }

    /// Returns true if a response may begin or end on a stream, which needs no window; if too much output waits,
    /// its writer is woken when that has left. Nothing more of a response is read meanwhile, so that unread heads
    /// and trailers do not pile up.
    pub(in crate::l7::h2) fn can_respond(&mut self, id: u32) -> bool {
        let has_space = self.connection.can_respond(id);
        if !has_space {
            self.slot(id).answering().block();
        }
        has_space
    }

    /// Bytes that may be read of a response that begins.
    pub(in crate::l7::h2) fn first_read(&self) -> usize {
        self.account.first_read()
    }

    /// A piece of so many bytes waits on a stream, or none.
    pub(in crate::l7::h2) fn piece(&mut self, id: u32, n: usize) {
        self.count_piece(id, n);
        self.feed();
    }

    /// Counts what waits on a stream.
    pub(super) fn count_piece(&mut self, id: u32, n: usize) {
        let slot = self.slot(id);
        // Pieces are as long as windows and reads at the most, of which none has so many bytes.
        let before = std::mem::replace(&mut slot.budget.piece, n as u32) as usize;
        match (before, n) {
            (0, 0) => {}
            _ if slot.is_paced() => self.account.paced(before, n),
            _ => self.account.piece(before, n),
        }
    }

    /// The response of a stream of which nothing was read yet passes as the bandwidth of its route lets it.
    pub(in crate::l7::h2) fn pace(&mut self, id: u32) {
        self.count_piece(id, 0);
        self.slot(id).answering().paced = true;
    }

    /// Records what a server may send ahead for a stream; returns the bytes that it may from now on.
    pub(in crate::l7::h2) fn ahead(&mut self, id: u32, now: SentAhead) -> usize {
        let before = std::mem::replace(&mut self.slot(id).budget.ahead, now.allowed as u32) as usize;
        self.account.ahead(before, now.allowed);
        self.account.ahead_left(now.allowed, now.needed)
    }

    /// Bytes of data that may be sent on a stream now; without room its writer is woken when there is some.
    pub(in crate::l7::h2) fn room(&mut self, id: u32) -> usize {
        let room = self.connection.capacity(id);
        if room == 0 {
            self.slot(id).answering().block();
        }
        room
    }

    /// Sends an interim response (1xx).
    pub(in crate::l7::h2) fn interim(
        &mut self,
        id: u32,
        status: StatusCode,
        fields: &Fields,
    ) -> Result<(), Gone> {
        if self.is_gone(id) {
            return Err(Gone);
        }
        // No client needs them.
        if self.connection.output().len() <= MOST_WAITING && self.connection.fits(fields) {
            self.connection.interim(id, status, fields);
            self.wake();
        }
        Ok(())
    }

    /// Sends the head of the response.
    pub(in crate::l7::h2) fn respond(
        &mut self,
        id: u32,
        status: StatusCode,
        fields: &Fields,
        ends: Ends<'_>,
    ) -> Result<(), Gone> {
        let dead = self.dead;
        let slot = self.slot(id);
        if dead || slot.reset.is_some() {
            return Err(Gone);
        }
        slot.answering().blocked = 0;
        // The exchange has given its head back.
        let head = std::mem::take(&mut slot.budget.head);
        slot.budget.fields -= head;
        self.account.forget_fields(head as usize);
        self.connection.respond(id, status, fields, ends);
        self.wake();
        Ok(())
    }

    /// Sends trailers, which end the response.
    pub(in crate::l7::h2) fn trailers(&mut self, id: u32, trailers: &Fields) -> Result<(), Gone> {
        if self.is_gone(id) {
            return Err(Gone);
        }
        self.connection.trailers(id, trailers.iter());
        self.wake();
        Ok(())
    }

    /// Writes data, for which there is room.
    pub(in crate::l7::h2) fn write(&mut self, id: u32, data: Bytes, over: bool) -> Result<(), Gone> {
        let dead = self.dead;
        let slot = self.slot(id);
        if dead || slot.reset.is_some() {
            return Err(Gone);
        }
        let response = slot.answering();
        (response.blocked, response.begun) = (0, true);
        self.connection.data(id, data, over);
        self.wake();
        if !self.read_queue.is_empty() && self.connection.window(id) <= 0 {
            self.feed();
        }
        Ok(())
    }

    /// Ends a stream at once, for a reason of ours.
    pub(in crate::l7::h2) fn reset(&mut self, id: u32, code: Code) {
        if !self.is_gone(id) {
            self.end(id, code);
        }
    }

    /// Ends the task that answers.
    pub(in crate::l7::h2) fn answered(&mut self, id: u32) {
        self.end_response(id);
        if !matches!(self.peek(id).request, RequestSide::Read(_)) {
            return self.close(id);
        }
        self.feed();
        if !self.connection.has_sent_all(id) {
            self.reset(id, Code::CANCEL);
        }
    }

    /// The data of a stream that has come.
    pub(in crate::l7::h2) fn take_data(&mut self, id: u32) -> Option<Bytes> {
        let streams = self.connection.known_streams().max(1);
        let most = (TAKEN / streams).max(LEAST_TAKEN);
        let last = last_piece(streams);
        let unread = self.slot(id).reading();
        let n = match unread.content.len() {
            0 => return None,
            all if all <= most && all > last && unread.is_whole() && unread.behind.is_none() => all - last,
            all => all.min(most),
        };
        Some(unread.take(n))
    }

    /// The trailers of a request.
    pub(in crate::l7::h2) fn take_trailers(&mut self, id: u32) -> Option<Box<Fields>> {
        self.slot(id).reading().take_trailers()
    }

    /// Returns true if some of the content has come and was not taken.
    pub(in crate::l7::h2) fn has_data(&self, id: u32) -> bool {
        matches!(&self.peek(id).request, RequestSide::Read(unread) if !unread.content.is_empty())
    }

    /// Returns true if all of the content has come and was taken, but for trailers.
    pub(in crate::l7::h2) fn is_read(&self, id: u32) -> bool {
        let slot = self.peek(id);
        match (slot.reset, &slot.request) {
            (Some(reset), _) => reset.request_read,
            (None, RequestSide::Read(unread)) => unread.is_taken(),
            (None, RequestSide::Dropped) => false,
            (None, RequestSide::Over) => true,
        }
    }

    /// Returns true if nothing of the request is left to be read.
    pub(in crate::l7::h2) fn is_over(&self, id: u32) -> bool {
        let has_trailers = |request: &RequestSide| matches!(request, RequestSide::Read(unread) if matches!(unread.end, ContentEnd::Trailers(_)));
        self.is_read(id) && !has_trailers(&self.peek(id).request)
    }

    /// Reason for which nothing more comes on a stream.
    pub(in crate::l7::h2) fn broken(&self, id: u32) -> Option<Broken> {
        let slot = self.peek(id);
        match slot.reset {
            Some(StreamReset { code, by: ResetBy::Client, .. }) => Some(Broken::ByClient(code)),
            Some(StreamReset { code, by: ResetBy::Proxy, .. }) => Some(Broken::ByUs(code)),
            None => self.dead.then_some(Broken::Connection),
        }
    }

    /// Data of a stream was taken: the client may send as much again.
    pub(in crate::l7::h2) fn release(&mut self, id: u32, n: usize) {
        self.change(|connection| {
            connection.set_time(coarse_ms());
            connection.release(id, n);
        });
        // There may be memory again for what waits for long.
        if self.connection.lendable() > 0 {
            self.lend();
        }
    }

    /// Ends the task that reads the content.
    pub(in crate::l7::h2) fn unwanted(&mut self, id: u32) {
        self.change(|connection| connection.discard(id));
        let slot = self.slot(id);
        slot.drop_content();
        if matches!(slot.response, ResponseSide::Answered) {
            self.close(id);
        }
    }
}
