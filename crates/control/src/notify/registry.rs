//! All receivers, as the service, the metrics and the admin interface share them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use offramp_config::model::NotifyKind;
use offramp_observe::{Log, Sampled, names};
use offramp_process::Helper;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::conditions::{Conditions, NotifySources};
use super::outbox::{Delivery, DeliveryTally, Outbox, TryOutcome};
use super::program::ReceiverPrograms;
use super::receiver::{Envelope, Receiver, TrialOutcome};
use super::tracker::{AlertKey, AlertTimes, AlertTracker, CarriedAlert};

/// The longest time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// Between two looks for untried messages at the end.
const REST: Duration = Duration::from_millis(10);

/// The receivers that are reported.
#[derive(Default)]
pub(crate) struct NotifyRegistry {
    following: Mutex<Vec<Arc<Delivering>>>,
    /// The receivers of the process before.
    known: Mutex<Vec<KnownReceiver>>,
    part: Arc<Mutex<UpgradePart>>,
    programs: Arc<ReceiverPrograms>,
}

/// The part of this process while another one takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UpgradePart {
    /// It looks and tells.
    #[default]
    Teller,
    /// It looks, and tells no more than it has told: the other process was given the rest.
    Giver,
    /// The other process looks and tells.
    Left,
}

/// A receiver of notifications, and the fates of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverView {
    /// The name in the configuration.
    pub name: String,
    /// The origin of its URL.
    pub to: String,
    /// The kinds that it is reported of.
    pub on: Vec<&'static str>,
    /// Messages that it has taken.
    pub sent: u64,
    /// Tries that failed for now.
    pub retried: u64,
    /// Messages that it has refused.
    pub refused: u64,
    /// Messages that were dropped, because too many waited or for too long.
    pub dropped: u64,
}

/// The knowledge of a receiver, as one process tells another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KnownReceiver {
    name: String,
    alerts: Vec<KnownAlert>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownAlert {
    kind: String,
    about: String,
    reported: bool,
    /// Absent from processes that carry only what was reported.
    active: Option<bool>,
    #[serde(default)]
    untold: u64,
    differs_ms: Option<u64>,
    rests_ms: u64,
    says: String,
}

impl KnownReceiver {
    fn of(one: &Delivering, now: Instant) -> Self {
        let carried = one.state().tracker.give(now);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let alerts = carried.into_iter().map(|alert| KnownAlert {
            kind: alert.key.kind.word().to_owned(),
            about: alert.key.about.into(),
            reported: alert.reported,
            active: Some(alert.active),
            untold: alert.untold,
            differs_ms: alert.differs.map(ms),
            rests_ms: ms(alert.rests),
            says: alert.says,
        });
        Self { name: one.receiver.config.name.to_string(), alerts: alerts.collect() }
    }

    /// The alerts of kinds that are known.
    fn carried(&self) -> Vec<CarriedAlert<NotifyKind>> {
        let alerts = self.alerts.iter().filter_map(|one| {
            let key = AlertKey { kind: NotifyKind::from_word(&one.kind)?, about: one.about.as_str().into() };
            Some(CarriedAlert {
                key,
                active: one.active.unwrap_or(one.reported),
                reported: one.reported,
                untold: one.untold,
                differs: one.differs_ms.map(Duration::from_millis),
                rests: Duration::from_millis(one.rests_ms),
                says: one.says.clone(),
            })
        });
        alerts.collect()
    }
}

impl NotifyRegistry {
    /// Has the helper start the programs of receivers in the place of this process.
    pub(crate) fn helped_by(&self, helper: Option<Arc<Helper>>) {
        self.programs.helped_by(helper);
    }

    /// Has these receivers reported, and no others. One that keeps its name keeps what it knows and what waits for it; of one
    /// without a change the same is given back.
    pub(crate) fn follow(&self, receivers: Vec<Receiver>) -> Vec<Arc<Delivering>> {
        let mut all = self.all();
        let following = receivers.into_iter().map(|receiver| {
            let before = all.iter().find(|one| one.receiver.config.name == receiver.config.name);
            match before {
                Some(same) if same.receiver == receiver => Arc::clone(same),
                Some(one) => Arc::new(self.delivering(receiver, Arc::clone(&one.state))),
                None => {
                    let state = DeliveryState::new(self.known_alerts(&receiver));
                    Arc::new(self.delivering(receiver, Arc::new(Mutex::new(state))))
                }
            }
        });
        let following: Vec<Arc<Delivering>> = following.collect();
        all.clone_from(&following);
        following
    }

    fn delivering(&self, receiver: Receiver, state: Arc<Mutex<DeliveryState>>) -> Delivering {
        let (part, programs) = (Arc::clone(&self.part), Arc::clone(&self.programs));
        let this = Delivering { receiver, state, part, programs, woken: Notify::new() };
        let config = &this.receiver.config;
        let mut state = this.state();
        state.tracker.set_times(AlertTimes { group: config.group, rest: config.rest });
        state.tracker.keep_kinds(|kind| config.on.contains(&kind));
        drop(state);
        this
    }

    /// The alerts that the process before has reported to a receiver.
    fn known_alerts(&self, receiver: &Receiver) -> Vec<CarriedAlert<NotifyKind>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = known.iter().position(|one| one.name == receiver.config.name.as_str());
        // Once: a receiver that comes back days later begins anew.
        same.map_or_else(Vec::new, |at| known.swap_remove(at).carried())
    }

    /// The knowledge of the receivers, for the process that takes the place of this one. Nothing new is told from now on,
    /// until this process [goes on](Self::go_on) or [leaves](Self::leave).
    pub(crate) fn give(&self) -> Vec<KnownReceiver> {
        self.set_part(UpgradePart::Giver);
        let now = Instant::now();
        self.all().iter().map(|one| KnownReceiver::of(one, now)).collect()
    }

    /// Takes over what the receivers know from the process before.
    pub(crate) fn recall(&self, known: &[KnownReceiver]) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known.to_vec();
    }

    /// Goes on after an upgrade that failed.
    pub(crate) fn go_on(&self) {
        self.set_part(UpgradePart::Teller);
    }

    /// Has nothing more reported but what waits already, and what the other process was not given: it looks from now on.
    pub(crate) fn leave(&self) {
        self.set_part(UpgradePart::Left);
        for one in self.all().iter() {
            one.tell_rest();
        }
    }

    /// Waits for messages that wait for their first try, for so long at most.
    pub(crate) async fn deliver_rest(&self, limit: Duration) {
        let untried = || self.all().iter().any(|one| one.has_untried());
        let wait = async {
            while untried() {
                sleep(REST).await;
            }
        };
        // What was not delivered is lost with the process.
        let _ = timeout(limit, wait).await;
    }

    fn set_part(&self, part: UpgradePart) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = part;
    }

    /// The receivers, with the fates of their messages.
    pub(crate) fn receivers(&self) -> Vec<ReceiverView> {
        let all = self.all();
        let shown = all.iter().map(|one| {
            let DeliveryTally { sent, retried, refused, dropped } = one.state().outbox.tally();
            let config = &one.receiver.config;
            ReceiverView {
                name: config.name.to_string(),
                to: one.receiver.origin(),
                on: config.on.iter().map(|kind| kind.word()).collect(),
                sent,
                retried,
                refused,
                dropped,
            }
        });
        shown.collect()
    }

    /// Tells of a change of the configuration.
    pub(crate) fn note_change(&self, version: u64, says: &str) {
        let key = AlertKey { kind: NotifyKind::Change, about: format!("to version {version}").into() };
        for one in self.all().iter() {
            if one.receiver.config.on.contains(&NotifyKind::Change) {
                one.state().tracker.occur(&key, says, 1, Instant::now());
            }
        }
    }

    /// Sends a message for a trial to the receiver of this name, once.
    pub(crate) async fn try_out(&self, name: &str) -> Option<TrialOutcome> {
        let receiver = {
            let all = self.all();
            all.iter().find(|one| one.receiver.config.name.as_str() == name)?.receiver.clone()
        };
        Some(receiver.try_out(&self.programs).await)
    }

    /// The fates of messages.
    pub(crate) fn figures(&self) -> Vec<Sampled> {
        let all = self.all();
        let figures = all.iter().flat_map(|one| {
            let DeliveryTally { sent, retried, refused, dropped } = one.state().outbox.tally();
            let results = [("sent", sent), ("retried", retried), ("refused", refused), ("dropped", dropped)];
            results.map(|(result, count)| Sampled {
                metric: &names::NOTIFICATIONS,
                labels: vec![one.receiver.config.name.as_str().into(), result.into()],
                value: count as f64,
            })
        });
        figures.collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Delivering>>> {
        // Nothing panics with the lock held.
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver, and what it knows.
pub(crate) struct Delivering {
    pub(crate) receiver: Receiver,
    state: Arc<Mutex<DeliveryState>>,
    part: Arc<Mutex<UpgradePart>>,
    programs: Arc<ReceiverPrograms>,
    /// Told of a message that does not wait for the next look.
    woken: Notify,
}

struct DeliveryState {
    tracker: AlertTracker<NotifyKind>,
    outbox: Outbox<Arc<Envelope>>,
    conditions: Option<Conditions>,
    /// Set while the receiver does not take messages.
    is_failing: bool,
    /// The dropped messages that the log has reported of.
    dropped: u64,
}

impl DeliveryState {
    /// Of a receiver that knows this.
    fn new(carried: Vec<CarriedAlert<NotifyKind>>) -> Self {
        let mut tracker = AlertTracker::new(AlertTimes { group: Duration::ZERO, rest: Duration::ZERO });
        tracker.resume(carried, Instant::now());
        Self { tracker, outbox: Outbox::new(), conditions: None, is_failing: false, dropped: 0 }
    }
}

/// A message to try, with its number in the outbox.
struct DueMessage {
    number: u64,
    envelope: Arc<Envelope>,
}

impl Delivering {
    /// Looks and sends, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, sources: NotifySources, log: Log) {
        loop {
            let now = Instant::now();
            match self.look(&sources, now) {
                Some(due) => {
                    let outcome = self.receiver.send(&due.envelope, &self.programs).await;
                    self.settle(due.number, &outcome, &log);
                }
                None => drop(timeout(self.rest(now), self.woken.notified()).await),
            }
        }
    }

    /// Looks at the conditions; gives the message that is to be tried now.
    fn look(&self, sources: &NotifySources, now: Instant) -> Option<DueMessage> {
        let needs_figures = self.state().conditions.as_ref().is_none_or(|known| known.needs_figures(now));
        let figures = needs_figures.then(|| sources.figures());
        let mut state = self.state();
        let DeliveryState { tracker, outbox, conditions, .. } = &mut *state;
        let conditions = conditions.get_or_insert_with(|| Conditions::new(sources));
        let part = *self.part.lock().unwrap_or_else(PoisonError::into_inner);
        if part != UpgradePart::Left {
            conditions.look(sources, figures.as_deref(), &self.receiver.config, tracker, now);
        }
        if part == UpgradePart::Teller
            && let Some(notification) = tracker.take(now)
        {
            outbox.push(Arc::new(self.receiver.envelope(&notification, SystemTime::now())), now);
        }
        outbox.ready(now).map(|(number, envelope)| DueMessage { number, envelope })
    }

    /// Puts the occurrences that another process does not know behind the messages that wait.
    fn tell_rest(&self) {
        let mut state = self.state();
        if let Some(notification) = state.tracker.take_rest() {
            let envelope = self.receiver.envelope(&notification, SystemTime::now());
            state.outbox.push(Arc::new(envelope), Instant::now());
            self.woken.notify_one();
        }
    }

    /// True while a message waits for a receiver that has not failed.
    fn has_untried(&self) -> bool {
        let state = self.state();
        !state.is_failing && state.outbox.next().is_some()
    }

    /// The time until something may be due.
    fn rest(&self, now: Instant) -> Duration {
        let tells = *self.part.lock().unwrap_or_else(PoisonError::into_inner) == UpgradePart::Teller;
        let state = self.state();
        let due = state.tracker.next().filter(|_| tells);
        let next = due.into_iter().chain(state.outbox.next()).min();
        next.map_or(LOOK, |next| next.saturating_duration_since(now).min(LOOK))
    }

    fn settle(&self, number: u64, outcome: &TryOutcome, log: &Log) {
        let mut state = self.state();
        state.outbox.settle(number, outcome.delivery, Instant::now());
        let to = self.receiver.origin();
        let mut fields = vec![("receiver", self.receiver.config.name.as_str().into()), ("to", (&to).into())];
        let was_failing = std::mem::replace(&mut state.is_failing, outcome.delivery != Delivery::Taken);
        match outcome.delivery {
            Delivery::Taken if was_failing => log.info("notifications are taken again", &fields),
            Delivery::Taken => {}
            Delivery::Refused => {
                fields.push(("answer", (&outcome.says).into()));
                log.error("a notification was refused, and is not sent again", &fields);
            }
            Delivery::Later { .. } if was_failing => {}
            Delivery::Later { .. } => {
                fields.push(("reason", (&outcome.says).into()));
                log.warn("cannot send notifications; will try again", &fields);
            }
        }
        let dropped = state.outbox.tally().dropped;
        if dropped > state.dropped {
            let more = dropped - std::mem::replace(&mut state.dropped, dropped);
            let fields = [("receiver", self.receiver.config.name.as_str().into()), ("dropped", more.into())];
            log.error("notifications were dropped: too many waited, or for too long", &fields);
        }
    }

    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        // A panic leaves a state that is whole: the task begins again with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
