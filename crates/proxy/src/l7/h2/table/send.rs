//! What the tasks of a stream say and take.

use std::task::Waker;

use bytes::Bytes;
use http::StatusCode;
use offramp_http::h2::connection::{MOST_WAITING, ROOM};
use offramp_http::h2::{Code, Ends};
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;

use super::StreamTable;
use super::slot::Slot;
use crate::l7::h2::handle::{Broken, Gone, keep};

/// How much content of requests is on its way to servers at a time, so that the last pieces of many are not much more
/// than that of one; but for each at least so much.
const TAKEN: usize = 256 * 1024;
const LEAST_TAKEN: usize = 8 * 1024;
/// The same for the last piece of each, whose client may send as much again before it has left.
const LAST_TAKEN: usize = 32 * 1024;
const LEAST_LAST: usize = 1024;

/// How large the last piece of a request's content may be where there are so many streams.
pub(super) fn last_piece(streams: usize) -> usize {
    (LAST_TAKEN / streams.max(1)).max(LEAST_LAST)
}

impl StreamTable {
    /// Whether nothing can be sent or received on a stream any more.
    pub(in crate::l7::h2) fn is_gone(&self, id: u32) -> bool {
        self.dead || self.peek(id).over.is_some()
    }

    /// Set while content of a request is to come that nobody reads.
    pub(in crate::l7::h2) fn drops_content(&self, id: u32) -> bool {
        let slot = self.peek(id);
        !slot.reads && !slot.received_all
    }

    /// Whether a stream is gone; if it is not, `waker` is woken when that changes, or when more may be sent on it.
    pub(in crate::l7::h2) fn wait(&mut self, id: u32, waker: &Waker) -> bool {
        let dead = self.dead;
        let slot = self.slot(id);
        let gone = dead || slot.over.is_some();
        if !gone {
            keep(&mut slot.writer, waker);
        }
        gone
    }

    /// Whether a stream is gone; if it is not, `sized` says whether more data is known to come on it.
    pub(in crate::l7::h2) fn has_more(&mut self, id: u32, sized: bool) -> bool {
        let dead = self.dead;
        let slot = self.slot(id);
        slot.sized = sized;
        dead || slot.over.is_some()
    }

    /// Who is woken when more may be sent on a stream, or it is gone.
    pub(in crate::l7::h2) fn writer(&mut self, id: u32) -> &mut Option<Waker> {
        &mut self.slot(id).writer
    }

    /// Who is woken when more has come on a stream, or it is gone.
    pub(in crate::l7::h2) fn reader(&mut self, id: u32) -> &mut Option<Waker> {
        &mut self.slot(id).reader
    }

    /// How much of a response may be read for a stream that has nothing to write; 0 where what was written has to
    /// leave first, and its writer is called when it has. A stream without a window gets little: perhaps its response
    /// has nothing more, and that can be said.
    pub(in crate::l7::h2) fn appetite(&mut self, id: u32) -> usize {
        let open = self.connection.connection_window() > 0;
        // Without a window of the connection nothing would call it: it gets little, for the end needs no window.
        if self.connection.output().len() >= ROOM && open {
            return self.room(id);
        }
        if !self.has_calm(id) {
            return 0;
        }
        let room = self.connection.max_frame().min(self.connection.window(id).max(1) as usize);
        let slot = self.slot(id);
        slot.blocked = 0;
        // What was read already needs no turn, and would never leave if it waited for one.
        let may_wait = slot.fed && slot.piece == 0;
        let is_called = std::mem::take(&mut slot.called);
        if slot.paced {
            // What it reads waits for time, and never for a turn.
            return room.min(self.account.paced_appetite(self.connection.known_streams()));
        }
        let piece = self.account.appetite(self.connection.known_streams());
        if let Some(piece) = piece.filter(|_| is_called || self.hungry.is_empty()) {
            return piece;
        }
        // Without a window of the connection nothing can be sent but an end, which comes behind the last data.
        // One that goes before others is to have something when the window opens.
        let is_closed = || !open && self.peek(id).sized && !self.connection.goes_before_others(id);
        // A response that begins does not wait for those that are long: what is read of it can be sent at once.
        if !may_wait || !(piece.is_some() || is_closed() || self.will_move()) {
            return room;
        }
        if !std::mem::replace(&mut self.slot(id).hungry, true) {
            if is_called { self.hungry.push_front(id) } else { self.hungry.push_back(id) }
        }
        if piece.is_some() {
            self.feed();
        }
        0
    }

    /// Whether a piece that waits can leave as soon as what was written has: a window lets it.
    fn will_move(&self) -> bool {
        let moves = |(_, window, slot): (u32, i64, &Slot)| slot.piece > 0 && window > 0 && !slot.paced;
        self.connection.connection_window() > 0 && self.connection.windows().any(moves)
    }

    /// Has the next of those that read nothing go on, if there is room for a piece; all of them, if those that wait
    /// may wait for long.
    pub(in crate::l7::h2) fn feed(&mut self) {
        if self.hungry.is_empty() {
            return;
        }
        let closed = self.connection.connection_window() <= 0;
        let (count, sized) = match self.account.appetite(self.connection.known_streams()) {
            Some(_) => (1, true),
            None if self.will_move() => return,
            None => (usize::MAX, !closed),
        };
        let mut hungry = std::mem::take(&mut self.hungry);
        if hungry.len() > 1 {
            let now = coarse_ms();
            hungry.make_contiguous().sort_by_key(|id| self.connection.rank(*id, self.peek(*id).waits(now)));
        }
        let mut left = count;
        hungry.retain(|id| {
            let slot = self.slot(*id);
            if left == 0 || (slot.sized && !sized) {
                return true;
            }
            left -= 1;
            (slot.hungry, slot.called) = (false, true);
            slot.wake_writer();
            false
        });
        self.hungry = hungry;
    }

    /// Whether a response may begin or end on a stream, which needs no window; where too much waits to be sent its writer
    /// is called when that has left. Nothing more of a response is read meanwhile, so that heads and trailers that
    /// nobody takes do not pile up.
    pub(in crate::l7::h2) fn has_calm(&mut self, id: u32) -> bool {
        let calm = self.connection.has_calm(id);
        if !calm {
            self.slot(id).block();
        }
        calm
    }

    /// How much may be read of a response that begins.
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
        let (before, paced) = (std::mem::replace(&mut slot.piece, n as u32) as usize, slot.paced);
        match (before, n) {
            (0, 0) => {}
            _ if paced => self.account.paced(before, n),
            _ => self.account.piece(before, n),
        }
    }

    /// The response of a stream of which nothing was read yet passes as the bandwidth of its route lets it.
    pub(in crate::l7::h2) fn pace(&mut self, id: u32) {
        self.count_piece(id, 0);
        self.slot(id).paced = true;
    }

    /// A server may have sent `now` bytes ahead for a stream, and from now on as many as this gives.
    pub(in crate::l7::h2) fn ahead(&mut self, id: u32, now: usize) -> usize {
        let before = std::mem::replace(&mut self.slot(id).ahead, now as u32) as usize;
        self.account.ahead(before, now);
        self.account.ahead_left(now)
    }

    /// How many bytes of data may be sent on a stream now; where there is no room its writer is called when there is.
    pub(in crate::l7::h2) fn room(&mut self, id: u32) -> usize {
        let room = self.connection.capacity(id);
        if room == 0 {
            self.slot(id).block();
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
        if dead || slot.over.is_some() {
            return Err(Gone);
        }
        slot.blocked = 0;
        // Whoever serves the request has given its head back.
        let head = std::mem::take(&mut slot.head);
        slot.fields -= head;
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
        if dead || slot.over.is_some() {
            return Err(Gone);
        }
        (slot.blocked, slot.fed) = (0, true);
        self.connection.data(id, data, over);
        self.wake();
        if !self.hungry.is_empty() && self.connection.window(id) <= 0 {
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

    /// Nobody answers any more.
    pub(in crate::l7::h2) fn answered(&mut self, id: u32) {
        let slot = self.slot(id);
        (slot.writes, slot.writer) = (false, None);
        if !slot.reads {
            return self.close(id);
        }
        let ahead = std::mem::take(&mut slot.ahead);
        self.account.ahead(ahead as usize, 0);
        self.count_piece(id, 0);
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
        let slot = self.slot(id);
        let n = match slot.unread.len() {
            0 => return None,
            all if all <= most && all > last && slot.received_all && slot.behind.is_none() => all - last,
            all => all.min(most),
        };
        Some(slot.take(n))
    }

    /// The trailers of a request.
    pub(in crate::l7::h2) fn take_trailers(&mut self, id: u32) -> Option<Box<Fields>> {
        self.slot(id).trailers.take()
    }

    /// Whether some of the content has come and was not taken.
    pub(in crate::l7::h2) fn has_data(&self, id: u32) -> bool {
        !self.peek(id).unread.is_empty()
    }

    /// Whether all of the content has come and was taken, but for trailers.
    pub(in crate::l7::h2) fn is_read(&self, id: u32) -> bool {
        let slot = self.peek(id);
        slot.whole || slot.received_all && slot.unread.is_empty() && slot.over.is_none()
    }

    /// Whether nothing of the request is left to be read.
    pub(in crate::l7::h2) fn is_over(&self, id: u32) -> bool {
        self.is_read(id) && self.peek(id).trailers.is_none()
    }

    /// Why nothing more comes on a stream.
    pub(in crate::l7::h2) fn broken(&self, id: u32) -> Option<Broken> {
        let slot = self.peek(id);
        match slot.over {
            Some(code) if slot.by_client => Some(Broken::ByClient(code)),
            Some(code) => Some(Broken::ByUs(code)),
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

    /// Nobody reads the content any more.
    pub(in crate::l7::h2) fn unwanted(&mut self, id: u32) {
        self.change(|connection| connection.discard(id));
        let slot = self.slot(id);
        slot.forget_content();
        (slot.reads, slot.reader) = (false, None);
        if !slot.writes {
            self.close(id);
        }
    }
}
