//! Variables of other proxies in the values of fields. They are sent as text, which their users do not expect.

use super::variable::{HeaderVariable, foreign};
use crate::error::{Problem, shown};

/// The warning for the first part of a value that is a variable elsewhere, or one of ours without its brace.
pub(crate) fn look(text: &str) -> Option<Problem> {
    let mut at = 0;
    while let Some(found) = text[at..].find(['$', '%', '{']) {
        let start = at + found;
        let (before, rest) = text.split_at(start);
        at = start + 1;
        let is_escaped = before.ends_with(['{', '$', '%']);
        let problem = match rest.as_bytes()[0] {
            _ if is_escaped => None,
            b'$' => dollar(rest),
            b'%' => percent(rest),
            _ => unclosed(rest),
        };
        if problem.is_some() {
            return problem;
        }
    }
    None
}

/// `$remote_addr` of nginx, `${host}` of shells and templates. Names that are no variable anywhere are text.
fn dollar(rest: &str) -> Option<Problem> {
    let inner = rest[1..].strip_prefix('{');
    let name = word(inner.unwrap_or(&rest[1..]));
    if inner.is_some_and(|inner| !inner[name.len()..].starts_with('}')) {
        return None;
    }
    let written = if inner.is_some() { format!("${{{name}}}") } else { format!("${name}") };
    match meant(name) {
        Some(variable) => Some(sent_as_text(&written, Some(variable))),
        None if NGINX.iter().any(|prefix| name.starts_with(prefix)) => Some(sent_as_text(&written, None)),
        None => None,
    }
}

/// `%[src]` of HAProxy, `%{REMOTE_ADDR}s` of Apache, `%DOWNSTREAM_REMOTE_ADDRESS%` of Envoy.
fn percent(rest: &str) -> Option<Problem> {
    let inner = &rest[1..];
    let is_upper =
        |text: &str| text.len() > 2 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    if let Some((name, _)) = inner.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        let is_sample = name.starts_with(|first: char| first.is_ascii_lowercase());
        let variable = match name {
            "src" => Some(HeaderVariable::Client),
            "src_port" => Some(HeaderVariable::ClientPort),
            "path" => Some(HeaderVariable::Path),
            "query" => Some(HeaderVariable::Query),
            "method" => Some(HeaderVariable::Method),
            "ssl_fc_sni" => Some(HeaderVariable::TlsSni),
            "ssl_fc_protocol" => Some(HeaderVariable::TlsVersion),
            "ssl_fc_cipher" => Some(HeaderVariable::TlsCipher),
            "unique-id" => Some(HeaderVariable::Id),
            "ssl_c_s_dn(cn)" | "ssl_c_s_dn(CN)" => Some(HeaderVariable::CertificateName),
            "ssl_c_s_dn" => Some(HeaderVariable::CertificateSubject),
            "ssl_c_i_dn" => Some(HeaderVariable::CertificateIssuer),
            "req.hdr(host)" | "hdr(host)" => Some(HeaderVariable::Host),
            _ => None,
        };
        return is_sample.then(|| sent_as_text(&format!("%[{name}]"), variable));
    }
    if let Some((name, _)) = inner.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        return is_upper(name).then(|| sent_as_text(&format!("%{{{name}}}"), meant(name)));
    }
    let (name, _) = inner.split_once(['%', '('])?;
    let variable = match name {
        "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => Some(HeaderVariable::Client),
        "DOWNSTREAM_TLS_VERSION" => Some(HeaderVariable::TlsVersion),
        _ => None,
    };
    is_upper(name).then(|| sent_as_text(&format!("%{name}%"), variable))
}

/// `{client` without its brace.
fn unclosed(rest: &str) -> Option<Problem> {
    let name = word(&rest[1..]);
    let is_open = !rest[1 + name.len()..].starts_with(['}', '"']);
    let variable = meant(name).filter(|_| is_open)?;
    let problem = Problem::new(format!("`{{{}` has no `}}`, and is sent as this text", shown(name)));
    Some(problem.help(format!("write `{{{variable}}}` for the value")))
}

fn sent_as_text(written: &str, variable: Option<HeaderVariable>) -> Problem {
    let problem = Problem::new(format!("`{}` is no variable here, and is sent as this text", shown(written)));
    problem.help(match variable {
        Some(variable) => format!("write `{{{variable}}}` for the value"),
        None => "variables are written as `{client}`, `{host}` or `{uri}`; docs/how-to/headers.md lists them"
            .to_owned(),
    })
}

fn word(text: &str) -> &str {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
    text[..text.find(|letter| !is_name(letter)).unwrap_or(text.len())].trim_end_matches('.')
}

fn meant(name: &str) -> Option<HeaderVariable> {
    HeaderVariable::from_word(name).or_else(|| foreign(name))
}

/// Prefixes of nginx variables without a counterpart here.
const NGINX: [&str; 8] =
    ["http_", "arg_", "cookie_", "ssl_", "upstream_", "sent_http_", "proxy_add_", "server_name"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_other_proxies_are_told() {
        for (value, help) in [
            ("$remote_addr", "`{client}`"),
            ("${remote_addr}", "`{client}`"),
            ("for=$remote_addr;proto=https", "`{client}`"),
            ("$scheme://$host", "`{scheme}`"),
            ("$request_uri", "`{uri}`"),
            ("$http_x_real_ip", "variables are written"),
            ("$proxy_add_x_forwarded_for", "variables are written"),
            ("%[src]", "`{client}`"),
            ("a %[ssl_fc_sni]", "`{tls.sni}`"),
            ("%[req.cook(a)]", "variables are written"),
            ("%{REMOTE_ADDR}s", "`{client}`"),
            ("%{SSL_PROTOCOL}e", "`{tls.version}`"),
            ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "`{client}`"),
            ("%REQ(:PATH)%", "variables are written"),
            ("{client", "`{client}`"),
            ("{client, {host}", "`{client}`"),
            ("{remote_addr", "`{client}`"),
            ("a {tls.sni b", "`{tls.sni}`"),
        ] {
            let problem = look(value).unwrap_or_else(|| panic!("{value}"));
            assert!(problem.remedy().unwrap().contains(help), "{value}: {problem}");
        }
    }

    #[test]
    fn text_is_text() {
        for value in [
            "",
            "{client}",
            "{{client}}",
            "{{client",
            "{ client",
            "{nonce",
            "{\"client\":1}",
            "{\"max_age\":10886400,\"endpoints\":[{\"url\":\"https://r.example/a\"}]}",
            "{client\"",
            "$1",
            "$",
            "$$host",
            "US$",
            "cost $price",
            "${0}",
            "100%",
            "50% {client}",
            "%20%2F",
            "a%b%c",
            "%C3%A9",
            "%[",
            "%[1]",
            "%{b}",
            "default-src 'self'; img-src https: data:",
        ] {
            assert!(look(value).is_none(), "{value}: {:?}", look(value));
        }
    }
}
