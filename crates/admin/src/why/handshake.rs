//! The way of a ClientHello: listener, route, certificate, and the first rule that refuses it.
//!
//! The verdict is that of `offramp_proxy::rehearse`, which applies the rules of a connection. Here it is put into words: what was
//! offered, what is configured, and which key of the configuration would have to change.

mod listener;
mod question;
mod refusal;

use offramp_config::At;
use offramp_config::model::{
    AuthMode, CertificateConfig, CertificateSource, Config, HostPattern, ListenerConfig, Passthrough,
    RouteConfig, RouteTarget,
};
use offramp_proxy::{HelloTrial, HelloVerdict};
use offramp_wire::client_hello::{self, ClientHello, RegistryName};
use offramp_wire::known::{self, Likeness};
use offramp_wire::{HelloFault, ParseStep};
use serde_json::{Value, json};

pub(crate) use listener::FoundListeners;
pub(crate) use question::{AskedClient, HandshakeQuestion};

use super::{MOST, WhyAnswer, place, routing};
use listener::ReachedListener;

fn parse(records: &[u8]) -> Result<ClientHello<'_>, HelloFault> {
    match client_hello::peek(records) {
        ParseStep::Done { value, .. } => Ok(value),
        ParseStep::Reject(fault) => Err(fault),
        ParseStep::Need(_) => Err(HelloFault::Malformed("length")),
    }
}

/// Explains what becomes of the hello. `trials` has the verdict of each listener that was found, in their order; `None` for
/// one without TLS.
pub(crate) fn handshake(
    config: &Config,
    question: &HandshakeQuestion,
    found: &FoundListeners<'_>,
    trials: &[Option<HelloTrial>],
) -> WhyAnswer {
    let answers = found.listeners.iter().zip(trials);
    let mut answers: Vec<(&ReachedListener<'_>, WhyAnswer)> = answers
        .map(|(reached, trial)| (reached, at_listener(config, question, reached.listener, trial.as_ref())))
        .collect();
    if answers.len() > 1 {
        return at_each(question, answers);
    }
    let Some((reached, mut answer)) = answers.pop() else {
        let mut answer = WhyAnswer::new("handshake", "No listener speaks TLS.");
        answer.advise("Add a [[listener]] with an address, such as address = \"[::]:443\"");
        return answer;
    };
    let listener = reached.listener;
    if let Some(port) = question.port.filter(|_| !found.by_port) {
        let says = format!(
            "No listener has port {port}; this answer is right if something forwards it to listener {} on {}.",
            listener.name,
            addresses(listener)
        );
        answer.saw(says, place(&listener.at, "[[listener]]"));
    }
    for other in found.others.iter().filter(|other| !std::ptr::eq(other.listener, listener)) {
        let at = other.at.map(|at| format!(" on {at}")).unwrap_or_default();
        let says = format!(
            "Listener {} has the port too{at}; {} leads to listener {}.",
            other.listener.name,
            question.host.as_deref().unwrap_or_default(),
            listener.name
        );
        answer.saw(says, place(&other.listener.at, "[[listener]]"));
    }
    answer
}

/// One answer of the answers at several listeners, as the address of the host does not decide among them.
fn at_each(question: &HandshakeQuestion, answers: Vec<(&ReachedListener<'_>, WhyAnswer)>) -> WhyAnswer {
    let parts = answers.iter().map(|(reached, answer)| {
        let at = reached.at.map(|at| format!(" ({at})")).unwrap_or_default();
        format!("at listener {}{at}: {}", reached.listener.name, answer.first.trim_end_matches('.'))
    });
    let first = format!(
        "{} listeners have port {}, and the address that {} leads to decides: {}.",
        answers.len(),
        question.port.unwrap_or_default(),
        question.host.as_deref().unwrap_or("the client"),
        parts.collect::<Vec<_>>().join("; ")
    );
    let mut whole = WhyAnswer::new("handshake", first);
    whole.fact("served", Value::Null);
    let answers = answers.into_iter().map(|(reached, answer)| (reached.listener.name.as_str(), answer));
    whole.join("listener", answers.collect());
    whole
}

/// Explains what becomes of the hello at one listener; `trial` is its verdict, `None` if it has no TLS.
fn at_listener(
    config: &Config,
    question: &HandshakeQuestion,
    listener: &ListenerConfig,
    trial: Option<&HelloTrial>,
) -> WhyAnswer {
    let hello = parse(&question.records);
    let route = hello.as_ref().ok().and_then(|hello| routing::of_hello(config, listener, hello));
    let mut answer = match (trial, &hello) {
        (None, _) => without_tls(listener),
        (Some(trial), hello) => {
            let client = question.known.map_or("The client", |client| client.name);
            let scene = Scene { config, listener, route, hello: hello.as_ref().ok(), trial, client };
            scene.verdict()
        }
    };
    let says = format!("Listener {} accepts on {}.", listener.name, addresses(listener));
    answer.saw(says, place(&listener.at, "[[listener]]"));
    answer.fact("listener", listener.name.as_str());
    if let (Some(trial), Ok(hello)) = (trial, &hello) {
        tell_offer(&mut answer, hello);
        tell_configured(&mut answer, config, route, trial);
        tell_client(&mut answer, question, hello);
    }
    answer
}

fn addresses(listener: &ListenerConfig) -> String {
    listener.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn without_tls(listener: &ListenerConfig) -> WhyAnswer {
    let first =
        format!("Listener {} does not speak TLS: a ClientHello is not answered there.", listener.name);
    let mut answer = WhyAnswer::new("handshake", first);
    answer.saw(format!("Listener {} has tls = false.", listener.name), place(&listener.at, "[[listener]]"));
    answer.advise("Connect to the port of a listener with TLS, or leave tls = false out");
    answer
}

/// A hello at a listener.
struct Scene<'a> {
    config: &'a Config,
    listener: &'a ListenerConfig,
    route: Option<&'a RouteConfig>,
    hello: Option<&'a ClientHello<'a>>,
    trial: &'a HelloTrial,
    /// The subject of sentences.
    client: &'a str,
}

impl Scene<'_> {
    fn verdict(&self) -> WhyAnswer {
        match &self.trial.verdict {
            HelloVerdict::Passes => self.passes(),
            HelloVerdict::Agreed(choice) => {
                let name = |name: fn(u16) -> RegistryName, number: Option<u16>| {
                    number.map(|number| name(number).to_string())
                };
                let version = name(client_hello::version_name, choice.version);
                let suite = name(client_hello::suite_name, choice.suite);
                let terms: Vec<String> = [version.clone(), suite.clone()].into_iter().flatten().collect();
                let mut answer = WhyAnswer::new(
                    "handshake",
                    format!(
                        "{} is served: {}{}{}.",
                        self.client,
                        terms.join(" with "),
                        self.certificate(),
                        self.condition()
                    ),
                );
                let alpn = choice.alpn.as_deref().map(|alpn| String::from_utf8_lossy(alpn).into_owned());
                let group = name(client_hello::group_name, choice.group);
                answer.fact("served", true);
                answer.fact(
                    "agreed",
                    json!({ "version": version, "suite": suite, "group": group, "alpn": alpn }),
                );
                if choice.retries {
                    let says = "The client sent no key share of a group that is offered: a second round trip asks for one.";
                    answer.saw(says, "rehearsal");
                }
                self.tell_route(&mut answer);
                self.doubt(&mut answer);
                answer
            }
            HelloVerdict::Refused { cause, alert, detail } => {
                let refusal = self.refusal(*cause, detail);
                let with = match alert {
                    Some(alert) => format!("alert {} ({})", alert.name(), alert.0),
                    None => "no alert".to_owned(),
                };
                let first =
                    format!("{} is refused with {with}: {} ({}).", self.client, refusal.reason, cause.name());
                let mut answer = WhyAnswer::new("handshake", first);
                answer.saw(refusal.rule, refusal.source);
                refusal.remedies.into_iter().for_each(|remedy| answer.advise(remedy));
                answer.fact("served", false);
                answer.fact("cause", cause.name());
                answer.fact("alert", alert.map(offramp_observe::facts::Alert::name));
                self.tell_route(&mut answer);
                answer
            }
        }
    }

    fn passes(&self) -> WhyAnswer {
        let target = match self.route.map(|route| &route.target) {
            Some(RouteTarget::Passthrough(Passthrough { server, .. })) => format!(" to {server}"),
            _ => String::new(),
        };
        let route = self.trial.route.as_deref().unwrap_or_default();
        let first = format!(
            "The TLS of {} passes unchanged{target} by route {route}: the server there decides.",
            self.client
        );
        let mut answer = WhyAnswer::new("handshake", first);
        answer.fact("served", Value::Null);
        self.tell_route(&mut answer);
        answer
    }

    fn certificate(&self) -> String {
        let Some((certificate, by)) = &self.trial.certificate else { return String::new() };
        let name = certificate.names.first().map(ToString::to_string).unwrap_or_default();
        let default = if by.as_str() == "default" { "default " } else { "" };
        format!(" and the {default}certificate of {name} ({})", certificate.description.key_algorithm)
    }

    fn condition(&self) -> &'static str {
        match self.route.and_then(|route| route.client_auth.as_ref()).map(|auth| auth.mode) {
            Some(AuthMode::Required) => ", if it then shows a certificate that client_auth accepts",
            _ => "",
        }
    }

    /// Doubts that remain after the flight of the server.
    fn doubt(&self, answer: &mut WhyAnswer) {
        let host = self.hello.and_then(|hello| hello.server_name().host());
        if let (Some((certificate, by)), Some(host)) = (&self.trial.certificate, host)
            && by.as_str() == "default"
        {
            let names: Vec<String> = certificate.names.iter().take(MOST).map(ToString::to_string).collect();
            let says = format!(
                "No certificate names {host}, so the default one is shown, for {}. A client that verifies names ends the handshake.",
                names.join(", ")
            );
            answer.saw(says, "certificates");
            if let Some(item) = on_demand(self.config, host) {
                let says = "A certificate for it is ordered when a client asks for the name, and the handshake waits for it.";
                answer.saw(says, place(&item.at, "certificate.on_demand"));
                answer.advise(format!("offramp why no-certificate {host}"));
            } else {
                answer.advise(format!("Add a [[certificate]] that names {host}"));
            }
        }
        let auth = self.route.and_then(|route| Some((route, route.client_auth.as_ref()?)));
        if let Some((route, auth)) = auth {
            let says = match auth.mode {
                AuthMode::Required => "A client without a certificate gets alert certificate_required (116).",
                AuthMode::Optional => {
                    "A certificate of the client is asked for; one that is shown must be valid."
                }
            };
            answer.saw(says, place(&route.at, "client_auth"));
        }
    }

    fn tell_route(&self, answer: &mut WhyAnswer) {
        if let Some(route) = &self.trial.route {
            answer.fact("route", &**route);
        }
        if let Some(route) = self.route
            && self.trial.route.is_some()
        {
            answer
                .saw(format!("Its handshake follows route {}.", route.name()), place(&route.at, "[[route]]"));
        }
    }
}

/// The item by which a certificate for a host may be ordered when a client asks for it.
fn on_demand<'c>(config: &'c Config, host: &str) -> Option<&'c CertificateConfig> {
    let items = config.certificates.iter().filter_map(|item| match &item.source {
        CertificateSource::Acme(acme) => Some((item, acme.on_demand.as_ref()?)),
        _ => None,
    });
    let names = |pattern: &HostPattern| routing::host_fits(Some(pattern), host);
    let by_name = items.clone().find(|(_, terms)| terms.names.iter().any(names));
    by_name.or_else(|| items.clone().find(|(_, terms)| terms.ask.is_some())).map(|(item, _)| item)
}

/// Names of numbers, bounded.
fn names(name: fn(u16) -> RegistryName, numbers: impl Iterator<Item = u16>) -> Vec<String> {
    numbers.take(200).map(|number| name(number).to_string()).collect()
}

/// A list in a sentence: its first items, and how many there are.
fn listed(items: &[String]) -> String {
    const SHOWN: usize = 6;
    match items.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => format!("{} and {} more", items[..SHOWN].join(", "), count - SHOWN),
        _ => items.join(", "),
    }
}

fn protocols<'p>(alpn: impl Iterator<Item = &'p [u8]>) -> Vec<String> {
    alpn.map(|protocol| String::from_utf8_lossy(protocol).into_owned()).collect()
}

fn tell_offer(answer: &mut WhyAnswer, hello: &ClientHello<'_>) {
    let versions = names(client_hello::version_name, hello.versions());
    let suites = names(client_hello::suite_name, hello.suites());
    let groups = names(client_hello::group_name, hello.groups());
    let schemes = names(client_hello::scheme_name, hello.schemes());
    let alpn = protocols(hello.alpn());
    let sni = hello.server_name().host();
    let name = sni.map_or("no server name".to_owned(), |name| format!("server name {name}"));
    for says in [
        format!("The client offers {}; ALPN {}; {name}.", listed(&versions), listed(&alpn)),
        format!("It offers the suites {}.", listed(&suites)),
        format!("It offers the groups {}; signature schemes {}.", listed(&groups), listed(&schemes)),
    ] {
        answer.saw(says, "ClientHello");
    }
    let offered = json!({
        "versions": versions, "suites": suites, "groups": groups, "schemes": schemes, "alpn": alpn, "server_name": sni,
    });
    answer.fact("offered", offered);
}

/// The place of a plain key as a source.
fn key_place(config: &Config, key: &'static str) -> String {
    match config.origins.of(key).and_then(At::place) {
        Some(at) => format!("{key}, {at}"),
        None => format!("{key}, default"),
    }
}

fn tell_configured(answer: &mut WhyAnswer, config: &Config, route: Option<&RouteConfig>, trial: &HelloTrial) {
    let Some(offers) = &trial.offers else { return };
    let suites = names(client_hello::suite_name, offers.suites.iter().copied());
    let groups = names(client_hello::group_name, offers.groups.iter().copied());
    let alpn = protocols(offers.alpn.iter().map(Vec::as_slice));
    let says = format!(
        "Offramp offers {}; suites {}; groups {}; ALPN {}.",
        offers.versions.join(", "),
        listed(&suites),
        listed(&groups),
        listed(&alpn)
    );
    answer.saw(says, key_place(config, "tls.policy"));
    let overrides = route.map(|route| &route.tls);
    let aeads = overrides.map(|tls| &tls.aeads).filter(|aeads| !aeads.is_empty());
    let text = |items: &[offramp_config::model::AeadCipher]| -> Vec<String> {
        items.iter().map(ToString::to_string).collect()
    };
    let certificate = trial.certificate.as_ref().map(|(certificate, by)| {
        json!({
            "names": certificate.names.iter().take(MOST).map(ToString::to_string).collect::<Vec<_>>(),
            "key": certificate.description.key_algorithm,
            "kind": certificate.kind.as_str(),
            "by": by.as_str(),
        })
    });
    let auth = route.and_then(|route| route.client_auth.as_ref());
    answer.fact(
        "configured",
        json!({
            "versions": offers.versions,
            "suites": suites,
            "groups": groups,
            "alpn": alpn,
            "policy": overrides.and_then(|tls| tls.policy).unwrap_or(config.tls.policy).to_string(),
            "max_version": overrides.and_then(|tls| tls.max_version).unwrap_or(config.tls.max_version).to_string(),
            "aeads": text(aeads.unwrap_or(&config.tls.aeads)),
            "client_auth": auth.map(|auth| if auth.mode == AuthMode::Required { "required" } else { "optional" }),
            "unknown_name": config.tls.unknown_name.to_string(),
            "no_server_name": config.tls.no_server_name.to_string(),
        }),
    );
    answer.fact("certificate", certificate);
}

fn tell_client(answer: &mut WhyAnswer, question: &HandshakeQuestion, hello: &ClientHello<'_>) {
    let ja4 = hello.ja4();
    answer.fact("ja4", ja4.as_str());
    if let Some(client) = question.known {
        answer.saw(format!("{}: {}, {}.", client.name, client.version, client.source), "table of clients");
    }
    let like = known::like(&ja4);
    let clients = like.as_ref().map(|(_, clients)| clients.as_slice()).unwrap_or_default();
    let names: Vec<String> = clients.iter().take(MOST).map(|client| client.name.to_owned()).collect();
    let says = match like.as_ref().map(|(likeness, _)| likeness) {
        Some(Likeness::Same) => format!("Its JA4 fingerprint {ja4} is that of {}.", listed(&names)),
        Some(Likeness::SameLibrary) => {
            format!("Its JA4 fingerprint {ja4} is that of {}, but for server name and ALPN.", listed(&names))
        }
        Some(Likeness::SameSuites) => {
            format!(
                "Its JA4 fingerprint {ja4} has the cipher suites of {}, and other extensions.",
                listed(&names)
            )
        }
        None => format!("Its JA4 fingerprint {ja4} is that of no client in the table."),
    };
    answer.saw(says, "JA4");
    answer.fact("likely", names);
}

#[cfg(test)]
mod tests;
