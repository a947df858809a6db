//! Conversion of single values by the type of their key.

use toml::Spanned as Toml;
use toml::de::{DeArray, DeTable, DeValue};

use super::{Pair, Section, Spanned, Value, unsupported};
use crate::error::{Problem, ProblemCollector, shown};
use crate::keys::{Key, Kind};
use crate::settings::Scalar;
use crate::suggest::nearest;
use crate::units;

/// Returns the value if the key takes it, or reports the problem.
pub(super) fn read(
    key: &Key,
    value: &Toml<DeValue<'_>>,
    report: &mut ProblemCollector<'_>,
) -> Option<Spanned<Value>> {
    let span = report.here(value.span());
    let found = match (key.kind, value.get_ref()) {
        (_, DeValue::Boolean(false)) if key.can_be_off() => Some(Value::Off),
        (
            Kind::Section | Kind::ChoiceOrTable(_) | Kind::TextOrTable(_) | Kind::BoolOrTable,
            DeValue::Table(table),
        ) => Some(Value::Section(Section::read(table, key.path, span.clone(), report))),
        (Kind::Map(_), DeValue::Table(table)) => Some(Value::Map(map(key, table, report))),
        (Kind::Sections, DeValue::Array(array)) => sections(key, array, report).map(Value::Sections),
        // A single unnamed item within a section: its brackets are easily forgotten, and the meaning is
        // clear.
        (Kind::Sections, DeValue::Table(table)) if !key.section().is_empty() => {
            Some(Value::Sections(vec![Section::read(table, key.path, span.clone(), report)]))
        }
        (Kind::Named, DeValue::Table(table)) => Some(Value::Named(named(key, table, report))),
        (Kind::List(_), DeValue::String(text)) => {
            Some(Value::List(vec![Spanned { value: text.to_string(), span: span.clone() }]))
        }
        (Kind::List(_) | Kind::Mixed(_), DeValue::Array(array)) => list(key, array, report).map(Value::List),
        (Kind::Mixed(_), one @ (DeValue::String(_) | DeValue::Integer(_))) => {
            element(key, one).map(|value| Value::List(vec![Spanned { value, span: span.clone() }]))
        }
        (kind, value) => match scalar(key, kind, value) {
            Ok(scalar) => Some(Value::Scalar(scalar)),
            Err(problem) => {
                report.local(&span, problem);
                None
            }
        },
    };
    found.map(|value| Spanned { value, span })
}

fn sections(key: &Key, array: &DeArray<'_>, report: &mut ProblemCollector<'_>) -> Option<Vec<Section>> {
    let mut sections = Vec::new();
    for element in array.iter() {
        let DeValue::Table(table) = element.get_ref() else {
            report.local(&report.here(element.span()), wrong_type(key, element.get_ref()));
            return None;
        };
        let span = report.here(element.span());
        sections.push(Section::read(table, key.path, span, report));
    }
    Some(sections)
}

fn named(
    key: &Key,
    table: &DeTable<'_>,
    report: &mut ProblemCollector<'_>,
) -> Vec<(Spanned<String>, Section)> {
    let path = format!("{}.*", key.path);
    let mut sections = Vec::new();
    for (name, value) in table {
        let text = name.get_ref().to_string();
        let span = report.here(name.span());
        if let DeValue::Table(inner) = value.get_ref() {
            let section = Section::read(inner, &path, report.here(value.span()), report);
            sections.push((Spanned { value: text, span }, section));
        } else {
            let problem = Problem::new(format!("`{}` is not a section of [{}]", shown(&text), key.path));
            let help = format!("give the section a name: [{}.NAME]", key.path);
            report.local(&span, problem.help(help));
        }
    }
    sections
}

fn list(key: &Key, array: &DeArray<'_>, report: &mut ProblemCollector<'_>) -> Option<Vec<Spanned<String>>> {
    let before = report.len();
    let mut texts = Vec::new();
    for element in array.iter() {
        if let Some(value) = self::element(key, element.get_ref()) {
            texts.push(Spanned { value, span: report.here(element.span()) });
        } else {
            let what = a(element.get_ref());
            let problem = Problem::new(format!("`{}` is a list of strings, this is {what}", key.name()));
            report.local(&report.here(element.span()), problem.help("put it in double quotes"));
        }
    }
    (report.len() == before).then_some(texts)
}

/// An element of a list as text; `None` if its type is wrong.
fn element(key: &Key, value: &DeValue<'_>) -> Option<String> {
    match (key.kind, value) {
        (_, DeValue::String(text)) => Some(text.to_string()),
        (Kind::Mixed(_), DeValue::Integer(number)) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// The pairs of a table with user-defined keys. Several values of one key are several pairs; invalid ones are
/// left out.
fn map(key: &Key, table: &DeTable<'_>, report: &mut ProblemCollector<'_>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (name, value) in table {
        let (span, place) = (report.here(name.span()), report.here(value.span()));
        let key_of = |value: Spanned<String>| {
            (Spanned { value: name.get_ref().to_string(), span: span.clone() }, value)
        };
        match value.get_ref() {
            DeValue::String(text) => {
                pairs.push(key_of(Spanned { value: text.to_string(), span: place }));
            }
            DeValue::Array(array) => {
                pairs.extend(list(key, array, report).unwrap_or_default().into_iter().map(key_of));
            }
            other => {
                let name = shown(name.get_ref());
                let problem = Problem::new(format!("`{name}` in `{}` cannot be {}", key.name(), a(other)));
                report.local(&place, problem.help("put it in double quotes"));
            }
        }
    }
    pairs
}

fn scalar(key: &Key, kind: Kind, value: &DeValue<'_>) -> Result<Scalar, Problem> {
    match (kind, value) {
        (Kind::Bool, DeValue::Boolean(value)) => Ok(Scalar::Bool(*value)),
        (Kind::Integer { min, max }, DeValue::Integer(number)) => {
            let digits = number.as_str().replace('_', "");
            let number = u64::from_str_radix(&digits, number.radix()).ok();
            let number = number.filter(|number| (min..=max).contains(number));
            number.map(Scalar::Integer).ok_or_else(|| out_of_bounds(key))
        }
        (Kind::BoolOrTable, DeValue::Boolean(value)) => Ok(Scalar::Bool(*value)),
        (Kind::Text(_) | Kind::TextOrTable(_), DeValue::String(text)) => Ok(Scalar::Text(text.to_string())),
        (Kind::Choice(_) | Kind::ChoiceOrTable(_), DeValue::String(text)) => choice(key, text),
        (Kind::Output(_), DeValue::String(text)) if is_file(text) => Ok(Scalar::Text(text.to_string())),
        (Kind::Output(_), DeValue::String(text)) => choice(key, text).map_err(|problem| {
            let remedy = problem.remedy().unwrap_or_default().to_owned();
            problem.help(format!("{remedy}; a file is written as \"./{}\"", shown(text)))
        }),
        (Kind::Duration { min, max }, DeValue::String(text)) => {
            let duration = units::parse_duration(text)?;
            let bounded = (min..=max).contains(&duration);
            if bounded { Ok(Scalar::Duration(duration)) } else { Err(out_of_bounds(key)) }
        }
        (Kind::Size { min, max }, DeValue::String(text)) => {
            let size = units::parse_size(text)?;
            if (min..=max).contains(&size) { Ok(Scalar::Size(size)) } else { Err(out_of_bounds(key)) }
        }
        (Kind::WordOrSize { word, .. }, DeValue::String(text)) if text == word => {
            Ok(Scalar::Text(word.to_owned()))
        }
        (Kind::WordOrSize { min, max, .. }, DeValue::String(text)) => {
            let size = units::parse_size(text)?;
            if (min..=max).contains(&size) { Ok(Scalar::Size(size)) } else { Err(out_of_bounds(key)) }
        }
        (Kind::Rate, DeValue::String(text)) => units::parse_rate(text).map(Scalar::Rate),
        (_, value) => Err(wrong_type(key, value)),
    }
}

/// Returns `true` for paths: no word has a slash or a dot.
fn is_file(text: &str) -> bool {
    text.contains(['/', '.'])
}

fn choice(key: &Key, text: &str) -> Result<Scalar, Problem> {
    let choices = key.kind.choices();
    match choices.iter().find(|choice| choice.matches(text)) {
        Some(choice) if choice.support.is_now() => Ok(Scalar::Text(text.to_owned())),
        Some(_) => {
            let problem = unsupported(&format!("`{} = \"{}\"`", key.name(), shown(text)));
            Err(problem.suggest("value", None, &supported(key)))
        }
        None => {
            let problem = Problem::new(format!("`{}` is no value of `{}`", shown(text), key.name()));
            let problem = problem.suggest(
                "value",
                nearest(text, choices.iter().map(|choice| choice.word)),
                &supported(key),
            );
            Err(problem)
        }
    }
}

fn supported(key: &Key) -> Vec<&'static str> {
    let choices = key.kind.choices().iter();
    choices.filter(|choice| choice.support.is_now()).map(|choice| choice.word).collect()
}

fn out_of_bounds(key: &Key) -> Problem {
    Problem::new(format!("`{}` is out of bounds", key.name())).help(format!("it takes {}", article(key.kind)))
}

fn wrong_type(key: &Key, value: &DeValue<'_>) -> Problem {
    let problem = Problem::new(format!("`{}` cannot be {}", key.name(), a(value)));
    let help = match (key.kind, value) {
        (Kind::Sections, DeValue::Table(_)) => format!("write it with two brackets: [[{}]]", key.path),
        (Kind::Section, DeValue::Array(_)) => {
            format!("write it once and with one bracket: [{}]", key.name())
        }
        // In an item of a list, a header of its own would belong to the whole file.
        (Kind::Section, _) if key.path.starts_with("route.") => {
            format!("it is a table: {} = {{ ... }}", key.name())
        }
        (Kind::Section, _) => format!("it is a section: [{}]", key.name()),
        (Kind::Sections, _) => format!("it is a section: [[{}]]", key.path),
        (Kind::Named, _) => format!("it is a section with a name: [{}.NAME]", key.name()),
        (Kind::Bool | Kind::Integer { .. }, DeValue::String(_)) => {
            format!("it takes {}, without quotes", article(key.kind))
        }
        (Kind::Duration { .. }, DeValue::Integer(number)) => {
            format!("durations have a unit: \"{}s\"", shown(number.as_str()))
        }
        (Kind::Size { .. }, DeValue::Integer(number)) => {
            format!("sizes have a unit: \"{}B\"", shown(number.as_str()))
        }
        (Kind::Rate, DeValue::Integer(number)) => {
            format!("rates have a unit: \"{}/s\"", shown(number.as_str()))
        }
        (kind, _) => format!("it takes {}", article(kind)),
    };
    if key.can_be_off() {
        return problem.help(format!("{help}; `false` takes nothing over from policies and defaults"));
    }
    problem.help(help)
}

fn article(kind: Kind) -> String {
    match kind {
        Kind::Integer { .. }
        | Kind::Text(_)
        | Kind::TextOrTable(_)
        | Kind::List(_)
        | Kind::Mixed(_)
        | Kind::Map(_)
        | Kind::Size { .. }
        | Kind::Duration { .. }
        | Kind::Rate => format!("a {kind}"),
        _ => kind.to_string(),
    }
}

fn a(value: &DeValue<'_>) -> String {
    match value.type_str() {
        kind @ ("integer" | "array") => format!("an {kind}"),
        kind => format!("a {kind}"),
    }
}
