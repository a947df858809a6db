//! Lists of directories: what is in them, in which form, and how much at the most.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use offramp_testkit::process::require;
use serde_json::Value;

use crate::support::crowd::trusting;
use crate::support::figures::cpu;
use crate::support::h2_client::kind::{GOAWAY, PING};
use crate::support::h2_client::{self, H2, frame, reset};
use crate::support::http_curl::{Answer, HTTP, command, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, ask, cause};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
const JSON: [&str; 2] = ["--header", "Accept: application/json"];

/// A root with files of every kind, and one beside it.
fn serve(keys: &str) -> (Instance, std::path::PathBuf) {
    let home = Home::new();
    let root = home.file("www");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::create_dir(root.join("indexed")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(home.file("secret"), "secret").unwrap();
    fs::write(root.join("indexed/index.html"), "<p>index").unwrap();
    fs::write(root.join("sub/<b>&\"'%41?#: \u{e4}"), "0123456789").unwrap();
    fs::write(root.join("sub/.hidden"), "hidden").unwrap();
    fs::write(root.join("sub/a\\b"), "backslash").unwrap();
    fs::write(root.join("sub/B.txt"), vec![b'x'; 1536]).unwrap();
    symlink("../indexed", root.join("sub/inside")).unwrap();
    symlink("../../secret", root.join("sub/outside")).unwrap();
    symlink("/etc/passwd", root.join("sub/passwd")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("sub/fifo")).status().unwrap().success());
    let route = format!("[[route]]\nroot = \"{}\"\n{keys}", root.display());
    (home.run(&format!("{CERTIFICATE}{HTTP}{route}")), root)
}

fn url(path: &str) -> String {
    format!("https://localhost{path}")
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"))
}

fn names(list: &Value) -> Vec<&str> {
    list["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn a_directory_is_a_page_for_people_and_json_for_programs() {
    let (instance, _) = serve("listing = true\n");
    for version in VERSIONS {
        let page = get(&instance, &[version], &url("/sub/"));
        assert_eq!((page.status(), page.field("content-type")), (200, "text/html; charset=utf-8"));
        assert_eq!((page.field("vary"), page.field("cache-control")), ("accept", "no-cache"));
        assert!(page.field("content-security-policy").starts_with("default-src 'none'"));
        let text = page.text();
        for part in [
            "<title>/sub/</title>",
            "href=\"../\"",
            "1.5 KiB",
            ">deep/</a>",
            "&lt;b&gt;&amp;&quot;&#39;%41?#: \u{e4}",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        for part in ["hidden", "outside", "passwd", "fifo", "backslash", "<b>", "<script"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
        // Every link leads somewhere.
        let links: BTreeSet<&str> =
            text.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(links.len(), 5, "{text}");
        for link in links {
            let answer = get(&instance, &[version], &url(&format!("/sub/{link}")));
            assert_eq!(answer.status(), 200, "{link}");
        }
        let answer = get(&instance, &[&JSON[..], &[version]].concat(), &url("/sub/"));
        assert_eq!(answer.field("content-type"), "application/json");
        let list = json(&answer);
        assert_eq!((&list["path"], &list["truncated"]), (&"/sub/".into(), &false.into()));
        assert_eq!(names(&list), ["deep", "inside", "<b>&\"'%41?#: \u{e4}", "B.txt"]);
        let entry = &list["entries"][2];
        assert_eq!((&entry["type"], &entry["size"]), (&"file".into(), &10.into()));
        let head = get(&instance, &[version, "--head"], &url("/sub/"));
        assert_eq!((head.status(), head.field("content-length")), (200, &*page.body.len().to_string()));
        assert_eq!(names(&json(&get(&instance, &[&JSON[..], &[version]].concat(), &url("/")))).len(), 3);
        assert!(get(&instance, &[version], &url("/empty/")).text().contains("The directory is empty."));
        assert_eq!(get(&instance, &[version], &url("/indexed/")).text(), "<p>index");
        let slash = get(&instance, &[version], &url("/sub"));
        assert_eq!((slash.status(), slash.field("location")), (301, "/sub/"));
        assert_eq!(get(&instance, &[version], &url("/none/")).status(), 404);
    }
    let events = instance.stop();
    assert!(events.iter().all(|event| cause(event) == "completed"), "{events:?}");
}

#[test]
fn a_directory_that_is_not_listed_is_refused() {
    let (instance, _) = serve("");
    for version in VERSIONS {
        for (path, status) in [
            ("/", 403),
            ("/sub/", 403),
            ("/sub", 301),
            ("/indexed/", 200),
            ("/none/", 404),
            ("/sub/B.txt/", 404),
            ("/sub/outside/", 404),
        ] {
            assert_eq!(get(&instance, &[version], &url(path)).status(), status, "{path}");
        }
    }
    instance.stop();
    // What is there for everything else is there for directories too.
    let (instance, root) = serve("fallback = \"/indexed/index.html\"\nhidden = true\n");
    assert_eq!(get(&instance, &[], &url("/sub/")).text(), "<p>index");
    let reload = |keys: &str| {
        let route = format!("[[route]]\nroot = \"{}\"\n{keys}", root.display());
        instance.home.configure(&format!("{CERTIFICATE}{HTTP}{route}"));
        instance.process.signal(offramp_testkit::process::Signal::HUP).unwrap();
    };
    reload("fallback = \"/indexed/index.html\"\nhidden = true\nlisting = true\n");
    let list = instance.until("a list", || {
        let answer = get(&instance, &JSON, &url("/sub/"));
        serde_json::from_slice::<Value>(&answer.body).ok()
    });
    assert!(names(&list).contains(&".hidden"), "{list}");
    assert_eq!(get(&instance, &[], &url("/sub/nothing")).text(), "<p>index");
    instance.stop();
}

#[test]
fn a_large_directory_is_cut_and_says_so() {
    const FILES: usize = 12_000;
    let (instance, root) = serve("listing = true\n");
    fs::create_dir(root.join("large")).unwrap();
    for at in 0..FILES {
        fs::File::create(root.join(format!("large/{at}"))).unwrap();
    }
    for version in VERSIONS {
        let list = json(&get(&instance, &[&JSON[..], &[version]].concat(), &url("/large/")));
        assert_eq!((names(&list).len(), &list["truncated"]), (10_000, &true.into()));
        let page = get(&instance, &[version], &url("/large/")).text();
        assert!(page.contains("10000 entries are shown. The directory has more."), "{}", page.len());
    }
    // Long names: fewer of them.
    fs::create_dir(root.join("long")).unwrap();
    for at in 0..FILES {
        fs::File::create(root.join(format!("long/{at:0>250}"))).unwrap();
    }
    let page = get(&instance, &[], &url("/long/"));
    assert!(page.body.len() < (2 << 20) + 1000 && page.text().contains("The directory has more."));
    instance.stop();
}

/// The example of the page: its configuration, its command, and what that prints.
#[test]
fn the_page_on_static_files_shows_a_list() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/static-files.md");
    let page = fs::read_to_string(page).unwrap();
    let section = page.split("## Lists of directories").nth(1).unwrap();
    let block =
        |kind: &str| section.split(&format!("```{kind}\n")).nth(1).unwrap().split("```").next().unwrap();
    let home = Home::new();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_428_000);
    fs::create_dir_all(home.file("files/music")).unwrap();
    fs::write(home.file("files/notes.txt"), [b'x'; 512]).unwrap();
    for name in ["files/music", "files/notes.txt"] {
        fs::File::open(home.file(name)).unwrap().set_modified(time).unwrap();
    }
    let configuration = block("toml")
        .replace("mode = ", "address = \"127.0.0.1:0\"\nmode = ")
        .replace("/srv/files", home.file("files").to_str().unwrap());
    let instance = home.run(&format!("{CERTIFICATE}{configuration}"));
    let (line, expected) = block("console").split_once('\n').unwrap();
    let mut shell = Command::new(require("sh", "dash"));
    let curl: Vec<String> = std::iter::once(command(&instance, "https"))
        .flat_map(|curl| {
            let words =
                std::iter::once(curl.get_program().to_owned()).chain(curl.get_args().map(ToOwned::to_owned));
            words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>()
        })
        .collect();
    let line = line.strip_prefix("$ ").unwrap().replacen("curl", &curl.join(" "), 1);
    shell.arg("-c").arg(line).current_dir(instance.home.path());
    let outcome = ask(shell, b"", PATIENCE);
    assert_eq!(
        String::from_utf8_lossy(&outcome.stdout),
        expected,
        "{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
    instance.stop();
}

/// A route for a directory with so many files, and one worker.
fn with_many(files: usize) -> (Instance, std::path::PathBuf) {
    let home = Home::new();
    let root = home.file("www");
    fs::create_dir(&root).unwrap();
    for number in 0..files {
        fs::write(root.join(format!("{number:05}")), "").unwrap();
    }
    let route = format!("[[route]]\nroot = \"{}\"\nlisting = true\n", root.display());
    (home.run(&format!("workers = 1\n{CERTIFICATE}{HTTP}{route}")), root)
}

#[test]
fn a_list_is_made_once_for_who_asks_again_and_shows_every_change() {
    let (instance, root) = with_many(8000);
    let spent = |requests: &str| {
        let before = cpu(instance.process.id());
        let answer = get(&instance, &["--head"], &url(&format!("/?[1-{requests}]")));
        assert_eq!(answer.status(), 200);
        cpu(instance.process.id()) - before
    };
    // The dearest of a few, each when the one before is forgotten: a figure may be as old as a tick.
    let one = (0..3).map(|_| {
        let one = spent("1");
        std::thread::sleep(Duration::from_millis(1100));
        one
    });
    let one = one.max().unwrap();
    let many = spent("100");
    assert!(many < one * 40, "{one:?} for one, {many:?} for a hundred");
    // A remembered list is that of a directory in the same state.
    fs::write(root.join("new"), "").unwrap();
    let shown = || get(&instance, &JSON, &url("/")).text().contains("\"new\"");
    let begun = std::time::Instant::now();
    while !shown() {
        assert!(begun.elapsed() < PATIENCE);
    }
    instance.stop();
}

#[test]
fn lists_that_are_given_up_count_as_a_flood() {
    let (instance, _) = with_many(10_000);
    let mut h2 = H2::open(&trusting(&instance.home.ca.certificate()), instance.address(), &[]);
    // With resets alone it would be 500.
    let given_up = (0..300).take_while(|number| {
        let stream = 1 + 2 * number;
        // The answer to the PING says that the request was read; the list takes longer.
        let sent = h2.send(&[h2_client::get(stream, "/"), frame(PING, 0, 0, &[0; 8])].concat());
        let answer = std::iter::from_fn(|| h2.next()).find(|frame| [PING, GOAWAY].contains(&frame.kind));
        let begun = sent && answer.is_some_and(|frame| frame.kind == PING);
        begun && h2.send(&reset(stream, 8))
    });
    let given_up = given_up.count();
    assert!((50..300).contains(&given_up), "{given_up}");
    drop(h2);
    let events = instance.stop();
    assert!(events.iter().any(|event| cause(event) == "h2_flood"), "{events:?}");
}
