use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;
use regex::Regex;

use super::*;
use crate::error::{At, Problem};
use crate::keys::TABLE;
use crate::model::{CertificateName, Pin};
use crate::settings::{Scalar, ValueOrigin, WrittenValue};
use crate::syntax::TextSyntax;
use crate::units;

fn parsed() -> Value {
    serde_json::from_str(&schema()).unwrap()
}

/// The definition that a reference names, or the schema itself.
fn defined<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema };
    root.pointer(reference.strip_prefix('#').unwrap()).unwrap()
}

/// The schemas below one that may describe the same place.
fn ways<'s>(root: &'s Value, schema: &'s Value) -> Vec<&'s Value> {
    let schema = defined(root, schema);
    let mut all = vec![schema];
    let below = ["anyOf", "allOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
    all.extend(below.flat_map(|schema| ways(root, schema)));
    all.extend(schema.get("items").into_iter().flat_map(|items| ways(root, items)));
    all
}

/// The schema of the key with this path.
fn at<'s>(root: &'s Value, path: &str) -> Option<&'s Value> {
    let mut here = root;
    for part in path.split('.') {
        let next = ways(root, here).into_iter().find_map(|schema| match part {
            "*" => {
                let named = schema["patternProperties"].as_object().and_then(|all| all.values().next());
                named.or_else(|| schema.get("additionalProperties").filter(|inner| inner.is_object()))
            }
            name => schema["properties"].get(name),
        });
        here = defined(root, next?);
    }
    Some(here)
}

#[test]
fn every_key_is_in_the_schema_with_its_documentation_and_default() {
    let root = parsed();
    for key in TABLE.iter().filter(|key| key.support.is_now()) {
        let mut paths = vec![key.path.to_owned()];
        if let Some(below) = key.path.strip_prefix("route.") {
            let name = below.split('.').next().unwrap();
            for section in ["defaults.route", "policy.*"] {
                let shared = in_section(section).any(|key| key.name() == name);
                let path = format!("{section}.{below}");
                assert_eq!(at(&root, &path).is_some(), shared, "{path}");
                paths.extend(shared.then_some(path));
            }
        }
        for path in paths {
            let entry = at(&root, &path).unwrap_or_else(|| panic!("{path} is not in the schema"));
            let description = entry["description"].as_str().unwrap();
            assert!(description.starts_with(&without_links(key.doc)), "{path}: {description}");
            assert!(!description.contains("](") && !description.contains('\n'), "{path}: {description}");
            match key.default {
                Default::Toml(text) => {
                    assert!(!entry["default"].is_null(), "{path}: {text}");
                }
                _ => assert!(entry.get("default").is_none(), "{path}"),
            }
        }
    }
}

#[test]
fn no_table_takes_unknown_keys_and_no_reference_is_open() {
    fn look(schema: &Value, root: &Value, tables: &mut usize) {
        let is_table = schema["type"] == "object"
            || schema["type"].as_array().is_some_and(|types| types.contains(&json!("object")));
        if is_table && schema.get("else").is_none() && schema.as_object().unwrap().len() > 1 {
            let open = schema.get("additionalProperties");
            let is_map = open.is_some_and(Value::is_object);
            assert!(is_map || open == Some(&json!(false)), "{schema}");
            *tables += 1;
        }
        if let Some(reference) = schema.get("$ref") {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(root.pointer(pointer).is_some(), "{pointer}");
            assert_eq!(schema.as_object().unwrap().len(), 1, "beside a reference: {schema}");
        }
        match schema {
            Value::Object(all) => all.iter().filter(|(name, _)| *name != "default").for_each(|(_, inner)| {
                look(inner, root, tables);
            }),
            Value::Array(all) => all.iter().for_each(|inner| look(inner, root, tables)),
            _ => {}
        }
    }
    let (root, mut tables) = (parsed(), 0);
    look(&root, &root, &mut tables);
    assert!(tables > 50, "{tables}");
}

#[test]
fn every_default_is_valid() {
    let root = parsed();
    for key in TABLE {
        let Some(entry) = at(&root, key.path).filter(|entry| entry.get("default").is_some()) else {
            continue;
        };
        let mut alone = entry.clone();
        alone["definitions"] = root["definitions"].clone();
        let validator = jsonschema::draft7::new(&alone).unwrap();
        assert!(validator.is_valid(&entry["default"]), "{}: {}", key.path, entry["default"]);
    }
}

#[test]
fn every_text_has_a_spelling() {
    let texts = TABLE.iter().filter(|key| {
        matches!(
            key.kind,
            Kind::Text(_) | Kind::TextOrTable(_) | Kind::List(_) | Kind::Mixed(_) | Kind::Map(_)
        )
    });
    let without: Vec<&str> = texts.filter(|key| key.syntax().is_none()).map(|key| key.path).collect();
    assert!(without.is_empty(), "write `syntax` and a variant of `TextSyntax` into these rows: {without:?}");
}

/// The mistake of a text as the value of a key, or as the one element of a list.
fn mistake(key: &Key, text: &str) -> Option<Problem> {
    let list = matches!(key.kind, Kind::List(_) | Kind::Mixed(_));
    let value = if list { Scalar::List(vec![text.to_owned()]) } else { Scalar::Text(text.to_owned()) };
    let origin = |_| ValueOrigin { folder: Path::new("/"), at: At::NOWHERE };
    let written = WrittenValue { name: key.name(), value: &value, origin: &origin };
    match (key.reading.field(), key.path) {
        (Some(field), _) => field.misfits(&written).into_iter().next().map(|misfit| misfit.problem),
        (None, "certificate.names") => text.parse::<CertificateName>().err(),
        (None, "backend.*.tls.pin") => text.parse::<Pin>().err(),
        (None, path) => panic!("nothing reads {path} here"),
    }
}

/// The reason why a pattern accepts a text that the parser refuses, where `TextSyntax` says that it does.
fn is_left_out(syntax: TextSyntax, text: &str, problem: &Problem) -> bool {
    let said = problem.to_string();
    match syntax {
        _ if text.len() > 63 => true,
        TextSyntax::Network | TextSyntax::Networks => said.contains("has bits set"),
        TextSyntax::Upgrade => said.contains("a protocol that a connection can change to"),
        TextSyntax::FileName => [".", ".."].contains(&text),
        TextSyntax::Store => text.contains("***"),
        TextSyntax::NotifyUrl => said.contains("without TLS") || said.contains("not shown"),
        TextSyntax::ProgramWord => said.contains("no absolute path"),
        TextSyntax::Share => said.contains("no share from"),
        // The scheme before a host that is called `unix`.
        TextSyntax::Collector | TextSyntax::Syslog => text.contains("//unix:"),
        _ => false,
    }
}

/// Fields that may not be changed or sent are left out of the pattern.
fn is_forbidden(problem: &Problem) -> bool {
    let said = problem.to_string();
    said.contains("cannot be changed") || said.contains("cannot say who the client is")
}

/// Texts near those of a pattern: with a character less, more or exchanged.
fn near(text: &str, at: Index, other: char) -> [String; 3] {
    let letters: Vec<char> = text.chars().collect();
    let place = at.index(letters.len() + 1);
    let rest = letters.get(place + 1..).unwrap_or_default();
    let (before, after) = letters.split_at(place);
    let join = |middle: &[char], after: &[char]| [before, middle, after].concat().into_iter().collect();
    [join(&[], rest), join(&[other], after), join(&[other], rest)]
}

#[test]
fn a_text_is_of_the_pattern_if_and_only_if_its_parser_takes_it() {
    let own = ["certificate.names", "backend.*.tls.pin"];
    let mut seen: Vec<String> = Vec::new();
    for key in TABLE {
        let read = key.reading.field().is_some() || own.contains(&key.path);
        let Some(syntax) = key.syntax().filter(|_| read && !matches!(key.kind, Kind::Output(_))) else {
            continue;
        };
        let Some(pattern) = syntax.pattern() else { continue };
        let spelling = format!("{syntax:?}");
        if key.syntax.is_none() && seen.contains(&spelling) {
            continue;
        }
        seen.push(spelling);
        let expected = Regex::new(&pattern).unwrap();
        let texts = string_regex(pattern.trim_matches(['^', '$'])).unwrap();
        let others = select("\t \0./:*@%{}[]#?aZ09-_+é,\"\\~=|xg".chars().collect::<Vec<char>>());
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 192,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let outcome = runner.run(&(texts, any::<Index>(), others), |(text, place, other)| {
            if let Some(problem) = mistake(key, &text) {
                let left_out = is_left_out(syntax, &text, &problem) || is_forbidden(&problem);
                prop_assert!(left_out, "{}: {text:?} is of the pattern: {problem}", key.path);
            }
            for near in near(&text, place, other) {
                let taken = mistake(key, &near).is_none();
                prop_assert!(!taken || expected.is_match(&near), "{} takes {near:?}", key.path);
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", key.path));
    }
    assert!(seen.len() > 30, "{seen:?}");
}

#[test]
fn quantities_are_of_the_pattern_if_and_only_if_they_are_within_bounds() {
    let root = parsed();
    let quantities = TABLE.iter().filter(|key| {
        matches!(key.kind, Kind::Duration { .. } | Kind::Size { .. } | Kind::WordOrSize { .. } | Kind::Rate)
    });
    for key in quantities {
        let mut alone = at(&root, key.path).unwrap().clone();
        alone["definitions"] = root["definitions"].clone();
        let validator = jsonschema::draft7::new(&alone).unwrap();
        let is_right = |text: &str| match key.kind {
            Kind::Duration { min, max } => {
                units::parse_duration(text).is_ok_and(|time| (min..=max).contains(&time))
            }
            Kind::Size { min, max } | Kind::WordOrSize { min, max, .. } => {
                units::parse_size(text).is_ok_and(|size| (min..=max).contains(&size))
            }
            _ => units::parse_rate(text).is_ok(),
        };
        let mut numbers: Vec<u64> = (0..40).flat_map(|power| [(1 << power) - 1, 1 << power]).collect();
        numbers.extend([10, 60, 61, 72, 73, 365, 3650, 3651, 16_384, 16_385, u64::from(u32::MAX), u64::MAX]);
        let mut edges = numbers.clone();
        if let Kind::Duration { min, max } = key.kind {
            for (_, factor) in units::DURATION_UNITS {
                let edge = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap() / factor;
                edges.extend([min, max].map(edge).into_iter().flat_map(|n| [n.saturating_sub(1), n, n + 1]));
            }
        }
        let units = ["ms", "s", "m", "h", "d", "B", "KiB", "MiB", "GiB", "/s", "/m", "/h", "", "KB", "/d"];
        for number in edges {
            for unit in units {
                for text in
                    [format!("{number}{unit}"), format!("00{number} {unit}"), format!("-{number}{unit}")]
                {
                    let found = validator.is_valid(&json!(text));
                    assert_eq!(found, is_right(&text), "{}: {text:?}", key.path);
                }
            }
        }
        assert!(!validator.is_valid(&json!(5)), "{}", key.path);
    }
}
