//! All receivers, as the service, the metrics and the admin interface share them.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use offramp_config::model::NotifyKind;
use offramp_observe::{Log, Sampled, names};
use offramp_process::Helper;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::delivering::{Delivering, DeliveryResources, DeliveryState, UpgradePart};
use super::outbox::DeliveryTally;
use super::receiver::{MAIL_LIMIT, Receiver, TrialOutcome};
use super::tracker::{AlertKey, CarriedAlert};

/// Between two looks for untried messages at the end.
const REST: Duration = Duration::from_millis(10);

/// The receivers that are reported.
#[derive(Default)]
pub(crate) struct NotifyRegistry {
    following: Mutex<Vec<Arc<Delivering>>>,
    /// The receivers of the process before.
    known: Mutex<Vec<KnownReceiver>>,
    shared: DeliveryResources,
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
        self.shared.programs.helped_by(helper);
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
        Delivering::new(receiver, state, self.shared.clone())
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
        self.shared.set_part(UpgradePart::Giver);
        let now = Instant::now();
        self.all().iter().map(|one| KnownReceiver::of(one, now)).collect()
    }

    /// Has messages that are left to another process kept below this state directory.
    pub(crate) fn keep_in(&self, state_dir: &Path) {
        self.shared.left.keep_in(state_dir);
    }

    /// Expects messages that the process before leaves.
    pub(crate) fn inherit(&self) {
        self.shared.left.expect(Instant::now());
    }

    /// Takes over what the receivers know from the process before.
    pub(crate) fn recall(&self, known: &[KnownReceiver]) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known.to_vec();
    }

    /// Goes on after an upgrade that failed.
    pub(crate) fn go_on(&self) {
        self.shared.set_part(UpgradePart::Teller);
    }

    /// Has nothing more reported but what waits already, and what the other process was not given: it looks from now on. What a
    /// receiver has not taken is left to it.
    pub(crate) fn leave(&self, log: &Log) {
        self.shared.set_part(UpgradePart::Left);
        for one in self.all().iter() {
            one.tell_rest();
            if one.state().is_failing {
                one.leave_messages(log);
            }
        }
    }

    /// Waits for messages that wait for their first try, for so long at most. After an upgrade it waits for each try that is
    /// under way, and the rest is left to the other process.
    pub(crate) async fn deliver_rest(&self, limit: Duration, log: &Log) {
        let has_left = self.shared.part() == UpgradePart::Left;
        let is_waited_for = |one: &Delivering| one.has_untried() || (has_left && one.is_under_way());
        let wait = async {
            while self.all().iter().any(|one| is_waited_for(one)) {
                sleep(REST).await;
            }
        };
        // A try has a limit of its own.
        let limit = if has_left { MAIL_LIMIT } else { limit };
        let _ = timeout(limit, wait).await;
        if has_left {
            self.all().iter().for_each(|one| one.leave_messages(log));
        }
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
        Some(receiver.try_out(&self.shared.programs).await)
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
