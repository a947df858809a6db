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

use offramp_net::{Buffer, Socket};
use offramp_observe::facts::Traffic;
use offramp_observe::{Cause, Close};
use offramp_record::{Alert, Pacing, RecordSize};
use offramp_tls::Session;
use tokio::time::{Instant, Sleep, sleep};

use crate::worker::{Scratch, Worker};

pub(crate) use plain::{Due, relay as relay_plain};

/// How many batches one connection may move each way before others have their turn.
const TURN: usize = 4;

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
}

/// From the client to the server.
struct Up {
    /// Ciphertext that is not opened yet.
    sealed: Vec<u8>,
    /// Whether `sealed` may hold whole records, so that it is opened before more is read.
    unopened: bool,
    /// Plaintext that the server has not taken yet.
    plain: Vec<u8>,
    /// Whether the client's direction is over.
    ended: bool,
    /// Whether the server was told.
    shut: bool,
    /// Whether it ended because the server takes no more, though the client may have more to say.
    refused: bool,
    /// Whether the client has sent something behind its close_notify.
    trailing: bool,
}

/// From the server to the client.
struct Down {
    /// Records that the client has not taken yet.
    pending: Vec<u8>,
    /// Whether `pending` holds our answer to a key update.
    answering: bool,
    pacing: Pacing,
    /// How many bytes the next read makes room for.
    expected: usize,
    /// How many bytes the client has taken since it last had to be waited for.
    taken: usize,
    /// Whether the kernel may keep back the end of the latest batch.
    kept_back: bool,
    /// Whether the server's stream is over.
    ended: bool,
    /// Whether close_notify was sealed.
    notified: bool,
    /// Whether the client's socket was shut.
    shut: bool,
    /// How the client refused to take more, though it may have said more than was read yet.
    left: Option<io::ErrorKind>,
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
        up: Up {
            unopened: !sealed.is_empty(),
            sealed,
            plain: Vec::new(),
            ended: false,
            shut: false,
            refused: false,
            trailing: false,
        },
        down: Down {
            pending: Vec::new(),
            answering: false,
            pacing: Pacing::new(terms.record_size, now),
            expected: 0,
            taken: 0,
            kept_back: false,
            ended: ends.left.is_some(),
            notified: ends.left.is_some(),
            shut: false,
            left: ends.left,
        },
        traffic: Traffic::default(),
        moved_ms: now,
        first_end: None,
        worker,
    };
    let close = relay.run(terms.idle_timeout).await;
    if close.cause == Cause::IdleTimeout {
        relay.tell(Alert::CLOSE_NOTIFY);
    }
    // A client that is still talking would be reset by a close, and lose what it has not read yet.
    let cut_short = relay.down.shut || matches!(close.cause, Cause::ServerReset | Cause::ServerHung);
    let more = relay.up.refused || relay.up.trailing || (cut_short && !relay.up.ended);
    // Who took nothing for so long will not take a last word either.
    let waits = (more || !relay.down.pending.is_empty()) && close.cause != Cause::ClientHung;
    // What a client said before it left may still be on its way; a reset would overtake it.
    let listens = relay.down.left.is_some() && relay.up.shut;
    Outcome {
        close,
        traffic: relay.traffic,
        client: relay.client,
        pending: relay.down.pending,
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
        let mut scratch = worker.scratch.borrow_mut();
        // Down after up, because up may leave an answer to a key update; down leaves nothing for up.
        // So each is asked only until it has nothing to do, not again when the other moved.
        let both = steps(|| self.poll_up(cx, &mut scratch))
            .and_then(|up| Ok((up, steps(|| self.poll_down(cx, &mut scratch))?)));
        match both {
            Err(close) => Poll::Ready(self.verdict(close)),
            Ok((Progress::Done, Progress::Done)) => {
                // Closing upon what lies unread would be a reset. Who has sent nothing more costs no call.
                let behind = self.client.poll_read(cx, bytes(&mut scratch));
                self.up.trailing = matches!(behind, Poll::Ready(Ok(1..)));
                let left = self.down.left.map(|_| Cause::ClientReset);
                Poll::Ready(Close::from(self.first_end.or(left).unwrap_or(Cause::Internal)))
            }
            Ok((Progress::Moved, _) | (_, Progress::Moved)) => {
                // Others first; the sockets may still be ready, so nothing else would wake this task.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(_) => {
                let waiting =
                    Waiting { server: !self.up.plain.is_empty(), client: !self.down.pending.is_empty() };
                poll_alarm(cx, alarm, idle, self.moved_ms, waiting)
            }
        }
    }

    /// An error after one side has said goodbye is no news: it is how many programs close. But the
    /// server must not take it for the orderly end of what the client had to say.
    fn verdict(&mut self, close: Close) -> Close {
        let broken = matches!(close.cause, Cause::ClientReset | Cause::ClientTruncated);
        if !self.up.ended && (broken || close.alert.is_some()) {
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
        if !self.down.notified {
            self.session.alert(alert, &mut self.down.pending);
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

/// Takes steps in one direction while they move something, up to [`TURN`] of them.
fn steps(mut step: impl FnMut() -> Result<Progress, Close>) -> Result<Progress, Close> {
    for _ in 0..TURN {
        let progress = step()?;
        if progress != Progress::Moved {
            return Ok(progress);
        }
    }
    Ok(Progress::Moved)
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
