//! JSON in which each name of an object is there once. Of two members with one name readers take different ones (RFC 8259 §4),
//! and of two claims a server could believe the other one (RFC 7519 §4).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Map, Value};

/// The value that is all of `bytes`. The depth is bounded by the parser, at 128.
///
/// # Errors
/// It is no JSON, or a name is twice in an object at any depth, which is an error of data ([`Error::is_data`]).
pub fn value(bytes: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(bytes).map(|Unique(value)| value)
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is written twice")));
            }
            let Unique(value) = entries.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_serde() {
        for text in [
            "{}",
            "[]",
            "null",
            "\"a\"",
            r#"{"a": 1, "b": -1, "c": 1.5, "d": "\u00e9\n", "e": null, "f": [true, false, {}], "g": {"a": {"a": []}}}"#,
            r#"{"": 18446744073709551615}"#,
        ] {
            assert_eq!(
                value(text.as_bytes()).unwrap(),
                serde_json::from_str::<Value>(text).unwrap(),
                "{text}"
            );
        }
    }

    #[test]
    fn doubled_names_and_what_is_no_json_are_refused() {
        for text in [
            r#"{"exp": 1, "exp": 2}"#,
            r#"{"exp": 1, "exp": 1}"#,
            r#"{"exp": 1, "\u0065xp": 2}"#,
            r#"{"exp": null, "b": 1, "exp": null}"#,
            r#"{"realm": {"exp": ["a"], "exp": ["b"]}}"#,
            r#"{"a": [{"exp": 1, "exp": 2}]}"#,
        ] {
            let error = value(text.as_bytes()).unwrap_err();
            assert!(
                error.is_data() && error.to_string().contains("`exp` is written twice"),
                "{text}: {error}"
            );
        }
        for text in ["", "{", "{} {}", "1 2", r#"{"a": 1e999}"#, "{'a': 1}"] {
            assert!(!value(text.as_bytes()).unwrap_err().is_data(), "{text}");
        }
        assert!(value("{\"a\":".repeat(3000).as_bytes()).is_err());
    }
}
