//! Answers on the orders of certificates for one name: what is kept, what has failed, and what comes next.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use offramp_certs::DnsPattern;
use offramp_config::model::AcmeAuthority;
use offramp_proxy::DemandStanding;
use tokio::sync::Semaphore;

use super::Want;
use super::context::AcmeContext;
use super::demand::DemandHandler;
use super::outlook::CertificateOutlook;
use super::pause::Bars;
use super::reach::{NameReach, reach};

/// Names that are looked at from here at a time.
const LOOKS: usize = 4;

/// The orders for one name: their past and their next attempt.
#[derive(Clone, Debug)]
pub struct NameOrders {
    /// The certificates of authorities that are kept, and that are for the name.
    pub kept: Vec<CertificateOrder>,
    /// The rule by which a client that asks for the name causes an order; `None` if there is none.
    pub demand: Option<DemandOrder>,
    /// Set while another process has the right to order.
    pub is_elsewhere: bool,
}

/// The orders of one certificate.
#[derive(Clone, Debug)]
pub struct CertificateOrder {
    /// Its names.
    pub names: Vec<String>,
    /// The authorities that are asked, in this order.
    pub authorities: Vec<AuthorityOrder>,
    /// Orders that failed since its last certificate.
    pub failures: u32,
    /// The latest order, if it has failed: its end, and the words of each authority.
    pub last_failure: Option<(SystemTime, String)>,
    /// The time of the next order; in the past while one is under way or waits for its turn. `None`: not known yet.
    pub next: Option<SystemTime>,
}

/// An authority that is asked for a certificate.
#[derive(Clone, Debug)]
pub struct AuthorityOrder {
    /// It.
    pub authority: AcmeAuthority,
    /// The end of the pause that it asked for, whatever is ordered.
    pub paused_until: Option<SystemTime>,
    /// The time before which it is not asked for these names, as it has looked for one in vain too often.
    pub barred_until: Option<SystemTime>,
}

/// Orders that begin when a client asks for the name.
#[derive(Clone, Debug)]
pub struct DemandOrder {
    /// The certificate that would be ordered.
    pub certificate: CertificateOrder,
    /// Set if a service is asked first.
    pub asks: bool,
    /// The rate of the rule.
    pub rate: String,
    /// Orders that the rate allows now.
    pub left: u32,
    /// Its standing; a refusal ends at a time of the monotonic clock.
    pub standing: DemandStanding,
}

/// The desk where the state of orders is asked for. Cheap to clone.
#[derive(Clone)]
pub(crate) struct OrderDesk {
    context: Arc<AcmeContext>,
    handler: Arc<DemandHandler>,
    looks: Arc<Semaphore>,
}

impl OrderDesk {
    pub(super) fn new(context: &Arc<AcmeContext>, handler: &Arc<DemandHandler>) -> Self {
        let looks = Arc::new(Semaphore::new(LOOKS));
        Self { context: Arc::clone(context), handler: Arc::clone(handler), looks }
    }

    /// The orders for `name`. Reads a few small files.
    pub(crate) fn of(&self, name: &DnsPattern) -> NameOrders {
        let now = SystemTime::now();
        let wants = self.context.wants_of(name);
        let kept = wants.iter().map(|want| self.order(want, now)).collect();
        let demand = self.handler.demanded(name, Instant::now()).map(|demanded| DemandOrder {
            certificate: self.order(&demanded.want, now),
            asks: demanded.asks,
            rate: demanded.rate,
            left: demanded.left,
            standing: demanded.standing,
        });
        NameOrders { kept, demand, is_elsewhere: !self.context.leads() }
    }

    /// The orders of the certificate with these names, or of those with some of them.
    pub(crate) fn outlook(&self, names: &[String]) -> CertificateOutlook {
        self.context.orders().outlook(names)
    }

    /// Looks at the name as an authority does; `None` if several others do so now.
    pub(crate) async fn reach(&self, name: &str) -> Option<NameReach> {
        let _place = self.looks.try_acquire().ok()?;
        Some(reach(name).await)
    }

    fn order(&self, want: &Want, now: SystemTime) -> CertificateOrder {
        let (context, subject) = (&self.context, &want.subject);
        let own = Bars::default();
        let names: Vec<String> = subject.names().iter().map(ToString::to_string).collect();
        let CertificateOutlook { next, failure } = context.orders().outlook(&names);
        let pauses = context.pauses(&own);
        let authorities = want.authorities.iter().map(|authority| AuthorityOrder {
            authority: authority.clone(),
            paused_until: pauses.left(authority, now).map(|left| now + left),
            barred_until: Some(context.barred(authority, subject, now)).filter(|until| *until > now),
        });
        CertificateOrder {
            names,
            authorities: authorities.collect(),
            failures: context.failures(subject).count,
            last_failure: failure.map(|failure| (failure.at, failure.reason)),
            next,
        }
    }
}
