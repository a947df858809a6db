//! Keys of other proxies, for users of nginx, Caddy, HAProxy, Traefik or Apache: the corresponding key of
//! Offramp, or a remark that there is none.

/// Sections in which such keys are typically written.
const WHERE: [&str; 9] =
    ["", "route", "listener", "backend.*", "limits", "tls", "certificate", "defaults.route", "policy.*"];

/// The remark for the key `name` in `section`.
pub(super) fn answer(section: &str, name: &str) -> Option<&'static str> {
    if !WHERE.contains(&section) {
        return None;
    }
    let name: String =
        name.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).take(LONGEST + 1).collect();
    ANSWERS.iter().find(|(names, _)| names.contains(&&*name)).map(|(_, answer)| *answer)
}

/// The maximum length of a name in the table.
const LONGEST: usize = 32;

/// Synonyms, in lower case with `_`, and the remark. Text between backticks is a key or TOML.
const ANSWERS: [(&[&str], &str); 53] = [
    (
        &["method", "methods", "limit_except"],
        "Offramp has nothing for it: a route matches `host` and `path`, and the application looks at the method",
    ),
    (
        &["rate_limit", "ratelimit", "rate_limits", "limit_req", "throttle", "rps", "inflightreq"],
        "`requests_per_client` in [limits] bounds the requests of each client address, over all routes",
    ),
    (
        &["cors", "access_control", "accesscontrolalloworiginlist"],
        "Offramp has nothing of its own for CORS: set the fields with `response_headers`, and answer OPTIONS in the application",
    ),
    (
        &["headers", "header", "custom_headers", "http_header"],
        "write `request_headers` for what servers get, or `response_headers` for what clients get",
    ),
    (
        &["proxy_set_header", "header_up", "customrequestheaders", "http_request", "requestheader"],
        "write `request_headers`, with `set`, `add` and `remove`",
    ),
    (
        &[
            "add_header",
            "more_set_headers",
            "proxy_hide_header",
            "header_down",
            "customresponseheaders",
            "http_response",
        ],
        "write `response_headers`, with `set`, `add` and `remove`",
    ),
    (
        &[
            "proxy_pass",
            "proxy",
            "reverse_proxy",
            "upstream",
            "upstreams",
            "target",
            "forward",
            "service",
            "services",
        ],
        "write `server` for one server, or `backend` with a [backend.NAME] for several",
    ),
    (
        &["fastcgi_pass", "uwsgi_pass", "grpc_pass", "handler", "handle", "url"],
        "write `server` or `backend`: servers speak HTTP/1.1, or HTTP/2 with `protocol`; there is no FastCGI",
    ),
    (&["use_backend", "default_backend"], "write `backend` with a [backend.NAME]"),
    (
        &["location", "uri", "prefix", "path_prefix", "pathprefix", "path_beg", "paths"],
        "write `path`: the first segments of the path",
    ),
    (
        &["server_name", "server_names", "hostname", "domain", "domains", "hosts", "vhost", "rule", "match"],
        "write `host`, and `path` for a part of it",
    ),
    (&["listen", "bind", "port", "ports"], "write `address` in a [[listener]]"),
    (
        &["entrypoints", "entrypoint"],
        "write a [[listener]] for each, and `listener` in a route that is not for all of them",
    ),
    (
        &["ssl_certificate", "ssl_certificate_key", "ssl_cert", "certfile", "keyfile", "crt", "certresolver"],
        "write a [[certificate]] with `cert` and `key`, or with `acme`",
    ),
    (
        &["letsencrypt", "email", "auto_https", "automatic_https", "certbot"],
        "write a [[certificate]] with `acme = \"letsencrypt\"`",
    ),
    (&["return"], "write `redirect`, or `respond`"),
    (&["redir", "redirections", "redirectregex", "redirectscheme"], "write `redirect`"),
    (&["proxy_buffering", "proxy_request_buffering"], "leave it out: bodies stream, and are not stored"),
    (&["merge_slashes"], "leave it out, or write `normalize_path`"),
    (&["limit_rate"], "write `bandwidth`"),
    (&["expires"], "write `cache_control` for files, or `response_headers`"),
    (&["http2"], "leave it out: clients choose HTTP/2 or HTTP/1.1 by ALPN"),
    (&["acl"], "a [[route]] chooses by `host` and `path`, and admits by `allow` and `deny`"),
    (&["proxy_protocol"], "write `accept_proxy` in a [[listener]], or `send_proxy` in a [[route]]"),
    (&["ssl"], "leave it out: a [[listener]] speaks TLS by itself; `tls` in a [backend.NAME] is for servers"),
    (&["forwardfor", "option"], "leave it out: servers get X-Forwarded-For by itself"),
    (&["max_fails", "fail_timeout"], "write `eject` in a [backend.NAME]"),
    (
        &["keepalive"],
        "leave it out: connections are kept by themselves, those of clients for `keepalive_timeout` in [limits]",
    ),
    (&["log_format"], "write `format` in [log]"),
    (&["try_files"], "write `root` with `try` and `fallback`"),
    (
        &["file_server", "browse", "autoindex", "alias", "static", "document_root"],
        "write `root`, and `listing`",
    ),
    (
        &["auth_basic", "auth_basic_user_file", "basicauth", "htpasswd", "basic_authentication", "userlist"],
        "write `basic_auth` with the file of users",
    ),
    (&["auth_request", "forwardauth", "auth_url", "external_auth"], "write [route.forward_auth]"),
    (
        &["auth", "authentication", "auth_jwt", "oidc", "oauth2"],
        "write `basic_auth`, `jwt` or `forward_auth`",
    ),
    (
        &["client_max_body_size", "request_body", "max_request_body", "body_limit", "buffering"],
        "write `max_body`; bodies stream, and are not stored",
    ),
    (
        &[
            "proxy_read_timeout",
            "proxy_send_timeout",
            "read_timeout",
            "timeout",
            "timeouts",
            "timeout_server",
        ],
        "write `response_timeout` for the head of a response, and `idle_timeout` for what follows",
    ),
    (
        &["proxy_connect_timeout", "timeout_connect", "dial_timeout"],
        "write `connect_timeout` in [limits], [backend.NAME] or [[route]]",
    ),
    (
        &["timeout_client", "client_header_timeout", "client_body_timeout", "keepalive_requests"],
        "write `request_header_timeout`, `request_body_timeout` or `keepalive_timeout` in [limits]",
    ),
    (
        &[
            "keepalive_time",
            "keepalive_lifetime",
            "max_connection_age",
            "max_connection_duration",
            "max_connection_lifetime",
            "connection_lifetime",
        ],
        "write `max_age` in [limits]",
    ),
    (&["gzip", "brotli", "encode", "compression", "zstd"], "write `compress`"),
    (&["error_page", "handle_errors", "errorfile", "errors"], "write `error_pages`"),
    (
        &["proxy_cache", "cache", "proxy_cache_path"],
        "Offramp keeps no responses of servers; a cache such as Varnish stands behind it",
    ),
    (
        &[
            "whitelist",
            "blacklist",
            "ip_whitelist",
            "ipallowlist",
            "ipwhitelist",
            "allowlist",
            "denylist",
            "remote_ip",
        ],
        "write `allow` or `deny`",
    ),
    (
        &[
            "lb_policy",
            "load_balancing",
            "loadbalancer",
            "load_balancer",
            "lb_method",
            "least_conn",
            "ip_hash",
            "hash",
        ],
        "write `balance` in a [backend.NAME]",
    ),
    (&["health_check", "healthcheck", "health_uri", "option_httpchk"], "write `health` in a [backend.NAME]"),
    (
        &["sticky", "cookie", "session_affinity", "stick_table", "sticky_sessions"],
        "write `sticky_cookie` in a [backend.NAME]",
    ),
    (
        &["websocket", "websockets", "proxy_http_version"],
        "leave it out: WebSocket passes by itself; `upgrade` names other protocols",
    ),
    (
        &["retry", "retries", "proxy_next_upstream", "lb_try_duration", "circuitbreaker", "circuit_breaker"],
        "leave it out: the next server is tried by itself; `eject` in a [backend.NAME] takes out one that fails",
    ),
    (
        &[
            "middleware",
            "middlewares",
            "plugin",
            "plugins",
            "lua",
            "script",
            "modsecurity",
            "waf",
            "rewrite_rule",
        ],
        "Offramp has no plugins, scripts or rules of a WAF: a route says all by its keys",
    ),
    (&["http3", "quic", "h3", "alt_svc"], "Offramp speaks no HTTP/3 yet; clients use HTTP/2"),
    (
        &[
            "real_ip",
            "set_real_ip_from",
            "real_ip_header",
            "forwarded_headers",
            "forwardedheaders",
            "trusted_ips",
            "trustedips",
        ],
        "write `trusted_proxies` in the [[listener]]",
    ),
    (
        &["strip_prefix", "stripprefix", "uri_strip_prefix", "handle_path", "add_prefix", "addprefix"],
        "write `strip_path`, or `replace_path` with the new beginning",
    ),
    (
        &[
            "ssl_protocols",
            "ssl_ciphers",
            "min_version",
            "minversion",
            "ciphers",
            "ciphersuites",
            "protocols",
        ],
        "write `policy` in [tls]",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    /// A remark must not name a removed key, nor exist for a key that is valid in the section.
    #[test]
    fn answers_name_keys_that_exist() {
        for (names, answer) in ANSWERS {
            for part in answer.split('`').skip(1).step_by(2) {
                let key = part.split([' ', '=']).next().unwrap();
                assert!(
                    keys::TABLE.iter().any(|known| known.name() == key && known.support.is_now()),
                    "{part}"
                );
            }
            for part in answer.split('[').skip(1).filter_map(|rest| rest.split_once(']')) {
                let section = part.0.trim_end_matches(".NAME");
                assert!(section.is_empty() || keys::find(section).is_some(), "{section}");
            }
            for name in names {
                assert!(name.len() <= LONGEST && super::answer("route", name) == Some(answer), "{name}");
                for section in WHERE {
                    assert!(keys::find_in(section, name).is_none(), "{name} is a key of [{section}]");
                }
            }
        }
    }

    #[test]
    fn names_are_found_in_every_spelling() {
        assert_eq!(answer("route", "Rate-Limit"), answer("", "rate_limit"));
        assert!(answer("route", "ipWhiteList").is_some());
        assert_eq!((answer("log", "method"), answer("route", &"x".repeat(10_000))), (None, None));
    }
}
