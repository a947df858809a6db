//! JSON of requests, read strictly: a member that is written twice is refused, because readers differ in which one they
//! take (RFC 8259 §4).

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Problem;

/// The value of a body.
pub(super) fn value(bytes: &[u8]) -> Result<Value, Problem> {
    match serde_json::from_slice(bytes) {
        Ok(Strict(value)) => Ok(value),
        Err(error) if error.is_data() => Err(Problem::wrong(format!("the body: {error}"))),
        Err(error) => Err(Problem::wrong(format!("the body is not JSON: {error}"))),
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(value)) = seq.next_element()? {
            all.push(value);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is written twice")));
            }
            let Strict(value) = map.next_value()?;
            all.insert(name, value);
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_is_written_once_at_every_depth() {
        let text = r#"{"a":[1,-2,2.5,"x",null,true],"b":{"a":{}}}"#;
        assert_eq!(value(text.as_bytes()).unwrap(), json!({"a":[1,-2,2.5,"x",null,true],"b":{"a":{}}}));
        for text in [r#"{"a":1,"a":1}"#, r#"{"b":[{"a":1,"c":2,"a":null}]}"#] {
            let refused = value(text.as_bytes()).unwrap_err();
            assert!(refused.detail.contains("`a` is written twice"), "{}", refused.detail);
        }
        for text in ["", "{", "1 2", "{\"a\":1e999}"] {
            assert!(value(text.as_bytes()).unwrap_err().detail.starts_with("the body is not JSON"), "{text}");
        }
    }
}
