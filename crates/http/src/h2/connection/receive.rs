//! What the frames of the peer mean, one by one (RFC 9113 §5, §6).

use super::{Block, Connection, Cost, Event, GOODBYE, Handler, LAST, Reset, Role};
use crate::h2::reader::Step;
use crate::h2::{Code, FrameHeader, Framed, Kind, Setting, Violation, flag, priority_update, settings};

/// How much larger than its fields a block may be, which may be split however its sender likes.
const BLOCK_SLACK: usize = 16 * 1024;
/// From so many on, the user has to have its turn before more is taken in.
const MANY_LEFT_OVER: usize = 4;
/// So many bytes of fields or of settings, and so many streams that get another window, are a piece of work.
pub(super) const PIECE: usize = 64;

impl<T: Default> Connection<T> {
    /// Takes in bytes of the peer, at `now` in milliseconds, and says by `on` what they mean for streams. Gives how many
    /// frames they brought, which is what this has cost.
    ///
    /// # Errors
    /// A rule that the peer broke. It ends the connection: the peer is told so by the output, streams that are open get
    /// nothing more, and nothing more is taken in.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now: u64,
        on: &mut dyn FnMut(u32, &mut T, Event<'_>),
    ) -> Result<usize, Violation> {
        self.take_in(bytes, now, on).map(|(_, frames)| frames)
    }

    /// The same for a user who is asked what there is room for, and may end its turn. Gives how many bytes were taken in;
    /// the rest is to come again.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_with<H: Handler<T> + ?Sized>(
        &mut self,
        bytes: &[u8],
        now: u64,
        on: &mut H,
    ) -> Result<usize, Violation> {
        self.take_in(bytes, now, on).map(|(used, _)| used)
    }

    fn take_in<H: Handler<T> + ?Sized>(
        &mut self,
        bytes: &[u8],
        now: u64,
        on: &mut H,
    ) -> Result<(usize, usize), Violation> {
        if self.closing.over {
            return Ok((bytes.len(), 0));
        }
        self.counted.flood.grow(now);
        self.set_time(now);
        let read = self.read(bytes, on);
        if let Err(violation) = &read {
            self.close(violation.code);
        }
        read
    }

    fn read<H: Handler<T> + ?Sized>(
        &mut self,
        bytes: &[u8],
        on: &mut H,
    ) -> Result<(usize, usize), Violation> {
        let (mut rest, mut frames) = (bytes, 0);
        while !rest.is_empty() && !on.is_over() {
            let (used, step) = self.reader.step(rest)?;
            on.spend(Cost::Pieces(1));
            match step {
                Step::More => {}
                Step::Here(head, place) => self.frame(&head, &rest[place], on)?,
                Step::Kept(head) => {
                    let payload = std::mem::take(&mut self.reader.kept);
                    self.frame(&head, &payload, on)?;
                    self.reader.kept = payload;
                }
                Step::Data(data) => self.data_piece(&data, &rest[data.piece.clone()], on)?,
            }
            frames += 1;
            rest = &rest[used..];
        }
        if std::mem::take(&mut self.streams.swept_for) {
            self.sweep();
        }
        let counted = &mut self.counted;
        let faults = counted.faults.count - std::mem::replace(&mut counted.seen, counted.faults.count);
        let refused = std::mem::take(&mut counted.refused);
        if !counted.flood.faults(faults) || !counted.flood.turned_away(refused) {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many streams had to be reset"));
        }
        Ok((bytes.len() - rest.len(), frames))
    }

    fn frame<H: Handler<T> + ?Sized>(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        self.allow(head, payload.len())?;
        let own = matches!(head.kind, Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate);
        let of_streams = matches!(
            head.kind,
            Kind::Headers | Kind::Priority | Kind::ResetStream | Kind::Continuation | Kind::PushPromise
        );
        if own && head.stream != 0 || of_streams && head.stream == 0 {
            return Err(Violation::protocol("a frame on a stream where it cannot be"));
        }
        let size = |right: bool| {
            let wrong = Violation::new(Code::FRAME_SIZE_ERROR, "a frame of a length that it cannot have");
            if right { Ok(()) } else { Err(wrong) }
        };
        let number = |at: usize| {
            payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
        };
        match head.kind {
            Kind::Headers => self.headers(head, payload, on)?,
            Kind::Continuation => self.continuation(head, payload, on)?,
            Kind::ResetStream => {
                size(payload.len() == 4)?;
                self.reset_by_peer(head.stream, Code(number(0)), on)?;
            }
            Kind::WindowUpdate => {
                size(payload.len() == 4)?;
                self.window_grows(head.stream, number(0) & LAST, on)?;
            }
            Kind::Priority => size(payload.len() == 5)?,
            Kind::PriorityUpdate if self.role == Role::Client => {
                return Err(Violation::protocol("PRIORITY_UPDATE of a server"));
            }
            Kind::PriorityUpdate => {
                let (id, priority) = priority_update(payload)?;
                if id > self.streams.highest {
                    self.updates.put(id, priority);
                } else {
                    self.streams.prioritize(id, |_| priority);
                }
            }
            Kind::Settings => self.settings(head, payload, on)?,
            Kind::Ping => {
                size(payload.len() == 8)?;
                if !head.has(flag::ACK) {
                    self.output.frame(Kind::Ping, flag::ACK, 0, payload);
                } else if payload == GOODBYE && self.closing.said == Some(LAST) {
                    self.part(Code::NO_ERROR);
                } else {
                    self.pong(payload, on);
                }
            }
            Kind::GoAway => {
                size(payload.len() >= 8)?;
                self.goaway_by_peer(number(0) & LAST, Code(number(4)), on);
            }
            Kind::PushPromise => return Err(Violation::protocol("PUSH_PROMISE, which was not allowed")),
            // Data is read elsewhere.
            Kind::Data | Kind::Unknown => {}
        }
        self.frames += u64::from(self.block.is_none());
        Ok(())
    }

    /// What holds for every frame.
    pub(super) fn allow(&mut self, head: &FrameHeader, content: usize) -> Result<(), Violation> {
        if !self.peer.greeted && (head.kind != Kind::Settings || head.has(flag::ACK)) {
            return Err(Violation::protocol("the first frame is not SETTINGS"));
        }
        if let Some(block) = &self.block
            && (head.kind != Kind::Continuation || head.stream != block.stream)
        {
            return Err(Violation::protocol("a frame within a block of fields"));
        }
        let early = head.kind == Kind::ResetStream
            && self.role == Role::Server
            && self.streams.live(head.stream).is_some_and(|stream| !stream.answered);
        let counted = &mut self.counted;
        counted.flood.earn(&std::mem::take(&mut counted.traffic));
        let paid = if early { counted.flood.early_reset() } else { counted.flood.frame(head, content) };
        if paid { Ok(()) } else { Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many control frames")) }
    }

    /// Whether a stream was never opened (RFC 9113 §5.1.1).
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || id > self.streams.highest
    }

    /// Whether nothing is to be said of what comes for a stream that was forgotten: we have reset it, or it is behind the
    /// last one that is served.
    fn is_ignored(&self, id: u32) -> bool {
        let unserved = self.closing.said.is_some_and(|last| id > last) && self.role == Role::Server;
        unserved || self.streams.is_ours(id)
    }

    /// DATA came on a stream that has ended, or that the user has forgotten. Whoever does not know yet that we have reset it
    /// does no wrong.
    pub(super) fn late_data(&mut self, id: u32) {
        let by_peer = self.streams.peek(id).map(|stream| stream.by_peer);
        match self.role {
            Role::Server if by_peer == Some(true) || by_peer.is_none() && !self.is_ignored(id) => {
                self.refuse(id, Code::STREAM_CLOSED);
            }
            // We reset streams when clients leave; how many we remember has a bound.
            Role::Client if by_peer.is_none() && !self.is_ignored(id) => {
                self.counted.faults.count(Code::STREAM_CLOSED);
            }
            _ => {}
        }
    }

    /// The same for fields, which cost more.
    pub(super) fn late_fields(&mut self, id: u32) -> Result<(), Violation> {
        match self.role {
            Role::Server if !self.is_ignored(id) => {
                Err(Violation::new(Code::STREAM_CLOSED, "HEADERS on a stream that has ended"))
            }
            Role::Server => Ok(()),
            Role::Client => {
                self.late_data(id);
                Ok(())
            }
        }
    }

    /// Resets a stream for a fault of the peer's.
    pub(super) fn fault<H: Handler<T> + ?Sized>(&mut self, id: u32, violation: Violation, on: &mut H) {
        let code = violation.code;
        self.counted.faults.count(code);
        self.end(id, code, Reset::Violation(violation), on);
    }

    /// Resets a stream, and says so.
    pub(super) fn end<H: Handler<T> + ?Sized>(&mut self, id: u32, code: Code, reset: Reset, on: &mut H) {
        self.over(id, reset, on);
        self.turn_away(id, code);
    }

    /// A stream has ended at once.
    fn over<H: Handler<T> + ?Sized>(&mut self, id: u32, reset: Reset, on: &mut H) {
        let Some(stream) = self.streams.live(id) else { return };
        stream.reset = true;
        if !stream.lingers {
            on.event(id, &mut stream.user, Event::Reset(reset));
        }
        self.streams.settle(id);
        self.discard(id);
    }

    /// Resets a stream that nobody has, for a fault of the peer's.
    pub(super) fn refuse(&mut self, id: u32, code: Code) {
        self.counted.faults.count(code);
        self.turn_away(id, code);
    }

    pub(super) fn turn_away(&mut self, id: u32, code: Code) {
        self.streams.remember(id);
        self.output.reset(id, code);
    }

    fn headers<H: Handler<T> + ?Sized>(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        let framed = Framed::of(head, payload.first().copied())
            .map_err(|code| Violation::new(code, "HEADERS with more padding than payload"))?;
        let fragment = &payload[framed.before..framed.before + framed.length];
        let end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.message(head.stream, end, fragment, on);
        }
        self.block = Some(Block { stream: head.stream, end, bytes: fragment.to_vec() });
        Ok(())
    }

    /// More of a block of fields.
    fn continuation<H: Handler<T> + ?Sized>(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        let Some(block) = &mut self.block else {
            return Err(Violation::protocol("CONTINUATION without HEADERS"));
        };
        block.bytes.extend_from_slice(payload);
        if block.bytes.len() > self.config.max_head as usize + BLOCK_SLACK {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "a block of fields that does not end"));
        }
        match self.block.take_if(|_| head.has(flag::END_HEADERS)) {
            Some(Block { stream, end, bytes }) => self.message(stream, end, &bytes, on),
            None => Ok(()),
        }
    }

    fn reset_by_peer<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        code: Code,
        on: &mut H,
    ) -> Result<(), Violation> {
        if self.is_idle(id) {
            return Err(Violation::protocol("RST_STREAM on a stream that was not opened"));
        }
        if let Some(stream) = self.streams.live(id) {
            stream.by_peer = true;
            self.over(id, Reset::Peer(code), on);
        }
        if self.role == Role::Server && self.streams.len() - self.streams.active >= MANY_LEFT_OVER {
            on.spend(Cost::Turn);
        }
        Ok(())
    }

    /// The peer serves no stream above `last` (RFC 9113 §6.8).
    fn goaway_by_peer<H: Handler<T> + ?Sized>(&mut self, last: u32, code: Code, on: &mut H) {
        // It may be lowered by another GOAWAY, and is not raised.
        let last = self.closing.heard.map_or(last, |(before, _)| before.min(last));
        self.closing.heard = Some((last, code));
        if self.role == Role::Server {
            return;
        }
        let mut unserved = Vec::new();
        for stream in self.streams.all().filter(|stream| stream.id > last && stream.is_live()) {
            stream.reset = true;
            on.event(stream.id, &mut stream.user, Event::Reset(Reset::GoAway(code)));
            unserved.push(stream.id);
        }
        unserved.into_iter().for_each(|id| self.streams.settle(id));
    }

    fn settings<H: Handler<T> + ?Sized>(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        self.peer.greeted = true;
        if head.has(flag::ACK) {
            self.agree();
            let wrong = Violation::new(Code::FRAME_SIZE_ERROR, "an answer to SETTINGS that says something");
            return if payload.is_empty() { Ok(()) } else { Err(wrong) };
        }
        on.spend(Cost::Pieces((payload.len() + self.streams.len()) / PIECE));
        let all = settings(payload).map_err(|code| Violation::new(code, "SETTINGS that cannot be"))?;
        let mut window = None;
        for setting in all {
            match setting {
                // Only the last counts (RFC 9113 §6.5.3), as each means a look at every stream.
                Setting::InitialWindowSize(size) => window = Some(size),
                Setting::HeaderTableSize(size) => self.encoder.limit(size as usize),
                Setting::MaxFrameSize(size) => self.peer.frame = (size as usize).min(super::MOST),
                Setting::MaxConcurrentStreams(most) if self.role == Role::Client => {
                    self.peer.max_streams = most as usize;
                }
                Setting::MaxHeaderListSize(size) => self.peer.max_head = size as usize,
                Setting::MaxConcurrentStreams(_)
                | Setting::EnableConnectProtocol
                | Setting::NoRfc7540Priorities => {}
            }
        }
        let pushes = |pair: &[u8; 6]| pair[..2] == [0, 2] && pair[5] == 1;
        if self.role == Role::Client && payload.as_chunks().0.iter().any(pushes) {
            return Err(Violation::protocol("a server that allows its client to push"));
        }
        if let Some(size) = window {
            self.stream_windows(size, on)?;
        }
        self.output.frame(Kind::Settings, flag::ACK, 0, &[]);
        Ok(())
    }
}
