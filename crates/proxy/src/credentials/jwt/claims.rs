//! Claims as fields of a header.

use serde_json::{Map, Value};

/// The longest value of a field, in bytes.
const FIELD_MAX: usize = 2 << 10;

/// A claim by its name, or by a JSON pointer (RFC 6901).
pub(super) fn find<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    let Some(path) = name.strip_prefix('/') else { return claims.get(name) };
    let (first, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// Value of a field for a claim: a text, a number, a truth, or a list of those with commas between them. Nothing if
/// a server could read it in two ways: a text of a list with a comma, and bytes that no field can have (RFC 9110
/// §5.5).
pub(super) fn field(claim: &Value) -> Option<Vec<u8>> {
    let text = match claim {
        Value::Array(items) => {
            let items: Option<Vec<String>> =
                items.iter().map(|item| plain(item).filter(|text| !text.contains(','))).collect();
            items?.join(",")
        }
        one => plain(one)?,
    };
    let sound = !text.is_empty() && text.len() <= FIELD_MAX && text.trim_ascii() == text;
    (sound && !text.chars().any(char::is_control)).then(|| text.into_bytes())
}

fn plain(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_become_fields_that_can_be_read_in_one_way() {
        let of = |claim: Value| field(&claim).map(|value| String::from_utf8(value).unwrap());
        for (claim, value) in [
            (json!("anna"), "anna"),
            (json!("Anna Müller, staff"), "Anna Müller, staff"),
            (json!(42), "42"),
            (json!(true), "true"),
            (json!(["staff", "ops", 7]), "staff,ops,7"),
        ] {
            assert_eq!(of(claim.clone()).as_deref(), Some(value), "{claim}");
        }
        for claim in [
            json!(null),
            json!(""),
            json!([]),
            json!({}),
            json!([["a"]]),
            json!(["a,admin"]),
            json!("a\r\nx-admin: 1"),
            json!("a\u{0}"),
            json!("\u{85}"),
            json!(" a"),
            json!("a".repeat(FIELD_MAX + 1)),
        ] {
            assert_eq!(of(claim.clone()), None, "{claim}");
        }
    }

    #[test]
    fn claims_are_found_by_name_and_by_pointer() {
        let claims = json!({
            "sub": "anna", "https://example.org/roles": "x", "a.b": 1,
            "realm": { "roles": ["r"], "a/b": 2 }, "a/b": { "c": 3 },
        });
        let claims = claims.as_object().unwrap();
        for (name, value) in [
            ("sub", json!("anna")),
            ("https://example.org/roles", json!("x")),
            ("a.b", json!(1)),
            ("/realm/roles", json!(["r"])),
            ("/realm/roles/0", json!("r")),
            ("/realm/a~1b", json!(2)),
            ("/a~1b/c", json!(3)),
            ("/sub", json!("anna")),
        ] {
            assert_eq!(find(claims, name), Some(&value), "{name}");
        }
        for name in ["", "/", "/realm/x", "/sub/0", "realm/roles"] {
            assert_eq!(find(claims, name), None, "{name}");
        }
    }
}
