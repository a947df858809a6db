//! The evidence of an answer about a certificate: the certificate, its orders, and the look from here.

use std::time::SystemTime;

use offramp_certs::acme::caa;
use offramp_certs::store::MatchKind;
use offramp_certs::{Certificate, CertificateOrigin, DnsPattern, inspect};
use offramp_config::model::{AcmeAuthority, CertificateSource, Challenge, Config, RouteConfig};
use offramp_control::{AuthorityOrder, CaaFinding, CertificateOrder, DemandStanding, ReachedAddress};
use offramp_observe::timestamp::{Precision, write_rfc3339};
use serde_json::{Value, json};

use super::super::{MOST, WhyAnswer, place};
use super::{CertificateState, NameLook, issuer};

pub(super) fn tell_passthrough(answer: &mut WhyAnswer, route: &RouteConfig) {
    answer.saw("The server name decides before there is a handshake.", place(&route.at, "[[route]]"));
}

/// The certificate that clients get.
pub(super) fn tell_certificate(answer: &mut WhyAnswer, state: &CertificateState<'_>) {
    match &state.held {
        Some((certificate, by)) => tell_held(answer, certificate, *by, state.now),
        None => answer.saw("There is no certificate for this name, and no default.", "certificates"),
    }
}

/// A certificate, and until when it is valid.
pub(super) fn tell_held(answer: &mut WhyAnswer, certificate: &Certificate, by: MatchKind, now: SystemTime) {
    let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
    let shown = match names.len() {
        0 => "no name".to_owned(),
        count if count > 5 => format!("{} and {} more", names[..5].join(", "), count - 5),
        _ => names.join(", "),
    };
    let says = format!(
        "Clients get the certificate for {shown} ({}): of {}, {}, until {}.",
        certificate.description.key_algorithm,
        issuer(certificate),
        inspect::validity_in_words(certificate.not_before, certificate.not_after, now),
        date(certificate.not_after),
    );
    answer.saw(says, source(certificate));
    answer.fact(
        "certificate",
        json!({
            "names": names.iter().take(MOST).collect::<Vec<_>>(), "by": by.as_str(), "source": certificate.source.kind(),
            "not_before": date(certificate.not_before), "not_after": date(certificate.not_after),
        }),
    );
}

fn source(certificate: &Certificate) -> String {
    let (path, kind) = match &certificate.source {
        CertificateOrigin::Files { cert, .. } => (cert, "file"),
        CertificateOrigin::Acme { path } => (path, "authority"),
        CertificateOrigin::LocalCa { path } => (path, "local CA"),
        _ => return "certificates".to_owned(),
    };
    format!("{kind}, {}", path.display())
}

/// The orders for the name.
pub(super) fn tell_orders(answer: &mut WhyAnswer, state: &CertificateState<'_>) {
    let mut facts = Vec::new();
    for order in state.orders.kept.iter().take(MOST) {
        tell_order(answer, state, order, "certificate");
        facts.push(order_fact(order));
    }
    if let Some(demand) = &state.orders.demand {
        tell_order(answer, state, &demand.certificate, "certificate.on_demand");
        let asks = if demand.asks { " after a service has agreed" } else { "" };
        let says = format!(
            "A certificate is ordered when a client asks for the name{asks}: {} new names at most, {} now.",
            demand.rate, demand.left
        );
        answer.saw(says, "certificate.on_demand.rate");
        facts.push(order_fact(&demand.certificate));
        let standing = match demand.standing {
            DemandStanding::Unasked => "unasked",
            DemandStanding::Pending => "pending",
            DemandStanding::Refused(refusal) => refusal.outcome.as_str(),
        };
        answer.fact("on_demand", json!({ "standing": standing, "orders_left": demand.left }));
    }
    if facts.is_empty() {
        answer.saw("No authority is asked for a certificate with this name.", "[[certificate]]");
    } else if state.orders.is_elsewhere {
        answer.saw("This process has not the right to order: another one has it.", "state_dir");
    }
    answer.fact("orders", facts);
}

fn tell_order(answer: &mut WhyAnswer, state: &CertificateState<'_>, order: &CertificateOrder, key: &str) {
    let asked: Vec<String> = order
        .authorities
        .iter()
        .map(|AuthorityOrder { authority, .. }| {
            format!("{} with {}", authority.name, authority.challenge.word())
        })
        .collect();
    let item = written(state.config, order).map_or_else(|| key.to_owned(), |item| place(&item.at, key));
    answer.saw(format!("It is ordered from {}.", asked.join(", else ")), item);
    if order.failures > 0 {
        let says = format!("Orders that failed since the last certificate: {}.", order.failures);
        answer.saw(says, "state_dir");
    }
    if let Some((at, reason)) = &order.last_failure {
        answer.saw(format!("The latest order failed at {}: {reason}", date(*at)), "the authority's words");
    }
    if let Some(next) = order.next.filter(|_| !state.orders.is_elsewhere) {
        let says = if next > state.now {
            format!("The next order is at {}.", moment(next, state.now))
        } else {
            "An order is under way, or waits for its turn.".to_owned()
        };
        answer.saw(says, "orders");
    }
    for one in &order.authorities {
        tell_pauses(answer, one, state.now);
    }
}

fn tell_pauses(answer: &mut WhyAnswer, one: &AuthorityOrder, now: SystemTime) {
    let name = &one.authority.name;
    if let Some(until) = one.paused_until {
        let says = format!("{name} wants to be left alone until {}: it said so itself.", moment(until, now));
        answer.saw(says, format!("rate limits of {name}"));
    }
    if let Some(until) = one.barred_until {
        let says = format!(
            "{name} has looked for a name in vain five times in an hour: it is not asked for it before {}.",
            moment(until, now)
        );
        answer.saw(says, format!("rate limits of {name}"));
    }
}

/// The item of the configuration that an order is for.
fn written<'c>(
    config: &'c Config,
    order: &CertificateOrder,
) -> Option<&'c offramp_config::model::CertificateConfig> {
    config.certificates.iter().find(|item| match &item.source {
        CertificateSource::Acme(acme) => {
            acme.names.iter().map(ToString::to_string).eq(order.names.iter().cloned())
        }
        _ => false,
    })
}

fn order_fact(order: &CertificateOrder) -> Value {
    let until = |time: Option<SystemTime>| time.map(date);
    let authorities = order.authorities.iter().map(|one| {
        json!({
            "name": one.authority.name.as_str(), "challenge": one.authority.challenge.word(),
            "paused_until": until(one.paused_until), "barred_until": until(one.barred_until),
        })
    });
    json!({
        "names": order.names.iter().take(MOST).collect::<Vec<_>>(),
        "authorities": authorities.collect::<Vec<_>>(),
        "failures": order.failures,
        "last_failure": order.last_failure.as_ref().map(|(at, reason)| json!({ "at": date(*at), "reason": reason })),
        "next": until(order.next),
    })
}

/// The look at the name from here.
pub(super) fn tell_reach(answer: &mut WhyAnswer, state: &CertificateState<'_>, name: &DnsPattern) {
    let reach = match &state.look {
        NameLook::Taken(reach) => reach,
        NameLook::Omitted(why) => return answer.saw(*why, "DNS"),
    };
    let challenges = challenges(state);
    match &reach.addresses {
        Err(reason) => {
            answer.saw(format!("{name} does not resolve here: {reason}."), "DNS");
            if !challenges.iter().all(|challenge| *challenge == Challenge::Dns01) {
                answer.advise(format!("Set an A or AAAA record of {name} that leads to this machine"));
            }
        }
        Ok(addresses) => {
            addresses.iter().for_each(|address| tell_address(answer, name, address));
            for (port, challenge) in [(443, Challenge::TlsAlpn01), (80, Challenge::Http01)] {
                if challenges.contains(&challenge) && !addresses.iter().any(|one| answers(one, port)) {
                    answer.advise(format!(
                        "{} needs port {port} of {name}, and nothing answers there from here: look at the listener and the firewall",
                        challenge.word()
                    ));
                }
            }
            let addresses: Vec<String> = addresses.iter().map(|one| one.address.to_string()).collect();
            answer.fact("addresses", addresses);
        }
    }
    match &reach.caa {
        Err(reason) => answer.saw(format!("Its CAA records are not known: {reason}."), "DNS, CAA"),
        Ok(finding) => tell_caa(answer, state, name, finding),
    }
}

fn challenges(state: &CertificateState<'_>) -> Vec<Challenge> {
    let demand = state.orders.demand.as_ref().map(|demand| &demand.certificate);
    let orders = state.orders.kept.iter().chain(demand);
    orders.flat_map(|order| &order.authorities).map(|one| one.authority.challenge).collect()
}

fn answers(address: &ReachedAddress, port: u16) -> bool {
    address.ports.iter().any(|(other, outcome)| *other == port && outcome.is_ok())
}

fn tell_address(answer: &mut WhyAnswer, name: &DnsPattern, one: &ReachedAddress) {
    let ports: Vec<String> = one
        .ports
        .iter()
        .map(|(port, outcome)| match outcome {
            Ok(()) => format!("port {port} answers"),
            Err(reason) => format!("port {port} does not: {reason}"),
        })
        .collect();
    let own = if one.is_own { ", an address of this machine" } else { "" };
    answer.saw(format!("{name} resolves to {}{own}: {}.", one.address, ports.join("; ")), "DNS, from here");
}

fn tell_caa(
    answer: &mut WhyAnswer,
    state: &CertificateState<'_>,
    name: &DnsPattern,
    CaaFinding { at, records }: &CaaFinding,
) {
    let Some(at) = at else {
        return answer.saw("No CAA record keeps an authority from issuing.", "DNS, CAA");
    };
    let issuers = caa::issuers(records, name.is_wildcard());
    let says = match &issuers {
        None => format!("The CAA records of {at} let every authority issue."),
        Some(issuers) if issuers.is_empty() => format!("The CAA records of {at} let no authority issue."),
        Some(issuers) => format!("The CAA records of {at} let only {} issue.", issuers.join(", ")),
    };
    answer.saw(says, "DNS, CAA");
    answer.fact("caa", json!({ "at": at, "issuers": issuers }));
    let Some(issuers) = issuers else { return };
    let demand = state.orders.demand.as_ref().map(|demand| &demand.certificate);
    let asked = state.orders.kept.iter().chain(demand).flat_map(|order| &order.authorities);
    for domain in asked.filter_map(|one| caa_domain(&one.authority)) {
        if !issuers.iter().any(|issuer| issuer.eq_ignore_ascii_case(domain)) {
            answer.advise(format!("Add a CAA record to {at}: 0 issue \"{domain}\""));
        }
    }
}

/// The domain by which CAA records name an authority, as its documentation says.
fn caa_domain(authority: &AcmeAuthority) -> Option<&'static str> {
    const DOMAINS: [(&str, &str); 3] =
        [(".letsencrypt.org", "letsencrypt.org"), (".zerossl.com", "sectigo.com"), (".pki.goog", "pki.goog")];
    let host = authority.directory.as_str().trim_start_matches("https://");
    let host = host.split(['/', ':']).next().unwrap_or_default();
    DOMAINS.iter().find(|(suffix, _)| host.ends_with(suffix)).map(|(_, domain)| *domain)
}

/// A time as in logs.
pub(super) fn date(time: SystemTime) -> String {
    let mut text = Vec::with_capacity(20);
    write_rfc3339(&mut text, time, Precision::Seconds);
    String::from_utf8_lossy(&text).into_owned()
}

/// A time to come, and how far it is.
pub(super) fn moment(time: SystemTime, now: SystemTime) -> String {
    let seconds = time.duration_since(now).unwrap_or_default().as_secs();
    let far = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    format!("{}, in {far}", date(time))
}
