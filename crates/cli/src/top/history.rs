//! The figures of the last minutes, for curves.

use std::collections::VecDeque;

use serde_json::Value;

use super::summary;

/// Maximum number of points: one for each column of the widest curve.
pub(super) const POINTS: usize = 120;

/// Curves, the newest point first. A curve has no fractions, so a point is a hundredth of its unit.
#[derive(Debug, Default)]
pub(super) struct TopHistory {
    pub(super) requests: VecDeque<u64>,
    pub(super) failures: VecDeque<u64>,
    pub(super) bytes: VecDeque<u64>,
}

impl TopHistory {
    /// Adds a point of each curve, if these figures have rates.
    pub(super) fn add(&mut self, figures: &Value) {
        let points = [
            (&mut self.requests, figures["requests"]["per_second"].as_f64()),
            (&mut self.failures, summary::failures(figures)),
            (&mut self.bytes, figures["bytes"]["out_per_second"].as_f64()),
        ];
        for (curve, point) in points {
            let Some(point) = point else { continue };
            curve.truncate(POINTS - 1);
            curve.push_front((point * 100.0) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn curves_are_bounded_and_begin_with_the_newest() {
        let mut history = TopHistory::default();
        history.add(&json!({ "requests": { "per_second": null }, "bytes": {} }));
        assert!(history.requests.is_empty() && history.failures.is_empty() && history.bytes.is_empty());
        for n in 0..200 {
            history.add(&json!({
                "requests": { "per_second": n, "by_class": { "5xx": 0.5, "none": 0.25 } }, "bytes": { "out_per_second": 1 },
            }));
        }
        assert_eq!((history.requests.len(), history.requests[0], history.failures[0]), (POINTS, 19_900, 75));
    }
}
