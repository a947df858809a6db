//! Whole numbers within bounds, in decimal.

/// The expression of the numbers from `least` to `most` without leading zeros.
pub(crate) fn range(least: u64, most: u64) -> String {
    let mut ways = Vec::new();
    let mut from = least;
    // Lengths of which every number is within the bounds.
    let mut whole: Option<(usize, usize)> = None;
    for length in 1..=20_u32 {
        let (first, next) = (10_u64.pow(length - 1), 10_u64.checked_pow(length));
        let last = next.map_or(u64::MAX, |next| next - 1);
        if from > last {
            continue;
        }
        let (from_here, to) = (from, last.min(most));
        if from_here == first && to == last && next.is_some() {
            let rest = length as usize - 1;
            whole = Some((whole.map_or(rest, |(shortest, _)| shortest), rest));
        } else {
            ways.push(of_one_length(&from_here.to_string(), &to.to_string()));
        }
        if last >= most {
            break;
        }
        from = last + 1;
    }
    ways.extend(whole.map(|(shortest, longest)| match (shortest, longest) {
        (shortest, longest) if shortest == longest => format!("[1-9]{}", digits_of(shortest)),
        (shortest, longest) => format!("[1-9][0-9]{{{shortest},{longest}}}"),
    }));
    ways.join("|")
}

/// The same for two numbers of as many digits.
fn of_one_length(least: &str, most: &str) -> String {
    let (Some(low), Some(high)) = (least.chars().next(), most.chars().next()) else { return String::new() };
    let (low_rest, high_rest) = (&least[1..], &most[1..]);
    let all = |rest: &str, digit: char| rest.chars().all(|c| c == digit);
    if all(low_rest, '0') && all(high_rest, '9') {
        return format!("{}{}", digits(low, high), digits_of(low_rest.len()));
    }
    if low == high {
        let rest = of_one_length(low_rest, high_rest);
        return if rest.contains('|') { format!("{low}(?:{rest})") } else { format!("{low}{rest}") };
    }
    let mut ways = Vec::new();
    let (mut first, mut last) = (low, high);
    if !all(low_rest, '0') {
        ways.push(of_one_length(least, &format!("{low}{}", "9".repeat(low_rest.len()))));
        first = next(low);
    }
    let whole = all(high_rest, '9');
    if !whole {
        last = before(high);
    }
    if first <= last {
        ways.push(format!("{}{}", digits(first, last), digits_of(low_rest.len())));
    }
    if !whole {
        ways.push(of_one_length(&format!("{high}{}", "0".repeat(high_rest.len())), most));
    }
    ways.join("|")
}

fn next(digit: char) -> char {
    char::from_digit(digit.to_digit(10).unwrap_or(0) + 1, 10).unwrap_or('9')
}

fn before(digit: char) -> char {
    char::from_digit(digit.to_digit(10).unwrap_or(0).saturating_sub(1), 10).unwrap_or('0')
}

fn digits(first: char, last: char) -> String {
    if first == last { first.to_string() } else { format!("[{first}-{last}]") }
}

fn digits_of(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        count => format!("[0-9]{{{count}}}"),
    }
}

/// The pattern of a quantity from `least` to `most`: a number, a blank perhaps, and a unit that stands for so many.
pub(crate) fn counted(least: u64, most: u64, units: &[(&str, u64)]) -> String {
    let way = |(unit, factor): &(&str, u64)| {
        let (from, to) = (least.div_ceil(*factor), most / factor);
        (from <= to).then(|| format!("(?:{}) ?{unit}", range(from, to)))
    };
    let ways: Vec<String> = units.iter().filter_map(way).collect();
    format!("0*(?:{})", ways.join("|"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    proptest! {
        #[test]
        fn a_range_has_its_numbers_and_no_other(
            bounds in prop_oneof![(0..1200_u64, 0..1200_u64), any::<(u64, u64)>(), (0..99_u64, any::<u64>())],
            number in prop_oneof![0..1200_u64, any::<u64>()],
        ) {
            let (least, most) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
            let pattern = Regex::new(&format!("^(?:{})$", range(least, most))).unwrap();
            let near = |edge: u64| [edge.saturating_sub(1), edge, edge.saturating_add(1)];
            for number in near(least).into_iter().chain(near(most)).chain([number]) {
                let expected = (least..=most).contains(&number);
                prop_assert_eq!(pattern.is_match(&number.to_string()), expected, "{} in {}", number, pattern);
            }
        }
    }

    #[test]
    fn every_small_range_is_exact() {
        for least in 0..=130 {
            for most in least..=130 {
                let pattern = Regex::new(&format!("^(?:{})$", range(least, most))).unwrap();
                for number in 0..=1310_u64 {
                    let text = number.to_string();
                    assert_eq!(
                        pattern.is_match(&text),
                        (least..=most).contains(&number),
                        "{text} in {pattern}"
                    );
                }
            }
        }
    }
}
