//! HTTP settings of routes: paths, rewriting, redirects, fixed responses, HSTS.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::header::is_token;
use super::words::words;
use super::{
    CompressionConfig, ErrorPageFiles, FilePath, HeaderChanges, HeaderValue, MaintenanceMode, MirrorConfig,
    Size,
};
use crate::error::{Problem, shown};

/// The first segments of a path: `/`, `/api`, `/api/v1`. It starts with `/` and ends without one, except for
/// `/` itself; no segment is empty, `.` or `..`; only characters that need it are escaped, in upper case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutePath(String);

/// The maximum length: by default no request matches a longer path.
const PATH_MAX: usize = 1024;

impl RoutePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` for `/`, the prefix of every path.
    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }
}

impl RoutePath {
    /// The part that servers interpret differently, for which no route can match the path.
    pub fn ambiguity(&self) -> Option<&'static str> {
        let mut pieces = self.0.split('%');
        let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
        for piece in pieces {
            let (digits, rest) = piece.split_at(2);
            let byte = u8::from_str_radix(digits, 16).unwrap_or_default();
            match byte {
                b'/' => return Some("%2F"),
                b'\\' => return Some("%5C"),
                b'%' if rest.bytes().take_while(u8::is_ascii_hexdigit).count() >= 2 => {
                    return Some("%25 before two digits");
                }
                _ if byte.is_ascii_control() => return Some("a control character"),
                _ => bytes.push(byte),
            }
            bytes.extend_from_slice(rest.as_bytes());
        }
        std::str::from_utf8(&bytes).is_err().then_some("an escape that is not UTF-8")
    }
}

impl Default for RoutePath {
    fn default() -> Self {
        RoutePath("/".to_owned())
    }
}

impl FromStr for RoutePath {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = |help: &str| Err(Problem::new(format!("`{}` is not a path", shown(text))).help(help));
        let Some(rest) = text.strip_prefix('/') else {
            return wrong("paths begin with `/`: \"/api\"");
        };
        if text.contains(['?', '#']) {
            return wrong("write the path alone, without query and fragment");
        }
        if text.contains('*') {
            return wrong("leave `*` out: \"/api\" stands for all paths below it");
        }
        if text.len() > PATH_MAX {
            return wrong("paths have at most 1024 characters");
        }
        let path = rest.strip_suffix('/').unwrap_or(rest);
        if path.is_empty() && rest.is_empty() {
            return Ok(RoutePath::default());
        }
        if path.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return wrong("no segment may be empty, `.` or `..`");
        }
        if !is_escaped(path) {
            if let Some(plain) = unescaped(path) {
                return wrong(&format!("write `/{plain}`"));
            }
            return wrong(
                "write letters, digits and -._~!$&'()+,;=:@ as they are and others as %XX in upper case",
            );
        }
        Ok(RoutePath(format!("/{}", shortest(path))))
    }
}

/// The correct form of a path with needless or incomplete escapes only.
fn unescaped(path: &str) -> Option<String> {
    let mut pieces = path.split('%');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        let byte = digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u8::from_str_radix(digits, 16));
        match byte?.ok()? {
            // No route matches paths with these.
            b'/' | b'\\' | b'%' => return None,
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
        out.push_str(rest);
    }
    let is_path = out.trim_end_matches('/').split('/').all(|name| !matches!(name, "" | "." | ".."));
    (is_path && is_escaped(&out)).then_some(out)
}

/// Returns `true` if a path has only valid characters (RFC 3986 §3.3), and only necessary escapes.
fn is_escaped(path: &str) -> bool {
    let mut pieces = path.split('%');
    let plain =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()+,;=:@/".contains(&b));
    let first = pieces.next().is_some_and(plain);
    first
        && pieces.all(|piece| {
            let Some((digits, rest)) = piece.split_at_checked(2) else { return false };
            let upper = digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
            let needs = u8::from_str_radix(digits, 16)
                .is_ok_and(|b| !(b.is_ascii_alphanumeric() || b"-._~".contains(&b)));
            upper && needs && plain(rest)
        })
}

/// Removes needless escapes from a path with valid ones.
fn shortest(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let plain = u8::from_str_radix(&piece[..2], 16).ok().filter(|byte| b"!$&'()+,;=:@".contains(byte));
        match plain {
            Some(byte) => out.push(char::from(byte)),
            None => out.extend(["%", &piece[..2]]),
        }
        out.push_str(&piece[2..]);
    }
    out
}

impl fmt::Display for RoutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The processing of HTTP requests and responses by a route; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpRules {
    /// The rewriting of the path prefix.
    pub rewrite: PrefixRewrite,
    /// The form in which ambiguous paths are forwarded.
    pub paths: PathForm,
    /// Rules that rewrite paths by patterns, in order; only with [`PrefixRewrite::Keep`].
    pub rewrites: Vec<PathRewrite>,
    /// Changes to the fields of requests.
    pub request_headers: HeaderChanges,
    /// The protocols that `Upgrade` may switch to; `None` for WebSocket only.
    pub upgrade: Option<Vec<UpgradeProtocol>>,
    /// Changes to the fields of responses.
    pub response_headers: HeaderChanges,
    /// HSTS, which makes browsers use TLS only; without effect on plain-text listeners (RFC 6797 §7.2).
    pub hsts: Option<Hsts>,
    /// Values that the data plane uses as they are.
    pub plain: PlainRules,
    /// The error pages of this route.
    pub error_pages: ErrorPageFiles,
    /// The file with redirects of single paths.
    pub redirects: Option<FilePath>,
    /// The maintenance mode, if on.
    pub maintenance: Option<MaintenanceMode>,
    /// The compression of responses; `None` forwards them unchanged.
    pub compress: Option<CompressionConfig>,
    /// The mirror that gets copies of the requests.
    pub mirror: Option<MirrorConfig>,
}

/// The rules that need nothing but their value: `proxy` reads them here, and nothing copies them field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainRules {
    /// Set to forward `X-Original-URL` and similar fields of clients that are not trusted proxies.
    pub keep_original_url: bool,
    /// The maximum size of a request body: up to 1 TiB.
    pub max_body: Option<Size>,
    /// Limits of this route.
    pub limits: LimitOverrides,
}

/// Limits that override those of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitOverrides {
    /// The time from a request to the head of the server's response: up to 24 h.
    pub response_timeout: Option<Duration>,
    /// The maximum gap within a request body: up to 1 h.
    pub request_body_timeout: Option<Duration>,
    /// The minimum rate of a request body in bytes per second: up to 1 GiB.
    pub min_body_rate: Option<Size>,
    /// The time without a byte in either direction: up to 30 d.
    pub idle_timeout: Option<Duration>,
}

/// The rewriting of a path before it is forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrefixRewrite {
    /// Forward the path unchanged.
    #[default]
    Keep,
    /// Strip the route's path: `/api/x` becomes `/x`.
    Strip,
    /// Replace the route's path by this one: `/api/x` becomes `/new/x`.
    Replace(RoutePath),
}

/// The form in which ambiguous paths are forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathForm {
    /// Set to forward the normal form instead of the original path.
    pub normalize: bool,
    /// The treatment of escapes that some servers interpret as separators.
    pub encoded_slashes: EncodedSlashes,
}

words! {
    /// The treatment of requests with escaped slashes, or other ambiguous escapes, in the path, on a host
    /// where the path decides about access.
    #[derive(Default)]
    pub enum EncodedSlashes {
        /// Reject such requests with 400.
        #[default]
        Refuse = "refuse",
        /// Forward them if every interpretation of the path leads to the same route.
        Pass = "pass",
    }
}

/// A rule that rewrites paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRewrite {
    /// The regular expression for the path.
    pub pattern: String,
    /// The new path with an optional query; `$1` and `${name}` refer to existing groups.
    pub to: String,
}

/// A protocol that an HTTP/1.1 connection may switch to (RFC 9110 §7.8): a name with an optional version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpgradeProtocol(String);

impl UpgradeProtocol {
    /// The protocol as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UpgradeProtocol {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = |help: &str| {
            let said = format!("`{}` is not a protocol that a connection can change to", shown(text));
            Err(Problem::new(said).help(help))
        };
        let lower = text.to_ascii_lowercase();
        let name = lower.split('/').next().unwrap_or_default();
        if matches!(name, "http" | "h2" | "h2c" | "h3" | "tls") {
            return wrong("leave it out: what follows would pass by all routes and rules");
        }
        if !text.split('/').all(is_token) || text.split('/').count() > 2 || text.len() > 64 {
            return wrong("write the word of `Upgrade`, such as \"websocket\"");
        }
        Ok(UpgradeProtocol(text.to_owned()))
    }
}

impl fmt::Display for UpgradeProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The content of `Strict-Transport-Security` (RFC 6797 §6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// The validity: up to 3650 d; 0 revokes it.
    pub max_age: Duration,
    /// Set to include all subdomains.
    pub include_subdomains: bool,
    /// Set to allow inclusion in browsers' preload lists.
    pub preload: bool,
}

impl Default for Hsts {
    fn default() -> Self {
        Hsts { max_age: Duration::from_secs(365 * 24 * 3600), include_subdomains: false, preload: false }
    }
}

/// A response that redirects the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectResponse {
    /// The target of the redirect.
    pub to: RedirectTo,
    /// The status of the redirect: 301, 302, 303, 307 or 308.
    pub status: u16,
}

impl RedirectResponse {
    /// A redirect with the status that keeps method and body, and may be cached.
    pub fn permanent(to: RedirectTo) -> Self {
        RedirectResponse { to, status: 308 }
    }
}

/// The statuses of redirects (RFC 9110 §15.4).
pub(crate) const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// The target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectTo {
    /// The same URL over TLS.
    Https,
    /// A URL composed of these parts.
    Url(Vec<RedirectPart>),
}

/// A part of a redirect's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectPart {
    /// Literal text: ASCII without blanks.
    Text(String),
    /// `{host}`: the host of the request, without port.
    Host,
    /// `{path}`: the path of the request as received.
    Path,
    /// `{query}`: the query as received, without the `?`.
    Query,
    /// `{uri}`: path and query as received, with the `?` if there is one.
    Uri,
}

impl RedirectPart {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "host" => RedirectPart::Host,
            "path" => RedirectPart::Path,
            "query" => RedirectPart::Query,
            "uri" => RedirectPart::Uri,
            _ => return None,
        })
    }
}

impl FromStr for RedirectTo {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == "https" {
            return Ok(RedirectTo::Https);
        }
        let wrong = |help: &str| {
            Err(Problem::new(format!("`{}` is not where a redirect can lead", shown(text))).help(help))
        };
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let Some(rest) = rest else {
            return wrong("write \"https\", or a whole URL such as \"https://new.example.org{uri}\"");
        };
        if rest.is_empty() || rest.starts_with(['/', '?', '#']) || rest.starts_with("{path}") {
            return wrong("the host is missing: \"https://{host}{uri}\"");
        }
        if rest.starts_with("{uri}") || rest.starts_with("{query}") {
            return wrong("the host is missing: \"https://{host}{uri}\"");
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`|".contains(&b)) || text.len() > 2048 {
            return wrong("write other characters than those of URLs as %XX");
        }
        let mut parts = Vec::new();
        let mut left = text;
        while let Some((before, after)) = left.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return wrong("a `{` without its `}`");
            };
            let Some(part) = RedirectPart::of_name(name) else {
                return wrong("placeholders are {host}, {path}, {query} and {uri}");
            };
            if !before.is_empty() {
                parts.push(RedirectPart::Text(before.to_owned()));
            }
            parts.push(part);
            left = after;
        }
        if !left.is_empty() {
            parts.push(RedirectPart::Text(left.to_owned()));
        }
        let stray = |part: &RedirectPart| matches!(part, RedirectPart::Text(text) if text.contains('}'));
        if parts.iter().any(stray) {
            return wrong("a `}` without its `{`");
        }
        Ok(RedirectTo::Url(parts))
    }
}

impl fmt::Display for RedirectTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RedirectTo::Url(parts) = self else {
            return f.write_str("https");
        };
        parts.iter().try_for_each(|part| match part {
            RedirectPart::Text(text) => f.write_str(text),
            RedirectPart::Host => f.write_str("{host}"),
            RedirectPart::Path => f.write_str("{path}"),
            RedirectPart::Query => f.write_str("{query}"),
            RedirectPart::Uri => f.write_str("{uri}"),
        })
    }
}

/// A fixed response without a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    /// The status of the response: 200 to 599.
    pub status: u16,
    /// The body; empty if the status allows none (204, 205, 304).
    pub body: String,
    /// The file to send in the place of `body`.
    pub file: Option<FilePath>,
    /// The media type of the body; `None` for plain text, or the type by the file's name.
    pub content_type: Option<HeaderValue>,
}

impl Default for FixedResponse {
    fn default() -> Self {
        FixedResponse { status: 200, body: String::new(), file: None, content_type: None }
    }
}

/// The statuses from 200 on without a body (RFC 9110 §6.4.1, §15.3.6).
pub(crate) const WITHOUT_BODY: [u16; 3] = [204, 205, 304];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised() {
        for (text, meant) in [
            ("/", "/"),
            ("/api", "/api"),
            ("/api/", "/api"),
            ("/a%20b/c%2F", "/a%20b/c%2F"),
            ("/%40me%2B%C3%A9", "/@me+%C3%A9"),
        ] {
            assert_eq!(text.parse::<RoutePath>().unwrap().as_str(), meant);
        }
    }

    #[test]
    fn some_paths_have_no_single_reading() {
        for (text, what) in [
            ("/", None),
            ("/a%20b/100%25/%C3%A9", None),
            ("/a%2Fb", Some("%2F")),
            ("/a%5Cb", Some("%5C")),
            ("/%2541", Some("%25 before two digits")),
            ("/a%00", Some("a control character")),
            ("/%FF", Some("an escape that is not UTF-8")),
        ] {
            assert_eq!(text.parse::<RoutePath>().unwrap().ambiguity(), what, "{text}");
        }
    }

    #[test]
    fn what_is_no_path_gets_a_remedy() {
        for (text, part) in [
            ("", "begin with"),
            ("api", "begin with"),
            ("//", "empty"),
            ("/a//b", "empty"),
            ("/a/../b", "`..`"),
            ("/.", "`.`"),
            ("/a?b", "query"),
            ("/a*", "below it"),
            ("/ä", "%XX"),
            ("/%41", "write `/A`"),
            ("/%61dmin/caf%c3%a9/", "write `/admin/caf%C3%A9`"),
            ("/%2E%2e", "%XX"),
            ("/%2f", "%XX"),
            ("/%2", "%XX"),
            ("/%", "%XX"),
            ("/%é", "%XX"),
            ("/a b", "%XX"),
        ] {
            assert!(text.parse::<RoutePath>().unwrap_err().to_string().contains(part), "{text}");
        }
    }

    #[test]
    fn protocols_of_upgrades() {
        for text in ["websocket", "WebSocket", "tus/1.0", "spdy~3"] {
            assert_eq!(text.parse::<UpgradeProtocol>().unwrap().to_string(), text);
        }
        for text in
            ["h2c", "H2C", "h2", "HTTP/2.0", "TLS/1.0", "", "a b", "a,b", "a/b/c", "a/", "ä", &"x".repeat(65)]
        {
            assert!(text.parse::<UpgradeProtocol>().is_err(), "{text}");
        }
    }

    #[test]
    fn redirects_print_as_they_are_read() {
        for text in
            ["https", "https://{host}:8443{uri}", "http://a.example/x{path}?{query}#a", "https://a.example"]
        {
            assert_eq!(text.parse::<RedirectTo>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_redirect_gets_a_remedy() {
        for (text, part) in [
            ("", "whole URL"),
            ("http", "whole URL"),
            ("/new", "whole URL"),
            ("ftp://a", "whole URL"),
            ("https://", "host is missing"),
            ("https:///x", "host is missing"),
            ("https://{uri}", "host is missing"),
            ("https://{hots}", "placeholders"),
            ("https://a/{host", "without its `}`"),
            ("https://a/}", "without its `{`"),
            ("https://a/ b", "%XX"),
            ("https://a/\r\nx", "%XX"),
        ] {
            assert!(text.parse::<RedirectTo>().unwrap_err().to_string().contains(part), "{text}");
        }
    }
}
