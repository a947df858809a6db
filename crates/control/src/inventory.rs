//! The certificates of a configuration, as `offramp cert list` shows them.

use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::Certificate;
use offramp_config::Config;
use offramp_config::model::{HostPattern, RouteConfig, RouteTarget};
use offramp_process::Finding;
use offramp_sources::certificates::{OnFault, Sources};

use crate::build::{Material, route_name};

/// A certificate that clients may get.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The certificate in use.
    pub certificate: Arc<Certificate>,
    /// The names of the routes with a host that it covers.
    pub routes: Vec<String>,
}

/// The certificates that were found.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// The certificates that can be used, in the order of the configuration.
    pub listed: Vec<Listed>,
    /// Errors of the certificate.
    pub errors: Vec<Finding>,
    /// Warnings of the certificate.
    pub warnings: Vec<Finding>,
}

/// Reads every certificate that `config` names, and those that its local CA has issued. Nothing is written.
#[must_use]
pub fn certificates(config: &Config, now: SystemTime) -> Inventory {
    let material = Material::read(config, &Sources::default(), now, OnFault::Refuse, false);
    let terminated: Vec<&RouteConfig> =
        config.routes.iter().filter(|route| is_terminated(config, route)).collect();
    let routes = |certificate: &Certificate| {
        let covered =
            terminated.iter().filter(|route| route.hosts.iter().any(|host| covers(certificate, host)));
        covered.map(|route| route_name(route)).collect()
    };
    let certificates = material.store.certificates();
    let listed = certificates.map(|one| Listed { certificate: Arc::clone(one), routes: routes(one) });
    Inventory { listed: listed.collect(), errors: material.errors, warnings: material.warnings }
}

fn is_terminated(config: &Config, route: &RouteConfig) -> bool {
    !matches!(route.target, RouteTarget::Passthrough(_))
        && config.listeners.iter().any(|listener| listener.tls && route.applies_to(listener))
}

fn covers(certificate: &Certificate, host: &HostPattern) -> bool {
    let text = host.to_string();
    certificate.names.iter().any(|name| match host {
        HostPattern::Exact(_) => name.matches(&text),
        HostPattern::Wildcard(_) => name.to_string().eq_ignore_ascii_case(&text),
    })
}
