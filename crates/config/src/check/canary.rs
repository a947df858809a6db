//! `split` and `mirror` of a route.

use super::{ValueReader, is_known};
use crate::error::Problem;
use crate::model::{BackendShare, MirrorConfig, TrafficSplit};
use crate::raw::Section;

/// Reads the shares of a route with `split`. `known` are the names of backends.
pub(super) fn split(
    section: &Section,
    known: &[String],
    reader: &mut ValueReader<'_, '_>,
) -> Option<TrafficSplit> {
    let details = section.section("split")?;
    let before = reader.report.len();
    let split: TrafficSplit = reader.filled("route.split", details);
    for text in details.list("backends").unwrap_or_default() {
        let share = text.value.parse::<BackendShare>().ok();
        let is_known = share.map_or(Ok(()), |share| is_known(&share.backend, "backend", known));
        if let Err(problem) = is_known {
            reader.report.whole(&text.span, problem);
        }
    }
    if reader.report.len() == before && details.mentions("backends") {
        let wrong = match &split.backends[..] {
            [] | [_] => Some("`split` needs two backends or more"),
            all if all.iter().all(|share| share.weight == 0) => Some("no backend of `split` has a weight"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let help = "write backends = [\"old weight=95\", \"new weight=5\"]";
            reader.report.whole(details.key_span("backends"), Problem::new(wrong).help(help));
        }
    }
    if split.cookie.is_some() && split.cookie == split.sticky_cookie {
        let problem = Problem::new("`cookie` and `sticky_cookie` are the same cookie");
        let help = "give one of them another name: the value of `sticky_cookie` is Offramp's own";
        reader.report.whole(details.key_span("sticky_cookie"), problem.help(help));
    }
    (reader.report.len() == before && details.mentions("backends")).then_some(split)
}

/// Reads the mirror of a route, if there is one.
pub(super) fn mirror(
    section: &Section,
    known: &[String],
    reader: &mut ValueReader<'_, '_>,
) -> Option<MirrorConfig> {
    let details = section.section("mirror");
    let text = details.map_or_else(|| section.text("mirror"), |details| details.text("backend"));
    let mirror = match details {
        Some(details) => reader.whole("route.mirror", details),
        None => section.text("mirror").and_then(|text| reader.parsed(&text)).map(MirrorConfig::to),
    };
    let (mirror, text) = (mirror?, text?);
    if let Err(problem) = is_known(&mirror.backend, "backend", known) {
        reader.report.whole(&text.span, problem);
        return None;
    }
    if section.text("backend").is_some_and(|main| main.value == text.value) {
        let problem = Problem::new("a mirror of the same backend would have it do everything twice");
        reader.report.whole(&text.span, problem.help("name another backend"));
    }
    Some(mirror)
}
