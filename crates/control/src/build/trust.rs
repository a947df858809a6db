//! What the certificates of clients and servers are checked by, and what Offramp shows to servers.

use offramp_config::model::{self, FilePath};
use offramp_config::{At, Config};

use super::Report;
use crate::certificates::{Look, Pair};

/// Reads every file of authorities and revocation lists, and the certificates for servers.
pub(super) fn read(config: &Config, look: &mut Look<'_>, report: &mut Report) {
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

fn server_tls(tls: &model::ServerTls, look: &mut Look<'_>, report: &mut Report) {
    match &tls.verify {
        model::Verify::System => system(&tls.at, look, report),
        model::Verify::File(ca) => authorities(ca, look, report),
        model::Verify::Pins(_) | model::Verify::Nothing => {}
    }
    tls.crl.iter().for_each(|crl| revoked(crl, look, report));
    if let Some(files) = &tls.certificate {
        let (found, warnings) = look.shown(&shown(files), &files.cert.at);
        report.found(&files.cert.at, found, &warnings);
    }
}

fn authorities(ca: &FilePath, look: &mut Look<'_>, report: &mut Report) {
    let (found, warnings) = look.authorities(ca);
    report.found(&ca.at, found, &warnings);
}

fn revoked(crl: &FilePath, look: &mut Look<'_>, report: &mut Report) {
    let (found, warnings) = look.revoked(crl);
    report.found(&crl.at, found, &warnings);
}

fn system(at: &At, look: &mut Look<'_>, report: &mut Report) {
    if let Err(fault) = look.system() {
        report.error_once(at, fault);
    }
}

/// Whether the server that is written in the route speaks TLS.
fn speaks_tls(route: &model::Route) -> bool {
    let model::Target::Relay(relay) = &route.target else { return false };
    matches!(relay.to, model::RelayTarget::TlsServer(_))
}
