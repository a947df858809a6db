//! Formats that are alike: what a line is refused with, and what the store has of those that are read.

use std::fs;
use std::process::Command;
use std::time::Duration;

use offramp_testkit::process::{require, temp_dir};

use crate::support::instance::ask;
use crate::support::logs_desk::{answer, output, refusal, rows};
use crate::support::offramp::stderr;

const STORE: [&str; 2] = ["--store", "sqlite:access.db"];

/// Debian's Apache.
const VHOST_COMBINED: &str = r#"example.org:443 192.0.2.7 - frank [20/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 1 "-" "ua"
example.org:443 192.0.2.8 - - [20/Nov/2026:10:00:01 +0000] "GET /a HTTP/1.1" 200 1 "-" "ua"
"#;
/// The `nginx.conf` of nginx.org.
const MAIN: &str = r#"192.0.2.7 - - [20/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 1 "-" "ua" "203.0.113.9, 198.51.100.1"
192.0.2.7 - - [20/Nov/2026:10:00:01 +0000] "GET /a HTTP/1.1" 200 1 "-" "ua" "203.0.113.9"
192.0.2.7 - - [20/Nov/2026:10:00:01 +0000] "GET /a HTTP/1.1" 200 1 "-" "ua" "-"
"#;
const HTTPSLOG: &str = r#"Nov 20 10:00:00 lb haproxy[7]: 192.0.2.7:33317 [20/Nov/2026:10:00:00.655] https~ app/one 0/0/0/1/2 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a HTTP/1.1" 0/0/0/0/0 example.org/TLSv1.3/TLS_AES_256_GCM_SHA384
"#;

#[test]
fn a_line_is_read_by_its_format_or_refused_with_its_name() {
    for (log, wrong, right, expected) in [
        (
            VHOST_COMBINED,
            &["combined", "vhost", "main"][..],
            "vhost_combined",
            &[("192.0.2.7", Some("example.org"), Some("frank")), ("192.0.2.8", Some("example.org"), None)][..],
        ),
        (
            MAIN,
            &["combined", "common", "vhost_combined"],
            "main",
            &[("203.0.113.9", None, None), ("203.0.113.9", None, None), ("192.0.2.7", None, None)],
        ),
        (HTTPSLOG, &["combined", "httplog", "json"], "httpslog", &[("192.0.2.7", Some("example.org"), None)]),
        (HTTPSLOG, &[], "haproxy", &[("192.0.2.7", Some("example.org"), None)]),
    ] {
        let directory = temp_dir();
        let home = directory.path();
        fs::write(home.join("access.log"), log).unwrap();
        for format in wrong {
            let said = refusal(home, &["ingest", "--format", format, STORE[0], STORE[1], "access.log"], 1);
            assert!(said.contains(&format!("add --format {right}")), "{format}: {said}");
        }
        answer(home, &["ingest", "--format", right, STORE[0], STORE[1], "access.log"]);
        let asked = "SELECT client, host, user FROM requests ORDER BY id";
        let found = rows(home, &["query", asked, STORE[0], STORE[1]]);
        let text =
            |value: &serde_json::Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let found: Vec<_> =
            found.iter().map(|row| (text(&row["client"]), text(&row["host"]), text(&row["user"]))).collect();
        let owned = |text: &str| Some(text.to_owned());
        let expected: Vec<_> = expected
            .iter()
            .map(|(client, host, user)| (owned(client), host.and_then(owned), user.and_then(owned)))
            .collect();
        assert_eq!(found, expected, "{right}");
    }
}

/// A log of two formats, as one has after a change of the configuration.
#[test]
fn lines_of_another_format_among_others_are_told() {
    let directory = temp_dir();
    let home = directory.path();
    let vhost = MAIN.replace("\"203.0.113.9, 198.51.100.1\"", "\"example.org\"");
    let vhost = vhost.lines().next().unwrap();
    fs::write(home.join("access.log"), format!("{vhost}\n{}\n", MAIN.lines().next().unwrap())).unwrap();
    let given = output(home, &["ingest", "--format", "vhost", STORE[0], STORE[1], "access.log"]);
    let said = stderr(&given);
    assert!(given.status.success() && said.contains("1 request stored, 1 did not parse"), "{said}");
    assert!(said.contains("lines with X-Forwarded-For at the end are `main`"), "{said}");
    assert!(said.contains("the lines that did not parse look like `main`"), "{said}");
    let hosts = rows(home, &["top", "hosts", STORE[0], STORE[1]]);
    assert_eq!((hosts.len(), &hosts[0]["host"]), (1, &"example.org".into()), "{hosts:?}");
}

/// What gzip and Zstandard files have behind their data.
#[test]
fn compressed_files_are_read_to_the_end_of_their_data() {
    let gzip = |text: &str| {
        let mut gzip = Command::new(require("gzip", "gzip"));
        gzip.arg("-c");
        ask(gzip, text.as_bytes(), Duration::from_secs(60)).stdout
    };
    let (one, two) = (gzip(&MAIN.repeat(2)), gzip(MAIN));
    let cut = one[..one.len() - 5].to_vec();
    for (name, content, stored, gap, code) in [
        ("zeros", [&one[..], &[0; 512]].concat(), 6, false, 0),
        ("members", [&one[..], &two].concat(), 9, false, 0),
        ("padded members", [&one[..], &[0; 3], &two, &[0; 70_000]].concat(), 9, false, 0),
        ("rubbish", [&one[..], b"rubbish"].concat(), 6, true, 0),
        ("cut", cut, 6, false, 1),
    ] {
        let directory = temp_dir();
        let home = directory.path();
        fs::write(home.join("access.log.gz"), content).unwrap();
        let given = output(home, &["ingest", "--format", "main", STORE[0], STORE[1], "access.log.gz"]);
        let said = stderr(&given);
        assert_eq!(given.status.code(), Some(code), "{name}: {said}");
        assert_eq!(said.contains("the compressed data ends before the file"), gap, "{name}: {said}");
        assert_eq!(said.contains("1 gap where lines may be missing"), gap, "{name}: {said}");
        let found = rows(home, &["query", "SELECT count(*) AS n FROM requests", STORE[0], STORE[1]]);
        assert_eq!(found[0]["n"], stored, "{name}: {said}");
    }
}
