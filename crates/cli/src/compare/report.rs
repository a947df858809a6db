//! The result of a comparison: groups of differences, counts, and the verdict, as text and as JSON.

mod html;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::difference::{AnswerDifference, DIFFERING, DifferenceKind, DifferingPart};
use super::request::SkipCounts;

/// A comparison.
#[derive(Debug, Default)]
pub(super) struct CompareReport {
    /// The URLs of old and new.
    pub(super) urls: [String; 2],
    pub(super) counts: ComparisonCounts,
    pub(super) skipped: SkipCounts,
    pub(super) groups: DifferenceGroups,
    /// Parts that differ between two answers of one side, with the number of requests.
    pub(super) varying: BTreeMap<DifferingPart, u64>,
    /// The times of answers of old and new.
    pub(super) times: [Vec<Duration>; 2],
    pub(super) notes: Vec<String>,
    /// Names of fields that were not compared on request.
    pub(super) ignored: Vec<String>,
    /// The reason why it ended early.
    pub(super) stopped: Option<String>,
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ComparisonCounts {
    /// Requests of the source that could be sent.
    pub(super) usable: u64,
    /// Requests that were chosen of them.
    pub(super) chosen: u64,
    pub(super) same: u64,
    pub(super) different: u64,
    /// Answered by neither side.
    pub(super) unanswered: u64,
    /// Hosts with different TLS.
    pub(super) tls: u64,
}

/// Differences that are alike, with an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DifferenceGroup {
    pub(super) example: AnswerDifference,
    pub(super) requests: u64,
    /// Method and URL.
    pub(super) request: String,
    /// Lines of curl for old and new.
    pub(super) curl: [String; 2],
}

/// All groups, bounded in number.
#[derive(Debug, Default)]
pub(super) struct DifferenceGroups {
    by_key: BTreeMap<(DifferenceKind, String, String), DifferenceGroup>,
    /// Differences beyond [`MOST_GROUPS`].
    beyond: u64,
}

impl DifferenceGroups {
    /// Adds a difference; `example` makes the request and its lines of curl where it is the first of its group.
    pub(super) fn add(
        &mut self,
        difference: AnswerDifference,
        example: impl FnOnce() -> (String, [String; 2]),
    ) {
        let part = difference.part.clone();
        // Statuses and codings are few; the values of other parts may be different in each answer.
        let values = match part.kind {
            DifferenceKind::Status | DifferenceKind::Compression => {
                format!("{} {}", word(&difference.old), word(&difference.new))
            }
            DifferenceKind::Certificate | DifferenceKind::Tls => {
                format!("{} {}", difference.old, difference.new)
            }
            _ => format!("{} {}", difference.old.starts_with('('), difference.new.starts_with('(')),
        };
        let key = (part.kind, part.name, values);
        if let Some(group) = self.by_key.get_mut(&key) {
            group.requests += 1;
        } else if self.by_key.len() < MOST_GROUPS {
            let (request, curl) = example();
            self.by_key.insert(key, DifferenceGroup { example: difference, requests: 1, request, curl });
        } else {
            self.beyond += 1;
        }
    }

    /// The groups, the most important first, then the most frequent.
    pub(super) fn sorted(&self) -> Vec<&DifferenceGroup> {
        let mut groups: Vec<&DifferenceGroup> = self.by_key.values().collect();
        groups.sort_by_key(|group| (group.example.part.kind, std::cmp::Reverse(group.requests)));
        groups
    }
}

/// The first word of a text: the status without the target of a redirect.
fn word(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// The verdict on two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareVerdict {
    Same,
    Different,
    /// Too little was answered.
    NotCompared,
}

impl CompareReport {
    pub(super) fn verdict(&self) -> CompareVerdict {
        let counts = &self.counts;
        if self.stopped.is_some() || counts.same + counts.different == 0 {
            CompareVerdict::NotCompared
        } else if counts.different + counts.tls > 0 {
            CompareVerdict::Different
        } else {
            CompareVerdict::Same
        }
    }

    /// The verdict in a sentence.
    pub(super) fn sentence(&self) -> String {
        let ComparisonCounts { same, different, unanswered, tls, .. } = self.counts;
        let compared = same + different;
        let mut text = match (self.verdict(), different) {
            (CompareVerdict::NotCompared, _) => match &self.stopped {
                Some(why) => format!("Not compared to the end: {why}."),
                None => "Not compared: neither side answered a request.".to_owned(),
            },
            (CompareVerdict::Same, _) => {
                format!("Old and new answer the same: {} compared.", number(compared, "request"))
            }
            (CompareVerdict::Different, 0) => {
                format!("Old and new answer {} the same, and their TLS differs.", number(compared, "request"))
            }
            (CompareVerdict::Different, _) => {
                format!("Old and new differ in {different} of {}.", number(compared, "request"))
            }
        };
        if different > 0 && tls > 0 {
            text.push_str(" Their TLS differs, too.");
        }
        if unanswered > 0 && self.verdict() != CompareVerdict::NotCompared {
            let _ = write!(text, " Neither side answered {}.", number(unanswered, "request"));
        }
        text
    }

    /// Lines with what was compared and what was not, without differences.
    fn coverage(&self) -> Vec<String> {
        let counts = &self.counts;
        let mut lines = vec![format!(
            "{} compared: {} the same, {} different",
            number(counts.same + counts.different, "request"),
            counts.same,
            counts.different
        )];
        if counts.chosen < counts.usable {
            lines.push(format!(
                "{} chosen of {} that could be sent: each method, host and path first, then other queries",
                counts.chosen, counts.usable
            ));
        }
        if counts.unanswered > 0 {
            lines.push(format!("{} answered by neither side", counts.unanswered));
        }
        lines.extend(
            self.skipped.iter().map(|(reason, count)| format!("{count} left out: {}", reason.words())),
        );
        for (part, count) in &self.varying {
            lines.push(format!(
                "not compared in {}, since it differs each time: {}",
                number(*count, "request"),
                part.words()
            ));
        }
        if let [Some(old), Some(new)] = [0, 1].map(|side| self.quantiles(side)) {
            let shown = |times: [Duration; 2]| {
                let [half, most] = times.map(|time| time.as_secs_f64() * 1000.0);
                format!("{half:.1} ms, 95 % {most:.1} ms")
            };
            lines.push(format!("time: old half within {}; new half within {}", shown(old), shown(new)));
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// Times within which a half and 95 % of the answers of a side came.
    fn quantiles(&self, side: usize) -> Option<[Duration; 2]> {
        let mut times = self.times[side].clone();
        times.sort_unstable();
        let at = |share: usize| times.get((times.len().saturating_sub(1)) * share / 100).copied();
        Some([at(50)?, at(95)?])
    }

    /// A sentence on fields that are never compared.
    fn uncompared(&self) -> String {
        let given = self.ignored.iter().map(String::as_str);
        let names: Vec<&str> =
            DIFFERING.into_iter().filter(|name| !COMPARED_APART.contains(name)).chain(given).collect();
        format!(
            "Fields that differ anyway are not compared: {}. Of etag and cookies the values are not.",
            names.join(", ")
        )
    }

    /// The report for a terminal.
    pub(super) fn text(&self) -> String {
        let [old, new] = &self.urls;
        let mut text = format!("old  {old}\nnew  {new}\n\n");
        for line in self.coverage() {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "{line}");
        }
        let groups = self.groups.sorted();
        if !groups.is_empty() {
            let _ = writeln!(text, "\nDifferences, the most important first:");
        }
        for (at, group) in groups.iter().take(SHOWN).enumerate() {
            let [old, new] = &group.curl;
            let _ = writeln!(
                text,
                "\n{:2}. {} in {}\n    old: {}\n    new: {}\n    {}\n    old: {old}\n    new: {new}",
                at + 1,
                group.example.part.words(),
                number(group.requests, "request"),
                group.example.old,
                group.example.new,
                group.request
            );
        }
        let more = groups.len().saturating_sub(SHOWN) as u64 + self.groups.beyond;
        if more > 0 {
            let _ = writeln!(text, "\nand {}; --json has more of them", number(more, "other kind"));
        }
        let _ = writeln!(text, "\n{}\n\n{}", self.uncompared(), self.sentence());
        text
    }

    /// The report for programs.
    pub(super) fn json(&self) -> Value {
        let verdict = match self.verdict() {
            CompareVerdict::Same => "same",
            CompareVerdict::Different => "different",
            CompareVerdict::NotCompared => "not_compared",
        };
        let micros = |side| {
            self.quantiles(side).map(|[half, most]| {
                json!({ "p50_us": half.as_micros() as u64, "p95_us": most.as_micros() as u64 })
            })
        };
        let groups = self.groups.sorted();
        let differences = groups.iter().map(|group| {
            json!({
                "kind": group.example.part.kind.name(),
                "name": group.example.part.name,
                "requests": group.requests,
                "old": group.example.old,
                "new": group.example.new,
                "request": group.request,
                "curl_old": group.curl[0],
                "curl_new": group.curl[1],
            })
        });
        let varying = self
            .varying
            .iter()
            .map(|(part, count)| json!({ "kind": part.kind.name(), "name": part.name, "requests": count }));
        let skipped: BTreeMap<&str, u64> =
            self.skipped.iter().map(|(reason, count)| (reason.name(), *count)).collect();
        let counts = &self.counts;
        json!({
            "old": self.urls[0],
            "new": self.urls[1],
            "verdict": verdict,
            "says": self.sentence(),
            "usable": counts.usable,
            "chosen": counts.chosen,
            "same": counts.same,
            "different": counts.different,
            "unanswered": counts.unanswered,
            "hosts_with_different_tls": counts.tls,
            "skipped": skipped,
            "differences": differences.collect::<Vec<_>>(),
            "differences_beyond": self.groups.beyond,
            "varying": varying.collect::<Vec<_>>(),
            "time": { "old": micros(0), "new": micros(1) },
            "notes": self.notes,
        })
    }

    /// The report as a page for browsers, in one file.
    pub(super) fn html(&self) -> String {
        html::page(self)
    }
}

impl DifferingPart {
    /// The part in words.
    pub(super) fn words(&self) -> String {
        if self.name.is_empty() || self.kind == DifferenceKind::Redirect {
            return self.kind.name().to_owned();
        }
        format!("{} {}", self.kind.name(), self.name)
    }
}

fn number(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Differences that the text shows.
const SHOWN: usize = 10;
/// Groups that are kept: a side that invents names of fields must not fill the memory.
const MOST_GROUPS: usize = 500;
/// Fields that are compared in a form of their own.
const COMPARED_APART: [&str; 2] = ["content-encoding", "location"];

#[cfg(test)]
mod tests;
