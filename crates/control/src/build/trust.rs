//! What the certificates of clients and servers are checked by, and what Offramp shows to servers.

use offramp_config::model::{self, FilePath};
use offramp_config::{At, Config};
use offramp_sources::certificates::{Look, Pair};

use super::Findings;

/// Reads every file of authorities and revocation lists, and the certificates for servers.
pub(super) fn read(config: &Config, look: &mut Look<'_>, report: &mut Findings) {
    for auth in config.routes.iter().filter_map(|route| route.client_auth.as_ref()) {
        auth.authorities().for_each(|ca| authorities(ca, look, report));
        auth.crl.iter().for_each(|crl| revoked(crl, look, report));
    }
    for tls in config.backends.iter().filter_map(|backend| backend.tls.as_ref()) {
        server_tls(tls, look, report);
    }
    // A server that is written in a route is checked by the authorities of the system.
    for route in config.routes.iter().filter(|route| speaks_tls(route)) {
        system(&route.at, look, report);
    }
}

/// The files of a certificate that is shown to servers.
pub(super) fn shown(files: &model::ClientCertificate) -> Pair {
    Pair::new(files.cert.path.clone(), files.key.as_ref().map(|key| key.path.clone()))
}

fn server_tls(tls: &model::ServerTls, look: &mut Look<'_>, report: &mut Findings) {
    match &tls.verify {
        model::Verify::System => system(&tls.at, look, report),
        model::Verify::File(ca) => authorities(ca, look, report),
        model::Verify::Pins(_) | model::Verify::Nothing => {}
    }
    tls.crl.iter().for_each(|crl| revoked(crl, look, report));
    if let Some(files) = &tls.certificate {
        let (found, warnings) = look.shown(&shown(files), &files.cert.at);
        found.report(&files.cert.at, &warnings, report);
    }
}

fn authorities(ca: &FilePath, look: &mut Look<'_>, report: &mut Findings) {
    let (found, warnings) = look.authorities(ca);
    found.report(&ca.at, &warnings, report);
}

fn revoked(crl: &FilePath, look: &mut Look<'_>, report: &mut Findings) {
    let (found, warnings) = look.revoked(crl);
    found.report(&crl.at, &warnings, report);
}

fn system(at: &At, look: &mut Look<'_>, report: &mut Findings) {
    if let Err(fault) = look.system() {
        report.error_once(at, fault);
    }
}

/// True if the server that is written in the route speaks TLS.
fn speaks_tls(route: &model::RouteConfig) -> bool {
    let model::RouteTarget::Relay(relay) = &route.target else { return false };
    matches!(relay.to, model::RelayTarget::TlsServer(_))
}
