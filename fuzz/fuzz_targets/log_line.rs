//! Arbitrary bytes as a line of a log, and as a log format: nothing panics, a fault lies within the line, the same
//! line means the same again, and what an entry says is never longer than the line it came from.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use offramp_analytics::format::{InputFormat, NAMES};
use offramp_analytics::parse_error::Rejection;

static FORMATS: LazyLock<Vec<InputFormat>> = LazyLock::new(|| {
    let named = NAMES.iter().map(|name| InputFormat::named(name).unwrap());
    let nginx = [
        r#"$remote_addr [$time_iso8601] $scheme://$host$request_uri "$request_method" $status $upstream_response_time"#,
        r#"log_format x escape=none '$msec|$http_x_forwarded_for|"$http_user_agent"'"#,
    ];
    let nginx = nginx.into_iter().map(|format| InputFormat::nginx(format).unwrap());
    let regex =
        InputFormat::regex(r"(?P<time>[^ ]*) (?P<client>\S*) (?P<request>.*) (?P<host>\S+)$").unwrap();
    named.chain(nginx).chain([regex]).collect()
});

fuzz_target!(|data: &[u8]| {
    for format in FORMATS.iter() {
        check(format, data);
    }
    // The first line as a format, the rest as a line of it.
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    if let Ok(Ok(format)) = std::str::from_utf8(&data[..end]).map(InputFormat::nginx) {
        check(&format, &data[end + 1..]);
    }
});

fn check(format: &InputFormat, line: &[u8]) {
    let (mut one, mut other) = (format.parser(0), format.parser(0));
    match one.parse(line) {
        Ok(Some(entry)) => {
            let request = entry.request;
            let said =
                [Some(request.path), request.query, request.method, entry.host, entry.agent, entry.referer];
            assert!(said.into_iter().flatten().all(|text| text.len() <= line.len()));
            assert_eq!(other.parse(line), Ok(Some(entry)));
        }
        Ok(None) => assert_eq!(other.parse(line), Ok(None)),
        Err(error) => {
            assert!(error.at <= line.len());
            let shown = Rejection::new(1, line, error).to_string();
            assert!(shown.bytes().all(|byte| byte >= b' ' || byte == b'\n'));
        }
    }
}
