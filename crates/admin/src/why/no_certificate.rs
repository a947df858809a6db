//! The certificate of a name, or the reason why it has none.

mod evidence;

use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::store::MatchKind;
use offramp_certs::{Certificate, CertificateOrigin, DnsPattern, inspect};
use offramp_config::model::{
    CertificateSource, Challenge, Config, HostPattern, Nameless, Passthrough, RouteConfig, not_issuable,
};
use offramp_control::{
    CertificateOrder, DemandOrder, DemandOutcome, DemandRefusal, DemandStanding, NameOrders, NameReach,
};
use offramp_observe::visible;

use super::{MOST, WhyAnswer, routing};
use evidence::{date, moment};

/// The certificate that clients of a name get, and what is known of others for it.
pub(crate) struct CertificateState<'a> {
    pub(crate) config: &'a Config,
    pub(crate) held: Option<(Arc<Certificate>, MatchKind)>,
    pub(crate) orders: NameOrders,
    pub(crate) look: NameLook,
    pub(crate) now: SystemTime,
}

/// A look at the name from here.
pub(crate) enum NameLook {
    Taken(Box<NameReach>),
    /// There is none, for this reason.
    Omitted(&'static str),
}

/// Reads the name of the question.
///
/// # Errors
/// It is none that a certificate of an authority could have.
pub(crate) fn read(host: &str) -> Result<DnsPattern, String> {
    DnsPattern::parse(host).map_err(|fault| {
        let (host, fault) = (host.escape_debug(), visible(&fault.to_string()));
        format!("`{host}` is no name such as example.org or *.example.org: {fault}")
    })
}

/// Returns true for names that the configuration has: only these are connected.
pub(crate) fn is_configured(config: &Config, orders: &NameOrders, name: &DnsPattern) -> bool {
    let text = name.to_string();
    let is_for = |host: &HostPattern| {
        DnsPattern::parse(&host.to_string()).is_ok_and(|host| host == *name || host.matches(&text))
    };
    let by_certificate = |source: &CertificateSource| match source {
        CertificateSource::Acme(acme) => {
            let on_demand = acme.on_demand.iter().flat_map(|on_demand| &on_demand.names);
            acme.names.iter().chain(on_demand).any(is_for)
        }
        _ => false,
    };
    !orders.kept.is_empty()
        || config.routes.iter().any(|route| route.hosts.iter().any(is_for))
        || config.certificates.iter().any(|certificate| by_certificate(&certificate.source))
}

/// Explains which certificate `name` has, or why it has none.
pub(crate) fn no_certificate(state: &CertificateState<'_>, name: &DnsPattern) -> WhyAnswer {
    let host = name.to_string();
    let standing = Standing::of(state, name);
    let mut answer = WhyAnswer::new("no-certificate", standing.sentence(state, &host));
    if let Standing::Passes(route, _) = standing {
        evidence::tell_passthrough(&mut answer, route);
    } else {
        evidence::tell_certificate(&mut answer, state);
        evidence::tell_orders(&mut answer, state);
        standing.advise(&mut answer, state, name);
    }
    evidence::tell_reach(&mut answer, state, name);
    answer.fact("host", host);
    answer.fact("has_certificate", matches!(standing, Standing::Held(_, Validity::Valid)));
    answer
}

/// Tells which certificate the clients of a URL get.
pub(crate) fn tell_for_url(
    answer: &mut WhyAnswer,
    config: &Config,
    held: Option<(Arc<Certificate>, MatchKind)>,
    host: &str,
    now: SystemTime,
) {
    let refuses = config.tls.unknown_name == Nameless::Refuse;
    let Some((certificate, by)) = held.filter(|(_, by)| *by != MatchKind::Default || !refuses) else {
        answer.saw(
            format!("No certificate names {host}: its handshake ends with alert unrecognized_name (112)."),
            "certificates",
        );
        return answer.advise(format!("offramp why no-certificate {host}"));
    };
    let is_doubtful = by == MatchKind::Default
        || Validity::of(&certificate, now) != Validity::Valid
        || matches!(certificate.source, CertificateOrigin::LocalCa { .. });
    if by == MatchKind::Default {
        answer.saw(format!("No certificate names {host}, so clients get the default one."), "certificates");
    }
    evidence::tell_held(answer, &certificate, by, now);
    if is_doubtful {
        answer.advise(format!("offramp why no-certificate {host}"));
    }
}

/// The state of a name's certificate.
enum Standing<'a> {
    /// A server behind a route has it.
    Passes(&'a RouteConfig, &'a Passthrough),
    /// One for the name is there.
    Held(&'a Certificate, Validity),
    /// One that is kept has not come yet.
    Ordered(&'a CertificateOrder),
    /// One may be ordered when a client asks for the name.
    OnDemand(&'a DemandOrder),
    /// There is nothing for the name; clients get this one, if any.
    Nothing(Option<&'a Certificate>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Validity {
    Early,
    Valid,
    Expired,
}

impl<'a> Standing<'a> {
    fn of(state: &'a CertificateState<'_>, name: &DnsPattern) -> Self {
        if let Some((route, passthrough)) = routing::passes(state.config, name.host()) {
            return Self::Passes(route, passthrough);
        }
        let held = state.held.as_ref().map(|(certificate, by)| (&**certificate, *by));
        match held {
            Some((certificate, MatchKind::Exact | MatchKind::Wildcard)) => {
                Self::Held(certificate, Validity::of(certificate, state.now))
            }
            other => {
                let refuses = state.config.tls.unknown_name == Nameless::Refuse;
                let default = other.map(|(certificate, _)| certificate).filter(|_| !refuses);
                let kept = state.orders.kept.first().map(Self::Ordered);
                let demand = || state.orders.demand.as_ref().map(Self::OnDemand);
                kept.or_else(demand).unwrap_or(Self::Nothing(default))
            }
        }
    }

    fn sentence(&self, state: &CertificateState<'_>, host: &str) -> String {
        match self {
            Self::Passes(route, passthrough) => format!(
                "The TLS of {host} passes unchanged to {} by route {}: the server there has the certificate.",
                passthrough.server,
                route.name()
            ),
            Self::Held(certificate, validity) => held(state, certificate, *validity, host),
            Self::Ordered(order) => format!("{host} has no certificate yet: {}.", progress(state, order)),
            Self::OnDemand(demand) => {
                format!("{host} has no certificate yet: {}.", on_demand(state, demand))
            }
            Self::Nothing(Some(default)) => {
                let names: Vec<String> = default.names.iter().take(3).map(ToString::to_string).collect();
                let names = if names.is_empty() { "other names".to_owned() } else { names.join(", ") };
                format!(
                    "No certificate names {host}: clients get the default one, for {names}, and refuse it."
                )
            }
            Self::Nothing(None) => {
                format!(
                    "No certificate names {host}: clients are refused with alert unrecognized_name (112)."
                )
            }
        }
    }

    fn advise(&self, answer: &mut WhyAnswer, state: &CertificateState<'_>, name: &DnsPattern) {
        let host = name.to_string();
        let order = state.orders.kept.first();
        match self {
            Self::Passes(..) => {}
            Self::Held(certificate, validity) => match (&certificate.source, order) {
                (CertificateOrigin::LocalCa { .. }, Some(order)) => advise_order(answer, order, &host),
                (_, Some(order)) if order.failures > 0 => advise_order(answer, order, &host),
                (CertificateOrigin::Files { cert, .. }, _) if *validity != Validity::Valid => {
                    answer.advise(format!(
                        "Put a valid certificate into {}: it is read again when the file changes",
                        cert.display()
                    ));
                }
                (CertificateOrigin::LocalCa { .. }, None) => {
                    answer.advise("On machines that should trust it: offramp ca trust");
                    advise_authority(answer, name);
                }
                _ => {}
            },
            Self::Ordered(order) => advise_order(answer, order, &host),
            Self::OnDemand(demand) => match demand.standing {
                DemandStanding::Refused(DemandRefusal { outcome: DemandOutcome::Denied, .. }) => {
                    answer.advise("See what the service of certificate.on_demand.ask answers for the name");
                }
                DemandStanding::Refused(DemandRefusal { outcome: DemandOutcome::Unanswered, .. }) => {
                    answer.advise("See that the service of certificate.on_demand.ask answers");
                }
                DemandStanding::Refused(DemandRefusal { outcome: DemandOutcome::OverRate, .. }) => {
                    answer.advise("Raise certificate.on_demand.rate, as far as the authority permits it");
                }
                DemandStanding::Refused(_) => advise_challenge(answer, &demand.certificate),
                DemandStanding::Unasked if !name.is_wildcard() => {
                    answer.advise(format!("Ask for it as a client: curl https://{host}/"));
                }
                _ => {}
            },
            Self::Nothing(_) => {
                advise_authority(answer, name);
                answer.advise(format!("Or add a [[certificate]] with the files of one for {host}"));
            }
        }
    }
}

impl Validity {
    fn of(certificate: &Certificate, now: SystemTime) -> Self {
        match now {
            now if now < certificate.not_before => Self::Early,
            now if now >= certificate.not_after => Self::Expired,
            _ => Self::Valid,
        }
    }
}

fn held(state: &CertificateState<'_>, certificate: &Certificate, validity: Validity, host: &str) -> String {
    let (order, until) = (state.orders.kept.first(), date(certificate.not_after));
    let failing = order.filter(|order| order.failures > 0);
    let local = matches!(certificate.source, CertificateOrigin::LocalCa { .. });
    match (validity, order, failing) {
        (_, Some(order), _) if local => {
            format!(
                "{host} has only a certificate of the local CA, which clients refuse: {}.",
                progress(state, order)
            )
        }
        (Validity::Expired, _, Some(order)) => {
            format!("The certificate of {host} has expired at {until}: {}.", progress(state, order))
        }
        (Validity::Expired, _, None) => format!("The certificate of {host} has expired at {until}."),
        (Validity::Early, ..) => {
            format!("The certificate of {host} is not valid before {}.", date(certificate.not_before))
        }
        (Validity::Valid, _, Some(order)) => format!(
            "{host} has a certificate until {until}, and its renewal fails: {}.",
            progress(state, order)
        ),
        (Validity::Valid, ..) if local => {
            format!("{host} has a certificate of the local CA, which clients refuse that do not trust it.")
        }
        (Validity::Valid, ..) => {
            format!("{host} has a certificate of {}, valid until {until}.", issuer(certificate))
        }
    }
}

/// The issuer of the leaf, for people.
fn issuer(certificate: &Certificate) -> String {
    let leaf = certificate.certified_key.cert.first().and_then(|der| inspect::read(der).ok());
    leaf.map_or_else(|| "an unknown issuer".to_owned(), |leaf| leaf.issuer)
}

/// The course of an order, without its end of a sentence.
fn progress(state: &CertificateState<'_>, order: &CertificateOrder) -> String {
    let now = state.now;
    if state.orders.is_elsewhere {
        return "another process has the lock of the state directory, and orders".to_owned();
    }
    let words = order.last_failure.as_ref().map(|(_, reason)| reason.trim_end_matches('.'));
    let failed = match order.failures {
        0 => String::new(),
        1 => "1 order has failed".to_owned(),
        count => format!("{count} orders have failed"),
    };
    match (words, order.next) {
        (Some(words), _) if !failed.is_empty() => format!("{failed}, the latest with: {words}"),
        (Some(words), _) => format!("the latest order has failed with: {words}"),
        (None, _) if !failed.is_empty() => {
            format!("{failed}; the reason is in the log of the time before this start")
        }
        (None, Some(next)) if next > now => format!("it is ordered at {}", moment(next, now)),
        (None, _) => "it is being ordered".to_owned(),
    }
}

fn on_demand(state: &CertificateState<'_>, demand: &DemandOrder) -> String {
    let refused = |says: &str| format!("a client has asked for it, and {says}");
    match demand.standing {
        _ if state.orders.is_elsewhere => {
            "another process has the lock of the state directory, and orders".to_owned()
        }
        DemandStanding::Unasked if demand.certificate.failures > 0 => progress(state, &demand.certificate),
        DemandStanding::Unasked if demand.asks => {
            "when a client asks for it, a service is asked, and one is ordered if it agrees".to_owned()
        }
        DemandStanding::Unasked => "one is ordered when a client asks for it".to_owned(),
        DemandStanding::Pending => "a client has asked for it, and it is on its way".to_owned(),
        DemandStanding::Refused(DemandRefusal { outcome, .. }) => match outcome {
            DemandOutcome::Denied => refused("the service of certificate.on_demand.ask has refused it"),
            DemandOutcome::Unanswered => refused("the service of certificate.on_demand.ask has not answered"),
            DemandOutcome::OverRate => refused("certificate.on_demand.rate allows no more names now"),
            DemandOutcome::Busy => refused("too many names were on their way"),
            DemandOutcome::Paused => refused("every authority wants to be left alone for a while"),
            DemandOutcome::Failed | DemandOutcome::Obtained => {
                match demand.certificate.last_failure.as_ref().map(|(_, why)| why.trim_end_matches('.')) {
                    Some(words) => format!("its order has failed with: {words}"),
                    None => "its order has failed".to_owned(),
                }
            }
        },
    }
}

/// Advice on an order that fails, or has not succeeded yet.
fn advise_order(answer: &mut WhyAnswer, order: &CertificateOrder, host: &str) {
    advise_challenge(answer, order);
    answer.advise(format!("offramp cert renew {host}"));
}

/// The needs of an order's challenges.
fn advise_challenge(answer: &mut WhyAnswer, order: &CertificateOrder) {
    let mut seen = Vec::new();
    for one in order.authorities.iter().take(MOST) {
        let challenge = one.authority.challenge;
        if seen.contains(&challenge) {
            continue;
        }
        seen.push(challenge);
        answer.advise(match challenge {
            Challenge::TlsAlpn01 => {
                "The authority must reach the name on port 443, and a listener with TLS must get the connection as it is: \
                 no proxy before it that ends TLS"
            }
            Challenge::Http01 => {
                "The authority must reach the name on port 80, and a listener of mode http without TLS must get its requests"
            }
            Challenge::Dns01 => "The record _acme-challenge of the name must be set: see acme.*.dns",
        });
    }
}

fn advise_authority(answer: &mut WhyAnswer, name: &DnsPattern) {
    let host = name.to_string();
    match host.parse().ok().and_then(|pattern| not_issuable(&pattern)) {
        Some(why) => answer.advise(format!(
            "No public authority issues for {host}, as {why}: use an authority of your own, or files"
        )),
        None if name.is_wildcard() => answer.advise(format!(
            "Add a [[certificate]] with acme = \"letsencrypt\" and names = [\"{host}\"]; a wildcard needs challenge = \"dns-01\""
        )),
        None => answer
            .advise(format!("Add a [[certificate]] with acme = \"letsencrypt\" and names = [\"{host}\"]")),
    }
}

#[cfg(test)]
mod tests;
