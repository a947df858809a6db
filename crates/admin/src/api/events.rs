//! What happens, as it happens: a stream of events (`text/event-stream`, HTML Living Standard §9.2).
//!
//! It looks at the process twice a second while somebody reads, and says what is new. A reader that reads slowly gets it
//! later. After ten minutes the stream ends, and when the process leaves the admin interface to another or stops: clients
//! connect again.
//!
//! Each event has an `id`: the start of the process, and how far the stream is in each kind (`record`). A client that
//! sends it as `Last-Event-ID` misses nothing that is remembered. To a client that was at another process, all that has
//! happened since the start of this one is new.

mod record;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use offramp_control::View;
use offramp_observe::NoticeKind;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

pub(crate) use record::Record;
use record::{Event, Position};

/// How often it is looked for something new.
const LOOK: Duration = Duration::from_millis(500);
/// Looks without an event until the client is told that the stream lives.
const QUIET: u32 = 30;
/// How long a stream lasts.
const LIFE: Duration = Duration::from_secs(600);

/// The kind of events about servers.
const SERVER: &str = "server";

/// The kinds of events.
pub(crate) const KINDS: [&str; 10] = [
    "change",
    "refused",
    "closed",
    SERVER,
    "certificate",
    NoticeKind::Upgrade.name(),
    NoticeKind::Stop.name(),
    NoticeKind::Confirm.name(),
    NoticeKind::Limit.name(),
    NoticeKind::Late.name(),
];

/// What there is to follow.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) view: View,
    /// The start of the process.
    pub(crate) start: u128,
    pub(crate) record: Record,
}

/// The stream.
pub(crate) struct Events {
    source: Source,
    /// The kinds that are wanted.
    kinds: Vec<&'static str>,
    timer: Interval,
    end: Instant,
    /// The admin interface ends; `None`: that was told.
    closes: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    quiet: u32,
    /// How far it is.
    at: Position,
    ready: VecDeque<Bytes>,
    /// Its place among those that watch.
    _place: OwnedSemaphorePermit,
}

impl Events {
    /// The events of these kinds from now on, or after the one that the client had `last`.
    pub(crate) fn new(
        source: Source,
        kinds: Vec<&'static str>,
        last: Option<&str>,
        place: OwnedSemaphorePermit,
        closes: Option<watch::Receiver<bool>>,
    ) -> Self {
        let mut timer = interval(LOOK);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let Source { view, start, record } = &source;
        let of_this = |last: &str| {
            let (of, position) = last.split_once('-')?;
            (of == format!("{start:x}")).then(|| Position::parse(position))?
        };
        let (at, states) = match last.map(of_this) {
            // What is there already is no event.
            None => (record.latest(view), Vec::new()),
            Some(Some(position)) => (record.resumed(view, position), Vec::new()),
            Some(None) => (record.since_the_start(view), record::states(view)),
        };
        let mut ready =
            VecDeque::from([Bytes::from(format!("id: {start:x}-{at}\n: what happens from now on\n\n"))]);
        if kinds.contains(&SERVER) {
            ready.extend(states.iter().map(|data| Bytes::from(format!("event: {SERVER}\ndata: {data}\n\n"))));
        }
        let closes = async move {
            match closes {
                // An error is an end, too.
                Some(mut closes) => drop(closes.wait_for(|closes| *closes).await),
                None => pending().await,
            }
        };
        let (end, closes) = (Instant::now() + LIFE, Some(Box::pin(closes) as _));
        Self { source, kinds, timer, end, closes, quiet: 0, at, ready, _place: place }
    }

    fn look(&mut self) {
        let before = self.ready.len();
        for event in self.source.record.since(&self.source.view, self.at) {
            self.at.pass(&event);
            if self.kinds.contains(&event.kind()) {
                let text = self.text(&event);
                self.ready.push_back(text);
            }
        }
        self.quiet = if self.ready.len() > before { 0 } else { self.quiet + 1 };
        if self.quiet >= QUIET {
            self.quiet = 0;
            self.ready.push_back(Bytes::from_static(b":\n\n"));
        }
    }

    /// An event as it is sent.
    fn text(&self, event: &Event) -> Bytes {
        let Self { source: Source { start, .. }, at, .. } = self;
        Bytes::from(format!("id: {start:x}-{at}\nevent: {}\ndata: {}\n\n", event.kind(), event.data))
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            let Some(closes) = &mut self.closes else { return Poll::Ready(None) };
            if closes.as_mut().poll(cx).is_ready() || Instant::now() >= self.end {
                // What has happened until then is told, and then the end.
                self.closes = None;
            } else {
                ready!(self.timer.poll_tick(cx));
            }
            self.look();
        }
    }
}

/// The kinds that a client names, or all.
pub(crate) fn kinds(text: Option<&str>) -> Result<Vec<&'static str>, String> {
    let Some(text) = text else { return Ok(KINDS.to_vec()) };
    let kind = |name: &str| {
        let known = KINDS.into_iter().find(|kind| *kind == name);
        known.ok_or_else(|| format!("`{name}` is no kind of event; these are: {}", KINDS.join(", ")))
    };
    text.split(',').map(kind).collect()
}

/// Those that watch at once.
pub(crate) fn places() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(16))
}
