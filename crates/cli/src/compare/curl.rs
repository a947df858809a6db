//! A request as a line of `curl`, to be repeated by hand. Secrets are left out of it.

use hyper::Method;
use hyper::header::ACCEPT_ENCODING;

use super::redact;
use super::request::ReplayRequest;
use super::side::{ComparedSide, SideAddress};
use crate::flags::compare::SideOptions;

/// The line for one side.
pub(super) fn line(
    side: &ComparedSide,
    request: &ReplayRequest,
    authority: &str,
    options: &SideOptions,
) -> String {
    let mut words: Vec<String> = vec!["curl -sS".to_owned()];
    words.push(if request.method == Method::HEAD { "-I".to_owned() } else { "-o /dev/null -D -".to_owned() });
    if !matches!(request.method, Method::GET | Method::HEAD) {
        words.push(format!("-X {}", quoted(request.method.as_str())));
    }
    if side.is_tls {
        words.push(if options.http2 { "--http2" } else { "--http1.1" }.to_owned());
        if options.insecure {
            words.push("-k".to_owned());
        } else if let Some(file) = &options.ca {
            words.push(format!("--cacert {}", quoted(&file.display().to_string())));
        }
    }
    match &side.address {
        SideAddress::Unix(path) => {
            words.push(format!("--unix-socket {}", quoted(&path.display().to_string())));
        }
        SideAddress::Tcp(address) => {
            let own = address.to_string();
            if authority != own {
                words.push(format!("--connect-to {}", quoted(&format!("::{own}"))));
            }
        }
    }
    for (name, value) in &request.fields {
        let shown =
            if SHOWN.contains(&name.as_str()) { value.to_str().unwrap_or("HIDDEN") } else { "HIDDEN" };
        words.push(format!("-H {}", quoted(&format!("{name}: {shown}"))));
    }
    if !request.fields.iter().any(|(name, _)| *name == ACCEPT_ENCODING) {
        words.push("-H 'accept-encoding: gzip, br'".to_owned());
    }
    if !request.body.is_empty() {
        words.push("--data-binary @BODY".to_owned());
    }
    if request.target.contains("/.") {
        words.push("--path-as-is".to_owned());
    }
    if request.target.contains(['[', ']', '{', '}']) {
        words.push("-g".to_owned());
    }
    words.push(quoted(&format!("{}://{authority}{}", side.scheme(), redact::target(&request.target))));
    words.join(" ")
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    let text = redact::printable(text);
    let is_plain =
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/.:_-@%".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Fields with values that are shown.
const SHOWN: [&str; 10] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-type",
    "if-modified-since",
    "if-none-match",
    "origin",
    "range",
    "user-agent",
];

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use hyper::header::{AUTHORIZATION, HeaderValue, RANGE};

    use super::super::request::{RecordedLine, admit};
    use super::super::side::SideName;
    use super::*;
    use crate::measured_url::MeasuredUrl;

    #[test]
    fn lines_are_whole_and_have_no_secret() {
        let url = || MeasuredUrl::parse("http://a.test").unwrap();
        let mut options = SideOptions {
            old: url(),
            new: url(),
            old_at: None,
            new_at: None,
            remote: Vec::new(),
            ca: Some(PathBuf::from("/tmp/my ca.pem")),
            insecure: false,
            http2: false,
        };
        let mut side = ComparedSide {
            name: SideName::Old,
            url: String::new(),
            address: SideAddress::Tcp("127.0.0.1:8443".parse().unwrap()),
            is_tls: true,
            authority: String::new(),
            port: Some(443),
        };
        let line_of = RecordedLine {
            method: Some(b"GET"),
            host: None,
            path: b"/it's/../a",
            query: Some(b"token=secret&b[]=1"),
        };
        let mut request = admit(&line_of, &[Method::GET]).unwrap();
        request.fields.push((AUTHORIZATION, HeaderValue::from_static("Bearer secret")));
        request.fields.push((RANGE, HeaderValue::from_static("bytes=0-1")));
        let tls = line(&side, &request, "a.test", &options);
        assert_eq!(
            tls,
            "curl -sS -o /dev/null -D - --http1.1 --cacert '/tmp/my ca.pem' --connect-to ::127.0.0.1:8443 -H 'authorization: \
             HIDDEN' -H 'range: bytes=0-1' -H 'accept-encoding: gzip, br' --path-as-is -g \
             'https://a.test/it'\\''s/../a?token=HIDDEN&b[]=1'"
        );
        (side.is_tls, side.address) = (false, SideAddress::Unix("/run/app.sock".into()));
        (request.method, options.http2) = (Method::HEAD, true);
        let socket = line(&side, &request, "localhost", &options);
        assert!(socket.starts_with("curl -sS -I --unix-socket /run/app.sock "), "{socket}");
        assert!(socket.contains("'http://localhost/"), "{socket}");
    }
}
