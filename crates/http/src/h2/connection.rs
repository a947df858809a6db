//! One connection of HTTP/2, in the role of the client or of the server, without socket, runtime or clock.
//!
//! Bytes of the peer go into [`Connection::receive`], which says what they mean as [`Event`]s of streams. What is to be
//! sent gathers in [`Connection::output`]. Time is an argument. Whoever has the socket moves the bytes.
//!
//! | to do | call |
//! | --- | --- |
//! | begin | [`Connection::client`], [`Connection::server`] |
//! | take in what the peer has sent | [`Connection::receive`], [`Connection::receive_with`] |
//! | know what is to be sent, and say what has gone | [`Connection::output`], [`Connection::output_moved`] |
//! | ask (client) | [`Connection::can_open`], [`Connection::open`] |
//! | answer (server) | [`Connection::has_calm`], [`Connection::interim`], [`Connection::respond`] |
//! | send content | [`Connection::capacity`], [`Connection::data`], [`Connection::trailers`] |
//! | let the peer send more, once data was used or is not wanted | [`Connection::release`], [`Connection::discard`] |
//! | end a stream at once, and forget it | [`Connection::reset`], [`Connection::forget`], [`Connection::end_lingering`] |
//! | end the connection | [`Connection::drain`], [`Connection::stop`], [`Connection::close`], [`Connection::is_over`] |
//!
//! Each stream carries a value of the user's, of type `T`: where its data goes and who is woken. A stream is known until
//! it is forgotten, also if it has ended; what comes for one that is forgotten is dropped.
//!
//! **Bounds.** A connection holds at most one frame that has not come whole, one header block of
//! [`Config::max_head`] and 16 KiB, the tables of HPACK, and its output. Data is passed on at once and held by nobody
//! here; the windows bound what the user holds of it. The output grows by what the user writes within
//! [`Connection::capacity`], by heads, and by answers to control frames: whoever reads for a connection stops while its
//! output is long. Frames that cost us more than their sender are counted by [`flood`](super::flood).
//!
//! It does not push, refuses PUSH_PROMISE, and ignores the priorities of RFC 7540. Streams of a server that wait to send go
//! on in the order of RFC 9218 ([`Priority`](super::Priority)), those of a client take turns.

mod content;
mod encode;
mod growth;
mod handler;
mod linger;
mod messages;
mod receive;
mod send;
mod streams;

use std::fmt;

use super::flood::{Flood, Traffic};
use super::reader::{MOST, Reader};
use super::{Code, Kind, Output, PREFACE, Rank, Setting, Updates, Violation, write_settings};
use crate::head::{ControlData, Fields, Request, Response};
use crate::hpack::{Decoder, Encoder};
pub use encode::Ends;
use growth::Growth;
pub use handler::{Admission, Asked, Cost, Handler};
use linger::Lingering;
pub use linger::{LINGERS, MOST_DROPPED, STILL};
pub use messages::{LEFT_OVER, declared_length};
use streams::Streams;

/// Which side of the connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Asks.
    Client,
    /// Answers.
    Server,
}

/// What a connection allows its peer.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The window of a stream: what the peer may send on it before it is released, in bytes.
    pub stream_window: u32,
    /// The window of the connection, in bytes, at least 65,535.
    pub connection_window: u32,
    /// Whether the window of the connection waits for streams to release data. Otherwise it opens as data comes, and
    /// only the windows of streams bound the peer: one stream that nobody reads does not hold up the others.
    pub shared_window: bool,
    /// How much larger windows may become, together, where the peer stands still for want of one; 0: they do not grow. For
    /// shared windows.
    pub growth: u32,
    /// How many streams at a time the peer may open (server), or we open before the peer has said it (client).
    pub max_streams: u32,
    /// The size of the fields of a message, each counted with 32 bytes more.
    pub max_head: u32,
}

/// What the peer has said on a stream.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Moved once.
pub enum Event<'b> {
    /// A request begins (server). Whether it can be served is for the user to say, by [`ControlData::unserved`] with it.
    Request {
        /// Its head.
        request: Box<Request>,
        /// What it says besides.
        control: ControlData,
        /// Bytes of its fields.
        size: usize,
        /// Whether it ends with its head.
        end: bool,
    },
    /// An interim response (client).
    Interim(Response),
    /// The response begins (client). `end`: it has no content.
    Response {
        /// Its head.
        response: Response,
        /// The length of the content that follows, where it is known.
        length: Option<u64>,
        /// Whether it ends with its head.
        end: bool,
    },
    /// Some content, at least a byte; to be [released](Connection::release).
    Data(&'b [u8]),
    /// The content has ended, perhaps with trailers.
    End(Option<Fields>),
    /// [`Connection::capacity`] was 0, and may be more now.
    Writable,
    /// The stream has ended at once, in both directions. If the content had ended before, all of it is valid.
    Reset(Reset),
}

/// Why a stream has ended at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The peer has ended it.
    Peer(Code),
    /// The peer has said GOAWAY and that it has not looked at the request (RFC 9113 §6.8).
    GoAway(Code),
    /// The peer broke a rule on this stream, and was told so.
    Violation(Violation),
    /// There was no room for the peer's trailers, and it was told so.
    NoRoom,
}

/// Streams that were reset for faults of the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How many.
    pub count: u32,
    /// The code of the last of them.
    pub last: Option<Code>,
}

/// Why no stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// The connection takes no more streams, or not now.
    Closed,
    /// The request has no host.
    NoAuthority,
}

/// One connection. `T` is what the user keeps of a stream.
#[derive(Debug)]
pub struct Connection<T> {
    role: Role,
    config: Config,
    reader: Reader,
    decoder: Decoder,
    encoder: Encoder,
    output: Output,
    streams: Streams<T>,
    flow: Flow,
    growth: Growth,
    peer: Peer,
    counted: Counted,
    block: Option<Block>,
    /// How many frames have come, those that are a part of a block not counted.
    frames: u64,
    /// Priorities of streams to come (server).
    updates: Updates,
    /// Streams that were forgotten before the request had ended (server).
    lingering: Lingering,
    closing: Closing,
}

/// The windows of the connection.
#[derive(Debug)]
struct Flow {
    /// What we may send.
    window: i64,
    /// What the peer may send, and what of that was used and not said again.
    room: i64,
    owed: u32,
    /// What the user has of streams that are apart, and how much of that is not within the window.
    apart: u32,
    lent: u32,
}

/// What the peer has said it can take.
#[derive(Debug)]
struct Peer {
    stream_window: i64,
    frame: usize,
    max_streams: usize,
    /// The size of a section of fields that it takes, each counted with 32 bytes more (RFC 9113 §6.5.2).
    max_head: usize,
    /// Whether its settings have come, and whether it has heard ours.
    greeted: bool,
    agreed: bool,
}

/// What is counted against floods.
#[derive(Debug)]
struct Counted {
    flood: Flood,
    /// What went over the connection since that was last looked at.
    traffic: Traffic,
    /// Streams that were reset for faults of the peer's, and how many of them were looked at.
    faults: Faults,
    seen: u32,
    /// Streams that were refused before the peer could know how many there may be, and work that it gave up, since then.
    refused: u32,
}

/// A header block that has not come whole.
#[derive(Debug)]
struct Block {
    stream: u32,
    end: bool,
    bytes: Vec<u8>,
}

/// How the connection is going to end.
#[derive(Debug, Default)]
struct Closing {
    /// The last stream that is served, as we have said it.
    said: Option<u32>,
    /// The last stream that the peer serves, and why it stops.
    heard: Option<(u32, Code)>,
    /// Whether nothing more is read.
    over: bool,
}

/// The windows before anything is said (RFC 9113 §6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// The highest number of a stream, and of a window (RFC 9113 §5.1.1, §6.9.1).
const LAST: u32 = (1 << 31) - 1;
/// The table that the peer encodes fields with (RFC 7541 §6.5.2).
const TABLE: usize = 4096;
/// How much may wait to be sent before streams wait for it.
pub const ROOM: usize = 64 * 1024;
/// How much may wait to be sent before heads of responses wait for it.
pub const MOST_WAITING: usize = 96 * 1024;
/// What is asked to know that the peer has heard of the end (RFC 9113 §6.8).
const GOODBYE: &[u8; 8] = b"goodbye!";
/// What each field of a section counts besides its bytes (RFC 9113 §6.5.2).
const FIELD: usize = 32;
/// The most that a response has besides its fields: `:status`, `date` and `content-length`.
const OWN_FIELDS: usize = (FIELD + 10) + (FIELD + 33) + (FIELD + 34);
/// SETTINGS_ENABLE_PUSH of 0 (RFC 9113 §6.5.2).
const NO_PUSH: &[u8; 6] = &[0, 2, 0, 0, 0, 0];

impl<T> Connection<T> {
    /// What is known of a stream, in bytes.
    pub const STREAM: usize = size_of::<Option<streams::Stream<T>>>();

    /// The client's side of a new connection, at `now` in milliseconds. The preface and the settings wait to be sent.
    #[must_use]
    pub fn client(config: Config, now: u64) -> Self {
        let mut this = Self::new(Role::Client, Reader::of_server(), config, now);
        this.output.raw(PREFACE);
        let said =
            [Setting::InitialWindowSize(config.stream_window), Setting::MaxHeaderListSize(config.max_head)];
        this.greet(NO_PUSH.to_vec(), &said);
        this
    }

    /// The server's side of a new connection, at `now` in milliseconds. The settings wait to be sent.
    #[must_use]
    pub fn server(config: Config, now: u64) -> Self
    where
        T: Default,
    {
        let mut this = Self::new(Role::Server, Reader::of_client(), config, now);
        let said = [
            Setting::MaxConcurrentStreams(config.max_streams),
            Setting::InitialWindowSize(config.stream_window),
            Setting::MaxHeaderListSize(config.max_head),
            Setting::EnableConnectProtocol,
            Setting::NoRfc7540Priorities,
        ];
        this.greet(Vec::new(), &said);
        this
    }

    fn new(role: Role, reader: Reader, config: Config, now: u64) -> Self {
        Self {
            role,
            config,
            reader,
            decoder: Decoder::new(TABLE),
            encoder: Encoder::new(),
            output: Output::default(),
            streams: Streams::new(config.max_streams as usize),
            flow: Flow {
                window: FIRST_WINDOW.into(),
                room: config.connection_window.into(),
                owed: 0,
                apart: 0,
                lent: 0,
            },
            growth: Growth::new(now),
            peer: Peer {
                stream_window: FIRST_WINDOW.into(),
                frame: MOST,
                max_streams: config.max_streams as usize,
                max_head: usize::MAX,
                greeted: false,
                agreed: false,
            },
            counted: Counted {
                flood: Flood::new(now),
                traffic: Traffic::default(),
                faults: Faults::default(),
                seen: 0,
                refused: 0,
            },
            block: None,
            frames: 0,
            updates: Updates::default(),
            lingering: Lingering::default(),
            closing: Closing::default(),
        }
    }

    fn greet(&mut self, mut payload: Vec<u8>, settings: &[Setting]) {
        write_settings(settings, &mut payload);
        self.output.frame(Kind::Settings, 0, 0, &payload);
        let more = self.config.connection_window.saturating_sub(FIRST_WINDOW);
        if more > 0 {
            self.output.window(0, more);
        }
    }

    /// The frames that wait to be sent.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// The first `n` bytes of the output have gone. Streams that waited for that are told so by `on`.
    pub fn output_moved(&mut self, n: usize, on: &mut dyn FnMut(u32, &mut T, Event<'_>)) {
        self.output_moved_with(n, on);
    }

    /// The same for a user who knows for how long streams have waited.
    pub fn output_moved_with<H: Handler<T> + ?Sized>(&mut self, n: usize, on: &mut H) {
        self.output.advance(n);
        if self.output.len() < ROOM / 2 {
            self.streams.call(self.flow.window, on);
        }
    }

    /// How many streams are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.active
    }

    /// How many streams are known, with those that have ended and were not forgotten, and those that linger.
    #[must_use]
    pub fn known_streams(&self) -> usize {
        self.streams.len()
    }

    /// How many streams the peer allows at a time (client).
    #[must_use]
    pub fn max_streams(&self) -> usize {
        self.peer.max_streams
    }

    /// Whether the peer's settings have come.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.peer.greeted
    }

    /// The last stream that the peer serves, and why it stops, where it has said GOAWAY.
    #[must_use]
    pub fn goaway(&self) -> Option<(u32, Code)> {
        self.closing.heard
    }

    /// What the user keeps of a stream, until that is forgotten.
    pub fn stream(&mut self, id: u32) -> Option<&mut T> {
        self.streams.get(id).map(|stream| &mut stream.user)
    }

    /// The same to look at.
    #[must_use]
    pub fn stream_ref(&self, id: u32) -> Option<&T> {
        self.streams.peek(id).map(|stream| &stream.user)
    }

    /// Whether the end of our direction was sent on a stream.
    #[must_use]
    pub fn has_sent_all(&self, id: u32) -> bool {
        self.streams.peek(id).is_none_or(|stream| stream.sent_all)
    }

    /// What may be sent on each stream that neither side has ended at once, and what the user keeps of it.
    pub fn windows(&self) -> impl Iterator<Item = (u32, i64, &T)> {
        let live = self.streams.iter().filter(|stream| stream.is_live() && !stream.lingers);
        live.map(|stream| (stream.id, stream.flow.window, &stream.user))
    }

    /// The place of a stream among those that have waited for so long, in milliseconds; none where there are no
    /// priorities (server).
    #[must_use]
    pub fn rank(&self, id: u32, waits: u64) -> Option<Rank> {
        self.streams.rank(id, waits)
    }

    /// Whether a less urgent stream waits to send (server).
    #[must_use]
    pub fn goes_before_others(&self, id: u32) -> bool {
        self.streams.goes_before_others(id)
    }

    /// Whether the peer takes a response with these fields, as it has said by SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113
    /// §6.5.2). Who sends a larger one cannot know if it is read (RFC 9113 §10.5.1).
    #[must_use]
    pub fn fits(&self, fields: &Fields) -> bool {
        let most = self.peer.max_head;
        most == usize::MAX || Self::head_size(fields) <= most
    }

    #[cold]
    fn head_size(fields: &Fields) -> usize {
        let sizes = fields.iter().map(|(name, value)| name.len() + value.len() + FIELD);
        sizes.sum::<usize>() + OWN_FIELDS
    }

    /// How large frames may be that the peer takes, in bytes of payload.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        self.peer.frame
    }

    /// The peer has made work and given it up, which costs as much as so many control frames. They are counted with the next
    /// frames that are read.
    pub fn charge(&mut self, frames: u32) {
        self.counted.refused = self.counted.refused.saturating_add(frames);
    }

    /// Streams that were reset for faults of the peer's.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.counted.faults
    }

    /// Whether the peer owes the rest of its greeting, of a block of fields, or of a frame other than DATA.
    #[must_use]
    pub fn is_amid(&self) -> bool {
        self.reader.is_amid() || !self.peer.greeted || self.block.is_some()
    }

    /// How many frames have come, those that are a part of a block not counted.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// What the user keeps of all streams.
    pub fn streams(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.streams.all().filter(|stream| !stream.lingers).map(|stream| (stream.id, &mut stream.user))
    }

    /// Whether the first byte of a stream's head has left (client): otherwise the peer knows nothing of the request.
    pub fn has_left(&mut self, id: u32) -> bool {
        let sent = self.output.sent();
        self.streams.get(id).is_none_or(|stream| stream.begin < sent)
    }

    /// Says that no more streams are served than are open, and waits for these. A client is asked to say that it has
    /// heard so, because it may have asked for more meanwhile (RFC 9113 §6.8).
    pub fn drain(&mut self) {
        if self.closing.said.is_some() || self.closing.over {
            return;
        }
        match self.role {
            Role::Server => {
                self.closing.said = Some(LAST);
                self.output.goaway(LAST, Code::NO_ERROR);
                self.output.frame(Kind::Ping, 0, 0, GOODBYE);
            }
            // A server opens none.
            Role::Client => {
                self.closing.said = Some(0);
                self.output.goaway(0, Code::NO_ERROR);
            }
        }
    }

    /// Serves no more streams from now on, whether the peer has heard that or not (server).
    pub fn stop(&mut self) {
        if self.closing.said.is_none_or(|last| last > self.streams.highest) {
            self.part(Code::NO_ERROR);
        }
    }

    /// The connection has ended: nothing more is said.
    pub fn abandon(&mut self) {
        self.closing.over = true;
        self.stop_lingering();
    }

    /// Says that the connection ends now, and reads nothing more.
    pub fn close(&mut self, code: Code) {
        if !std::mem::replace(&mut self.closing.over, true) {
            self.part(code);
            self.stop_lingering();
        }
    }

    /// Says which stream is the last that is served; it is not raised (RFC 9113 §6.8).
    fn part(&mut self, code: Code) {
        let last = if self.role == Role::Server { self.streams.highest } else { 0 };
        let last = self.closing.said.map_or(last, |said| said.min(last));
        self.closing.said = Some(last);
        self.output.goaway(last, code);
    }

    /// Whether the connection is to be closed once its output has gone: it was closed, or is drained.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let parts = match self.role {
            Role::Server => self.closing.said.is_some_and(|last| last < LAST) || self.closing.heard.is_some(),
            Role::Client => self.closing.said.is_some() || self.closing.heard.is_some(),
        };
        self.closing.over || parts && self.block.is_none() && self.streams.is_empty()
    }

    /// Gives memory back while the connection is quiet.
    pub fn rest(&mut self) {
        self.shrink();
        self.output.rest();
        self.reader.rest();
        // A client asks again, and a server has many connections that nobody uses.
        self.streams.rest(self.role == Role::Client);
    }

    /// How much memory it holds, in bytes: frames and blocks that have not come whole, and the text of its output.
    #[must_use]
    pub fn memory(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        self.reader.kept.capacity()
            + block
            + self.output.len()
            + self.streams.memory()
            + self.lingering.memory()
    }
}

impl Faults {
    fn count(&mut self, code: Code) {
        self.count += 1;
        self.last = Some(code);
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(code) => write!(f, "RST_STREAM with {}", code.name()),
            Self::GoAway(code) => write!(f, "GOAWAY with {}", code.name()),
            Self::Violation(violation) => violation.fmt(f),
            Self::NoRoom => f.write_str("there is no room for the trailers"),
        }
    }
}
