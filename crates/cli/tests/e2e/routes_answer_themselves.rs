//! Answers that no server gives: a route that is closed for a while, a response from a file,
//! redirects by a map; and paths that are rewritten.

use std::fs;

use offramp_testkit::server::Listen;

use crate::support::http_app::named;
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, cause};
use crate::support::offramp::{output, stderr};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

#[test]
fn a_route_can_be_closed_for_a_while() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    fs::write(home.file("soon.html"), "<h1>{status}</h1> back soon").unwrap();
    let route = "server = \"unix:app.sock\"\n";
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}trusted_proxies = \"127.0.0.1\"\n\
         [[route]]\npath = \"/closed\"\n{route}maintenance = true\nerror_pages = {{ 503 = \"soon.html\" }}\n\
         [[route]]\npath = \"/long\"\n{route}maintenance = {{ retry_after = \"2h\", allow = \"192.0.2.0/24\" }}\n\
         [[route]]\n{route}maintenance = false\n"
    ));
    for version in VERSIONS {
        for method in [&["--get"][..], &["--data", "some=body"]] {
            let closed = get(&instance, &[&[version], method].concat(), "https://localhost/closed/x");
            assert_eq!((closed.status(), closed.field("retry-after")), (503, "300"));
            assert_eq!(closed.text(), "<h1>503</h1> back soon");
        }
        let head = get(&instance, &[version, "--head"], "https://localhost/closed");
        assert_eq!((head.status(), head.field("content-length"), head.body.len()), (503, "22", 0));
        let long = |client: &str| {
            let said = format!("X-Forwarded-For: {client}");
            get(&instance, &[version, "--header", &said], "https://localhost/long")
        };
        let closed = long("198.51.100.1");
        assert_eq!((closed.status(), closed.field("retry-after")), (503, "7200"));
        assert!(closed.text().starts_with("503 Service Unavailable\n"), "{closed:?}");
        assert!(seen.take().is_empty());
        assert_eq!(long("192.0.2.7").text(), "app\n");
        assert_eq!(get(&instance, &[version], "https://localhost/").text(), "app\n");
        assert_eq!(seen.take().len(), 2);
    }
    for event in instance.stop().into_iter().filter(|event| event["event"] == "request") {
        assert_eq!(cause(&event), "completed", "{event}");
        assert_eq!(event["server"].is_null(), event["status"] == 503, "{event}");
    }
}

#[test]
fn a_response_can_come_from_a_file() {
    let home = Home::new();
    fs::write(home.file("security.txt"), "Contact: mailto:me@example.org\n").unwrap();
    fs::write(home.file("gone.html"), "<h1>gone</h1>").unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\npath = \"/text\"\nrespond = {{ file = \"security.txt\" }}\n\
         [[route]]\npath = \"/gone\"\nrespond = {{ file = \"gone.html\", status = 410 }}\n\
         [[route]]\npath = \"/kind\"\nrespond = {{ file = \"gone.html\", content_type = \"text/x-other\" }}\n"
    ));
    for version in VERSIONS {
        for (path, status, kind, body) in [
            ("/text", 200, "text/plain; charset=utf-8", "Contact: mailto:me@example.org\n"),
            ("/gone/x", 410, "text/html; charset=utf-8", "<h1>gone</h1>"),
            ("/kind", 200, "text/x-other", "<h1>gone</h1>"),
        ] {
            let url = format!("https://localhost{path}");
            let answer = get(&instance, &[version], &url);
            assert_eq!((answer.status(), answer.field("content-type")), (status, kind));
            assert_eq!(
                (answer.text().as_str(), answer.field("content-length")),
                (body, &*body.len().to_string())
            );
            let head = get(&instance, &[version, "--head"], &url);
            assert_eq!((head.status(), head.body.len()), (status, 0));
            assert_eq!(head.field("content-length"), body.len().to_string());
        }
    }
    fs::remove_file(instance.home.file("gone.html")).unwrap();
    fs::create_dir(instance.home.file("gone.html")).unwrap();
    let checked = output(instance.home.path(), &["check", "-c", "offramp.toml"]);
    let said = stderr(&checked);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(
        said.contains("respond: cannot read") && said.contains("gone.html: it is not a regular file"),
        "{said}"
    );
    instance.stop();
}

#[test]
fn single_paths_lead_elsewhere() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let map = "# from,to\n/old,/new\n/moved,https://other.test/x?y#z,301\n\"/a,b\",/c#d,302\n";
    fs::write(home.file("map.csv"), map).unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\nredirects = \"map.csv\"\n\
         response_headers = {{ set = {{ X-Route = \"yes\" }} }}\n"
    ));
    for version in VERSIONS {
        for (path, status, to) in [
            ("/old", 308, "/new"),
            ("/old?q=1&r", 308, "/new?q=1&r"),
            ("/moved?q", 301, "https://other.test/x?y#z"),
            ("/a,b?q", 302, "/c?q#d"),
        ] {
            let url = format!("https://localhost{path}");
            for arguments in [&[version][..], &[version, "--head"], &[version, "--data", "some=body"]] {
                let answer = get(&instance, arguments, &url);
                assert_eq!((answer.status(), answer.field("location")), (status, to), "{answer:?}");
                assert_eq!((answer.field("x-route"), answer.body.len()), ("yes", 0));
            }
        }
        assert!(seen.take().is_empty());
        for path in ["/", "/new", "/old/", "/OLD", "/old/x"] {
            assert_eq!(get(&instance, &[version], &format!("https://localhost{path}")).text(), "app\n");
            assert_eq!(seen.one().target, path);
        }
    }
    fs::write(instance.home.file("map.csv"), "/a,/b\n/b,/a\n/a,/c\n/d,e\n").unwrap();
    let checked = output(instance.home.path(), &["check", "-c", "offramp.toml"]);
    let said = stderr(&checked);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    for part in ["map.csv:1:4: ", "leads to `/b`", "map.csv:3:1: ", "also in line 1", "map.csv:4:4: "] {
        assert!(said.contains(part), "{part} in {said}");
    }
    instance.stop();
}

#[test]
fn paths_are_rewritten_by_patterns() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    fs::create_dir_all(home.file("www/2024")).unwrap();
    fs::write(home.file("www/2024/page.html"), "a page").unwrap();
    let text = format!(
        "[limits]\nrequest_target_size = \"100B\"\n{CERTIFICATE}{HTTP}\
         [[route]]\nserver = \"unix:app.sock\"\nrewrite = [\n\
         {{ match = '^/user/(\\d+)$', to = \"/profile?id=$1\" }},\n\
         {{ match = '^/(?<a>\\w+)-(?<b>[^/]*)(.*)$', to = \"/$b/${{a}}$3\" }},\n\
         {{ match = '^/twice/(.*)$', to = \"/$1/$1\" }} ]\n\
         [[route]]\npath = \"/files\"\nroot = \"{}\"\n\
         rewrite = [{{ match = '^/files/(\\w+)/(\\d+)$', to = \"/$2/$1.html\" }}]\n\
         [[route]]\npath = \"/to\"\nredirect = \"https://new.test{{uri}}\"\n\
         rewrite = [{{ match = '^/to/(.)(.*)$', to = \"/$2$1\" }}]\n",
        home.file("www").display()
    );
    let instance = home.run(&text);
    for version in VERSIONS {
        let ask = |path: &str| get(&instance, &[version], &format!("https://localhost{path}"));
        for (path, target) in [
            ("/user/17", "/profile?id=17"),
            ("/user/17?x=y", "/profile?id=17"),
            ("/user/x?x=y", "/user/x?x=y"),
            ("/one-two/three?x=y", "/two/one/three?x=y"),
            ("/one-%41/", "/A/one/"),
        ] {
            assert_eq!(ask(path).text(), "app\n");
            assert_eq!(seen.one().target, target, "{path} {version}");
        }
        assert_eq!(ask("/files/page/2024").text(), "a page");
        assert_eq!(ask("/files/page").status(), 404);
        assert_eq!(ask("/to/abc?d").field("location"), "https://new.test/bca?d");
        assert_eq!(ask(&format!("/twice/{}", "x".repeat(60))).status(), 414);
        assert!(seen.take().is_empty());
    }
    for event in instance.stop() {
        let path = event["path"].as_str().unwrap_or_default();
        assert!(!path.starts_with("/profile"), "the event has what the client asked for: {event}");
    }
}
