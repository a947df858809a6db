//! DNS records of certificates that left the configuration: an order was ended by a reload, or its process was killed, and
//! no later order for the same names begins with removing them.

use std::sync::Arc;

use offramp_certs::acme::{Abandoned, Subject};
use offramp_config::model::AcmeAuthority;
use tokio::time::sleep;

use super::context::AcmeContext;
use super::dns::{Action, Record};
use super::prove;

/// Removes what was abandoned by certificates other than `wanted`, once this is the process that orders.
pub(super) async fn sweep_abandoned(
    context: Arc<AcmeContext>,
    authorities: Vec<AcmeAuthority>,
    wanted: Vec<Subject>,
) {
    // Without certificates of authorities there is no directory for them, and none is made.
    if context.storage.abandoned(&wanted).is_empty() {
        return;
    }
    while let Some(wait) = context.lead() {
        sleep(wait).await;
    }
    for abandoned in context.storage.abandoned(&wanted) {
        match remove(&context, &authorities, &abandoned).await {
            Ok(()) => context.storage.forget_abandoned(&abandoned),
            Err(reason) => {
                let names: Vec<&str> = abandoned.records.iter().map(|(name, _)| name.as_str()).collect();
                let names = names.join(" ");
                let fields = [("names", (&names).into()), ("reason", (&reason).into())];
                context.log.warn(
                    "DNS records of a certificate that is not configured any more stay behind",
                    &fields,
                );
            }
        }
    }
}

/// Has the authority's program or name server remove the records. Where it is not known which authority that was, those
/// that set records are tried in turn.
async fn remove(
    context: &AcmeContext,
    authorities: &[AcmeAuthority],
    abandoned: &Abandoned,
) -> Result<(), String> {
    let is_the_one = |authority: &&AcmeAuthority| {
        let known = abandoned.directory.as_deref().is_none_or(|url| url == authority.directory.as_str());
        known && authority.dns.is_some()
    };
    let mut outcome =
        Err("the configuration does not say any more who sets DNS records for its authority".to_owned());
    for authority in authorities.iter().filter(is_the_one) {
        outcome = Ok(());
        for (domain, value) in &abandoned.records {
            let record = Record { domain: domain.clone(), value: value.clone() };
            outcome = outcome.and(prove::set_record(authority, context, Action::Cleanup, &record).await);
        }
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
