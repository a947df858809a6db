//! Texts of requests and answers for a report: without secrets, and harmless for terminals.

/// The target with the values of parameters that may be secrets left out, printable.
pub(super) fn target(target: &str) -> String {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut text = printable(path);
    if let Some(query) = query {
        let parts = query.split('&').map(|part| match part.split_once('=') {
            Some((name, value)) if is_secret(name) && !value.is_empty() => {
                format!("{}=HIDDEN", printable(name))
            }
            _ => printable(part),
        });
        text.push('?');
        text.push_str(&parts.collect::<Vec<_>>().join("&"));
    }
    text
}

/// The value of a field of an answer as it is shown, at most 200 characters.
pub(super) fn value(value: &str) -> String {
    let shown = match value.split_once('?') {
        // A URL with a query, as in Location.
        Some((_, query)) if query.contains('=') && !value.contains(' ') => target(value),
        _ => printable(value),
    };
    match shown.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &shown[..at]),
        None => shown,
    }
}

/// Set for names of parameters with values that open something.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_', '.'], "");
    let exact = ["auth", "code", "key", "otp", "pass", "pin", "pwd", "sid", "sig", "state", "ticket"];
    let parts = [
        "apikey",
        "authorization",
        "credential",
        "jwt",
        "nonce",
        "passw",
        "secret",
        "session",
        "signature",
        "token",
    ];
    exact.contains(&name.as_str()) || parts.iter().any(|part| name.contains(part)) || name.ends_with("key")
}

/// The text without what terminals obey.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

const MOST: usize = 200;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let cases = [
            ("/a?b=c", "/a?b=c"),
            ("/a?token=abc&b=c", "/a?token=HIDDEN&b=c"),
            ("/a?access_token=abc", "/a?access_token=HIDDEN"),
            ("/a?X-Amz-Signature=abc&key=1", "/a?X-Amz-Signature=HIDDEN&key=HIDDEN"),
            ("/a?token=&page=2", "/a?token=&page=2"),
            ("/a?monkeys=2", "/a?monkeys=2"),
            ("/a", "/a"),
        ];
        for (target_text, shown) in cases {
            assert_eq!(target(target_text), shown);
        }
        assert_eq!(value("https://a.test/?code=abc"), "https://a.test/?code=HIDDEN");
        assert_eq!(value("a\x1b[31m?"), "a\u{fffd}[31m?");
        assert_eq!(value(&"\u{e4}".repeat(300)).chars().count(), 203);
    }

    proptest! {
        #[test]
        fn no_value_of_a_secret_is_shown(before in "[a-z=&]{0,10}", after in "[a-z=&]{0,10}") {
            let shown = target(&format!("/?{before}&password=7SECRET7&{after}"));
            prop_assert!(!shown.contains("7SECRET7"), "{}", shown);
        }
    }
}
