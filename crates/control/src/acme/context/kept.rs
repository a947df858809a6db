//! The certificates that are kept.

use std::sync::{MutexGuard, PoisonError};

use offramp_certs::DnsPattern;
use tokio::sync::mpsc::Sender;

use super::super::Want;
use super::super::keeper::Prompt;
use super::AcmeContext;

/// A certificate that is kept, and the way to its keeper.
pub(in crate::acme) struct KeptCertificate {
    pub(in crate::acme) want: Want,
    pub(in crate::acme) prompts: Sender<Prompt>,
}

impl AcmeContext {
    /// Sets the certificates that are kept.
    pub(in crate::acme) fn set_keepers(&self, list: Vec<KeptCertificate>) {
        *self.kept() = list;
    }

    /// The keepers of every certificate that has this very name.
    pub(in crate::acme) fn keepers_of(&self, name: &str) -> Vec<Sender<Prompt>> {
        let Ok(name) = DnsPattern::parse(name) else { return Vec::new() };
        let kept = self.kept();
        let has = kept.iter().filter(|one| one.want.subject.names().contains(&name));
        has.map(|one| one.prompts.clone()).collect()
    }

    /// The certificates that are kept and that clients of `name` may get.
    pub(in crate::acme) fn wants_of(&self, name: &DnsPattern) -> Vec<Want> {
        let text = name.to_string();
        let is_for = |one: &DnsPattern| one == name || one.matches(&text);
        let kept = self.kept();
        let found = kept.iter().filter(|one| one.want.subject.names().iter().any(is_for));
        found.map(|one| one.want.clone()).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<KeptCertificate>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
