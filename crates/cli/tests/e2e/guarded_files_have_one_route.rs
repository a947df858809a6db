//! What a route with a rule serves below a root is served by no other route of the host: not by a symbolic link, not by
//! `rewrite` or `strip_path`, and no list shows it. Directories redirect to the path that the client asked for.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
const ROUTES: &str = r#"
[[route]]
root = "www"
listing = true

[[route]]
path = "/private"
root = "www/private"
strip_path = true
listing = true
allow = ["192.0.2.1"]

[[route]]
path = "/old"
root = "www"
listing = true
rewrite = [{ match = '^/old/(.*?)/?$', to = '/$1' }]

[[route]]
path = "/docs"
root = "www"
strip_path = true
listing = true

[[route]]
host = "open.test"
root = "www"
listing = true
"#;

fn serve() -> Instance {
    let home = Home::new();
    let root = home.file("www");
    fs::create_dir_all(root.join("private/deep")).unwrap();
    fs::create_dir_all(root.join("dir")).unwrap();
    fs::write(root.join("private/s.txt"), "secret").unwrap();
    fs::write(root.join("private/deep/s.txt"), "secret").unwrap();
    fs::write(root.join("open.txt"), "open").unwrap();
    fs::write(root.join("dir/index.html"), "dir").unwrap();
    for (name, to) in [
        ("folder", "private"),
        ("file", "private/s.txt"),
        ("dir/up", "../private"),
        ("dir/deep", "up/deep"),
        ("twice", "folder"),
        ("good", "dir/../open.txt"),
        ("gooddir", "dir"),
    ] {
        symlink(to, root.join(name)).unwrap();
    }
    home.run(&format!("{CERTIFICATE}{HTTP}{ROUTES}"))
}

#[test]
fn no_link_and_no_other_route_leads_to_what_is_guarded() {
    let instance = serve();
    for version in VERSIONS {
        let ask =
            |path: &str| get(&instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
        for path in ["/private", "/private/", "/private/s.txt", "/%70rivate/s.txt", "/dir/../private/s.txt"] {
            assert_eq!(ask(path).status(), 403, "{path}");
        }
        for path in [
            "/folder",
            "/folder/",
            "/folder/s.txt",
            "/folder/deep/",
            "/folder/deep/s.txt",
            "/file",
            "/dir/up/",
            "/dir/up/s.txt",
            "/dir/deep/s.txt",
            "/twice/s.txt",
            "/old/private",
            "/old/private/",
            "/old/private/s.txt",
            "/old/folder/s.txt",
            "/docs/private/",
            "/docs/private/s.txt",
            "/docs/file",
            "/docs/%70rivate/deep/s.txt",
        ] {
            let answer = ask(path);
            assert_eq!(answer.status(), 404, "{path}: {answer:?}");
            assert!(!answer.text().contains("secret"), "{path}");
        }
        for path in ["/open.txt", "/good", "/old/open.txt", "/old/good", "/docs/open.txt", "/docs/good"] {
            assert_eq!(ask(path).text(), "open", "{path}");
        }
        for path in ["/dir/", "/gooddir/", "/docs/dir/"] {
            assert_eq!(ask(path).text(), "dir", "{path}");
        }
        // All of another host is open.
        let other = get(&instance, &[version, "--insecure"], "https://open.test/folder/s.txt");
        assert_eq!(other.text(), "secret");
        assert_eq!(ask("/nothing").status(), 404);
    }
    // The client cannot tell this from a file that is not there; the log can.
    for event in instance.stop().iter().filter(|event| event["status"] == 404) {
        let detail = event["detail"].as_str().unwrap_or_default();
        assert_eq!(
            detail.contains("another route of the host guards"),
            event["path"] != "/nothing",
            "{event}"
        );
    }
}

#[test]
fn lists_show_nothing_that_another_route_guards() {
    let instance = serve();
    let names = |path: &str| {
        let answer =
            get(&instance, &["--header", "Accept: application/json"], &format!("https://localhost{path}"));
        let list: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let entries = list["entries"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> =
            entries.iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names("/"), ["dir", "good", "gooddir", "open.txt"]);
    assert_eq!(names("/docs/"), ["dir", "good", "gooddir", "open.txt"]);
    instance.stop();
}

#[test]
fn directories_redirect_to_the_path_that_was_asked_for() {
    let instance = serve();
    for version in VERSIONS {
        for (path, location) in [
            ("/docs?x=1", "/docs/?x=1"),
            ("//docs", "/docs/"),
            ("/%64ocs", "/docs/"),
            ("/docs/dir?x=1", "/docs/dir/?x=1"),
            ("/old/dir?x=1", "/old/dir/?x=1"),
            ("/dir", "/dir/"),
            ("//dir", "/dir/"),
        ] {
            let answer = get(&instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
            assert_eq!((answer.status(), answer.field("location")), (301, location), "{path}");
        }
        assert_eq!(get(&instance, &[version], "https://localhost/docs/dir/").text(), "dir");
    }
    instance.stop();
}
