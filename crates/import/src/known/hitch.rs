//! The settings of hitch.

use super::Handling::{self, Becomes, Changed, Needless, NotTaken};
use super::KnownDirective;

const fn row(name: &'static str, handling: Handling) -> KnownDirective {
    KnownDirective { name, handling }
}

const ENGINE: Handling = Needless("Offramp has no such setting, and needs none");
const PROCESS: Handling = Changed("systemd, or what starts Offramp, does so");
const LOG: Handling = Changed("[log] and [access_log] say what is written");
const STAPLE: Handling =
    Changed("a response is stapled from the file NAME.ocsp beside the certificate; Offramp fetches none");
const TLS_WORDS: Handling = Changed("Offramp offers AEAD suites only, in its own order; see [tls]");

/// The rows, by subject.
#[rustfmt::skip]
pub(super) const TABLE: &[KnownDirective] = &[
    // Listening and servers
    row("frontend", Becomes("a [[listener]]")), row("host", Becomes("`address` of its listener")), row("port", Becomes("`address` of its listener")),
    row("backend", Becomes("`server` of the route")), row("backend-refresh", Needless("names of servers are looked up again and again")),
    row("backend-connect-timeout", Becomes("`connect_timeout` of [limits]")), row("ssl-handshake-timeout", Becomes("`handshake_timeout` of [limits]")),
    row("write-proxy", Becomes("`send_proxy`")), row("write-proxy-v1", Becomes("`send_proxy`")), row("write-proxy-v2", Becomes("`send_proxy`")),
    row("write-ip", NotTaken("the address of the client is sent by the PROXY protocol", "see `send_proxy` of a route")),
    row("proxy-proxy", Becomes("`accept_proxy` of the listener and `send_proxy`")), row("proxy-tlv", Needless("a v2 header has the details of TLS")),
    row("proxy-authority", Needless("a v2 header has the server name")), row("proxy-client-cert", Changed("see `send_proxy.client_certificate` of a route")),
    row("alpn-protos", Becomes("`alpn` of a route")), row("tcp-fastopen", ENGINE), row("backlog", ENGINE), row("keepalive", ENGINE),
    row("recv-bufsize", ENGINE), row("send-bufsize", ENGINE), row("ring-slots", ENGINE), row("ring-data-len", ENGINE),
    // TLS
    row("pem-file", Becomes("a [[certificate]]")), row("cert", Becomes("`cert` of a [[certificate]]")), row("private-key", Becomes("`key` of a [[certificate]]")),
    row("pem-dir", Becomes("`directory` of a [[certificate]]")), row("pem-dir-glob", Changed("pairs of certificate and key are found by their names")),
    row("ocsp-resp-file", Becomes("`ocsp` of a [[certificate]]")), row("ocsp-dir", STAPLE), row("ocsp-verify-staple", Needless("a stapled response is checked")),
    row("ocsp-connect-tmo", STAPLE), row("ocsp-resp-tmo", STAPLE), row("ocsp-refresh-interval", STAPLE),
    row("tls-protos", Becomes("`policy` or `max_version` of [tls]")), row("tls", Changed("TLS 1.2 and 1.3 are spoken")), row("ssl", Changed("TLS 1.2 and 1.3 are spoken")),
    row("ciphers", TLS_WORDS), row("ciphersuites", TLS_WORDS), row("prefer-server-ciphers", TLS_WORDS), row("ecdh-curve", Changed("X25519MLKEM768, X25519, P-256 and P-384 are offered")),
    row("dhparam", Changed("no suite with DHE is offered")), row("ssl-engine", ENGINE), row("ssl-ticket-key", NotTaken("ticket keys stay in the process", "leave it out; a second machine makes a full handshake")),
    row("session-cache", Needless("sessions are resumed by tickets; TLS 1.2 sessions too")), row("shared-cache", Needless("sessions are resumed by tickets")),
    row("shared-cache-listen", NotTaken("ticket keys stay in the process", "leave it out")), row("shared-cache-peer", NotTaken("ticket keys stay in the process", "leave it out")),
    row("sni-nomatch-abort", Becomes("`unknown_name` of [tls]")), row("match-global-certs", Changed("all listeners have all certificates")),
    row("client-verify", Becomes("`client_auth.mode`")), row("client-verify-ca", Becomes("`client_auth.ca`")), row("client-verify-crl", NotTaken("the list is named in the route", "write `client_auth.crl`")),
    // The process
    row("workers", Becomes("`workers`")), row("user", Changed("Offramp has a user of its own, `offramp`")), row("group", Changed("Offramp has a group of its own, `offramp`")),
    row("chroot", Changed("Offramp enters a sandbox by itself")), row("daemon", PROCESS), row("pidfile", PROCESS), row("dlopen", ENGINE),
    row("quiet", LOG), row("log-level", LOG), row("syslog", Becomes("`output` of [log]")), row("syslog-facility", LOG), row("log-filename", Becomes("`output` of [log]")), row("test", ENGINE),
];
