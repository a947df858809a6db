//! The relay of a `tcp` route: records on the client's side, plain bytes on the server's.
//!
//! A hand-written future, polled while either socket has something. Both directions work in the worker's scratch:
//! nothing is copied, and an idle connection owns no buffer. A connection keeps bytes only if half a record has arrived,
//! or if a peer takes no more. While a peer takes no more, the other peer is not read.
//!
//! Half-closes pass through: close_notify becomes a shutdown, the end of the server's stream becomes
//! close_notify. Each relay decides for itself when one side has ended: `up::end_up` and `down::end_down` (TLS to the client,
//! plain to the server), `plain::flow` (plain on both sides), `secure::flow` (TLS to the server).

mod down;
mod opened;
mod plain;
mod secure;
mod up;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use offramp_net::turn::{self, Turn, Work};
use offramp_net::{Buffer, Socket};
use offramp_observe::facts::ByteCounts;
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::{Sending, TlsSession};
use tokio::time::{Instant, Sleep, sleep};

use crate::closing;
use crate::late::Doing;
use crate::live::table::LiveSlotId;
use crate::resources::Resources;
use crate::slots::Scratch;
use crate::snapshot::{ClientLimits, RouteId};

pub(crate) use plain::{PlainEnds, PlainRelay};
pub(crate) use secure::{Secure, SecureEnds};

/// The outcome of one step of a direction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Something moved: there may be more.
    Moved,
    /// Nothing to do until a socket is ready.
    Blocked,
    /// The direction has ended, and its end was passed on.
    Done,
}

/// The outcome of a relay.
pub(crate) struct RelayOutcome {
    pub(crate) close: Close,
    pub(crate) traffic: ByteCounts,
    /// The peers that get a farewell: a reset must not overtake bytes on their way to a peer that may have to read.
    pub(crate) farewells: Option<Box<Farewells>>,
}

/// The farewells that are due after a relay.
#[derive(Default)]
pub(crate) struct Farewells {
    pub(crate) client: Option<Farewell>,
    pub(crate) server: Option<Farewell>,
}

/// A farewell to one peer; see [`closing`].
pub(crate) struct Farewell {
    pub(crate) socket: Socket,
    /// Bytes that the peer has not got yet.
    pub(crate) pending: Vec<u8>,
}

impl Farewells {
    fn due(self) -> Option<Box<Self>> {
        (self.client.is_some() || self.server.is_some()).then(|| Box::new(self))
    }

    /// Says both at a time: no peer waits for the other.
    pub(crate) async fn say(&self, worker: &Resources) {
        let say = async |farewell: Option<&Farewell>| {
            if let Some(Farewell { socket, pending }) = farewell {
                closing::farewell(worker, socket, pending).await;
            }
        };
        tokio::join!(say(self.client.as_ref()), say(self.server.as_ref()));
    }
}

/// The bounds of a relay in time. An idle connection has them in its task, so they are small.
#[derive(Clone, Copy)]
pub(crate) struct RelayBounds {
    /// The longest time without a byte; what can be configured fits.
    idle_ms: u32,
    /// The time of its greatest age; see [`Resources::old_at`].
    old_at: u64,
}

impl RelayBounds {
    pub(crate) fn new(limits: &ClientLimits, old_at: u64) -> Self {
        Self { idle_ms: u32::try_from(limits.idle_timeout.as_millis()).unwrap_or(u32::MAX), old_at }
    }

    fn idle(self) -> Duration {
        Duration::from_millis(self.idle_ms.into())
    }

    /// The time until the greatest age.
    fn left(self) -> Duration {
        Duration::from_millis(self.old_at.saturating_sub(offramp_net::clock::coarse_ms()))
    }

    /// The end of a relay that has moved something at its greatest age. A relay that always has something to move is not
    /// looked at when its alarm rings, and the clock was read for that time already.
    fn end(self, moved_ms: u64) -> Option<Cause> {
        (moved_ms >= self.old_at).then_some(Cause::MaxAge)
    }
}

/// The parts of a relay.
pub(crate) struct RelayParts {
    pub(crate) client: Socket,
    pub(crate) server: Socket,
    pub(crate) session: TlsSession,
    /// The way to the client; tickets may be held back in it.
    pub(crate) sending: Sending,
    /// Bytes of the client behind its handshake.
    pub(crate) early: Buffer,
    /// The error of a client that had left before it got its tickets.
    pub(crate) left: Option<io::ErrorKind>,
}

/// A relay. What a quiet connection owns is this, its task, its facts and its sockets: nothing here is larger than
/// it must be.
pub(crate) struct TlsRelay {
    worker: Rc<Resources>,
    /// Its place among the worker's connections.
    live: LiveSlotId,
    client: Socket,
    server: Socket,
    session: TlsSession,
    up: Up,
    down: Down,
    traffic: ByteCounts,
    /// The time at which a byte last moved, in milliseconds of the coarse clock.
    moved_ms: u64,
    /// The cause of the end where both directions end in order.
    first_end: Option<Cause>,
    /// The client has sent bytes behind its close_notify.
    trailing: bool,
}

/// From the client to the server.
struct Up {
    /// Ciphertext that is not opened yet.
    sealed: Vec<u8>,
    /// `sealed` may hold whole records, which are opened before more is read.
    unopened: bool,
    /// Plaintext that the server has not taken yet.
    plain: Vec<u8>,
    end: UpEnd,
}

/// The end of the client's direction, in the order of its steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UpEnd {
    Open,
    /// The client has finished; the server does not know yet, as something may still wait for it.
    Ended,
    /// The server's socket was shut.
    Shut,
    /// The server takes no more, in this way, though the client may have more to say.
    Refused(io::ErrorKind),
}

impl UpEnd {
    /// Nothing more is read from the client.
    fn is_over(self) -> bool {
        self != Self::Open
    }

    /// Nothing more is written to the server.
    fn is_shut(self) -> bool {
        matches!(self, Self::Shut | Self::Refused(_))
    }

    /// The error of a server that takes no more.
    fn refusal(self) -> Option<io::ErrorKind> {
        match self {
            Self::Refused(how) => Some(how),
            _ => None,
        }
    }
}

/// From the server to the client.
struct Down {
    sending: Sending,
    /// Bytes for which the next read makes room.
    expected: usize,
    /// Bytes that the client has taken since it last had to be waited for.
    taken: usize,
    end: DownEnd,
}

/// The end of the server's direction, in the order of its steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DownEnd {
    Open,
    /// The server has finished; close_notify is still to be sealed.
    Ended,
    /// close_notify was sealed, and may wait for the client.
    Notified,
    /// The client's socket was shut.
    Shut,
    /// The client refused to take more, in this way, though it may have said more than was read yet.
    Left(io::ErrorKind),
}

impl DownEnd {
    /// Nothing more may be sealed (RFC 8446 §6.1).
    fn is_silent(self) -> bool {
        !matches!(self, Self::Open | Self::Ended)
    }

    /// The error of a client that takes no more.
    fn left(self) -> Option<io::ErrorKind> {
        match self {
            Self::Left(how) => Some(how),
            _ => None,
        }
    }
}

impl TlsRelay {
    /// A relay that has moved nothing yet. It is boxed, so that the task of a connection is small and is made once.
    pub(crate) fn new(worker: Rc<Resources>, live: LiveSlotId, mut ends: RelayParts) -> Box<Self> {
        let sealed = ends.early.filled().to_vec();
        ends.early.free();
        Box::new(Self {
            client: ends.client,
            server: ends.server,
            session: ends.session,
            up: Up { unopened: !sealed.is_empty(), sealed, plain: Vec::new(), end: UpEnd::Open },
            down: Down {
                sending: ends.sending,
                expected: 0,
                taken: 0,
                end: ends.left.map_or(DownEnd::Open, DownEnd::Left),
            },
            traffic: ByteCounts::default(),
            moved_ms: offramp_net::clock::coarse_ms(),
            first_end: None,
            trailing: false,
            worker,
            live,
        })
    }

    /// Relays until both directions are over, one of them breaks, nothing moves for too long, or the greatest age.
    pub(crate) async fn run(&mut self, bounds: RelayBounds) -> Close {
        let worker = Rc::clone(&self.worker);
        drive(&worker, self.live, bounds, |cx, alarm| self.turn(cx, alarm, bounds)).await
    }

    /// One turn, and how much has moved by then.
    fn turn(&mut self, cx: &mut Context<'_>, alarm: Pin<&mut Sleep>, bounds: RelayBounds) -> Poll<Close> {
        let end = self.worker.end_of(self.live).or_else(|| bounds.end(self.moved_ms));
        let polled = self.poll(cx, alarm, bounds, end);
        self.worker.live.moved(self.live, self.traffic);
        polled
    }

    /// Ends the relay with `close`.
    pub(crate) fn finish(mut self: Box<Self>, close: Close) -> RelayOutcome {
        let old = close.cause == Cause::MaxAge;
        if old || matches!(close.cause, Cause::IdleTimeout | Cause::Drain | Cause::ClosedByOperator) {
            self.tell(Alert::CLOSE_NOTIFY);
        }
        // A client that is still talking would be reset by a close, and lose what it has not read yet.
        let cut_short =
            self.down.end == DownEnd::Shut || matches!(close.cause, Cause::ServerReset | Cause::ServerHung);
        let more = self.up.end.refusal().is_some() || self.trailing || (cut_short && !self.up.end.is_over());
        // A client that took nothing for so long takes no farewell either.
        let waits = (more || old || self.down.sending.waiting() > 0) && close.cause != Cause::ClientHung;
        // What a client said before it left may still be on its way; a reset would overtake it.
        let listens = old || (self.down.end.left().is_some() && self.up.end.is_shut());
        let Self { client, server, up, down, traffic, .. } = *self;
        let pending = down.sending.into_waiting();
        let farewells = Farewells {
            client: waits.then_some(Farewell { socket: client, pending }),
            server: listens.then_some(Farewell { socket: server, pending: up.plain }),
        };
        RelayOutcome { close, traffic, farewells: farewells.due() }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        alarm: Pin<&mut Sleep>,
        bounds: RelayBounds,
        end: Option<Cause>,
    ) -> Poll<Close> {
        if let Some(cause) = end {
            return Poll::Ready(Close::from(cause));
        }
        let worker = Rc::clone(&self.worker);
        worker.counters.turn();
        let mut scratch = worker.scratch.borrow_mut();
        let kept = self.down.sending.waiting();
        let moved = self.traffic.to_client;
        // Down after up, because up may leave an answer to a key update; down leaves nothing for up.
        // So each is asked only until it has nothing to do, not again when the other moved.
        // One turn for both: each has one step at least.
        let mut turn = Turn::default();
        let both = steps(&mut turn, |turn| self.poll_up(cx, &mut scratch, turn))
            .and_then(|up| Ok((up, steps(&mut turn, |turn| self.poll_down(cx, &mut scratch, turn))?)));
        match both {
            Err(close) => Poll::Ready(self.verdict(close)),
            Ok((Progress::Done, Progress::Done)) => {
                // Closing upon unread bytes would be a reset. A client that has sent nothing more costs no call.
                let behind = self.client.poll_read(cx, bytes(&mut scratch));
                self.trailing = matches!(behind, Poll::Ready(Ok(1..)));
                let left = self.down.end.left().map(|_| Cause::ClientReset);
                Poll::Ready(Close::from(self.first_end.or(left).unwrap_or(Cause::Internal)))
            }
            Ok((Progress::Moved, _) | (_, Progress::Moved)) => {
                // Others first; the sockets may still be ready, so nothing else would wake this task.
                worker.counters.yielded();
                turn::poll_next(cx);
                Poll::Pending
            }
            Ok(_) => {
                // While the server takes no more, each packet of the client would wake the worker for nothing.
                if !self.up.plain.is_empty() {
                    self.client.pause_reading();
                }
                // Blocked before, and nothing moved: it was the server that woke this task, for nothing.
                if kept > 0 && (kept, moved) == (self.down.sending.waiting(), self.traffic.to_client) {
                    self.server.pause_reading();
                }
                let waiting = BlockedSides {
                    server: !self.up.plain.is_empty(),
                    client: self.down.sending.waiting() > 0,
                };
                poll_alarm(cx, alarm, bounds, self.moved_ms, waiting, [&self.client, &self.server])
            }
        }
    }

    /// An error after one side has said goodbye is no news: it is how many programs close. But the
    /// server must not take it for the orderly end of what the client had to say.
    fn verdict(&mut self, close: Close) -> Close {
        let broken = matches!(close.cause, Cause::ClientReset | Cause::ClientTruncated);
        if !self.up.end.is_over() && (broken || close.alert.is_some()) {
            self.server.reset_on_close();
        }
        let gone = matches!(close.cause, Cause::ClientReset | Cause::ServerReset);
        match self.first_end {
            Some(first) if gone => first.into(),
            _ => close,
        }
    }

    /// Seals an alert, unless close_notify went out: nothing may follow it (RFC 8446 §6.1).
    fn tell(&mut self, alert: Alert) {
        if !self.down.end.is_silent() {
            self.down.sending.alert(&mut self.session, alert);
        }
    }

    fn ended(&mut self, cause: Cause) {
        self.first_end.get_or_insert(cause);
    }
}

/// Polls a relay until it has ended.
async fn drive(
    worker: &Resources,
    live: LiveSlotId,
    bounds: RelayBounds,
    mut poll: impl FnMut(&mut Context<'_>, Pin<&mut Sleep>) -> Poll<Close>,
) -> Close {
    let mut alarm = pin!(sleep(bounds.idle().min(bounds.left())));
    let route = worker.live.facts(live).path.route.as_deref().map_or(RouteId::default(), RouteId::of);
    poll_fn(|cx| {
        worker.pulse.begins_for(Doing::Relay(route), worker.live.facts(live).client.ip());
        poll(cx, alarm.as_mut())
    })
    .await
}

/// The sides that take no more of the bytes kept for them.
#[derive(Clone, Copy)]
struct BlockedSides {
    server: bool,
    client: bool,
}

/// Ends a relay at its greatest age, and one in which nothing moved for too long, unless it waits for bandwidth. Looks at the clock only when the alarm
/// rings: moving bytes costs no timer.
fn poll_alarm(
    cx: &mut Context<'_>,
    mut alarm: Pin<&mut Sleep>,
    bounds: RelayBounds,
    moved_ms: u64,
    waiting: BlockedSides,
    sockets: [&Socket; 2],
) -> Poll<Close> {
    while alarm.as_mut().poll(cx).is_ready() {
        let age_left = bounds.left();
        if age_left.is_zero() {
            return Poll::Ready(Cause::MaxAge.into());
        }
        let moved_ms = sockets.iter().fold(moved_ms, |last, socket| last.max(socket.waited_for_pace_until()));
        let quiet = offramp_net::clock::coarse_ms().saturating_sub(moved_ms);
        let left = bounds.idle().saturating_sub(Duration::from_millis(quiet));
        if left.is_zero() {
            let cause = match waiting {
                BlockedSides { server: true, .. } => Cause::ServerHung,
                BlockedSides { client: true, .. } => Cause::ClientHung,
                BlockedSides { .. } => Cause::IdleTimeout,
            };
            return Poll::Ready(cause.into());
        }
        alarm.as_mut().reset(Instant::now() + left.min(age_left));
    }
    Poll::Pending
}

/// Takes steps in one direction while they move something, until the turn is over.
fn steps(
    turn: &mut Turn,
    mut step: impl FnMut(&mut Turn) -> Result<Progress, Close>,
) -> Result<Progress, Close> {
    loop {
        // Each step reads or writes at least once, so that there is a bound to them.
        turn.spend(Work::Calls(1));
        let progress = step(turn)?;
        if progress != Progress::Moved || turn.is_over() {
            return Ok(progress);
        }
    }
}

/// Writes what is kept; `true` when all of it is gone.
fn flush(socket: &Socket, kept: &mut Vec<u8>, cx: &mut Context<'_>) -> io::Result<bool> {
    let mut gone = 0;
    let outcome = loop {
        if gone == kept.len() {
            break Ok(true);
        }
        match socket.poll_write(cx, &kept[gone..]) {
            Poll::Ready(Ok(n)) => gone += n,
            Poll::Ready(Err(error)) => break Err(error),
            Poll::Pending => break Ok(false),
        }
    };
    if gone == kept.len() {
        // Memory is given back: an idle connection owns none.
        *kept = Vec::new();
    } else {
        kept.drain(..gone);
    }
    outcome
}

/// The part of the scratch that both directions use.
fn bytes(scratch: &mut Scratch) -> &mut [u8] {
    &mut scratch.bytes
}
