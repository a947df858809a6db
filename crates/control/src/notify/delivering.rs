//! One receiver at work: looks, and sends what is due; and its part in an upgrade.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use offramp_config::model::NotifyKind;
use offramp_observe::Log;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::conditions::{Conditions, NotifySources};
use super::left_messages::LeftMessages;
use super::outbox::{Delivery, Outbox, TryOutcome};
use super::program::ReceiverPrograms;
use super::receiver::{Envelope, Receiver};
use super::tracker::{AlertTimes, AlertTracker, CarriedAlert};

/// The longest time between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// The part of this process while another one takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UpgradePart {
    /// It looks and tells.
    #[default]
    Teller,
    /// It looks, and tells no more than it has told: the other process was given the rest.
    Giver,
    /// The other process looks and tells.
    Left,
}

/// The resources that all receivers share.
#[derive(Clone, Default)]
pub(super) struct DeliveryResources {
    part: Arc<Mutex<UpgradePart>>,
    pub(super) programs: Arc<ReceiverPrograms>,
    pub(super) left: Arc<LeftMessages>,
}

impl DeliveryResources {
    pub(super) fn part(&self) -> UpgradePart {
        // Nothing panics with the lock held.
        *self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_part(&self, part: UpgradePart) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = part;
    }
}

/// A receiver, and what it knows.
pub(crate) struct Delivering {
    pub(crate) receiver: Receiver,
    pub(super) state: Arc<Mutex<DeliveryState>>,
    shared: DeliveryResources,
    /// Told of a message that does not wait for the next look.
    woken: Notify,
}

/// The knowledge and the messages of a receiver, which outlive a change of its settings.
pub(super) struct DeliveryState {
    pub(super) tracker: AlertTracker<NotifyKind>,
    pub(super) outbox: Outbox<Arc<Envelope>>,
    conditions: Option<Conditions>,
    /// The number of the message that is sent now.
    under_way: Option<u64>,
    /// Set once the messages were taken that another process has left before this one began.
    has_taken: bool,
    /// Set while the receiver does not take messages.
    pub(super) is_failing: bool,
    /// The dropped messages that the log has reported of.
    dropped: u64,
}

impl DeliveryState {
    /// Of a receiver that knows this.
    pub(super) fn new(carried: Vec<CarriedAlert<NotifyKind>>) -> Self {
        let mut tracker = AlertTracker::new(AlertTimes { group: Duration::ZERO, rest: Duration::ZERO });
        tracker.resume(carried, Instant::now());
        Self {
            tracker,
            outbox: Outbox::new(),
            conditions: None,
            under_way: None,
            has_taken: false,
            is_failing: false,
            dropped: 0,
        }
    }
}

/// A message to try, with its number in the outbox.
struct DueMessage {
    number: u64,
    envelope: Arc<Envelope>,
}

impl Delivering {
    /// A receiver that goes on with `state`.
    pub(super) fn new(
        receiver: Receiver,
        state: Arc<Mutex<DeliveryState>>,
        shared: DeliveryResources,
    ) -> Self {
        let this = Self { receiver, state, shared, woken: Notify::new() };
        let config = &this.receiver.config;
        let mut state = this.state();
        state.tracker.set_times(AlertTimes { group: config.group, rest: config.rest });
        state.tracker.keep_kinds(|kind| config.on.contains(&kind));
        drop(state);
        this
    }

    /// Looks and sends, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, sources: NotifySources, log: Log) {
        loop {
            let now = Instant::now();
            self.take_messages(now);
            match self.look(&sources, now) {
                Some(due) => {
                    let outcome = self.receiver.send(&due.envelope, &self.shared.programs).await;
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
        let part = self.shared.part();
        if part != UpgradePart::Left {
            conditions.look(sources, figures.as_deref(), &self.receiver.config, tracker, now);
        }
        if part == UpgradePart::Teller
            && let Some(notification) = tracker.take(now)
        {
            outbox.push(Arc::new(self.receiver.envelope(&notification, SystemTime::now())), now);
        }
        let due = outbox.ready(now).map(|(number, envelope)| DueMessage { number, envelope });
        state.under_way = due.as_ref().map(|due| due.number);
        due
    }

    /// Takes the messages that another process has left, and goes on trying them.
    fn take_messages(&self, now: Instant) {
        let has_taken = std::mem::replace(&mut self.state().has_taken, true);
        // While another process may take them, this one does not.
        let tells = self.shared.part() == UpgradePart::Teller;
        if !tells || (has_taken && !self.shared.left.may_come(now)) {
            return;
        }
        let taken = self.shared.left.take(self.receiver.config.name.as_str());
        let mut state = self.state();
        for (age, envelope) in taken {
            state.outbox.restore(Arc::new(envelope), now.checked_sub(age).unwrap_or(now));
        }
    }

    /// Leaves all messages to the other process but the one that is under way. One that cannot be left is tried on here.
    pub(super) fn leave_messages(&self, log: &Log) {
        let (now, mut state) = (Instant::now(), self.state());
        let under_way = state.under_way;
        let name = self.receiver.config.name.as_str();
        for (age, envelope) in state.outbox.take_all_but(under_way, now) {
            if let Err(reason) = self.shared.left.leave(name, age, &envelope) {
                let fields = [("receiver", name.into()), ("reason", (&reason).into())];
                log.error("a notification cannot be left to the new process", &fields);
                state.outbox.restore(envelope, now.checked_sub(age).unwrap_or(now));
            }
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.state().under_way.is_some()
    }

    /// Puts the occurrences that another process does not know behind the messages that wait.
    pub(super) fn tell_rest(&self) {
        let mut state = self.state();
        if let Some(notification) = state.tracker.take_rest() {
            let envelope = self.receiver.envelope(&notification, SystemTime::now());
            state.outbox.push(Arc::new(envelope), Instant::now());
            self.woken.notify_one();
        }
    }

    /// True while a message waits for a receiver that has not failed.
    pub(super) fn has_untried(&self) -> bool {
        let state = self.state();
        !state.is_failing && state.outbox.next().is_some()
    }

    /// The time until something may be due.
    fn rest(&self, now: Instant) -> Duration {
        let tells = self.shared.part() == UpgradePart::Teller;
        let state = self.state();
        let due = state.tracker.next().filter(|_| tells);
        let next = due.into_iter().chain(state.outbox.next()).min();
        next.map_or(LOOK, |next| next.saturating_duration_since(now).min(LOOK))
    }

    fn settle(&self, number: u64, outcome: &TryOutcome, log: &Log) {
        let mut state = self.state();
        state.outbox.settle(number, outcome.delivery, Instant::now());
        state.under_way = None;
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
        drop(state);
        let has_left = self.shared.part() == UpgradePart::Left;
        if has_left && matches!(outcome.delivery, Delivery::Later { .. }) {
            self.leave_messages(log);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DeliveryState> {
        // A panic leaves a state that is whole: the task begins again with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
