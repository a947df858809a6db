//! Mistakes in what requests must show.

use offramp_config::{Environment, parse};

#[test]
fn what_requests_must_show_is_said_in_one_way() {
    let route = "[[route]]\nserver = \"127.0.0.1:1\"\n";
    let http = "\n[[listener]]\nmode = \"http\"";
    let cases = [
        (format!("{route}basic_auth = {{ file = \"a\", realm = \"a\\\"b\" }}{http}"), "is not a realm"),
        (
            format!("{route}basic_auth = {{ file = \"a\", header = \"Host\" }}{http}"),
            "cannot say who the client is",
        ),
        (format!("{route}basic_auth = {{ realm = \"a\" }}{http}"), "lacks `file`"),
        (format!("{route}basic_auth = \"a\""), "applies to HTTP only"),
        ("[[route]]\npassthrough = \"a:1\"\nbasic_auth = \"a\"".to_owned() + http, "`basic_auth` cannot go"),
        (format!("{route}forward_auth = {{ path = \"/\" }}{http}"), "asks one server"),
        (format!("{route}forward_auth = {{ server = \"a:1\", backend = \"b\" }}{http}"), "asks one server"),
        (format!("{route}forward_auth = {{ backend = \"b\" }}{http}"), "no backend named `b`"),
        (format!("{route}forward_auth = {{ server = \"a:1\", path = \"x\" }}{http}"), "is not a path"),
        (
            format!("{route}forward_auth = {{ server = \"a:1\", headers = \"Cookie\" }}{http}"),
            "cannot say who",
        ),
        (format!("{route}jwt = {{ issuer = \"a\", audience = \"b\" }}{http}"), "lacks `jwks`"),
        (format!("{route}jwt = {{ jwks = \"a\", audience = \"\" }}{http}"), "an audience has a name"),
        (
            format!("{route}jwt = {{ jwks = \"a\", audience = [\"b\", \"\"] }}{http}"),
            "an audience has a name",
        ),
        (format!("{route}jwt = {{ jwks = \"http://a/keys\" }}{http}"), "anybody on the way could exchange"),
        (format!("{route}jwt = {{ jwks = \"ftp://a/keys\" }}{http}"), "must begin with https://"),
        (format!("{route}jwt = {{ jwks = \"keys\", ca = \"ca.pem\" }}{http}"), "`jwks` is a file"),
        (format!("{route}jwt = {{ jwks = \"keys\", refresh = \"1m\" }}{http}"), "`jwks` is a file"),
        (
            format!("{route}jwt = {{ jwks = \"https://a/keys\", refresh = \"1s\" }}{http}"),
            "`refresh` is out of bounds",
        ),
        (
            format!("{route}jwt = {{ jwks = \"http://localhost/keys\", ca = \"ca.pem\" }}{http}"),
            "`ca` has nothing to check",
        ),
        (format!("{route}jwt = {{ jwks = \"a\", audience = [] }}{http}"), "`audience` is empty"),
        (format!("{route}jwt = {{ jwks = \"a\", audience = [\"www\", \"*\"] }}{http}"), "`*` beside names"),
        (
            format!("{route}jwt = {{ jwks = \"a\", headers = {{ Cookie = \"sub\" }} }}{http}"),
            "cannot say who",
        ),
        (
            format!("{route}jwt = {{ jwks = \"a\", headers = {{ X-A = \"sub\", x-a = \"b\" }} }}{http}"),
            "has one claim",
        ),
        (
            format!("{route}basic_auth = \"a\"\njwt = {{ jwks = \"b\" }}{http}"),
            "`basic_auth` and `jwt` both read `Authorization`",
        ),
        (format!("{route}satisfy = \"any\"{http}"), "nothing to choose from"),
        (format!("{route}satisfy = \"any\"\nbasic_auth = \"a\"{http}"), "nothing to choose from"),
        (
            format!("{route}satisfy = \"any\"\ndeny = \"10.0.0.0/8\"\nbasic_auth = \"a\"{http}"),
            "nothing to choose from",
        ),
        (format!("{route}satisfy = \"some\"{http}"), "`some`"),
        (format!("{route}satisfy = \"all\""), "applies to HTTP only"),
        (format!("{route}allow = \"country:DE\""), "needs a database of countries"),
        (format!("geoip = \"a\"\n{route}allow = \"country:DEU\""), "`DEU` is not the code of a country"),
        (format!("geoip = \"a\"\n{route}allow = [\"country:DE\", \"country:de\"]"), "contains this twice"),
    ];
    for (text, expected) in cases {
        let errors = parse(&text, "offramp.toml", &Environment::default()).expect_err(&text);
        assert!(errors.to_string().contains(expected), "{text}\n{errors}");
        assert_eq!(errors.count(), 1, "{text}\n{errors}");
    }
}

/// The key stands in one place, and the routes that cannot follow it are several.
#[test]
fn a_rule_of_all_routes_that_fails_names_the_route() {
    let text = "[[listener]]\nmode = \"http\"\n[defaults.route]\nsatisfy = \"any\"\n\
                [[route]]\nhost = \"a.test\"\nserver = \"127.0.0.1:1\"\nbasic_auth = \"a\"\nallow = \"10.0.0.0/8\"\n\
                [[route]]\nhost = [\"b.test\", \"c.test\"]\npath = \"/x/\"\nserver = \"127.0.0.1:1\"\n\
                [[route]]\nserver = \"127.0.0.1:1\"\n";
    let errors = parse(text, "offramp.toml", &Environment::default()).expect_err(text);
    assert_eq!(errors.count(), 2, "{errors}");
    for name in ["the route `b.test,c.test/x` (offramp.toml:10:1)", "the route `default` (offramp.toml:14:1)"]
    {
        assert!(errors.to_string().contains(name), "{errors}");
    }
}

#[test]
fn tokens_for_anybody_are_warned_of() {
    let warnings = |keys: &str| {
        let text = format!(
            "[[listener]]\nmode = \"http\"\n[[route]]\nserver = \"127.0.0.1:1\"\njwt = {{ jwks = \"a\"{keys} }}\n"
        );
        let (_, warnings) = parse(&text, "offramp.toml", &Environment::default()).expect(&text);
        warnings.iter().map(ToString::to_string).collect::<String>()
    };
    for (keys, warning) in [
        (
            "",
            "every token without `aud` by any issuer in `jwks` enters, and every token with `aud` is refused",
        ),
        (", issuer = \"i\"", "tokens with `aud` are refused"),
    ] {
        assert!(warnings(keys).contains(warning), "{}", warnings(keys));
    }
    for keys in [", audience = \"w\"", ", audience = \"*\"", ", issuer = \"i\", audience = \"w\""] {
        assert_eq!(warnings(keys), "", "{keys}");
    }
}

#[test]
fn cancels_that_lead_nowhere_are_warned_of() {
    let (host, auth) = ("host = \"a.test\"\n", "client_auth = { ca = \"ca.pem\" }\n");
    for (cancel, routes, warning) in [
        ("clear", vec![host.to_owned()], "every route has `host`"),
        ("clear", vec![host.to_owned(), auth.to_owned()], "has `client_auth`"),
        ("clear", vec![host.to_owned(), String::new()], ""),
        ("tls", vec![host.to_owned()], ""),
    ] {
        let mut text =
            format!("[[listener]]\nmode = \"tcp\"\npreamble = \"postgres\"\ncancel = \"{cancel}\"\n");
        for route in &routes {
            text.push_str(&format!("[[route]]\nserver = \"127.0.0.1:1\"\n{route}"));
        }
        let (_, warnings) = parse(&text, "offramp.toml", &Environment::default()).expect(&text);
        let said = warnings.iter().map(ToString::to_string).collect::<String>();
        assert!(said.contains(warning), "{text}\n{said}");
        assert_eq!(said.contains("`cancel` leads nowhere"), !warning.is_empty(), "{text}\n{said}");
    }
}

/// One that was taken for broken would go behind all others.
#[test]
fn a_route_with_a_warning_keeps_its_place() {
    for warned in ["jwt = { jwks = \"a\" }", "hsts = { max_age = \"1s\", preload = true }"] {
        let text = format!(
            "[[listener]]\nmode = \"http\"\n[[route]]\nhost = \"a.test\"\nserver = \"127.0.0.1:1\"\n{warned}\n\
             [[route]]\nhost = \"b.test\"\nserver = \"127.0.0.1:1\"\n"
        );
        let (config, warnings) = parse(&text, "offramp.toml", &Environment::default()).expect(&text);
        let hosts: Vec<_> = config.routes.iter().map(|route| format!("{:?}", route.hosts)).collect();
        assert!(
            !warnings.is_empty() && hosts[0].contains("a.test") && hosts[1].contains("b.test"),
            "{hosts:?}"
        );
    }
}
