//! Quantities of the configuration language: durations, sizes and rates.
//!
//! Each is an integer with one unit, such as `"250ms"`, `"64KiB"` or `"100/s"`. Fractions, compounds
//! (`"1h30m"`) and decimal units are refused: every quantity has one spelling.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::error::Problem;

/// Units of durations with their milliseconds, the largest first.
pub(crate) const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of sizes with their bytes, the largest first.
pub(crate) const SIZE_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A maximum rate: `count` times per `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of times, 1 or more.
    pub count: NonZeroU32,
    /// The period of the count.
    pub per: Per,
}

/// The period of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// A second, written `"/s"`.
    Second,
    /// A minute, written `"/m"`.
    Minute,
    /// An hour, written `"/h"`.
    Hour,
}

impl Rate {
    /// A constant rate; 0 does not compile.
    pub const fn literal<const COUNT: u32>(per: Per) -> Self {
        let count = const { NonZeroU32::new(COUNT).expect("a rate of 0 allows nothing") };
        Rate { count, per }
    }
}

impl Per {
    /// The period as a duration.
    pub fn duration(self) -> Duration {
        match self {
            Per::Second => Duration::from_secs(1),
            Per::Minute => Duration::from_secs(60),
            Per::Hour => Duration::from_secs(3600),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per {
            Per::Second => "s",
            Per::Minute => "m",
            Per::Hour => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// Parses a duration such as `"250ms"`, `"10s"`, `"5m"`, `"6h"` or `"90d"`.
///
/// # Errors
/// The text is not a duration.
pub fn parse_duration(text: &str) -> Result<Duration, Problem> {
    let help = "write a whole number and one unit of ms, s, m, h or d, such as \"250ms\" or \"5m\"";
    let (number, unit) = split(text);
    let factor = DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let millis = factor.and_then(|factor| number?.checked_mul(factor));
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| Problem::new(format!("`{text}` is not a duration")).help(help))
}

/// Formats a duration in the largest unit that expresses it exactly; fractions of milliseconds are cut off.
pub(crate) fn print_duration(value: Duration) -> String {
    let millis = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    print(millis, &DURATION_UNITS)
}

/// Parses a size in bytes such as `"512B"`, `"64KiB"` or `"10MiB"`.
pub(crate) fn parse_size(text: &str) -> Result<u64, Problem> {
    let (number, unit) = split(text);
    let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    factor.and_then(|factor| number?.checked_mul(factor)).ok_or_else(|| {
        let powers_of_ten =
            matches!(unit.to_ascii_lowercase().as_str(), "k" | "kb" | "m" | "mb" | "g" | "gb");
        let help = if powers_of_ten {
            "sizes are in powers of 1024: write KiB, MiB or GiB"
        } else {
            "write a whole number and one unit of B, KiB, MiB or GiB, such as \"64KiB\""
        };
        Problem::new(format!("`{text}` is not a size")).help(help)
    })
}

/// Formats a size in the largest unit that expresses it exactly.
pub(crate) fn print_size(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    print(bytes, &SIZE_UNITS)
}

/// Parses a rate such as `"100/s"`, `"30/m"` or `"1000/h"`.
pub(crate) fn parse_rate(text: &str) -> Result<Rate, Problem> {
    let parsed = text.split_once('/').and_then(|(count, unit)| {
        let per = match unit {
            "s" => Per::Second,
            "m" => Per::Minute,
            "h" => Per::Hour,
            _ => return None,
        };
        let count = u32::try_from(digits(count)?).ok().and_then(NonZeroU32::new)?;
        Some(Rate { count, per })
    });
    parsed.ok_or_else(|| {
        Problem::new(format!("`{text}` is not a rate"))
            .help("write how many per second, minute or hour, such as \"100/s\", \"30/m\" or \"1000/h\"")
    })
}

fn split(text: &str) -> (Option<u64>, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (digits(number), unit.strip_prefix(' ').unwrap_or(unit))
}

/// Parses digits only: `str::parse` would also accept a sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn print(value: u64, units: &[(&str, u64)]) -> String {
    for (name, factor) in units {
        if value.is_multiple_of(*factor) {
            return format!("{}{name}", value / factor);
        }
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_every_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("6h", 21_600_000),
            ("90d", 7_776_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
            assert_eq!(print_duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for text in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "+1s",
            "1h30m",
            "1 minute",
            "99999999999999999999s",
            "300000000000d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["", "10", "10KB", "10kib", "1.5MiB", "99999999999999GiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in ["", "10", "0/s", "/s", "10/d", "10/", "+1/s", "5000000000/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_of_powers_of_ten_are_explained() {
        assert!(parse_size("10MB").unwrap_err().to_string().contains("powers of 1024"));
    }

    #[test]
    fn sizes_and_rates_print_as_they_are_read() {
        for text in ["1B", "64KiB", "10MiB", "2GiB", "1025B", "0B"] {
            assert_eq!(print_size(parse_size(text).unwrap()), text);
        }
        for text in ["100/s", "1/m", "4294967295/h"] {
            assert_eq!(parse_rate(text).unwrap().to_string(), text);
        }
    }
}
