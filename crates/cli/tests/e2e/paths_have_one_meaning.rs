//! A rule for a path holds in every spelling of it: over both versions of HTTP, for an application, behind `strip_path`,
//! and for files. What cannot be told apart from a guarded path is refused before anybody gets it.

use std::fs;
use std::time::Duration;

use offramp_testkit::server::{Listen, Server};

use crate::support::http_app::{Seen, app, named, respond};
use crate::support::http_curl::{HTTP, command, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, ask, cause, text};
use crate::support::signed_tokens::KEYS;

const ANNA: &str = "anna:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

/// Rules about who may enter, each for a path of its own, with the status of what they refuse.
const RULES: [(&str, &str, u16); 7] = [
    ("allow", "allow = [\"192.0.2.1\"]", 403),
    ("deny", "deny = [\"127.0.0.0/8\"]", 403),
    ("password", "basic_auth = \"users\"", 401),
    ("token", "jwt = { jwks = \"keys.json\" }", 401),
    ("asked", "forward_auth = { server = \"unix:auth.sock\" }", 402),
    ("closed", "maintenance = true", 503),
    ("gone", "respond = { status = 410 }", 410),
];

/// Spellings of a path of one segment, and of what lies below.
fn spellings(name: &str) -> Vec<String> {
    let escaped = |at: usize| format!("{}%{:02x}{}", &name[..at], name.as_bytes()[at], &name[at + 1..]);
    let forms = [
        "/#",
        "/#/",
        "/#/s.txt",
        "/#//s.txt",
        "//#",
        "//#/s.txt",
        "///#/s.txt",
        "/./#/s.txt",
        "/x/../#/s.txt",
        "/%2e/#/s.txt",
        "/x/%2e%2E/#",
        "/x/.%2e/#/s.txt",
        "/x//../#",
        "/x/../#/.",
        "/#/../#/s.txt",
        "/../#",
        "/x/../../#/s.txt",
        "/#;a=b",
        "/#;a=b/s.txt",
        "/#%3ba=b/s.txt",
        "/;/#/s.txt",
        "/.;/#",
        "/x/..;/#/s.txt",
        "/x/..;a=b/#",
        "//x/#",
        "//x/#/s.txt",
        "///x/#/s.txt",
        "////x:1/#",
        "/;//y/#/s.txt",
        "/x/..//y/#",
        "/.//y/#",
        "/#%3f",
        "/#%23/s.txt",
        "/#%2f",
        "/#%2Fs.txt",
        "/%2f#/s.txt",
        "/x%2f..%2f#",
        "/x/..%2f#/s.txt",
        "/#%5cs.txt",
        "/%5c#",
        "/#%00",
        "/#/%2e%2e/#/s.txt",
        "/%252e/#",
    ];
    let mut all: Vec<String> = forms.iter().map(|form| form.replace('#', name)).collect();
    for at in 0..name.len() {
        all.extend([
            format!("/{}", escaped(at)),
            format!("/{}/s.txt", escaped(at)),
            format!("//{}", escaped(at)),
        ]);
    }
    let double = format!("/%25{:02x}{}/s.txt", name.as_bytes()[0], &name[1..]);
    all.extend([double, format!("/%u00{:02x}{}", name.as_bytes()[0], &name[1..])]);
    all
}

/// The statuses of GET for these paths, by one connection.
#[track_caller]
fn statuses(instance: &Instance, version: &str, paths: &[String]) -> Vec<u16> {
    let mut curl = command(instance, "https");
    curl.args([version, "--path-as-is", "--globoff", "--write-out", "%{http_code}\n"]);
    for path in paths {
        curl.args(["--output", "/dev/null", &format!("https://localhost{path}")]);
    }
    let output = ask(curl, b"", Duration::from_secs(110));
    let text = String::from_utf8(output.stdout).unwrap();
    let all: Vec<u16> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(all.len(), paths.len(), "{}", String::from_utf8_lossy(&output.stderr));
    all
}

struct Stage {
    _servers: Vec<Server>,
    /// What the application was asked.
    seen: Seen,
    /// What the authentication server was asked.
    asked: Seen,
    instance: Instance,
}

/// An instance with these routes; in them `RULE` stands for the rules, each with its path.
fn stage(route: impl Fn(&str, &str) -> String, more: &str) -> Stage {
    let home = Home::new();
    let (server, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let asked = Seen::default();
    let auth = app(&Listen::Unix(home.file("auth.sock")), {
        let asked = asked.clone();
        move |request, stream| {
            asked.note(request);
            respond(stream, 402, &[], b"no")
        }
    });
    fs::write(home.file("users"), ANNA).unwrap();
    fs::write(home.file("keys.json"), KEYS).unwrap();
    fs::create_dir_all(home.file("www/x")).unwrap();
    fs::write(home.file("www/open.txt"), "open").unwrap();
    let mut routes = String::new();
    for (name, rule, _) in RULES {
        fs::create_dir_all(home.file("www").join(name)).unwrap();
        fs::write(home.file("www").join(name).join("s.txt"), "secret").unwrap();
        routes.push_str(&route(name, rule));
    }
    let text =
        format!("{CERTIFICATE}{HTTP}{routes}{more}").replace("WWW", home.file("www").to_str().unwrap());
    let instance = home.run(&text);
    Stage { _servers: vec![server, auth], seen, asked, instance }
}

impl Stage {
    /// Every spelling is refused by the rule, or as ambiguous; `also` are further statuses.
    fn holds(&self, before: &str, also: &[u16]) {
        let mut wrong = Vec::new();
        for (name, _, status) in RULES {
            // Two slashes begin a host only at the front, and what leads above is another path.
            let forms = spellings(name);
            let forms = forms.iter().filter(|path| {
                before.is_empty()
                    || !["//x/", "///x/", "////x", "/../", "/x/../../"]
                        .iter()
                        .any(|form| path.starts_with(form))
            });
            let paths: Vec<String> = forms.map(|path| format!("{before}{path}")).collect();
            for version in VERSIONS {
                for (path, got) in paths.iter().zip(statuses(&self.instance, version, &paths)) {
                    let is = |form: &str| path == &format!("{before}/{name}{form}");
                    let plain = matches!(before, "" | "/in") && (is("") || is("/s.txt"));
                    if got != status && (plain || got != 400 && !also.contains(&got)) {
                        wrong.push(format!("{version} {path}: {got}, not {status}"));
                    }
                }
            }
        }
        wrong.extend(
            self.seen.take().into_iter().map(|request| format!("the application got {}", request.target)),
        );
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The application gets each path as this target, or the path is refused with 400.
    #[track_caller]
    fn meets(&self, rows: &[(&str, Option<&str>)]) {
        for version in VERSIONS {
            for (path, target) in rows {
                let url = format!("https://localhost{path}");
                let answer = get(&self.instance, &[version, "--path-as-is"], &url);
                assert_eq!(answer.status(), if target.is_some() { 200 } else { 400 }, "{path}: {answer:?}");
                let seen: Vec<String> = self.seen.take().into_iter().map(|request| request.target).collect();
                assert_eq!(seen, Vec::from_iter(target.map(str::to_owned)), "{version} {path}");
            }
        }
    }
}

const OPEN: &str = "[[route]]\nserver = \"unix:app.sock\"\n";

/// A guarded route to the application; `respond` has no server.
fn proxied(name: &str, rule: &str) -> String {
    let server = if rule.starts_with("respond") { "" } else { "server = \"unix:app.sock\"\n" };
    format!("[[route]]\npath = \"/{name}\"\n{server}{rule}\n")
}

#[test]
fn a_rule_for_an_application_holds_in_every_spelling() {
    let stage = stage(proxied, OPEN);
    stage.holds("", &[]);
    // What names the paths to an authentication server is their normal form.
    for request in stage.asked.take() {
        let uri = request.field("x-forwarded-uri");
        assert!(uri == "/asked" || uri.starts_with("/asked/") && !uri.contains("//"), "{uri}");
    }
    let events = stage.instance.stop();
    let ambiguous: Vec<_> = events.iter().filter(|event| cause(event) == "bad_request").collect();
    assert!(ambiguous.len() > 100, "{}", ambiguous.len());
    for event in ambiguous {
        let detail = text(event, "detail");
        assert!(detail.contains("the path"), "{detail}");
    }
}

#[test]
fn a_rule_holds_beside_and_behind_stripped_paths() {
    let strip = |name: &str, rule: &str| {
        let guarded = proxied(name, rule).replace("path = \"/", "path = \"/in/");
        if rule.starts_with("respond") { guarded } else { format!("{guarded}strip_path = true\n") }
    };
    let open = format!("{OPEN}[[route]]\npath = \"/in\"\nserver = \"unix:app.sock\"\nstrip_path = true\n");
    let stage = stage(strip, &open);
    // Above the path of the stripped route they are spelled otherwise, too.
    for before in ["/in", "/%69n", "//in", "/x/../in"] {
        stage.holds(before, &[]);
    }
    stage.meets(&[
        ("/in", Some("/")),
        ("/in/", Some("/")),
        ("/in?q=%61", Some("/?q=%61")),
        ("/in/a%20b//c?q", Some("/a%20b//c?q")),
        ("/in//x", Some("/x")),
        ("/in/a;b=c", Some("/a;b=c")),
    ]);
    stage.instance.stop();
}

#[test]
fn a_rule_for_files_holds_in_every_spelling() {
    let of_root = |name: &str, rule: &str| {
        let root = if rule.starts_with("respond") { "" } else { "root = \"WWW\"\n" };
        format!("[[route]]\npath = \"/{name}\"\n{root}{rule}\n")
    };
    let of_folder = |name: &str, rule: &str| {
        let root = format!("root = \"WWW/{name}\"\nstrip_path = true\n");
        let root = if rule.starts_with("respond") { String::new() } else { root };
        format!("[[route]]\npath = \"/{name}\"\n{root}{rule}\n")
    };
    let open = "[[route]]\nroot = \"WWW\"\nlisting = true\n";
    for stage in [stage(of_root, open), stage(of_folder, open)] {
        // A name with parameters is that of another file.
        stage.holds("", &[404]);
        for version in VERSIONS {
            for path in ["/open.txt", "//open.txt", "/x/../open.txt", "/%6fpen.txt", "/./open.txt"] {
                let answer =
                    get(&stage.instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
                assert_eq!((answer.status(), &*answer.text()), (200, "open"), "{path}");
            }
        }
        stage.instance.stop();
    }
}

#[test]
fn honest_paths_pass_as_they_came() {
    let stage = stage(proxied, OPEN);
    let paths = [
        "/",
        "/a%20b",
        "/caf%c3%a9",
        "/caf%C3%A9/%E2%82%AC",
        "/a;jsessionid=1",
        "/a//b",
        "/%7Euser",
        "/a/./b",
        "/a/../b",
        "/100%25",
        "/a+b%2Bc",
        "/@me/a:b",
        "/a?b=%2f..//c;d",
        "/close",
        "/closed2/x",
        "/.well-known/x",
    ];
    for version in VERSIONS {
        for path in paths {
            let answer =
                get(&stage.instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
            assert_eq!(answer.status(), 200, "{path}");
            assert_eq!(stage.seen.one().target, path);
        }
        // A target with a host has a path, too.
        if version == "--http1.1" {
            let target = ["--http1.1", "--request-target", "https://localhost//closed"];
            assert_eq!(get(&stage.instance, &target, "https://localhost/").status(), 400);
            let target = ["--http1.1", "--request-target", "https://localhost/a%20b"];
            assert_eq!(get(&stage.instance, &target, "https://localhost/").status(), 200);
            assert_eq!(stage.seen.one().target, "/a%20b");
            let all = ["--http1.1", "--request", "OPTIONS", "--request-target", "*"];
            assert_eq!(get(&stage.instance, &all, "https://localhost/").status(), 200);
            assert_eq!(stage.seen.one().target, "*");
        }
    }
    stage.instance.stop();
}

#[test]
fn keys_send_the_normal_form_or_let_escaped_slashes_pass() {
    let keys = "[[route]]\npath = \"/normal\"\nserver = \"unix:app.sock\"\nnormalize_path = true\n\
                [[route]]\npath = \"/strip\"\nserver = \"unix:app.sock\"\nnormalize_path = true\nstrip_path = true\n\
                [[route]]\npath = \"/npm\"\nserver = \"unix:app.sock\"\nencoded_slashes = \"pass\"\n";
    let stage = stage(proxied, &format!("{OPEN}{keys}"));
    stage.meets(&[
        ("/normal//a/./%62?q=//", Some("/normal/a/b?q=//")),
        ("/%6eormal/x/../y", Some("/normal/y")),
        ("//normal", Some("/normal")),
        ("/normal/../closed", None),
        ("/normal/a%2fb", None),
        ("/x/../strip//%61", Some("/a")),
        ("/npm/@a%2fb", Some("/npm/@a%2fb")),
        ("/npm/@a%2Fb%252f", Some("/npm/@a%2Fb%252f")),
        ("/npm/100%/x", Some("/npm/100%/x")),
        ("/npm/..%2fclosed", None),
        ("/npm/%2e%2e%2fclosed", None),
        ("/npm/..%252fclosed", None),
        ("/npm%2f..%2fclosed", None),
        ("/x%2fnpm", None),
    ]);
    stage.instance.stop();
}

#[test]
fn dots_are_read_in_one_order_and_made_by_no_rule() {
    let routes = "[[route]]\npath = \"/docs/secret\"\nserver = \"unix:app.sock\"\nallow = [\"192.0.2.1\"]\n\
                  [[route]]\npath = \"/api/admin\"\nserver = \"unix:app.sock\"\nallow = [\"192.0.2.1\"]\n\
                  [[route]]\npath = \"/open\"\nserver = \"unix:app.sock\"\n\
                  [[route]]\npath = \"/st\"\nserver = \"unix:app.sock\"\nstrip_path = true\nencoded_slashes = \"pass\"\n\
                  [[route]]\npath = \"/go\"\nserver = \"unix:app.sock\"\n\
                  rewrite = [{ match = \"^/go/(.*)_(.*)$\", to = \"/api/v1/$1./$2\" }, { match = \"^/go/(.*)$\", to = \"/api/v1/$1\" }]\n";
    let stage = stage(|_, _| String::new(), &format!("{OPEN}{routes}"));
    stage.meets(&[
        ("/docs///../secret/s.txt", None),
        ("/docs///%2e%2e/secret/s.txt", None),
        ("/docs/a/%2e%2e/%2e%2e/docs/../secret", None),
        ("/docs/a/b/..;/..;/../secret", None),
        ("/docs/a/../b", Some("/docs/a/../b")),
        ("//open/x", Some("//open/x")),
        ("/%6fpen", Some("/%6fpen")),
        ("/open;jsessionid=A", Some("/open;jsessionid=A")),
        ("/go/x", Some("/api/v1/x")),
        ("/go/a_b", Some("/api/v1/a./b")),
        ("/go/._admin", None),
        ("/go/..;/admin", None),
        ("/go/..%3b/admin", None),
        ("/go/%2e%2e%3b/admin/s", None),
        ("/st/a%2fb", Some("/a%2fb")),
        ("/st/%2fh/docs/secret", None),
        ("/st/;/h/docs/secret", None),
    ]);
    stage.instance.stop();
}

/// Everything that a server could see in a path must be let in, each by itself.
#[test]
fn an_authentication_server_judges_what_the_application_reads() {
    let keys = |more: &str| {
        format!(
            "[[route]]\nserver = \"unix:app.sock\"\n{more}forward_auth = {{ server = \"unix:auth.sock\" }}\n"
        )
    };
    // What the stand-in is asked about; nothing where the path is refused before.
    let of_all = [
        ("/public/a%20b", &["/public/a%20b"][..]),
        ("/public//x", &["/public/x"]),
        ("/public/..;/admin", &[]),
        ("/public/..%2fadmin", &[]),
        ("/public/..%5cadmin", &[]),
        ("/public/%252e%252e/admin", &[]),
        ("/app;jsessionid=1/x?q=;y", &["/app;jsessionid=1/x?q=;y", "/app/x?q=;y"]),
        ("/app/x.do;jsessionid=AB12.node1", &["/app/x.do;jsessionid=AB12.node1", "/app/x.do"]),
        ("/public%3Bx", &["/public;x", "/public"]),
        ("/wiki/What%3F", &["/wiki/What%3F", "/wiki/What"]),
        ("/a;b%3Bc/d%3Fe;f", &["/a;b;c/d%3Fe;f", "/a/d%3Fe", "/a;b;c/d", "/a/d"]),
    ];
    let as_it_came = [
        ("/admin/../public", &[][..]),
        ("/public;/x/../admin", &[]),
        ("//x/public", &["/x/public", "/public"]),
        ("//x/a;b%3Bc;d%3F", &[]),
        ("//x/public;a", &["/x/public;a", "/x/public", "/public;a", "/public"]),
    ];
    let normal = [
        ("/admin/../public", &["/public"][..]),
        ("/public;/x/../admin", &["/public;/admin", "/public/admin"]),
        ("//x/public", &["/x/public"]),
    ];
    for (more, cases) in [("", &as_it_came[..]), ("normalize_path = true\n", &normal)] {
        let stage = stage(|_, _| String::new(), &keys(more));
        for version in VERSIONS {
            for (path, asked) in of_all.iter().chain(cases) {
                let answer =
                    get(&stage.instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
                let uris: Vec<_> = stage
                    .asked
                    .take()
                    .iter()
                    .map(|request| request.field("x-forwarded-uri").to_owned())
                    .collect();
                // The stand-in lets nobody in.
                assert_eq!(uris, Vec::from_iter(asked.first().copied()), "{path}");
                assert_eq!(answer.status(), if asked.is_empty() { 400 } else { 402 }, "{path}: {answer:?}");
            }
        }
        stage.instance.stop();
    }
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let asked = Seen::default();
    // As a rule of Authelia or oauth2-proxy would: what is below /admin is closed, all else is open.
    let _auth = app(&Listen::Unix(home.file("auth.sock")), {
        let asked = asked.clone();
        move |request, stream| {
            asked.note(request);
            let path = request.field("x-forwarded-uri").split('?').next().unwrap_or_default();
            let is_closed = path == "/admin" || path.starts_with("/admin/");
            respond(stream, if is_closed { 403 } else { 200 }, &[], b"")
        }
    });
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{}", keys("")));
    for version in VERSIONS {
        for (path, uris) in of_all.iter().chain(&as_it_came) {
            let answer = get(&instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
            assert_eq!(answer.status(), if uris.is_empty() { 400 } else { 200 }, "{path}: {answer:?}");
            let asked: Vec<_> =
                asked.take().iter().map(|request| request.field("x-forwarded-uri").to_owned()).collect();
            assert_eq!(asked, *uris, "{path}");
            let targets: Vec<_> = seen.take().into_iter().map(|request| request.target).collect();
            assert_eq!(targets, Vec::from_iter((!uris.is_empty()).then(|| (*path).to_owned())), "{path}");
        }
        for path in [
            "/admin",
            "/admin;x",
            "/admin;x/y",
            "/admin%3bx",
            "//x/admin",
            "/;x/admin",
            "/admin%3fx",
            "/%61dmin;x",
        ] {
            let answer = get(&instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
            assert_eq!(answer.status(), 403, "{path}: {answer:?}");
            assert!(seen.take().is_empty(), "{path}");
            assert!(!asked.take().is_empty(), "{path}");
        }
    }
    instance.stop();
}
