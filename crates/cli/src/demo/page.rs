//! The demo's page: the request and the client as the application sees them.

use std::fmt::Write as _;

use hyper::Request;

use super::seen::Seen;

/// Renders the page as HTML without scripts, images or other subresources.
pub(crate) fn page<B>(seen: &Seen, request: &Request<B>) -> String {
    let mut client = String::new();
    for (name, value) in &seen.facts {
        row(&mut client, name, value);
    }
    let mut head = String::new();
    row(&mut head, "request", &format!("{} {} {:?}", request.method(), request.uri(), request.version()));
    for (name, value) in request.headers() {
        row(&mut head, name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
    }
    PAGE.replace("<!--client-->", &client).replace("<!--head-->", &head)
}

fn row(out: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "<tr><th>{}<td>{}", escaped(name), escaped(value));
}

/// Escapes text for HTML. Without angle brackets it cannot be mistaken for a placeholder of the page.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

const PAGE: &str = include_str!("page.html");

#[cfg(test)]
mod tests {
    use super::{Seen, page};

    #[test]
    fn what_a_client_sends_stays_text() {
        let request =
            hyper::Request::get("/").header("x-evil", "<script>\"'&<!--client-->").body(()).unwrap();
        let seen = Seen { facts: vec![("server name", "<b>".to_owned())] };
        let page = page(&seen, &request);
        assert!(
            page.contains("<tr><th>x-evil<td>&lt;script&gt;&quot;&#39;&amp;&lt;!--client--&gt;\n"),
            "{page}"
        );
        assert!(page.contains("<tr><th>server name<td>&lt;b&gt;\n"), "{page}");
        assert!(page.contains("<tr><th>request<td>GET / HTTP/1.1\n"), "{page}");
        assert!(!page.contains("<!--"), "{page}");
    }
}
