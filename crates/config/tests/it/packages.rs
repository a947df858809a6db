//! The configuration that the Debian package begins with.

use offramp_config::{Environment, formatted, parse};

use crate::blessed::read;

const FIRST: &str = "../../deploy/debian/offramp.toml";

#[test]
fn the_first_configuration_is_in_the_canonical_layout_and_has_no_warning() {
    let text = read(FIRST);
    assert_eq!(formatted(&text, FIRST).unwrap(), text);
    let (config, warnings) = parse(&text, FIRST, &Environment::default()).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!((config.listeners.len(), config.routes.len()), (1, 1));
}

/// A key that is commented out has a `#` without a blank after it.
#[test]
fn what_it_proposes_is_valid() {
    let proposes = |line: &&str| {
        line.starts_with('#') && line[1..].starts_with(|c: char| c == '[' || c.is_ascii_lowercase())
    };
    let text = read(FIRST);
    assert!(text.lines().filter(proposes).count() >= 10, "{text}");
    let lines = text.lines().map(|line| if proposes(&line) { &line[1..] } else { line });
    let (config, _) = parse(&lines.collect::<Vec<_>>().join("\n"), FIRST, &Environment::default()).unwrap();
    assert_eq!((config.listeners.len(), config.routes.len()), (2, 3));
}
