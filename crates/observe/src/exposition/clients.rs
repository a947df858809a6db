//! The figures by client, and what TLS agreed upon.

use super::{Reader, Teller, WAYS, seconds};
use crate::clients::{ClientTotals, FIGURES};
use crate::names;
use crate::tls_mix::{Session, TlsMix};

/// The TLS of all clients together.
pub(super) fn all_tls(tell: &mut Teller<'_, impl Reader>, clients: &ClientTotals) {
    let sessions = clients.all.sessions();
    tell.table(&names::TLS_SESSIONS, sessions.map(|(session, count)| (names_of(session), count)));
    let failures = clients.all.failures();
    tell.table(&names::TLS_FAILURES, failures.map(|(cause, count)| ([cause.name()], count)));
}

pub(super) fn tell(tell: &mut Teller<'_, impl Reader>, clients: &ClientTotals) {
    let named = clients.heaviest.each_ref().map(|heaviest| {
        heaviest.iter().map(|(client, count)| (client.show(clients.anonymized), *count)).collect::<Vec<_>>()
    });
    let [connections, requests, from, to] = &named;
    tell.table(&names::CLIENT_CONNECTIONS, rows(connections));
    tell.table(&names::CLIENT_REQUESTS, rows(requests));
    let bytes = [from, to].into_iter().zip(WAYS).flat_map(|(clients, (way, _))| {
        clients.iter().map(move |(client, count)| ([client.as_str(), way], *count))
    });
    tell.table(&names::CLIENT_BYTES, bytes);
    let floors = FIGURES.into_iter().zip(clients.floors).map(|(figure, floor)| ([figure], floor));
    tell.table(&names::CLIENT_OVERESTIMATE, floors);
    tls(tell, clients);
}

fn rows(clients: &[(String, u64)]) -> impl Iterator<Item = ([&str; 1], u64)> {
    clients.iter().map(|(client, count)| ([client.as_str()], *count))
}

/// The TLS of the heaviest pairs of client and name.
fn tls(tell: &mut Teller<'_, impl Reader>, clients: &ClientTotals) {
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
    tell.table(&names::CLIENT_TLS_SESSIONS, sessions);
    let timed = pairs.iter().filter(|(_, _, mix)| mix.sessions().next().is_some());
    let times = timed.map(|(client, name, mix)| ([client.as_str(), name], seconds(mix.handshake_micros())));
    tell.table(&names::CLIENT_TLS_HANDSHAKE, times);
    let failures = pairs.iter().flat_map(|(client, name, mix)| {
        mix.failures().map(move |(cause, count)| ([client.as_str(), name, cause.name()], count))
    });
    tell.table(&names::CLIENT_TLS_FAILURES, failures);
}

/// Version, suite, group, whether it withstands a quantum computer, and kind.
fn names_of(session: &Session) -> [&str; 5] {
    let version = session.version.map_or("other", |version| version.name());
    let post_quantum = if session.is_post_quantum() { "true" } else { "false" };
    [version, session.suite, session.group, post_quantum, session.kind.name()]
}
