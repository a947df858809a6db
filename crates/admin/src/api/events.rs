//! What happens, as it happens: a stream of events (`text/event-stream`, HTML Living Standard §9.2).
//!
//! It looks at the process twice a second while somebody reads, and says what is new. Nothing is kept for a reader: one
//! that reads slowly is told later. After ten minutes the stream ends, and when the process leaves the admin interface to
//! another or stops: clients connect again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use hyper::body::{Body, Bytes, Frame};
use offramp_control::View;
use offramp_observe::{Detail, Notice, NoticeKind};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::{read, time};

/// How often it is looked for something new.
const LOOK: Duration = Duration::from_millis(500);
/// Looks without an event until the client is told that the stream lives.
const QUIET: u32 = 30;
/// How long a stream lasts.
const LIFE: Duration = Duration::from_secs(600);

/// The kinds of events.
pub(crate) const KINDS: [&str; 10] = [
    "change",
    "refused",
    "closed",
    "server",
    "certificate",
    NoticeKind::Upgrade.name(),
    NoticeKind::Stop.name(),
    NoticeKind::Confirm.name(),
    NoticeKind::Limit.name(),
    NoticeKind::Late.name(),
];

/// The stream.
pub(crate) struct Events {
    view: View,
    /// The kinds that are wanted.
    kinds: Vec<&'static str>,
    timer: Interval,
    end: Instant,
    /// The admin interface ends; `None`: that was told.
    closes: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    quiet: u32,
    /// What was there at the last look.
    seen: Seen,
    ready: VecDeque<Bytes>,
    /// Its place among those that watch.
    _place: OwnedSemaphorePermit,
}

/// What was there at a look.
#[derive(Default)]
struct Seen {
    /// The numbers of the latest change and of the latest that was refused.
    change: u64,
    refused: u64,
    /// The latest time that connections were closed for somebody.
    closed: u64,
    /// The numbers of the latest notices.
    notices: [u64; NoticeKind::ALL.len()],
    servers: HashMap<(String, String), &'static str>,
    /// By when they begin and end, and their names.
    certificates: HashSet<String>,
}

impl Events {
    /// The events of these kinds from now on.
    pub(crate) fn new(
        view: View,
        kinds: Vec<&'static str>,
        place: OwnedSemaphorePermit,
        closes: Option<watch::Receiver<bool>>,
    ) -> Self {
        let mut timer = interval(LOOK);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = Seen::default();
        // What is there already is no event.
        look(&view, &mut seen);
        let ready = VecDeque::from([Bytes::from_static(b": what happens from now on\n\n")]);
        let closes = async move {
            match closes {
                // An error is an end, too.
                Some(mut closes) => drop(closes.wait_for(|closes| *closes).await),
                None => pending().await,
            }
        };
        let (end, closes) = (Instant::now() + LIFE, Some(Box::pin(closes) as _));
        Self { view, kinds, timer, end, closes, quiet: 0, seen, ready, _place: place }
    }

    fn look(&mut self) {
        let found = look(&self.view, &mut self.seen);
        let wanted = found.into_iter().filter(|(kind, _)| self.kinds.contains(kind));
        let before = self.ready.len();
        self.ready.extend(wanted.map(|(kind, data)| Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))));
        self.quiet = if self.ready.len() > before { 0 } else { self.quiet + 1 };
        if self.quiet >= QUIET {
            self.quiet = 0;
            self.ready.push_back(Bytes::from_static(b":\n\n"));
        }
    }
}

/// What is new since the last look.
fn look(view: &View, seen: &mut Seen) -> Vec<(&'static str, Value)> {
    let mut events = Vec::new();
    let (_, applied) = view.history().applied();
    let new = applied.iter().take_while(|change| change.number > seen.change);
    events.extend(new.map(|change| ("change", read::change(change))));
    seen.change = applied.first().map_or(0, |change| change.number);
    let refused = view.history().refused();
    let new = refused.iter().take_while(|refusal| refusal.number > seen.refused);
    events.extend(new.map(|refusal| ("refused", read::refusal(refusal))));
    seen.refused = refused.first().map_or(0, |refusal| refusal.number);
    let closed = view.history().closed();
    let new = closed.iter().take_while(|closed| closed.number > seen.closed);
    events.extend(new.map(|closed| ("closed", read::closed(closed))));
    seen.closed = closed.first().map_or(0, |closed| closed.number);
    // The newest comes first there, and last here.
    events.reverse();
    for kind in NoticeKind::ALL {
        let new = view.notices().since(kind, seen.notices[kind as usize]);
        seen.notices[kind as usize] = new.last().map_or(seen.notices[kind as usize], |last| last.number);
        events.extend(new.iter().map(|notice| (kind.name(), self::notice(notice))));
    }
    let now = time(SystemTime::now());
    let mut servers = HashMap::new();
    for backend in view.backends() {
        for server in &backend.servers {
            let key = (backend.name.clone(), server.name.clone());
            if seen.servers.get(&key) != Some(&server.state) {
                let data = json!({
                    "at": now, "backend": key.0, "server": key.1, "state": server.state, "why": server.why,
                    "before": seen.servers.get(&key),
                });
                events.push(("server", data));
            }
            servers.insert(key, server.state);
        }
    }
    seen.servers = servers;
    let mut certificates = HashSet::new();
    for one in view.certificates() {
        let shown = read::certificate(&one, SystemTime::now());
        let key = format!("{} {} {}", shown["names"], shown["not_before"], shown["not_after"]);
        if !seen.certificates.contains(&key) {
            let mut data = shown;
            data["at"] = now.clone().into();
            events.push(("certificate", data));
        }
        certificates.insert(key);
    }
    seen.certificates = certificates;
    events
}

fn notice(Notice { at, what, fields, .. }: &Notice) -> Value {
    let mut all = json!({ "at": time(*at), "what": what });
    for (name, detail) in fields {
        all[*name] = match detail {
            Detail::Count(count) => (*count).into(),
            Detail::Flag(flag) => (*flag).into(),
            Detail::Text(text) => text.as_str().into(),
        };
    }
    all
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
