//! Figures by client, and negotiated TLS parameters.

use super::{FamilyWriter, MetricVisitor, WAYS, seconds};
use crate::clients::{ClientTotals, FIGURES};
use crate::names;
use crate::tls_mix::{SessionParameters, TlsMix};

/// Writes the TLS sessions and failures of all clients together.
pub(super) fn all_tls(families: &mut FamilyWriter<'_, impl MetricVisitor>, clients: &ClientTotals) {
    let sessions = clients.all.sessions();
    families.table(&names::TLS_SESSIONS, sessions.map(|(session, count)| (names_of(session), count)));
    let failures = clients.all.failures();
    families.table(&names::TLS_FAILURES, failures.map(|(cause, count)| ([cause.name()], count)));
}

pub(super) fn write(families: &mut FamilyWriter<'_, impl MetricVisitor>, clients: &ClientTotals) {
    let named = clients.heaviest.each_ref().map(|heaviest| {
        heaviest.iter().map(|(client, count)| (client.show(clients.anonymized), *count)).collect::<Vec<_>>()
    });
    let [connections, requests, from, to] = &named;
    families.table(&names::CLIENT_CONNECTIONS, rows(connections));
    families.table(&names::CLIENT_REQUESTS, rows(requests));
    let bytes = [from, to].into_iter().zip(WAYS).flat_map(|(clients, (way, _))| {
        clients.iter().map(move |(client, count)| ([client.as_str(), way], *count))
    });
    families.table(&names::CLIENT_BYTES, bytes);
    let floors = FIGURES.into_iter().zip(clients.floors).map(|(figure, floor)| ([figure], floor));
    families.table(&names::CLIENT_OVERESTIMATE, floors);
    tls(families, clients);
}

fn rows(clients: &[(String, u64)]) -> impl Iterator<Item = ([&str; 1], u64)> {
    clients.iter().map(|(client, count)| ([client.as_str()], *count))
}

/// Writes the TLS sessions of the heaviest pairs of client and SNI name.
fn tls(families: &mut FamilyWriter<'_, impl MetricVisitor>, clients: &ClientTotals) {
    let pairs: Vec<(String, &str, &TlsMix)> = clients
        .tls
        .iter()
        .map(|((client, name), mix)| (client.show(clients.anonymized), &**name, mix))
        .collect();
    let sessions = pairs.iter().flat_map(|(client, name, mix)| {
        mix.sessions().map(move |(session, count)| {
            let [version, suite, group, post_quantum, kind] = names_of(session);
            ([client.as_str(), name, version, suite, group, post_quantum, kind], count)
        })
    });
    families.table(&names::CLIENT_TLS_SESSIONS, sessions);
    let timed = pairs.iter().filter(|(_, _, mix)| mix.sessions().next().is_some());
    let times = timed.map(|(client, name, mix)| ([client.as_str(), name], seconds(mix.handshake_micros())));
    families.table(&names::CLIENT_TLS_HANDSHAKE, times);
    let failures = pairs.iter().flat_map(|(client, name, mix)| {
        mix.failures().map(move |(cause, count)| ([client.as_str(), name, cause.name()], count))
    });
    families.table(&names::CLIENT_TLS_FAILURES, failures);
}

/// Label values of a session: version, suite, group, post-quantum or not, kind.
fn names_of(session: &SessionParameters) -> [&str; 5] {
    let version = session.version.map_or("other", |version| version.name());
    let post_quantum = if session.is_post_quantum() { "true" } else { "false" };
    [version, session.suite, session.group, post_quantum, session.kind.name()]
}
