//! Processing of received frames (RFC 9113 §5, §6).

use super::closing::GOODBYE;
use super::state::{Closure, StreamState, Verdict};
use super::{Connection, Cost, Event, Handler, LAST, Reset, Role};
use crate::h2::reader::{Reader, Step};
use crate::h2::{Code, FrameHeader, Framed, Kind, Violation, flag, priority_update};
use crate::hpack::HpackDecoder;

/// Maximum excess of a header block over the size of its fields, in bytes; blocks may be encoded
/// inefficiently.
const BLOCK_SLACK: usize = 16 * 1024;
/// Number of ended streams from which the caller must run before more is processed.
const MANY_LEFT_OVER: usize = 4;
/// Bytes of fields or of settings, or streams with a changed window, per piece of work.
pub(super) const PIECE: usize = 64;

/// Frames and header blocks of the peer while they arrive.
#[derive(Debug)]
pub(super) struct ReceiveSide {
    pub(super) reader: Reader,
    pub(super) decoder: HpackDecoder,
    block: Option<Block>,
    /// Number of whole frames received; a header block counts once.
    pub(super) frames: u64,
}

/// An incomplete header block.
#[derive(Debug)]
struct Block {
    stream: u32,
    end: bool,
    bytes: Vec<u8>,
}

/// Size of the decoder's dynamic table, in bytes (RFC 7541 §6.5.2).
const TABLE: usize = 4096;

impl ReceiveSide {
    /// Nothing has arrived yet.
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, decoder: HpackDecoder::new(TABLE), block: None, frames: 0 }
    }

    /// Returns true while the rest of a header block, or of a frame other than DATA, is missing.
    pub(super) fn is_amid(&self) -> bool {
        self.reader.is_amid() || self.block.is_some()
    }

    /// Returns true while the rest of a header block is missing.
    pub(super) fn is_in_block(&self) -> bool {
        self.block.is_some()
    }

    /// Allocated memory in bytes, without that of the decoder.
    pub(super) fn memory(&self) -> usize {
        self.reader.kept.capacity() + self.block.as_ref().map_or(0, |block| block.bytes.capacity())
    }
}

impl<T: Default> Connection<T> {
    /// Processes bytes of the peer, at `now` in milliseconds, and reports events of streams to `on`. Returns
    /// the number of frames, which is the cost.
    ///
    /// # Errors
    /// A protocol violation. It ends the connection: the output has GOAWAY, open streams get no more events,
    /// and nothing more is processed.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now: u64,
        on: &mut dyn FnMut(u32, &mut T, Event<'_>),
    ) -> Result<usize, Violation> {
        self.take_in(bytes, now, on).map(|(_, frames)| frames)
    }

    /// Like [`Connection::receive`], for a [`Handler`], which admits requests and may pause processing.
    /// Returns the number of bytes processed; pass the rest again later.
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
            let (used, step) = self.incoming.reader.step(rest)?;
            on.spend(Cost::Pieces(1));
            match step {
                Step::More => {}
                Step::Here(head, place) => self.frame(&head, &rest[place], on)?,
                Step::Kept(head) => {
                    let payload = std::mem::take(&mut self.incoming.reader.kept);
                    self.frame(&head, &payload, on)?;
                    self.incoming.reader.kept = payload;
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
        let faults =
            counted.faults.count - std::mem::replace(&mut counted.faults_accounted, counted.faults.count);
        let refused = std::mem::take(&mut counted.refused);
        if !counted.flood.faults(faults) || !counted.flood.turned_away(refused) {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many streams with errors"));
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
        self.placed(head)?;
        let size = |right: bool| {
            let wrong = Violation::new(Code::FRAME_SIZE_ERROR, "a frame with an invalid length");
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
                if self.permits(head)? {
                    self.reset_by_peer(head.stream, Code(number(0)), on);
                }
            }
            Kind::WindowUpdate => {
                size(payload.len() == 4)?;
                if head.stream == 0 {
                    self.connection_window_grows(number(0) & LAST, on)?;
                } else if self.permits(head)? {
                    self.stream_window_grows(head.stream, number(0) & LAST, on);
                }
            }
            Kind::Priority => size(payload.len() == 5)?,
            Kind::PriorityUpdate => self.priority_by_peer(payload)?,
            Kind::Settings => self.settings(head, payload, on)?,
            Kind::Ping => {
                size(payload.len() == 8)?;
                self.ping(head, payload, on);
            }
            Kind::GoAway => {
                size(payload.len() >= 8)?;
                self.goaway_by_peer(number(0) & LAST, Code(number(4)), on);
            }
            // Misplaced everywhere; and DATA is handled elsewhere.
            Kind::PushPromise | Kind::Data | Kind::Unknown => {}
        }
        self.incoming.frames += u64::from(self.incoming.block.is_none());
        Ok(())
    }

    fn ping<H: Handler<T> + ?Sized>(&mut self, head: &FrameHeader, payload: &[u8], on: &mut H) {
        if !head.has(flag::ACK) {
            self.outgoing.output.frame(Kind::Ping, flag::ACK, 0, payload);
        } else if payload == GOODBYE && self.closing.goaway_sent == Some(LAST) {
            self.part(Code::NO_ERROR);
        } else {
            self.pong(payload, on);
        }
    }

    /// Handles PRIORITY_UPDATE (RFC 9218 §7.1), which may precede its request.
    fn priority_by_peer(&mut self, payload: &[u8]) -> Result<(), Violation> {
        if self.role == Role::Client {
            return Err(Violation::protocol("PRIORITY_UPDATE from a server"));
        }
        let (id, priority) = priority_update(payload)?;
        if id > self.streams.highest {
            self.updates.put(id, priority);
        } else {
            self.streams.prioritize(id, |_| priority);
        }
        Ok(())
    }

    /// Checks that apply to every frame.
    pub(super) fn allow(&mut self, head: &FrameHeader, content: usize) -> Result<(), Violation> {
        if !self.peer.settings_received && (head.kind != Kind::Settings || head.has(flag::ACK)) {
            return Err(Violation::protocol("the first frame is not SETTINGS"));
        }
        if let Some(block) = &self.incoming.block
            && (head.kind != Kind::Continuation || head.stream != block.stream)
        {
            return Err(Violation::protocol("a frame within a header block"));
        }
        let early = head.kind == Kind::ResetStream
            && self.role == Role::Server
            && self.streams.live(head.stream).is_some_and(|stream| !stream.responded);
        let counted = &mut self.counted;
        counted.flood.earn(&std::mem::take(&mut counted.traffic));
        let paid = if early { counted.flood.early_reset() } else { counted.flood.frame(head, content) };
        if paid { Ok(()) } else { Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many control frames")) }
    }

    /// State of a stream, known or not.
    pub(super) fn state(&self, id: u32) -> StreamState {
        let unserved = self.role == Role::Server && self.closing.goaway_sent.is_some_and(|last| id > last);
        match self.streams.state(id) {
            StreamState::Closed(Closure::Forgotten) if unserved => StreamState::Closed(Closure::Unprocessed),
            state => state,
        }
    }

    /// Refuses a frame of the connection on a stream, a frame of a stream on the connection, and PUSH_PROMISE
    /// (RFC 9113 §6).
    #[inline]
    fn placed(&self, head: &FrameHeader) -> Result<(), Violation> {
        let on_stream = head.stream != 0;
        let fits = match head.kind {
            Kind::Headers | Kind::Continuation | Kind::Priority | Kind::ResetStream => on_stream,
            Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate => !on_stream,
            Kind::Data | Kind::WindowUpdate | Kind::Unknown => true,
            Kind::PushPromise => false,
        };
        if fits {
            return Ok(());
        }
        if !on_stream {
            return Err(Violation::protocol("a frame of a stream on the connection"));
        }
        self.permits(head).map(drop)
    }

    /// Returns true if the state of its stream permits a frame, and false if the frame has no effect.
    fn permits(&self, head: &FrameHeader) -> Result<bool, Violation> {
        let state = self.state(head.stream);
        match state.verdict(head.kind, self.role) {
            Verdict::Process => Ok(true),
            Verdict::ConnectionError(code) => Err(state.violation(head.kind, code)),
            // Streams have errors of DATA and HEADERS only.
            Verdict::Ignore | Verdict::Tolerate | Verdict::StreamError(_) => Ok(false),
        }
    }

    /// Handles DATA, or a header block, that the state of its stream does not permit.
    #[cold]
    pub(super) fn misplaced<H: Handler<T> + ?Sized>(
        &mut self,
        id: u32,
        kind: Kind,
        on: &mut H,
    ) -> Result<(), Violation> {
        let state = self.state(id);
        match state.verdict(kind, self.role) {
            Verdict::Process | Verdict::Ignore => {}
            Verdict::Tolerate => self.counted.faults.count(Code::STREAM_CLOSED),
            Verdict::StreamError(code) => self.fault(id, state.violation(kind, code), on),
            Verdict::ConnectionError(code) => return Err(state.violation(kind, code)),
        }
        Ok(())
    }

    /// Resets a stream because of a violation by the peer.
    pub(super) fn fault<H: Handler<T> + ?Sized>(&mut self, id: u32, violation: Violation, on: &mut H) {
        let code = violation.code;
        self.counted.faults.count(code);
        self.end(id, code, Reset::Violation(violation), on);
    }

    /// Resets a stream, and reports it to the caller.
    pub(super) fn end<H: Handler<T> + ?Sized>(&mut self, id: u32, code: Code, reset: Reset, on: &mut H) {
        self.abort(id, Closure::ResetByUs, reset, on);
        self.turn_away(id, code);
    }

    /// Marks a stream as aborted, and reports it to the caller.
    fn abort<H: Handler<T> + ?Sized>(&mut self, id: u32, closure: Closure, reset: Reset, on: &mut H) {
        let Some(stream) = self.streams.live(id) else { return };
        if !stream.lingers {
            on.event(id, &mut stream.user, Event::Reset(reset));
        }
        self.streams.advance(id, |_| StreamState::Closed(closure));
        self.discard(id);
    }

    /// Resets an unknown stream because of a violation by the peer.
    pub(super) fn refuse(&mut self, id: u32, code: Code) {
        self.counted.faults.count(code);
        self.turn_away(id, code);
    }

    pub(super) fn turn_away(&mut self, id: u32, code: Code) {
        self.streams.remember(id);
        self.outgoing.output.reset(id, code);
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
        self.incoming.block = Some(Block { stream: head.stream, end, bytes: fragment.to_vec() });
        Ok(())
    }

    /// Appends the fragment of a CONTINUATION to its block.
    fn continuation<H: Handler<T> + ?Sized>(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        on: &mut H,
    ) -> Result<(), Violation> {
        let Some(block) = &mut self.incoming.block else {
            return Err(Violation::protocol("CONTINUATION without HEADERS"));
        };
        block.bytes.extend_from_slice(payload);
        if block.bytes.len() > self.config.max_head as usize + BLOCK_SLACK {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "a header block without an end"));
        }
        match self.incoming.block.take_if(|_| head.has(flag::END_HEADERS)) {
            Some(Block { stream, end, bytes }) => self.message(stream, end, &bytes, on),
            None => Ok(()),
        }
    }

    fn reset_by_peer<H: Handler<T> + ?Sized>(&mut self, id: u32, code: Code, on: &mut H) {
        self.abort(id, Closure::ResetByPeer, Reset::Peer(code), on);
        if self.role == Role::Server && self.streams.len() - self.streams.active >= MANY_LEFT_OVER {
            on.spend(Cost::Turn);
        }
    }

    /// Handles GOAWAY: the peer serves no stream above `last` (RFC 9113 §6.8).
    fn goaway_by_peer<H: Handler<T> + ?Sized>(&mut self, last: u32, code: Code, on: &mut H) {
        // A second GOAWAY may lower the number, never raise it.
        let last = self.closing.goaway_received.map_or(last, |(before, _)| before.min(last));
        self.closing.goaway_received = Some((last, code));
        if self.role == Role::Server {
            return;
        }
        let (streams, active) = self.streams.all_counted();
        for stream in streams {
            if stream.id > last && !stream.state().is_closed() {
                stream.advance(StreamState::Closed(Closure::Unprocessed), active);
                on.event(stream.id, &mut stream.user, Event::Reset(Reset::GoAway(code)));
            }
        }
    }
}
