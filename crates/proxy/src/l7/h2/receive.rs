//! What the frames of a client mean, one by one (RFC 9113 §5, §6).

use std::rc::Rc;
use std::time::Duration;

use http::Method;
use offramp_http::h2::flood::Flood;
use offramp_http::h2::reader::Reader;
use offramp_http::h2::{Code, FrameHeader, Framed, Kind, flag, priority_update};
use offramp_http::head::{ControlData, FieldSection, Known, Request};
use offramp_http::hpack::Decoder;
use offramp_net::clock::coarse_ms;
use offramp_net::turn::{Turn, Work};

use super::Violation;
use super::handle::{Incoming, Respond};
use super::reader::{Frame, read};
use super::rules::judge;
use super::runner::Job;
use super::stream::declared_length;
use super::table::{LAST, Opened, Shared, StreamTable};
use crate::l7::session::Session;
use crate::snapshot::http::HttpLimits;

/// The table that clients encode fields with, which is the one of the RFC (RFC 7541 §6.5.2).
const TABLE: usize = 4096;
/// The PING that asks whether a client has received GOAWAY (RFC 9113 §6.8).
pub(super) const GOODBYE: &[u8; 8] = b"goodbye!";
/// How much larger than its fields a block may be, which may be split however its client likes.
const BLOCK_SLACK: usize = 16 * 1024;
/// What it costs to begin a request, in pieces of work; its task runs later.
const REQUEST: usize = 32;
/// What a field costs, as bytes of work, besides its bytes.
const FIELD: usize = 40;
/// So many bytes of fields or of settings, and so many streams that get another window, are a piece of work.
const PIECE: usize = 64;

/// Processes the frames of a client.
pub(super) struct FrameReceiver {
    session: Rc<Session>,
    decoder: Decoder,
    flood: Flood,
    /// Bounds another protocol on a stream.
    idle: Duration,
    /// Bytes of the fields of a message.
    most: usize,
    /// A block of fields that has not come whole.
    block: Option<Block>,
    /// Whether the client's settings have come.
    greeted: bool,
    /// Whether the client says that it opens no more streams.
    leaves: bool,
    /// How many streams were reset for faults of its own, and turned away, when that was last looked at.
    faults: u32,
    turned_away: u32,
    /// How many frames have come, those that are a part of a block not counted.
    frames: u64,
}

/// The begin of a block of fields.
struct Block {
    stream: u32,
    ends: bool,
    bytes: Vec<u8>,
}

impl FrameReceiver {
    /// Nothing was received. `idle` bounds another protocol on a stream.
    pub(super) fn new(session: Rc<Session>, limits: &HttpLimits, idle: Duration) -> Self {
        Self {
            session,
            decoder: Decoder::new(TABLE),
            flood: Flood::new(coarse_ms()),
            idle,
            most: limits.request_header_size as usize,
            block: None,
            greeted: false,
            leaves: false,
            faults: 0,
            turned_away: 0,
            frames: 0,
        }
    }

    /// Whether the client has said that it opens no more streams, and all of the last one has come.
    pub(super) fn has_said_goodbye(&self) -> bool {
        self.leaves && self.block.is_none()
    }

    /// Whether the client owes the rest of its greeting, or of a block of fields.
    pub(super) fn is_amid(&self) -> bool {
        !self.greeted || self.block.is_some()
    }

    /// How many frames have come, those that are a part of a block not counted.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Heeds what `bytes` say until the turn is over, and gives how many of them were used up.
    pub(super) fn receive(
        &mut self,
        reader: &mut Reader,
        table: &Shared,
        bytes: &[u8],
        turn: &mut Turn,
    ) -> Result<usize, Violation> {
        self.flood.grow(coarse_ms());
        let used = read(reader, bytes, turn, |frame, turn| match frame {
            Frame::Whole(head, payload) => self.frame(table, &head, payload, turn),
            Frame::Data { head, framed, piece, first, last } => {
                self.data(&mut table.borrow_mut(), &head, framed, (piece, first, last))
            }
        })?;
        let (faults, turned_away) = (table.borrow().client_faults.faults, table.borrow().turned_away);
        let fresh = faults - std::mem::replace(&mut self.faults, faults);
        let away = turned_away - std::mem::replace(&mut self.turned_away, turned_away);
        if !self.flood.faults(fresh) || !self.flood.turned_away(away) {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many streams had to be reset"));
        }
        Ok(used)
    }

    /// What holds for every frame.
    fn allow(&mut self, head: &FrameHeader, content: usize, early_reset: bool) -> Result<(), Violation> {
        let protocol = |what| Err(Violation::new(Code::PROTOCOL_ERROR, what));
        if !self.greeted && (head.kind != Kind::Settings || head.has(flag::ACK)) {
            return protocol("the first frame is not SETTINGS");
        }
        if let Some(block) = &self.block
            && (head.kind != Kind::Continuation || head.stream != block.stream)
        {
            return protocol("a frame within a block of fields");
        }
        let paid = if early_reset { self.flood.early_reset() } else { self.flood.frame(head, content) };
        if !paid {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many control frames"));
        }
        Ok(())
    }

    fn data(
        &mut self,
        table: &mut StreamTable,
        head: &FrameHeader,
        framed: Framed,
        (piece, first, last): (&[u8], bool, bool),
    ) -> Result<(), Violation> {
        if first {
            self.allow(head, framed.length, false)?;
            if head.stream == 0 {
                return Err(Violation::new(Code::PROTOCOL_ERROR, "DATA on no stream"));
            }
            table.data_begins(head, framed)?;
        }
        table.data(head, piece, last);
        self.frames += u64::from(last);
        Ok(())
    }

    fn frame(
        &mut self,
        table: &Shared,
        head: &FrameHeader,
        payload: &[u8],
        turn: &mut Turn,
    ) -> Result<(), Violation> {
        self.flood.earn(&std::mem::take(&mut table.borrow_mut().traffic));
        let early = head.kind == Kind::ResetStream && table.borrow().is_unanswered(head.stream);
        self.allow(head, payload.len(), early)?;
        let own = matches!(head.kind, Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate);
        let of_streams =
            matches!(head.kind, Kind::Headers | Kind::Priority | Kind::ResetStream | Kind::Continuation);
        if own && head.stream != 0 || of_streams && head.stream == 0 {
            return Err(Violation::new(Code::PROTOCOL_ERROR, "a frame on a stream where it cannot be"));
        }
        let size = |right: bool| {
            let wrong = Violation::new(Code::FRAME_SIZE_ERROR, "a frame of a length that it cannot have");
            if right { Ok(()) } else { Err(wrong) }
        };
        let number = |at: usize| {
            payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes)
        };
        match head.kind {
            Kind::Headers => {
                let framed = Framed::of(head, payload.first().copied())
                    .map_err(|code| Violation::new(code, "HEADERS with more padding than payload"))?;
                let fragment = &payload[framed.before..framed.before + framed.length];
                let ends = head.has(flag::END_STREAM);
                if head.has(flag::END_HEADERS) {
                    return self.message(table, (head.stream, ends), fragment, turn);
                }
                self.block = Some(Block { stream: head.stream, ends, bytes: fragment.to_vec() });
            }
            Kind::Continuation => return self.go_on(table, head, payload, turn),
            Kind::ResetStream => {
                size(payload.len() == 4)?;
                let table = &mut table.borrow_mut();
                table.reset_by_client(head.stream, Code(number(0).unwrap_or_default()))?;
                if table.has_left_overs() {
                    turn.spend(Work::Pieces(usize::MAX));
                }
            }
            Kind::WindowUpdate => {
                size(payload.len() == 4)?;
                let more = number(0).unwrap_or_default() & LAST;
                table.borrow_mut().window_grows(head.stream, more)?;
            }
            Kind::Priority => size(payload.len() == 5)?,
            Kind::PriorityUpdate => {
                let (id, priority) = priority_update(payload)?;
                table.borrow_mut().update_priority(id, priority);
            }
            Kind::Settings => {
                self.greeted = true;
                if head.has(flag::ACK) {
                    table.borrow_mut().agreed = true;
                    return size(payload.is_empty());
                }
                let table = &mut table.borrow_mut();
                turn.spend(Work::Pieces((payload.len() + table.count()) / PIECE));
                table.apply_settings(payload)?;
                table.out.frame(Kind::Settings, flag::ACK, 0, &[]);
            }
            Kind::Ping => {
                size(payload.len() == 8)?;
                let table = &mut table.borrow_mut();
                if !head.has(flag::ACK) {
                    table.out.frame(Kind::Ping, flag::ACK, 0, payload);
                } else if payload == GOODBYE && table.goodbye == Some(LAST) {
                    table.part(Code::NO_ERROR);
                }
            }
            Kind::GoAway => {
                size(payload.len() >= 8)?;
                self.leaves = true;
            }
            Kind::PushPromise => {
                return Err(Violation::new(Code::PROTOCOL_ERROR, "PUSH_PROMISE of a client"));
            }
            // Data is read elsewhere.
            Kind::Data | Kind::Unknown => {}
        }
        self.frames += u64::from(self.block.is_none());
        Ok(())
    }

    /// More of a block of fields.
    fn go_on(
        &mut self,
        table: &Shared,
        head: &FrameHeader,
        payload: &[u8],
        turn: &mut Turn,
    ) -> Result<(), Violation> {
        let Some(block) = &mut self.block else {
            return Err(Violation::new(Code::PROTOCOL_ERROR, "CONTINUATION without HEADERS"));
        };
        block.bytes.extend_from_slice(payload);
        if block.bytes.len() > self.most + BLOCK_SLACK {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "a block of fields that does not end"));
        }
        match self.block.take_if(|_| head.has(flag::END_HEADERS)) {
            Some(Block { stream, ends, bytes }) => self.message(table, (stream, ends), &bytes, turn),
            None => Ok(()),
        }
    }

    /// A whole block of fields: a request, or its trailers. It is decoded whatever becomes of it, so that the
    /// table stays the client's (RFC 9113 §4.3).
    fn message(
        &mut self,
        table: &Shared,
        (id, ends): (u32, bool),
        block: &[u8],
        turn: &mut Turn,
    ) -> Result<(), Violation> {
        self.frames += 1;
        turn.spend(Work::Pieces(REQUEST + block.len() / PIECE));
        let fresh = id > table.borrow().last;
        if fresh && id.is_multiple_of(2) {
            return Err(Violation::new(Code::PROTOCOL_ERROR, "a stream with an even number"));
        }
        let heads = &self.session.worker.heads;
        let mut head = if fresh { heads.take() } else { Box::default() };
        let mut section = FieldSection::new(std::mem::take(&mut head.fields), self.most);
        let mut count = 0;
        self.decoder
            .decode(block, |field| {
                count += 1;
                section.take(field);
            })
            .map_err(|fault| Violation::because(Code::COMPRESSION_ERROR, &fault))?;
        let fields = section.size();
        // A field of a byte costs nearly as much as a long one.
        turn.spend(Work::Bytes(FIELD * count + fields.min(self.most)));
        if !fresh {
            let table = &mut table.borrow_mut();
            if table.is_to_have_trailers(id, ends)? {
                table.trailers(id, section.trailers(), fields);
            }
            return Ok(());
        }
        table.borrow_mut().last = id;
        let control = section.request(&mut head);
        self.request(table, (id, ends), fields, (head, control))
    }

    /// A request has come.
    fn request(
        &mut self,
        table: &Shared,
        (id, ends): (u32, bool),
        fields: usize,
        (head, control): (Box<Request>, Option<ControlData>),
    ) -> Result<(), Violation> {
        let heads = &self.session.worker.heads;
        let mut shared = table.borrow_mut();
        let Some(control) = control else {
            shared.refuse(id, Code::PROTOCOL_ERROR);
            heads.put(head);
            return Ok(());
        };
        let length = declared_length(&head.fields);
        // What follows such a head is no content (RFC 9110 §9.3.6).
        if head.method == Method::CONNECT && length.is_some_and(|length| length > 0) {
            shared.refuse(id, Code::PROTOCOL_ERROR);
            heads.put(head);
            return Ok(());
        }
        let size = fields.min(self.most);
        let mut opened = shared.open(id, ends, length, size)?;
        // A reload may have raised the limit.
        if matches!(opened, Opened::Full) && shared.limit_memory(self.memory()) {
            opened = shared.open(id, ends, length, size)?;
        }
        let key = match opened {
            Opened::Stream(key) => key,
            Opened::Not => {
                heads.put(head);
                return Ok(());
            }
            Opened::Full => {
                heads.put(head);
                if shared.has_no_room(id, size) {
                    let client = &self.session.brief.client.address;
                    self.session.worker.shared.refusals.has_no_memory(client);
                }
                return Ok(());
            }
        };
        shared.begin_priority(key, head.fields.get(Known::Priority));
        drop(shared);
        let respond = Respond::new(table, key);
        let incoming = (!ends).then(|| Incoming::new(table, key));
        let refused = judge(&head, &control).err().map(Box::new);
        let session = Rc::clone(&self.session);
        let job =
            Job { session, head, protocol: control.protocol, refused, incoming, respond, idle: self.idle };
        self.session.worker.runners.run(job);
        Ok(())
    }

    /// What all connections of the worker may hold now.
    #[cold]
    fn memory(&self) -> usize {
        self.session.view().http().map_or(usize::MAX, |http| http.limits.memory)
    }
}
