//! The words of HAProxy that begin a line.

use super::Handling::{self, Becomes, Changed, Needless, NotTaken};
use super::KnownDirective;

const fn row(name: &'static str, handling: Handling) -> KnownDirective {
    KnownDirective { name, handling }
}

const ENGINE: Handling = Needless("Offramp has no such setting, and needs none");
const LOG: Handling =
    Changed("requests are logged as [access_log] says, Offramp's own messages as [log] says");
const STATS: Handling = Changed("the page of [admin] and `offramp top` show what happens");
const TABLE_OF_CLIENTS: Handling = NotTaken(
    "there are no tables of clients to be asked",
    "see `requests_per_client` and `connections_per_client` of [limits]",
);
const VARIABLE: Handling = NotTaken("routes have no variables", "decide in the application");
const FASTCGI: Handling =
    NotTaken("Offramp speaks HTTP to servers", "let the application serve HTTP, or keep a web server for it");
const CHECK: Handling =
    NotTaken("servers are checked by HTTP or by a connection", "see `health` of the backend");
const OLD: Handling =
    NotTaken("HAProxy 2.1 has removed it", "write `http-request` or `http-response`, and import again");
const PROCESS: Handling = Changed("systemd, or what starts Offramp, does so");
const TLS_WORDS: Handling = Changed("Offramp offers AEAD suites only, in its own order; see [tls]");
const SCRIPT: Handling = NotTaken("Offramp runs no scripts", "move what it does into the application");
const OTHER_SECTION: Handling = Changed("Offramp has no such part");

/// The rows, by subject.
#[rustfmt::skip]
pub(super) const TABLE: &[KnownDirective] = &[
    // Sections
    row("global", Needless("it is about the process")),
    row("defaults", Needless("it counts in the sections that follow")),
    row("frontend", Becomes("a [[listener]] for each `bind`, and routes")),
    row("backend", Becomes("a [backend.NAME]")),
    row("listen", Becomes("listeners, routes and a [backend.NAME]")),
    row("userlist", NotTaken("passwords are in a file of their own", "write `basic_auth` with a file of users (offramp password)")),
    row("user", Changed("Offramp has a user of its own, `offramp`; users of a list are written anew by `offramp password`")),
    row("group", Changed("Offramp has a group of its own, `offramp`")),
    row("peers", OTHER_SECTION), row("peer", OTHER_SECTION),
    row("resolvers", Changed("names of servers are looked up by the resolvers of the system, again and again")),
    row("nameserver", Needless("the resolvers of the system are asked")),
    row("resolve_retries", ENGINE), row("hold", ENGINE), row("accepted_payload_size", ENGINE), row("parse-resolv-conf", ENGINE),
    row("mailers", Changed("messages to operators are sent by [[notify]]")), row("mailer", Changed("see [[notify]]")),
    row("email-alert", Changed("messages to operators are sent by [[notify]]")),
    row("cache", NotTaken("Offramp stores no responses", "have the application cache")),
    row("total-max-size", ENGINE), row("max-object-size", ENGINE), row("max-age", ENGINE), row("process-vary", ENGINE),
    row("program", NotTaken("Offramp starts no programs beside it", "let systemd start it")), row("command", ENGINE),
    row("http-errors", Changed("pages of errors are files without a header, see `error_pages`")),
    row("ring", OTHER_SECTION), row("log-forward", OTHER_SECTION), row("traces", OTHER_SECTION),
    row("crt-store", NotTaken("stores of certificates are not read", "name the certificates in [[certificate]]")),
    row("load", NotTaken("stores of certificates are not read", "name the certificate in [[certificate]]")),
    row("acme", NotTaken("authorities are named in another way", "see [acme.NAME]")),
    row("fcgi-app", FASTCGI), row("use-fcgi-app", FASTCGI), row("docroot", FASTCGI), row("index", FASTCGI),
    // The process
    row("maxconn", Becomes("`connections` of [limits], from `global`; elsewhere there is one bound for the process")),
    row("nbthread", Becomes("`workers`")), row("nbproc", Becomes("`workers`")), row("cpu-map", ENGINE), row("daemon", PROCESS),
    row("master-worker", PROCESS), row("chroot", Changed("Offramp enters a sandbox by itself")), row("pidfile", PROCESS),
    row("uid", PROCESS), row("gid", PROCESS), row("ulimit-n", ENGINE), row("node", ENGINE), row("description", ENGINE),
    row("hard-stop-after", Becomes("`drain_timeout` of [limits]")), row("quiet", ENGINE), row("insecure-fork-wanted", ENGINE),
    row("numa-cpu-mapping", ENGINE), row("spread-checks", ENGINE), row("presetenv", PROCESS), row("setenv", PROCESS),
    row("maxconnrate", ENGINE), row("maxsslconn", ENGINE), row("maxsslrate", Changed("see `handshakes_per_client` of [limits]")),
    row("server-state-file", Changed("Offramp keeps what was changed while it ran by itself")), row("server-state-base", ENGINE),
    row("load-server-state-from-file", ENGINE), row("localpeer", ENGINE), row("unix-bind", ENGINE), row("zero-warning", ENGINE),
    row("h1-case-adjust", Changed("names of fields are passed as they come")), row("h1-case-adjust-file", ENGINE), row("profiling.tasks", ENGINE),
    row("lua-load", SCRIPT), row("lua-load-per-thread", SCRIPT), row("lua-prepend-path", SCRIPT),
    row("crt-base", Needless("paths of certificates are whole")), row("ca-base", Needless("paths of authorities are whole")),
    row("ssl-default-bind-options", Becomes("`policy` and `tickets` of [tls]")), row("ssl-default-bind-ciphers", TLS_WORDS),
    row("ssl-default-bind-ciphersuites", TLS_WORDS), row("ssl-default-bind-curves", TLS_WORDS), row("ssl-default-server-options", TLS_WORDS),
    row("ssl-default-server-ciphers", TLS_WORDS), row("ssl-default-server-ciphersuites", TLS_WORDS), row("ssl-server-verify", Changed("certificates of servers are always verified")),
    row("ssl-dh-param-file", Changed("no suite with DHE is offered; ECDHE needs no such file")), row("ssl-load-extra-files", ENGINE), row("ssl-engine", ENGINE),
    row("tune.ssl.default-dh-param", Changed("no suite with DHE is offered")), row("tune.ssl.cachesize", ENGINE), row("tune.ssl.lifetime", ENGINE),
    row("tune.bufsize", Changed("see `request_header_size` of [limits]")), row("tune.maxrewrite", ENGINE), row("tune.http.maxhdr", Changed("see `request_headers` of [limits]")),
    row("tune.h2.max-concurrent-streams", Changed("see `streams` of [limits]")), row("tune.h2.initial-window-size", ENGINE), row("tune.rcvbuf.client", ENGINE),
    row("tune.sndbuf.client", ENGINE), row("tune.rcvbuf.server", ENGINE), row("tune.sndbuf.server", ENGINE), row("tune.maxaccept", ENGINE),
    row("tune.ssl.maxrecord", Changed("see `record_size` of [tls]")), row("tune.idle-pool.shared", ENGINE), row("tune.lua.maxmem", ENGINE),
    // Logs and statistics
    row("log", LOG), row("log-format", LOG), row("log-format-sd", LOG), row("log-tag", LOG), row("log-send-hostname", LOG), row("error-log-format", LOG),
    row("option httplog", LOG), row("option tcplog", LOG), row("option dontlognull", LOG), row("option dontlog-normal", LOG), row("option logasap", LOG),
    row("option log-separate-errors", LOG), row("option log-health-checks", LOG), row("option socket-stats", STATS), row("option clitcpka", ENGINE),
    row("stats", STATS), row("unique-id-format", Changed("requests have an id of Offramp's own, in X-Request-Id")), row("unique-id-header", Changed("the id of a request is in X-Request-Id")),
    row("capture", LOG), row("http-request capture", LOG), row("declare", LOG), row("monitor-uri", Becomes("a route with `respond`")),
    row("monitor", NotTaken("a route answers for the process", "write a route with `respond`")), row("monitor-net", ENGINE),
    // Listening and choosing
    row("bind", Becomes("a [[listener]]; `crt` a [[certificate]]; `ca-file` and `verify` `client_auth`")),
    row("mode", Becomes("`mode` of a [[listener]]")),
    row("acl", Becomes("`host`, `path` and `listener` of routes, `allow` and `deny`")),
    row("use_backend", Becomes("a route by host and path")), row("default_backend", Becomes("the route for all others")),
    row("use-server", NotTaken("servers are selected by `balance`", "give the server a backend of its own")),
    row("redirect", Becomes("`redirect`")), row("http-request redirect", Becomes("`redirect`")),
    row("http-request deny", Becomes("`respond`, `allow`, `deny`; what cannot be said closes its routes")), row("http-request tarpit", Becomes("`respond` with 403")),
    row("http-request reject", Becomes("`respond` with 403")), row("http-request silent-drop", Becomes("`respond` with 403")), row("http-request allow", Becomes("`allow`")),
    row("http-request auth", NotTaken("passwords of a `userlist` are not taken", "write `basic_auth` with a file of users (offramp password)")),
    row("http-request return", Becomes("`respond`")), row("http-request set-header", Becomes("`request_headers.set`; the usual X-Forwarded-* are sent by themselves")),
    row("http-request add-header", Becomes("`request_headers.add`")), row("http-request del-header", Becomes("`request_headers.remove`")),
    row("http-request replace-path", Becomes("`rewrite`")), row("http-request set-path", Becomes("`rewrite`, where the new path is fixed")),
    row("http-request replace-pathq", NotTaken("patterns are of paths", "write `rewrite`")), row("http-request replace-uri", NotTaken("patterns are of paths", "write `rewrite`")),
    row("http-request set-uri", NotTaken("patterns are of paths", "write `rewrite`")), row("http-request set-query", NotTaken("patterns are of paths", "write `rewrite` with a `?`")),
    row("http-request replace-header", NotTaken("values are not changed by patterns", "set the field")), row("http-request replace-value", NotTaken("values are not changed by patterns", "set the field")),
    row("http-request set-method", NotTaken("Offramp does not change the method", "change it in the application")),
    row("http-request set-var", VARIABLE), row("http-request unset-var", VARIABLE), row("http-request set-var-fmt", VARIABLE), row("http-request set-map", VARIABLE), row("http-request add-acl", VARIABLE),
    row("http-request set-src", Changed("see `trusted_proxies` of the listener")), row("http-request set-log-level", LOG), row("http-request normalize-uri", Changed("see `normalize_path` of a route")),
    row("http-request set-nice", ENGINE), row("http-request set-mark", ENGINE), row("http-request set-tos", ENGINE), row("http-request set-priority-class", ENGINE), row("http-request disable-l7-retry", ENGINE),
    row("http-request track-sc0", TABLE_OF_CLIENTS), row("http-request track-sc1", TABLE_OF_CLIENTS), row("http-request track-sc2", TABLE_OF_CLIENTS), row("http-request sc-inc-gpc0", TABLE_OF_CLIENTS),
    row("http-request cache-use", NotTaken("Offramp stores no responses", "have the application cache")), row("http-response cache-store", NotTaken("Offramp stores no responses", "have the application cache")),
    row("http-request use-service", NotTaken("Offramp has no services of its own", "see `offramp metrics` in the book, and [metrics]")), row("http-request lua", SCRIPT),
    row("http-request wait-for-handshake", Needless("no early data is taken")), row("http-request early-hint", NotTaken("Offramp sends no hints of its own", "send them from the application")),
    row("http-response set-header", Becomes("`response_headers.set`")), row("http-response add-header", Becomes("`response_headers.add`")), row("http-response del-header", Becomes("`response_headers.remove`")),
    row("http-response replace-header", NotTaken("values are not changed by patterns", "set the field")), row("http-response replace-value", NotTaken("values are not changed by patterns", "set the field")),
    row("http-response set-status", NotTaken("Offramp does not change the status", "change it in the application")), row("http-response deny", NotTaken("responses are not refused", "decide in the application")),
    row("http-response return", NotTaken("responses are not replaced", "see `error_pages` and `intercept_errors`")), row("http-response set-var", VARIABLE), row("http-response track-sc0", TABLE_OF_CLIENTS),
    row("http-response set-log-level", LOG), row("http-after-response", NotTaken("responses are changed once", "write `response_headers`")), row("http-error", Changed("see `error_pages`")),
    row("block", Becomes("`respond` with 403")), row("tcp-request", Becomes("`allow` and `deny`, where it rejects by `src`; waiting for what a client says needs nothing")),
    row("tcp-request inspect-delay", Needless("Offramp reads the ClientHello by itself; see `handshake_timeout` of [limits]")),
    row("tcp-response", NotTaken("responses of connections are not looked at", "leave it out")), row("stick-table", TABLE_OF_CLIENTS), row("stick", Changed("see `sticky_cookie` and `balance` of a backend")),
    row("filter", Changed("compression is `compress` of a route; other filters have no counterpart")), row("compression", Becomes("`compress`")),
    row("reqadd", OLD), row("reqrep", OLD), row("reqirep", OLD), row("reqdel", OLD), row("reqidel", OLD), row("reqset", OLD), row("rspadd", OLD), row("rsprep", OLD), row("rspirep", OLD), row("rspdel", OLD), row("rspidel", OLD), row("reqdeny", OLD), row("reqideny", OLD),
    // Servers
    row("server", Becomes("a server of a backend")), row("server-template", NotTaken("servers are listed one by one", "write the name of the service in `servers`: all of its addresses are used")),
    row("default-server", Becomes("what each server has")), row("balance", Becomes("`balance`")), row("hash-type", ENGINE), row("cookie", Becomes("`sticky_cookie`")), row("dynamic-cookie-key", ENGINE),
    row("fullconn", ENGINE), row("http-reuse", Needless("connections to servers are shared by all clients")), row("retries", Changed("a request is sent again only where that is safe; see Balance several servers")),
    row("retry-on", Changed("a request is sent again only where that is safe; see Balance several servers")), row("option redispatch", Needless("another server is tried")), row("dispatch", NotTaken("servers are listed", "write `server`")),
    row("source", NotTaken("the kernel chooses the source address", "set a source route in the system")), row("disabled", NotTaken("the section is off", "remove it, and import again")), row("enabled", ENGINE),
    row("option httpchk", Becomes("`health` of the backend")), row("http-check", Becomes("`health` of the backend: `send` and `expect status`")), row("option tcp-check", Needless("a check connects")),
    row("tcp-check", CHECK), row("option mysql-check", CHECK), row("option pgsql-check", CHECK), row("option redis-check", CHECK), row("option smtpchk", CHECK), row("option ldap-check", CHECK), row("option ssl-hello-chk", CHECK), row("option external-check", CHECK), row("external-check", CHECK), row("option spop-check", CHECK),
    row("option forwardfor", Needless("servers get X-Forwarded-For; what a client sends there is replaced, unless it is in `trusted_proxies`")), row("option originalto", NotTaken("the address of the listener is not sent", "leave it out")),
    row("option persist", ENGINE), row("option allbackups", Needless("all backups are used")), row("option prefer-last-server", ENGINE), row("option srvtcpka", ENGINE), row("option tcpka", ENGINE),
    row("option http-keep-alive", ENGINE), row("option httpclose", Changed("connections are kept")), row("option http-server-close", Changed("connections to servers are kept")), row("option forceclose", Changed("connections are kept")), row("option http-tunnel", ENGINE),
    row("option http-use-htx", ENGINE), row("option http-buffer-request", Changed("requests stream as they come, and are not stored first")), row("option abortonclose", Needless("a client that leaves has its request ended")), row("option nolinger", ENGINE), row("option contstats", ENGINE),
    row("option http-no-delay", ENGINE), row("option http-pretend-keepalive", ENGINE), row("option http-use-proxy-header", ENGINE), row("option http-ignore-probes", ENGINE), row("option splice-auto", ENGINE), row("option splice-request", ENGINE), row("option splice-response", ENGINE), row("option tcp-smart-accept", ENGINE), row("option tcp-smart-connect", ENGINE),
    row("option accept-invalid-http-request", Changed("an invalid request is refused")), row("option accept-invalid-http-response", ENGINE), row("option checkcache", ENGINE), row("option transparent", NotTaken("servers are named", "write `server`")), row("option http-restrict-req-hdr-names", ENGINE), row("option h1-case-adjust-bogus-client", ENGINE), row("option independent-streams", ENGINE),
    row("timeout connect", Becomes("`connect_timeout` of the backend")), row("timeout client", Becomes("`idle_timeout` of [limits]")), row("timeout server", Becomes("`response_timeout` of the route")),
    row("timeout http-request", Becomes("`request_header_timeout` of [limits]")), row("timeout http-keep-alive", Becomes("`keepalive_timeout` of [limits]")), row("timeout queue", Becomes("`queue_timeout` of the backend")), row("timeout check", Becomes("`health.timeout` of the backend")),
    row("timeout tunnel", Changed("`idle_timeout` of the route holds for WebSockets too")), row("timeout client-fin", ENGINE), row("timeout server-fin", ENGINE), row("timeout tarpit", ENGINE), row("timeout client-hs", Changed("see `handshake_timeout` of [limits]")), row("timeout resolve", ENGINE), row("timeout retry", ENGINE), row("timeout mail", ENGINE), row("timeout connect-fin", ENGINE),
    row("clitimeout", Changed("see `idle_timeout` of [limits]")), row("srvtimeout", Changed("see `response_timeout` of the route")), row("contimeout", Changed("see `connect_timeout` of the backend")),
    row("errorfile", Changed("Offramp has pages of its own; `error_pages` takes files without a header")), row("errorfiles", Changed("see `error_pages`")), row("errorloc", Changed("see `error_pages`")), row("errorloc302", Changed("see `error_pages`")), row("errorloc303", Changed("see `error_pages`")),
    row("force-persist", ENGINE), row("ignore-persist", ENGINE), row("persist", ENGINE), row("max-keep-alive-queue", ENGINE), row("max-session-srv-conns", ENGINE), row("id", ENGINE), row("guid", ENGINE), row("backlog", ENGINE), row("grace", ENGINE), row("rate-limit", Changed("see `handshakes_per_client` of [limits]")), row("bind-process", ENGINE), row("http-send-name-header", NotTaken("servers do not get their names", "leave it out")),
    row(".if", NotTaken("conditions of the file are not followed", "import the file that remains of it")), row(".elif", NotTaken("conditions of the file are not followed", "see `.if`")), row(".else", NotTaken("conditions of the file are not followed", "see `.if`")), row(".endif", Needless("it ends `.if`")), row(".notice", ENGINE), row(".warning", ENGINE), row(".alert", ENGINE), row(".diag", ENGINE),
];
