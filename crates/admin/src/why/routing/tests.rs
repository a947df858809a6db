use offramp_config::model::Environment;

use super::destination::LONGEST;
use super::*;

const CONFIG: &str = r#"
[[listener]]
name = "secure"
mode = "http"
address = "127.0.0.1:8443"

[[listener]]
name = "plain"
mode = "http"
tls = false
address = "127.0.0.1:8080"

[[route]]
host = "shop.example"
path = "/api"
server = "127.0.0.1:3000"

[[route]]
host = "shop.example"
path = "/closed"
respond = { status = 403 }

[[route]]
host = "*.wild.example"
backend = "web"

[[route]]
host = "sealed.example"
passthrough = "127.0.0.1:9443"

[[route]]
host = "auth.example"
server = "127.0.0.1:3000"
allow = ["10.0.0.0/8"]
maintenance = true

[backend.web]
servers = ["127.0.0.1:3001"]
"#;

fn config() -> Config {
    let parsed = offramp_config::parse(CONFIG, "offramp.toml", &Environment::default());
    parsed.unwrap_or_else(|errors| panic!("{errors}")).0
}

fn ask(text: &str) -> WhyAnswer {
    let config = config();
    url("url", WhyState { config: &config, backends: &[] }, text).unwrap().0
}

#[test]
fn urls_lead_where_requests_do() {
    for (text, first) in [
        (
            "https://Shop.Example.:8443/api",
            "shop.example/api takes route shop.example/api: it goes to 127.0.0.1:3000.",
        ),
        (
            "https://shop.example:8443/api",
            "shop.example/api takes route shop.example/api: it goes to 127.0.0.1:3000.",
        ),
        (
            "https://SHOP.example:8443/api/x?y#z",
            "shop.example/api/x takes route shop.example/api: it goes to 127.0.0.1:3000.",
        ),
        (
            "shop.example/a/../api",
            "shop.example/api takes route shop.example/api: it goes to 127.0.0.1:3000.",
        ),
        (
            "https://shop.example/%61pi",
            "shop.example/api takes route shop.example/api: it goes to 127.0.0.1:3000.",
        ),
        (
            "https://shop.example/closed",
            "shop.example/closed takes route shop.example/closed: Offramp answers 403 itself.",
        ),
        (
            "https://shop.example/apis",
            "No route of listener secure matches shop.example/apis: Offramp answers 404 (no_route).",
        ),
        (
            "https://shop.example/",
            "No route of listener secure matches shop.example/: Offramp answers 404 (no_route).",
        ),
        ("https://a.wild.example/", "a.wild.example/ takes route *.wild.example: it goes to backend web."),
        ("wss://a.wild.example", "a.wild.example/ takes route *.wild.example: it goes to backend web."),
        (
            "https://a.b.wild.example/",
            "No route of listener secure matches a.b.wild.example/: Offramp answers 404 (no_route).",
        ),
        (
            "https://wild.example/",
            "No route of listener secure matches wild.example/: Offramp answers 404 (no_route).",
        ),
        (
            "https://sealed.example/",
            "The TLS of sealed.example passes unchanged to 127.0.0.1:9443 by route sealed.example: Offramp sees no request.",
        ),
        (
            "http://a.wild.example:8080/",
            "a.wild.example/ takes route *.wild.example: it goes to backend web.",
        ),
    ] {
        assert_eq!(ask(text).first, first, "{text}");
    }
}

#[test]
fn evidence_says_what_did_not_match_and_what_rules() {
    let says = |text: &str| ask(text).into_json().to_string();
    for (text, part) in [
        ("https://shop.example/apis", "its path is /api, and /apis is not below it"),
        (
            "https://a.b.wild.example/",
            "its host is *.wild.example, not a.b.wild.example, as `*` stands for one label",
        ),
        ("https://shop.exampel/", "The nearest host of a route is shop.example"),
        ("https://shop.example/", "without a path, for the rest"),
        ("https://shop.example/api", "No listener has port 443"),
        ("https://shop.example:8443/api", "Listener secure accepts on 127.0.0.1:8443."),
        ("https://shop.example/api%2Fx", "an escaped slash (%2F)"),
        ("https://auth.example/", "others get 403"),
        ("https://auth.example/", "Maintenance is on"),
        ("https://shop.example/api", "offramp.toml:"),
    ] {
        assert!(says(text).contains(part), "{text}: {}", says(text));
    }
}

#[test]
fn what_is_no_url_is_refused() {
    let config = config();
    let long = format!("https://a/{}", "x".repeat(LONGEST));
    for text in
        ["", "https://", "ftp://a/", "https://a b/", "https://a:99999/", "https://[::1]:x/", long.as_str()]
    {
        let answer = url("url", WhyState { config: &config, backends: &[] }, text);
        assert!(answer.is_err(), "{text}");
    }
}
