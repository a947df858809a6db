//! A configuration of several files: served, reloaded, and refused as a whole with the name of the file at fault.

use std::fs;

use offramp_testkit::process::Source;

use crate::reload_loses_no_request::reload;
use crate::support::http_curl::{HTTP, curl, get};
use crate::support::instance::{CERTIFICATE, Home};
use crate::support::offramp::{output, stderr, stdout};

fn site(path: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nrespond = {{ body = \"{path}\" }}\n")
}

#[test]
fn a_site_is_a_file() {
    let home = Home::new();
    fs::create_dir(home.file("sites.d")).unwrap();
    fs::write(home.file("sites.d/a.toml"), site("/a")).unwrap();
    let instance = home.run(&format!("include = \"sites.d/*.toml\"\n{CERTIFICATE}{HTTP}{}", site("/first")));
    let body = |path: &str| get(&instance, &[], &format!("https://localhost{path}")).body;
    for path in ["/first", "/a"] {
        assert_eq!(body(path), path.as_bytes());
    }

    fs::write(instance.home.file("sites.d/b.toml"), site("/b")).unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains(" reloaded "), "{outcome}");
    assert_eq!(body("/b"), b"/b");

    // One wrong file, and all stays as it was; whoever reads the log or asks `check` learns which it is.
    fs::write(instance.home.file("sites.d/a.toml"), "[[route]]\nhots = \"a\"\n").unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains("reload refused") && outcome.contains("sites.d/a.toml"), "{outcome}");
    assert_eq!(body("/a"), b"/a");
    let checked = output(instance.home.path(), &["check", "-c", "offramp.toml"]);
    let said = stderr(&checked);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains("unknown key `hots`") && said.contains("--> sites.d/a.toml:2:1"), "{said}");

    fs::remove_file(instance.home.file("sites.d/a.toml")).unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains(" reloaded "), "{outcome}");
    assert_eq!(curl(&instance, &[], "https://localhost/a").status(), 404);
    assert_eq!(body("/b"), b"/b");
    let checked = output(instance.home.path(), &["check", "-c", "offramp.toml"]);
    assert!(stdout(&checked).contains("2 routes"), "{}", stdout(&checked));
}

#[test]
fn a_change_is_a_reload_where_it_is_wanted() {
    let home = Home::new();
    fs::create_dir(home.file("sites.d")).unwrap();
    let text = format!("watch = true\ninclude = \"sites.d/*.toml\"\n{CERTIFICATE}{HTTP}{}", site("/first"));
    let instance = home.run(&text);
    let said =
        |what: &str| instance.process.lines(Source::Stderr).iter().filter(|line| line.contains(what)).count();
    for (turn, path) in ["/a", "/b"].into_iter().enumerate() {
        fs::write(instance.home.file(&format!("sites.d{path}.toml")), site(path)).unwrap();
        instance.until("the reload", || (said(" reloaded ") > turn).then_some(()));
        assert_eq!(get(&instance, &[], &format!("https://localhost{path}")).body, path.as_bytes());
    }
    fs::write(instance.home.file("sites.d/c.toml"), "[[route]]\nhots = \"a\"\n").unwrap();
    instance.until("the refusal", || (said("reload refused") == 1).then_some(()));
    instance.home.configure(&text.replace("watch = true", "watch = false"));
    fs::remove_file(instance.home.file("sites.d/c.toml")).unwrap();
    instance.until("the last reload", || (said(" reloaded ") == 3).then_some(()));
    assert_eq!(get(&instance, &[], "https://localhost/b").body, b"/b");
}
