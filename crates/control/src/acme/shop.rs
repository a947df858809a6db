//! What all orders share.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::path::Path;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use offramp_certs::acme::{Lock, Storage};
use offramp_certs::read_secret;
use offramp_config::model::Authority;
use offramp_observe::Log;
use offramp_proxy::Challenges;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Semaphore};

use super::Orders;
use super::claims::Claims;
use super::http::{Client, is_of_type};

/// Orders under way at a time: a start with hundreds of names is to burden neither this machine nor the authority.
const AT_ONCE: usize = 4;
/// How often an authority may ask for a fresh nonce in a row.
pub(super) const NONCES: u32 = 8;
/// Between two looks whether another process still has the lock.
const LOCKED: Duration = Duration::from_secs(10);

/// Does `$operation`, an expression that awaits, again while the authority wants a fresh nonce.
macro_rules! insist {
    ($operation:expr) => {{
        let mut left = $crate::acme::shop::NONCES;
        loop {
            match $operation {
                Err(error) if left > 0 && $crate::acme::http::is_bad_nonce(&error) => left -= 1,
                outcome => break outcome,
            }
        }
    }};
}
pub(super) use insist;

/// What all orders share.
pub(super) struct Shop {
    pub(super) storage: Storage,
    pub(super) challenges: Arc<Challenges>,
    pub(super) log: Log,
    pub(super) permits: Semaphore,
    pub(super) claims: Claims,
    orders: Arc<Orders>,
    obtained: UnboundedSender<()>,
    /// Held while an account is made, so that each is made once.
    accounts: Mutex<()>,
    lock: StdMutex<Locking>,
    random: RandomState,
}

/// Whether this process may order.
#[derive(Default)]
struct Locking {
    lock: Option<Lock>,
    told: bool,
}

impl Shop {
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
            orders,
            obtained,
            accounts: Mutex::new(()),
            lock: StdMutex::default(),
            random: RandomState::new(),
        }
    }

    /// A number that stays the same for the same thing as long as the process lives.
    pub(super) fn random(&self, of: impl Hash) -> u64 {
        self.random.hash_one(of)
    }

    /// There is a new certificate on disk.
    pub(super) fn announce(&self) {
        // The receiver lives as long as the server.
        let _ = self.obtained.send(());
    }

    /// Counts an order.
    pub(super) fn note(&self, obtained: bool) {
        self.orders.note(obtained);
    }

    /// Waits for the right to order, which one process at a time has; gives how long until it is worth another try, or
    /// nothing where this is the one.
    pub(super) fn lead(&self) -> Option<Duration> {
        let mut locking = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if locking.lock.is_some() {
            return None;
        }
        let path = self.storage.path().display().to_string();
        let reason = match self.storage.prepare().and_then(|()| self.storage.try_lock()) {
            Ok(Some(lock)) => {
                if locking.told {
                    self.log.info("this process orders certificates now", &[("directory", (&path).into())]);
                }
                *locking = Locking { lock: Some(lock), told: false };
                return None;
            }
            Ok(None) => {
                "another process has the lock; it orders, and this one uses what it obtains. If it is to have \
                 certificates of its own, give it a `state_dir` of its own"
                    .to_owned()
            }
            Err(error) => error.to_string(),
        };
        if !std::mem::replace(&mut locking.told, true) {
            let fields = [("directory", (&path).into()), ("reason", (&reason).into())];
            self.log.warn("this process orders no certificates", &fields);
        }
        Some(LOCKED)
    }

    /// The account with an authority; a new one where there is none yet.
    pub(super) async fn account(&self, authority: &Authority, client: &Client) -> Result<Account, String> {
        // Without the lock: an authority that does not answer keeps nobody from another.
        if let Some(account) = self.kept_account(authority, client).await? {
            return Ok(account);
        }
        self.another_account(authority, client, "").await
    }

    /// Makes an account, in the place of `stale` if the authority no longer knows that one.
    pub(super) async fn another_account(
        &self,
        authority: &Authority,
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

    async fn kept_account(&self, authority: &Authority, client: &Client) -> Result<Option<Account>, String> {
        let text = self.storage.account(&parts(authority)).map_err(|error| error.to_string())?;
        let Some(text) = text else { return Ok(None) };
        let read = || serde_json::from_str::<AccountCredentials>(&text);
        // What cannot be read is of no use to anybody: another account takes its place.
        if read().is_err() {
            return Ok(None);
        }
        let opened = insist!(match read() {
            Ok(credentials) => builder(client).from_credentials(credentials).await,
            Err(error) => Err(Error::Json(error)),
        });
        opened.map(Some).map_err(|error| error.to_string())
    }

    async fn register(&self, authority: &Authority, client: &Client) -> Result<Account, String> {
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

fn builder(client: &Client) -> instant_acme::AccountBuilder {
    Account::builder_with_http(Box::new(client.clone()))
}

/// What makes an account another one.
fn parts(authority: &Authority) -> Vec<&str> {
    let mut parts = vec![authority.name.as_str(), authority.directory.as_str()];
    parts.push(authority.email.as_deref().unwrap_or_default());
    parts.push(authority.eab.as_ref().map_or("", |eab| eab.key_id.as_str()));
    parts
}

/// The binding to an account elsewhere.
fn binding(authority: &Authority) -> Result<Option<ExternalAccountKey>, String> {
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

/// Whether the authority does not know the account, as after the reset of a test authority.
pub(super) fn is_unknown_account(error: &Error) -> bool {
    is_of_type(error, "accountDoesNotExist")
}
