//! The difference of two configurations as lines for people, bounded.

use std::sync::Arc;

use offramp_config::{Config, ConfigDiff};

/// The most lines of a difference that are kept, and that one message has.
const LINES: usize = 200;
const LINES_IN_MESSAGE: usize = 10;

/// The lines in which `new` differs from `old`; the last says how many were left out.
pub(crate) fn lines(old: &Config, new: &Config) -> Arc<[String]> {
    let difference = ConfigDiff::between(old, new).to_string();
    let more = difference.lines().count().saturating_sub(LINES);
    let lines = difference.lines().take(LINES).map(str::to_owned);
    lines.chain((more > 0).then(|| format!("and {more} more"))).collect()
}

/// Some of the lines, in one.
pub(crate) fn summary(lines: &[String]) -> String {
    let more = lines.len().saturating_sub(LINES_IN_MESSAGE);
    let few = lines[..lines.len() - more].join("; ");
    if more > 0 { format!("{few}; and {more} more: `offramp ctl --json status` has them") } else { few }
}

/// True if both mean the same, wherever they are written.
pub(crate) fn is_same(one: &Config, other: &Config) -> bool {
    ConfigDiff::between(one, other).is_empty()
}
