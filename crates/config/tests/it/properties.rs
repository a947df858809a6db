//! Laws: any text is answered without a panic, what is printed reads back, a difference leads from the old
//! to the new.

use offramp_config::{ConfigDiff, Environment, ItemChange, Keyed, ListDiff, parse, print};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::language;
use crate::strategies::config;

/// An item whose keys collide on purpose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item(u8, u8);

impl Keyed for Item {
    type Key = u8;

    fn key(&self) -> u8 {
        self.0
    }
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    vec((0u8..4, 0u8..3).prop_map(|(key, value)| Item(key, value)), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_difference_of_lists_leads_from_the_old_to_the_new(old in items(), new in items()) {
        let diff = ListDiff::between(&old, &new);
        let (mut items, mut order) = (old.clone(), Vec::new());
        let mut take = |item: &Item| items.iter().position(|old| old == item).map(|at| items.swap_remove(at));
        for change in diff.changes() {
            match change {
                ItemChange::Added(item) => order.push(item.clone()),
                ItemChange::Removed(item) => prop_assert!(take(item).is_some(), "{:?}", item),
                ItemChange::Replaced { old, new } => {
                    prop_assert!(old.key() == new.key() && take(old).is_some(), "{:?}", old);
                    order.push(new.clone());
                }
            }
        }
        items.append(&mut order);
        let mut expected = new.clone();
        items.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(items, expected);
        prop_assert_eq!(diff.is_empty(), old == new);
    }

    #[test]
    fn an_order_that_stays_is_no_change(old in items(), new in items()) {
        let more: Vec<Item> = old.iter().chain(&new).cloned().collect();
        prop_assert!(!ListDiff::between(&more, &old).reordered());
        let turned: Vec<Item> = old.iter().rev().cloned().collect();
        let keys = |items: &[Item]| items.iter().map(Keyed::key).collect::<Vec<_>>();
        let is_turned = keys(&turned) != keys(&old);
        prop_assert_eq!(ListDiff::between(&old, &turned).reordered(), is_turned);
    }

    #[test]
    fn a_difference_of_configurations_leads_from_the_old_to_the_new(old in config(), new in config()) {
        let diff = ConfigDiff::between(&old, &new);
        prop_assert_eq!(diff.is_empty(), old == new);
        prop_assert_eq!(diff.to_string().is_empty(), old == new);
        prop_assert!(ConfigDiff::between(&new, &new).is_empty());
    }

    #[test]
    fn what_is_printed_reads_back(config in config()) {
        let printed = print(&config);
        match parse(&printed, "f.toml", &Environment::default()) {
            Ok((again, _)) => prop_assert_eq!(again, config, "{}", printed),
            Err(errors) => prop_assert!(false, "{}\n{}", errors, printed),
        }
    }

    #[test]
    fn any_text_is_answered(text in ".*") {
        answered(&text);
    }

    #[test]
    fn any_lines_of_a_file_are_answered(kept in vec(prop::bool::weighted(0.93), 200)) {
        for whole in [language::FULL, language::HTTP] {
            let lines = whole.lines().zip(kept.iter().cycle()).filter(|(_, kept)| **kept);
            answered(&lines.map(|(line, _)| format!("{line}\n")).collect::<String>());
        }
    }

    #[test]
    fn any_text_of_the_language_is_answered(pieces in vec(piece(), 0..40)) {
        answered(&pieces.concat());
    }
}

fn piece() -> impl Strategy<Value = String> {
    let keys = offramp_config::keys::TABLE.iter().map(|key| key.name().to_owned());
    let mut pieces: Vec<String> = keys.collect();
    let marks = [
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ",",
        ".",
        "\"",
        "'",
        "\n",
        "\n",
        " ",
        "#",
        "\"x\"",
        "true",
        "-1",
        "0x_1",
        "[route]",
        "[[route]]\n",
        "[backend.a]\n",
        "1979-05-27T07:32:00Z",
        "\"\"\"",
        "\\",
        "\u{feff}",
        "\r",
        "= \"unix:\"\n",
        "= [\"a\", 1]\n",
        "= {",
        "é",
    ];
    pieces.extend(marks.map(str::to_owned));
    select(pieces)
}

fn answered(text: &str) {
    match parse(text, "f.toml", &Environment::default()) {
        Ok((config, warnings)) => {
            assert!(warnings.iter().all(|warning| warning.place().is_some()));
            let again = parse(&print(&config), "f.toml", &Environment::default()).unwrap().0;
            assert!(ConfigDiff::between(&config, &again).is_empty());
        }
        Err(errors) => {
            assert!(errors.count() > 0);
            assert!(!errors.to_string().is_empty());
        }
    }
}
