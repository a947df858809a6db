//! The effective configuration as TOML that reads back as the same model.
//!
//! Every value is written out, defaults too, each under its line of the table of keys. A configuration made
//! in code prints the same way; it reads back the same if [`Config::fill_implied`] was called, its paths
//! are absolute UTF-8 and its durations are whole milliseconds. Places are not kept.

use std::fmt::{Display, Write as _};

use crate::keys;
use crate::model::{
    Backend, Certificate, CertificateSource, ClientAuth, Config, DefaultRole, FilePath, Listener, Listeners,
    ProxyV2, RelayTarget, Route, SendProxy, Target,
};
use crate::settings::BINDINGS;

/// The configuration as TOML, with the documentation of each plain key as a comment.
pub fn print(config: &Config) -> String {
    let mut out = String::new();
    let mut section = "";
    for binding in BINDINGS {
        let (Some(key), Some(value)) = (keys::find(binding.path), (binding.get)(config)) else {
            continue;
        };
        if key.section() != section {
            section = key.section();
            let about = keys::find(section).map_or("", |key| key.doc);
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(out, "# {about}\n[{section}]");
        }
        let _ = writeln!(out, "# {}\n{} = {value}\n", key.doc, key.name());
    }
    for item in &config.certificates {
        certificate(&mut out, item);
    }
    for item in &config.listeners {
        listener(&mut out, item);
    }
    for item in &config.routes {
        route(&mut out, item);
    }
    for item in &config.backends {
        backend(&mut out, item);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn certificate(out: &mut String, certificate: &Certificate) {
    out.push_str("[[certificate]]\n");
    match &certificate.source {
        CertificateSource::Files { cert, key } => {
            text(out, "cert", path(cert));
            if let Some(key) = key {
                text(out, "key", path(key));
            }
        }
        CertificateSource::Local { names } => {
            out.push_str("local = true\n");
            list(out, "names", names);
        }
    }
    match certificate.default {
        DefaultRole::Unsaid => {}
        DefaultRole::Always => out.push_str("default = true\n"),
        DefaultRole::Never => out.push_str("default = false\n"),
    }
    out.push('\n');
}

fn listener(out: &mut String, listener: &Listener) {
    out.push_str("[[listener]]\n");
    text(out, "name", &listener.name);
    list(out, "address", &listener.addresses);
    text(out, "mode", listener.mode);
    let _ = writeln!(out, "tls = {}", listener.tls);
    list(out, "accept_proxy", &listener.accept_proxy);
    out.push('\n');
}

fn route(out: &mut String, route: &Route) {
    out.push_str("[[route]]\n");
    if let Listeners::Named(names) = &route.listeners {
        list(out, "listener", names);
    }
    if !route.hosts.is_empty() {
        list(out, "host", &route.hosts);
    }
    if !route.alpn.is_empty() {
        list(out, "alpn", &route.alpn);
    }
    match &route.target {
        Target::Passthrough(server) => text(out, "passthrough", server),
        Target::Relay(relay) => {
            match &relay.to {
                RelayTarget::Backend(name) => text(out, "backend", name),
                RelayTarget::Server(server) => text(out, "server", server),
            }
            match relay.send_proxy {
                None => {}
                Some(SendProxy::V1) => text(out, "send_proxy", "v1"),
                Some(SendProxy::V2(ProxyV2 { crc32c, client_certificate })) => {
                    let _ = writeln!(
                        out,
                        "send_proxy = {{ version = \"v2\", crc32c = {crc32c}, client_certificate = {client_certificate} }}"
                    );
                }
            }
            if let Some(auth) = &relay.client_auth {
                client_auth(out, auth);
            }
        }
    }
    out.push('\n');
}

fn client_auth(out: &mut String, auth: &ClientAuth) {
    let _ = write!(out, "client_auth = {{ mode = \"{}\", ca = {}", auth.mode, quoted(&path(&auth.ca)));
    if !auth.allow.is_empty() {
        let _ = write!(out, ", allow = {}", array(&auth.allow));
    }
    out.push_str(" }\n");
}

fn backend(out: &mut String, backend: &Backend) {
    // A dot would begin a section within a section.
    let name = backend.name.as_str();
    let name = if name.contains('.') { quoted(name) } else { name.to_owned() };
    let _ = writeln!(out, "[backend.{name}]");
    list(out, "servers", &backend.servers);
    text(out, "balance", backend.balance);
    out.push('\n');
}

fn path(file: &FilePath) -> String {
    file.path.to_string_lossy().into_owned()
}

fn text(out: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(out, "{key} = {}", quoted(&value.to_string()));
}

fn list<T: Display>(out: &mut String, key: &str, values: &[T]) {
    let _ = writeln!(out, "{key} = {}", array(values));
}

fn array<T: Display>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(&value.to_string())).collect();
    format!("[{}]", values.join(", "))
}

/// A basic string of TOML: in double quotes, with what is not allowed there escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, parse};

    #[test]
    fn the_default_reads_back() {
        let (config, _) = parse("", "f.toml", &Environment::default()).unwrap();
        let printed = print(&config);
        let (again, _) = parse(&printed, "f.toml", &Environment::default()).unwrap();
        assert_eq!(again, config, "{printed}");
        assert!(printed.contains("# For one attempt to connect to a server\nconnect_timeout = \"5s\"\n"));
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n\u{7f}é"), "\"a\\\"b\\\\c\\u000A\\u007Fé\"");
    }
}
