//! Keys that a section takes over from another one.

use super::{Entry, Section, Spanned, Value};

impl Section {
    /// The keys that are written.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.keys().copied()
    }

    /// Takes over a key of another section, with its place. What is written here wins: a table whose keys the user chooses, and
    /// changes to headers, take over what they do not mention; anything else, `false` too, is left as it is.
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
            (Value::Section(mine), Value::Section(theirs)) if adds_up(name) => mine.take_over_fields(theirs),
            _ => {}
        }
    }

    /// Forgets the keys that are written to take nothing over.
    pub(crate) fn forget_off(&mut self) {
        self.entries
            .retain(|_, entry| !entry.value.as_ref().is_some_and(|value| matches!(value.value, Value::Off)));
    }

    /// Takes over changes to the fields of a header that are not mentioned here.
    fn take_over_fields(&mut self, other: &Self) {
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
                // What is left of them is nothing.
                (None, Value::Map(more)) if more.is_empty() => {}
                (None, Value::List(more)) if more.is_empty() => {}
                (None, value) => {
                    let span = theirs.key.clone();
                    let value = Some(Spanned { value, span: span.clone() });
                    self.entries.insert(name, Entry { key: span, value });
                }
                // A wrong one was reported.
                (Some(_), _) => {}
            }
        }
    }
}

/// Whether what several sections say of a key adds up.
pub(crate) fn adds_up(name: &str) -> bool {
    matches!(name, "request_headers" | "response_headers" | "error_pages" | "cache_control")
}
