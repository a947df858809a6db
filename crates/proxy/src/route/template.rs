//! Where a redirect leads: text with placeholders.

use std::fmt;

/// A text in which `{host}`, `{path}`, `{query}` and `{uri}` stand for parts of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<TemplateSegment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateSegment {
    Text(Box<str>),
    Host,
    Path,
    Query,
    Uri,
}

/// The fault of a text that is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTemplate {
    /// A placeholder that does not exist.
    Unknown(Box<str>),
    /// A `{` that has no `}`.
    Open,
}

impl fmt::Display for BadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(
                    f,
                    "there is no placeholder {{{name}}}; there are {{host}}, {{path}}, {{query}} and {{uri}}"
                )
            }
            Self::Open => f.write_str("a `{` has no `}`"),
        }
    }
}

impl std::error::Error for BadTemplate {}

/// The parts of a request that placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub struct TemplateValues<'a> {
    /// The host, in lower case and without a port.
    pub host: &'a str,
    /// Path of the request.
    pub path: &'a str,
    /// Text behind the `?`, if there is one.
    pub query: Option<&'a str>,
}

impl Template {
    /// Reads a template: `{host}` is the request's host without a port, `{path}` its path, `{query}` what
    /// follows its `?`, `{uri}` its path and query as they came.
    ///
    /// # Errors
    /// Where a placeholder is unknown or not closed.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            if !before.is_empty() {
                pieces.push(TemplateSegment::Text(before.into()));
            }
            let (name, behind) = behind.split_once('}').ok_or(BadTemplate::Open)?;
            pieces.push(match name {
                "host" => TemplateSegment::Host,
                "path" => TemplateSegment::Path,
                "query" => TemplateSegment::Query,
                "uri" => TemplateSegment::Uri,
                _ => return Err(BadTemplate::Unknown(name.into())),
            });
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(TemplateSegment::Text(rest.into()));
        }
        Ok(Self(pieces))
    }

    /// The text for one request.
    #[must_use]
    pub fn fill(&self, parts: TemplateValues<'_>) -> String {
        let mut out = String::with_capacity(64);
        for piece in &self.0 {
            match piece {
                TemplateSegment::Text(text) => out.push_str(text),
                TemplateSegment::Host => out.push_str(parts.host),
                TemplateSegment::Path => out.push_str(parts.path),
                TemplateSegment::Query => out.push_str(parts.query.unwrap_or_default()),
                TemplateSegment::Uri => {
                    out.push_str(parts.path);
                    if let Some(query) = parts.query {
                        out.push('?');
                        out.push_str(query);
                    }
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled() {
        let fill = |text: &str, query| {
            Template::parse(text).unwrap().fill(TemplateValues { host: "a.test", path: "/x", query })
        };
        assert_eq!(fill("https://{host}{uri}", Some("q=1")), "https://a.test/x?q=1");
        assert_eq!(fill("https://{host}{uri}", None), "https://a.test/x");
        assert_eq!(fill("https://b.test{path}?{query}#f", Some("q")), "https://b.test/x?q#f");
        assert_eq!(fill("/fixed", None), "/fixed");
    }

    #[test]
    fn what_is_no_template() {
        assert_eq!(Template::parse("{hots}"), Err(BadTemplate::Unknown("hots".into())));
        assert_eq!(Template::parse("a{host"), Err(BadTemplate::Open));
    }
}
