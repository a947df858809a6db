//! What the frames of the peer mean, one by one (RFC 9113 §5, §6).

use super::streams::{Remote, Stream};
use super::{Block, Connection, Event, GOODBYE, LAST, Reset, Role};
use crate::h2::reader::Step;
use crate::h2::{
    Code, FrameHeader, Framed, Kind, Priority, Setting, Violation, flag, priority_update, settings,
};
use crate::head::{FieldSection, Fields, Known, Request, Response};

use super::send::said_length;

/// How much larger than its fields a block may be, which may be split however its sender likes.
const BLOCK_SLACK: usize = 16 * 1024;
/// The most interim responses to one request. Whoever works for long says so with 102 once in a while.
const MOST_INTERIM: u16 = 500;
/// Streams that the user has and that are over, besides those that may be open (server).
const LEFT_OVER: usize = 28;

/// Who is told what comes.
pub(super) type On<'o, T> = &'o mut dyn FnMut(u32, &mut T, Event<'_>);

impl<T: Default> Connection<T> {
    /// Takes in bytes of the peer, at `now` in milliseconds, and says by `on` what they mean for streams. Gives how many
    /// frames they brought, which is what this has cost.
    ///
    /// # Errors
    /// A rule that the peer broke. It ends the connection: the peer is told so by the output, streams that are open get
    /// nothing more, and nothing more is taken in.
    pub fn receive(&mut self, bytes: &[u8], now: u64, on: On<'_, T>) -> Result<usize, Violation> {
        if self.closing.over {
            return Ok(0);
        }
        self.counted.flood.grow(now);
        let read = self.read(bytes, on);
        if let Err(violation) = &read {
            self.close(violation.code);
        }
        read
    }

    fn read(&mut self, bytes: &[u8], on: On<'_, T>) -> Result<usize, Violation> {
        let (mut rest, mut frames) = (bytes, 0);
        while !rest.is_empty() {
            let (used, step) = self.reader.step(rest)?;
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
        let counted = &mut self.counted;
        let (faults, refused) = (std::mem::take(&mut counted.faults), std::mem::take(&mut counted.refused));
        if !counted.flood.faults(faults) || !counted.flood.turned_away(refused) {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many streams had to be reset"));
        }
        Ok(frames)
    }

    fn frame(&mut self, head: &FrameHeader, payload: &[u8], on: On<'_, T>) -> Result<(), Violation> {
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
            Kind::Headers => self.headers(head, payload, on),
            Kind::Continuation => self.continuation(head, payload, on),
            Kind::ResetStream => {
                size(payload.len() == 4)?;
                self.reset_by_peer(head.stream, Code(number(0)), on)
            }
            Kind::WindowUpdate => {
                size(payload.len() == 4)?;
                self.window_grows(head.stream, number(0) & LAST, on)
            }
            Kind::Priority => size(payload.len() == 5),
            Kind::PriorityUpdate if self.role == Role::Client => {
                Err(Violation::protocol("PRIORITY_UPDATE of a server"))
            }
            Kind::PriorityUpdate => {
                let (id, priority) = priority_update(payload)?;
                if id > self.streams.highest {
                    self.updates.put(id, priority);
                } else {
                    self.streams.prioritize(id, |_| priority);
                }
                Ok(())
            }
            Kind::Settings => self.settings(head, payload, on),
            Kind::Ping => {
                size(payload.len() == 8)?;
                if !head.has(flag::ACK) {
                    self.output.frame(Kind::Ping, flag::ACK, 0, payload);
                } else if payload == GOODBYE && self.closing.said == Some(LAST) {
                    self.part(Code::NO_ERROR);
                }
                Ok(())
            }
            Kind::GoAway => {
                size(payload.len() >= 8)?;
                self.goaway_by_peer(number(0) & LAST, Code(number(4)), on);
                Ok(())
            }
            Kind::PushPromise => Err(Violation::protocol("PUSH_PROMISE, which was not allowed")),
            // Data is read elsewhere.
            Kind::Data | Kind::Unknown => Ok(()),
        }
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

    /// Something came on a stream that has ended, or that the user has forgotten. Whoever has not heard yet that we have
    /// reset it does no wrong.
    pub(super) fn late(&mut self, id: u32, what: &'static str) -> Result<(), Violation> {
        let unserved = self.closing.said.is_some_and(|last| id > last) && self.role == Role::Server;
        if unserved || self.streams.is_ours(id) || self.streams.get(id).is_some() {
            return Ok(());
        }
        if self.role == Role::Server {
            return Err(Violation::new(Code::STREAM_CLOSED, what));
        }
        // We reset streams when clients leave; how many we remember has a bound.
        self.counted.faults += 1;
        Ok(())
    }

    /// Resets a stream for a fault of the peer's.
    pub(super) fn fault(&mut self, id: u32, violation: Violation, on: On<'_, T>) {
        let code = violation.code;
        self.counted.faults += 1;
        if let Some(stream) = self.streams.live(id) {
            stream.reset = true;
            on(id, &mut stream.user, Event::Reset(Reset::Violation(violation)));
            self.streams.settle(id);
        }
        self.streams.remember(id);
        self.output.reset(id, code);
    }

    fn headers(&mut self, head: &FrameHeader, payload: &[u8], on: On<'_, T>) -> Result<(), Violation> {
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
    fn continuation(&mut self, head: &FrameHeader, payload: &[u8], on: On<'_, T>) -> Result<(), Violation> {
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

    /// A whole block of fields. It is decoded whatever becomes of it, so that the table stays the peer's
    /// (RFC 9113 §4.3).
    fn message(&mut self, id: u32, end: bool, block: &[u8], on: On<'_, T>) -> Result<(), Violation> {
        let mut section = FieldSection::new(Fields::new(), self.config.max_head as usize);
        self.decoder
            .decode(block, |field| section.take(field))
            .map_err(|fault| Violation::because(Code::COMPRESSION_ERROR, &fault))?;
        if self.role == Role::Server && !id.is_multiple_of(2) && id > self.streams.highest {
            self.request(id, end, section, on);
            return Ok(());
        }
        if self.is_idle(id) {
            return Err(Violation::protocol("HEADERS on a stream that was not opened"));
        }
        let Some(stream) = self.streams.live(id) else {
            return self.late(id, "HEADERS on a stream that has ended");
        };
        match stream.remote {
            Remote::Head => self.response(id, end, section, on),
            Remote::Content => self.trailers_by_peer(id, end, section, on),
            Remote::Ended => {
                let what = "HEADERS behind the end of a stream";
                self.fault(id, Violation::new(Code::STREAM_CLOSED, what), on);
            }
        }
        Ok(())
    }

    /// A request (server).
    fn request(&mut self, id: u32, end: bool, section: FieldSection, on: On<'_, T>) {
        let mut request = Request::new();
        let control = section.request(&mut request);
        let length = said_length(&request.fields);
        let windows = (self.peer.stream_window, self.first_room(), self.config.stream_window);
        let mut stream = Stream::new(id, T::default(), windows, self.output.end());
        stream.remote = if end { Remote::Ended } else { Remote::Content };
        let said = || request.fields.get(Known::Priority).map(Priority::of_request);
        let priority = self.updates.take(id).or_else(said);
        if self.closing.said.is_some_and(|last| id > last) {
            // The client hears of it by GOAWAY.
            self.streams.highest = id;
            return;
        }
        let refusal = match (control, length) {
            _ if self.streams.active >= self.config.max_streams as usize
                || self.streams.len() >= self.config.max_streams as usize + LEFT_OVER =>
            {
                Some(Code::REFUSED_STREAM)
            }
            (Some(control), Ok(length)) if control.unserved.is_none() && control.protocol.is_none() => {
                stream.length = length;
                (end && length.is_some_and(|length| length > 0)).then_some(Code::PROTOCOL_ERROR)
            }
            _ => Some(Code::PROTOCOL_ERROR),
        };
        if let Some(code) = refusal {
            self.streams.highest = id;
            let unknowing = code == Code::REFUSED_STREAM && !self.peer.agreed;
            let counted = &mut self.counted;
            *(if unknowing { &mut counted.refused } else { &mut counted.faults }) += 1;
            self.streams.remember(id);
            return self.output.reset(id, code);
        }
        self.streams.insert(stream);
        if let Some(priority) = priority {
            self.streams.prioritize(id, |_| priority);
        }
        if let Some(stream) = self.streams.get(id) {
            on(id, &mut stream.user, Event::Request { request, end });
        }
    }

    /// The head of a response, final or not (client).
    fn response(&mut self, id: u32, end: bool, section: FieldSection, on: On<'_, T>) {
        let too_large = section.size() > self.config.max_head as usize;
        let Some(response) = section.response() else {
            let what = if too_large { "the head of a response is too large" } else { "a malformed response" };
            return self.fault(id, Violation::protocol(what), on);
        };
        let Some(stream) = self.streams.live(id) else { return };
        let head = match judge(&response, stream, end) {
            Ok(head) => head,
            Err(violation) => return self.fault(id, violation, on),
        };
        let length = match head {
            Judged::Interim => {
                stream.interim += 1;
                return on(id, &mut stream.user, Event::Interim(response));
            }
            Judged::Final(length) => length,
        };
        stream.length = length;
        stream.remote = if end { Remote::Ended } else { Remote::Content };
        on(id, &mut stream.user, Event::Response { response, length, end });
        if end {
            self.streams.settle(id);
        }
    }

    /// Fields behind content, which end it.
    fn trailers_by_peer(&mut self, id: u32, end: bool, section: FieldSection, on: On<'_, T>) {
        let Some(stream) = self.streams.live(id) else { return };
        let whole = stream.length.is_none_or(|left| left == 0);
        let trailers = match section.trailers() {
            Some(trailers) if end && whole => trailers,
            Some(_) if end => return self.fault(id, Violation::protocol("less content than was said"), on),
            Some(_) => return self.fault(id, Violation::protocol("trailers that do not end a message"), on),
            None => return self.fault(id, Violation::protocol("malformed trailers"), on),
        };
        stream.remote = Remote::Ended;
        on(id, &mut stream.user, Event::End((!trailers.is_empty()).then_some(trailers)));
        self.streams.settle(id);
    }

    fn reset_by_peer(&mut self, id: u32, code: Code, on: On<'_, T>) -> Result<(), Violation> {
        if self.is_idle(id) {
            return Err(Violation::protocol("RST_STREAM on a stream that was not opened"));
        }
        if let Some(stream) = self.streams.live(id) {
            stream.reset = true;
            on(id, &mut stream.user, Event::Reset(Reset::Peer(code)));
            self.streams.settle(id);
        }
        Ok(())
    }

    /// The peer serves no stream above `last` (RFC 9113 §6.8).
    fn goaway_by_peer(&mut self, last: u32, code: Code, on: On<'_, T>) {
        // It may be lowered by another GOAWAY, and is not raised.
        let last = self.closing.heard.map_or(last, |(before, _)| before.min(last));
        self.closing.heard = Some((last, code));
        if self.role == Role::Server {
            return;
        }
        let mut unserved = Vec::new();
        for stream in self.streams.all().filter(|stream| stream.id > last && stream.is_live()) {
            stream.reset = true;
            on(stream.id, &mut stream.user, Event::Reset(Reset::GoAway(code)));
            unserved.push(stream.id);
        }
        unserved.into_iter().for_each(|id| self.streams.settle(id));
    }

    fn settings(&mut self, head: &FrameHeader, payload: &[u8], on: On<'_, T>) -> Result<(), Violation> {
        self.peer.greeted = true;
        if head.has(flag::ACK) {
            self.agree();
            let wrong = Violation::new(Code::FRAME_SIZE_ERROR, "an answer to SETTINGS that says something");
            return if payload.is_empty() { Ok(()) } else { Err(wrong) };
        }
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
                // A head that is larger is refused by whoever gets it.
                Setting::MaxConcurrentStreams(_)
                | Setting::MaxHeaderListSize(_)
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

/// What the head of a response is.
enum Judged {
    Interim,
    /// The final one, and the length of its content.
    Final(Option<u64>),
}

/// Whether a head can be the next one on a stream.
fn judge<T>(response: &Response, stream: &Stream<T>, end: bool) -> Result<Judged, Violation> {
    let status = response.status.as_u16();
    if status < 200 {
        // The protocol is changed in another way (RFC 9113 §8.6).
        if end || status == 101 {
            return Err(Violation::protocol("an interim response that cannot be one"));
        }
        if stream.interim >= MOST_INTERIM {
            return Err(Violation::new(Code::ENHANCE_YOUR_CALM, "too many interim responses"));
        }
        return Ok(Judged::Interim);
    }
    let Ok(said) = said_length(&response.fields) else {
        return Err(Violation::protocol("a content-length that cannot be"));
    };
    if stream.bodiless || matches!(status, 204 | 304) {
        return Ok(Judged::Final(Some(0)));
    }
    if end && said.is_some_and(|length| length > 0) {
        return Err(Violation::protocol("less content than was said"));
    }
    Ok(Judged::Final(said))
}
