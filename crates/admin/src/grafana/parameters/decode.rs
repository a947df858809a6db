//! Decoding of values from Grafana's variables. The plugins put a variable into a target as a regular
//! expression: `a\.test`, and several as `(a\.test|b\.test)`; other formats give `{a.test,b.test}` or
//! `a.test,b.test`.

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// The values in a text. Empty if it means everything.
pub(super) fn values_of_text(text: &str) -> Vec<String> {
    let text = text.trim();
    let inner = ['(', '{']
        .into_iter()
        .zip([')', '}'])
        .find_map(|(open, close)| text.strip_prefix(open)?.strip_suffix(close))
        .unwrap_or(text);
    let mut values = vec![String::new()];
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match (character, values.last_mut()) {
            ('|' | ',', _) => values.push(String::new()),
            ('\\', Some(value)) => value.extend(characters.next()),
            (character, Some(value)) => value.push(character),
            (_, None) => {}
        }
    }
    let values = values.into_iter().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let values: Vec<String> = values.collect();
    // Grafana's forms of "All".
    let all = |value: &String| matches!(value.as_str(), "$__all" | ".*" | ".+" | "All" | "*");
    if values.iter().any(all) || matches!(inner, ".*" | ".+") { Vec::new() } else { values }
}

/// The values of a member of the payload; `plain` ones are taken literally. `None` for anything but texts,
/// numbers and lists of those.
pub(super) fn values_of_json(value: &Value, plain: bool) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) if plain => {
            Some(Some(text.clone()).into_iter().filter(|text| !text.is_empty()).collect())
        }
        Value::String(text) => Some(values_of_text(text)),
        Value::Number(number) => Some(vec![number.to_string()]),
        Value::Array(items) => {
            let lists: Option<Vec<Vec<String>>> = items
                .iter()
                .map(|item| if item.is_array() { None } else { values_of_json(item, plain) })
                .collect();
            let lists = lists?;
            // An item that means everything makes the whole list mean everything.
            let everything =
                lists.iter().zip(items).any(|(list, item)| list.is_empty() && *item != Value::Null);
            Some(if everything { Vec::new() } else { lists.concat() })
        }
        Value::Bool(_) | Value::Object(_) => None,
    }
}

/// Decodes `%XX` (RFC 3986 §2.1); invalid UTF-8 is replaced.
pub(super) fn percent(text: &str) -> Option<String> {
    let is_hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    let is_whole = text.split('%').skip(1).all(|after| after.as_bytes().get(..2).is_some_and(is_hex));
    is_whole.then(|| percent_decode_str(text).decode_utf8_lossy().into_owned())
}
