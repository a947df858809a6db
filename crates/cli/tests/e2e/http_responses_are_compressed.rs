//! Responses are compressed as they pass, as the client accepts it, and curl gets back what the application sent.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use offramp_testkit::server::{Listen, Server, Stream};

use crate::support::figures::Page;
use crate::support::http_app::{Request, app, respond};
use crate::support::http_curl::{HTTP, command, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance};
use crate::support::nginx::nginx;

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

fn content() -> String {
    (0..2000).map(|n| format!("{{\"number\":{n},\"name\":\"name {n}\"}}\n")).collect()
}

/// Who holds back the second event of a stream.
type Live = Arc<Mutex<Vec<Sender<()>>>>;

/// Answers by path; what is asked for under `/live` goes on when the other end of the channel says so.
fn answer(request: &Request, stream: &mut Stream, live: &Live) -> io::Result<()> {
    let content = content();
    let body = if request.method == "HEAD" { "" } else { &content };
    let length = format!("Content-Length: {}\r\n", content.len());
    let fields = match request.target.as_str() {
        "/json" if request.field("if-none-match").contains("\"a\"") => {
            return stream.write_all(b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
        }
        "/json" => {
            "Content-Type: application/json\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nVary: Origin\r\n"
        }
        "/own" => "Content-Type: application/json\r\nSet-Cookie: a=b\r\n",
        "/encoded" => "Content-Type: text/plain\r\nContent-Encoding: x-own\r\n",
        "/fixed" => "Content-Type: text/plain\r\nCache-Control: no-transform\r\n",
        "/picture" => "Content-Type: image/png\r\n",
        "/none" => return stream.write_all(b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        "/nothing" => {
            return stream.write_all(b"HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n");
        }
        "/small" => return respond(stream, 200, &["Content-Type: text/plain"], b"small"),
        "/live" => {
            let (go, gone) = channel();
            live.lock().unwrap().push(go);
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes())?;
            stream.write_all(b"d\r\ndata: first\n\n\r\n")?;
            // The second event comes only when the client has seen the first.
            let _ = gone.recv();
            return stream.write_all(b"e\r\ndata: second\n\n\r\n0\r\n\r\n");
        }
        _ => return respond(stream, 404, &[], b"nothing"),
    };
    stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}{length}\r\n{body}").as_bytes())
}

struct Site {
    instance: Instance,
    _app: Server,
    live: Live,
}

/// An application behind a route with these keys, files under `/files`, and whatever else `more` says.
fn site(keys: &str, more: &str) -> Site {
    let home = Home::new();
    let live = Live::default();
    let app = app(&Listen::Unix(home.file("app.sock")), {
        let live = Arc::clone(&live);
        move |request, stream| answer(request, stream, &live)
    });
    let root = home.file("www");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("page.html"), content()).unwrap();
    let text = format!(
        "{more}{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n{keys}\
         [[route]]\npath = \"/files\"\nroot = \"{}\"\nstrip_path = true\n{keys}",
        root.display()
    );
    Site { instance: home.run(&text), _app: app, live }
}

fn accepts(coding: &str) -> String {
    format!("Accept-Encoding: {coding}")
}

#[test]
fn curl_gets_back_what_the_application_sent() {
    let site = site("compress = true\n", "");
    let (instance, content) = (&site.instance, content());
    for version in VERSIONS {
        for (accept, coding) in [("gzip", "gzip"), ("br", "br"), ("zstd", "zstd"), ("gzip, br;q=0.5", "gzip")]
        {
            let accept = accepts(accept);
            let arguments = [version, "--header", &accept];
            let raw = get(instance, &arguments, "https://localhost/json");
            assert_eq!(
                (raw.field("content-encoding"), raw.field("vary")),
                (coding, "Origin, Accept-Encoding")
            );
            assert_eq!((raw.field("etag"), raw.field("accept-ranges")), ("W/\"a\"", ""), "{raw:?}");
            assert_eq!(raw.field("content-length"), "", "{raw:?}");
            assert!(raw.body.len() < content.len() / 4, "{coding}: {}", raw.body.len());
            let decode = [&arguments[..], &["--compressed"]].concat();
            for path in ["json", "files/page.html"] {
                let decoded = get(instance, &decode, &format!("https://localhost/{path}"));
                assert!(decoded.text() == content, "{coding} of {path} over {version}");
                assert_eq!(decoded.field("content-encoding"), coding, "{path}");
            }
            let head = get(instance, &[&arguments[..], &["--head"]].concat(), "https://localhost/json");
            for field in ["content-encoding", "vary", "etag", "content-length", "accept-ranges"] {
                assert_eq!(head.field(field), raw.field(field), "{field}");
            }
        }
        let plain = get(instance, &[version], "https://localhost/json");
        assert_eq!((plain.field("content-encoding"), plain.field("vary")), ("", "Origin, Accept-Encoding"));
        assert_eq!((plain.field("etag"), plain.field("accept-ranges")), ("\"a\"", "bytes"));
        assert!(plain.text() == content);
        for path in ["encoded", "fixed", "picture", "small", "none", "nothing"] {
            let url = format!("https://localhost/{path}");
            let same = get(instance, &[version, "--header", &accepts("gzip")], &url);
            let coding = if path == "encoded" { "x-own" } else { "" };
            assert_eq!((same.field("content-encoding"), same.field("vary")), (coding, ""), "{same:?}");
        }
        // HTTP/1.0 has no chunks.
        let old = get(instance, &["--http1.0", "--header", &accepts("gzip")], "https://localhost/json");
        assert_eq!((old.field("content-encoding"), old.text() == content), ("", true), "{old:?}");
    }
    site.instance.stop();
}

#[test]
fn hostile_wishes_are_no_error_and_no_work() {
    let site = site("compress = true\n", "");
    for version in VERSIONS {
        for (wish, coding) in [
            ("x;q=NaN,".repeat(1024), ""),
            (",".repeat(10_000), ""),
            (",;".repeat(5000), ""),
            (format!("gzip{}", ",a".repeat(5000)), "gzip"),
            (format!("gzip;{}", "q".repeat(8192)), "gzip"),
            ("gzip;q=NaN".to_owned(), ""),
            ("gzip;q=1e9, br;q=2, zstd;q=-1".to_owned(), ""),
            ("gzip;q=0.0001".to_owned(), ""),
            ("identity;q=0".to_owned(), ""),
            ("*;q=0".to_owned(), ""),
            ("identity;q=0, *;q=0".to_owned(), ""),
            ("identity;q=0, br".to_owned(), "br"),
            ("*".to_owned(), "zstd"),
            ("GZIP;Q=1".to_owned(), "gzip"),
        ] {
            let answer =
                curl(&site.instance, &[version, "--header", &accepts(&wish)], "https://localhost/json");
            let shown = &wish[..wish.len().min(60)];
            assert_eq!((answer.status(), answer.field("content-encoding")), (200, coding), "{shown}");
        }
    }
    site.instance.stop();
}

#[test]
fn events_are_not_held_back() {
    let site = site("compress = { min_size = \"0B\" }\n", "");
    for version in VERSIONS {
        for coding in ["gzip", "br", "zstd"] {
            let mut curl = command(&site.instance, "https");
            curl.args(["-N", "--compressed", version, "--header", &accepts(coding), "--dump-header", "-"]);
            curl.arg("https://localhost/live").stdout(Stdio::piped());
            let mut curl = curl.spawn().unwrap();
            let mut lines = BufReader::new(curl.stdout.take().unwrap()).lines().map(Result::unwrap);
            let coded =
                |line: &String| line.trim_end().eq_ignore_ascii_case(&format!("content-encoding: {coding}"));
            assert!(lines.any(|line| coded(&line)), "{coding} over {version}");
            // The application sends no more before it is told to: what is flushed must have all of the first event.
            assert!(lines.any(|line| line == "data: first"), "{coding} over {version}");
            for go in site.live.lock().unwrap().drain(..) {
                go.send(()).unwrap();
            }
            let rest: Vec<_> = lines.collect();
            assert_eq!(rest, ["", "data: second", ""], "{coding} over {version}");
            assert!(curl.wait().unwrap().success());
        }
    }
    site.instance.stop();
}

#[test]
fn tags_and_ranges_stay_right() {
    let site = site("compress = true\n", "");
    let gzip = accepts("gzip");
    for version in VERSIONS {
        for path in ["json", "files/page.html"] {
            let url = format!("https://localhost/{path}");
            let ask = |fields: &[&str]| {
                let mut arguments = vec![version, "--header", &gzip];
                for field in fields {
                    arguments.extend(["--header", field]);
                }
                get(&site.instance, &arguments, &url)
            };
            let tag = ask(&[]).field("etag").to_owned();
            assert!(tag.starts_with("W/\""), "{path}: {tag}");
            let strong = tag.trim_start_matches("W/");
            // The tag of the compressed form is known again, and that of the other form.
            for (tag, varies) in [(&*tag, true), (strong, false)] {
                let same = ask(&[&format!("If-None-Match: {tag}")]);
                assert_eq!((same.status(), same.field("etag")), (304, tag), "{path}: {same:?}");
                assert_eq!(same.field("vary").contains("Accept-Encoding"), varies, "{same:?}");
            }
        }
        // A part is one of the content as it is; where the client has the other form, it gets all of that anew.
        let url = "https://localhost/files/page.html";
        let whole = get(&site.instance, &[version], url);
        let strong = whole.field("etag");
        for (condition, status, coding) in [
            ("X: y".to_owned(), 206, ""),
            (format!("If-Range: {strong}"), 206, ""),
            (format!("If-Range: W/{strong}"), 200, "gzip"),
        ] {
            let fields = ["--header", &gzip, "--header", "Range: bytes=5-9", "--header", &condition];
            let part = get(&site.instance, &[&[version], &fields[..]].concat(), url);
            let told = (part.status(), part.field("content-encoding"), part.field("vary"));
            assert_eq!(told, (status, coding, "Accept-Encoding"), "{condition}");
            assert!(status == 200 || part.body == whole.body[5..10], "{condition}");
        }
    }
    site.instance.stop();
}

#[test]
fn users_of_routes_with_secrets_get_them_as_they_are() {
    let site = site("compress = { secrets = true }\n", "");
    let gzip = accepts("gzip");
    for (field, path, coding) in [
        ("X: y", "json", "gzip"),
        ("Cookie: session=1", "json", ""),
        ("Authorization: Basic YTpi", "json", ""),
        ("X: y", "own", ""),
    ] {
        let url = format!("https://localhost/{path}");
        let answer = get(&site.instance, &["--header", &gzip, "--header", field], &url);
        assert_eq!(answer.field("content-encoding"), coding, "{field} {path}");
        // For caches the URL has two forms all the same.
        assert!(answer.field("vary").ends_with("Accept-Encoding"), "{answer:?}");
    }
    site.instance.stop();
}

#[test]
fn what_no_encoder_has_room_for_is_sent_as_it_is() {
    // Room for one encoder of gzip.
    let more =
        "workers = 1\n[metrics]\naddress = \"127.0.0.1:0\"\n[limits]\ncompression_memory = \"512KiB\"\n";
    let site = site("compress = { algorithms = [\"gzip\"] }\n", more);
    let gzip = accepts("gzip");
    let coding = || {
        let answer = get(&site.instance, &["--header", &gzip], "https://localhost/json");
        answer.field("content-encoding").to_owned()
    };
    assert_eq!(coding(), "gzip");
    let mut holder = command(&site.instance, "https");
    holder.args(["-N", "--compressed", "--header", &gzip, "https://localhost/live"]).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "data: first"));
    assert_eq!(coding(), "", "a live stream has the room");
    let metrics = site.instance.metrics();
    let count = |coding: &str| {
        Page::scrape(metrics).get(&format!("offramp_compressed_responses_total{{coding=\"{coding}\"}}"))
    };
    assert_eq!((count("gzip"), count("none"), count("br")), (2.0, 1.0, 0.0));
    for go in site.live.lock().unwrap().drain(..) {
        go.send(()).unwrap();
    }
    assert!(holder.wait().unwrap().success());
    assert_eq!(coding(), "gzip", "the end gave it back");
    site.instance.stop();
}

/// 20 KiB of JSON as an interface sends it: always the same.
fn records() -> Vec<u8> {
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let names =
        ["Anna", "Boris", "Chen", "Dilan", "Elif", "Farid", "Grace", "Hana", "Ivan", "Jonas", "Katja"];
    let words = ["invoice", "payment", "draft", "urgent", "archived", "customer", "supplier", "internal"];
    let mut text = String::from("[");
    for id in 1000.. {
        if text.len() >= 20 << 10 {
            break;
        }
        let name = names[usize::try_from(draw(11)).unwrap()];
        let tags = [draw(8), draw(8)].map(|word| words[usize::try_from(word).unwrap()]);
        text.push_str(&format!(
            "{{\"id\":{id},\"key\":\"{:08x}-{:04x}\",\"name\":\"{name} {}\",\"email\":\"{}.{}@example.org\",\
             \"active\":{},\"balance\":{}.{:02},\"created\":\"2026-{:02}-{:02}T{:02}:{:02}:00Z\",\"tags\":{tags:?}}},",
            draw(1 << 31),
            draw(1 << 16),
            draw(1000),
            name.to_lowercase(),
            draw(1000),
            draw(2) == 1,
            draw(100_000),
            draw(100),
            draw(12) + 1,
            draw(28) + 1,
            draw(24),
            draw(60),
        ));
    }
    text.truncate(20 << 10);
    text.into_bytes()
}

#[test]
fn gzip_is_as_small_as_that_of_nginx() {
    let home = Home::new();
    std::fs::write(home.file("records.json"), records()).unwrap();
    let peer = nginx(
        &home,
        &format!(
            "types {{ application/json json; }}\ngzip on;\ngzip_types application/json;\n\
             server {{ listen unix:peer.sock; root {}; }}\n",
            home.path().display()
        ),
        "peer.sock",
    );
    let text = format!(
        "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:peer.sock\"\n\
         [[route]]\npath = \"/own\"\nroot = \"{}\"\nstrip_path = true\ncompress = true\n",
        home.path().display()
    );
    let instance = home.run(&text);
    let size = |path: &str, coding: &str| {
        let answer = get(&instance, &["--header", &accepts(coding)], &format!("https://localhost/{path}"));
        assert_eq!(answer.field("content-encoding"), coding, "{path}");
        answer.body.len()
    };
    let (nginx, own) = (size("records.json", "gzip"), size("own/records.json", "gzip"));
    println!(
        "nginx {nginx}, own gzip {own}, br {}, zstd {}",
        size("own/records.json", "br"),
        size("own/records.json", "zstd")
    );
    assert!(own * 100 <= nginx * 102, "{own} bytes, where nginx has {nginx}");
    instance.stop();
    drop(peer);
}
