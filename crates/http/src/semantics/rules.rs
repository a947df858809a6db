//! Configured changes to the fields of a message.

use http::{HeaderName, HeaderValue};

use super::variables::{FieldTemplate, VariableValues};
use crate::head::Fields;

/// Changes to the fields of a message, applied in this order.
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Names of fields to remove.
    pub remove: Vec<HeaderName>,
    /// Fields that replace those of the same name.
    pub set: Vec<(HeaderName, FieldValue)>,
    /// Fields added beside those of the same name.
    pub add: Vec<(HeaderName, FieldValue)>,
}

/// Value of a field that a rule sets or adds.
#[derive(Clone, Debug)]
pub enum FieldValue {
    /// A value that is the same for every message.
    Fixed(HeaderValue),
    /// A value computed for each message.
    Template(FieldTemplate),
}

impl From<HeaderValue> for FieldValue {
    fn from(value: HeaderValue) -> Self {
        Self::Fixed(value)
    }
}

impl HeaderRules {
    /// Returns true without changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Returns true if a value is computed for each message.
    #[must_use]
    pub fn uses_variables(&self) -> bool {
        self.values().any(|value| matches!(value, FieldValue::Template(_)))
    }

    fn values(&self) -> impl Iterator<Item = &FieldValue> {
        self.set.iter().chain(&self.add).map(|(_, value)| value)
    }

    /// Applies the rules to `fields`, with variables from `values`.
    pub fn apply(&self, fields: &mut Fields, values: &impl VariableValues) {
        for name in &self.remove {
            fields.remove_named(name.as_str().as_bytes());
        }
        for (name, value) in &self.set {
            let name = name.as_str().as_bytes();
            match value {
                FieldValue::Fixed(value) => fields.set(name, value.as_bytes()),
                FieldValue::Template(template) => fields.set(name, &template.fill(values)),
            }
        }
        for (name, value) in &self.add {
            let name = name.as_str().as_bytes();
            match value {
                FieldValue::Fixed(value) => fields.append(name, value.as_bytes()),
                FieldValue::Template(template) => fields.append(name, &template.fill(values)),
            }
        }
    }

    /// Replaces templates by their current values.
    #[must_use]
    pub fn filled(&self, values: &impl VariableValues) -> Self {
        let fixed = |(name, value): &(HeaderName, FieldValue)| {
            let value = match value {
                FieldValue::Fixed(value) => value.clone(),
                // The result has valid bytes only.
                FieldValue::Template(template) => HeaderValue::from_bytes(&template.fill(values)).ok()?,
            };
            Some((name.clone(), value.into()))
        };
        Self {
            remove: self.remove.clone(),
            set: self.set.iter().filter_map(fixed).collect(),
            add: self.add.iter().filter_map(fixed).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::variables::{FieldVariable, TemplatePiece};
    use super::*;

    /// Provides the client alone.
    struct Client(&'static [u8]);

    impl VariableValues for Client {
        fn write(&self, variable: FieldVariable, out: &mut Vec<u8>) {
            if variable == FieldVariable::Client {
                out.extend_from_slice(self.0);
            }
        }
    }

    fn rules() -> HeaderRules {
        let name = HeaderName::from_static;
        let piece = |text: &str| TemplatePiece::from(text);
        let template =
            FieldTemplate::new([piece("<"), TemplatePiece::Variable(FieldVariable::Client), piece(">")]);
        HeaderRules {
            remove: vec![name("x-gone")],
            set: vec![
                (name("x-client"), FieldValue::Template(template.clone())),
                (name("x-fixed"), HeaderValue::from_static("{client}").into()),
            ],
            add: vec![(name("x-more"), FieldValue::Template(template))],
        }
    }

    #[test]
    fn variables_are_filled_in_for_each_message() {
        let rules = rules();
        assert!(rules.uses_variables() && !rules.filled(&Client(b"")).uses_variables());
        for (client, value) in [
            (&b"192.0.2.1"[..], &b"<192.0.2.1>"[..]),
            (b"", b"<>"),
            (b"a\r\nSet-Cookie: b", b"<a  Set-Cookie: b>"),
            (b"\0a\x7fb\tc\xc3\xa4", b"< a b c\xc3\xa4>"),
        ] {
            let said = [("x-client", "forged"), ("x-gone", "1"), ("x-more", "theirs"), ("x-client", "2")];
            let mut fields: Fields = said.into_iter().collect();
            rules.apply(&mut fields, &Client(client));
            let expected: [(&[u8], &[u8]); 4] =
                [(b"x-client", value), (b"x-more", b"theirs"), (b"x-fixed", b"{client}"), (b"x-more", value)];
            assert_eq!(fields.iter().collect::<Vec<_>>(), expected);
            let mut filled: Fields = said.into_iter().collect();
            rules.filled(&Client(client)).apply(&mut filled, &Client(b"another"));
            assert_eq!(filled.iter().collect::<Vec<_>>(), expected);
        }
    }
}
