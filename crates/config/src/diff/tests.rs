use super::*;
use crate::model::{ProcessSettings, Telemetry};
use crate::{Environment, parse};

fn between(old: &str, new: &str) -> ConfigDiff {
    let read = |text: &str| parse(text, "f.toml", &Environment::default()).unwrap().0;
    let (old, new) = (read(old), read(new));
    ConfigDiff::between(&old, &new)
}

#[test]
fn what_changed_is_told_line_by_line() {
    let old = "[limits]\nidle_timeout = \"5m\"\n[[route]]\nhost = \"a\"\nbackend = \"x\"\n\
               [backend.x]\nservers = \"h:1\"\n";
    let new = "[metrics]\naddress = \"127.0.0.1:1\"\n[limits]\nidle_timeout = \"90s\"\n\
               [[route]]\nhost = \"a\"\nbackend = \"x\"\n[[route]]\nserver = \"h:2\"\n\
               [backend.x]\nservers = [\"h:1\", \"h:2\"]\n";
    let text = between(old, new).to_string();
    let expected = "limits.idle_timeout: \"5m\" -> \"90s\"\n\
                    metrics.address: (absent) -> \"127.0.0.1:1\"\nroute default: added\n\
                    backend x: server h:2: added\n";
    assert_eq!(text, expected);
}

#[test]
fn what_changed_of_an_item_is_told_key_by_key_and_server_by_server() {
    let old = "[[listener]]\nname = \"plain\"\naddress = \"127.0.0.1:1\"\nmode = \"http\"\ntls = false\n\
               [[certificate]]\ncert = \"/a.pem\"\nkey = \"/a.key\"\n\
               [acme.own]\ndirectory = \"https://ca.example/dir\"\n\
               [[route]]\nhost = \"a\"\npath = \"/x\"\nbackend = \"x\"\n\
               request_headers = { set = { X-Key = \"secret\" } }\n\
               [backend.x]\nmax_connections = 3\n\
               servers = [\"h:1\", \"h:2 weight=2\", \"h:3 drain\", \"h:4\", \"h:5\"]\n";
    let new = old
        .replace("127.0.0.1:1\"\n", "127.0.0.1:2\"\nvia = true\n")
        .replace("a.key", "b.key")
        .replace("ca.example", "ca2.example")
        .replace("secret", "other")
        .replace("backend = \"x\"\n", "backend = \"x\"\nmax_body = \"1MiB\"\n")
        .replace("max_connections = 3\n", "balance = \"least_conn\"\n")
        .replace("h:1\"", "h:1 drain\"")
        .replace("h:2 weight=2\"", "h:2 weight=3 backup\"")
        .replace("h:3 drain\"", "h:3\"")
        .replace(", \"h:5\"", ", \"h:6 weight=9\"");
    let text = between(old, &new).to_string();
    let expected = "\
certificate /a.pem: key: \"/a.key\" -> \"/b.key\"
acme own: directory: \"https://ca.example/dir\" -> \"https://ca2.example/dir\"
listener plain: address: [\"127.0.0.1:1\"] -> [\"127.0.0.1:2\"]
listener plain: via: false -> true
route a/x: request_headers: changed
route a/x: max_body: (absent) -> \"1MiB\"
backend x: balance: \"round_robin\" -> \"least_conn\"
backend x: max_connections: 3 -> (absent)
backend x: server h:1: enabled -> drain
backend x: server h:2: weight 2 -> 3
backend x: server h:2: backup false -> true
backend x: server h:3: drain -> enabled
backend x: server h:5: removed
backend x: server h:6 weight=9: added
";
    assert_eq!(text, expected);
    let order = old.replace("\"h:4\", \"h:5\"", "\"h:5\", \"h:4\"");
    assert_eq!(between(old, &order).to_string(), "backend x: servers: in another order\n");
}

#[test]
fn of_long_lists_only_what_comes_and_goes_is_told() {
    let listener = |count: usize| {
        let networks: Vec<String> = (0..count).map(|at| format!("\"10.0.{at}.0/24\"")).collect();
        format!("[[listener]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\nallow = [{}]\n", networks.join(", "))
    };
    let text = between(&listener(50), &listener(51)).to_string();
    assert_eq!(text, "listener a: allow: added \"10.0.50.0/24\"\n");
    let text = between(&listener(2), &listener(90)).to_string();
    assert!(
        text.starts_with("listener a: allow: added \"10.0.2.0/24\", ") && text.ends_with("…\n"),
        "{text}"
    );
    assert!(text.len() < 160, "{text}");
}

#[test]
fn places_and_comments_are_no_change() {
    let text = "[[route]]\nserver = \"h:1\"\n";
    assert!(between(text, &format!("# new\n\n{text}")).is_empty());
}

#[test]
fn another_order_is_a_change() {
    let a = "[[route]]\nalpn = \"a\"\nserver = \"h:1\"\n";
    let b = "[[route]]\nalpn = \"b\"\nserver = \"h:1\"\n";
    let diff = between(&format!("{a}{b}"), &format!("{b}{a}"));
    assert_eq!(diff.to_string(), "routes: in another order\n");
}

/// Whatever differs is told: what is not told is applied without a plan, a wait and a place in the history.
#[test]
fn no_field_differs_without_a_word() {
    let base = "[[listener]]\nmode = \"http\"\naddress = \"127.0.0.1:1\"\n[[route]]\nserver = \"h:1\"\n\
                [[certificate]]\nlocal = true\nnames = [\"a.example\"]\n";
    let others = [
        ("workers", "workers = 3\n"),
        ("user", "user = \"other\"\n"),
        ("state_dir", "state_dir = \"/other\"\n"),
        ("watch", "watch = true\n"),
        ("sandbox", "sandbox = \"required\"\n"),
        ("geoip", "geoip = \"/countries.mmdb\"\n"),
        ("admin", "admin = { enabled = false }\n"),
        ("log", "log = { level = \"debug\" }\n"),
        ("access_log", "access_log = { format = \"text\" }\n"),
        ("log_store", "log_store = { url = \"sqlite:/a.db\" }\n"),
        ("metrics", "metrics = { address = \"127.0.0.1:2\" }\n"),
        ("tracing", "tracing = { otlp = \"http://127.0.0.1:3\" }\n"),
        ("notify", "notify = [{ name = \"n\", url = \"https://a.example/\" }]\n"),
        ("tls", "tls = { tickets = 2 }\n"),
        ("limits", "limits = { streams = 9 }\n"),
        ("certificates", "certificate = [{ local = true, names = [\"b.example\"] }]\n"),
        ("authorities", "acme = { own = { directory = \"https://ca.example/dir\" } }\n"),
        ("listeners", "listener = [{ mode = \"http\", address = \"127.0.0.1:2\" }]\n"),
        ("error_pages", "defaults = { route = { error_pages = { 404 = \"/404.html\" } } }\n"),
        ("shared", "policy = { p = { max_body = \"1KiB\" } }\n"),
        ("routes", "route = [{ server = \"h:2\" }]\n"),
        ("backends", "backend = { b = { servers = \"h:1\" } }\n"),
    ];
    let all = parse(base, "f.toml", &Environment::default()).unwrap().0;
    // A field that is new belongs into the table above, and into the difference.
    let Config {
        process: ProcessSettings { workers: _, user: _, state_dir: _, watch: _, sandbox: _ },
        geoip: _,
        admin: _,
        telemetry: Telemetry { log: _, access_log: _, log_store: _, metrics: _, tracing: _, notify: _ },
        tls: _,
        limits: _,
        certificates: _,
        authorities: _,
        listeners: _,
        error_pages: _,
        shared: _,
        routes: _,
        backends: _,
        origins: _,
    } = all;
    for (field, line) in others {
        let key = line.split(' ').next().unwrap();
        let rest = base.split("[[").filter(|item| !item.is_empty() && !item.starts_with(&format!("{key}]")));
        let text = rest.fold(line.to_owned(), |text, item| text + "[[" + item);
        let other = parse(&text, "f.toml", &Environment::default())
            .unwrap_or_else(|errors| panic!("{errors}\n{text}"))
            .0;
        let diff = ConfigDiff::between(&all, &other);
        assert!(!diff.is_empty() && !diff.to_string().is_empty(), "{field}");
    }
    // As it is in one that was made in code.
    let mut other = all.clone();
    other.error_pages.files.push(("404".parse().unwrap(), crate::model::FilePath::new("/404.html")));
    let told = ConfigDiff::between(&all, &other).to_string();
    assert_eq!(told, "defaults.route: added\n");
}

#[test]
fn what_routes_share_is_told_key_by_key() {
    let of = |keys: &str| {
        format!("[[listener]]\nmode = \"http\"\n[defaults.route]\n{keys}[[route]]\nroot = \"/r\"\n")
    };
    let told = between(
        &of("error_pages = { 404 = \"/a\" }\nresponse_headers = { set = { X-Key = \"secret\" } }\n"),
        &of("error_pages = { 404 = \"/b\" }\nresponse_headers = { set = { X-Key = \"other\" } }\n"),
    );
    let told = told.to_string();
    let page = "defaults.route: error_pages: { \"404\" = \"/a\" } -> { \"404\" = \"/b\" }\n";
    assert!(told.starts_with(page) && !told.contains("secret"), "{told}");
    assert!(told.contains("defaults.route: response_headers: changed\n"), "{told}");
}
