//! A configuration with the requests that it gets and what differs on purpose: lines that begin with `#?` before the text.
//!
//! - `#? host NAME…`: the hosts that are asked for
//! - `#? path PATH…`: the paths, each in several spellings and with several methods
//! - `#? more METHOD TARGET | FIELD | FIELD`: one request more, to each host
//! - `#? partial`: directives are left out
//! - `#? differs REQUESTS | PARTS | REASON`: in requests whose title has the text, or one of several
//!   with ` or ` between them, these parts differ
//! - `#? may PARTS | REASON` and perhaps `| REQUESTS`: these parts differ in some requests, or in some of those
//!
//! In the text, `@http` and `@https` are addresses to listen on, `@app1` to `@app9` servers, `@home` the folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::MovedRequest;
use super::THEIRS;
use crate::support::instance::Home;

/// The addresses that a configuration gets.
pub(super) struct MovedPlace<'a> {
    pub(super) home: &'a Path,
    pub(super) app: u16,
    pub(super) http: u16,
    pub(super) https: u16,
}

/// A difference on purpose.
pub(super) struct MovedDecision {
    /// A text of the titles of requests.
    pub(super) requests: String,
    /// The parts of the response that differ.
    pub(super) parts: String,
}

/// Parts that differ on purpose in some requests.
pub(super) struct MovedLeeway {
    /// A text of the titles of requests; empty for all.
    requests: String,
    parts: Vec<String>,
}

impl MovedLeeway {
    /// Says that a part may differ in a request.
    pub(super) fn allows(&self, title: &str, part: &str) -> bool {
        self.parts.iter().any(|one| one == part) && is_of(&self.requests, title)
    }
}

/// Says that a title has one of several texts.
fn is_of(requests: &str, title: &str) -> bool {
    requests.split(" or ").any(|text| title.contains(text))
}

impl MovedDecision {
    /// Says that a request has one of the texts.
    pub(super) fn is_of(&self, title: &str) -> bool {
        is_of(&self.requests, title)
    }
}

pub(super) struct MovedConfiguration {
    pub(super) text: String,
    pub(super) is_partial: bool,
    pub(super) decisions: Vec<MovedDecision>,
    pub(super) leeways: Vec<MovedLeeway>,
    hosts: Vec<String>,
    paths: Vec<String>,
    more: Vec<String>,
}

impl MovedConfiguration {
    pub(super) fn read(path: &Path, place: &MovedPlace<'_>) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let name = path.display().to_string();
        let (mut hosts, mut paths, mut more, mut decisions) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut is_partial, mut leeways) = (false, Vec::new());
        for line in text.lines().filter_map(|line| line.strip_prefix("#? ")) {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let words = rest.split_whitespace().map(str::to_owned);
            match kind {
                "host" => hosts.extend(words),
                "path" => paths.extend(words),
                "more" => more.push(rest.to_owned()),
                "partial" => is_partial = true,
                "may" => {
                    let parts: Vec<&str> = rest.split(" | ").collect();
                    assert!(parts.len() > 1, "{name}: {line}");
                    leeways.push(MovedLeeway {
                        requests: parts.get(2).copied().unwrap_or_default().to_owned(),
                        parts: parts[0].split(' ').map(str::to_owned).collect(),
                    });
                }
                "differs" => {
                    let parts: Vec<&str> = rest.rsplitn(3, " | ").collect();
                    let [reason, parts, requests] = parts[..] else { panic!("{name}: {line}") };
                    assert!(!reason.is_empty(), "{name}: {line}");
                    decisions.push(MovedDecision { requests: requests.to_owned(), parts: parts.to_owned() });
                }
                _ => panic!("{name}: {line}"),
            }
        }
        let mut text = text
            .lines()
            .filter(|line| !line.starts_with("#?"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .replace("@https", &format!("{THEIRS}:{}", place.https))
            .replace("@http", &format!("{THEIRS}:{}", place.http))
            .replace("@home", &place.home.display().to_string());
        for number in 1..=9 {
            text = text.replace(&format!("@app{number}"), &format!("127.10.0.{number}:{}", place.app));
        }
        MovedConfiguration { text, is_partial, decisions, leeways, hosts, paths, more }
    }

    /// Says that the configuration listens on a port.
    pub(super) fn has(&self, port: u16) -> bool {
        self.text.contains(&format!("{THEIRS}:{port}"))
    }

    /// The requests.
    pub(super) fn rows(&self) -> Vec<MovedRequest> {
        let mut rows = Vec::new();
        for host in &self.hosts {
            let (is_secure, host) = match host.strip_prefix("https://") {
                Some(host) => (true, host),
                None => (false, host.as_str()),
            };
            let asked = |line: &str, fields: Vec<String>| MovedRequest {
                line: line.to_owned(),
                host: host.to_owned(),
                fields,
                is_secure,
            };
            for path in &self.paths {
                rows.extend(spellings(path).into_iter().map(|line| asked(&line, Vec::new())));
                let usual = USUAL.iter().map(|field| (*field).to_owned()).collect();
                rows.push(asked(&format!("GET {path}?usual=1"), usual));
            }
            for more in &self.more {
                let mut parts = more.split(" | ").map(str::to_owned);
                let line = parts.next().unwrap();
                rows.push(asked(&line, parts.collect()));
            }
        }
        rows
    }
}

/// Fields that browsers and proxies send, and those that a client may invent.
const USUAL: [&str; 6] = [
    "User-Agent: Mozilla/5.0",
    "Accept: text/html, */*;q=0.1",
    "Cookie: a=1; b=2",
    "X-Forwarded-For: 203.0.113.9",
    "X-Forwarded-Proto: ftp",
    "X-Custom: yes",
];

/// Requests for one path: methods, a query, and other spellings of the path.
fn spellings(path: &str) -> Vec<String> {
    let mut lines = vec![
        format!("GET {path}"),
        format!("HEAD {path}"),
        format!("POST {path}"),
        format!("DELETE {path}"),
        format!("GET {path}?a=1&b=%20c/../d"),
        format!("GET {path}/below"),
        format!("GET {path}x"),
        format!("GET /.{path}"),
    ];
    let letter = path.char_indices().rev().find(|(_, letter)| letter.is_ascii_alphabetic());
    if let Some((at, letter)) = letter {
        let (before, after) = (&path[..at], &path[at + 1..]);
        lines.push(format!("GET {before}%{:02X}{after}", u32::from(letter)));
        lines.push(format!("GET {before}{}{after}", letter.to_ascii_uppercase()));
        lines.push(format!("GET {}/", path.trim_end_matches('/')));
    }
    lines.sort();
    lines.dedup();
    lines
}

/// The files that configurations serve.
pub(super) fn files(home: &Home) {
    let root = home.file("www");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::create_dir_all(root.join("bare")).unwrap();
    for (name, text) in [
        ("index.html", "<p>home"),
        ("app.css", "p{}"),
        ("data.json", "{}"),
        ("page.html", "<p>page"),
        ("404.html", "<p>not here"),
        ("50x.html", "<p>broken"),
        ("robots.txt", "User-agent: *"),
        (".hidden", "hidden"),
        ("sub/index.html", "<p>sub"),
        ("sub/index.htm", "<p>old"),
        ("sub/a b.txt", "space"),
        ("sub/deep/page.html", "<p>deep"),
        ("bare/file.txt", "bare"),
    ] {
        fs::write(root.join(name), text).unwrap();
        let file = fs::File::open(root.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    }
    // The password is `open`, by bcrypt of cost 4.
    fs::write(home.file("users"), "alice:$2y$04$abcdefghijklmnopqrstuu5cldSTjqTa.nw4QeJC5.F6G/ueChgIa\n")
        .unwrap();
}
