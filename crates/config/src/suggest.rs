//! The nearest valid word to a misspelt one.
//!
//! Only suggestions that are likely meant are made: at most a third of the letters may differ.

/// The candidate nearest to `word` by edits, or `None` where none is near or
/// several are equally so.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = normal(word).take(MAX_LENGTH).collect();
    let limit = (word.len() / 3).max(1);
    let mut best: Option<(usize, Option<&str>)> = None;
    for candidate in candidates.into_iter().take(MAX_CANDIDATES) {
        let letters: Vec<char> = normal(candidate).collect();
        // A short cut written in full ("addr", "cert_file") is nearer than its edit distance says.
        let shared = letters.iter().zip(&word).take_while(|(a, b)| a == b).count();
        let abbreviated = shared >= 4 && (shared == word.len() || shared == letters.len());
        let distance = distance(&word, &letters);
        if !(distance <= limit || abbreviated) {
            continue;
        }
        best = match best {
            Some((least, _)) if least < distance => best,
            // Of two that are equally near neither is likelier.
            Some((least, _)) if least == distance => Some((least, None)),
            _ => Some((distance, Some(candidate))),
        };
    }
    best.and_then(|(_, candidate)| candidate)
}

/// More candidates than this are not looked at: the work stays bounded for any file.
const MAX_CANDIDATES: usize = 256;

/// Longer words than this are compared by their beginning: the work stays bounded for any input.
const MAX_LENGTH: usize = 64;

fn normal(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() })
}

/// Insertions, deletions, replacements, and exchanges of neighbours (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut cost = (above[j] + usize::from(x != y)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_found() {
        let keys = ["connections", "connections_per_client", "idle_timeout", "connect_timeout", "address"];
        assert_eq!(nearest("idle_timout", keys), Some("idle_timeout"));
        assert_eq!(nearest("idle-timeout", keys), Some("idle_timeout"));
        assert_eq!(nearest("conections", keys), Some("connections"));
        assert_eq!(nearest("addr", keys), Some("address"));
        assert_eq!(nearest("conncet_timeout", keys), Some("connect_timeout"));
    }

    #[test]
    fn the_far_is_not_guessed() {
        assert_eq!(nearest("colour", ["address", "mode", "name"]), None);
        assert_eq!(nearest("v3", ["v1", "v2"]), None);
        assert_eq!(nearest("", ["address"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["address"]), None);
    }

    #[test]
    fn distances() {
        let d = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(d("", ""), 0);
        assert_eq!(d("abc", ""), 3);
        assert_eq!(d("kitten", "sitting"), 3);
        assert_eq!(d("hots", "host"), 1);
    }
}
