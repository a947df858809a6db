//! Differences of two answers to one request, pure.
//!
//! Left out is what differs between any two servers, or any two moments ([`DIFFERING`]). Where the status differs, the rest of
//! an answer follows from it and is not compared.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, ETAG, EXPIRES, LOCATION, SET_COOKIE};

use super::answer::{BodyEnd, SideAnswer, codings};
use super::location::{AnswerPlace, resolved};
use super::redact;

/// The kinds of differences, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DifferenceKind {
    /// One side gave no answer.
    NoAnswer,
    Status,
    Redirect,
    Certificate,
    Body,
    /// A field that clients act on.
    ImportantField,
    Tls,
    Field,
    Compression,
    /// The body of an answer that is an error on both sides.
    ErrorBody,
    Time,
}

impl DifferenceKind {
    /// The kind in words, and in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoAnswer => "no answer",
            Self::Status => "status",
            Self::Redirect => "redirect",
            Self::Certificate => "certificate",
            Self::Body => "body",
            Self::ImportantField | Self::Field => "header",
            Self::Tls => "tls",
            Self::Compression => "compression",
            Self::ErrorBody => "body of an error",
            Self::Time => "time",
        }
    }
}

/// The part of an answer that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DifferingPart {
    pub(super) kind: DifferenceKind,
    /// The name of a field, or of a part of a certificate.
    pub(super) name: String,
}

/// One difference, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerDifference {
    pub(super) part: DifferingPart,
    pub(super) old: String,
    pub(super) new: String,
}

impl AnswerDifference {
    pub(super) fn new(
        kind: DifferenceKind,
        name: &str,
        old: impl Into<String>,
        new: impl Into<String>,
    ) -> Self {
        let part = DifferingPart { kind, name: name.to_owned() };
        Self { part, old: old.into(), new: new.into() }
    }
}

/// An answer with the place that it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedAnswer<'a> {
    pub(super) answer: &'a SideAnswer,
    pub(super) place: &'a AnswerPlace,
}

/// Compares two answers to one request; `ignored` are names of fields in lower case.
pub(super) fn differences(
    old: PlacedAnswer<'_>,
    new: PlacedAnswer<'_>,
    is_head: bool,
    ignored: &[String],
) -> Vec<AnswerDifference> {
    let (a, b) = (old.answer, new.answer);
    if a.status != b.status {
        return vec![AnswerDifference::new(
            DifferenceKind::Status,
            "",
            status_in_words(old),
            status_in_words(new),
        )];
    }
    let mut found = Vec::new();
    let [to, towards] = [old, new].map(|of| of.answer.fields.get(LOCATION).map(|to| resolved(to, of.place)));
    if to != towards {
        let shown = |to: Option<String>| to.map_or_else(|| ABSENT.to_owned(), |to| redact::value(&to));
        found.push(AnswerDifference::new(DifferenceKind::Redirect, "location", shown(to), shown(towards)));
    }
    found.extend(of_bodies(a, b));
    found.extend(of_fields(&a.fields, &b.fields, is_head, ignored));
    let [coded, encoded] = [a, b].map(|of| codings(&of.fields).join(", "));
    if coded != encoded && !ignored.iter().any(|name| name == "content-encoding") {
        let shown =
            |coding: String| if coding.is_empty() { "none".to_owned() } else { redact::value(&coding) };
        found.push(AnswerDifference::new(DifferenceKind::Compression, "", shown(coded), shown(encoded)));
    }
    found
}

/// The difference of time, if the new side was later by more than `slower` each time.
pub(super) fn slower(old: [Duration; 2], new: [Duration; 2], slower: Duration) -> Option<AnswerDifference> {
    let (old, new) = (old[0].max(old[1]), new[0].min(new[1]));
    (new > old.saturating_add(slower)).then(|| {
        let shown = |time: Duration| format!("{} ms", time.as_millis());
        AnswerDifference::new(DifferenceKind::Time, "", shown(old), shown(new))
    })
}

/// Keeps those differences that were there twice, and that neither side has with itself. The others differ each time.
pub(super) fn lasting(
    first: Vec<AnswerDifference>,
    second: &[AnswerDifference],
    alone: &[AnswerDifference],
) -> Vec<AnswerDifference> {
    let parts = |of: &[AnswerDifference]| of.iter().map(|one| one.part.clone()).collect::<BTreeSet<_>>();
    let (second, alone) = (parts(second), parts(alone));
    first.into_iter().filter(|one| second.contains(&one.part) && !alone.contains(&one.part)).collect()
}

fn status_in_words(of: PlacedAnswer<'_>) -> String {
    let status = of.answer.status;
    match of.answer.fields.get(LOCATION) {
        Some(to) => format!("{status} to {}", redact::value(&resolved(to, of.place))),
        None => status.to_string(),
    }
}

fn of_bodies(a: &SideAnswer, b: &SideAnswer) -> Option<AnswerDifference> {
    let shown = |of: &SideAnswer| {
        let body = &of.body;
        let size = format!("{} bytes, SHA-256 {}...", body.bytes, &body.hash[..body.hash.len().min(12)]);
        if body.end == BodyEnd::Whole { size } else { format!("{size}, {}", body.end.words()) }
    };
    let same = match (&a.body.end, &b.body.end) {
        // How much came before the time was over says nothing.
        (BodyEnd::Endless, BodyEnd::Endless) => true,
        (BodyEnd::Broken(_), BodyEnd::Broken(_)) => a.body.hash == b.body.hash,
        (end, other) => end == other && a.body.hash == b.body.hash,
    };
    let kind = if a.status >= 400 { DifferenceKind::ErrorBody } else { DifferenceKind::Body };
    (!same).then(|| AnswerDifference::new(kind, "", shown(a), shown(b)))
}

fn of_fields(old: &HeaderMap, new: &HeaderMap, is_head: bool, ignored: &[String]) -> Vec<AnswerDifference> {
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).map(hyper::header::HeaderName::as_str).collect();
    let mut found = Vec::new();
    for name in names {
        let is_framing = name == CONTENT_LENGTH && !is_head;
        if DIFFERING.contains(&name) || ignored.iter().any(|one| one == name) || is_framing {
            continue;
        }
        let [a, b] = [old, new].map(|fields| value_of(fields, name));
        if a == b {
            continue;
        }
        let important = IMPORTANT.contains(&name) || name.starts_with("access-control-");
        let kind = if important { DifferenceKind::ImportantField } else { DifferenceKind::Field };
        let shown =
            |value: Option<String>| value.map_or_else(|| ABSENT.to_owned(), |text| redact::value(&text));
        found.push(AnswerDifference::new(kind, name, shown(a), shown(b)));
    }
    found
}

/// The values of a field in a form in which those that mean the same are equal; `None` where it is absent.
fn value_of(fields: &HeaderMap, name: &str) -> Option<String> {
    let mut values: Vec<String> = fields
        .get_all(name)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        .collect();
    if values.is_empty() {
        return None;
    }
    if name == SET_COOKIE {
        values = values.iter().map(|value| cookie(value)).collect();
        values.sort();
        return Some(values.join(" | "));
    }
    if name == ETAG {
        // Servers choose it freely; the next answer of the same server has the same.
        return Some("present".to_owned());
    }
    if name == EXPIRES {
        return Some(values.iter().map(|value| expiry(value, fields)).collect::<Vec<_>>().join(", "));
    }
    let joined = values.join(", ");
    if !LISTS.contains(&name) {
        return Some(joined.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let separator = if name == "content-type" { ';' } else { ',' };
    let mut items: Vec<String> =
        joined.split(separator).map(|item| item.trim().to_ascii_lowercase().replace("; ", ";")).collect();
    let first = if separator == ';' { 1 } else { 0 };
    items[first..].sort();
    items.dedup();
    Some(items.join(if separator == ';' { "; " } else { ", " }))
}

/// A cookie without its value and the moment of its end.
fn cookie(text: &str) -> String {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().and_then(|pair| pair.split('=').next()).unwrap_or_default();
    let mut attributes: Vec<String> = parts
        .map(|part| match part.split_once('=') {
            Some((key, _)) if key.eq_ignore_ascii_case("expires") => "expires".to_owned(),
            Some((key, value)) => format!("{}={}", key.to_ascii_lowercase(), value.to_ascii_lowercase()),
            None => part.to_ascii_lowercase(),
        })
        .filter(|part| !part.is_empty())
        .collect();
    attributes.sort();
    std::iter::once(format!("{name}=...")).chain(attributes).collect::<Vec<_>>().join("; ")
}

/// `Expires` as the time after `Date`, so that two answers of different seconds are equal.
fn expiry(value: &str, fields: &HeaderMap) -> String {
    let seconds = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp().as_second());
    let now = fields.get(hyper::header::DATE).and_then(|value| value.to_str().ok()).and_then(seconds);
    match (seconds(value), now) {
        (Some(end), Some(now)) if end > now => format!("{} s after the answer", end - now),
        (Some(_), Some(_)) => "in the past".to_owned(),
        _ => value.to_owned(),
    }
}

/// A field that is not there.
const ABSENT: &str = "(none)";

/// Fields that differ between any two servers or moments: time, identity of a server or a request, and the framing of a
/// connection. `Location` and `Content-Encoding` are compared by themselves.
pub(super) const DIFFERING: [&str; 26] = [
    "age",
    "alt-svc",
    "cf-ray",
    "connection",
    "content-encoding",
    "date",
    "keep-alive",
    "location",
    "request-id",
    "server",
    "server-timing",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-amz-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-b3-traceid",
    "x-cache",
    "x-correlation-id",
    "x-request-id",
    "x-response-time",
    "x-runtime",
    "x-trace-id",
];

/// Fields on which browsers and caches act.
const IMPORTANT: [&str; 10] = [
    "cache-control",
    "content-disposition",
    "content-range",
    "content-security-policy",
    "content-type",
    "set-cookie",
    "strict-transport-security",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
];

/// Fields with items in any order and spelling.
const LISTS: [&str; 9] = [
    "accept-ranges",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-expose-headers",
    "allow",
    "cache-control",
    "content-language",
    "content-type",
    "vary",
];

#[cfg(test)]
mod tests;
