//! What the tasks of a stream say and take.

use std::task::Waker;

use bytes::Bytes;
use offramp_http::h2::Code;
use offramp_http::head::Fields;
use offramp_http::hpack::Encoder;
use offramp_net::clock::coarse_ms;

use super::slot::Slot;
use super::{Key, StreamTable};
use crate::l7::h2::connection::MOST_WAITING;
use crate::l7::h2::handle::{Broken, Gone};

/// How much may wait to be sent before streams wait for it.
pub(in crate::l7::h2) const ROOM: usize = 64 * 1024;
/// How much content of requests is on its way to servers at a time, so that the last pieces of many are not much more
/// than that of one; but for each at least so much.
const TAKEN: usize = 256 * 1024;
const LEAST_TAKEN: usize = 8 * 1024;
/// The same for the last piece of each, whose client may send as much again before it has left.
const LAST_TAKEN: usize = 32 * 1024;
const LEAST_LAST: usize = 1024;
/// Data below this size that leaves no window is as small because its client gave no more.
const SMALL: usize = 512;

/// How large the last piece of a request's content may be where there are so many streams.
pub(super) fn last_piece(streams: usize) -> usize {
    (LAST_TAKEN / streams.max(1)).max(LEAST_LAST)
}

impl StreamTable {
    /// Whether nothing can be sent or received on a stream any more.
    pub(in crate::l7::h2) fn is_gone(&self, key: Key) -> bool {
        self.dead || self.slots[key.0].over.is_some()
    }

    /// Who is woken when more may be sent on a stream, or it is gone.
    pub(in crate::l7::h2) fn writer(&mut self, key: Key) -> &mut Option<Waker> {
        &mut self.slot(key).writer
    }

    /// Who is woken when more has come on a stream, or it is gone.
    pub(in crate::l7::h2) fn reader(&mut self, key: Key) -> &mut Option<Waker> {
        &mut self.slot(key).reader
    }

    /// How much of a response may be read for a stream that has nothing to write; 0 where what was written has to
    /// leave first, and its writer is called when it has. A stream without a window gets little: perhaps its response
    /// has nothing more, and that can be said.
    pub(in crate::l7::h2) fn appetite(&mut self, key: Key) -> usize {
        // Without a window of the connection nothing would call it: it gets little, for the end needs no window.
        if self.out.len() >= ROOM && self.window > 0 {
            return self.room(key);
        }
        if !self.has_calm(key) {
            return 0;
        }
        let slot = &mut self.slots[key.0];
        slot.blocked = 0;
        let room = self.frame.min(slot.window.min(self.window).max(1) as usize);
        // What was read already needs no turn, and would never leave if it waited for one.
        let may_wait = slot.fed && slot.piece == 0;
        // Without a window of the connection nothing can be sent but an end, which comes behind the last data.
        // One that goes before others is to have something when the window opens.
        let is_closed = slot.sized && self.window <= 0 && !self.goes_before_others(key);
        let slot = &mut self.slots[key.0];
        let is_called = std::mem::take(&mut slot.called);
        let piece = self.account.appetite(self.ids.len());
        if let Some(piece) = piece.filter(|_| is_called || self.hungry.is_empty()) {
            return piece;
        }
        // A response that begins does not wait for those that are long: what is read of it can be sent at once.
        if !may_wait || !(piece.is_some() || is_closed || self.will_move()) {
            return room;
        }
        let slot = &mut self.slots[key.0];
        if !std::mem::replace(&mut slot.hungry, true) {
            let place = (slot.id, key);
            if is_called { self.hungry.push_front(place) } else { self.hungry.push_back(place) }
        }
        if piece.is_some() {
            self.feed();
        }
        0
    }

    /// Whether a less urgent stream waits to send.
    fn goes_before_others(&self, key: Key) -> bool {
        let urgency = |key: Key| self.slots[key.0].priority.urgency;
        self.prioritized && self.waiting.iter().any(|(_, other)| urgency(*other) > urgency(key))
    }

    /// Whether a piece that waits can leave as soon as what was written has: a window lets it.
    fn will_move(&self) -> bool {
        let moves = |slot: &Slot| slot.piece > 0 && slot.window > 0 && slot.over.is_none();
        self.window > 0 && self.ids.iter().any(|(_, key)| moves(&self.slots[key.0]))
    }

    /// Has the next of those that read nothing go on, if there is room for a piece; all of them, if those that wait
    /// may wait for long.
    pub(in crate::l7::h2) fn feed(&mut self) {
        if self.hungry.is_empty() {
            return;
        }
        let closed = self.window <= 0;
        let (count, sized) = match self.account.appetite(self.ids.len()) {
            Some(_) => (1, true),
            None if self.will_move() => return,
            None => (usize::MAX, !closed),
        };
        if self.prioritized {
            let now = coarse_ms();
            let mut hungry = std::mem::take(&mut self.hungry);
            hungry.make_contiguous().sort_by_key(|(_, key)| self.rank(*key, now));
            self.hungry = hungry;
        }
        let (slots, mut left) = (&mut self.slots, count);
        self.hungry.retain(|(_, key)| {
            let slot = &mut slots[key.0];
            if left == 0 || (slot.sized && !sized) {
                return true;
            }
            left -= 1;
            (slot.hungry, slot.called) = (false, true);
            slot.wake_writer();
            false
        });
    }

    /// Whether more data is known to come on a stream.
    pub(in crate::l7::h2) fn has_more(&mut self, key: Key, sized: bool) {
        self.slot(key).sized = sized;
    }

    /// Whether a response may begin or end on a stream, which needs no window; where too much waits to be sent its writer
    /// is called when that has left. Nothing more of a response is read meanwhile, so that heads and trailers that
    /// nobody takes do not pile up.
    pub(in crate::l7::h2) fn has_calm(&mut self, key: Key) -> bool {
        let slot = &mut self.slots[key.0];
        if self.out.len() < MOST_WAITING {
            slot.blocked = 0;
            return true;
        }
        if !slot.waits {
            slot.waits = true;
            self.waiting.push((slot.id, key));
        }
        if slot.blocked == 0 {
            slot.blocked = coarse_ms().max(1);
        }
        self.heads_wait = true;
        false
    }

    /// How much may be read of a response that begins.
    pub(in crate::l7::h2) fn first_read(&self) -> usize {
        self.account.first_read()
    }

    /// A piece of so many bytes waits on a stream, or none.
    pub(in crate::l7::h2) fn piece(&mut self, key: Key, n: usize) {
        let slot = &mut self.slots[key.0];
        let before = std::mem::replace(&mut slot.piece, n);
        self.account.piece(before, n);
        self.feed();
    }

    /// A server may have sent `now` bytes ahead for a stream, and from now on as many as this gives.
    pub(in crate::l7::h2) fn ahead(&mut self, key: Key, now: usize) -> usize {
        let before = std::mem::replace(&mut self.slots[key.0].ahead, now);
        self.account.ahead(before, now);
        self.account.ahead_left(now)
    }

    /// How many bytes of data may be sent on a stream now; where there is no room its writer is called when there is.
    pub(in crate::l7::h2) fn room(&mut self, key: Key) -> usize {
        let slot = &mut self.slots[key.0];
        let full = self.window <= 0 || self.out.len() >= ROOM;
        if slot.window <= 0 || full {
            if full && !slot.waits {
                slot.waits = true;
                self.waiting.push((slot.id, key));
            }
            if slot.blocked == 0 {
                slot.blocked = coarse_ms().max(1);
            }
            return 0;
        }
        // Both are positive, and bounded by the size of a frame.
        self.frame.min(slot.window.min(self.window) as usize)
    }

    /// Writes a block of fields; `over`: it is the last of the stream.
    pub(in crate::l7::h2) fn fields(
        &mut self,
        key: Key,
        over: bool,
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) {
        let slot = &mut self.slots[key.0];
        slot.sent_all |= over;
        let (id, encoder) = (slot.id, &mut self.encoder);
        self.out.fields(id, over, self.frame, |block| write(encoder, block));
        self.wake();
        if over {
            self.settle(key);
        }
    }

    /// Writes data, for which there is room.
    pub(in crate::l7::h2) fn write(&mut self, key: Key, data: Bytes, over: bool) -> Result<(), Gone> {
        if self.is_gone(key) {
            return Err(Gone);
        }
        // No frame is longer than 24 bits can say.
        let n = data.len() as i64;
        self.window -= n;
        let slot = &mut self.slots[key.0];
        slot.window -= n;
        match data.len() {
            0 => {}
            small @ ..SMALL if slot.window <= 0 || self.window <= 0 => self.traffic.dribble(small),
            n => self.traffic.data(n),
        }
        (slot.blocked, slot.wrote, slot.fed) = (0, true, true);
        slot.sent_all |= over;
        self.out.data(slot.id, data, over);
        let blocked = slot.window <= 0 || self.window <= 0;
        self.wake();
        if blocked {
            self.feed();
        }
        if over {
            self.settle(key);
        }
        Ok(())
    }

    /// Ends a stream at once, for a reason of ours.
    pub(in crate::l7::h2) fn reset(&mut self, key: Key, code: Code) {
        if !self.is_gone(key) {
            self.end(key, code);
        }
    }

    /// Nobody answers any more.
    pub(in crate::l7::h2) fn answered(&mut self, key: Key) {
        let slot = self.slot(key);
        slot.writes = false;
        slot.writer = None;
        let (piece, ahead) = (std::mem::take(&mut slot.piece), std::mem::take(&mut slot.ahead));
        let (over, reads) = (slot.sent_all, slot.reads);
        self.account.piece(piece, 0);
        self.account.ahead(ahead, 0);
        self.feed();
        if !over {
            self.reset(key, Code::CANCEL);
        }
        if !reads {
            self.close(key);
        }
    }

    /// The data of a stream that has come.
    pub(in crate::l7::h2) fn take_data(&mut self, key: Key) -> Option<Bytes> {
        let streams = self.ids.len().max(1);
        let most = (TAKEN / streams).max(LEAST_TAKEN);
        let last = last_piece(streams);
        let slot = self.slot(key);
        let n = match slot.unread.len() {
            0 => return None,
            all if all <= most && all > last && slot.received_all => all - last,
            all => all.min(most),
        };
        Some(slot.unread.split_to(n).freeze())
    }

    /// The trailers of a request.
    pub(in crate::l7::h2) fn take_trailers(&mut self, key: Key) -> Option<Box<Fields>> {
        self.slot(key).trailers.take()
    }

    /// Whether all of the content has come and was taken, but for trailers.
    pub(in crate::l7::h2) fn is_read(&self, key: Key) -> bool {
        let slot = &self.slots[key.0];
        slot.whole || slot.received_all && slot.unread.is_empty() && slot.over.is_none()
    }

    /// Whether nothing of the request is left to be read.
    pub(in crate::l7::h2) fn is_over(&self, key: Key) -> bool {
        self.is_read(key) && self.slots[key.0].trailers.is_none()
    }

    /// Why nothing more comes on a stream.
    pub(in crate::l7::h2) fn broken(&self, key: Key) -> Option<Broken> {
        let slot = &self.slots[key.0];
        match slot.over {
            Some(code) if slot.by_client => Some(Broken::ByClient(code)),
            Some(code) => Some(Broken::ByUs(code)),
            None => self.dead.then_some(Broken::Connection),
        }
    }

    /// Data of a stream was taken: the client may send as much again.
    pub(in crate::l7::h2) fn release(&mut self, key: Key, n: usize) {
        // No more than the window was taken.
        let n = n as u32;
        self.give_back(n);
        self.owe(key, n);
    }

    /// Nobody reads the content any more.
    pub(in crate::l7::h2) fn unwanted(&mut self, key: Key) {
        self.forget_content(key);
        let slot = self.slot(key);
        (slot.reads, slot.wanted, slot.reader) = (false, false, None);
        if !slot.writes {
            self.close(key);
        }
    }
}
