//! An HTTP/2 connection, as client or server, without socket, runtime or clock.
//!
//! Received bytes go into [`Connection::receive`], which reports [`Event`]s of streams. Frames to be sent
//! collect in [`Connection::output`]. Time is an argument. The owner of the socket moves the bytes.
//!
//! | to do | call |
//! | --- | --- |
//! | create | [`Connection::client`], [`Connection::server`] |
//! | process received bytes | [`Connection::receive`], [`Connection::receive_with`] |
//! | write output, and report the bytes written | [`Connection::output`], [`Connection::output_moved`] |
//! | send a request (client) | [`Connection::can_open`], [`Connection::open`] |
//! | respond (server) | [`Connection::can_respond`], [`Connection::interim`], [`Connection::respond`] |
//! | send content | [`Connection::capacity`], [`Connection::data`], [`Connection::trailers`] |
//! | open windows, once data was used or is not wanted | [`Connection::release`], [`Connection::discard`] |
//! | abort a stream, and forget it | [`Connection::reset`], [`Connection::forget`], [`Connection::end_lingering`] |
//! | end the connection | [`Connection::drain`], [`Connection::stop`], [`Connection::close`], [`Connection::is_over`] |
//!
//! Each stream carries a value of the caller, of type `T`: the destination of its data and the tasks to wake.
//! A stream is known until it is forgotten, even after its end; frames for a forgotten stream are dropped.
//!
//! **Bounds.** A connection holds at most one incomplete frame, one header block of [`Config::max_head`] and
//! 16 KiB, the tables of HPACK, and its output. Data is passed on at once and never held here; the windows
//! bound what the caller holds of it. The output grows by what the caller writes within
//! [`Connection::capacity`], by heads, and by replies to control frames: the owner of the socket stops
//! reading while the output is long. Frames that cost more to receive than to send are counted by
//! [`flood`](super::flood).
//!
//! Server push is not supported: PUSH_PROMISE is an error, and the priorities of RFC 7540 are ignored.
//! Streams of a server that wait to send are served in the order of RFC 9218 ([`Priority`](super::Priority)),
//! those of a client in turns.

mod closing;
mod content;
mod encode;
mod event;
mod growth;
mod handler;
mod linger;
mod messages;
mod peer;
mod receive;
mod send;
mod state;
mod streams;

use super::flood::{Flood, Traffic};
use super::reader::Reader;
use super::{Code, Kind, Output, PREFACE, Rank, Setting, Updates, write_settings};
use crate::head::Fields;
use closing::Closing;
pub use encode::Ends;
pub use event::{Event, Faults, Reset, Unopened};
use growth::Growth;
pub use handler::{Admission, Asked, Cost, Handler};
use linger::Lingering;
pub use linger::{LINGERS, MOST_DROPPED, STILL};
pub use messages::{LEFT_OVER, declared_length};
use peer::Peer;
use receive::ReceiveSide;
use send::SendSide;
use streams::Streams;

/// Side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens streams and sends requests.
    Client,
    /// Receives requests and responds.
    Server,
}

/// Limits that a connection sets for its peer.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Initial receive window of a stream, in bytes.
    pub stream_window: u32,
    /// Receive window of the connection, in bytes, at least 65,535.
    pub connection_window: u32,
    /// Reopens the connection's window only when streams release data. Otherwise it reopens as data arrives,
    /// and only the windows of streams bound the peer: a stream that is not read does not block the others.
    pub shared_window: bool,
    /// Maximum total growth of the windows while the peer is limited by them, in bytes; 0 disables growth.
    /// If the connection's window is not shared, the caller is notified ([`Event::Stalled`]) and enlarges
    /// the stream's window.
    pub growth: u32,
    /// Maximum number of concurrent streams of the peer (server), or of ours before the peer's settings
    /// arrive (client).
    pub max_streams: u32,
    /// Maximum size of a message's field section, each field counted with 32 bytes more.
    pub max_head: u32,
}

/// A connection. `T` is the caller's value for each stream.
#[derive(Debug)]
pub struct Connection<T> {
    role: Role,
    config: Config,
    incoming: ReceiveSide,
    outgoing: SendSide,
    streams: Streams<T>,
    flow: Flow,
    growth: Growth,
    peer: Peer,
    counted: Counted,
    /// Priorities of streams that are not opened yet (server).
    updates: Updates,
    /// Streams that were forgotten before the request had ended (server).
    lingering: Lingering,
    closing: Closing,
}

/// Flow control of the connection.
#[derive(Debug)]
struct Flow {
    /// Send window of the connection, in bytes.
    window: i64,
    /// Receive window, and the part of it that was used and is not announced again yet.
    room: i64,
    owed: u32,
    /// Bytes held by the caller on streams set apart, and the part of them outside of the window.
    apart: u32,
    lent: u32,
}

/// Accounting of abusive frames and streams.
#[derive(Debug)]
struct Counted {
    flood: Flood,
    /// Traffic since the last accounting.
    traffic: Traffic,
    /// Streams reset because of violations by the peer, and the number of them that are accounted for.
    faults: Faults,
    faults_accounted: u32,
    /// Work since then that the peer caused and abandoned, and streams refused before it could know their
    /// maximum.
    refused: u32,
}

/// Initial window size (RFC 9113 §6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// Maximum stream number and window size (RFC 9113 §5.1.1, §6.9.1).
const LAST: u32 = (1 << 31) - 1;
/// Output length from which content waits, in bytes.
pub const ROOM: usize = 64 * 1024;
/// Output length from which heads of responses wait, in bytes.
pub const MOST_WAITING: usize = 96 * 1024;
/// Overhead counted for each field (RFC 9113 §6.5.2).
const FIELD: usize = 32;
/// Maximum size of the fields added to a response: `:status`, `date` and `content-length`.
const OWN_FIELDS: usize = (FIELD + 10) + (FIELD + 33) + (FIELD + 34);
/// SETTINGS_ENABLE_PUSH of 0 (RFC 9113 §6.5.2).
const NO_PUSH: &[u8; 6] = &[0, 2, 0, 0, 0, 0];

impl<T> Connection<T> {
    /// Memory of a stream's state, in bytes.
    pub const STREAM: usize = size_of::<Option<streams::Stream<T>>>();

    /// Creates the client side of a connection, at `now` in milliseconds. The preface and the settings are in
    /// the output.
    #[must_use]
    pub fn client(config: Config, now: u64) -> Self {
        let mut this = Self::new(Role::Client, Reader::of_server(), config, now);
        this.outgoing.output.raw(PREFACE);
        let said =
            [Setting::InitialWindowSize(config.stream_window), Setting::MaxHeaderListSize(config.max_head)];
        this.greet(NO_PUSH.to_vec(), &said);
        this
    }

    /// Creates the server side of a connection, at `now` in milliseconds. The settings are in the output.
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
            incoming: ReceiveSide::new(reader),
            outgoing: SendSide::default(),
            streams: Streams::new(config.max_streams as usize),
            flow: Flow {
                window: FIRST_WINDOW.into(),
                room: config.connection_window.into(),
                owed: 0,
                apart: 0,
                lent: 0,
            },
            growth: Growth::new(config.growth, now),
            peer: Peer::before_settings(config.max_streams),
            counted: Counted {
                flood: Flood::new(now),
                traffic: Traffic::default(),
                faults: Faults::default(),
                faults_accounted: 0,
                refused: 0,
            },
            updates: Updates::default(),
            lingering: Lingering::default(),
            closing: Closing::default(),
        }
    }

    fn greet(&mut self, mut payload: Vec<u8>, settings: &[Setting]) {
        write_settings(settings, &mut payload);
        self.outgoing.output.frame(Kind::Settings, 0, 0, &payload);
        let more = self.config.connection_window.saturating_sub(FIRST_WINDOW);
        if more > 0 {
            self.outgoing.output.window(0, more);
        }
    }

    /// The frames that wait to be sent.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.outgoing.output
    }

    /// Removes the first `n` bytes of the output, which were sent. Streams that waited for space are reported
    /// to `on`.
    pub fn output_moved(&mut self, n: usize, on: &mut dyn FnMut(u32, &mut T, Event<'_>)) {
        self.output_moved_with(n, on);
    }

    /// Like [`Connection::output_moved`], for a [`Handler`] that knows how long streams have waited.
    pub fn output_moved_with<H: Handler<T> + ?Sized>(&mut self, n: usize, on: &mut H) {
        self.outgoing.output.advance(n);
        if self.outgoing.output.len() < ROOM / 2 {
            self.streams.call(self.flow.window, on);
        }
    }

    /// Number of open streams.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.active
    }

    /// Number of known streams, including those that have ended and are not forgotten, and those that linger.
    #[must_use]
    pub fn known_streams(&self) -> usize {
        self.streams.len()
    }

    /// Maximum number of concurrent streams that the peer permits (client).
    #[must_use]
    pub fn max_streams(&self) -> usize {
        self.peer.max_streams
    }

    /// Returns true once the peer's settings have arrived.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.peer.settings_received
    }

    /// Last stream that the peer serves, and its code, after GOAWAY.
    #[must_use]
    pub fn goaway(&self) -> Option<(u32, Code)> {
        self.closing.goaway_received
    }

    /// The caller's value of a stream, until that is forgotten.
    pub fn stream(&mut self, id: u32) -> Option<&mut T> {
        self.streams.get(id).map(|stream| &mut stream.user)
    }

    /// Shared reference to the caller's value of a stream.
    #[must_use]
    pub fn stream_ref(&self, id: u32) -> Option<&T> {
        self.streams.peek(id).map(|stream| &stream.user)
    }

    /// Returns true once nothing more can be sent on a stream: END_STREAM was sent, or it was aborted, or is unknown.
    #[must_use]
    pub fn has_sent_all(&self, id: u32) -> bool {
        self.streams.peek(id).is_none_or(|stream| !stream.state().sends())
    }

    /// Send window of each stream that was not aborted, with the caller's value.
    pub fn windows(&self) -> impl Iterator<Item = (u32, i64, &T)> {
        let live = self.streams.iter().filter(|stream| !stream.state().is_aborted() && !stream.lingers);
        live.map(|stream| (stream.id, stream.flow.window, &stream.user))
    }

    /// Rank of a stream among those that have waited for `waits` milliseconds; `None` if no stream has a
    /// priority (server).
    #[must_use]
    pub fn rank(&self, id: u32, waits: u64) -> Option<Rank> {
        self.streams.rank(id, waits)
    }

    /// Returns true if a less urgent stream waits to send (server).
    #[must_use]
    pub fn goes_before_others(&self, id: u32) -> bool {
        self.streams.goes_before_others(id)
    }

    /// Returns true if the peer accepts a response with these fields, by its SETTINGS_MAX_HEADER_LIST_SIZE
    /// (RFC 9113 §6.5.2). A larger one may be discarded unread (RFC 9113 §10.5.1).
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

    /// Maximum frame payload that the peer accepts, in bytes.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        self.outgoing.max_frame
    }

    /// Charges the peer with `frames` control frames, for work that it caused and abandoned. Accounted for
    /// with the next frames received.
    pub fn charge(&mut self, frames: u32) {
        self.counted.refused = self.counted.refused.saturating_add(frames);
    }

    /// Streams reset because of violations by the peer.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.counted.faults
    }

    /// Returns true while the rest of the preface, of a header block, or of a frame other than DATA is
    /// missing.
    #[must_use]
    pub fn is_amid(&self) -> bool {
        self.incoming.is_amid() || !self.peer.settings_received
    }

    /// Number of whole frames received; a header block counts once.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.incoming.frames
    }

    /// The caller's values of all streams.
    pub fn streams(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.streams.all().filter(|stream| !stream.lingers).map(|stream| (stream.id, &mut stream.user))
    }

    /// Returns true once the first byte of a stream's head was sent (client): before that, the peer does not
    /// know of the request.
    pub fn has_left(&mut self, id: u32) -> bool {
        let sent = self.outgoing.output.sent();
        self.streams.get(id).is_none_or(|stream| stream.begin < sent)
    }

    /// Releases memory while the connection is idle.
    pub fn rest(&mut self) {
        self.shrink();
        self.outgoing.output.rest();
        self.incoming.reader.rest();
        // A client will send requests again; a server has many idle connections.
        self.streams.rest(self.role == Role::Client);
    }

    /// Memory held, in bytes: incomplete frames and blocks, and the text of the output.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.incoming.memory() + self.outgoing.output.len() + self.streams.memory() + self.lingering.memory()
    }
}
