//! Files below a root: which ones, with which fields, in which parts; and nothing outside of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::http_curl::{HTTP, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause};
use crate::support::offramp::{output, stderr};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

/// A root with files, and one beside it.
fn serve(keys: &str) -> (Instance, std::path::PathBuf) {
    let home = Home::new();
    let root = home.file("www");
    fs::create_dir_all(root.join("sub/.git")).unwrap();
    fs::write(home.file("secret"), "secret").unwrap();
    fs::write(root.join("index.html"), "<p>home").unwrap();
    fs::write(root.join("sub/index.html"), "<p>sub").unwrap();
    fs::write(root.join("sub/.git/config"), "hidden").unwrap();
    fs::write(root.join("page.html"), "<p>page").unwrap();
    fs::write(root.join("ten.txt"), "0123456789").unwrap();
    fs::write(root.join("a b.bin"), large()).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    symlink("../ten.txt", root.join("sub/inside")).unwrap();
    symlink("../secret", root.join("outside")).unwrap();
    symlink("/etc/passwd", root.join("passwd")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("fifo")).status().unwrap().success());
    let root_key = format!("[[route]]\nroot = \"{}\"\n", root.display());
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{root_key}{keys}"));
    (instance, root)
}

/// More than a batch of records has room for, and not a multiple of anything.
fn large() -> Vec<u8> {
    (0..3_000_017_u32).map(|at| (at ^ (at >> 8)) as u8).collect()
}

#[test]
fn each_path_has_its_file_or_none() {
    let (instance, _) = serve("");
    for (path, status, body) in [
        ("/", 200, "<p>home"),
        ("/index.html", 200, "<p>home"),
        ("/sub/", 200, "<p>sub"),
        ("/sub", 301, ""),
        ("/sub?a=b", 301, ""),
        ("/ten.txt", 200, "0123456789"),
        ("/%74en.txt?x", 200, "0123456789"),
        ("/sub/inside", 200, "0123456789"),
        ("/empty", 200, ""),
        ("/page", 404, "404"),
        ("/ten.txt/", 404, "404"),
        ("/outside", 404, "404"),
        ("/passwd", 404, "404"),
        ("/fifo", 404, "404"),
        ("/sub/.git/config", 404, "404"),
        ("//etc/passwd", 404, "404"),
        ("//ten.txt", 200, "0123456789"),
        ("/sub//index.html", 200, "<p>sub"),
        ("/../secret", 400, "400"),
        ("/sub/../ten.txt", 200, "0123456789"),
        ("/sub/../../secret", 400, "400"),
        ("//sub", 301, ""),
        ("/%2e%2e/secret", 400, "400"),
        ("/..%2fsecret", 400, "400"),
        ("/sub/%2E%2E/ten.txt", 200, "0123456789"),
        ("/%2e%2e/ten.txt", 400, "400"),
        ("/ten.txt%00.html", 400, "400"),
        ("/sub%5cindex.html", 400, "400"),
        ("/%c0%ae%c0%ae/secret", 400, "400"),
        ("/%ff", 400, "400"),
    ] {
        for version in VERSIONS {
            let answer = get(&instance, &[version, "--path-as-is"], &format!("https://localhost{path}"));
            assert_eq!(answer.status(), status, "{path} {version}: {answer:?}");
            assert!(answer.text().starts_with(body), "{path} {version}: {answer:?}");
            assert!(!answer.text().contains("secret"), "{path} {version}: {answer:?}");
        }
    }
    let answer = get(&instance, &[], "https://localhost/sub?a=b");
    assert_eq!(answer.field("location"), "/sub/?a=b");
    // Two slashes would name a host.
    let answer = get(&instance, &["--path-as-is"], "https://localhost//sub");
    assert_eq!(answer.field("location"), "/sub/");
    let events = instance.stop();
    assert!(events.iter().all(|event| event["server"].is_null()), "{events:?}");
    assert!(events.iter().all(|event| matches!(cause(event), "completed" | "bad_request")), "{events:?}");
}

#[test]
fn large_files_come_whole_and_in_parts() {
    let (instance, _) = serve("");
    let url = "https://localhost/a%20b.bin";
    let all = large();
    for version in ["--http1.0", "--http1.1", "--http2"] {
        let answer = get(&instance, &[version], url);
        assert!(answer.status() == 200 && answer.body == all, "{version} {:?}", answer.heads);
        assert_eq!(answer.field("content-length"), all.len().to_string());
        assert_eq!(answer.field("content-type"), "application/octet-stream");
        assert_eq!(answer.field("accept-ranges"), "bytes");
        let head = get(&instance, &[version, "--head"], url);
        assert_eq!((head.status(), head.body.len()), (200, 0));
        assert_eq!(head.field("content-length"), all.len().to_string());
        let part = get(&instance, &[version, "--range", "1000000-2500000"], url);
        assert!(part.status() == 206 && part.body == all[1_000_000..=2_500_000], "{:?}", part.heads);
        assert_eq!(part.field("content-range"), format!("bytes 1000000-2500000/{}", all.len()));
        let end = get(&instance, &[version, "--range", "-17"], url);
        assert_eq!((end.status(), &end.body[..]), (206, &all[3_000_000..]));
        let none = get(&instance, &[version, "--range", "3000017-"], url);
        assert_eq!((none.status(), none.field("content-range")), (416, "bytes */3000017"));
        let parts = get(&instance, &[version, "--range", "0-1,70000-200000,-5"], url);
        let boundary = parts.field("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
        let mut expected = Vec::new();
        for (first, last) in [(0, 1), (70_000, 200_000), (3_000_012, 3_000_016)] {
            let range = format!("content-range: bytes {first}-{last}/3000017");
            let kind = "content-type: application/octet-stream";
            expected.extend(format!("--{boundary}\r\n{kind}\r\n{range}\r\n\r\n").bytes());
            expected.extend(&all[first..=last]);
            expected.extend(b"\r\n");
        }
        expected.extend(format!("--{boundary}--\r\n").bytes());
        assert!(parts.status() == 206 && parts.body == expected, "{:?}", parts.heads);
    }
    instance.stop();
}

#[test]
fn conditions_are_obeyed() {
    let (instance, root) = serve("");
    let url = "https://localhost/ten.txt";
    for version in VERSIONS {
        let first = get(&instance, &[version], url);
        assert_eq!(first.field("content-type"), "text/plain; charset=utf-8");
        let (tag, date) = (first.field("etag").to_owned(), first.field("last-modified").to_owned());
        let with = |field: String, more: &[&str]| {
            get(&instance, &[&[version, "--header", &field][..], more].concat(), url)
        };
        let same = with(format!("If-None-Match: {tag}"), &[]);
        assert_eq!((same.status(), same.body.len(), same.field("etag")), (304, 0, &*tag));
        assert_eq!(with(format!("If-Modified-Since: {date}"), &[]).status(), 304);
        assert_eq!(with("If-None-Match: \"x\"".to_owned(), &[]).status(), 200);
        assert_eq!(with("If-Match: \"x\"".to_owned(), &[]).status(), 412);
        let part = ["--range", "2-3"];
        assert_eq!(with(format!("If-Range: {tag}"), &part).text(), "23");
        assert_eq!(with("If-Range: \"x\"".to_owned(), &part).text(), "0123456789");
        // Another file with the same length has another tag.
        fs::write(root.join("new"), "9876543210").unwrap();
        fs::rename(root.join("new"), root.join("ten.txt")).unwrap();
        let changed = instance.until("the other file", || {
            Some(with(format!("If-None-Match: {tag}"), &[])).filter(|answer| answer.status() == 200)
        });
        assert_eq!(changed.text(), "9876543210");
        fs::write(root.join("ten.txt"), "0123456789").unwrap();
        instance.until("the first content", || {
            (get(&instance, &[version], url).text() == "0123456789").then_some(())
        });
        let post = get(&instance, &[version, "--data", "x"], url);
        assert_eq!((post.status(), post.field("allow")), (405, "GET, HEAD"));
    }
    instance.stop();
}

#[test]
fn keys_say_what_else_is_served() {
    let (instance, _) = serve(
        "try = [\"{path}\", \"{path}.html\"]\nfallback = \"/index.html\"\nhidden = true\nindex = \"none\"\n\
         cache_control = { \"*.txt\" = \"no-cache\", \"/sub/*\" = \"max-age=60\" }\n\
         response_headers = { set = { X-Set = \"1\" } }\n",
    );
    for version in VERSIONS {
        let ask = |path: &str| get(&instance, &[version], &format!("https://localhost{path}"));
        assert_eq!(ask("/page").text(), "<p>page");
        assert_eq!((ask("/deep/link").status(), ask("/deep/link").text().as_str()), (200, "<p>home"));
        assert_eq!(ask("/sub/.git/config").text(), "hidden");
        assert_eq!(ask("/ten.txt").field("cache-control"), "no-cache");
        assert_eq!(ask("/sub/inside").field("cache-control"), "max-age=60");
        assert_eq!(ask("/page").field("cache-control"), "");
        assert_eq!(ask("/page").field("x-set"), "1");
    }
    instance.stop();
}

#[test]
fn a_file_that_becomes_shorter_is_cut_off() {
    const SIZE: u64 = 1 << 34;
    let (instance, root) = serve("");
    // So large that the client has not got it when it becomes shorter: its size is only said.
    let file = fs::File::create(root.join("shrinks")).unwrap();
    let got = root.with_file_name("got");
    for version in VERSIONS {
        file.set_len(SIZE).unwrap();
        let _ = fs::remove_file(&got);
        let shrink = std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                // A slow client: Offramp is in the middle when the file changes.
                curl(
                    &instance,
                    &[version, "--no-buffer", "--limit-rate", "1M", "--output", got.to_str().unwrap()],
                    "https://localhost/shrinks",
                )
            });
            instance.until("the first bytes", || {
                fs::metadata(&got).is_ok_and(|file| file.len() > 0).then_some(())
            });
            file.set_len(10).unwrap();
            asked.join().unwrap()
        });
        assert_ne!(shrink.code, 0, "{version}");
    }
    let events = instance.stop();
    assert!(events.iter().all(|event| cause(event) == "file_failed"), "{events:?}");
}

#[test]
fn a_root_that_is_put_in_its_place_is_served() {
    let (instance, root) = serve("");
    let ask = || get(&instance, &[], "https://localhost/").text();
    assert_eq!(ask(), "<p>home");
    let other = root.with_file_name("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("index.html"), "<p>other").unwrap();
    fs::rename(&root, root.with_file_name("old")).unwrap();
    fs::rename(&other, &root).unwrap();
    let begun = std::time::Instant::now();
    while ask() != "<p>other" {
        assert!(begun.elapsed().as_secs() < 60, "the old root is still served");
    }
    instance.stop();
}

#[test]
fn roots_that_cannot_be_served_are_named() {
    let home = Home::new();
    for (keys, part) in [
        ("root = \"/does/not/exist\"", "root: cannot read the directory /does/not/exist"),
        ("root = \"none\"", "root: cannot read the directory"),
        ("root = \"/\"\nserver = \"unix:a.sock\"", "cannot have both `server` and `root`"),
        ("root = \"/\"\nfallback = \"/../x\"", "`fallback` is not the path of a file"),
        ("root = \"/\"\ntry = [\"x\"]", "this names no file for a request"),
        ("server = \"unix:a.sock\"\nindex = \"a\"", "`index` has an effect only with `root`"),
    ] {
        fs::write(home.file("o.toml"), format!("{CERTIFICATE}{HTTP}[[route]]\n{keys}\n")).unwrap();
        let outcome = output(home.path(), &["check", "-c", "o.toml"]);
        assert_eq!(outcome.status.code(), Some(2), "{keys}");
        assert!(stderr(&outcome).contains(part), "{keys}: {}", stderr(&outcome));
        assert!(stderr(&outcome).contains("o.toml"), "{keys}: {}", stderr(&outcome));
    }
}

#[test]
fn compressed_neighbours_are_served_to_who_decodes_them() {
    let (instance, root) = serve("precompressed = true\nfallback = \"/index.html\"\n");
    let at = |seconds: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 + seconds);
    let write = |name: &str, text: &str, seconds: u64| {
        fs::write(root.join(name), text).unwrap();
        fs::File::open(root.join(name)).unwrap().set_modified(at(seconds)).unwrap();
    };
    for (name, text, seconds) in [
        ("app.js", "the original", 10),
        ("app.js.br", "in br", 10),
        ("app.js.zst", "in zst", 11),
        ("app.js.gz", "in gzip", 12),
        ("old.css", "the original", 10),
        ("old.css.br", "older", 9),
        ("old.css.zst", "", 11),
        ("old.css.gz", "newer", 11),
        ("lone.css.gz", "without an original", 10),
        ("index.html.gz", "home in gzip", 1_000_000_000),
    ] {
        write(name, text, seconds);
    }
    fs::create_dir(root.join("ten.txt.br")).unwrap();
    for version in VERSIONS {
        let with = |path: &str, accept: &str, more: &[&str]| {
            let field = format!("Accept-Encoding: {accept}");
            let url = format!("https://localhost{path}");
            get(&instance, &[&[version, "--header", &field][..], more].concat(), &url)
        };
        for (path, accept, coding, body) in [
            ("/app.js", "", "", "the original"),
            ("/app.js", "identity", "", "the original"),
            ("/app.js", "gzip, deflate, br, zstd", "br", "in br"),
            ("/app.js", "gzip;q=0.9, br;q=0.8, zstd;q=1.0", "zstd", "in zst"),
            ("/app.js", "br;q=0, gzip", "gzip", "in gzip"),
            ("/app.js", "gzip;q=0.5, identity", "", "the original"),
            ("/old.css", "br, zstd, gzip", "gzip", "newer"),
            ("/old.css", "br, zstd", "", "the original"),
            ("/ten.txt", "br", "", "0123456789"),
            ("/app.js.gz", "gzip", "", "in gzip"),
            ("/", "gzip", "gzip", "home in gzip"),
            ("/no/such/page", "gzip", "gzip", "home in gzip"),
        ] {
            let answer = with(path, accept, &[]);
            assert_eq!(answer.field("content-encoding"), coding, "{path} {accept}: {answer:?}");
            assert_eq!((answer.status(), &*answer.text()), (200, body), "{path} {accept}");
            assert_eq!(answer.field("vary"), "accept-encoding", "{path} {accept}");
            assert_eq!(answer.field("content-length"), body.len().to_string(), "{path} {accept}");
        }
        assert_eq!(with("/lone.css", "br", &[]).text(), "<p>home");
        // The compressed form has a type, validators and ranges of its own.
        let plain = with("/app.js", "", &[]);
        let coded = with("/app.js", "br", &[]);
        assert_eq!(coded.field("content-type"), plain.field("content-type"));
        assert_ne!(coded.field("etag"), plain.field("etag"));
        let tag = coded.field("etag").to_owned();
        let same = format!("If-None-Match: {tag}");
        let unchanged = with("/app.js", "br", &["--header", &same]);
        assert_eq!((unchanged.status(), unchanged.field("vary")), (304, "accept-encoding"));
        assert_eq!(with("/app.js", "", &["--header", &same]).status(), 200);
        let part = with("/app.js", "br", &["--range", "1-3"]);
        assert_eq!((part.status(), part.text().as_str()), (206, "n b"));
        assert_eq!((part.field("content-range"), part.field("content-encoding")), ("bytes 1-3/5", "br"));
        let whole = with("/app.js", "", &["--range", "1-3", "--header", &format!("If-Range: {tag}")]);
        assert_eq!((whole.status(), whole.text().as_str()), (200, "the original"));
    }
    instance.stop();
}
