//! Schemas of values by the kind of their key.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::either;
use crate::choice::Choice;
use crate::keys::{Key, Kind};
use crate::syntax::{TextSyntax, counted, range};
use crate::units::{DURATION_UNITS, SIZE_UNITS};

/// The schemas of values, of which some are defined once.
#[derive(Default)]
pub(super) struct SchemaValues {
    definitions: Map<String, Value>,
}

impl SchemaValues {
    pub(super) fn definitions(self) -> Map<String, Value> {
        self.definitions
    }

    /// A reference to the definition of a key that several sections share.
    pub(super) fn shared(&mut self, key: &Key) -> Value {
        if !self.definitions.contains_key(key.path) {
            let entry = super::entry(key, self);
            self.definitions.insert(key.path.to_owned(), entry);
        }
        reference(key.path)
    }

    /// The schema of the value of a key; of a text where it may be a table too.
    pub(super) fn of(&mut self, key: &Key) -> Value {
        match key.kind {
            Kind::Bool | Kind::BoolOrTable => json!({ "type": "boolean" }),
            Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::Choice(choices) | Kind::ChoiceOrTable(choices) => choice(choices),
            Kind::Output(choices) => {
                json!({ "anyOf": [choice(choices), { "type": "string", "pattern": r"^[^\x00]*[/.][^\x00]*$" }] })
            }
            Kind::Text(_) | Kind::TextOrTable(_) => self.text(key),
            Kind::List(_) => self.list(key, false),
            Kind::Mixed(_) => self.list(key, true),
            Kind::Map(_) => self.map(key),
            Kind::Duration { min, max } => {
                let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                let exact = counted(millis(min), millis(max), &DURATION_UNITS);
                self.quantity(key, "[0-9]+ ?(?:ms|s|m|h|d)", &exact)
            }
            Kind::Size { min, max } => {
                self.quantity(key, "[0-9]+ ?(?:B|KiB|MiB|GiB)", &counted(min, max, &SIZE_UNITS))
            }
            Kind::WordOrSize { word, min, max } => {
                let exact = format!("(?:{word}|{})", counted(min, max, &SIZE_UNITS));
                self.quantity(key, &format!("(?:{word}|[0-9]+ ?(?:B|KiB|MiB|GiB))"), &exact)
            }
            Kind::Rate => {
                let exact = format!("0*(?:{})/[smh]", range(1, u64::from(u32::MAX)));
                self.quantity(key, "[0-9]+/[smh]", &exact)
            }
            // These have keys of their own.
            Kind::Section | Kind::Sections | Kind::Named => json!({ "type": "object" }),
        }
    }

    /// A number with a unit: of a pattern that says something to readers, and within its bounds.
    fn quantity(&mut self, key: &Key, short: &str, exact: &str) -> Value {
        let kind = key.kind.to_string();
        let bounds = self.defined(&dashed(&kind), &format!("^{exact}$"), &kind);
        json!({ "type": "string", "pattern": format!("^{short}$"), "if": { "type": "string" }, "then": bounds })
    }

    fn text(&mut self, key: &Key) -> Value {
        let Some(syntax) = key.syntax() else { return json!({ "type": "string" }) };
        if let TextSyntax::Words(words) = syntax {
            return choice(words);
        }
        match syntax.pattern() {
            None => json!({ "type": "string" }),
            Some(pattern) if pattern.len() <= READABLE => json!({ "type": "string", "pattern": pattern }),
            Some(pattern) => {
                let what = match key.kind {
                    Kind::Text(what) | Kind::List(what) | Kind::TextOrTable(what) | Kind::Map(what) => what,
                    _ => "a value",
                };
                let definition = self.defined(&dashed(&format!("{syntax:?}")), &pattern, what);
                json!({ "type": "string", "if": { "type": "string" }, "then": definition })
            }
        }
    }

    /// One element, or a list of them.
    fn list(&mut self, key: &Key, numbers: bool) -> Value {
        let mut element = self.text(key);
        if numbers {
            element = either(element, json!({ "type": "integer", "minimum": 100, "maximum": 599 }));
        }
        let mut list = json!({ "type": "array", "items": element });
        if key.remedy_if_empty.is_some() {
            list["minItems"] = json!(1);
        }
        // Fields take no element twice, but for words of a command.
        let is_command = matches!(key.syntax(), Some(TextSyntax::ProgramWord));
        if key.reading.field().is_some() && !is_command {
            list["uniqueItems"] = json!(true);
        }
        // Words are for values of every type.
        if element.get("enum").is_some() {
            json!({ "anyOf": [element, list] })
        } else {
            either(element, list)
        }
    }

    /// A table with names of users, and one value each or several.
    fn map(&mut self, key: &Key) -> Value {
        let one = self.text(key);
        let value = either(one.clone(), json!({ "type": "array", "items": one }));
        match key.names.and_then(TextSyntax::pattern) {
            None => json!({ "type": "object", "additionalProperties": value }),
            Some(names) => {
                json!({ "type": "object", "patternProperties": { names: value }, "additionalProperties": false })
            }
        }
    }

    /// The condition that a text is of a pattern, which is defined once. Editors show the words of `else` where it is
    /// not, and not the pattern; no text is equal to them.
    fn defined(&mut self, name: &str, pattern: &str, what: &str) -> Value {
        self.definitions.entry(name).or_insert_with(|| json!({ "pattern": pattern }));
        let otherwise = json!({ "enum": [{ "expected": what.replace('`', "") }] });
        json!({ "if": reference(name), "else": otherwise })
    }
}

/// The length to which a pattern says something to readers.
const READABLE: usize = 60;

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{name}") })
}

/// One of these words. `NAME` at the end of one stands for the name of a field or a cookie.
fn choice(choices: &[Choice]) -> Value {
    let now = choices.iter().filter(|choice| choice.support.is_now());
    let (open, words): (Vec<_>, Vec<_>) = now.partition(|choice| choice.word.ends_with("NAME"));
    let words: Vec<&str> = words.iter().map(|choice| choice.word).collect();
    let words = json!({ "enum": words });
    if open.is_empty() {
        return words;
    }
    let name = TextSyntax::Token.pattern().unwrap_or_default();
    let ways = open.iter().map(|choice| {
        let begin = choice.word.trim_end_matches("NAME");
        json!({ "type": "string", "pattern": name.replacen('^', &format!("^{begin}"), 1) })
    });
    let all: Vec<Value> = [words].into_iter().chain(ways).collect();
    json!({ "anyOf": all })
}

/// A name in lower case with dashes: `ListenAddress` as `listen-address`.
fn dashed(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars().filter(|c| !"`\"".contains(*c)) {
        if letter.is_ascii_uppercase() && out.ends_with(|last: char| last.is_ascii_lowercase()) {
            out.push('-');
        }
        out.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' });
    }
    out.replace("--", "-")
}
