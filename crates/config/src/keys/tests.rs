use super::*;

#[test]
fn paths_are_unique_and_their_sections_exist() {
    for (at, key) in TABLE.iter().enumerate() {
        assert!(TABLE[..at].iter().all(|other| other.path != key.path), "{} twice", key.path);
        let section = key.section().trim_end_matches(".*");
        assert!(section.is_empty() || find(section).is_some(), "{} has no section", key.path);
    }
}

#[test]
fn documentation_is_one_sentence_without_its_period() {
    for key in TABLE {
        assert!(!key.doc.is_empty() && !key.doc.ends_with('.') && !key.doc.contains('|'), "{}", key.path);
    }
}

#[test]
fn keys_of_planned_sections_are_planned() {
    for key in TABLE {
        let mut section = key.section();
        while !section.is_empty() {
            let planned = find(section).is_some_and(|key| key.support == Support::Planned);
            assert!(!planned || key.support == Support::Planned, "{}", key.path);
            section = section.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }
}

#[test]
fn what_can_be_shared_can_be_switched_off() {
    for key in in_section("defaults.route").chain(in_section("policy.*")) {
        // All others have a default that can be written.
        assert!(key.can_be_off() || matches!(key.default, Default::Toml(_)), "{}", key.path);
        assert!(!key.can_be_off() || !matches!(key.kind, Kind::Bool | Kind::BoolOrTable), "{}", key.path);
    }
    let of = |path: &str| find(path).unwrap().can_be_off();
    assert!(of("route.basic_auth") && of("route.allow") && of("route.policy") && of("route.max_body"));
    assert!(!of("route.server") && !of("route.compress") && !of("route.log_one_in"));
    assert!(!of("listener.allow"));
}

#[test]
fn headers() {
    assert_eq!(header("limits"), "[limits]");
    assert_eq!(header("route"), "[[route]]");
    assert_eq!(header("backend.*"), "[backend.NAME]");
    assert_eq!(header("defaults.route"), "[defaults.route]");
    assert_eq!(header("route.client_auth"), "`client_auth` of [[route]]");
}

/// The section of the keys of a table.
fn inner(key: &Key) -> String {
    if matches!(key.kind, Kind::Named) { format!("{}.*", key.path) } else { key.path.to_owned() }
}

#[test]
fn every_key_is_bound_to_a_field_or_says_why_not() {
    for key in TABLE {
        let has_keys = key.accepts_table() && in_section(&inner(key)).next().is_some();
        assert!(
            has_keys || !matches!(key.reading, KeyReading::Table),
            "nothing reads `{}`: write the field of the model that has its value into its row, such as \
             `in Route.bandwidth`. If no field has the value alone, write `own` and one of the reasons of `KeyReading`, and \
             read it in `check`",
            key.path
        );
    }
}

#[test]
fn settings_are_bound_to_the_configuration() {
    let items = ["notify", "certificate", "acme", "listener", "route", "backend"];
    let is_setting = |key: &&Key| !items.contains(&key.path.split('.').next().unwrap());
    for key in TABLE.iter().filter(is_setting).filter(|key| key.reading.field().is_some()) {
        assert!(settings().any(|(other, _)| other.path == key.path), "{} is in no `Config`", key.path);
    }
    for need in crate::settings::NEEDS {
        assert!(settings().any(|(key, _)| key.path == need.path), "{}", need.path);
    }
}

#[test]
fn defaults_of_the_model_are_those_of_the_table() {
    for key in TABLE {
        let (Some(field), Default::Toml(default)) = (key.reading.field(), key.default) else { continue };
        let value = field.blank_value().map(|value| value.to_string());
        if key.path == "route.upgrade" {
            // The protocols of a route are those of the worker where it names none.
            assert_eq!(value, None);
            continue;
        }
        // One value stands for a list of one.
        let list = format!("[{default}]");
        let value = value.unwrap_or_default();
        assert!(value == default || value == list, "{}: {value}", key.path);
    }
}
