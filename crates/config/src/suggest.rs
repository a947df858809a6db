//! Suggestions for misspelt words.
//!
//! Only likely ones are made: at most a third of the letters may differ.

/// The candidate with the fewest edits from `word`, or `None` if none is near or several are equally near.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = normal(word).take(MAX_LENGTH).collect();
    let length = word.chars().count();
    let limit = (length / 3).max(1);
    let mut best: Option<(usize, Option<&str>)> = None;
    for candidate in candidates.into_iter().take(MAX_CANDIDATES) {
        let candidate_word: String = normal(candidate).collect();
        // A word and its abbreviation ("addr", "cert_file") are nearer than their edit distance.
        let shared = candidate_word.chars().zip(word.chars()).take_while(|(a, b)| a == b).count();
        let abbreviated = shared >= 4 && (shared == length || shared == candidate_word.chars().count());
        // Insertions, deletions, replacements, and exchanges of neighbours.
        let distance = strsim::osa_distance(&word, &candidate_word);
        if !(distance <= limit || abbreviated) {
            continue;
        }
        best = match best {
            Some((least, _)) if least < distance => best,
            // Of two equally near ones neither is more likely.
            Some((least, _)) if least == distance => Some((least, None)),
            _ => Some((distance, Some(candidate))),
        };
    }
    best.and_then(|(_, candidate)| candidate)
}

/// The maximum number of candidates, which bounds the work for any file.
const MAX_CANDIDATES: usize = 256;

/// The length to which words are cut, which bounds the work for any input.
const MAX_LENGTH: usize = 64;

fn normal(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() })
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
}
