//! Files as nginx serves them: 200 requests to both with the same root, compared field by field and byte by byte. Where
//! Offramp differs it is a decision, which the table [`DECISIONS`] names with its reason.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::http_curl::PLAIN;
use crate::support::instance::{Home, PATIENCE};
use crate::support::nginx::nginx;

/// When all files changed: Tue, 14 Nov 2023 22:13:20 GMT.
const CHANGED: Duration = Duration::from_secs(1_700_000_000);
const BEFORE: &str = "Tue, 14 Nov 2023 22:13:19 GMT";
const THEN: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
const AFTER: &str = "Tue, 14 Nov 2023 22:13:21 GMT";

/// What differs in requests that contain this text, and why.
const DECISIONS: &[(&str, &str, &str)] = &[
    (
        "GET /sub%2findex.html |",
        "status",
        "an escaped slash is data (RFC 3986, 2.2), and no name of a file has it: 400",
    ),
    ("GET /sub/.git/config |", "status", "hidden files are not served unless `hidden = true`"),
    ("GET /outside.txt |", "status", "links that lead out of the root are not followed"),
    ("GET /sub%5cindex.html |", "status", "a backslash is a slash to others: 400 and not 404"),
    ("GET /%c0%ae%c0%ae/secret |", "status", "what is not UTF-8 is malformed: 400 and not 404"),
    ("GET /%ff |", "status", "what is not UTF-8 is malformed: 400 and not 404"),
    ("GET /t.js |", "content-type", "text/javascript is the type of scripts (RFC 9239)"),
    ("GET /t.mjs |", "content-type", UNKNOWN),
    ("GET /t.gz |", "content-type", UNKNOWN),
    ("GET /t.tar |", "content-type", UNKNOWN),
    ("GET /t.md |", "content-type", UNKNOWN),
    ("GET /t.csv |", "content-type", UNKNOWN),
    ("Range: bytes=5-4", "status", INVALID),
    ("Range: bytes=x", "status", INVALID),
    ("Range: bytes=1-x", "status", INVALID),
    (
        "Range: bytes=0-18446744073709551616",
        "status",
        "an end behind the end of the file is its end, however large",
    ),
    ("HEAD /ten.txt | Range: ", "status", "ranges are for GET (RFC 9110, 14.2)"),
    (
        "If-Modified-Since: Tue, 14 Nov 2023 22:13:21 GMT",
        "status",
        "a file from before the date is not newer (RFC 9110, 13.1.3)",
    ),
    ("If-Unmodified-Since: yesterday", "status", "what is no date is ignored (RFC 9110, 13.1.4)"),
];

const UNKNOWN: &str = "nginx does not know the type";
const INVALID: &str = "a range that breaks the rules is ignored (RFC 9110, 14.2)";

/// The names of files whose type is compared.
const TYPES: [&str; 32] = [
    "t.css",
    "t.js",
    "t.mjs",
    "t.json",
    "t.svg",
    "t.png",
    "t.jpg",
    "t.jpeg",
    "t.gif",
    "t.webp",
    "t.avif",
    "t.ico",
    "t.woff",
    "t.woff2",
    "t.pdf",
    "t.mp4",
    "t.webm",
    "t.mp3",
    "t.xml",
    "t.wasm",
    "t.zip",
    "t.gz",
    "t.tar",
    "t.htm",
    "t.md",
    "t.csv",
    "t.unknown",
    "t",
    "T.HTML",
    "t.html.txt",
    "t.",
    "t.txt",
];

/// A root with files of all kinds.
fn root(home: &Home) -> std::path::PathBuf {
    let root = home.file("www");
    for folder in ["sub/.git", "bare"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let write = |name: &str, content: &[u8]| {
        fs::write(root.join(name), content).unwrap();
        let file = fs::File::open(root.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + CHANGED).unwrap();
    };
    write("index.html", b"<p>home");
    write("sub/index.html", b"<p>sub");
    write("sub/page.html", b"<p>page");
    write("sub/.git/config", b"hidden");
    write("bare/style.css", b"p{}");
    write("ten.txt", b"0123456789");
    write("empty.txt", b"");
    write("large.bin", &(0..100_003_u32).map(|at| (at ^ (at >> 8)) as u8).collect::<Vec<u8>>());
    for name in
        ["a b.txt", "\u{e4}.txt", "100%.txt", "plus+.txt", "semi;colon.txt", "q?mark.txt", "hash#.txt"]
    {
        write(name, name.as_bytes());
    }
    for name in TYPES {
        write(name, b"typed");
    }
    fs::write(home.file("secret"), "secret").unwrap();
    symlink("../ten.txt", root.join("sub/inside.txt")).unwrap();
    symlink("../secret", root.join("outside.txt")).unwrap();
    symlink("nothing", root.join("dangling.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("fifo.txt")).status().unwrap().success());
    root
}

/// A request: method and target, and one field more.
struct Row {
    line: String,
    field: String,
}

impl Row {
    fn name(&self) -> String {
        format!("{} | {}", self.line, self.field)
    }

    fn bytes(&self) -> Vec<u8> {
        let field = if self.field.is_empty() { String::new() } else { format!("{}\r\n", self.field) };
        let length = if self.line.starts_with('P') { "Content-Length: 0\r\n" } else { "" };
        format!("{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}{field}\r\n", self.line)
            .into_bytes()
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |line: &str, field: &str| rows.push(Row { line: line.to_owned(), field: field.to_owned() });
    for path in PATHS {
        add(&format!("GET {path}"), "");
    }
    for name in TYPES {
        add(&format!("GET /{name}"), "");
    }
    for path in ["/", "/ten.txt", "/large.bin", "/empty.txt", "/sub", "/bare/", "/none"] {
        add(&format!("HEAD {path}"), "");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        add(&format!("{method} /ten.txt"), "");
    }
    for range in RANGES {
        add("GET /ten.txt", &format!("Range: {range}"));
        add("GET /large.bin", &format!("Range: {range}"));
    }
    for range in ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=1-", "bytes=-0", "bytes=0-0,0-0"] {
        add("GET /empty.txt", &format!("Range: {range}"));
        add("HEAD /ten.txt", &format!("Range: {range}"));
    }
    for field in ["If-Modified-Since", "If-Unmodified-Since"] {
        for date in
            [BEFORE, THEN, AFTER, "yesterday", "Tuesday, 14-Nov-23 22:13:20 GMT", "Tue Nov 14 22:13:20 2023"]
        {
            add("GET /ten.txt", &format!("{field}: {date}"));
            add("HEAD /ten.txt", &format!("{field}: {date}"));
        }
    }
    for (name, value) in [
        ("If-None-Match", "*"),
        ("If-None-Match", "\"other\""),
        ("If-None-Match", "W/\"other\", \"more\""),
        ("If-Match", "*"),
        ("If-Match", "\"other\""),
    ] {
        add("GET /ten.txt", &format!("{name}: {value}"));
        add("GET /none.txt", &format!("{name}: {value}"));
    }
    for date in [BEFORE, THEN, AFTER, "\"other\""] {
        add("GET /ten.txt", &format!("Range: bytes=2-3\r\nIf-Range: {date}"));
    }
    rows
}

const PATHS: [&str; 62] = [
    "/",
    "/?",
    "/?a=b",
    "/index.html",
    "/index.html?a",
    "/ten.txt",
    "/ten.txt?x=/../y",
    "/%74en.txt",
    "/ten%2Etxt",
    "/TEN.TXT",
    "/ten.txt/",
    "/ten.txt/x",
    "/large.bin",
    "/empty.txt",
    "/sub",
    "/sub?a=b",
    "/sub/",
    "/sub/?a=b",
    "/sub/index.html",
    "/sub/page.html",
    "/sub/page",
    "/sub/inside.txt",
    "/bare",
    "/bare/",
    "/bare/style.css",
    "/none",
    "/none/",
    "/none/x.txt",
    "/sub/none.html",
    "/a%20b.txt",
    "/%C3%A4.txt",
    "/%c3%a4.txt",
    "/100%25.txt",
    "/plus+.txt",
    "/plus%2B.txt",
    "/semi;colon.txt",
    "/q%3Fmark.txt",
    "/hash%23.txt",
    "/dangling.txt",
    "/fifo.txt",
    // Attempts to get out, and what looks like them.
    "/..",
    "/../secret",
    "/../../etc/passwd",
    "/sub/../ten.txt",
    "/sub/../../secret",
    "/./ten.txt",
    "/sub/.",
    "/%2e%2e/secret",
    "/sub/%2e%2e/ten.txt",
    "/..%2fsecret",
    "/sub%2findex.html",
    "//ten.txt",
    "/sub//index.html",
    "/sub/.git/config",
    "/outside.txt",
    "/sub%5cindex.html",
    "/ten.txt%00",
    "/ten.txt%00.html",
    "/%c0%ae%c0%ae/secret",
    "/%ff",
    "/%",
    "/%zz",
];

const RANGES: [&str; 22] = [
    "bytes=0-0",
    "bytes=0-4",
    "bytes=5-",
    "bytes=-3",
    "bytes=9-9",
    "bytes=0-9",
    "bytes=0-99999999",
    "bytes=-99999999",
    "bytes=100003-",
    "bytes=-0",
    "bytes=5-4",
    "bytes=x",
    "bytes=",
    "bytes=1-x",
    "BYTES=0-1",
    "items=0-1",
    "bytes=0-1,4-5",
    "bytes=0-1, 4-5 , -1",
    "bytes=0-5,3-9",
    "bytes=0-0,200000-",
    "bytes=18446744073709551616-",
    "bytes=0-18446744073709551616",
];

/// A response, as far as it is compared.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn read(mut stream: impl Read + Write, request: &[u8]) -> Self {
        stream.write_all(request).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&all)));
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let pair = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self { status, fields: head.lines().skip(1).map(pair).collect(), body: all[end + 4..].to_vec() }
    }

    /// What is compared: of errors the status, because the page is each server's own.
    fn parts(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut parts = vec![("status", self.status.to_string().into_bytes())];
        let field = |name: &str| {
            let found = self.fields.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let names: &[&'static str] = match self.status {
            301 => &["location"],
            304 => &["last-modified"],
            200 | 206 => &[
                "content-type",
                "content-length",
                "content-range",
                "last-modified",
                "accept-ranges",
                "location",
            ],
            _ => &[],
        };
        let boundary = field("content-type").split_once("boundary=").map(|(_, boundary)| boundary.to_owned());
        for &name in names {
            // The length of several parts is that of the boundaries, too.
            if boundary.is_none() || name != "content-length" {
                parts.push((name, field(name).into_bytes()));
            }
        }
        if let Some(boundary) = boundary {
            let text: String = self.body.iter().map(|&byte| char::from(byte)).collect();
            let text = text.trim_start().replace(&boundary, "B").to_ascii_lowercase();
            parts.retain(|(name, _)| *name != "content-type");
            parts.push(("parts", text.into_bytes()));
        } else if matches!(self.status, 200 | 206) {
            parts.push(("body", self.body.clone()));
        }
        parts
    }
}

/// What differs between two responses; where the status does, nothing else is compared.
fn differences(ours: &Answer, theirs: &Answer) -> Vec<&'static str> {
    if ours.status != theirs.status {
        return vec!["status"];
    }
    let (ours, theirs) = (ours.parts(), theirs.parts());
    assert_eq!(ours.len(), theirs.len(), "{ours:?} {theirs:?}");
    ours.iter().zip(&theirs).filter(|(one, other)| one != other).map(|((name, _), _)| *name).collect()
}

#[test]
fn two_hundred_requests_get_what_nginx_answers() {
    let home = Home::new();
    let root = root(&home);
    let server = format!(
        "include /etc/nginx/mime.types; default_type application/octet-stream;\n\
         charset utf-8; charset_types text/css text/csv text/markdown text/plain text/xml;\n\
         server {{ listen unix:nginx.sock; root {}; absolute_redirect off; }}\n",
        root.display()
    );
    let _nginx = nginx(&home, &server, "nginx.sock");
    let socket = home.file("nginx.sock");
    let instance = home.run(&format!("{PLAIN}[[route]]\nroot = \"{}\"\n", root.display()));
    let rows = rows();
    assert!(rows.len() >= 200, "{}", rows.len());
    let mut used = vec![false; DECISIONS.len()];
    let mut wrong = Vec::new();
    for row in rows {
        let (name, request) = (row.name(), row.bytes());
        let ours = TcpStream::connect(instance.address_of("plain")).unwrap();
        let theirs = UnixStream::connect(&socket).unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        let (ours, theirs) = (Answer::read(ours, &request), Answer::read(theirs, &request));
        assert!(!String::from_utf8_lossy(&ours.body).contains("secret"), "{name}");
        let decision = DECISIONS.iter().position(|(text, ..)| name.contains(text));
        let expected: Vec<_> = decision.iter().map(|&at| DECISIONS[at].1).collect();
        let found = differences(&ours, &theirs);
        if found != expected {
            let told = |answer: &Answer| {
                let mut answer = answer.parts();
                answer.iter_mut().for_each(|(_, value)| value.truncate(300));
                let text =
                    |(name, value): &(&str, Vec<u8>)| format!("{name}={}", String::from_utf8_lossy(value));
                answer.iter().map(text).collect::<Vec<_>>().join(" ")
            };
            wrong.push(format!(
                "{name}: {found:?} instead of {expected:?}\n  ours {}\n  nginx {}",
                told(&ours),
                told(&theirs)
            ));
        }
        if let Some(at) = decision {
            used[at] = true;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused: Vec<_> =
        DECISIONS.iter().zip(used).filter(|(_, used)| !used).map(|(decision, _)| decision.0).collect();
    assert!(unused.is_empty(), "no request is of {unused:?}");
    instance.stop();
}
