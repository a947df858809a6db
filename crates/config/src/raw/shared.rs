//! Keys that a section inherits from another one.

use super::{RawEntry, Section, Spanned, Value};
use crate::keys::scope_in_route;

impl Section {
    /// The keys that are present.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.keys().copied()
    }

    /// Inherits a key of another section with its place. Present keys win: a table with user-defined keys,
    /// and changes to headers, inherit entries that they lack; anything else, `false` too, stays.
    pub(crate) fn take_over(&mut self, name: &'static str, other: &Self) {
        let Some(theirs) = other.entries.get(name) else { return };
        let Some(mine) = self.entries.get_mut(name) else {
            self.entries.insert(name, theirs.clone());
            return;
        };
        let (Some(mine), Some(theirs)) = (&mut mine.value, &theirs.value) else { return };
        match (&mut mine.value, &theirs.value) {
            (Value::Map(mine), Value::Map(theirs)) => {
                let known: Vec<String> = mine.iter().map(|(name, _)| name.value.clone()).collect();
                mine.extend(theirs.iter().filter(|(name, _)| !known.contains(&name.value)).cloned());
            }
            (Value::Section(mine), Value::Section(theirs)) if scope_in_route(name).is_added_up() => {
                mine.inherit_fields(theirs);
            }
            _ => {}
        }
    }

    /// Removes keys that are `false` in order to inherit nothing.
    pub(crate) fn forget_off(&mut self) {
        self.entries
            .retain(|_, entry| !entry.value.as_ref().is_some_and(|value| matches!(value.value, Value::Off)));
    }

    /// Inherits changes to header fields that are not mentioned here.
    fn inherit_fields(&mut self, other: &Self) {
        let mut known: Vec<String> = Vec::new();
        for entry in self.entries.values() {
            match entry.value.as_ref().map(|value| &value.value) {
                Some(Value::Map(pairs)) => {
                    known.extend(pairs.iter().map(|(name, _)| name.value.to_ascii_lowercase()));
                }
                Some(Value::List(names)) => {
                    known.extend(names.iter().map(|name| name.value.to_ascii_lowercase()));
                }
                _ => {}
            }
        }
        let is_new = |name: &str| !known.contains(&name.to_ascii_lowercase());
        for (name, theirs) in &other.entries {
            let Some(value) = &theirs.value else { continue };
            let value = match &value.value {
                Value::Map(pairs) => {
                    Value::Map(pairs.iter().filter(|(name, _)| is_new(&name.value)).cloned().collect())
                }
                Value::List(names) => {
                    Value::List(names.iter().filter(|name| is_new(&name.value)).cloned().collect())
                }
                _ => continue,
            };
            let mine =
                self.entries.get_mut(name).map(|entry| entry.value.as_mut().map(|value| &mut value.value));
            match (mine, value) {
                (Some(Some(Value::Map(mine))), Value::Map(more)) => mine.extend(more),
                (Some(Some(Value::List(mine))), Value::List(more)) => mine.extend(more),
                // Nothing is left to inherit.
                (None, Value::Map(more)) if more.is_empty() => {}
                (None, Value::List(more)) if more.is_empty() => {}
                (None, value) => {
                    let span = theirs.key.clone();
                    let value = Some(Spanned { value, span: span.clone() });
                    self.entries.insert(name, RawEntry { key: span, value });
                }
                // An invalid one was reported.
                (Some(_), _) => {}
            }
        }
    }
}
