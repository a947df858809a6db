//! Changes to the fields of a message that a configuration asks for.

use http::{HeaderName, HeaderValue};

use crate::head::Fields;

/// Changes to a header, made in this order.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Fields that are taken out.
    pub remove: Vec<HeaderName>,
    /// Fields that take the place of those of the same name.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields that come beside those of the same name.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderRules {
    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Changes `fields`.
    pub fn apply(&self, fields: &mut Fields) {
        for name in &self.remove {
            fields.remove_named(name.as_str().as_bytes());
        }
        for (name, value) in &self.set {
            fields.set(name.as_str().as_bytes(), value.as_bytes());
        }
        for (name, value) in &self.add {
            fields.append(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}
