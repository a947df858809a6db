//! Certificates from authorities that speak ACME (RFC 8555), obtained and renewed while the proxy runs.
//!
//! For each certificate that the configuration wants there is a [`keeper`]: it waits until the certificate is due,
mod advice;
mod ask;
mod attempt;
mod caa_lookup;
mod claims;
mod context;
mod demand;
mod desk;
mod dns;
mod http;
mod keeper;
mod name_server;
mod order;
mod outlook;
mod pause;
mod prove;
mod reach;
mod repair;
mod requests;
mod standalone;
mod sweep;
mod turns;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use offramp_certs::acme::{KeyType, Subject, UseMark};
use offramp_config::Config;
use offramp_config::model::{self, AcmeAuthority, AskUrl};
use offramp_observe::Log;
use offramp_process::{Helper, supervise};
use offramp_proxy::{Challenges, Demand, SharedResources};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::sleep;

pub use caa_lookup::CaaFinding;
use context::{AcmeContext, KeptCertificate};
use demand::DemandHandler;
pub(crate) use demand::{Fresh, Rule};
pub(crate) use desk::OrderDesk;
pub use desk::{AuthorityOrder, CertificateOrder, DemandOrder, NameOrders};
use keeper::Prompt;
pub(crate) use outlook::Orders;
pub use outlook::{CertificateOutlook, FailedOrder};
pub use reach::{NameReach, ReachedAddress};
pub use requests::socket as control_socket;
pub use standalone::{Issued, OneOrder, order_once};

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// The names, and the kind of key.
    pub(crate) subject: Subject,
    /// Set if renewals keep the key.
    pub(crate) reuse_key: bool,
    /// The authorities to ask, in this order; at least one.
    pub(crate) authorities: Vec<AcmeAuthority>,
    /// The terms of one that was ordered because a client asked for its name.
    pub(crate) on_demand: Option<Terms>,
}

/// The terms of a certificate on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The mark that clients get it.
    pub(crate) mark: UseMark,
    /// The service that decides before a renewal if the name may still have it.
    pub(crate) ask: Option<AskUrl>,
}

impl Want {
    /// The certificate of the configuration.
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

fn key_type(kind: model::AcmeKeyType) -> KeyType {
    match kind {
        model::AcmeKeyType::P256 => KeyType::P256,
        model::AcmeKeyType::P384 => KeyType::P384,
        model::AcmeKeyType::Rsa2048 => KeyType::Rsa2048,
        model::AcmeKeyType::Rsa4096 => KeyType::Rsa4096,
    }
}

/// The parts that ACME shares with workers.
pub(crate) struct Seams {
    /// The responses to authorities.
    pub(crate) challenges: Arc<Challenges>,
    /// The names that clients ask for.
    pub(crate) demand: Arc<Demand>,
    /// Each of them, once.
    pub(crate) demanded: Receiver<Box<str>>,
}

impl Seams {
    /// With what workers share; `demanded` are the names that their clients ask for.
    pub(crate) fn of(shared: &SharedResources, demanded: Receiver<Box<str>>) -> Self {
        let (challenges, demand) = (Arc::clone(&shared.challenges), Arc::clone(&shared.demand));
        Self { challenges, demand, demanded }
    }
}

/// Obtains and renews whatever is wanted.
pub(crate) struct Acme {
    context: Arc<AcmeContext>,
    handler: Arc<DemandHandler>,
    keepers: HashMap<Subject, Keeper>,
    obtained: UnboundedReceiver<()>,
    /// Set once requests are served: from the first certificate on that is wanted.
    serves: bool,
    /// Those of the configuration.
    authorities: Vec<AcmeAuthority>,
    /// Removes what certificates have left that are not wanted any more.
    sweeper: Option<AbortHandle>,
    /// The tasks beside the keepers.
    tasks: Vec<AbortHandle>,
}

/// One certificate and its keeper.
struct Keeper {
    want: Want,
    task: AbortHandle,
    prompts: Sender<Prompt>,
    context: Arc<AcmeContext>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // An order under way is on disk, and goes on when the certificate is wanted again.
        self.task.abort();
        self.context.orders().forget(&self.want.names());
    }
}

impl Acme {
    /// Nothing is wanted yet. Must be called within the runtime.
    pub(crate) fn new(state_dir: &Path, seams: Seams, orders: Arc<Orders>, log: Log) -> Self {
        let (sender, obtained) = unbounded_channel();
        let context = Arc::new(AcmeContext::new(state_dir, seams.challenges, orders, log, sender));
        let handler = DemandHandler::new(Arc::clone(&context), seams.demand);
        let (serving, demanded) = (Arc::clone(&handler), Arc::new(Mutex::new(seams.demanded)));
        let tasks = vec![supervise::spawn("names on demand", &context.log, move || {
            let (handler, demanded) = (Arc::clone(&serving), Arc::clone(&demanded));
            async move { handler.serve(&mut *demanded.lock().await).await }
        })];
        let keepers = HashMap::new();
        Self {
            context,
            handler,
            keepers,
            obtained,
            serves: false,
            authorities: Vec::new(),
            sweeper: None,
            tasks,
        }
    }

    /// Has the helper start DNS hooks in the place of this process.
    pub(crate) fn helped_by(&self, helper: Option<Arc<Helper>>) {
        self.context.helped_by(helper);
    }

    /// The desk where the state of orders is asked for.
    pub(crate) fn desk(&self) -> OrderDesk {
        OrderDesk::new(&self.context, &self.handler)
    }

    /// Another process still has the right to order, and gives it up soon: no order begins before
    /// [`Self::begin`].
    pub(crate) fn hold(&self) {
        self.context.hold(true);
    }

    /// That process has given it up.
    pub(crate) fn begin(&self) {
        self.context.hold(false);
    }

    /// Ends all work and gives up the right to order, for another process that takes the place of this one. Orders
    /// under way are on disk and go on there.
    pub(crate) async fn give_way(&mut self) {
        self.context.hold(true);
        self.keepers.clear();
        self.sweeper.take().into_iter().chain(self.tasks.drain(..)).for_each(|task| task.abort());
        // Tasks that were ended are dropped when the loop goes round.
        yield_now().await;
        self.context.release();
    }

    /// Serves names on demand as `config` says from now on.
    pub(crate) fn configure(&mut self, config: &Config) {
        self.handler.follow(config);
        self.authorities.clone_from(&config.authorities);
        if !Rule::all(config).is_empty() {
            self.serve();
        }
    }

    /// Begins with what only the process does that orders.
    fn serve(&mut self) {
        if !std::mem::replace(&mut self.serves, true) {
            let (context, handler) = (Arc::clone(&self.context), Arc::clone(&self.handler));
            let leading = supervise::spawn("requests for renewals", &self.context.log, move || {
                lead(Arc::clone(&context), Arc::clone(&handler))
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
        let kept =
            keepers.map(|one| KeptCertificate { want: one.want.clone(), prompts: one.prompts.clone() });
        self.context.set_keepers(kept.collect());
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
        let (context, authorities) = (Arc::clone(&self.context), self.authorities.clone());
        self.sweeper = Some(supervise::spawn("abandoned DNS records", &self.context.log, move || {
            sweep::sweep_abandoned(Arc::clone(&context), authorities.clone(), wanted.clone())
        }));
    }

    fn keep(&self, want: &Want) -> Keeper {
        let (prompts, receiver) = channel(PROMPTS);
        let task = tokio::spawn(keeper::guard(want.clone(), Arc::clone(&self.context), receiver));
        Keeper { want: want.clone(), task: task.abort_handle(), prompts, context: Arc::clone(&self.context) }
    }

    /// Retries failed orders: the cause may have been corrected.
    pub(crate) fn prompt(&self) {
        // One that is busy will look once more in any case.
        self.keepers.values().for_each(|keeper| drop(keeper.prompts.try_send(Prompt::Retry)));
    }

    /// Waits until certificates were obtained. May be dropped and called again without losing any.
    pub(crate) async fn obtained(&mut self) {
        // The context has a sender, so that there is always one.
        let _ = self.obtained.recv().await;
        while self.obtained.try_recv().is_ok() {}
    }

    /// The certificates that clients wait for and that are on disk by now, to be dropped when it is in use.
    pub(crate) fn fresh(&self) -> Fresh {
        self.handler.fresh()
    }
}

/// Waits for the right to order, and does what comes with it.
async fn lead(context: Arc<AcmeContext>, handler: Arc<DemandHandler>) {
    while let Some(wait) = context.lead() {
        sleep(wait).await;
    }
    let tidy = async {
        loop {
            handler.tidy();
            sleep(demand::TIDIED).await;
        }
    };
    tokio::join!(requests::serve(context), tidy);
}

/// Prompts that a keeper has not seen yet.
const PROMPTS: usize = 4;
