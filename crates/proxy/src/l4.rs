//! The relay of a `tcp` route: records on the client's side, plain bytes on the server's.
//!
//! A hand-written future, polled while either socket has something. Both directions work in the
//! worker's scratch: nothing is copied, and an idle connection owns no buffer. Bytes are kept by the
//! connection only where a record is half arrived or a peer takes no more, and while a peer takes no
//! more, the other is not read.
//!
//! Half-closes pass through: close_notify becomes a shutdown, the end of the server's stream becomes
//! close_notify.

mod down;
mod plain;
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
use offramp_record::{Alert, RecordSize};
use offramp_tls::{Sending, Session};
use tokio::time::{Instant, Sleep, sleep};

use crate::worker::{Scratch, Worker};

pub(crate) use plain::{Due, relay as relay_plain};

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

/// What is left to do for the client after the relay.
pub(crate) struct Outcome {
    /// How it ended.
    pub(crate) close: Close,
    /// What was moved.
    pub(crate) traffic: Traffic,
    /// The client's socket.
    pub(crate) client: Socket,
    /// Records that the client has not got yet: alerts among them.
    pub(crate) pending: Vec<u8>,
    /// Whether the client may still have to read, so that a reset must be avoided.
    pub(crate) waits: bool,
    /// The server's socket, where the server may still have to read.
    pub(crate) server: Option<Socket>,
}

/// What a relay is made of.
pub(crate) struct Ends {
    pub(crate) client: Socket,
    pub(crate) server: Socket,
    pub(crate) session: Session,
    /// What the client sent behind its handshake.
    pub(crate) early: Buffer,
    /// How the client refused its tickets, where it had left already.
    pub(crate) left: Option<io::ErrorKind>,
}

/// The bounds of a relay.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) idle_timeout: Duration,
    pub(crate) record_size: RecordSize,
}

struct Relay {
    worker: Rc<Worker>,
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
    /// The server was told.
    Shut,
    /// The server takes no more, though the client may have more to say.
    Refused,
}

impl UpEnd {
    /// Whether nothing more is read from the client.
    fn is_over(self) -> bool {
        self != Self::Open
    }

    /// Whether nothing more is written to the server.
    fn is_shut(self) -> bool {
        matches!(self, Self::Shut | Self::Refused)
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

/// Relays until both directions are over, one of them breaks, or nothing moves for too long.
pub(crate) async fn relay(worker: Rc<Worker>, mut ends: Ends, terms: Terms) -> Outcome {
    let now = offramp_net::clock::coarse_ms();
    let sealed = ends.early.filled().to_vec();
    ends.early.free();
    let mut relay = Relay {
        client: ends.client,
        server: ends.server,
        session: ends.session,
        up: Up { unopened: !sealed.is_empty(), sealed, plain: Vec::new(), end: UpEnd::Open },
        down: Down {
            sending: Sending::new(terms.record_size),
            expected: 0,
            taken: 0,
            end: ends.left.map_or(DownEnd::Open, DownEnd::Left),
        },
        traffic: Traffic::default(),
        moved_ms: now,
        first_end: None,
        trailing: false,
        worker,
    };
    let close = relay.run(terms.idle_timeout).await;
    if close.cause == Cause::IdleTimeout {
        relay.tell(Alert::CLOSE_NOTIFY);
    }
    // A client that is still talking would be reset by a close, and lose what it has not read yet.
    let cut_short =
        relay.down.end == DownEnd::Shut || matches!(close.cause, Cause::ServerReset | Cause::ServerHung);
    let more = relay.up.end == UpEnd::Refused || relay.trailing || (cut_short && !relay.up.end.is_over());
    // Who took nothing for so long will not take a last word either.
    let waits = (more || relay.down.sending.waiting() > 0) && close.cause != Cause::ClientHung;
    // What a client said before it left may still be on its way; a reset would overtake it.
    let listens = relay.down.end.left().is_some() && relay.up.end.is_shut();
    Outcome {
        close,
        traffic: relay.traffic,
        client: relay.client,
        pending: relay.down.sending.into_waiting(),
        waits,
        server: listens.then_some(relay.server),
    }
}

impl Relay {
    async fn run(&mut self, idle: Duration) -> Close {
        let mut alarm = pin!(sleep(idle));
        let mut place = None;
        let close = poll_fn(|cx| {
            if place.is_none() {
                place = Some(self.worker.cut.remember(cx.waker()));
            }
            self.poll(cx, alarm.as_mut(), idle)
        })
        .await;
        if let Some(place) = place {
            self.worker.cut.forget(place);
        }
        close
    }

    fn poll(&mut self, cx: &mut Context<'_>, alarm: Pin<&mut Sleep>, idle: Duration) -> Poll<Close> {
        if self.worker.cut.is_now() {
            self.tell(Alert::CLOSE_NOTIFY);
            return Poll::Ready(Close::from(Cause::Drain));
        }
        let worker = Rc::clone(&self.worker);
        worker.counters.turn();
        let mut scratch = worker.scratch.borrow_mut();
        let kept = (self.up.plain.len(), self.down.sending.waiting());
        let moved = (self.traffic.from_client, self.traffic.to_client);
        // Down after up, because up may leave an answer to a key update; down leaves nothing for up.
        // So each is asked only until it has nothing to do, not again when the other moved.
        let both = steps(|turn| self.poll_up(cx, &mut scratch, turn))
            .and_then(|up| Ok((up, steps(|turn| self.poll_down(cx, &mut scratch, turn))?)));
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
                // Blocked before, and nothing moved: it was the sender that woke this task, for nothing.
                if kept.0 > 0 && (kept.0, moved.0) == (self.up.plain.len(), self.traffic.from_client) {
                    self.client.pause_reading();
                }
                if kept.1 > 0 && (kept.1, moved.1) == (self.down.sending.waiting(), self.traffic.to_client) {
                    self.server.pause_reading();
                }
                let waiting =
                    Waiting { server: !self.up.plain.is_empty(), client: self.down.sending.waiting() > 0 };
                poll_alarm(cx, alarm, idle, self.moved_ms, waiting)
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

/// Whom bytes wait for that are kept because that side takes no more.
#[derive(Clone, Copy)]
struct Waiting {
    server: bool,
    client: bool,
}

/// Ends a relay in which nothing moved for `idle`. Looks at the clock only when the alarm rings: moving
/// bytes costs no timer.
fn poll_alarm(
    cx: &mut Context<'_>,
    mut alarm: Pin<&mut Sleep>,
    idle: Duration,
    moved_ms: u64,
    waiting: Waiting,
) -> Poll<Close> {
    while alarm.as_mut().poll(cx).is_ready() {
        let quiet = offramp_net::clock::coarse_ms().saturating_sub(moved_ms);
        let left = idle.saturating_sub(Duration::from_millis(quiet));
        if left.is_zero() {
            let cause = match waiting {
                Waiting { server: true, .. } => Cause::ServerHung,
                Waiting { client: true, .. } => Cause::ClientHung,
                Waiting { .. } => Cause::IdleTimeout,
            };
            return Poll::Ready(cause.into());
        }
        alarm.as_mut().reset(Instant::now() + left);
    }
    Poll::Pending
}

/// Takes steps in one direction while they move something, for one turn.
fn steps(mut step: impl FnMut(&mut Turn) -> Result<Progress, Close>) -> Result<Progress, Close> {
    let mut turn = Turn::default();
    loop {
        // Each step reads or writes at least once, so that there is a bound to them.
        turn.spend(Work::Calls(1));
        let progress = step(&mut turn)?;
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
