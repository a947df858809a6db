//! The way of a ClientHello: listener, route, certificate, and the first rule that refuses it.
//!
//! The verdict is that of `offramp_proxy::rehearse`, which applies the rules of a connection. Here it is put into words: what was
//! offered, what is configured, and which key of the configuration would have to change.

mod refusal;

use offramp_config::At;
use offramp_config::model::{
    AuthMode, CertificateConfig, CertificateSource, Config, HostPattern, ListenerConfig, Passthrough,
    RouteConfig, RouteTarget,
};
use offramp_proxy::{HelloTrial, HelloVerdict};
use offramp_wire::capture;
use offramp_wire::client_hello::{self, ClientHello, RegistryName};
use offramp_wire::known::{self, KnownClient, Likeness};
use offramp_wire::{HelloFault, ParseStep};
use serde_json::{Value, json};

use super::{MOST, WhyAnswer, place, routing};

/// Bound on `hello`, in characters.
const LONGEST: usize = 64 * 1024;

/// A ClientHello, and where it goes.
pub(crate) struct HandshakeQuestion {
    /// The name or address that the client connects to, in lower case.
    host: Option<String>,
    port: Option<u16>,
    known: Option<&'static KnownClient>,
    records: Vec<u8>,
}

impl HandshakeQuestion {
    /// Reads `HOST` or `HOST:PORT`, and the name of a known client or a ClientHello in hexadecimal or base64.
    ///
    /// # Errors
    /// There is no client, or it cannot be read.
    pub(crate) fn read(to: Option<&str>, client: Option<&str>, hello: Option<&str>) -> Result<Self, String> {
        let (host, port) = to.map(destination).transpose()?.unwrap_or_default();
        let known = client.map(|name| known::named(name).ok_or_else(|| unknown(name))).transpose()?;
        let records = match (known, hello) {
            (Some(_), Some(_)) => return Err("write `as` or `hello`, not both".to_owned()),
            (None, None) => return Err("this question needs `as` or `hello`".to_owned()),
            (Some(client), None) => client.hello(),
            (None, Some(text)) => digits(text)?,
        };
        let mut question = Self { host, port, known, records };
        if question.known.is_some() {
            question.address();
        }
        Ok(question)
    }

    /// Has the hello of a known client ask for the host; clients send no name for an address.
    fn address(&mut self) {
        let Ok(hello) = parse(&self.records) else { return };
        let name = self.host.as_deref().filter(|host| !is_address(host));
        let records = hello.addressed_to(name);
        self.records = records;
    }

    /// The records of the hello.
    pub(crate) fn records(&self) -> &[u8] {
        &self.records
    }

    /// The listener that the hello comes to: by its port, else the first with TLS. `bound` has the ports of listeners by
    /// their names, as the kernel has chosen them where the configuration says 0.
    pub(crate) fn listener<'c>(
        &self,
        config: &'c Config,
        bound: &[(String, u16)],
    ) -> Option<ListenerMatch<'c>> {
        let is_bound = |listener: &ListenerConfig, port| {
            bound.iter().any(|(name, other)| name == listener.name.as_str() && *other == port)
        };
        let here = self.port.and_then(|port| {
            let has =
                |listener: &&ListenerConfig| routing::has_port(listener, port) || is_bound(listener, port);
            config.listeners.iter().find(has)
        });
        let by_port = here.is_some() || self.port.is_none();
        let found = here.or_else(|| config.listeners.iter().find(|listener| listener.tls));
        found.map(|listener| ListenerMatch { listener, by_port })
    }
}

/// The listener that answers a hello.
#[derive(Clone, Copy)]
pub(crate) struct ListenerMatch<'c> {
    pub(crate) listener: &'c ListenerConfig,
    /// Set unless another port was asked for.
    by_port: bool,
}

fn destination(text: &str) -> Result<(Option<String>, Option<u16>), String> {
    let wrong = || format!("`{}` is no HOST:PORT, such as example.org:443", text.escape_debug());
    let bare = text.parse::<std::net::Ipv6Addr>().is_ok();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !bare => (host, Some(port.parse().map_err(|_| wrong())?)),
        _ => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':');
    if host.is_empty() || host.len() > 253 || !host.chars().all(is_name) {
        return Err(wrong());
    }
    Ok((Some(host), port))
}

fn is_address(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok()
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = known::all().map(|client| client.name).collect();
    let near = offramp_config::nearest(name, names.iter().copied());
    let hint = near.map(|near| format!("the nearest one is {near}; ")).unwrap_or_default();
    format!("there is no client `{}`: {hint}known are {}", name.escape_debug(), names.join("; "))
}

fn digits(text: &str) -> Result<Vec<u8>, String> {
    if text.len() > LONGEST {
        return Err(format!("`hello` has more than {LONGEST} characters"));
    }
    // A plus of base64 that was not escaped in the query is a space.
    let read = capture::hello(text.as_bytes()).or_else(|_| capture::hello(text.replace(' ', "+").as_bytes()));
    read.map_err(|fault| format!("`hello`: {fault}"))
}

fn parse(records: &[u8]) -> Result<ClientHello<'_>, HelloFault> {
    match client_hello::peek(records) {
        ParseStep::Done { value, .. } => Ok(value),
        ParseStep::Reject(fault) => Err(fault),
        ParseStep::Need(_) => Err(HelloFault::Malformed("length")),
    }
}

/// Explains what becomes of the hello; `trial` is the verdict of the listener, `None` if it has no TLS.
pub(crate) fn handshake(
    config: &Config,
    question: &HandshakeQuestion,
    found: Option<ListenerMatch<'_>>,
    trial: Option<&HelloTrial>,
) -> WhyAnswer {
    let Some(ListenerMatch { listener, by_port }) = found else {
        let mut answer = WhyAnswer::new("handshake", "No listener speaks TLS.");
        answer.advise("Add a [[listener]] with an address, such as address = \"[::]:443\"");
        return answer;
    };
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
    let elsewhere = question.port.filter(|_| !by_port);
    tell_listener(&mut answer, listener, elsewhere);
    if let (Some(trial), Ok(hello)) = (trial, &hello) {
        tell_offer(&mut answer, hello);
        tell_configured(&mut answer, config, route, trial);
        tell_client(&mut answer, question, hello);
    }
    answer
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

fn tell_listener(answer: &mut WhyAnswer, listener: &ListenerConfig, elsewhere: Option<u16>) {
    let address = listener.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let says = match elsewhere {
        Some(port) => format!(
            "No listener has port {port}; this answer is right if something forwards it to listener {} on {address}.",
            listener.name
        ),
        None => format!("Listener {} accepts on {address}.", listener.name),
    };
    answer.saw(says, place(&listener.at, "[[listener]]"));
    answer.fact("listener", listener.name.as_str());
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
