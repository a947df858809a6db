//! Values as the configuration of Offramp writes them: times, sizes, names, and texts with variables.

use std::time::Duration;

use crate::draft::quoted;

/// A time in TOML.
pub(crate) fn toml_time(time: Duration) -> String {
    let ms = time.as_millis();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms != 0 && ms.is_multiple_of(unit) {
            return quoted(&format!("{}{name}", ms / unit));
        }
    }
    quoted(&format!("{ms}ms"))
}

/// A size in TOML.
pub(crate) fn toml_size(size: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if size != 0 && size.is_multiple_of(unit) {
            return quoted(&format!("{}{name}", size / unit));
        }
    }
    quoted(&format!("{size}B"))
}

/// Braces that could be a variable, doubled.
pub(crate) fn escaped(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut open = false;
    for (at, letter) in letters.iter().enumerate() {
        match letter {
            '{' if letters.get(at + 1).is_some_and(char::is_ascii_alphabetic) => {
                let end = letters[at..].iter().position(|letter| *letter == '}');
                let is_name = |letter: &char| letter.is_ascii_alphanumeric() || "_.-".contains(*letter);
                open = end.is_some_and(|end| letters[at + 1..at + end].iter().all(is_name));
                out.push_str(if open { "{{" } else { "{" });
            }
            '}' if open => {
                open = false;
                out.push_str("}}");
            }
            letter => out.push(*letter),
        }
    }
    out
}

/// The letters of a name for a backend or a listener.
pub(crate) fn name(text: &str) -> String {
    let letter = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || letter == '_' || letter == '-' => letter,
        _ => '-',
    };
    let name: String = text.chars().map(letter).take(50).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "backend".to_owned() } else { name.to_owned() }
}
