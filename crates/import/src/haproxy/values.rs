//! Values of HAProxy: times, sizes, and formats with samples.

use std::time::Duration;

use crate::written::escaped;

/// A time; a bare number is in milliseconds.
pub(super) fn time(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = text[..digits].parse().ok()?;
    let micros = match &text[digits..] {
        "us" => 1,
        "ms" | "" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    let micros: u64 = count.checked_mul(micros)?;
    Some(Duration::from_millis(micros.div_ceil(1_000)))
}

/// A time that Offramp takes for a key with this greatest one in seconds; none for zero.
pub(super) fn bounded(text: &str, most: u64) -> Option<Duration> {
    time(text).filter(|time| !time.is_zero()).map(|time| time.min(Duration::from_secs(most)))
}

/// A format with the variables of Offramp; an error names the sample that has no counterpart.
pub(super) fn template(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&escaped(&rest[..at]));
        let after = &rest[at + 1..];
        if let Some(more) = after.strip_prefix('%') {
            out.push('%');
            rest = more;
        } else if let Some(inner) = without_flags(after).strip_prefix('[') {
            let (sample, more) = bracketed(inner).ok_or_else(|| short(inner))?;
            out.push_str(variable(sample).ok_or_else(|| format!("%[{}]", short(sample)))?);
            rest = more;
        } else {
            let (name, variable) = ALIASES
                .iter()
                .find(|(name, _)| after.starts_with(name))
                .ok_or_else(|| format!("%{}", short(after)))?;
            out.push_str(variable);
            rest = &after[name.len()..];
        }
    }
    out.push_str(&escaped(rest));
    Ok(out)
}

/// A sample without the flags of logs before it: `{+Q}[src]`.
fn without_flags(text: &str) -> &str {
    match text.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        Some((_, rest)) => rest,
        None => text,
    }
}

/// The text up to the bracket that closes, and what follows.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[..at], &text[at + 1..]));
        }
    }
    None
}

fn short(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

/// Names of formats of logs.
const ALIASES: [(&str, &str); 5] =
    [("ci", "{client}"), ("cp", "{client_port}"), ("HM", "{method}"), ("HU", "{uri}"), ("ID", "{id}")];

fn variable(sample: &str) -> Option<&'static str> {
    Some(match sample.trim() {
        "src" => "{client}",
        "src_port" => "{client_port}",
        "hdr(host)"
        | "req.hdr(host)"
        | "hdr(Host)"
        | "req.hdr(Host)"
        | "req.fhdr(host)"
        | "hdr(host),lower"
        | "req.hdr(host),lower"
        | "hdr(host),field(1,:)"
        | "req.hdr(host),field(1,:)" => "{host}",
        "path" => "{path}",
        "query" => "{query}",
        "capture.req.uri" | "pathq" | "url" => "{uri}",
        "method" | "capture.req.method" => "{method}",
        "unique-id" => "{id}",
        "ssl_fc_sni" => "{tls.sni}",
        "ssl_fc_protocol" => "{tls.version}",
        "ssl_fc_cipher" => "{tls.cipher}",
        "ssl_c_s_dn" => "{client_cert.subject}",
        "ssl_c_s_dn(cn)" | "ssl_c_s_dn(CN)" => "{client_cert.cn}",
        "ssl_c_i_dn" => "{client_cert.issuer}",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_formats_are_those_of_haproxy() {
        for (text, ms) in [("5000", 5_000), ("10s", 10_000), ("1m", 60_000), ("500us", 1), ("1d", 86_400_000)]
        {
            assert_eq!(time(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["x", "1x", "", "99999999999999999999"] {
            assert_eq!(time(text), None, "{text}");
        }
        assert_eq!(
            template("%[src]:%[src_port] 100%% {client}").unwrap(),
            "{client}:{client_port} 100% {{client}}"
        );
        assert_eq!(template("%{+Q}[ssl_c_s_dn(cn)]").unwrap(), "{client_cert.cn}");
        assert_eq!(template("%ci").unwrap(), "{client}");
        assert_eq!(template("x %[var(txn.a)]").unwrap_err(), "%[var(txn.a)]");
        assert_eq!(template("%[src").unwrap_err(), "src");
    }
}
