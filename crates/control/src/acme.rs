//! Certificates from authorities that speak ACME (RFC 8555), obtained and renewed while the proxy runs.
//!
//! For each certificate that the configuration wants there is a [`keeper`]: it waits until the certificate is due,
//! orders it, and says so, upon which the running snapshot gets it by the same way as any other change. Authorities look
//! whether the names lead here; workers answer them by [`offramp_proxy::Challenges`]. What is known of when and where is
//! in `offramp_certs::acme`.

mod claims;
mod dns;
mod http;
mod keeper;
mod name_server;
mod order;
mod prove;
mod shop;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use offramp_certs::acme::{KeyType, Subject};
use offramp_config::Config;
use offramp_config::model::{self, Authority};
use offramp_observe::Log;
use offramp_proxy::Challenges;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use shop::Shop;

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// What for, with which kind of key.
    pub(crate) subject: Subject,
    /// Whether renewals keep the key.
    pub(crate) reuse_key: bool,
    /// Whom to ask, in this order; at least one.
    pub(crate) authorities: Vec<Authority>,
}

impl Want {
    /// What `certificate` wants.
    pub(crate) fn of(
        certificate: &model::AcmeCertificate,
        config: &Config,
    ) -> Result<Self, offramp_certs::Error> {
        let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
        let key = match certificate.key_type {
            model::KeyType::P256 => KeyType::P256,
            model::KeyType::P384 => KeyType::P384,
            model::KeyType::Rsa2048 => KeyType::Rsa2048,
            model::KeyType::Rsa4096 => KeyType::Rsa4096,
        };
        let authorities = certificate.authorities.iter().filter_map(|name| config.authority(name));
        Ok(Self {
            subject: Subject::new(&names, key)?,
            reuse_key: certificate.reuse_key,
            authorities: authorities.cloned().collect(),
        })
    }

    /// The names, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.subject.names().iter().map(ToString::to_string).collect();
        names.join(" ")
    }
}

/// What became of orders.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    obtained: AtomicU64,
    failed: AtomicU64,
}

impl Orders {
    /// How many by outcome.
    pub(crate) fn totals(&self) -> [(&'static str, u64); 2] {
        [("obtained", self.obtained.load(Ordering::Relaxed)), ("failed", self.failed.load(Ordering::Relaxed))]
    }

    fn note(&self, obtained: bool) {
        let count = if obtained { &self.obtained } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Obtains and renews whatever is wanted.
pub(crate) struct Acme {
    shop: Arc<Shop>,
    keepers: Vec<Keeper>,
    obtained: UnboundedReceiver<()>,
}

/// One certificate and its keeper.
struct Keeper {
    want: Want,
    task: AbortHandle,
    prompt: Arc<Notify>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // An order under way is on disk, and goes on when the certificate is wanted again.
        self.task.abort();
    }
}

impl Acme {
    /// Nothing is wanted yet.
    pub(crate) fn new(config: &Config, challenges: Arc<Challenges>, orders: Arc<Orders>, log: Log) -> Self {
        let (sender, obtained) = unbounded_channel();
        let shop = Shop::new(&config.state_dir, challenges, orders, log, sender);
        Self { shop: Arc::new(shop), keepers: Vec::new(), obtained }
    }

    /// Keeps these certificates from now on, and no others. Must be called within the runtime.
    pub(crate) fn follow(&mut self, wants: &[Want]) {
        self.keepers.retain(|keeper| wants.contains(&keeper.want));
        for want in wants {
            if self.keepers.iter().any(|keeper| keeper.want == *want) {
                continue;
            }
            let prompt = Arc::new(Notify::new());
            let task = tokio::spawn(keeper::guard(want.clone(), Arc::clone(&self.shop), Arc::clone(&prompt)));
            self.keepers.push(Keeper { want: want.clone(), task: task.abort_handle(), prompt });
        }
    }

    /// Tries again what failed: somebody may have put right what was wrong.
    pub(crate) fn prompt(&self) {
        self.keepers.iter().for_each(|keeper| keeper.prompt.notify_one());
    }

    /// Waits until certificates were obtained. May be dropped and called again without losing any.
    pub(crate) async fn obtained(&mut self) {
        // The shop has a sender, so that there is always one.
        let _ = self.obtained.recv().await;
        while self.obtained.try_recv().is_ok() {}
    }
}
