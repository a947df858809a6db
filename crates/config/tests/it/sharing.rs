//! What routes share, and what of it they take over.

use offramp_config::model::{Config, HeaderName, RouteConfig};
use offramp_config::{Environment, Errors, parse, print};

const HTTP: &str = "[[listener]]\nmode = \"http\"\n";

fn config(text: &str) -> Config {
    let (config, _) = parse(text, "f.toml", &Environment::default()).unwrap_or_else(|e| panic!("{e}"));
    let printed = print(&config);
    let again =
        parse(&printed, "f.toml", &Environment::default()).unwrap_or_else(|e| panic!("{e}\n{printed}")).0;
    assert_eq!(again, config, "{printed}");
    config
}

fn errors(text: &str) -> Errors {
    parse(text, "f.toml", &Environment::default()).expect_err(text)
}

/// The names of the fields that a route sets in responses, with their values.
fn set(route: &RouteConfig) -> Vec<String> {
    route.http.response_headers.set.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn a_route_says_more_than_its_policies_and_these_more_than_the_defaults() {
    let config = config(&format!(
        "{HTTP}[defaults.route]\nmax_body = \"1KiB\"\nlog_one_in = 7\nhsts = true\nidle_timeout = \"1s\"\n\
         [policy.a]\nmax_body = \"2KiB\"\nresponse_timeout = \"2s\"\n\
         [policy.b]\nidle_timeout = \"3s\"\n\
         [[route]]\npath = \"/plain\"\nserver = \"a:1\"\n\
         [[route]]\npath = \"/a\"\nserver = \"a:1\"\npolicy = \"a\"\n\
         [[route]]\npath = \"/both\"\nserver = \"a:1\"\npolicy = [\"a\", \"b\"]\nmax_body = \"3KiB\"\nhsts = false\n"
    ));
    let told: Vec<_> = config
        .routes
        .iter()
        .map(|route| {
            let limits = &route.http.plain.limits;
            let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs());
            (
                route.http.plain.max_body.unwrap().bytes() >> 10,
                route.log_one_in.get(),
                route.http.hsts.is_some(),
                seconds(limits.response_timeout),
                seconds(limits.idle_timeout),
            )
        })
        .collect();
    assert_eq!(
        told,
        [(1, 7, true, None, Some(1)), (2, 7, true, Some(2), Some(1)), (3, 7, false, Some(2), Some(3))]
    );
}

#[test]
fn false_takes_nothing_over() {
    let shared = [
        "basic_auth = \"users\"",
        "forward_auth = { server = \"a:1\" }",
        "allow = \"10.0.0.0/8\"",
        "deny = \"10.0.0.1\"",
        "max_body = \"1KiB\"",
        "response_timeout = \"1s\"",
        "mirror = \"b\"",
        "error_pages = { 404 = \"404.html\" }",
        "request_headers = { remove = [\"X-A\"] }",
        "send_proxy = \"v2\"",
        "policy = \"p\"",
    ];
    let off: Vec<String> = shared
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, _)| format!("{key} = false"))
        .collect();
    let (shared, off) = (shared.join("\n"), off.join("\n"));
    let config = config(&format!(
        "{HTTP}[defaults.route]\n{shared}\n\
         [policy.p]\nhsts = true\n[policy.open]\nbasic_auth = false\nerror_pages = false\n\
         [backend.b]\nservers = \"a:1\"\n\
         [[route]]\npath = \"/all\"\nserver = \"a:1\"\n\
         [[route]]\npath = \"/none\"\nserver = \"a:1\"\n{off}\n\
         [[route]]\npath = \"/open\"\nserver = \"a:1\"\npolicy = \"open\"\n\
         [[route]]\npath = \"/jwt\"\nserver = \"a:1\"\nbasic_auth = false\njwt = {{ jwks = \"keys\" }}\n"
    ));
    let [all, none, open, token] = &config.routes[..] else { panic!() };
    assert!(all.credentials.basic.is_some() && all.http.hsts.is_some() && !all.networks.is_empty());
    let plain = parse(
        &format!("{HTTP}[[route]]\npath = \"/none\"\nserver = \"a:1\"\n"),
        "f.toml",
        &Environment::default(),
    );
    let plain = plain.unwrap().0;
    assert_eq!((&none.http, &none.credentials), (&plain.routes[0].http, &plain.routes[0].credentials));
    assert!(none.networks.is_empty() && none.target == plain.routes[0].target);
    assert!(open.credentials.basic.is_none() && open.credentials.forward.is_some());
    assert_ne!(all.http.error_pages, open.http.error_pages);
    assert!(token.credentials.jwt.is_some() && token.credentials.basic.is_none());
}

#[test]
fn what_says_nothing_else_is_no_false() {
    let route = "[[route]]\nserver = \"a:1\"\n";
    for (line, expected) in [
        ("basic_auth = true", "`false` takes nothing over from policies and defaults"),
        ("basic_auth = 0", "`basic_auth` cannot be an integer"),
        ("basic_auth = \"off\"", "write `basic_auth = false`"),
        ("jwt = \"off\"", "`false` takes nothing over from policies and defaults"),
        ("jwt = true", "`jwt` cannot be a boolean"),
        ("forward_auth = []", "`false` takes nothing over"),
        ("allow = true", "`false` takes nothing over"),
        ("server = false", "`server` cannot be a boolean"),
        ("host = false", "`host` cannot be a boolean"),
    ] {
        let text = if line.starts_with("server") {
            format!("{HTTP}[[route]]\n{line}\n")
        } else {
            format!("{HTTP}{route}{line}\n")
        };
        let errors = errors(&text);
        assert!(errors.to_string().contains(expected), "{text}\n{errors}");
    }
}

#[test]
fn headers_and_pages_add_up() {
    let config = config(&format!(
        "{HTTP}[defaults.route]\nresponse_headers = {{ set = {{ X-A = \"d\", X-B = \"d\", X-C = \"d\" }}, remove = [\"X-D\", \"X-E\"] }}\n\
         error_pages = {{ 404 = \"/d404\", 5xx = \"/d5xx\" }}\n\
         [policy.p]\nresponse_headers = {{ set = {{ x-b = \"p\", X-E = \"p\" }} }}\nerror_pages = {{ 503 = \"/p503\" }}\n\
         [[route]]\nserver = \"a:1\"\npolicy = \"p\"\nerror_pages = {{ 404 = \"/own\" }}\n\
         response_headers = {{ remove = \"x-a\" }}\n\
         [[route]]\npath = \"/x\"\nserver = \"a:1\"\n"
    ));
    let route = &config.routes[0];
    assert_eq!(set(route), ["x-b=p", "x-c=d", "x-e=p"]);
    let removed: Vec<&str> = route.http.response_headers.remove.iter().map(HeaderName::as_str).collect();
    assert_eq!(removed, ["x-a", "x-d"]);
    let pages = |route: &RouteConfig| -> Vec<String> {
        let files = &route.http.error_pages.files;
        files.iter().map(|(status, file)| format!("{status}={}", file.path.display())).collect()
    };
    assert_eq!(pages(route), ["404=/own", "503=/p503", "5xx=/d5xx"]);
    assert_eq!(pages(&config.routes[1]), ["404=/d404", "5xx=/d5xx"]);
    assert_eq!(config.error_pages.files.len(), 2);
}

#[test]
fn routes_take_over_what_they_can_follow() {
    let defaults = "[defaults.route]\nmax_body = \"1KiB\"\nhsts = true\nhidden = true\nlog_one_in = 3\n";
    let config = config(&format!(
        "{HTTP}[[listener]]\nname = \"plain\"\naddress = \"[::]:80\"\nmode = \"http\"\ntls = false\n\
         [[listener]]\nname = \"db\"\naddress = \"[::]:5432\"\n{defaults}\
         [[route]]\nlistener = \"plain\"\nredirect = \"https\"\n\
         [[route]]\nlistener = \"db\"\nserver = \"a:1\"\n\
         [[route]]\nlistener = \"default\"\nhost = \"a.test\"\nserver = \"a:1\"\n\
         [[route]]\nhost = \"b.test\"\npassthrough = \"a:1\"\n\
         [[route]]\nhost = \"c.test\"\nroot = \"/srv\"\n"
    ));
    let told: Vec<_> = config
        .routes
        .iter()
        .map(|route| (route.http.plain.max_body.is_some(), route.http.hsts.is_some(), route.log_one_in.get()))
        .collect();
    assert_eq!(
        told,
        [(false, false, 3), (false, false, 3), (true, true, 3), (false, false, 3), (false, true, 3)]
    );
    let offramp_config::model::RouteTarget::Files(files) = &config.routes[4].target else { panic!() };
    assert!(files.hidden);
}

#[test]
fn what_is_shared_is_wrong_once_and_where_it_is_written() {
    let text = format!(
        "{HTTP}[defaults.route]\nresponse_headers = {{ set = {{ Connection = \"close\" }} }}\n\
         [[route]]\npath = \"/a\"\nserver = \"a:1\"\n[[route]]\nserver = \"a:1\"\n"
    );
    let errors = errors(&text);
    assert_eq!(errors.count(), 1, "{errors}");
    assert_eq!(errors.problems()[0].place().unwrap().line, 4, "{errors}");
}

#[test]
fn mistakes_with_what_is_shared() {
    let route = "[[route]]\nserver = \"a:1\"\n";
    let both = format!("{HTTP}[[listener]]\nname = \"db\"\naddress = \"[::]:1\"\n");
    for (text, expected) in [
        (format!("{HTTP}[defaults.route]\nhost = \"a\"\n{route}"), "unknown key `host` in [defaults.route]"),
        (
            format!("{HTTP}[policy.a]\nsplit = {{ backends = [] }}\n{route}policy = \"a\"\n"),
            "unknown section `split` in [policy.NAME]",
        ),
        (
            format!("{HTTP}[defaults.route]\nclient_auth = {{}}\n{route}"),
            "unknown section `client_auth` in [defaults.route]",
        ),
        (
            format!("{HTTP}[policy.a]\npath = \"/a\"\n{route}policy = \"a\"\n"),
            "unknown key `path` in [policy.NAME]",
        ),
        (format!("{HTTP}[policy.a]\npolicy = \"a\"\n{route}policy = \"a\"\n"), "unknown key `policy`"),
        (format!("{HTTP}{route}policy = \"a\"\n"), "there is no policy named `a`"),
        (format!("{HTTP}[policy.ab]\n{route}policy = \"abc\"\n"), "the nearest policy is `ab`"),
        (format!("{HTTP}[policy.a]\n{route}policy = [\"a\", \"a\"]\n"), "`policy` contains this twice"),
        (
            format!(
                "{HTTP}[policy.a]\nmax_body = \"1B\"\n[policy.b]\nmax_body = \"1B\"\n{route}policy = [\"a\", \"b\"]\n"
            ),
            "the policies `a` and `b` both have `max_body`",
        ),
        (
            format!("{both}[policy.a]\nhsts = true\n{route}listener = \"db\"\npolicy = \"a\"\n"),
            "`hsts` of the policy `a` applies to HTTP only",
        ),
        (
            format!(
                "{HTTP}[policy.a]\nmax_body = \"1B\"\n[[route]]\npassthrough = \"a:1\"\npolicy = \"a\"\n"
            ),
            "`max_body` of the policy `a` cannot go with `passthrough`",
        ),
        (
            format!("{both}[defaults.route]\nmax_body = \"1B\"\n{route}"),
            "but this route relays connections too",
        ),
    ] {
        let errors = errors(&text);
        assert!(errors.to_string().contains(expected), "{text}\n{errors}");
        assert_eq!(errors.count(), 1, "{text}\n{errors}");
    }
    let text = format!("{HTTP}[policy.a]\nhsts = true\n{route}");
    let (_, warnings) = parse(&text, "f.toml", &Environment::default()).unwrap();
    assert_eq!(warnings[0].message(), "no route names the policy `a`");
}
