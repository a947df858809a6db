//! The body of an error in each form: a page for browsers, JSON, JSON as RFC 9457 has it, plain text.
//!
//! The page needs nothing else: no script, no picture, no font. It follows the dark mode of the browser. What comes from
//! a request, its id alone, is escaped: a trusted proxy may have given it.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use offramp_http::html::escaped;
use offramp_http::semantics::accept::MessageFormat;

use crate::snapshot::pages::{ErrorPage, PagePart, Syntax};

/// The body of a page that a file holds.
pub(super) fn fill(page: &ErrorPage, status: StatusCode, id: &str) -> Bytes {
    if let [PagePart::Bytes(all)] = &page.parts[..] {
        return all.clone();
    }
    let id = match page.syntax {
        Syntax::Markup => escaped(id),
        Syntax::Json => json(id),
        Syntax::Text | Syntax::Binary => id.to_owned(),
    };
    let mut out = BytesMut::new();
    for part in &page.parts {
        let part: &[u8] = match part {
            PagePart::Bytes(bytes) => bytes,
            PagePart::Status => status.as_str().as_bytes(),
            PagePart::Reason => status.canonical_reason().unwrap_or("Error").as_bytes(),
            PagePart::Id => id.as_bytes(),
        };
        out.extend_from_slice(part);
    }
    out.freeze()
}

/// The media type and the body for an error with this status, of the request with this id.
pub(super) fn render(form: MessageFormat, status: StatusCode, id: &str) -> (&'static str, String) {
    let reason = status.canonical_reason().unwrap_or("Error");
    let code = status.as_u16();
    match form {
        MessageFormat::Text => ("text/plain; charset=utf-8", format!("{code} {reason}\nrequest {id}\n")),
        MessageFormat::Html => ("text/html; charset=utf-8", html(code, reason, id)),
        MessageFormat::Json => (
            "application/json",
            format!("{{\"status\":{code},\"error\":\"{reason}\",\"request_id\":\"{}\"}}\n", json(id)),
        ),
        MessageFormat::Problem => (
            "application/problem+json",
            format!(
                "{{\"type\":\"about:blank\",\"title\":\"{reason}\",\"status\":{code},\"request_id\":\"{}\"}}\n",
                json(id)
            ),
        ),
    }
}

fn html(code: u16, reason: &str, id: &str) -> String {
    let (hint, id) = (hint(code), escaped(id));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{code} {reason}</title>\n\
         <style>{STYLE}</style>\n<main>\n<h1>{code}</h1>\n<p>{reason}</p>\n<p>{hint}</p>\n\
         <p><small>Request <code>{id}</code></small></p>\n</main>\n</html>\n"
    )
}

/// Style of the page.
const STYLE: &str = ":root{color-scheme:light dark}\
    body{font:1.1rem/1.5 system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;margin:0 1rem}\
    main{max-width:32rem}h1{font-size:4rem;line-height:1;margin:0}small{opacity:.7}code{overflow-wrap:anywhere}";

/// Advice for a visitor.
fn hint(code: u16) -> &'static str {
    match code {
        404 => "There is no page at this address. Check the link, or begin at the start page.",
        429 => "There were too many requests. Wait a moment, then try again.",
        502..=504 => "The application behind this address does not answer. Try again in a moment.",
        500..=599 => "Something went wrong here. Try again in a moment.",
        _ => "The request could not be served.",
    }
}

/// The text as it stands in a string of JSON.
fn json(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() && !matches!(letter, '"' | '\\')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_status_and_id_and_runs_nothing_of_a_request() {
        let (kind, page) = render(MessageFormat::Html, StatusCode::NOT_FOUND, "<script>'&\"");
        assert_eq!(kind, "text/html; charset=utf-8");
        assert!(page.contains("<title>404 Not Found</title>"), "{page}");
        assert!(page.contains("<code>&lt;script&gt;&#39;&amp;&quot;</code>"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn a_file_says_status_and_id_and_runs_nothing_of_a_request() {
        let filled = |name: &str, id: &str| {
            let page = ErrorPage::new(name, b"{status} {reason}: {id}{x}".to_vec());
            String::from_utf8(fill(&page, StatusCode::NOT_FOUND, id).to_vec()).unwrap()
        };
        assert_eq!(filled("a.html", "<&\"'>"), "404 Not Found: &lt;&amp;&quot;&#39;&gt;{x}");
        assert_eq!(filled("a.json", "\"\\\n1"), "404 Not Found: 1{x}");
        assert_eq!(filled("a.txt", "<1>"), "404 Not Found: <1>{x}");
        assert_eq!(filled("a.png", "1"), "{status} {reason}: {id}{x}");
    }

    #[test]
    fn problems_are_those_of_rfc_9457() {
        let (kind, body) = render(MessageFormat::Problem, StatusCode::BAD_GATEWAY, "id-1\"\\");
        assert_eq!(kind, "application/problem+json");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&body["type"], &body["title"]), (&"about:blank".into(), &"Bad Gateway".into()));
        assert_eq!((&body["status"], &body["request_id"]), (&502.into(), &"id-1".into()));
    }

    #[test]
    fn every_status_has_a_page() {
        for code in 400..=599 {
            let (_, page) = render(MessageFormat::Html, StatusCode::from_u16(code).unwrap(), "id");
            assert!(page.contains(&format!("<h1>{code}</h1>")) && page.len() < 2048, "{page}");
        }
    }
}
