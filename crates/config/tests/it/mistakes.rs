//! What files with mistakes are told.

use offramp_config::{Environment, Errors, Severity, parse};

use crate::blessed::{compare, read};

pub(crate) fn errors(text: &str) -> Errors {
    parse(text, "offramp.toml", &Environment::default()).expect_err("the text has mistakes")
}

pub(crate) fn messages(text: &str) -> String {
    errors(text).to_string()
}

#[test]
fn five_mistakes_are_five_errors() {
    let errors = errors(&read("tests/data/five_mistakes.toml"));
    assert_eq!(errors.count(), 5);
    compare("tests/data/five_mistakes.txt", &format!("{errors}\n"));
}

#[test]
fn every_other_kind_of_mistake() {
    let errors = errors(&read("tests/data/other_mistakes.toml"));
    compare("tests/data/other_mistakes.txt", &format!("{errors}\n"));
}

#[test]
fn every_mistake_with_http_and_figures() {
    let errors = errors(&read("tests/data/http_mistakes.toml"));
    compare("tests/data/http_mistakes.txt", &format!("{errors}\n"));
}

#[test]
fn staples_and_revocation_lists_go_with_what_they_are_about() {
    let pin = "pin = \"sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\"";
    let tls = |keys: &str| {
        format!("[[route]]\nbackend = \"x\"\n[backend.x]\nservers = \"a:1\"\ntls = {{ {keys} }}\n")
    };
    for (text, expected) in [
        ("[[certificate]]\nlocal = true\nocsp = \"a\"\n".to_owned(), "`ocsp` has no effect without `cert`"),
        (
            "[[certificate]]\ndirectory = \"a\"\nocsp = \"a\"\n".to_owned(),
            "`ocsp` cannot go with `directory`",
        ),
        (tls(&format!("{pin}, crl = \"a.crl\"")), "`crl` cannot go with `pin`"),
        (tls("crl = []"), "`crl` is empty"),
    ] {
        let messages = messages(&text);
        assert!(messages.contains(expected), "{text}{messages}");
    }
}

#[test]
fn every_problem_has_a_place() {
    for file in ["other_mistakes", "http_mistakes"] {
        let errors = errors(&read(&format!("tests/data/{file}.toml")));
        for problem in errors.problems() {
            assert!(problem.place().is_some() && problem.remedy().is_some(), "{problem}");
        }
        let lines: Vec<_> = errors.problems().iter().map(|p| p.place().unwrap().line).collect();
        assert!(lines.is_sorted(), "{lines:?}");
    }
}

/// A listener of requests over TLS, one in plain text, one of connections; and what comes before a route's keys.
const THREE: &str = "[[listener]]\nname = \"web\"\nmode = \"http\"\n\
                     [[listener]]\nname = \"plain\"\naddress = \"[::]:80\"\nmode = \"http\"\ntls = false\n\
                     [[listener]]\nname = \"db\"\naddress = \"[::]:81\"\n[[route]]\n";

#[test]
fn answers_of_routes_are_possible() {
    let http = "[[listener]]\nmode = \"http\"\n[[route]]\n";
    let server = "server = \"a:1\"\n";
    for (text, expected) in [
        (format!("{http}{server}error_pages = {{ 200 = \"a\" }}"), "`200` is not the status of an error"),
        (format!("{http}{server}error_pages = {{ 3xx = \"a\" }}"), "`3xx` is not the status of an error"),
        (format!("{http}{server}error_pages = {{ 4x = [\"a\", \"b\"] }}"), "`4x` is not an HTTP status"),
        (format!("{http}{server}error_pages = {{ 404 = \"\" }}"), "`` is not a path"),
        (format!("{http}{server}intercept_errors = true"), "`intercept_errors` has no pages to send"),
        (
            format!(
                "{http}redirect = \"https://a\"\nerror_pages = {{ 404 = \"a\" }}\nintercept_errors = true"
            ),
            "`intercept_errors` cannot go with `redirect`",
        ),
        (
            "[[route]]\npassthrough = \"a:1\"\nmaintenance = true".to_owned(),
            "`maintenance` cannot go with `passthrough`",
        ),
        (format!("[[route]]\n{server}maintenance = true"), "`maintenance` applies to HTTP only"),
        (format!("{http}{server}maintenance = {{ allow = \"10.0.0.1/8\" }}"), "10.0.0.1/8"),
        (format!("{http}respond = {{ file = \"a\", body = \"b\" }}"), "cannot have both `body` and `file`"),
        (format!("{http}respond = {{ file = \"a\", status = 204 }}"), "leave `file` out"),
        (format!("{http}{server}rewrite = {{ match = 'a' }}"), "lacks `to`"),
        (format!("{http}{server}rewrite = [{{ match = 'a' }}]"), "lacks `to`"),
        (
            format!("{http}{server}rewrite = [{{ match = '(', to = \"a\" }}]"),
            "at character 1: unclosed group",
        ),
        (format!("{http}{server}path = \"/a%2Fb\""), "servers read %2F in several ways"),
        (format!("{http}{server}rewrite = [{{ match = \"a\", to = \"a\" }}]"), "`a` is not a path"),
        (
            format!("{http}{server}rewrite = [{{ match = 'a', to = \"/ b\" }}]"),
            "this character is in no path",
        ),
        (format!("{http}{server}rewrite = [{{ match = 'a', to = \"/$1\" }}]"), "has no group `1`"),
        (format!("{http}{server}rewrite = [{{ match = '(a)', to = \"/$1b\" }}]"), "has no group `1b`"),
        (format!("{http}{server}rewrite = [{{ match = '(a)', to = \"/$/\" }}]"), "`$$` for the character"),
        (format!("{http}{server}rewrite = [{{ match = '(a)', to = \"/${{1\" }}]"), "without its `}`"),
        (format!("{http}{server}rewrite = [{{ match = '(\\w{{999}}){{999}}', to = \"/\" }}]"), "too large"),
        (
            format!("{http}{server}rewrite = [{{ match = 'a', to = \"/{}\" }}]", "$0".repeat(21)),
            "more than 20 times",
        ),
        (
            format!("{http}{server}replace_path = \"/b\"\nrewrite = [{{ match = 'a', to = \"/\" }}]"),
            "`replace_path` cannot go with `rewrite`",
        ),
        (
            format!("{http}respond = {{}}\nrewrite = [{{ match = 'a', to = \"/\" }}]"),
            "`rewrite` cannot go with `respond`",
        ),
    ] {
        let errors = errors(&text);
        assert!(errors.to_string().contains(expected), "{text}\n{errors}");
        assert_eq!(errors.count(), 1, "{text}\n{errors}");
    }
}

#[test]
fn a_mistake_in_a_pattern_is_shown_where_it_is() {
    let text = "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"a:1\"\n\
                rewrite = [{ match = '^/(a)/[z-a]$', to = \"/$1/$2\" }, { match = '(a)', to = \"/$1/$2\" }]\n";
    let errors = errors(text);
    let places: Vec<_> = errors.problems().iter().map(|problem| problem.place().unwrap().column).collect();
    let line = text.lines().last().unwrap();
    assert_eq!(places, [line.find("z-a").unwrap() + 1, line.rfind("$2").unwrap() + 1], "{errors}");
    // What is escaped in TOML has no place of its own.
    let errors = self::errors(&text.replace("'^/(a)/[z-a]$'", "\"^/(a)\\u002F[z-a]$\""));
    let first = &errors.problems()[0];
    assert!(first.message().contains("at character 8"), "{errors}");
    assert_eq!(first.place().unwrap().column, line.find('\'').unwrap() + 1, "{errors}");
}

#[test]
fn conflicts_between_routes_and_the_modes_of_listeners() {
    let server = "server = \"a:1\"\n";
    let one = "[[route]]\nserver = \"a:1\"\n";
    let http = "[[listener]]\nmode = \"http\"\n";
    let backend = "backend = \"x\"\n[backend.x]\nservers = \"a:1\"\n";
    let auth = "client_auth = { ca = \"ca.pem\" }\n";
    let cases = [
        (format!("{THREE}{server}listener = \"db\"\npath = \"/a\""), "`db` relays connections"),
        (
            format!("{THREE}{server}listener = [\"web\", \"db\"]\nmax_body = \"1B\""),
            "`db` relays connections",
        ),
        (format!("{one}path = \"/\""), "no listener has mode = \"http\""),
        ("[[route]]\nredirect = \"https\"".to_owned(), "no listener has mode = \"http\""),
        (format!("{http}[[route]]\nredirect = \"https\""), "nothing to redirect"),
        (format!("{THREE}listener = \"web\"\nredirect = \"https\""), "`web` speak TLS already"),
        (format!("{THREE}{server}listener = \"web\"\nalpn = \"h2\""), "offer h2 and http/1.1"),
        (format!("{http}{one}alpn = \"h2\""), "all listeners have mode = "),
        (format!("{THREE}{server}listener = \"plain\"\nhsts = true"), "`plain` has none"),
        (format!("{THREE}{server}listener = \"plain\"\n{auth}"), "`client_auth` needs TLS"),
        (
            format!(
                "{THREE}{server}listener = \"web\"\ndeny_ja4 = \"t10*\"\n[[route]]\n{server}listener = \"web\"\npath = \"/a\""
            ),
            "differ in `deny_ja4`",
        ),
        (
            format!("{THREE}listener = \"web\"\n{backend}tls = {{ preamble = \"postgres\" }}"),
            "but the listener `web` speaks HTTP",
        ),
        (
            format!(
                "{THREE}listener = \"db\"\n{backend}tls = {{ preamble = \"postgres\" }}\nhealth = {{ path = \"/\" }}"
            ),
            "`health` is of HTTP",
        ),
        (
            format!(
                "{one}client_auth = {{ ca = \"a.pem\", trust_domains = {{ \"example.org\" = \"b.pem\" }} }}"
            ),
            "`ca` cannot go with `trust_domains`",
        ),
        (
            format!("{one}client_auth = {{ trust_domains = {{ \"spiffe://example.org\" = \"b.pem\" }} }}"),
            "is no SPIFFE trust domain",
        ),
        (format!("{one}client_auth = {{ mode = \"required\" }}"), "lacks `ca`"),
        (format!("{THREE}{backend}protocol = \"h2\""), "`protocol` of the backend `x` applies to HTTP only"),
        (format!("{THREE}{backend}balance = \"hash:cookie:a\""), "`balance` of the backend `x`"),
        (format!("{THREE}{backend}sticky_cookie = \"a\""), "`sticky_cookie` of the backend `x`"),
        (format!("{http}{one}path = \"/a\"\n{one}path = \"/a/\""), "earlier route already takes"),
        (format!("{http}{one}path = \"/a\"\n{one}path = \"/b\"\n{auth}"), "share the handshake"),
        (
            format!("{http}{one}host = \"a\"\npath = \"/a\"\n[[route]]\nhost = \"a\"\npassthrough = \"b:1\""),
            "pass through, or none",
        ),
        (
            format!(
                "{one}[admin]\naddress = \"[::]:443\"\ntoken_file = \"t\"\ncertificate = \"c\"\nkey = \"k\""
            ),
            "a listener has the address",
        ),
        (
            format!("{one}[admin]\naddress = \"[::]:9\""),
            "write `certificate`, and `token_file` or `users` too",
        ),
        (
            format!("{one}[admin]\naddress = \"192.0.2.1:9\"\ntoken_file = \"t\""),
            "this needs TLS and a login",
        ),
        (
            format!("{one}[admin]\naddress = \"127.0.0.1:9\"\ncertificate = \"c\""),
            "`certificate` has no effect without `token_file`",
        ),
        (
            format!("{one}[admin]\naddress = \"[::1]:9\"\n[metrics]\naddress = \"[::1]:9\""),
            "[metrics] has the address",
        ),
    ];
    for (text, part) in cases {
        let errors = errors(&text);
        assert!(errors.count() == 1 && errors.to_string().contains(part), "{text}\n{errors}");
    }
}

#[test]
fn routes_find_the_listeners_that_can_serve_them() {
    let text = format!(
        "{THREE}host = \"a\"\nserver = \"a:1\"\n[[route]]\nredirect = \"https\"\n\
         [[route]]\npath = \"/x\"\nserver = \"a:2\"\nhsts = true\n[[route]]\nalpn = \"h2\"\nserver = \"a:3\"\n\
         [[route]]\nhost = \"b\"\npassthrough = \"a:4\"\n"
    );
    let (config, warnings) = parse(&text, "offramp.toml", &Environment::default()).unwrap();
    let told: Vec<&str> = warnings.iter().map(offramp_config::Problem::message).collect();
    // The first and the third: the second goes nowhere, and the others need TLS.
    let clear = "the listener `plain` serves this route in clear text";
    assert_eq!(told, [format!("{clear}: `a`"), format!("{clear}: `/x` of every host")]);
    let of = |name: &str| {
        let listener = config.listener(&name.parse().unwrap()).unwrap();
        let at = |route: &_| config.routes.iter().position(|other| std::ptr::eq(other, route)).unwrap();
        config.routes_of(listener).map(at).collect::<Vec<_>>()
    };
    assert_eq!(of("web"), [0, 2, 4]);
    assert_eq!(of("plain"), [0, 1, 2]);
    assert_eq!(of("db"), [0, 3, 4]);
}

#[test]
fn broken_toml_does_not_hide_other_mistakes() {
    let text =
        "[limits]\nconnections = \nidle_timout = \"5m\"\n[log]\nlevel = debug\n[[route]]\nserver = \"x\"\n";
    let errors = errors(text);
    let lines: Vec<_> = errors.problems().iter().map(|p| p.place().unwrap().line).collect();
    assert_eq!(lines, [2, 3, 5, 7], "{errors}");
}

#[test]
fn broken_toml_does_not_invent_mistakes() {
    // The backend is lost with its header, which must not make the route wrong too.
    let errors = errors("[[route]]\nbackend = \"app\"\n[backend.app\nservers = [\"127.0.0.1:1\"]\n");
    assert!(errors.problems().iter().all(|p| p.place().unwrap().line >= 3), "{errors}");
}

#[test]
fn keys_in_the_wrong_place_are_sent_to_the_right_one() {
    assert!(messages("idle_timeout = \"5m\"").contains("`idle_timeout` is a key of [limits]"));
    assert!(messages("[log]\nworkers = 2").contains("above the first [section]"));
    assert!(messages("[route]\nserver = \"127.0.0.1:1\"").contains("two brackets: [[route]]"));
    assert!(messages("[[log]]\nlevel = \"info\"").contains("one bracket: [log]"));
    assert!(messages("[backends.x]\nservers = []").contains("nearest one is `backend`"));
    assert!(messages("[limits.log]\nlevel = \"info\"").contains("section of its own"));
    assert!(messages("workers = 1\nworkers = 2").contains("`workers` is written twice"));
    for name in ["forward_auth", "jwt", "basic_auth", "client_auth", "request_headers", "compress", "rewrite"]
    {
        let said = messages(&format!("[{name}]\nx = 1"));
        assert!(said.contains(&format!("write [route.{name}] below its [[route]]")), "{said}");
    }
}

#[test]
fn times_have_bounds() {
    let backend =
        |line: &str| format!("[[route]]\nbackend = \"a\"\n[backend.a]\nservers = \"h:1\"\n{line}\n");
    let limits = |line: &str| format!("[limits]\n{line}\n");
    for (text, key) in [
        (limits("max_age = \"999ms\""), "max_age"),
        (limits("max_age = \"0s\""), "max_age"),
        (limits("max_age = \"31d\""), "max_age"),
        (limits("max_age = 60"), "max_age"),
        (limits("max_age = false"), "max_age"),
        (backend("max_age = \"1h\""), "max_age"),
        (backend("connect_timeout = \"0s\""), "connect_timeout"),
        (backend("connect_timeout = \"2h\""), "connect_timeout"),
        (backend("connect_timeout = 5"), "connect_timeout"),
    ] {
        let errors = errors(&text);
        let line = text.lines().position(|line| line.starts_with(key)).unwrap() + 1;
        let told = errors.problems().iter().any(|problem| problem.place().unwrap().line == line);
        assert!(told && errors.to_string().contains(&format!("`{key}`")), "{text}{errors}");
    }
}

#[test]
fn an_unknown_variable_is_a_mistake_with_its_line() {
    let route = "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"127.0.0.1:1\"\n";
    for (rules, expected) in [
        ("request_headers = { set = { X-A = \"{clint}\" } }", "there is no variable `{clint}`"),
        ("response_headers = { add = { X-A = [\"a\", \"{nonce}\"] } }", "variables are {client}, "),
        ("request_headers = { set = { X-A = \"{server}\" } }", "has no value in `request_headers`"),
        ("request_headers = { add = { X-A = \"a {server}\" } }", "use it in `response_headers`"),
        ("request_headers = { set = { X-A = \"{client}\\n\" } }", "cannot be that of a header field"),
        ("request_headers = { set = { Content_Length = \"1\" } }", "cannot be changed"),
        ("upgrade = \"h2c\"", "would pass by all routes and rules"),
        ("upgrade = \"web socket\"", "is not a protocol that a connection can change to"),
    ] {
        let errors = errors(&format!("{route}{rules}\n"));
        assert!(errors.to_string().contains(expected), "{rules}\n{errors}");
        assert_eq!((errors.count(), errors.problems()[0].place().unwrap().line), (1, 5), "{errors}");
    }
    let text = format!(
        "{route}response_headers = {{ set = {{ NEL = '{{\"a\":{{\"b\":1}}}}', X-A = \"{{server}}\" }} }}\n"
    );
    parse(&text, "a", &Environment::default()).unwrap();
}

/// People write the keys that they know from their last proxy.
#[test]
fn keys_of_other_proxies_get_an_answer() {
    let route = "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"127.0.0.1:1\"\n";
    for (text, answer) in [
        (format!("{route}method = \"GET\""), "a route matches `host` and `path`"),
        (format!("{route}rate_limit = \"10/s\""), "`requests_per_client` in [limits]"),
        (
            format!("{route}cors = true"),
            "nothing of its own for CORS: set the fields with `response_headers`",
        ),
        (
            format!("{route}headers = {{ X-A = \"1\" }}"),
            "`request_headers` for what servers get, or `response_headers`",
        ),
        (format!("{route}proxy_pass = \"http://a\""), "write `server`"),
        (format!("{route}location = \"/a\""), "write `path`"),
        (format!("{route}client_max_body_size = \"1m\""), "write `max_body`"),
        (format!("{route}middlewares = [\"auth\"]"), "no plugins"),
        (format!("{route}lb_policy = \"first\""), "`balance` in a [backend.NAME]"),
        ("[rate_limit]\nrate = 1".to_owned(), "`requests_per_client` in [limits]"),
        ("[cors]".to_owned(), "`response_headers`"),
        ("[[listener]]\nlisten = 443".to_owned(), "`address` in a [[listener]]"),
        ("[[listener]]\nreal_ip_header = \"X\"".to_owned(), "`trusted_proxies`"),
        ("[defaults.route]\ngzip = true".to_owned(), "`compress`"),
    ] {
        let said = messages(&text);
        assert!(said.contains(answer), "{text}\n{said}");
    }
}

#[test]
fn one_rule_of_rewriting_needs_no_list() {
    let route = "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"127.0.0.1:1\"\n";
    let rule = "match = '^/a', to = \"/b\"";
    let (list, _) = parse(&format!("{route}rewrite = [{{ {rule} }}]"), "a", &Environment::default()).unwrap();
    for text in [
        format!("rewrite = {{ {rule} }}"),
        format!("[route.rewrite]\n{}", rule.replace(", ", "\n")),
        format!("[[route.rewrite]]\n{}", rule.replace(", ", "\n")),
    ] {
        let (config, _) = parse(&format!("{route}{text}"), "a", &Environment::default()).unwrap();
        assert_eq!(config.routes[0].http.rewrites, list.routes[0].http.rewrites, "{text}");
    }
}

#[test]
fn conflicts_between_items() {
    let route = "[[route]]\nserver = \"127.0.0.1:1\"\n";
    let cases = [
        (format!("{route}{route}"), "earlier route already takes"),
        (
            format!("{route}host = [\"a\", \"b\"]\n{route}host = [\"c\", \"B\"]\n"),
            "earlier route already takes",
        ),
        (format!("{route}alpn = [\"h2\"]\n{route}alpn = [\"http/1.1\", \"h2\"]\n"), "earlier route"),
        (
            format!("{route}[[listener]]\n[[listener]]\naddress = \"[::]:1\""),
            "two listeners are named `default`",
        ),
        (
            format!("{route}[[listener]]\n[[listener]]\nname = \"b\""),
            "two listeners have the address `[::]:443`",
        ),
        (format!("{route}[metrics]\naddress = \"[::]:443\""), "a listener has the address"),
        (
            format!("{route}listener = \"p\"\nhost = \"a\"\n[[listener]]\nname = \"p\"\ntls = false"),
            "`host` needs TLS, but the listener `p` has none",
        ),
        (
            format!(
                "{route}listener = \"p\"\nclient_auth = {{ ca = \"x\" }}\n[[listener]]\nname = \"p\"\ntls = false"
            ),
            "`client_auth` needs TLS",
        ),
        (
            "[[route]]\npassthrough = \"a:1\"\nsend_proxy = { version = \"v2\", client_certificate = true }"
                .to_owned(),
            "no client certificate to send",
        ),
        ("[[route]]\npassthrough = \"a:1\"\nalpn = \"h2\"".to_owned(), "`alpn` cannot go"),
        (
            "[[route]]\npassthrough = \"a:1\"\nclient_auth = { ca = \"x\" }".to_owned(),
            "`client_auth` cannot go",
        ),
        ("[[route]]\npassthrough = \"a:1\"\nserver = \"b:1\"".to_owned(), "both `server` and `passthrough`"),
        (
            format!("{route}[[listener]]\nmode = \"http\"\npreamble = \"postgres\""),
            "`preamble` cannot go with mode",
        ),
        (format!("{route}[[listener]]\ntls = false\npreamble = \"postgres\""), "`preamble` needs TLS"),
        (format!("{route}[[listener]]\ncancel = \"clear\""), "`cancel` needs preamble"),
        (format!("{route}deny_ja4 = []"), "`deny_ja4` is empty"),
        (format!("{route}deny_ja4 = [\"t13d*\", \"t13d*\"]"), "`deny_ja4` contains this twice"),
        (format!("{route}deny_ja4 = \"q13d*\""), "`q` is QUIC"),
        (format!("{route}deny_ja4 = \"771,4865-4866\""), "is not a JA4 fingerprint"),
        (
            format!("{route}listener = \"p\"\ndeny_ja4 = \"t13d*\"\n[[listener]]\nname = \"p\"\ntls = false"),
            "`deny_ja4` needs TLS, but the listener `p` has none",
        ),
        (format!("{route}allow = []"), "`allow` is empty"),
        (format!("{route}deny = [\"10.0.0.0/8\", \"10.0.0.0/8\"]"), "`deny` contains this twice"),
        (format!("{route}deny = \"10.1.0.0/8\""), "write \"10.0.0.0/8\""),
        (format!("{route}deny = \"/etc/blocked\""), "write file: before the path"),
        (format!("{route}deny = \"file:\""), "path"),
        (format!("{route}[[listener]]\nallow = \"internal\""), "is not a network"),
        ("[[route]]\nhost = \"a\"".to_owned(), "this route has no target"),
        ("[[route]]\nbackend = \"a\"".to_owned(), "no backend named `a`"),
        ("[[route]]\nserver = \"10.0.0.1:1 backup\"".to_owned(), "takes an address without a path"),
        (
            format!("{route}send_proxy = {{ version = \"v2\", client_certificate = true }}"),
            "no client certificate to send",
        ),
        (
            "[[certificate]]\nlocal = true\ndefault = true\n[[certificate]]\ncert = \"a\"\ndefault = true"
                .to_owned(),
            "two certificates are marked as the default",
        ),
        ("[[certificate]]\nkey = \"a\"".to_owned(), "a `key` without its `cert`"),
        ("[[certificate]]".to_owned(), "has no certificate"),
        ("[[certificate]]\ndirectory = \"a\"\nkey = \"b\"".to_owned(), "`key` cannot go with `directory`"),
        ("[[certificate]]\ndirectory = \"a\"\nlocal = true".to_owned(), "`local` cannot go with `directory`"),
    ];
    for (text, expected) in cases {
        let errors = errors(&text);
        assert!(errors.to_string().contains(expected), "{text}\n{errors}");
        assert_eq!(errors.count(), 1, "{text}\n{errors}");
    }
}

#[test]
fn conflicts_of_tls() {
    let route = "[[route]]\nserver = \"a:1\"\n";
    let cases = [
        (
            format!("{route}[tls]\npolicy = \"modern\"\nmax_version = \"1.2\""),
            "no version of TLS is left",
        ),
        (format!("{route}tls = {{ policy = \"modern\", max_version = \"1.2\" }}"), "no version of TLS is left"),
        (format!("{route}tls = {{ aeads = [] }}"), "`aeads` is empty"),
        (format!("{route}[tls]\naeads = []"), "`aeads` is empty"),
        (format!("{route}tls = {{ aeads = \"aes-128-cbc\" }}"), "`aes-128-cbc` is no cipher"),
        (format!("{route}[tls]\naeads = [\"aes-128-gcm\", \"rc4\"]"), "`rc4` is no cipher"),
        (format!("{route}tls = true"), "it is a table: tls = { ... }"),
        ("[[route]]\npassthrough = \"a:1\"\ntls = { policy = \"modern\" }".to_owned(), "`tls` cannot go"),
        (
            "[[listener]]\nname = \"a\"\ntls = false\n[[route]]\nlistener = \"a\"\nserver = \"b:1\"\n\
             tls = { policy = \"modern\" }"
                .to_owned(),
            "`tls` needs TLS, but the listener `a` has none",
        ),
        (
            "[[listener]]\nmode = \"http\"\n[[route]]\nhost = \"a\"\nserver = \"b:1\"\ntls = { max_version = \"1.2\" }\n\
             [[route]]\nhost = \"a\"\npath = \"/b\"\nserver = \"b:1\""
                .to_owned(),
            "differ in `tls`",
        ),
        (
            "[[route]]\nbackend = \"a\"\n[backend.a]\nservers = \"a:1\"\ntls = { verify = \"off\" }".to_owned(),
            "unsafe_no_verification = true",
        ),
        (
            "[[route]]\nbackend = \"a\"\n[backend.a]\nservers = \"a:1\"\ntls = { verify = \"None\" }".to_owned(),
            "unsafe_no_verification = true",
        ),
        (
            "[[route]]\nbackend = \"a\"\n[backend.a]\nservers = \"a:1\"\n\
             tls = { verify = \"system\", unsafe_no_verification = true }"
                .to_owned(),
            "`verify` cannot go with",
        ),
    ];
    for (text, expected) in cases {
        let errors = errors(&text);
        assert!(errors.to_string().contains(expected), "{text}\n{errors}");
        assert_eq!(errors.count(), 1, "{text}\n{errors}");
    }
}

#[test]
fn routes_of_different_specificity_do_not_conflict() {
    let text = "[[listener]]\n[[route]]\nserver = \"a:1\"\n[[route]]\nlistener = \"default\"\nserver = \"a:2\"\n\
                [[route]]\nhost = \"x\"\nserver = \"a:3\"\n[[route]]\nhost = \"*.x\"\nserver = \"a:4\"\n\
                [[route]]\nalpn = \"h2\"\nserver = \"a:5\"\n";
    let (config, warnings) = parse(text, "offramp.toml", &Environment::default()).unwrap();
    assert_eq!((config.routes.len(), warnings.len()), (5, 0));
}

#[test]
fn what_is_odd_but_usable_is_a_warning() {
    let warnings = |text: &str| {
        let (_, warnings) = parse(text, "offramp.toml", &Environment::default()).unwrap();
        assert!(warnings.iter().all(|warning| warning.severity() == Severity::Warning));
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(warnings("").contains("warning: there is no [[route]]"));
    let route = "[[route]]\nserver = \"127.0.0.1:1\"\n";
    assert!(warnings(&format!("{route}[backend.idle]\nservers = \"a:1\"")).contains("the backend `idle`"));
    let two = "[[listener]]\n[[listener]]\nname = \"b\"\naddress = \"[::]:1\"\n";
    assert!(warnings(&format!("{route}listener = \"b\"\n{two}")).contains("the listener `default`"));
    let unix = "[[listener]]\naddress = \"unix:/run/x\"\naccept_proxy = \"10.0.0.0/8\"";
    assert!(warnings(&format!("{route}{unix}")).contains("Unix socket"));
    assert_eq!(warnings(route), "");
}

#[test]
fn a_file_of_garbage_is_bounded() {
    let text = "= \u{1b}[31m\n".repeat(10_000);
    let shown = messages(&text);
    assert!(shown.len() < 100_000, "{}", shown.len());
    assert!(!shown.contains('\u{1b}'));
    assert!(shown.contains("more"));
}

#[test]
fn values_of_fields_are_not_told() {
    for key in [
        "request_headers = { set = { Authorization = \"Bearer topsecret1é\" } }",
        "response_headers = { add = { Authorization = \" topsecret1\" } }",
    ] {
        let text = format!("[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"a:1\"\n{key}\n");
        let errors = parse(&text, "f.toml", &Environment::default()).unwrap_err();
        let told: Vec<String> = errors
            .problems()
            .iter()
            .map(|problem| format!("{}; {}", problem.message(), problem.remedy().unwrap_or_default()))
            .collect();
        assert!(
            told[0].starts_with("the value of `Authorization` cannot be that of a header field; "),
            "{told:?}"
        );
        assert!(!told.concat().contains("topsecret"), "{told:?}");
    }
}

#[test]
fn a_wrong_value_of_a_route_is_not_taken_for_an_absent_one() {
    for host in ["[]", "5"] {
        let text = format!("[[route]]\nhost = {host}\nserver = \"h:1\"\n[[route]]\nserver = \"h:2\"\n");
        let errors = parse(&text, "f.toml", &Environment::default()).unwrap_err();
        assert_eq!(errors.count(), 1, "{errors}");
    }
}
