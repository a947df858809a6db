//! What a client says of its streams (RFC 9113 §5.1, §6).

use offramp_http::h2::reader::MOST as MOST_FRAME;
use offramp_http::h2::{Code, FrameHeader, Framed, Setting, flag, settings};
use offramp_http::head::Fields;
use offramp_net::clock::coarse_ms;

use super::slot::Slot;
use super::{Key, MOST_WINDOW, Opened, StreamTable};
use crate::l7::h2::Violation;

/// Tasks that still run for streams which are over, besides those that may be open.
pub(super) const LEFT_OVER: usize = 12;
/// From so many on, no more requests begin before these tasks had their turn, in which they end.
const MANY_LEFT_OVER: usize = 4;

impl StreamTable {
    /// A request begins on a stream of the client's, higher than all before; `over`: it has no content. Its fields have
    /// so many bytes.
    pub(in crate::l7::h2) fn open(
        &mut self,
        id: u32,
        over: bool,
        length: Option<u64>,
        fields: usize,
    ) -> Result<Opened, Violation> {
        if self.goodbye.is_some_and(|last| id > last) {
            return Ok(Opened::Not);
        }
        if self.active >= self.most {
            if self.agreed {
                self.client_faults.fault(Code::REFUSED_STREAM);
            } else {
                self.turned_away += 1;
            }
            self.turn_away(id, Code::REFUSED_STREAM);
            return Ok(Opened::Not);
        }
        if self.ids.len() >= self.most + LEFT_OVER {
            return Err(Violation::new(
                Code::ENHANCE_YOUR_CALM,
                "streams are reset faster than they can be ended",
            ));
        }
        if over && length.is_some_and(|length| length > 0) {
            self.refuse(id, Code::PROTOCOL_ERROR);
            return Ok(Opened::Not);
        }
        if !self.ids.is_empty() && self.account.is_full(fields) {
            return Ok(Opened::Full);
        }
        self.account.begin(fields);
        let key = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            Key(self.slots.len() - 1)
        });
        let window = self.first_window;
        self.slot(key).begin(id, over, length, window);
        let slot = self.slot(key);
        (slot.fields, slot.head) = (fields, fields);
        self.active += 1;
        self.ids.push((id, key));
        Ok(Opened::Stream(key))
    }

    /// Whether many tasks run for streams that are over.
    pub(in crate::l7::h2) fn has_left_overs(&self) -> bool {
        self.ids.len() - self.active >= MANY_LEFT_OVER
    }

    /// Refuses a stream for which [`StreamTable::open`] found no room; whether that is because of what the worker holds, which
    /// is no fault of this client.
    pub(in crate::l7::h2) fn has_no_room(&mut self, id: u32, fields: usize) -> bool {
        let many = self.account.has_many_fields(fields);
        self.turned_away += u32::from(many);
        self.turn_away(id, Code::REFUSED_STREAM);
        !many
    }

    /// The connections of the worker may hold so much from now on; whether that is another limit than before.
    pub(in crate::l7::h2) fn limit_memory(&self, limit: usize) -> bool {
        self.account.limit(limit)
    }

    /// Resets a stream that nobody has, for a fault of the client's.
    pub(in crate::l7::h2) fn refuse(&mut self, id: u32, code: Code) {
        self.client_faults.fault(code);
        self.turn_away(id, code);
    }

    fn turn_away(&mut self, id: u32, code: Code) {
        self.remember(id);
        self.out.reset(id, code);
        self.wake();
    }

    /// Whether nothing is to be said of what comes for a stream that nobody has: we reset it, or it was opened behind
    /// the last that is served.
    fn is_ignored(&self, id: u32) -> bool {
        self.ours.contains(&id) || self.goodbye.is_some_and(|last| id > last)
    }

    /// A block of fields came on a stream that was opened before: whether these may be its trailers.
    pub(in crate::l7::h2) fn is_to_have_trailers(&mut self, id: u32, ends: bool) -> Result<bool, Violation> {
        let Some(key) = self.find(id).filter(|key| self.slots[key.0].over.is_none()) else {
            if self.is_ignored(id) {
                return Ok(false);
            }
            return Err(Violation::new(Code::STREAM_CLOSED, "HEADERS on a stream that has ended"));
        };
        if self.slot(key).received_all {
            self.fault(key, Code::STREAM_CLOSED);
            return Ok(false);
        }
        if !ends {
            self.fault(key, Code::PROTOCOL_ERROR);
        }
        Ok(ends)
    }

    /// The trailers of a request, of so many bytes; none where they are malformed. They count as fields of the request.
    pub(in crate::l7::h2) fn trailers(&mut self, id: u32, trailers: Option<Fields>, size: usize) {
        let Some(key) = self.find(id) else { return };
        match trailers {
            Some(_) if self.ids.len() > 1 && self.account.has_many_fields(size) => {
                // A server may have seen the request, so that it is not refused as one that was not looked at.
                self.turned_away += 1;
                self.end(key, Code::ENHANCE_YOUR_CALM);
            }
            Some(trailers) if self.slot(key).is_whole() => {
                let slot = &mut self.slots[key.0];
                slot.fields += size;
                self.account.more_fields(size);
                slot.trailers = (!trailers.is_empty()).then(|| Box::new(trailers));
                self.received_all(key);
            }
            _ => self.fault(key, Code::PROTOCOL_ERROR),
        }
    }

    /// DATA begins.
    pub(in crate::l7::h2) fn data_begins(
        &mut self,
        head: &FrameHeader,
        framed: Framed,
    ) -> Result<(), Violation> {
        // A head has 24 bits of length.
        let (all, padding) = (head.length as i64, (head.length - framed.length) as u32);
        self.room -= all;
        if self.room < 0 {
            return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "more data than the connection's window"));
        }
        self.account.take(head.length);
        self.give_back(padding);
        let Some(key) = self.find(head.stream) else {
            if head.stream > self.last {
                return Err(Violation::new(Code::PROTOCOL_ERROR, "DATA on a stream that was not opened"));
            }
            if !self.is_ignored(head.stream) {
                self.refuse(head.stream, Code::STREAM_CLOSED);
            }
            return Ok(());
        };
        let slot = self.slot(key);
        if slot.over.is_some() {
            if slot.by_client {
                let id = slot.id;
                self.refuse(id, Code::STREAM_CLOSED);
            }
            return Ok(());
        }
        if slot.received_all {
            self.fault(key, Code::STREAM_CLOSED);
            return Ok(());
        }
        slot.room -= all;
        if slot.room < 0 {
            return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "more data than the stream's window"));
        }
        let long = slot.length.is_some_and(|left| left < framed.length as u64);
        slot.length = slot.length.map(|left| left.saturating_sub(framed.length as u64));
        self.owe(key, padding);
        if framed.length > 0 {
            self.traffic.data(framed.length);
        }
        if long {
            self.fault(key, Code::PROTOCOL_ERROR);
        }
        Ok(())
    }

    /// Some of the data of a frame.
    pub(in crate::l7::h2) fn data(&mut self, head: &FrameHeader, piece: &[u8], last: bool) {
        let n = piece.len() as u32;
        let open = self.find(head.stream).filter(|key| {
            let slot = &self.slots[key.0];
            slot.over.is_none() && !slot.received_all
        });
        let Some(key) = open else { return self.give_back(n) };
        let ends = last && head.has(flag::END_STREAM);
        let slot = self.slot(key);
        if !slot.wanted {
            self.give_back(n);
        } else if n > 0 {
            let slot = self.slot(key);
            slot.unread.extend_from_slice(piece);
            slot.moved = coarse_ms();
            if !ends {
                slot.wake_reader();
            }
        }
        if ends {
            if self.slot(key).is_whole() {
                self.received_all(key);
            } else {
                self.fault(key, Code::PROTOCOL_ERROR);
            }
        }
    }

    fn received_all(&mut self, key: Key) {
        let slot = self.slot(key);
        slot.received_all = true;
        slot.wake_reader();
        self.settle(key);
    }

    /// RST_STREAM came.
    pub(in crate::l7::h2) fn reset_by_client(&mut self, id: u32, code: Code) -> Result<(), Violation> {
        match self.find(id) {
            Some(key) => {
                if self.slot(key).over.is_none() {
                    self.over(key, code, true);
                }
                Ok(())
            }
            None if id > self.last => {
                Err(Violation::new(Code::PROTOCOL_ERROR, "RST_STREAM on a stream that was not opened"))
            }
            None => Ok(()),
        }
    }

    /// WINDOW_UPDATE came; stream 0 is the connection.
    pub(in crate::l7::h2) fn window_grows(&mut self, id: u32, more: u32) -> Result<(), Violation> {
        if id == 0 {
            self.window += i64::from(more);
            if more == 0 {
                return Err(Violation::new(Code::PROTOCOL_ERROR, "WINDOW_UPDATE of 0"));
            }
            if self.window > MOST_WINDOW {
                return Err(Violation::new(Code::FLOW_CONTROL_ERROR, "the connection's window is too large"));
            }
            self.call();
            self.feed();
            return Ok(());
        }
        let Some(key) = self.find(id) else {
            if id > self.last {
                return Err(Violation::new(
                    Code::PROTOCOL_ERROR,
                    "WINDOW_UPDATE on a stream that was not opened",
                ));
            }
            return Ok(());
        };
        let slot = self.slot(key);
        if slot.over.is_some() {
            return Ok(());
        }
        slot.window += i64::from(more);
        if more == 0 {
            self.fault(key, Code::PROTOCOL_ERROR);
        } else if slot.window > MOST_WINDOW {
            self.fault(key, Code::FLOW_CONTROL_ERROR);
        } else {
            slot.wake_writer();
        }
        Ok(())
    }

    /// The payload of SETTINGS: what the client can take. Of the sizes of windows only the last counts (RFC 9113
    /// §6.5.3), as each means a look at every stream.
    pub(in crate::l7::h2) fn apply_settings(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let all = settings(payload).map_err(|code| Violation::new(code, "SETTINGS that cannot be"))?;
        let mut window = None;
        for setting in all {
            match setting {
                Setting::InitialWindowSize(_) => window = Some(setting),
                other => self.apply_setting(other)?,
            }
        }
        window.map_or(Ok(()), |window| self.apply_setting(window))
    }

    /// The client has said what it can take.
    pub(in crate::l7::h2) fn apply_setting(&mut self, setting: Setting) -> Result<(), Violation> {
        match setting {
            Setting::HeaderTableSize(size) => self.encoder.limit(size as usize),
            Setting::MaxFrameSize(size) => self.frame = (size as usize).min(MOST_FRAME),
            Setting::InitialWindowSize(size) => {
                let more = i64::from(size) - self.first_window;
                let shrinks = more < 0;
                self.first_window = i64::from(size);
                for (_, key) in &self.ids {
                    #[cfg(test)]
                    self.looks.set(self.looks.get() + 1);
                    let slot = &mut self.slots[key.0];
                    if slot.over.is_some() || slot.sent_all {
                        continue;
                    }
                    slot.window += more;
                    if slot.window > MOST_WINDOW {
                        return Err(Violation::new(
                            Code::FLOW_CONTROL_ERROR,
                            "a stream's window is too large",
                        ));
                    }
                    if more > 0 {
                        slot.wake_writer();
                    }
                }
                if shrinks {
                    self.feed();
                }
            }
            // We open no streams, and send what servers send.
            Setting::MaxConcurrentStreams(_)
            | Setting::MaxHeaderListSize(_)
            | Setting::EnableConnectProtocol
            | Setting::NoRfc7540Priorities => {}
        }
        Ok(())
    }

    /// What was written has left: others may write, in the order of their priorities, and among equals those first that
    /// could not when it was written.
    pub(in crate::l7::h2) fn call(&mut self) {
        // Heads need no window.
        let heads = std::mem::take(&mut self.heads_wait);
        if self.waiting.is_empty() || (self.window <= 0 && !heads) {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        if self.prioritized {
            let now = coarse_ms();
            waiting.sort_by_key(|(_, key)| self.rank(*key, now));
            for (id, key) in waiting.drain(..) {
                let slot = self.slot(key);
                if slot.id == id && slot.waits {
                    (slot.waits, slot.wrote) = (false, false);
                    slot.wake_writer();
                }
            }
        }
        for had_their_turn in [false, true] {
            for (id, key) in &waiting {
                let slot = self.slot(*key);
                if slot.id == *id && slot.waits && slot.wrote == had_their_turn {
                    (slot.waits, slot.wrote) = (false, false);
                    slot.wake_writer();
                }
            }
        }
        waiting.clear();
        self.waiting = waiting;
    }

    /// Resets the streams to which nothing could be written for so long, in milliseconds, and on which nothing came
    /// either.
    pub(in crate::l7::h2) fn drop_blocked(&mut self, now: u64, limit: u64) {
        for at in 0..self.ids.len() {
            let key = self.ids[at].1;
            let slot = &self.slots[key.0];
            let since = slot.blocked.max(slot.moved);
            if slot.blocked > 0 && slot.over.is_none() && now.saturating_sub(since) >= limit {
                self.end(key, Code::CANCEL);
            }
        }
    }

    /// The connection has ended, and everybody learns of it.
    pub(in crate::l7::h2) fn die(&mut self) {
        self.dead = true;
        for (_, key) in &self.ids {
            let slot = &self.slots[key.0];
            slot.wake_reader();
            slot.wake_writer();
        }
    }
}
