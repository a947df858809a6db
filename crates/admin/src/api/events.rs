//! Streams of events (`text/event-stream`, HTML Living Standard §9.2).
//!
//! While a stream is open it polls the process twice a second and sends news. A slow reader gets them later.
//! The stream ends after ten minutes, and when the process stops or hands the admin interface over; clients
//! reconnect.
//!
//! Each event has an `id`: the start of the process, and the stream's position in each kind (`record`). A
//! client that sends it as `Last-Event-ID` misses nothing that is remembered. For a client of another
//! process, everything since the start of this one is new.

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

pub(crate) use record::EventHistory;
use record::{Position, RecordedEvent};

/// The interval of polls.
const LOOK: Duration = Duration::from_millis(500);
/// The polls without an event after which a comment keeps the stream alive.
const QUIET: u32 = 30;
/// The maximum duration of a stream.
const LIFE: Duration = Duration::from_secs(600);

/// The kind of events about servers.
const SERVER: &str = "server";

/// The kinds of events, in the order of positions.
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

/// The sources of events.
#[derive(Clone)]
pub(crate) struct EventSource {
    pub(crate) view: View,
    /// The start of the process.
    pub(crate) start: u128,
    pub(crate) record: EventHistory,
}

/// An open stream of events.
pub(crate) struct Events {
    source: EventSource,
    /// The kinds that the client subscribed to.
    kinds: Vec<&'static str>,
    timer: Interval,
    end: Instant,
    /// Resolves when the admin interface ends; `None` once handled.
    closes: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    quiet: u32,
    /// The position of the stream.
    at: Position,
    ready: VecDeque<Bytes>,
    /// The permit that limits the number of streams.
    _place: OwnedSemaphorePermit,
}

impl Events {
    /// Streams events of these kinds from now on, or after the event with id `last`.
    pub(crate) fn new(
        source: EventSource,
        kinds: Vec<&'static str>,
        last: Option<&str>,
        place: OwnedSemaphorePermit,
        closes: Option<watch::Receiver<bool>>,
    ) -> Self {
        let mut timer = interval(LOOK);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let EventSource { view, start, record } = &source;
        let of_this = |last: &str| {
            let (of, position) = last.split_once('-')?;
            (of == format!("{start:x}")).then(|| Position::parse(position))?
        };
        let (at, states) = match last.map(of_this) {
            // The present state is not an event.
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
                // A closed channel counts as the end, too.
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

    /// Formats an event for the stream.
    fn text(&self, event: &RecordedEvent) -> Bytes {
        let Self { source: EventSource { start, .. }, at, .. } = self;
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
                // Sends pending events before the end.
                self.closes = None;
            } else {
                ready!(self.timer.poll_tick(cx));
            }
            self.look();
        }
    }
}

/// Parses the kinds in a parameter; all by default.
pub(crate) fn kinds(text: Option<&str>) -> Result<Vec<&'static str>, String> {
    let Some(text) = text else { return Ok(KINDS.to_vec()) };
    let kind = |name: &str| {
        let known = KINDS.into_iter().find(|kind| *kind == name);
        known.ok_or_else(|| format!("`{name}` is no kind of event; these are: {}", KINDS.join(", ")))
    };
    text.split(',').map(kind).collect()
}

/// The limit of concurrent streams.
pub(crate) fn places() -> Arc<tokio::sync::Semaphore> {
    Arc::new(tokio::sync::Semaphore::new(16))
}
