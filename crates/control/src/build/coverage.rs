//! Hosts that no certificate covers: their clients would get another certificate, and refuse it.

use std::collections::BTreeSet;

use offramp_certs::store::CertificateStore;
use offramp_config::Config;
use offramp_config::model::{self, CertificateName, CertificateSource, HostPattern};

use super::Findings;
use crate::acme::{Rule, Want};

/// Warns of every route with a host that is not covered. `store` has the certificates that were read; those of the
/// local CA, and those that authorities are asked for, need not be issued yet.
pub(super) fn look(config: &Config, store: &CertificateStore, wants: &[Want], report: &mut Findings) {
    let read = store.certificates().flat_map(|certificate| &certificate.names).map(ToString::to_string);
    let local = config.certificates.iter().filter_map(|certificate| match &certificate.source {
        CertificateSource::Local { names } => Some(names),
        CertificateSource::Files { .. }
        | CertificateSource::Directory { .. }
        | CertificateSource::Acme(_) => None,
    });
    let issued = local.flatten().filter_map(|name| match name {
        CertificateName::Host(host) => Some(host.to_string()),
        CertificateName::Ip(_) => None,
    });
    let ordered = wants.iter().flat_map(|want| want.subject.names()).map(ToString::to_string);
    let rules = Rule::all(config);
    if rules.iter().any(Rule::asks) {
        // The `ask` server may allow any name.
        return;
    }
    let demanded = rules.iter().flat_map(Rule::names).map(ToString::to_string);
    let covered: BTreeSet<String> = read.chain(issued).chain(ordered).chain(demanded).collect();
    for route in config.routes.iter().filter(|route| is_terminated(config, route)) {
        let hosts = route.hosts.iter().filter(|host| !covers(&covered, host)).map(|host| format!("`{host}`"));
        let hosts: Vec<String> = hosts.collect();
        if hosts.is_empty() {
            continue;
        }
        let outcome = match config.default_certificate() {
            Some(_) => "clients get the default certificate, which is for other names, and reject it",
            None => "clients are refused",
        };
        let hosts = hosts.join(", ");
        report.warn(&route.at, format!("no certificate covers {hosts}: {outcome}; add a [[certificate]]"));
    }
}

/// True if a listener terminates TLS for the route.
pub(super) fn is_terminated(config: &Config, route: &model::RouteConfig) -> bool {
    let sealed = matches!(route.target, model::RouteTarget::Passthrough(_));
    !sealed && config.listeners.iter().any(|listener| listener.tls && route.applies_to(listener))
}

pub(super) fn covers(names: &BTreeSet<String>, host: &HostPattern) -> bool {
    let host_text = host.to_string().to_ascii_lowercase();
    let by_wildcard = match host {
        HostPattern::Exact(_) => {
            host_text.split_once('.').is_some_and(|(_, rest)| names.contains(&format!("*.{rest}")))
        }
        HostPattern::Wildcard(_) => false,
    };
    by_wildcard || names.contains(&host_text)
}
