//! `return`, and redirects of whole servers by `rewrite`.

use offramp_config::model::RedirectTo;

use super::servers::Site;
use super::tree::Directive;
use super::values::{Piece, pieces};
use super::{Lowering, Scope};
use crate::draft::{DraftKeys, inline, quoted};
use crate::report::Fate;

/// A response that Offramp makes itself.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// A redirect; a URL that begins with `//` has the scheme of the request.
    Redirect {
        to: String,
        status: u16,
    },
    Respond {
        status: u16,
        body: Option<String>,
        media_type: Option<String>,
    },
}

impl Answer {
    /// The refusal of a route that is closed.
    pub(super) const CLOSED: Answer = Answer::Respond { status: 403, body: None, media_type: None };

    pub(super) fn keys(&self, secure: bool) -> DraftKeys {
        match self {
            Answer::Redirect { to, status } => {
                let scheme = if secure { "https:" } else { "http:" };
                let to = if to.starts_with("//") { format!("{scheme}{to}") } else { to.clone() };
                let whole = !secure && to == "https://{host}{uri}";
                let to = if whole { "https" } else { &to };
                let keys = [("to".to_owned(), quoted(to)), ("status".to_owned(), status.to_string())];
                vec![("redirect".to_owned(), inline(&keys))]
            }
            Answer::Respond { status, body, media_type } => {
                let mut keys = vec![("status".to_owned(), status.to_string())];
                keys.extend(body.as_ref().map(|body| ("body".to_owned(), quoted(body))));
                keys.extend(media_type.as_ref().map(|media| ("content_type".to_owned(), quoted(media))));
                vec![("respond".to_owned(), inline(&keys))]
            }
        }
    }
}

impl<'a> Lowering<'a> {
    /// Lowers a `return`; notes why it cannot be.
    pub(super) fn returned(
        &mut self,
        site: &Site<'a>,
        scope: &Scope<'a>,
        one: &'a Directive,
    ) -> Option<Answer> {
        let (first, second) = (one.argument(0), one.argument(1));
        let (status, text) = match first.parse::<u16>() {
            Ok(status) => (status, second),
            Err(_) => (302, first),
        };
        self.take(one);
        match status {
            301 | 302 | 303 | 307 | 308 => match self.url(site, text) {
                Ok(to) => Some(Answer::Redirect { to, status }),
                Err(why) => {
                    self.refuse(one, why, "write the redirect by hand");
                    None
                }
            },
            444 => {
                let how = "clients get 404; nginx closes the connection without an answer";
                self.note(one, Fate::changed(how));
                Some(Answer::Respond { status: 404, body: None, media_type: None })
            }
            200..=599 => {
                let is_text = pieces(text).iter().all(|piece| matches!(piece, Piece::Text(_)));
                if !is_text {
                    self.refuse(one, "the body of `respond` has no variables", "write a fixed text");
                    return None;
                }
                let media = scope.one("default_type").filter(|_| !text.is_empty() && one.has(text));
                if let Some(media) = media {
                    self.take(media);
                }
                let body = Some(text.to_owned()).filter(|text| !text.is_empty());
                let usual = body.as_ref().map(|_| "text/plain".to_owned());
                let media_type = media.map(|media| media.argument(0).to_owned()).or(usual);
                Some(Answer::Respond { status, body, media_type })
            }
            _ => {
                self.refuse(one, "this is no status that Offramp answers", "write one from 200 to 599");
                None
            }
        }
    }

    /// The URL of a redirect with the placeholders of Offramp, or why there is none.
    pub(super) fn url(&self, site: &Site<'a>, text: &str) -> Result<String, String> {
        let mut url = String::new();
        let mut has_query = false;
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) if text.contains(['{', '}']) => return Err("a URL with braces".to_owned()),
                Piece::Text(text) => url.push_str(text),
                Piece::Variable("host" | "http_host") => url.push_str("{host}"),
                Piece::Variable("server_name") => match site.first_host() {
                    Some(host) => url.push_str(host),
                    None => url.push_str("{host}"),
                },
                Piece::Variable("request_uri") => url.push_str("{uri}"),
                Piece::Variable("uri" | "document_uri") => url.push_str("{path}"),
                Piece::Variable("is_args") => has_query = true,
                Piece::Variable("args" | "query_string") if has_query => url.push_str("?{query}"),
                Piece::Variable("args" | "query_string") => url.push_str("{query}"),
                Piece::Variable("scheme") => url.push_str("{scheme}"),
                Piece::Variable(name) => return Err(format!("redirects have no variable ${name}")),
            }
        }
        let url = url.replace("{path}?{query}", "{uri}");
        let url = match url.strip_prefix("{scheme}://") {
            Some(rest) => format!("//{rest}"),
            None if url.starts_with('/') && !url.starts_with("//") => format!("//{{host}}{url}"),
            None if url == "{uri}" || url == "{path}" => format!("//{{host}}{url}"),
            None => url,
        };
        let whole = if url.starts_with("//") { format!("https:{url}") } else { url.clone() };
        match whole.parse::<RedirectTo>() {
            Ok(_) => Ok(url),
            Err(problem) => Err(problem.message().to_owned()),
        }
    }

    /// The redirect of a server with a `rewrite` that takes every path.
    pub(super) fn whole_redirect(&mut self, site: &Site<'a>) -> Option<Answer> {
        let rule = site.scope.own("rewrite").into_iter().next()?;
        self.whole_redirect_of(site, rule)
    }

    /// The redirect of a `rewrite` that takes every path.
    pub(super) fn whole_redirect_of(&mut self, site: &Site<'a>, rule: &'a Directive) -> Option<Answer> {
        let (pattern, to) = (rule.argument(0), rule.argument(1));
        let status = match rule.argument(2) {
            "permanent" => 301,
            "redirect" => 302,
            _ if to.starts_with("http") || to.starts_with("$scheme") => 302,
            _ => return None,
        };
        let (to, drops_query) = match to.strip_suffix('?') {
            Some(to) => (to, true),
            None => (to, false),
        };
        let query = if drops_query { "$uri" } else { "$request_uri" };
        let to = match pattern {
            "^" | ".*" | "^.*" | "^.*$" | "/" | "^/" if to.contains("$request_uri") => to.to_owned(),
            "^" | ".*" | "^.*" | "^.*$" if !to.contains('$') && !drops_query => to.to_owned(),
            "^(.*)$" | "(.*)" | "^(.*)" | "^(.+)$" => to.replace("$1", query),
            "^/(.*)$" | "/(.*)" | "^/(.*)" if to.ends_with("/$1") => to.replace("/$1", query),
            _ => return None,
        };
        let to = self.url(site, &to).ok()?;
        self.take(rule);
        Some(Answer::Redirect { to, status })
    }
}
