//! Pages of errors: what clients get in place of the plain ones. Made once, when a snapshot is built; the text of a page is
//! divided at its placeholders then.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use offramp_http::semantics::accept::MessageFormat;

use crate::media;

/// The pages of a route.
#[derive(Debug, Default)]
pub struct ErrorPages {
    pages: Vec<(RangeInclusive<u16>, Arc<ErrorPage>)>,
    intercept: bool,
}

impl ErrorPages {
    /// Pages by status, the preferred ones first. `intercept`: errors of servers get them too.
    #[must_use]
    pub fn new(pages: Vec<(RangeInclusive<u16>, Arc<ErrorPage>)>, intercept: bool) -> Self {
        Self { pages, intercept }
    }

    /// Returns true if a server's response with this status gives way to a page.
    pub(crate) fn intercepts(&self, status: StatusCode) -> bool {
        self.intercept && self.of(status).next().is_some()
    }

    /// The page for a client that wants this form. A program that wants JSON gets no other page: ours is made for it.
    pub(crate) fn page(&self, status: StatusCode, form: MessageFormat) -> Option<&ErrorPage> {
        let fits = |page: &&ErrorPage| match form {
            MessageFormat::Json | MessageFormat::Problem => page.syntax == Syntax::Json,
            MessageFormat::Html => page.syntax == Syntax::Markup,
            MessageFormat::Text => page.syntax == Syntax::Text,
        };
        let any = !matches!(form, MessageFormat::Json | MessageFormat::Problem);
        self.of(status).find(fits).or_else(|| self.of(status).next().filter(|_| any))
    }

    /// The pages that are said of this status most closely.
    fn of(&self, status: StatusCode) -> impl Iterator<Item = &ErrorPage> {
        let code = status.as_u16();
        let first = self.pages.iter().find(|(range, _)| range.contains(&code)).map(|(range, _)| range);
        self.pages.iter().filter(move |(range, _)| Some(range) == first).map(|(_, page)| &**page)
    }
}

/// Template of one page.
#[derive(Debug)]
pub struct ErrorPage {
    /// Media type of the page.
    pub(crate) kind: Box<str>,
    /// Escaping of values in the place of placeholders.
    pub(crate) syntax: Syntax,
    /// Its text, divided at the placeholders.
    pub(crate) parts: Vec<PagePart>,
}

/// Kind of text of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// HTML and XML.
    Markup,
    /// JSON.
    Json,
    /// Any other text.
    Text,
    /// No text.
    Binary,
}

/// A part of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PagePart {
    /// As it is.
    Bytes(Bytes),
    /// `{status}`
    Status,
    /// `{reason}`
    Reason,
    /// `{id}`
    Id,
}

impl ErrorPage {
    /// The page that a file of this name holds.
    #[must_use]
    pub fn new(name: &str, content: Vec<u8>) -> Self {
        let kind = media::media_type(name);
        let essence = kind.split(';').next().unwrap_or_default();
        let syntax = match essence {
            "text/html" | "text/xml" => Syntax::Markup,
            "application/json" => Syntax::Json,
            kind if kind.ends_with("+xml") || kind == "application/xml" => Syntax::Markup,
            kind if kind.ends_with("+json") => Syntax::Json,
            kind if kind.starts_with("text/") => Syntax::Text,
            _ => Syntax::Binary,
        };
        let content = Bytes::from(content);
        let parts = if syntax == Syntax::Binary { vec![PagePart::Bytes(content)] } else { divided(&content) };
        Self { kind: kind.into(), syntax, parts }
    }
}

/// A text at its placeholders. Other braces are text: style sheets are full of them.
fn divided(text: &Bytes) -> Vec<PagePart> {
    let mut parts = Vec::new();
    let (mut done, mut at) = (0, 0);
    while let Some(open) = text[at..].iter().position(|&byte| byte == b'{') {
        at += open;
        let known =
            [(&b"{status}"[..], PagePart::Status), (b"{reason}", PagePart::Reason), (b"{id}", PagePart::Id)];
        let Some((name, part)) = known.into_iter().find(|(name, _)| text[at..].starts_with(name)) else {
            at += 1;
            continue;
        };
        if at > done {
            parts.push(PagePart::Bytes(text.slice(done..at)));
        }
        parts.push(part);
        at += name.len();
        done = at;
    }
    if done < text.len() {
        parts.push(PagePart::Bytes(text.slice(done..)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_divided_at_their_placeholders() {
        let page = |name: &str, text: &str| ErrorPage::new(name, text.into());
        let bytes = |text: &'static str| PagePart::Bytes(Bytes::from_static(text.as_bytes()));
        let html = page("e.html", "<style>p{id}</style>{status} {reason}{ids}{");
        assert_eq!(
            html.parts,
            [
                bytes("<style>p"),
                PagePart::Id,
                bytes("</style>"),
                PagePart::Status,
                bytes(" "),
                PagePart::Reason,
                bytes("{ids}{")
            ]
        );
        assert_eq!((&*html.kind, html.syntax), ("text/html; charset=utf-8", Syntax::Markup));
        assert_eq!(page("e.json", "").syntax, Syntax::Json);
        assert_eq!(page("e.svg", "").syntax, Syntax::Markup);
        assert_eq!(page("e.txt", "{").syntax, Syntax::Text);
        let picture = page("e.png", "{id}");
        assert_eq!((picture.syntax, &picture.parts[..]), (Syntax::Binary, &[bytes("{id}")][..]));
        assert!(page("e.html", "").parts.is_empty());
    }

    #[test]
    fn the_closest_status_wins_and_then_the_form() {
        let page = |name: &str| Arc::new(ErrorPage::new(name, name.into()));
        let pages = ErrorPages::new(
            vec![
                (404..=404, page("404.html")),
                (404..=404, page("404.json")),
                (400..=499, page("4xx.txt")),
                (500..=599, page("5xx.png")),
            ],
            true,
        );
        let of = |status, form| {
            let page = pages.page(StatusCode::from_u16(status).unwrap(), form)?;
            let [PagePart::Bytes(name)] = &page.parts[..] else { panic!() };
            Some(String::from_utf8(name.to_vec()).unwrap())
        };
        assert_eq!(of(404, MessageFormat::Html).as_deref(), Some("404.html"));
        assert_eq!(of(404, MessageFormat::Text).as_deref(), Some("404.html"));
        assert_eq!(of(404, MessageFormat::Json).as_deref(), Some("404.json"));
        assert_eq!(of(404, MessageFormat::Problem).as_deref(), Some("404.json"));
        assert_eq!(of(403, MessageFormat::Html).as_deref(), Some("4xx.txt"));
        assert_eq!(of(403, MessageFormat::Json), None);
        assert_eq!(of(503, MessageFormat::Text).as_deref(), Some("5xx.png"));
        assert!(pages.intercepts(StatusCode::FORBIDDEN) && !pages.intercepts(StatusCode::OK));
        assert!(!ErrorPages::new(vec![(400..=499, page("a"))], false).intercepts(StatusCode::NOT_FOUND));
    }
}
