//! `GET /v1/why`: questions, and what is known for their answers.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use offramp_config::model::Cidr;
use offramp_control::InForce;
use offramp_net::Address;
use offramp_observe::facts::Cause;
use serde_json::Value;
use tokio::time::timeout;

use super::query::{Parameter, ParameterKind, QueryParameters};
use super::{Control, ProblemDetails, logs};
use crate::why::{self, AskedClient, CertificateState, HandshakeQuestion, NameLook, WhyAnswer, WhyState};

pub(super) const ASKED: &[Parameter] = &[
    Parameter {
        name: "about",
        kind: ParameterKind::Text,
        doc: "The question: `url`, `not-routed`, `502`, `slow`, `client`, `request`, `handshake`, `no-certificate`, or any text with `cause` or `limit`",
    },
    Parameter { name: "url", kind: ParameterKind::Text, doc: "The URL whose way is asked for" },
    Parameter {
        name: "backend",
        kind: ParameterKind::Text,
        doc: "The backend, or the server that a route names",
    },
    Parameter {
        name: "host",
        kind: ParameterKind::Text,
        doc: "For `502`: the host whose route is asked for; for `slow`: the host whose requests are looked at; for `handshake`: the host, or host and port, that the client connects to; for `no-certificate`: the name",
    },
    Parameter {
        name: "as",
        kind: ParameterKind::Text,
        doc: "For `handshake`: a well-known client, such as `openssl 1.0.2` or `chrome`",
    },
    Parameter {
        name: "hello",
        kind: ParameterKind::Text,
        doc: "For `handshake`: a ClientHello in hexadecimal or base64",
    },
    Parameter {
        name: "client",
        kind: ParameterKind::Network,
        doc: "For `client`: the address; for `handshake`: the address of the client, for rules by address",
    },
    Parameter {
        name: "since",
        kind: ParameterKind::When,
        doc: "For `slow`, `client` and URLs: only stored requests from this time on, such as 10m ago; by default 1h. For `request`: read all from then on, not only those near the id",
    },
    Parameter { name: "request", kind: ParameterKind::Text, doc: "The id of a stored request" },
    Parameter { name: "cause", kind: ParameterKind::Text, doc: "The name of a cause" },
    Parameter { name: "limit", kind: ParameterKind::Text, doc: "The name of the cause of a limit" },
];

/// Answers a question. `body` has the ClientHello of `handshake`, and is empty otherwise.
pub(super) async fn answer(
    control: &Control,
    query: &QueryParameters,
    body: &[u8],
) -> Result<Value, ProblemDetails> {
    let needs = |name: &str| {
        query.text(name).ok_or_else(|| ProblemDetails::wrong(format!("this question needs `{name}`")))
    };
    let about = needs("about")?;
    if !body.is_empty() && about != "handshake" {
        return Err(ProblemDetails::wrong("only the question `handshake` takes a body"));
    }
    if let Some(name) = query.text("cause").or(query.text("limit")) {
        let known = Cause::ALL.into_iter().map(Cause::name);
        let question = QUESTIONS.into_iter().find(|question| *question == about).unwrap_or("cause");
        let answer = why::cause(question, name, &control.view.figures().counters.totals());
        return match answer {
            Some(answer) => Ok(answer.into_json()),
            None => Err(ProblemDetails::unknown("cause", name, known)),
        };
    }
    let (in_force, backends) = (control.view.in_force(), control.view.backends());
    let state = WhyState { config: &in_force.config, backends: &backends };
    let answer = match about {
        "url" => url("url", control, state, query, needs("url")?).await?,
        "not-routed" => url("not-routed", control, state, query, needs("url")?).await?,
        "502" if query.text("backend").is_none() && query.text("host").is_some() => {
            let url = format!("https://{}/", needs("host")?);
            self::url("502", control, state, query, &url).await?
        }
        "502" => {
            let name = query.text("backend");
            why::bad_gateway(state, name).map_err(|_| {
                let known = backends.iter().map(|backend| backend.name.as_str());
                ProblemDetails::unknown("backend", name.unwrap_or_default(), known)
            })?
        }
        "handshake" => handshake(control, &in_force, query, body).await?,
        "no-certificate" => no_certificate(control, &in_force, needs("host")?).await?,
        "slow" => {
            let rows = logs::newest(control, query, &why::slow::COLUMNS, why::slow::ROWS).await?;
            why::slow::slow(query.text("host"), since(query), &rows)
        }
        "client" => {
            let client = needs("client")?;
            let rows = logs::newest(control, query, &why::client::COLUMNS, why::slow::ROWS).await?;
            why::client::client(client, since(query), &rows, &control.view.limit_refusals())
        }
        "request" => {
            let search = logs::search(query)?;
            why::request(&logs::request(control, needs("request")?, search).await?)
        }
        other => return Err(ProblemDetails::unknown("question", other, QUESTIONS)),
    };
    Ok(answer.into_json())
}

async fn url(
    question: &'static str,
    control: &Control,
    state: WhyState<'_>,
    query: &QueryParameters,
    text: &str,
) -> Result<WhyAnswer, ProblemDetails> {
    let (mut answer, subject) = why::url(question, state, text).map_err(ProblemDetails::wrong)?;
    if subject.is_terminated
        && let Ok(name) = why::certificate_name(&subject.host)
    {
        let held = control.view.certificate_of(&name);
        why::tell_for_url(&mut answer, state.config, held, &subject.host, SystemTime::now());
    }
    match logs::newest_of(control, query, subject, &why::lately::COLUMNS, why::lately::ROWS).await {
        Some(Ok(rows)) => why::lately::tell(&mut answer, since(query), &rows),
        // The way of a URL is known without it.
        Some(Err(problem)) => why::lately::tell_absence(&mut answer, &problem.detail),
        None => {}
    }
    Ok(answer)
}

async fn handshake(
    control: &Control,
    in_force: &InForce,
    query: &QueryParameters,
    body: &[u8],
) -> Result<WhyAnswer, ProblemDetails> {
    let asked = AskedClient { name: query.text("as"), hello: query.text("hello"), file: body };
    let question = HandshakeQuestion::read(query.text("host"), asked).map_err(ProblemDetails::wrong)?;
    let of_ip = |(name, address): &(String, Address)| match address {
        Address::Tcp(address) => Some((name.clone(), *address)),
        Address::Unix(_) => None,
    };
    let (config, bound) = (&in_force.config, in_force.listening.iter().filter_map(of_ip).collect::<Vec<_>>());
    let resolved = match question.name().filter(|_| question.needs_addresses(config, &bound)) {
        Some(name) => addresses(control, name).await,
        None => Vec::new(),
    };
    let found = question.listeners(config, &bound, &resolved);
    let client = query.text("client").and_then(|text| text.parse::<Cidr>().ok()).map(Cidr::address);
    let records = question.records();
    let rehearse = |name: &str| control.view.rehearse(name, records, client);
    let trials: Vec<_> = found.listeners.iter().map(|one| rehearse(one.listener.name.as_str())).collect();
    Ok(why::handshake(config, &question, &found, &trials))
}

/// The addresses of a name, as this machine resolves it; none where that takes too long, or while others ask.
async fn addresses(control: &Control, name: &str) -> Vec<IpAddr> {
    let Ok(_place) = control.trials.try_acquire() else { return Vec::new() };
    let found = timeout(LOOK_UP, tokio::net::lookup_host((name, 0))).await;
    found.ok().and_then(Result::ok).map_or_else(Vec::new, |found| found.map(|one| one.ip()).collect())
}

/// Bound on the time of a look-up.
const LOOK_UP: Duration = Duration::from_secs(2);

async fn no_certificate(
    control: &Control,
    in_force: &InForce,
    host: &str,
) -> Result<WhyAnswer, ProblemDetails> {
    let name = why::certificate_name(host).map_err(ProblemDetails::wrong)?;
    let (config, orders) = (&in_force.config, control.view.orders(&name));
    let look = if name.is_wildcard() {
        NameLook::Omitted("A wildcard has no address of its own to look at.")
    } else if !why::is_configured(config, &orders, &name) {
        NameLook::Omitted("No route and no certificate names it, so nothing is connected.")
    } else {
        let busy = NameLook::Omitted("Others look at names now; ask again for its addresses.");
        control.view.reach(name.host()).await.map_or(busy, |reach| NameLook::Taken(Box::new(reach)))
    };
    let held = control.view.certificate_of(&name);
    let state = CertificateState { config, held, orders, look, now: SystemTime::now() };
    Ok(why::no_certificate(&state, &name))
}

/// The questions that are answered.
const QUESTIONS: [&str; 8] =
    ["url", "not-routed", "502", "slow", "client", "request", "handshake", "no-certificate"];

/// The time from which stored requests are taken, for people.
fn since(query: &QueryParameters) -> &str {
    query.text("since").unwrap_or("1h")
}
