//! Keeps one certificate: waits until it is due, orders it, and tries again with growing pauses.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_certs::Certificate;
use offramp_certs::acme::Demanded;
use offramp_certs::acme::on_demand::is_used;
use offramp_certs::acme::schedule::{self, Occasion};
use offramp_process::supervise::{self, Pauses};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio::time::sleep;

use super::advice::Advice;
use super::ask::{Answer, ask};
use super::attempt::{Meanwhile, Outcome, attempt, date};
use super::context::AcmeContext;
use super::pause::{Bars, QuickTries};
use super::{Terms, Want};

/// The longest time without a look at the clock: timers do not notice that it was set or that the machine slept.
const LOOK: Duration = Duration::from_secs(3600);
/// Until another look for a certificate that is gone.
const GONE: Duration = Duration::from_secs(60);

/// A message to a keeper.
#[derive(Debug)]
pub(super) enum Prompt {
    /// The cause of a failure may have been corrected.
    Retry,
    /// An operator wants the certificate renewed now, and waits for the outcome.
    Renew(oneshot::Sender<Outcome>),
}

/// Keeps a certificate until it is aborted.
pub(super) async fn guard(want: Want, context: Arc<AcmeContext>, prompts: Receiver<Prompt>) {
    let names = want.names();
    let prompts = Arc::new(Mutex::new(prompts));
    let begin = || keep(want.clone(), Arc::clone(&context), Arc::clone(&prompts));
    supervise::run(&format!("renewal of {names}"), &context.log, Pauses::of(LOOK), begin).await;
}

async fn keep(want: Want, context: Arc<AcmeContext>, prompts: Arc<Mutex<Receiver<Prompt>>>) {
    let prompts = prompts.lock_owned().await;
    let seen = context.storage.certificate(&want.subject, SystemTime::now()).map(|one| one.not_before);
    let (advice, asked) = Default::default();
    let bars = Bars::with_quick_tries();
    let mut keeper =
        Keeper { want, context, prompts, occasion: Occasion::Prompted, advice, bars, seen, asked };
    loop {
        keeper.step().await;
    }
}

/// A certificate, and what is known of it.
struct Keeper {
    want: Want,
    context: Arc<AcmeContext>,
    prompts: OwnedMutexGuard<Receiver<Prompt>>,
    occasion: Occasion,
    advice: Advice,
    bars: Bars,
    /// The beginning of the certificate that was announced last.
    seen: Option<SystemTime>,
    /// The requesters of a renewal.
    asked: Vec<oneshot::Sender<Outcome>>,
}

impl Keeper {
    async fn step(&mut self) {
        if let Some(wait) = self.context.lead() {
            self.follow_the_leader(wait).await;
            return;
        }
        let now = SystemTime::now();
        let certificate = self.context.storage.certificate(&self.want.subject, now);
        let worth = match (&self.want.on_demand, &certificate) {
            (None, _) => Worth::Renewal,
            (Some(terms), Some(certificate)) => self.worth(terms, certificate, now),
            (Some(_), None) => {
                // An operator has removed it. The next client that asks for the name gets another.
                self.answer(&Err("there is no such certificate any more".into()));
                self.pause(GONE).await;
                return;
            }
        };
        if worth == Worth::Nothing && self.asked.is_empty() {
            return self.give_up();
        }
        if let Some(certificate) = &certificate {
            self.advice.seek(&self.want, certificate, &self.context, now).await;
        }
        let due = match &certificate {
            Some(certificate) if self.asked.is_empty() => {
                let obtained = self.context.storage.obtained(&self.want.subject).unwrap_or(UNIX_EPOCH);
                let floor = schedule::not_sooner(obtained, certificate.not_after, now);
                self.advice.due(certificate, &self.want, &self.context).max(floor)
            }
            _ => now,
        };
        let at = due.max(self.not_before(now));
        let wait = at.duration_since(now).unwrap_or_default();
        self.context.show_plan(&self.want, at);
        if !wait.is_zero() {
            if !self.asked.is_empty() {
                let why =
                    format!("the authorities are not asked again before {}: orders have failed", date(at));
                self.answer(&Err(why));
            }
            let wait = wait.min(self.look(certificate.as_ref())).min(self.advice.wait(now));
            self.pause(wait).await;
            return;
        }
        if self.asked.is_empty()
            && let Some(certificate) = &certificate
            && (worth == Worth::Waiting || self.is_denied().await)
        {
            let left = certificate.not_after.duration_since(now).unwrap_or_default();
            if left.is_zero() {
                return self.give_up();
            }
            self.pause(self.look(Some(certificate)).min(left).max(Duration::from_secs(1))).await;
            return;
        }
        self.renew(certificate.is_some()).await;
    }

    /// The longest time until the next step: for one on demand a share of its life, to know when it was used.
    fn look(&self, certificate: Option<&Certificate>) -> Duration {
        let life = |one: &Certificate| one.not_after.duration_since(one.not_before).unwrap_or_default();
        let share = certificate.filter(|_| self.want.on_demand.is_some()).map(|one| life(one) / 20);
        share.map_or(LOOK, |share| share.clamp(Duration::from_secs(1), LOOK))
    }

    /// Another process orders. What it obtains is announced.
    async fn follow_the_leader(&mut self, wait: Duration) {
        self.answer(&Err("another process has the lock of the state directory, and orders".into()));
        sleep(wait).await;
        let found = self.context.storage.certificate(&self.want.subject, SystemTime::now());
        let found = found.map(|one| one.not_before);
        if found != self.seen {
            self.seen = found;
            self.context.announce();
        }
    }

    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = sleep(wait) => {}
            Some(prompt) = self.prompts.recv() => {
                self.occasion = Occasion::Prompted;
                self.bars.quick = self.bars.quick.map(|_| QuickTries::default());
                if let Prompt::Renew(answer) = prompt {
                    self.asked.push(answer);
                }
            }
        }
    }

    /// Before when no order is begun, because others have failed, or because every authority wants to be left alone.
    fn not_before(&self, now: SystemTime) -> SystemTime {
        let random = self.context.random((&self.want.subject, now));
        let failures = self.context.failures(&self.want.subject);
        let by_name = |authority| self.context.barred(authority, &self.want.subject, now);
        let validated = self.want.authorities.iter().map(by_name).min().unwrap_or(now);
        let paused =
            self.context.pauses(&self.bars).shortest(&self.want.authorities, now).unwrap_or_default();
        let soon = self.bars.quick.and_then(|quick| quick.next());
        // What failed before the network did says nothing of how soon it is back.
        let occasion = if soon.is_some() { Occasion::Prompted } else { self.occasion };
        let soon = soon.unwrap_or(now);
        failures.earliest(now, occasion, random).max(validated).max(now + paused).max(soon)
    }

    async fn renew(&mut self, is_renewal: bool) {
        let context = Arc::clone(&self.context);
        let want = self.want.clone();
        let before = context.storage.obtained(&want.subject);
        let _turn = context.turns.take(&want.subject).await;
        if self.asked.is_empty() && context.storage.obtained(&want.subject) != before {
            // A client has asked for the name, and it was ordered for that.
            let now = SystemTime::now();
            self.seen = context.storage.certificate(&want.subject, now).map(|one| one.not_before);
            return context.announce();
        }
        // The semaphore is never closed.
        let _permit = context.permits.acquire().await;
        self.occasion = Occasion::Due;
        let meanwhile = match (is_renewal, &self.want.on_demand) {
            (true, _) => Meanwhile::Old,
            (false, None) => Meanwhile::LocalCa,
            (false, Some(_)) => Meanwhile::Waits,
        };
        let outcome = attempt(&self.want, &context, meanwhile, &mut self.bars).await;
        if outcome.is_ok() {
            self.advice = Advice::default();
            context.announce();
        }
        while let Ok(prompt) = self.prompts.try_recv() {
            match prompt {
                // Perhaps what was wrong with this order.
                Prompt::Retry => self.occasion = Occasion::Prompted,
                // It came while the order was under way, and another one would only count at the authority.
                Prompt::Renew(answer) => self.asked.push(answer),
            }
        }
        self.answer(&outcome);
        let now = SystemTime::now();
        self.seen = context.storage.certificate(&self.want.subject, now).map(|one| one.not_before);
    }

    fn answer(&mut self, outcome: &Outcome) {
        for answer in self.asked.drain(..) {
            // The requester may be gone.
            let _ = answer.send(outcome.clone());
        }
    }
}

/// The worth of a certificate on demand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// It is renewed when it is due: clients use it.
    Renewal,
    /// It may be used again.
    Waiting,
    /// The certificate has expired.
    Nothing,
}

impl Keeper {
    /// Notes whether clients use a certificate on demand, and says what it is worth.
    fn worth(&self, terms: &Terms, certificate: &Certificate, now: SystemTime) -> Worth {
        let storage = &self.context.storage;
        let subject = &self.want.subject;
        let noted = storage.demanded(subject);
        let last = noted.as_ref().map_or(UNIX_EPOCH, Demanded::used_at);
        let last = if terms.mark.take() {
            let name = noted.map_or_else(|| self.want.names(), |noted| noted.name);
            let used = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            if let Err(error) = storage.keep_demanded(subject, &Demanded { name, used }) {
                self.context
                    .log
                    .warn("cannot note that a certificate is used", &[("reason", (&error).into())]);
                // It is looked at again.
                terms.mark.set();
            }
            now
        } else {
            last
        };
        match is_used(last, certificate.not_before, certificate.not_after, now) {
            true => Worth::Renewal,
            false if now < certificate.not_after => Worth::Waiting,
            false => Worth::Nothing,
        }
    }

    /// True if the service that decides about the name refuses it a certificate. Without an answer the one
    /// before holds.
    async fn is_denied(&self) -> bool {
        let Some(url) = self.want.on_demand.as_ref().and_then(|terms| terms.ask.as_ref()) else {
            return false;
        };
        let names = self.want.names();
        match ask(url, &names).await {
            Ok(Answer::Denied) => {
                self.context
                    .log
                    .info("a certificate is not renewed: the name is denied", &[("names", (&names).into())]);
                true
            }
            Ok(Answer::Allowed) => false,
            Err(reason) => {
                let fields = [("names", (&names).into()), ("reason", (&reason).into())];
                self.context.log.warn("nobody says whether a name may still have a certificate", &fields);
                false
            }
        }
    }

    /// Gives up a certificate on demand that is not used any more.
    fn give_up(&self) {
        let names = self.want.names();
        self.context.storage.remove(&self.want.subject);
        self.context.announce();
        // Logged last: readers of the line find the files gone.
        self.context.log.info("a certificate on demand has ended unused", &[("names", (&names).into())]);
    }
}

#[cfg(test)]
mod tests {
    use offramp_certs::acme::{KeyType, Subject};
    use offramp_config::model::AcmeAuthority;
    use offramp_observe::Log;

    use super::*;

    /// A keeper of a certificate that is never issued: nothing listens where its authority should be.
    async fn keeper(state: &std::path::Path) -> (Keeper, tokio::sync::mpsc::Sender<Prompt>) {
        let (announce, _) = tokio::sync::mpsc::unbounded_channel();
        let orders = Arc::default();
        let context =
            AcmeContext::new(state, offramp_proxy::Challenges::none(), orders, Log::silent(), announce);
        let free = offramp_testkit::process::free_address();
        let directory = format!("https://{free}/dir").parse().unwrap();
        let authority = AcmeAuthority::new("own".parse().unwrap(), directory);
        let subject = Subject::new(&["a.test"], KeyType::P256).unwrap();
        let want = Want { subject, reuse_key: false, authorities: vec![authority], on_demand: None };
        let (sender, prompts) = tokio::sync::mpsc::channel(4);
        let prompts = Arc::new(Mutex::new(prompts)).lock_owned().await;
        let (advice, bars, asked) = Default::default();
        let (context, occasion) = (Arc::new(context), Occasion::Due);
        (Keeper { want, context, prompts, occasion, advice, bars, seen: None, asked }, sender)
    }

    #[tokio::test]
    async fn those_who_ask_while_an_order_is_under_way_get_its_outcome_and_no_order_of_their_own() {
        let state = tempfile::tempdir().unwrap();
        let (mut keeper, prompts) = keeper(state.path()).await;
        let (first, outcome) = oneshot::channel();
        keeper.asked.push(first);
        let (second, other) = oneshot::channel();
        prompts.try_send(Prompt::Renew(second)).unwrap();
        keeper.step().await;
        assert_eq!(outcome.await.unwrap().unwrap_err(), other.await.unwrap().unwrap_err());
        assert_eq!(keeper.context.failures(&keeper.want.subject).count, 1);
        // A reload in between is another matter.
        assert_eq!(keeper.occasion, Occasion::Due);
        prompts.try_send(Prompt::Retry).unwrap();
        keeper.renew(false).await;
        assert_eq!(keeper.occasion, Occasion::Prompted);
    }
}
