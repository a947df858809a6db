//! The layout of real configurations: the same meaning, and the same text the second time.

use offramp_config::{Environment, formatted, parse, print};
use proptest::prelude::*;

use crate::documentation::configurations;
use crate::fixtures::texts_of_tests;
use crate::strategies::config;

fn meaning(text: &str) -> Option<String> {
    let environment = Environment { home: Some("/home/operator".into()), ..Environment::default() };
    parse(text, "offramp.toml", &environment).ok().map(|(config, _)| print(&config))
}

/// Lays out a text that is TOML, and returns `true` for a configuration.
fn keeps_its_meaning(text: &str) -> bool {
    let Ok(out) = formatted(text, "offramp.toml") else { return false };
    assert_eq!(formatted(&out, "offramp.toml").as_ref(), Ok(&out), "of {text}");
    let before = meaning(text);
    assert_eq!(meaning(&out), before, "{text}\n{out}");
    before.is_some()
}

#[test]
fn configurations_mean_the_same_when_laid_out() {
    let texts = configurations().into_iter().map(|document| document.to_string());
    let whole = texts.chain(texts_of_tests().flatten()).filter(|text| keeps_its_meaning(text)).count();
    assert!(whole >= 800, "{whole}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_means_the_same_when_laid_out(config in config()) {
        prop_assert!(keeps_its_meaning(&print(&config)));
    }
}
