//! The standing of one name, for the question why it has no certificate.

use std::time::Instant;

use offramp_certs::DnsPattern;
use offramp_certs::acme::UseMark;
use offramp_config::model::not_issuable;
use offramp_proxy::DemandStanding;

use super::super::Want;
use super::{DemandHandler, Rule};

/// A name that may have a certificate on demand.
pub(in crate::acme) struct DemandedName {
    pub(in crate::acme) want: Want,
    /// Set if a service is asked first.
    pub(in crate::acme) asks: bool,
    pub(in crate::acme) rate: String,
    /// Orders that the rate allows now.
    pub(in crate::acme) left: u32,
    pub(in crate::acme) standing: DemandStanding,
}

impl DemandHandler {
    /// The certificate that a client that asks for `name` would have ordered; `None` if the name may have none.
    pub(in crate::acme) fn demanded(&self, name: &DnsPattern, now: Instant) -> Option<DemandedName> {
        if name.is_wildcard() {
            return None;
        }
        let text = name.host();
        let state = self.state();
        let (rule, asks) = Rule::find(&state.rules, text)?;
        if rule.public && text.parse().is_ok_and(|host| not_issuable(&host).is_some()) {
            return None;
        }
        let want = rule.want(text, asks, &state.config, UseMark::default()).ok()?;
        let index = state.rules.iter().position(|one| std::ptr::eq(one, rule))?;
        let left = state.orders.get(index).map_or(0.0, |pace| pace.left(now)) as u32;
        let standing = self.demand.standing(text, now);
        Some(DemandedName { want, asks, rate: rule.on_demand.rate.to_string(), left, standing })
    }
}
