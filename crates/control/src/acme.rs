//! Certificates from authorities that speak ACME (RFC 8555), obtained and renewed while the proxy runs.
//!
//! For each certificate that the configuration wants there is a [`keeper`]: it waits until the certificate is due,
mod advice;
mod ask;
mod attempt;
mod claims;
mod demand;
mod dns;
mod http;
mod keeper;
mod name_server;
mod order;
mod pause;
mod prove;
mod repair;
mod requests;
mod shop;
mod standalone;
mod sweep;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use offramp_certs::acme::{KeyType, Subject, UseMark};
use offramp_config::Config;
use offramp_config::model::{self, AskUrl, Authority};
use offramp_observe::Log;
use offramp_proxy::{Challenges, Demand, Shared};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::sleep;

use crate::helper::Helper;
use crate::supervise;
use demand::Desk;
pub(crate) use demand::{Fresh, Rule};
pub(crate) use dns::command as dns_hook;
use keeper::Prompt;
pub use requests::socket as control_socket;
use shop::Shop;
pub use standalone::{Issued, OneOrder, order_once};

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// What for, with which kind of key.
    pub(crate) subject: Subject,
    /// Whether renewals keep the key.
    pub(crate) reuse_key: bool,
    /// Whom to ask, in this order; at least one.
    pub(crate) authorities: Vec<Authority>,
    /// How it is kept if it was ordered because a client asked for its name.
    pub(crate) on_demand: Option<Terms>,
}

/// How a certificate on demand is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Where it is noted that clients get it.
    pub(crate) mark: UseMark,
    /// Who is asked before a renewal whether the name may still have it, if anybody.
    pub(crate) ask: Option<AskUrl>,
}

impl Want {
    /// What `certificate` wants.
    pub(crate) fn of(
        certificate: &model::AcmeCertificate,
        config: &Config,
    ) -> Result<Self, offramp_certs::Error> {
        let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
        let authorities = certificate.authorities.iter().filter_map(|name| config.authority(name));
        Ok(Self {
            subject: Subject::new(&names, key_type(certificate.key_type))?,
            reuse_key: certificate.reuse_key,
            authorities: authorities.cloned().collect(),
            on_demand: None,
        })
    }

    /// The names, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.subject.names().iter().map(ToString::to_string).collect();
        names.join(" ")
    }
}

fn key_type(kind: model::KeyType) -> KeyType {
    match kind {
        model::KeyType::P256 => KeyType::P256,
        model::KeyType::P384 => KeyType::P384,
        model::KeyType::Rsa2048 => KeyType::Rsa2048,
        model::KeyType::Rsa4096 => KeyType::Rsa4096,
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

/// What ACME shares with workers.
pub(crate) struct Seams {
    /// The responses to authorities.
    pub(crate) challenges: Arc<Challenges>,
    /// The names that clients ask for.
    pub(crate) demand: Arc<Demand>,
    /// Each of them, once.
    pub(crate) demanded: Receiver<Box<str>>,
    /// Who starts DNS hooks; without, this process does.
    pub(crate) helper: Option<Arc<Helper>>,
}

impl Seams {
    /// With what workers share; `demanded` are the names that their clients ask for.
    pub(crate) fn of(shared: &Shared, demanded: Receiver<Box<str>>, helper: Option<Arc<Helper>>) -> Self {
        let (challenges, demand) = (Arc::clone(&shared.challenges), Arc::clone(&shared.demand));
        Self { challenges, demand, demanded, helper }
    }
}

/// Obtains and renews whatever is wanted.
pub(crate) struct Acme {
    shop: Arc<Shop>,
    desk: Arc<Desk>,
    keepers: HashMap<Subject, Keeper>,
    obtained: UnboundedReceiver<()>,
    /// Whether requests are served: from the first certificate on that is wanted.
    serves: bool,
    /// Those of the configuration.
    authorities: Vec<Authority>,
    /// Removes what certificates have left that are not wanted any more.
    sweeper: Option<AbortHandle>,
    /// What else runs.
    tasks: Vec<AbortHandle>,
}

/// One certificate and its keeper.
struct Keeper {
    want: Want,
    task: AbortHandle,
    prompts: Sender<Prompt>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // An order under way is on disk, and goes on when the certificate is wanted again.
        self.task.abort();
    }
}

impl Acme {
    /// Nothing is wanted yet. Must be called within the runtime.
    pub(crate) fn new(config: &Config, seams: Seams, orders: Arc<Orders>, log: Log) -> Self {
        let (sender, obtained) = unbounded_channel();
        let shop = Shop::new(&config.state_dir, seams.challenges, orders, log, sender);
        let shop = Arc::new(shop.helped_by(seams.helper));
        let desk = Desk::new(Arc::clone(&shop), seams.demand);
        let (serving, demanded) = (Arc::clone(&desk), Arc::new(Mutex::new(seams.demanded)));
        let tasks = vec![supervise::spawn("names on demand", &shop.log, move || {
            let (desk, demanded) = (Arc::clone(&serving), Arc::clone(&demanded));
            async move { desk.serve(&mut *demanded.lock().await).await }
        })];
        let keepers = HashMap::new();
        Self { shop, desk, keepers, obtained, serves: false, authorities: Vec::new(), sweeper: None, tasks }
    }

    /// Another process still has the right to order, and gives it up soon: nobody asks for it before
    /// [`Self::begin`].
    pub(crate) fn hold(&self) {
        self.shop.hold(true);
    }

    /// That process has given it up.
    pub(crate) fn begin(&self) {
        self.shop.hold(false);
    }

    /// Ends all work and gives up the right to order, for another process that takes the place of this one. Orders
    /// under way are on disk and go on there.
    pub(crate) async fn give_way(&mut self) {
        self.shop.hold(true);
        self.keepers.clear();
        self.sweeper.take().into_iter().chain(self.tasks.drain(..)).for_each(|task| task.abort());
        // Tasks that were ended are dropped when the loop goes round.
        yield_now().await;
        self.shop.release();
    }

    /// Serves names on demand as `config` says from now on.
    pub(crate) fn configure(&mut self, config: &Config) {
        self.desk.follow(config);
        self.authorities.clone_from(&config.authorities);
        if !Rule::all(config).is_empty() {
            self.serve();
        }
    }

    /// Begins with what only the process does that orders.
    fn serve(&mut self) {
        if !std::mem::replace(&mut self.serves, true) {
            let (shop, desk) = (Arc::clone(&self.shop), Arc::clone(&self.desk));
            let leading = supervise::spawn("requests for renewals", &self.shop.log, move || {
                lead(Arc::clone(&shop), Arc::clone(&desk))
            });
            self.tasks.push(leading);
        }
    }

    /// Keeps these certificates from now on, and no others. Must be called within the runtime.
    pub(crate) fn follow(&mut self, wants: &[Want]) {
        let mut before = std::mem::take(&mut self.keepers);
        for want in wants {
            let same =
                before.remove(&want.subject).filter(|one| one.want == *want && !one.task.is_finished());
            let keeper = same.unwrap_or_else(|| self.keep(want));
            // Of two that want the same the first is kept.
            self.keepers.entry(want.subject.clone()).or_insert(keeper);
        }
        let keepers = self.keepers.values();
        let named = keepers.map(|one| (one.want.subject.names().to_vec(), one.prompts.clone()));
        self.shop.set_keepers(named.collect());
        self.sweep(wants);
        if !wants.is_empty() {
            self.serve();
        }
    }

    /// Removes the DNS records of certificates that are not wanted.
    fn sweep(&mut self, wants: &[Want]) {
        if let Some(before) = self.sweeper.take() {
            before.abort();
        }
        let wanted: Vec<_> = wants.iter().map(|want| want.subject.clone()).collect();
        let (shop, authorities) = (Arc::clone(&self.shop), self.authorities.clone());
        self.sweeper = Some(supervise::spawn("abandoned DNS records", &self.shop.log, move || {
            sweep::sweep_abandoned(Arc::clone(&shop), authorities.clone(), wanted.clone())
        }));
    }

    fn keep(&self, want: &Want) -> Keeper {
        let (prompts, receiver) = channel(PROMPTS);
        let task = tokio::spawn(keeper::guard(want.clone(), Arc::clone(&self.shop), receiver));
        Keeper { want: want.clone(), task: task.abort_handle(), prompts }
    }

    /// Tries again what failed: somebody may have put right what was wrong.
    pub(crate) fn prompt(&self) {
        // One that is busy will look once more in any case.
        self.keepers.values().for_each(|keeper| drop(keeper.prompts.try_send(Prompt::Retry)));
    }

    /// Waits until certificates were obtained. May be dropped and called again without losing any.
    pub(crate) async fn obtained(&mut self) {
        // The shop has a sender, so that there is always one.
        let _ = self.obtained.recv().await;
        while self.obtained.try_recv().is_ok() {}
    }

    /// What clients wait for and is on disk by now, to be dropped when it is in use.
    pub(crate) fn fresh(&self) -> Fresh {
        self.desk.fresh()
    }
}

/// Waits for the right to order, and does what comes with it.
async fn lead(shop: Arc<Shop>, desk: Arc<Desk>) {
    while let Some(wait) = shop.lead() {
        sleep(wait).await;
    }
    let tidy = async {
        loop {
            desk.tidy();
            sleep(demand::TIDIED).await;
        }
    };
    tokio::join!(requests::serve(shop), tidy);
}

/// Prompts that a keeper has not heard yet.
const PROMPTS: usize = 4;
