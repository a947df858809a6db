//! The configurations that containers come with: that of the image, and that of the home server in `compose.yaml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::http_curl::get;
use crate::support::instance::Home;
use crate::support::offramp::{output, stderr, stdout};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page says what to do next; requests without TLS are sent to the port that is published, not to that of the listener.
#[test]
fn the_image_serves_a_page_that_says_what_to_do() {
    let home = Home::new();
    let text = fs::read_to_string(root().join("deploy/container/offramp.toml")).unwrap();
    fs::copy(root().join("deploy/container/welcome.html"), home.file("welcome.html")).unwrap();
    fs::write(home.file("as-it-is.toml"), &text).unwrap();
    let checked = output(home.path(), &["check", "-c", "as-it-is.toml"]);
    assert!(checked.status.success() && checked.stderr.is_empty(), "{}", stderr(&checked));
    let text = text.replace("[::]:8443", "127.0.0.1:0").replace("[::]:8080", "127.0.0.1:0");
    let text = text.replace("\"web\"", "\"default\"");
    let instance = home.run(&text);
    let ca = instance.home.file("state/ca/ca.pem").display().to_string();
    let page = get(&instance, &["--cacert", &ca], "https://localhost/any/path");
    assert_eq!((page.status(), page.field("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.text().contains("Put your application here"));
    let moved = get(&instance, &[], "http://localhost:8080/x?y");
    assert_eq!((moved.status(), moved.field("location")), (308, "https://localhost/x?y"));
    // What the page tells its reader to write.
    let example =
        page.text().split("<pre><code>").nth(1).unwrap().split("</code>").next().unwrap().to_owned();
    fs::write(instance.home.file("example.toml"), example).unwrap();
    let checked = output(instance.home.path(), &["check", "-c", "example.toml"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
}

/// The names of the services of a compose file, at the one level of indentation that they have.
fn services(compose: &str) -> BTreeSet<String> {
    let section = compose.split("\nservices:\n").nth(1).unwrap().split("\nvolumes:\n").next().unwrap();
    let named = section.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| Some(line.trim().strip_suffix(':')?.to_owned())).collect()
}

#[test]
fn the_home_server_in_containers_fits_together() {
    let folder = root().join("examples/home-server/container");
    let compose = fs::read_to_string(folder.join("compose.yaml")).unwrap();
    let text = fs::read_to_string(folder.join("etc/offramp.toml")).unwrap();
    // Every server is a service, and every service is served.
    let servers = text.lines().filter_map(|line| line.strip_prefix("server = \"")?.split(':').next());
    let mut named: BTreeSet<String> = servers.map(str::to_owned).collect();
    named.insert("offramp".to_owned());
    assert_eq!(services(&compose), named);
    // Every published port is a listener's, and every listener is published.
    let published = compose.lines().filter_map(|line| line.trim().strip_prefix("- \"")?.strip_suffix('"'));
    let published: BTreeSet<&str> = published.filter_map(|pair| Some(pair.split_once(':')?.1)).collect();
    let listened = text.lines().filter_map(|line| line.strip_prefix("address = \"[::]:")?.strip_suffix('"'));
    assert_eq!(published, listened.collect());
    for (mount, place) in [("./etc", "/etc/offramp"), ("../site", "/srv/www")] {
        assert!(compose.contains(&format!("- {mount}:{place}:ro\n")) && folder.join(mount).is_dir());
    }
    assert!(compose.contains(concat!("offramp:", env!("CARGO_PKG_VERSION"), "\n")));
    // The hosts are those of the example without containers.
    let hosts = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|line| line.starts_with("host = ")).map(str::to_owned).collect()
    };
    let other = fs::read_to_string(root().join("examples/home-server/offramp.toml")).unwrap();
    assert_eq!(hosts(&text), hosts(&other));
    let home = Home::new();
    fs::copy(folder.join("etc/cloud.csv"), home.file("cloud.csv")).unwrap();
    let site = root().join("examples/home-server/site").display().to_string();
    let text = text.replace("/srv/www", &site).replace("/data/offramp", &home.path().display().to_string());
    fs::write(home.file("offramp.toml"), text).unwrap();
    let checked = output(home.path(), &["check"]);
    assert!(checked.status.success() && checked.stderr.is_empty(), "{}", stderr(&checked));
    assert!(stdout(&checked).contains("3 listeners, 1 certificate, 13 routes"), "{}", stdout(&checked));
}
