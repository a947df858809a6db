//! Variables in the values of fields that routes set.
//!
//! `{client}` stands for the client's address. Braces around anything that cannot be the name of a variable
//! are text, as in JSON, and `{{client}}` is the text `{client}`.

use std::str::FromStr;

use super::HeaderValue;
use super::words::words;
use crate::error::{Problem, shown};
use crate::suggest;

words! {
    /// A property of a request or its response.
    pub enum HeaderVariable {
        /// The address of the client.
        Client = "client",
        /// The source port of the client.
        ClientPort = "client_port",
        /// The host of the request.
        Host = "host",
        /// The scheme: `https` or `http`.
        Scheme = "scheme",
        /// The method of the request.
        Method = "method",
        /// The path as received.
        Path = "path",
        /// The query as received.
        Query = "query",
        /// Path and query as received.
        Uri = "uri",
        /// The id of the request.
        Id = "id",
        /// The name of the route.
        Route = "route",
        /// The server of the response; only in responses.
        Server = "server",
        /// The TLS version of the connection.
        TlsVersion = "tls.version",
        /// The cipher suite of the connection.
        TlsCipher = "tls.cipher",
        /// The server name in the handshake.
        TlsSni = "tls.sni",
        /// The common name of the client certificate.
        CertificateName = "client_cert.cn",
        /// The subject of the client certificate.
        CertificateSubject = "client_cert.subject",
        /// The issuer of the client certificate.
        CertificateIssuer = "client_cert.issuer",
        /// The serial number of the client certificate.
        CertificateSerial = "client_cert.serial",
        /// The DNS names of the client certificate.
        CertificateDns = "client_cert.dns",
        /// The URIs of the client certificate.
        CertificateUri = "client_cert.uri",
        /// The SHA-256 of the client certificate.
        CertificateFingerprint = "client_cert.fingerprint",
        /// The end of the client certificate's validity.
        CertificateEnd = "client_cert.not_after",
    }
}

/// A part of a field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text that is sent as it is.
    Text(String),
    /// The value of a variable.
    Variable(HeaderVariable),
}

/// The value of a field that a route sets: text with variables. It prints as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderTemplate(HeaderValue);

impl HeaderTemplate {
    /// The value as written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The parts, without adjacent texts.
    pub fn parts(&self) -> Vec<TemplatePart> {
        // Parsed successfully before.
        parts(self.as_str()).unwrap_or_default()
    }
}

impl FromStr for HeaderTemplate {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let value = text.parse()?;
        parts(text)?;
        Ok(Self(value))
    }
}

impl std::fmt::Display for HeaderTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Splits a value into its parts.
fn parts(text: &str) -> Result<Vec<TemplatePart>, Problem> {
    let (mut parts, mut plain) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(name) = rest.strip_prefix('{').and_then(braced)
            && rest[name.len() + 3..].starts_with('}')
        {
            plain.push_str(&rest[1..name.len() + 3]);
            rest = &rest[name.len() + 4..];
        } else if let Some(name) = braced(rest) {
            let variable = HeaderVariable::from_word(name).ok_or_else(|| unknown(name))?;
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(TemplatePart::Variable(variable));
            rest = &rest[name.len() + 2..];
        } else {
            plain.push('{');
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(TemplatePart::Text(plain));
    }
    Ok(parts)
}

/// The name between the leading brace of `text` and the next one, if it can be that of a variable.
fn braced(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (name.starts_with(|first: char| first.is_ascii_alphabetic()) && name.bytes().all(is_name)).then_some(name)
}

/// The variable that corresponds to a name of another proxy.
pub(super) fn foreign(name: &str) -> Option<HeaderVariable> {
    Some(match name.to_ascii_lowercase().as_str() {
        "remote_addr"
        | "remote"
        | "remote_host"
        | "remote_ip"
        | "client_ip"
        | "ip"
        | "http.request.remote.host" => HeaderVariable::Client,
        "remote_port" | "http.request.remote.port" => HeaderVariable::ClientPort,
        "hostport" | "http.request.host" | "hostname" => HeaderVariable::Host,
        "http.request.scheme" | "proto" => HeaderVariable::Scheme,
        "http.request.method" | "request_method" => HeaderVariable::Method,
        "http.request.uri.path" | "document_uri" => HeaderVariable::Path,
        "http.request.uri.query" | "args" | "query_string" => HeaderVariable::Query,
        "http.request.uri" | "request_uri" => HeaderVariable::Uri,
        "http.request.uuid" | "request_id" | "uuid" | "unique-id" => HeaderVariable::Id,
        "http.reverse_proxy.upstream.hostport" | "upstream_addr" | "upstream_hostport" => {
            HeaderVariable::Server
        }
        "tls_version" | "http.request.tls.version" | "ssl_protocol" => HeaderVariable::TlsVersion,
        "tls_cipher" | "http.request.tls.cipher_suite" | "ssl_cipher" => HeaderVariable::TlsCipher,
        "sni" | "http.request.tls.server_name" | "ssl_server_name" => HeaderVariable::TlsSni,
        "tls_client_subject" | "http.request.tls.client.subject" | "ssl_client_s_dn" => {
            HeaderVariable::CertificateSubject
        }
        "tls_client_issuer" | "http.request.tls.client.issuer" | "ssl_client_i_dn" => {
            HeaderVariable::CertificateIssuer
        }
        "tls_client_serial" | "http.request.tls.client.serial" | "ssl_client_serial" => {
            HeaderVariable::CertificateSerial
        }
        "tls_client_fingerprint" | "http.request.tls.client.fingerprint" | "ssl_client_fingerprint" => {
            HeaderVariable::CertificateFingerprint
        }
        _ => return None,
    })
}

fn unknown(name: &str) -> Problem {
    let problem = Problem::new(format!("there is no variable `{{{}}}`", shown(name)));
    let words = || HeaderVariable::ALL.iter().map(|variable| variable.word());
    let literal = format!("for the text itself write `{{{{{}}}}}`", shown(name));
    let meant = foreign(name).map(HeaderVariable::word).or_else(|| suggest::nearest(name, words()));
    problem.help(match meant {
        Some(word) => format!("write `{{{word}}}`; {literal}"),
        None => {
            let all: Vec<String> = words().map(|word| format!("{{{word}}}")).collect();
            format!("variables are {}; {literal}", all.join(", "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<TemplatePart> {
        let template: HeaderTemplate = text.parse().unwrap();
        assert_eq!(template.to_string(), text);
        template.parts()
    }

    fn text(text: &str) -> TemplatePart {
        TemplatePart::Text(text.to_owned())
    }

    #[test]
    fn variables_and_text() {
        let variable = TemplatePart::Variable;
        assert_eq!(read(""), []);
        assert_eq!(read("max-age=1"), [text("max-age=1")]);
        assert_eq!(read("{client}"), [variable(HeaderVariable::Client)]);
        assert_eq!(
            read("for={client};sni={tls.sni}."),
            [
                text("for="),
                variable(HeaderVariable::Client),
                text(";sni="),
                variable(HeaderVariable::TlsSni),
                text("."),
            ]
        );
        for one in HeaderVariable::ALL {
            assert_eq!(read(&format!("{{{one}}}")), [variable(*one)]);
            // Escaped, and escaped twice.
            assert_eq!(read(&format!("{{{{{one}}}}}")), [text(&format!("{{{one}}}"))]);
            assert_eq!(read(&format!("{{{{{{{one}}}}}}}")), [text(&format!("{{{{{one}}}}}"))]);
        }
        assert_eq!(read("{{{client}"), [text("{{"), variable(HeaderVariable::Client)]);
    }

    /// Real values of Report-To, NEL, Permissions-Policy, Content-Security-Policy, and templates of other
    /// programs.
    #[test]
    fn braces_that_cannot_be_a_variable_are_text() {
        for value in [
            r#"{"group":"default","max_age":10886400,"endpoints":[{"url":"https://r.example/a"}]}"#,
            r#"{"report_to":"nel","max_age":2592000,"include_subdomains":true}"#,
            r#"{"a":{"b":{}}}"#,
            r#"{ "a": {"b": 1}}"#,
            "{}",
            "{{}}",
            "{ client }",
            "{client",
            "client}",
            "{$host}",
            "${0}",
            "a{1}b{2,3}",
            "{{",
            "}}{",
        ] {
            assert_eq!(read(value), [text(value)], "{value}");
        }
    }

    #[test]
    fn an_unknown_variable_is_reported_with_the_known_ones() {
        for (value, help) in [
            ("{clint}", "write `{client}`; for the text itself write `{{clint}}`"),
            ("{Client}", "write `{client}`"),
            ("{remote_addr}", "write `{client}`"),
            ("x{http.request.host}", "write `{host}`"),
            ("{request_uri}", "write `{uri}`"),
            ("{client-cert.cn}", "write `{client_cert.cn}`"),
            ("{nonce}", "variables are {client}, {client_port}, {host}, "),
            ("{\"a\": {nonce}}", "for the text itself write `{{nonce}}`"),
        ] {
            let problem = value.parse::<HeaderTemplate>().unwrap_err();
            assert!(problem.to_string().contains("there is no variable"), "{problem}");
            assert!(problem.remedy().unwrap().contains(help), "{value}: {problem}");
        }
    }
}
