//! Values of nginx: times, sizes, and texts with variables.

use std::time::Duration;

use crate::written::escaped;
pub(super) use crate::written::{name, toml_size, toml_time};

/// A time such as `30`, `30s`, `1h30m` or `500ms`; `units` is the one of a bare number.
pub(super) fn time(text: &str) -> Option<Duration> {
    let mut total = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit: u64 = match &rest[..letters] {
            "ms" => 1,
            "s" | "" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            "M" => 2_592_000_000,
            "y" => 31_536_000_000,
            _ => return None,
        };
        rest = &rest[letters..];
        total = total.checked_add(count.checked_mul(unit)?)?;
    }
    Some(Duration::from_millis(total))
}

/// A size such as `8k`, `10M` or `1g`.
pub(super) fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// The parts of a text with `$name` and `${name}`.
pub(super) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let after = &rest[at + 1..];
        let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (name, length) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let length = after.find(|letter| !word(letter)).unwrap_or(after.len());
                (&after[..length], length)
            }
        };
        if name.is_empty() {
            pieces.push(Piece::Text(&rest[..=at]));
            rest = after;
            continue;
        }
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        pieces.push(Piece::Variable(name));
        rest = &after[length..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// The value of a header field with the variables of Offramp; an error names the variable that has no counterpart.
pub(super) fn template(text: &str) -> Result<String, String> {
    let mut out = String::new();
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => out.push_str(&escaped(text)),
            Piece::Variable(name) => {
                let variable = variable(name).ok_or_else(|| format!("${name}"))?;
                out.push_str(variable);
            }
        }
    }
    Ok(out)
}

fn variable(name: &str) -> Option<&'static str> {
    Some(match name {
        "remote_addr" | "realip_remote_addr" => "{client}",
        "remote_port" => "{client_port}",
        "host" => "{host}",
        "scheme" => "{scheme}",
        "request_method" => "{method}",
        "uri" | "document_uri" => "{path}",
        "args" | "query_string" => "{query}",
        "request_uri" => "{uri}",
        "request_id" => "{id}",
        "upstream_addr" => "{server}",
        "ssl_protocol" => "{tls.version}",
        "ssl_cipher" => "{tls.cipher}",
        "ssl_server_name" => "{tls.sni}",
        "ssl_client_s_dn" => "{client_cert.subject}",
        "ssl_client_i_dn" => "{client_cert.issuer}",
        "ssl_client_serial" => "{client_cert.serial}",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_those_of_nginx() {
        for (text, value) in
            [("30", "\"30s\""), ("1h30m", "\"90m\""), ("500ms", "\"500ms\""), ("1d", "\"1d\"")]
        {
            assert_eq!(time(text).map(toml_time).as_deref(), Some(value), "{text}");
        }
        for (text, value) in
            [("8k", "\"8KiB\""), ("10M", "\"10MiB\""), ("0", "\"0B\""), ("1500", "\"1500B\"")]
        {
            assert_eq!(size(text).map(toml_size).as_deref(), Some(value), "{text}");
        }
        for text in ["x", "1x", "-1", "99999999999999999999"] {
            assert_eq!((time(text), size(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn variables_become_those_of_offramp() {
        assert_eq!(template("$scheme://${host}/x").unwrap(), "{scheme}://{host}/x");
        assert_eq!(template("{client}").unwrap(), "{{client}}");
        assert_eq!(template("{\"a\":1}").unwrap(), "{\"a\":1}");
        assert_eq!(template("100$").unwrap(), "100$");
        assert_eq!(template("$http_foo").unwrap_err(), "$http_foo");
    }
}
