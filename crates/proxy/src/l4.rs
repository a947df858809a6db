//! The relay of a `tcp` route: records on the client's side, plain bytes on the server's.
//!
//! A hand-written future, polled while either socket has something. Both directions work in the worker's scratch:
//! nothing is copied, and an idle connection owns no buffer. A connection keeps bytes only if half a record has arrived,
//! or if a peer takes no more. While a peer takes no more, the other peer is not read.
//!
//! Half-closes pass through: close_notify becomes a shutdown, the end of the server's stream becomes
//! close_notify.

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
use offramp_observe::facts::Traffic;
use offramp_observe::{Cause, Close};
use offramp_record::Alert;
use offramp_tls::{Sending, Session};
use tokio::time::{Instant, Sleep, sleep};

use crate::closing;
use crate::late::Doing;
use crate::live::table::Place;
use crate::snapshot::{Limits, RouteId};
use crate::worker::{Scratch, Worker};

pub(crate) use plain::Plain;
pub(crate) use secure::{Secure, SecureEnds};

/// What a direction came to in one step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Something moved: there may be more.
    Moved,
    /// Nothing to do until a socket is ready.
    Blocked,
    /// The direction has ended, and its end was passed on.
    Done,
}

/// What is left to do after a relay.
pub(crate) struct Outcome {
    /// How it ended.
    pub(crate) close: Close,
    /// What was moved.
    pub(crate) traffic: Traffic,
    /// Who gets a last word: a reset must not overtake what is still on its way to a peer that may have to read.
    pub(crate) farewells: Option<Box<Farewells>>,
}

/// Those to whom a last word is due.
#[derive(Default)]
pub(crate) struct Farewells {
    pub(crate) client: Option<Farewell>,
    pub(crate) server: Option<Farewell>,
}

/// A last word.
pub(crate) struct Farewell {
    pub(crate) socket: Socket,
    /// What the peer has not got yet.
    pub(crate) pending: Vec<u8>,
}

impl Farewells {
    /// Those, where anybody gets one.
    fn due(self) -> Option<Box<Self>> {
        (self.client.is_some() || self.server.is_some()).then(|| Box::new(self))
    }

    /// Says goodbye to both at a time: neither is kept waiting by the other.
    pub(crate) async fn say(&self, worker: &Worker) {
        let say = async |farewell: Option<&Farewell>| {
            if let Some(Farewell { socket, pending }) = farewell {
                closing::farewell(worker, socket, pending).await;
            }
        };
        tokio::join!(say(self.client.as_ref()), say(self.server.as_ref()));
    }
}

/// What bounds a relay in time. An idle connection has it in its task, so it is small.
#[derive(Clone, Copy)]
pub(crate) struct RelayBounds {
    /// How long nothing may move; what is configured fits.
    idle_ms: u32,
    /// When it has its greatest age ([`Worker::old_at`]).
    old_at: u64,
}

impl RelayBounds {
    pub(crate) fn new(limits: &Limits, old_at: u64) -> Self {
        Self { idle_ms: u32::try_from(limits.idle_timeout.as_millis()).unwrap_or(u32::MAX), old_at }
    }

    fn idle(self) -> Duration {
        Duration::from_millis(self.idle_ms.into())
    }

    /// How long until the greatest age.
    fn left(self) -> Duration {
        Duration::from_millis(self.old_at.saturating_sub(offramp_net::clock::coarse_ms()))
    }

    /// The end of a relay that has moved something at its greatest age. A relay that always has something to move is not
    /// looked at when its alarm rings, and the clock was read for that time already.
    fn end(self, moved_ms: u64) -> Option<Cause> {
        (moved_ms >= self.old_at).then_some(Cause::MaxAge)
    }
}

/// What a relay is made of.
pub(crate) struct Ends {
    pub(crate) client: Socket,
    pub(crate) server: Socket,
    pub(crate) session: Session,
    /// The way to the client; tickets may be held back in it.
    pub(crate) sending: Sending,
    /// What the client sent behind its handshake.
    pub(crate) early: Buffer,
    /// How the client refused its tickets, where it had left already.
    pub(crate) left: Option<io::ErrorKind>,
}

/// A relay. What a quiet connection owns is this, its task, its facts and its sockets: nothing here is larger than
/// it must be.
pub(crate) struct Relay {
    worker: Rc<Worker>,
    /// Its place among the worker's connections.
    live: Place,
    client: Socket,
    server: Socket,
    session: Session,
    up: Up,
    down: Down,
    traffic: Traffic,
    /// When something last moved, in milliseconds of the coarse clock.
    moved_ms: u64,
    /// What the event will say where both directions end in order.
    first_end: Option<Cause>,
    /// Whether the client has sent something behind its close_notify.
    trailing: bool,
}

/// From the client to the server.
struct Up {
    /// Ciphertext that is not opened yet.
    sealed: Vec<u8>,
    /// Whether `sealed` may hold whole records, so that it is opened before more is read.
    unopened: bool,
    /// Plaintext that the server has not taken yet.
    plain: Vec<u8>,
    end: UpEnd,
}

/// How far the client's direction has come to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UpEnd {
    /// More may come.
    Open,
    /// The client has finished; the server does not know yet, as something may still wait for it.
    Ended,
    /// The server's socket was shut.
    Shut,
    /// The server takes no more, in this way, though the client may have more to say.
    Refused(io::ErrorKind),
}

impl UpEnd {
    /// Whether nothing more is read from the client.
    fn is_over(self) -> bool {
        self != Self::Open
    }

    /// Whether nothing more is written to the server.
    fn is_shut(self) -> bool {
        matches!(self, Self::Shut | Self::Refused(_))
    }

    /// How the server refused to take more, if it did.
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
    /// How many bytes the next read makes room for.
    expected: usize,
    /// How many bytes the client has taken since it last had to be waited for.
    taken: usize,
    end: DownEnd,
}

/// How far the server's direction has come to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DownEnd {
    /// More may come.
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
    /// Whether nothing more may be sealed (RFC 8446 §6.1).
    fn is_silent(self) -> bool {
        !matches!(self, Self::Open | Self::Ended)
    }

    /// How the client left, if it did.
    fn left(self) -> Option<io::ErrorKind> {
        match self {
            Self::Left(how) => Some(how),
            _ => None,
        }
    }
}

impl Relay {
    /// A relay that has moved nothing yet. It is boxed, so that the task of a connection is small and is made once.
    pub(crate) fn new(worker: Rc<Worker>, live: Place, mut ends: Ends) -> Box<Self> {
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
            traffic: Traffic::default(),
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

    /// What is left to do.
    pub(crate) fn finish(mut self: Box<Self>, close: Close) -> Outcome {
        let old = close.cause == Cause::MaxAge;
        if old || matches!(close.cause, Cause::IdleTimeout | Cause::Drain | Cause::ClosedByOperator) {
            self.tell(Alert::CLOSE_NOTIFY);
        }
        // A client that is still talking would be reset by a close, and lose what it has not read yet.
        let cut_short =
            self.down.end == DownEnd::Shut || matches!(close.cause, Cause::ServerReset | Cause::ServerHung);
        let more = self.up.end.refusal().is_some() || self.trailing || (cut_short && !self.up.end.is_over());
        // Who took nothing for so long will not take a last word either.
        let waits = (more || old || self.down.sending.waiting() > 0) && close.cause != Cause::ClientHung;
        // What a client said before it left may still be on its way; a reset would overtake it.
        let listens = old || (self.down.end.left().is_some() && self.up.end.is_shut());
        let Self { client, server, up, down, traffic, .. } = *self;
        let pending = down.sending.into_waiting();
        let farewells = Farewells {
            client: waits.then_some(Farewell { socket: client, pending }),
            server: listens.then_some(Farewell { socket: server, pending: up.plain }),
        };
        Outcome { close, traffic, farewells: farewells.due() }
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
                // Closing upon what lies unread would be a reset. Who has sent nothing more costs no call.
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
                let waiting =
                    Waiting { server: !self.up.plain.is_empty(), client: self.down.sending.waiting() > 0 };
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

/// Polls a relay until it has ended. It is woken when all relays must end, too.
async fn drive(
    worker: &Worker,
    live: Place,
    bounds: RelayBounds,
    mut poll: impl FnMut(&mut Context<'_>, Pin<&mut Sleep>) -> Poll<Close>,
) -> Close {
    let mut alarm = pin!(sleep(bounds.idle().min(bounds.left())));
    let mut place = None;
    let route = worker.live.facts(live).path.route.as_deref().map_or(RouteId::default(), RouteId::of);
    let close = poll_fn(|cx| {
        place.get_or_insert_with(|| worker.cut.remember(cx.waker()));
        worker.pulse.begins_for(Doing::Relay(route), worker.live.facts(live).client.ip());
        poll(cx, alarm.as_mut())
    })
    .await;
    if let Some(place) = place {
        worker.cut.forget(place);
    }
    close
}

/// Whom bytes wait for that are kept because that side takes no more.
#[derive(Clone, Copy)]
struct Waiting {
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
    waiting: Waiting,
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
                Waiting { server: true, .. } => Cause::ServerHung,
                Waiting { client: true, .. } => Cause::ClientHung,
                Waiting { .. } => Cause::IdleTimeout,
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
