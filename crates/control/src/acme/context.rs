//! What all orders share.

mod kept;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::path::Path;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use offramp_certs::acme::schedule::Failures;
use offramp_certs::acme::{Lock, Storage, Subject, Validations};
use offramp_certs::{DnsPattern, read_secret};
use offramp_config::model::AcmeAuthority;
use offramp_observe::Log;
use offramp_process::Helper;
use offramp_proxy::Challenges;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Semaphore};

use super::Want;
use super::claims::Claims;
use super::http::{Client, is_of_type};
use super::outlook::{FailedOrder, Orders};
use super::pause::{Bars, Pauses};
use super::turns::Turns;
pub(super) use kept::KeptCertificate;

/// Orders under way at a time: a start with hundreds of names is to burden neither this machine nor the authority.
const AT_ONCE: usize = 4;
/// The most requests in a row that an authority answers by asking for a fresh nonce.
pub(super) const NONCES: u32 = 8;
/// Between two looks whether another process still has the lock.
const LOCKED: Duration = Duration::from_secs(10);
/// The same while a process that is about to give it up has it.
const HELD: Duration = Duration::from_millis(100);

/// Does `$operation`, an expression that awaits, again while the authority wants a fresh nonce.
macro_rules! insist {
    ($operation:expr) => {{
        let mut left = $crate::acme::context::NONCES;
        loop {
            match $operation {
                Err(error) if left > 0 && $crate::acme::http::is_bad_nonce(&error) => left -= 1,
                outcome => break outcome,
            }
        }
    }};
}
pub(super) use insist;

/// The state that all orders share.
pub(super) struct AcmeContext {
    pub(super) storage: Storage,
    pub(super) challenges: Arc<Challenges>,
    pub(super) log: Log,
    pub(super) permits: Semaphore,
    pub(super) claims: Claims,
    pub(super) turns: Turns,
    orders: Arc<Orders>,
    obtained: UnboundedSender<()>,
    /// Held while an account is made, so that each is made once.
    accounts: Mutex<()>,
    lock: StdMutex<Locking>,
    kept: StdMutex<Vec<KeptCertificate>>,
    /// Failures that could not be noted on disk.
    unkept: StdMutex<Unkept>,
    /// The pauses that authorities asked for, whatever is ordered.
    bars: StdMutex<Bars>,
    random: RandomState,
    /// Starts DNS hooks; without it, this process does.
    helper: OnceLock<Arc<Helper>>,
}

/// Failures that are known although the disk is full.
#[derive(Default)]
struct Unkept {
    failures: HashMap<Subject, Failures>,
    validations: Option<Validations>,
}

/// The right of this process to order.
#[derive(Default)]
struct Locking {
    lock: Option<Lock>,
    reported: bool,
    /// Set while it is left to another process.
    held: bool,
}

impl AcmeContext {
    pub(super) fn new(
        state_dir: &Path,
        challenges: Arc<Challenges>,
        orders: Arc<Orders>,
        log: Log,
        obtained: UnboundedSender<()>,
    ) -> Self {
        Self {
            storage: Storage::new(state_dir),
            challenges,
            log,
            permits: Semaphore::new(AT_ONCE),
            claims: Claims::default(),
            turns: Turns::default(),
            orders,
            obtained,
            accounts: Mutex::new(()),
            lock: StdMutex::default(),
            kept: StdMutex::default(),
            unkept: StdMutex::default(),
            bars: StdMutex::default(),
            random: RandomState::new(),
            helper: OnceLock::new(),
        }
    }

    /// Has the helper start DNS hooks in the place of this process, from the start on.
    pub(super) fn helped_by(&self, helper: Option<Arc<Helper>>) {
        if let Some(helper) = helper {
            // It is set once.
            let _ = self.helper.set(helper);
        }
    }

    pub(super) fn helper(&self) -> Option<&Helper> {
        self.helper.get().map(|helper| &**helper)
    }

    /// A number that stays the same for the same thing as long as the process lives.
    pub(super) fn random(&self, of: impl Hash) -> u64 {
        self.random.hash_one(of)
    }

    /// True if this process has the right to order.
    pub(super) fn leads(&self) -> bool {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).lock.is_some()
    }

    /// The orders for this set that failed since its last certificate.
    pub(super) fn failures(&self, subject: &Subject) -> Failures {
        let noted = self.storage.failures(subject);
        match self.unkept().failures.get(subject) {
            Some(known) => worse(noted, known),
            None => noted,
        }
    }

    /// Keeps them: on disk, or else in memory, so that a full disk causes no attempts without a pause.
    pub(super) fn keep_failures(&self, subject: &Subject, failures: &Failures) {
        match self.storage.keep_failures(subject, failures) {
            Ok(()) => drop(self.unkept().failures.remove(subject)),
            Err(error) => {
                self.unkept().failures.insert(subject.clone(), failures.clone());
                self.log.error("the failure cannot be noted on disk", &[("reason", (&error).into())]);
            }
        }
    }

    /// Forgets them: there is a certificate.
    pub(super) fn forget_failures(&self, subject: &Subject) {
        self.unkept().failures.remove(subject);
        self.storage.forget_failures(subject);
    }

    /// The pauses that hold for a certificate that has these of its own.
    pub(super) fn pauses<'a>(&self, own: &'a Bars) -> Pauses<'a> {
        Pauses { own, shared: self.bars.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }

    /// Leaves an authority alone for so long, whatever is to be ordered.
    pub(super) fn bar(&self, authority: &AcmeAuthority, now: SystemTime, wait: Duration) {
        self.bars.lock().unwrap_or_else(PoisonError::into_inner).extend(authority, now, wait);
    }

    /// Before when the authority is not asked for these names, because it has looked for one in vain too often.
    pub(super) fn barred(&self, authority: &AcmeAuthority, subject: &Subject, now: SystemTime) -> SystemTime {
        let names = subject.names().iter().map(DnsPattern::host);
        self.validations().earliest(authority.directory.as_str(), names, now)
    }

    /// Notes that the authority has looked for these names in vain.
    pub(super) fn note_invalid(&self, authority: &AcmeAuthority, names: &[String]) {
        if names.is_empty() {
            return;
        }
        let now = SystemTime::now();
        let mut validations = self.validations();
        names.iter().for_each(|name| validations.note(authority.directory.as_str(), name, now));
        let outcome = self.storage.keep_validations(&validations);
        // In memory where the disk is full, as failures are.
        self.unkept().validations = outcome.is_err().then_some(validations);
        if let Err(error) = outcome {
            self.log.error("the failure cannot be noted on disk", &[("reason", (&error).into())]);
        }
    }

    fn validations(&self) -> Validations {
        let known = self.unkept().validations.clone();
        known.unwrap_or_else(|| self.storage.validations())
    }

    fn unkept(&self) -> MutexGuard<'_, Unkept> {
        self.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is a new certificate on disk.
    pub(super) fn announce(&self) {
        // The receiver lives as long as the server.
        let _ = self.obtained.send(());
    }

    /// The outcomes of orders.
    pub(super) fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// Shows the time of the next order, and why the latest has failed.
    pub(super) fn show_plan(&self, want: &Want, next: SystemTime) {
        let (at, reason) = self.failures(&want.subject).latest().unzip();
        let noted = at.zip(reason.flatten()).map(|(at, reason)| FailedOrder { at, reason });
        self.orders.plan(&want.names(), next, noted);
    }

    /// Leaves the right to order to another process for now, without a word in the log, or takes it back.
    pub(super) fn hold(&self, held: bool) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).held = held;
    }

    /// Gives up the right to order.
    pub(super) fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).lock = None;
    }

    /// Waits for the right to order, which one process at a time has; gives how long until it is worth another try, or
    /// nothing where this is the one.
    pub(super) fn lead(&self) -> Option<Duration> {
        let mut locking = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if locking.held {
            return Some(HELD);
        }
        if locking.lock.is_some() {
            return None;
        }
        let path = self.storage.path().display().to_string();
        let reason = match self.take_lock() {
            Ok(lock) => {
                if locking.reported {
                    self.log.info("this process orders certificates now", &[("directory", (&path).into())]);
                }
                *locking = Locking { lock: Some(lock), ..Locking::default() };
                return None;
            }
            Err(None) => {
                "another process has the lock; it orders, and this one uses what it obtains. If it is to have \
                 certificates of its own, give it a `state_dir` of its own"
                    .to_owned()
            }
            Err(Some(error)) => error,
        };
        if !std::mem::replace(&mut locking.reported, true) {
            let fields = [("directory", (&path).into()), ("reason", (&reason).into())];
            self.log.warn("this process orders no certificates", &fields);
        }
        Some(LOCKED)
    }

    /// Takes the right to order for one order; why not, where that is impossible.
    pub(super) fn lead_once(&self) -> Result<(), String> {
        let mut locking = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.take_lock().map_err(|error| {
            let path = self.storage.path().display();
            error.unwrap_or_else(|| {
                format!(
                    "a running Offramp orders for {path}: use `offramp cert renew`, add the names to its \
                     configuration, or order into another --state-dir"
                )
            })
        });
        locking.lock = Some(taken?);
        Ok(())
    }

    /// The lock; without an error another process has it.
    fn take_lock(&self) -> Result<Lock, Option<String>> {
        match self.storage.prepare().and_then(|()| self.storage.try_lock()) {
            Ok(lock) => lock.ok_or(None),
            Err(error) => Err(Some(error.to_string())),
        }
    }

    /// The account with an authority; a new one where there is none yet.
    pub(super) async fn account(
        &self,
        authority: &AcmeAuthority,
        client: &Client,
    ) -> Result<Account, String> {
        // Without the lock: an authority that does not answer does not block the others.
        if let Some(account) = self.kept_account(authority, client).await? {
            return Ok(account);
        }
        self.another_account(authority, client, "").await
    }

    /// Makes an account, in the place of `stale` if the authority no longer knows that one.
    pub(super) async fn another_account(
        &self,
        authority: &AcmeAuthority,
        client: &Client,
        stale: &str,
    ) -> Result<Account, String> {
        let _one_at_a_time = self.accounts.lock().await;
        // Another order may have made one meanwhile.
        match self.kept_account(authority, client).await? {
            Some(account) if account.id() != stale => Ok(account),
            _ => self.register(authority, client).await,
        }
    }

    async fn kept_account(
        &self,
        authority: &AcmeAuthority,
        client: &Client,
    ) -> Result<Option<Account>, String> {
        let text = self.storage.account(&parts(authority)).map_err(|error| error.to_string())?;
        let Some(text) = text else { return Ok(None) };
        let read = || serde_json::from_str::<AccountCredentials>(&text);
        // An unreadable account is of no use: another takes its place.
        if read().is_err() {
            return Ok(None);
        }
        let opened = insist!(match read() {
            Ok(credentials) => builder(client).from_credentials(credentials).await,
            Err(error) => Err(Error::Json(error)),
        });
        opened.map(Some).map_err(|error| error.to_string())
    }

    async fn register(&self, authority: &AcmeAuthority, client: &Client) -> Result<Account, String> {
        // Found out before the authority has made an account that could not be kept.
        self.storage.prepare().map_err(|error| error.to_string())?;
        let contact: Vec<String> = authority.email.iter().map(|email| format!("mailto:{email}")).collect();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let account =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let binding = binding(authority)?;
        let made = insist!({
            let directory = authority.directory.as_str().to_owned();
            builder(client).create(&account, directory, binding.as_ref()).await
        });
        let (account, credentials) = made.map_err(|error| format!("no account: {error}"))?;
        let text = serde_json::to_string(&credentials).map_err(|error| error.to_string())?;
        self.storage.keep_account(&parts(authority), &text).map_err(|error| error.to_string())?;
        let fields = [("authority", authority.name.as_str().into()), ("account", account.id().into())];
        self.log.info("an account was made with a certificate authority", &fields);
        Ok(account)
    }
}

/// The failures that were noted on disk, or those of this process where they are more.
fn worse(noted: Failures, known: &Failures) -> Failures {
    if noted.count >= known.count { noted } else { known.clone() }
}

fn builder(client: &Client) -> instant_acme::AccountBuilder {
    Account::builder_with_http(Box::new(client.clone()))
}

/// The parts that make an account another one.
fn parts(authority: &AcmeAuthority) -> Vec<&str> {
    let mut parts = vec![authority.name.as_str(), authority.directory.as_str()];
    parts.push(authority.email.as_deref().unwrap_or_default());
    parts.push(authority.eab.as_ref().map_or("", |eab| eab.key_id.as_str()));
    parts
}

/// The binding to an account elsewhere.
fn binding(authority: &AcmeAuthority) -> Result<Option<ExternalAccountKey>, String> {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    let Some(eab) = &authority.eab else { return Ok(None) };
    let path = eab.key_file.path.display();
    let text = read_secret(&eab.key_file.path).map_err(|error| error.to_string())?;
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
    let bytes =
        bytes.map_err(|_| format!("{path}: the key of an external account is written in base64url"))?;
    Ok(Some(ExternalAccountKey::new(eab.key_id.clone(), &bytes)))
}

/// True if the authority does not know the account, as after the reset of a test authority.
pub(super) fn is_unknown_account(error: &Error) -> bool {
    is_of_type(error, "accountDoesNotExist")
}

#[cfg(test)]
mod tests {
    use offramp_certs::acme::schedule::Occasion;

    use super::*;

    #[test]
    fn failures_count_where_they_cannot_be_noted() {
        let now = SystemTime::now();
        let mut before = Failures::default();
        before.note(now, None);
        // Nothing is on a disk that is full.
        let failures = worse(Failures::default(), &before);
        assert!(failures.earliest(now, Occasion::Due, 0) > now);
        let mut noted = before.clone();
        noted.note(now, None);
        assert_eq!(worse(noted.clone(), &before), noted);
    }
}
