//! Edits as text, for the successor of this process, and in words, for people.

use std::fmt;

use toml_edit::{Array, DocumentMut, Item as Toml, Table, value};

use super::{Edit, Item, ServerEdit, place};
use crate::keys;
use crate::model::{ServerState, Weight};

/// The keys of sections that occur once and may be set by edits.
const SETTABLE: [(&str, &str); 1] = [("log", "level")];
const ITEMS: [Item; 4] = [Item::Listener, Item::Route, Item::Backend, Item::Certificate];

impl Edit {
    /// The edit as text, for [`Edit::from_text`].
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = DocumentMut::new();
        let mut put = |key: &str, word: &str| text[key] = value(word);
        let keys = match self {
            Self::Add { item, name, table } => {
                put("add", item.word());
                put("name", name);
                Some(table)
            }
            Self::Replace { item, name, table } => {
                put("replace", item.word());
                put("name", name);
                Some(table)
            }
            Self::Change { item, name, table, without } => {
                put("change", item.word());
                put("name", name);
                text["without"] = value(without.iter().collect::<Array>());
                Some(table)
            }
            Self::Remove { item, name } => {
                put("remove", item.word());
                put("name", name);
                None
            }
            Self::Server { backend, server, change } => {
                put("backend", backend);
                put("name", server);
                match change {
                    ServerEdit::Add => put("server", "add"),
                    ServerEdit::Remove => put("server", "remove"),
                    ServerEdit::Change { state, weight } => {
                        put("server", "change");
                        if let Some(state) = state {
                            put("state", &state.to_string());
                        }
                        if let Some(weight) = weight {
                            text["weight"] = value(i64::from(weight.get()));
                        }
                    }
                }
                None
            }
            Self::Set { section, key, value } => {
                put("section", section);
                put("key", key);
                put("value", value);
                None
            }
            Self::Setting { path, value } => {
                put("setting", path);
                value.iter().for_each(|value| put("value", value));
                None
            }
        };
        if let Some(keys) = keys {
            let mut keys = keys.clone();
            keys.set_implicit(false);
            keys.decor_mut().clear();
            text["keys"] = Toml::Table(keys);
        }
        text.to_string()
    }

    /// Parses the text of [`Edit::to_text`]; `None` for anything else.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let text: DocumentMut = text.parse().ok()?;
        let word = |key: &str| text.get(key).and_then(Toml::as_str).map(str::to_owned);
        let item = |key: &str| {
            let word = word(key)?;
            ITEMS.into_iter().find(|item| item.word() == word)
        };
        let keys = || text.get("keys").and_then(Toml::as_table).map(plain);
        if let Some(item) = item("add") {
            return Some(Self::Add { item, name: word("name")?, table: keys()? });
        }
        if let Some(item) = item("replace") {
            return Some(Self::Replace { item, name: word("name")?, table: keys()? });
        }
        if let Some(item) = item("change") {
            let without = text.get("without").and_then(Toml::as_array)?;
            let without = without.iter().map(|key| key.as_str().map(str::to_owned)).collect::<Option<_>>()?;
            return Some(Self::Change { item, name: word("name")?, table: keys()?, without });
        }
        if let Some(item) = item("remove") {
            return Some(Self::Remove { item, name: word("name")? });
        }
        if let Some(path) = word("setting") {
            let (key, _) = keys::settings().find(|(key, _)| key.path == path)?;
            return Some(Self::Setting { path: key.path, value: word("value") });
        }
        if let Some(section) = word("section") {
            let key = word("key")?;
            let (section, key) = settable(&section, &key)?;
            return Some(Self::Set { section, key, value: word("value")? });
        }
        let change = match &*word("server")? {
            "add" => ServerEdit::Add,
            "remove" => ServerEdit::Remove,
            "change" => ServerEdit::Change {
                state: word("state").and_then(|state| ServerState::from_word(&state)),
                weight: text
                    .get("weight")
                    .and_then(Toml::as_integer)
                    .and_then(|weight| Weight::new(weight.try_into().ok()?)),
            },
            _ => return None,
        };
        Some(Self::Server { backend: word("backend")?, server: word("name")?, change })
    }
}

/// The key of a section that edits may set, if it is one.
pub(super) fn settable(section: &str, key: &str) -> Option<(&'static str, &'static str)> {
    SETTABLE.into_iter().find(|known| *known == (section, key))
}

/// The table without its position in the text it was parsed from.
/// The table without its position in a document.
pub(super) fn plain(table: &Table) -> Table {
    let mut table = table.clone();
    table.set_position(None);
    table
}

impl fmt::Display for Edit {
    /// The edit in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &str| if name.is_empty() { String::new() } else { format!(" {name}") };
        match self {
            Self::Add { item, name: own, table } => {
                // All but backends have their names in the table.
                let own = if own.is_empty() { &place::name_of(item.word(), table) } else { own };
                write!(f, "{}{}: added", item.word(), name(own))
            }
            Self::Replace { item, name: own, .. } | Self::Change { item, name: own, .. } => {
                write!(f, "{}{}: changed", item.word(), name(own))
            }
            Self::Remove { item, name: own } => write!(f, "{}{}: removed", item.word(), name(own)),
            Self::Server { backend, server, change } => {
                write!(f, "backend {backend}: server {server}: ")?;
                match change {
                    ServerEdit::Add => f.write_str("added"),
                    ServerEdit::Remove => f.write_str("removed"),
                    ServerEdit::Change { state, weight } => {
                        let state = state.map(|state| state.to_string());
                        let weight = weight.map(|weight| format!("weight {}", weight.get()));
                        let all: Vec<String> = state.into_iter().chain(weight).collect();
                        f.write_str(&all.join(", "))
                    }
                }
            }
            Self::Set { section, key, value } => write!(f, "{section}.{key}: {value}"),
            // A value may have a password.
            Self::Setting { path, .. } => write!(f, "{path}: changed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_comes_back_from_its_text() {
        let table: DocumentMut = "host = [\"a.example\", \"b'\\\"\"]\n[split]\nblue = 1\n".parse().unwrap();
        let table = table.as_table().clone();
        let named = |item| (item, "a b/\"ü".to_owned());
        let mut edits = Vec::new();
        for item in ITEMS {
            let (item, name) = named(item);
            edits.push(Edit::Add { item, name: name.clone(), table: table.clone() });
            edits.push(Edit::Replace { item, name: name.clone(), table: table.clone() });
            let without = vec!["path".to_owned(), "methods".to_owned()];
            edits.push(Edit::Change { item, name: name.clone(), table: table.clone(), without });
            edits.push(Edit::Remove { item, name });
        }
        let changes = [
            ServerEdit::Add,
            ServerEdit::Remove,
            ServerEdit::Change { state: Some(ServerState::Drain), weight: None },
            ServerEdit::Change { state: Some(ServerState::Enabled), weight: Weight::new(7) },
            ServerEdit::Change { state: Some(ServerState::Disabled), weight: None },
        ];
        for change in changes {
            let (backend, server) = ("shop".to_owned(), "[::1]:80 weight=3".to_owned());
            edits.push(Edit::Server { backend, server, change });
        }
        for (section, key) in SETTABLE {
            edits.push(Edit::Set { section, key, value: "debug".to_owned() });
        }
        for value in [None, Some("\"2m\"".to_owned())] {
            edits.push(Edit::Setting { path: "limits.idle_timeout", value });
        }
        for edit in edits {
            let text = edit.to_text();
            let back = Edit::from_text(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(back.to_text(), text);
            assert_eq!(back.to_string(), edit.to_string());
            if let (Edit::Add { table: own, .. }, Edit::Add { table, .. }) = (&edit, &back) {
                assert_eq!(own.to_string(), table.to_string());
            }
        }
        for other in [
            "",
            "add = 3",
            "setting = \"limits.nothing\"",
            "server = \"x\"",
            "section = \"log\"\nkey = \"output\"\nvalue = \"x\"",
            "[",
        ] {
            assert!(Edit::from_text(other).is_none(), "{other}");
        }
    }
}
