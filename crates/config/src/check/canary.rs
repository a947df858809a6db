//! `split` and `mirror` of a route.

use std::num::NonZeroU32;

use super::{Reader, reference};
use crate::error::Problem;
use crate::model::{HashKey, Mirror, Share, Size, Split, SplitBy};
use crate::raw::{Section, Spanned};

/// The shares of a route, of which the key is there. `known` are the names of backends.
pub(super) fn split(section: &Section, known: &[String], reader: &mut Reader<'_, '_>) -> Option<Split> {
    let details = section.section("split")?;
    let before = reader.report.len();
    let backends = shares(details, known, reader);
    if reader.report.len() == before && details.mentions("backends") {
        let wrong = match &backends[..] {
            [] | [_] => Some("`split` needs two backends or more"),
            all if all.iter().all(|share| share.weight == 0) => Some("no backend of `split` has a weight"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let help = "write backends = [\"old weight=95\", \"new weight=5\"]";
            reader.report.whole(details.key_span("backends"), Problem::new(wrong).help(help));
        }
    }
    let by = details.text("by").map_or(Some(SplitBy::Hash(HashKey::Client)), |text| reader.parsed(&text));
    let split = Split {
        backends,
        by: by?,
        header: details.text("header").and_then(|text| reader.parsed(&text)),
        cookie: details.text("cookie").and_then(|text| reader.parsed(&text)),
        sticky_cookie: details.text("sticky_cookie").and_then(|text| reader.parsed(&text)),
    };
    if split.cookie.is_some() && split.cookie == split.sticky_cookie {
        let problem = Problem::new("`cookie` and `sticky_cookie` are the same cookie");
        let help = "give one of them another name: the value of `sticky_cookie` is Offramp's own";
        reader.report.whole(details.key_span("sticky_cookie"), problem.help(help));
    }
    (reader.report.len() == before && details.mentions("backends")).then_some(split)
}

/// The shares without mistakes, each backend once.
fn shares(details: &Section, known: &[String], reader: &mut Reader<'_, '_>) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for text in details.list("backends").unwrap_or_default() {
        let Some(share) = reader.tell(&text.span, text.value.parse::<Share>()) else { continue };
        if let Err(problem) = reference(&share.backend.to_string(), "backend", known) {
            reader.report.whole(&text.span, problem);
        } else if shares.iter().any(|other| other.backend == share.backend) {
            let problem = Problem::new(format!("`{}` is in this split twice", share.backend));
            reader.report.local(&text.span, problem.help("add the two weights up"));
        } else {
            shares.push(share);
        }
    }
    shares
}

/// The copies that a route makes of its requests, if it makes any.
pub(super) fn mirror(section: &Section, known: &[String], reader: &mut Reader<'_, '_>) -> Option<Mirror> {
    let details = section.section("mirror");
    let text: Spanned<&str> = match details {
        Some(details) => details.text("backend")?,
        None => section.text("mirror")?,
    };
    let backend = match reference(text.value, "backend", known) {
        Ok(name) => name,
        Err(problem) => {
            reader.report.whole(&text.span, problem);
            return None;
        }
    };
    if section.text("backend").is_some_and(|main| main.value == text.value) {
        let problem = Problem::new("a mirror of the same backend would have it do everything twice");
        reader.report.whole(&text.span, problem.help("name another backend"));
    }
    let default = Mirror::to(backend);
    let Some(details) = details else { return Some(default) };
    // The table of keys keeps them within their bounds.
    let number = |name| details.integer(name).and_then(|number| u32::try_from(number).ok());
    Some(Mirror {
        max_body: details.size("max_body").map_or(default.max_body, Size::new),
        requests: number("requests").unwrap_or(default.requests),
        one_in: number("one_in").and_then(NonZeroU32::new).unwrap_or(default.one_in),
        ..default
    })
}
