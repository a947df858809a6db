//! Numbers in the form that a narrow column has room for: three or four digits.

/// Formats a rate per second; a small one has a fraction, so that it does not look like none.
pub(super) fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.1}"),
        _ => count(value),
    }
}

/// Formats a count, in thousands, millions and so on where it has more than four digits.
pub(super) fn count(value: f64) -> String {
    scaled(value, 1_000.0, &["", "k", "M", "G", "T", "P"])
}

/// Formats a number of bytes by powers of two.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1_024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    let mut is_whole = true;
    while value >= if is_whole { 9_999.5 } else { step - 0.5 }
        && let Some(next) = units.next()
    {
        (value, unit, is_whole) = (value / step, next, false);
    }
    if is_whole || value >= 99.95 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

/// Formats milliseconds, as seconds from ten seconds on.
pub(super) fn milliseconds(value: f64) -> String {
    match value {
        ..9.95 => format!("{value:.1} ms"),
        ..10_000.0 => format!("{value:.0} ms"),
        _ => format!("{:.0} s", value / 1_000.0),
    }
}

/// Formats an age in the unit that leaves one to three digits.
pub(super) fn age(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0}s"),
        ..7_200.0 => format!("{:.0}m", (seconds / 60.0).floor()),
        ..172_800.0 => format!("{:.0}h", (seconds / 3_600.0).floor()),
        _ => format!("{:.0}d", (seconds / 86_400.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rates: Vec<String> = [0.0, 0.2, 9.94, 12.4, 9_999.0, 12_345.0, 1_234_567.0].map(rate).to_vec();
        assert_eq!(rates, ["0", "0.2", "9.9", "12", "9999", "12.3k", "1.2M"]);
        let sizes: Vec<String> = [0.0, 9_999.0, 10_240.0, 204_800.0, 52_428_800.0, 3e15].map(bytes).to_vec();
        assert_eq!(sizes, ["0 B", "9999 B", "10.0 KiB", "200 KiB", "50.0 MiB", "2.7 PiB"]);
        let times: Vec<String> = [0.04, 1.26, 9.96, 250.0, 61_000.0].map(milliseconds).to_vec();
        assert_eq!(times, ["0.0 ms", "1.3 ms", "10 ms", "250 ms", "61 s"]);
        let ages: Vec<String> = [0.0, 119.0, 120.0, 7_199.0, 7_200.0, 172_800.0].map(age).to_vec();
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }
}
