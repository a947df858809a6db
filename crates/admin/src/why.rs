//! Answers to "why": one sentence, the evidence with its sources, and what to do. Pure.
//!
//! - `routing`: the way of a URL: listener, routes in their order, rules, target
//! - `servers`: backends whose servers do not answer
//! - `handshake`: the way of a ClientHello: listener, route, certificate, and the rule that refuses it
//! - `no_certificate`: the certificate of a name: what it has, its orders, its addresses
//! - `lately`: the latest stored requests for a URL
//! - `ending`: a cause, and a stored request
//! - `slow`: where the time of stored requests went; `client`: how those of a client ended

pub(crate) mod client;
mod ending;
mod handshake;
pub(crate) mod lately;
mod no_certificate;
mod routing;
mod servers;
pub(crate) mod slow;

use offramp_config::At;
use offramp_config::model::Config;
use offramp_control::BackendView;
use serde_json::{Map, Value, json};

pub(crate) use ending::{cause, request};
pub(crate) use handshake::{AskedClient, HandshakeQuestion, handshake};
pub(crate) use no_certificate::{
    CertificateState, NameLook, is_configured, no_certificate, read as certificate_name, tell_for_url,
};
pub(crate) use routing::{UrlSubject, url};
pub(crate) use servers::bad_gateway;

/// Bound on the items of one list in an answer.
const MOST: usize = 20;

/// The configuration in force, and how its servers fare.
#[derive(Clone, Copy)]
pub(crate) struct WhyState<'a> {
    pub(crate) config: &'a Config,
    pub(crate) backends: &'a [BackendView],
}

/// The answer to one question.
#[derive(Debug)]
pub(crate) struct WhyAnswer {
    question: &'static str,
    pub(crate) first: String,
    /// Sentences, each with its source.
    evidence: Vec<(String, String)>,
    remedy: Vec<String>,
    facts: Map<String, Value>,
}

impl WhyAnswer {
    fn new(question: &'static str, first: impl Into<String>) -> Self {
        let (evidence, remedy, facts) = (Vec::new(), Vec::new(), Map::new());
        Self { question, first: first.into(), evidence, remedy, facts }
    }

    fn saw(&mut self, says: impl Into<String>, source: impl Into<String>) {
        self.evidence.push((says.into(), source.into()));
    }

    fn advise(&mut self, step: impl Into<String>) {
        self.remedy.push(step.into());
    }

    /// Advises to ask about a request. Its id may be a client's own: only what is a word for every shell becomes a command.
    fn advise_request(&mut self, id: &str) {
        let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte));
        if is_plain && !id.is_empty() && !id.starts_with('-') {
            self.advise(format!("offramp why {id}"));
        }
    }

    fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Takes over the answers about several things of a kind, by their names: what all of them say stands once, the rest names
    /// its thing. The facts of each are in a list beside those that all have.
    fn join(&mut self, kind: &str, answers: Vec<(&str, Self)>) {
        let Some((_, first)) = answers.first() else { return };
        let says_all = |item: &(String, String)| answers.iter().all(|(_, one)| one.evidence.contains(item));
        let is_for_all = |step: &String| answers.iter().all(|(_, one)| one.remedy.contains(step));
        for (name, answer) in &answers {
            for (says, source) in answer.evidence.iter().filter(|item| !says_all(item)) {
                self.saw(format!("At {kind} {name}: {says}"), source);
            }
            for step in answer.remedy.iter().filter(|step| !is_for_all(step)) {
                self.advise(format!("For {kind} {name}: {step}"));
            }
        }
        self.evidence.extend(first.evidence.iter().filter(|item| says_all(item)).cloned());
        self.remedy.extend(first.remedy.iter().filter(|step| is_for_all(step)).cloned());
        let has_all =
            |name: &str, value: &Value| answers.iter().all(|(_, one)| one.facts.get(name) == Some(value));
        let shared = first.facts.iter().filter(|(name, value)| has_all(name, value));
        self.facts.extend(shared.map(|(name, value)| (name.clone(), value.clone())));
        let each: Vec<Value> = answers.into_iter().map(|(_, answer)| Value::Object(answer.facts)).collect();
        self.fact(&format!("{kind}s"), each);
    }

    /// The answer as the API has it.
    pub(crate) fn into_json(self) -> Value {
        let evidence =
            self.evidence.into_iter().map(|(says, source)| json!({ "says": says, "source": source }));
        json!({
            "question": self.question,
            "first": self.first,
            "evidence": evidence.collect::<Vec<_>>(),
            "remedy": self.remedy,
            "facts": self.facts,
        })
    }
}

/// Explains where a request for `url` goes, by the configuration alone: `question` is `url` or `not-routed`. The answer is as
/// `GET /v1/why` has it.
///
/// # Errors
/// It is no URL.
pub fn from_config(config: &Config, question: &'static str, url: &str) -> Result<Value, String> {
    routing::url(question, WhyState { config, backends: &[] }, url).map(|(answer, _)| answer.into_json())
}

/// The place of an item as a source.
fn place(at: &At, key: &str) -> String {
    match at.place() {
        Some(place) => format!("{key}, {place}"),
        None => format!("{key}, implied"),
    }
}
