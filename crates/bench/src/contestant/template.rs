//! Filling the configurations of the contestants.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::contestant::{Mode, Site};
use crate::error::{Error, Result};
use crate::protocol::{Found, Version};

/// Connections that every contestant is told to allow: two descriptors each, and some to spare.
pub(crate) fn connections() -> usize {
    const MOST: usize = 24_000;
    const SPARE: usize = 400;
    let limit = getrlimit(Resource::Nofile).current.and_then(|n| usize::try_from(n).ok());
    limit.map_or(MOST, |n| n.saturating_sub(SPARE) / 2).min(MOST)
}

/// The dynamic module that Debian's nginx needs for `stream`; built in elsewhere. Relative to the root of the system.
const STREAM_MODULE: &str = "usr/lib/nginx/modules/ngx_stream_module.so";

/// Names and values of the places in a template.
pub(crate) type Values = Vec<(&'static str, String)>;

/// Everything that a template may ask for; `root` is that of the system in which the contestant runs.
pub(crate) fn values(dir: &Path, root: &Path, listen: SocketAddr, site: &Site<'_>) -> Values {
    let as_root = rustix::process::geteuid().is_root();
    let stream = if root.join(STREAM_MODULE).exists() {
        format!("load_module /{STREAM_MODULE};")
    } else {
        String::new()
    };
    let (nginx, haproxy, hitch, stunnel) = match site.backend {
        Found::Tcp(a) => (a.to_string(), a.to_string(), format!("[{}]:{}", a.ip(), a.port()), a.to_string()),
        Found::Unix(path) => {
            let path = path.display();
            (format!("unix:{path}"), format!("unix@{path}"), path.to_string(), path.to_string())
        }
    };
    let caddy = match site.backend {
        Found::Tcp(address) => address.to_string(),
        Found::Unix(path) => format!("unix/{}", path.display()),
    };
    let sozu = match site.backend {
        Found::Tcp(address) => format!("address = \"{address}\""),
        // The address is only this backend's name then.
        Found::Unix(path) => format!("address = \"127.0.0.1:1\", unix_path = \"{}\"", path.display()),
    };
    let (protocol, sozu_protocol) = match site.setup.version {
        Version::Tls12 => ("TLSv1.2", "TLS_V12"),
        Version::Tls13 => ("TLSv1.3", "TLS_V13"),
    };
    let clients = |line: &dyn Fn(std::path::Display<'_>) -> String| {
        site.clients.map(|clients| line(clients.authority.display())).unwrap_or_default()
    };
    vec![
        ("dir", dir.display().to_string()),
        ("root", site.root.display().to_string()),
        ("listen", listen.to_string()),
        ("port", listen.port().to_string()),
        ("workers", site.setup.workers.to_string()),
        ("reuseport", if site.setup.workers > 1 { "reuseport" } else { "" }.to_owned()),
        ("connections", connections().to_string()),
        ("descriptors", (2 * connections() + 100).to_string()),
        ("cert", site.identity.cert.display().to_string()),
        ("key", site.identity.key.display().to_string()),
        ("both", site.identity.both.display().to_string()),
        ("protocol", protocol.to_owned()),
        ("sozu_protocol", sozu_protocol.to_owned()),
        ("alpn", site.setup.mode.alpn().to_owned()),
        ("nginx_http2", if site.setup.mode.alpn() == "h2" { " http2" } else { "" }.to_owned()),
        // Caddy knows HTTP/2 only beside HTTP/1.1.
        ("caddy_protocols", if site.setup.mode == Mode::Http2 { "h1 h2" } else { "h1" }.to_owned()),
        ("ciphers12", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256".to_owned()),
        ("load_stream", stream),
        // As root, workers would change to a user who may not see the harness's directory.
        ("user_line", if as_root { "user root;" } else { "" }.to_owned()),
        ("h2o_user", if as_root { "user: root" } else { "" }.to_owned()),
        ("hitch_user", if as_root { "user = \"nobody\"" } else { "" }.to_owned()),
        ("clients_offramp", clients(&|ca| format!("client_auth = {{ ca = \"{ca}\" }}"))),
        (
            "clients_nginx",
            clients(&|ca| format!("ssl_client_certificate {ca};\n        ssl_verify_client on;")),
        ),
        ("clients_haproxy", clients(&|ca| format!("ca-file {ca} verify required"))),
        ("clients_hitch", clients(&|ca| format!("client-verify = required\nclient-verify-ca = \"{ca}\""))),
        ("backend_caddy", caddy),
        ("backend_offramp", nginx.clone()),
        ("backend_nginx", nginx),
        ("backend_haproxy", haproxy),
        ("backend_hitch", hitch),
        ("backend_stunnel", stunnel),
        ("backend_sozu", sozu),
    ]
}

/// Replaces each `{{name}}`.
///
/// # Errors
/// When a name is unknown: a typing error in a template must not reach a contestant.
pub(crate) fn fill(template: &str, values: &[(&'static str, String)]) -> Result<String> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, tail) = after
            .split_once("}}")
            .ok_or_else(|| Error::Measure("a template has an opening without an end".into()))?;
        let value = values.iter().find(|(known, _)| *known == name);
        let (_, value) = value.ok_or_else(|| Error::Measure(format!("a template asks for {name:?}")))?;
        out.push_str(before);
        out.push_str(value);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_and_unknown_ones_refused() {
        let values: Values = vec![("a", "1".into()), ("b", "2".into())];
        assert_eq!(fill("x {{a}}{{b}} { y }", &values).unwrap(), "x 12 { y }");
        assert!(fill("{{c}}", &values).is_err());
        assert!(fill("{{a", &values).is_err());
    }
}
