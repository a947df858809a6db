//! Two runs side by side.
//!
//! Absolute figures of a shared machine drift by a third from hour to hour, so a change counts as one only
//! where the spreads of the two runs do not meet; the ratios within each run stand beside it.

use std::fmt::Write;

use crate::metrics::{self, Better, METRICS};
use crate::report::markdown::{align, number};
use crate::report::{Row, Summary};
use crate::stats::Spread;

/// A table of the figures that both runs have.
pub(crate) fn table(a: &Summary, b: &Summary) -> String {
    let mut out = String::new();
    if a.machine.cpu != b.machine.cpu || a.machine.cores != b.machine.cores {
        let (a, b) = (&a.machine, &b.machine);
        let _ = writeln!(
            out,
            "Different machines: {} with {} cores, {} with {}. Compare ratios only.\n",
            a.cpu, a.cores, b.cpu, b.cores
        );
    }
    let (ours, theirs) = (a.machine.network.clause(), b.machine.network.clause());
    if a.machine.network.congestion != b.machine.network.congestion {
        let _ = writeln!(out, "A: {ours}. B: {theirs}. This alone changes figures and ratios.\n");
    }
    let mut lines = vec![
        ["case", "contestant", "figure", "A", "B", "B over A", "ratio A", "ratio B", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    for case in &a.cases {
        for row in &case.rows {
            let Some(other) = b.row(&case.info.name, &row.contestant) else { continue };
            lines.extend(pairs(&case.info.figure, row, other).map(|mut line| {
                line.insert(0, case.info.name.clone());
                line
            }));
        }
    }
    if lines.len() == 1 {
        return out + "The two runs have no case and contestant in common.\n";
    }
    out + &align(&lines)
}

/// One line for each figure that is worth a comparison: the one that the case is about, and throughput.
fn pairs(figure: &str, a: &Row, b: &Row) -> impl Iterator<Item = Vec<String>> {
    METRICS.iter().filter(move |m| m.name == figure || m.name == metrics::PER_SECOND).filter_map(move |m| {
        let (x, y) = (a.metrics.get(m.name)?, b.metrics.get(m.name)?);
        let ratio = |row: &Row| row.ratios.get(m.name).map_or_else(String::new, |r| format!("{r:.2}"));
        Some(vec![
            a.contestant.clone(),
            m.label.to_owned(),
            number(m.name, x.median),
            number(m.name, y.median),
            format!("{:.2}", y.median / x.median),
            ratio(a),
            ratio(b),
            change(m.better, x, y).to_owned(),
        ])
    })
}

/// What the second figure is to the first.
fn change(better: Better, a: &Spread, b: &Spread) -> &'static str {
    let (below, above) = (b.max < a.min, b.min > a.max);
    match (better, below, above) {
        (Better::Lower, true, _) | (Better::Higher, _, true) => "better",
        (Better::Lower, _, true) | (Better::Higher, true, _) => "worse",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_spreads_that_do_not_meet_are_a_change() {
        let spread = |values: &[f64]| Spread::of(values).unwrap();
        let (low, high, wide) = (spread(&[1.0, 2.0]), spread(&[3.0, 4.0]), spread(&[1.5, 5.0]));
        assert_eq!(change(Better::Lower, &low, &high), "worse");
        assert_eq!(change(Better::Higher, &low, &high), "better");
        assert_eq!(change(Better::Lower, &high, &low), "better");
        assert_eq!(change(Better::Lower, &low, &wide), "");
        assert_eq!(change(Better::Neutral, &low, &high), "");
    }
}
