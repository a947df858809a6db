//! JSON objects in which each name is there once. Of two claims with one name a server could believe the other one
//! (RFC 7519 §4 lets a recipient refuse them).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The object that is all of `json`; `None` where it is anything else, or a name is twice in an object at any depth.
pub(super) fn object(json: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(json) {
        Ok(Unique(Value::Object(object))) => Some(object),
        _ => None,
    }
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
        f.write_str("JSON without double names")
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
        while let Some((name, Unique(value))) = entries.next_entry::<String, _>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is twice in an object"));
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_serde_reads_without_double_names() {
        for text in [
            "{}",
            r#"{"a": 1, "b": -1, "c": 1.5, "d": "\u00e9\n", "e": null, "f": [true, false, {}], "g": {"a": {"a": []}}}"#,
            r#"{"": 18446744073709551615}"#,
        ] {
            assert_eq!(object(text.as_bytes()), serde_json::from_str(text).ok(), "{text}");
        }
        for text in [
            "",
            "[]",
            "{} {}",
            r#"{"a": 1e999}"#,
            r#"{"exp": 1, "exp": 2}"#,
            r#"{"exp": 1, "exp": 1}"#,
            r#"{"exp": 1, "\u0065xp": 2}"#,
            r#"{"realm": {"groups": ["a"], "groups": ["b"]}}"#,
            r#"{"a": [{"b": 1, "b": 2}]}"#,
        ] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(object("{\"a\":".repeat(3000).as_bytes()), None);
    }
}
