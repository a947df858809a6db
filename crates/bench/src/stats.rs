//! The few statistics that the reports use: medians and their spread, never a mean of noisy rounds.

use serde::{Deserialize, Serialize};

/// A median with its spread over the rounds of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Median absolute deviation from the median.
    pub(crate) mad: f64,
    /// The number of rounds.
    pub(crate) rounds: usize,
}

impl Spread {
    /// The spread of some values; none without values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let middle = median(values)?;
        let deviations: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
        Some(Self {
            median: middle,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mad: median(&deviations)?,
            rounds: values.len(),
        })
    }
}

/// The middle of the sorted values, between the two middle ones of an even count; none without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(upper, *sorted.get(middle.checked_sub(1)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_spread_names_the_extremes_and_the_deviation() {
        let spread = Spread::of(&[1.0, 2.0, 4.0, 8.0, 100.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max, spread.rounds), (4.0, 1.0, 100.0, 5));
        assert_eq!(spread.mad, 3.0);
    }
}
