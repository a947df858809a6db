//! A URL, read as a request for it would be.

use hyper::Uri;
use offramp_http::path::normalize;

/// Bound on a URL, in bytes.
pub(super) const LONGEST: usize = 8192;

/// A URL taken apart.
pub(super) struct Destination {
    pub(super) is_tls: bool,
    /// In lower case.
    pub(super) host: String,
    pub(super) port: u16,
    /// In normal form.
    pub(super) path: String,
    /// The reason why the path has several readings.
    pub(super) ambiguity: Option<String>,
}

impl Destination {
    /// Reads a URL; without a scheme, it is one of https.
    ///
    /// # Errors
    /// It is no URL.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let wrong = || "write a URL such as https://example.org/path".to_owned();
        if text.len() > LONGEST {
            return Err(format!("the URL has more than {LONGEST} bytes"));
        }
        let text = text.split('#').next().unwrap_or_default();
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let uri: Uri = whole.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("https" | "wss") => true,
            Some("http" | "ws") => false,
            _ => return Err(wrong()),
        };
        // The root's dot is part of a name in DNS, and of no host that a route has.
        let host = uri.host().map(|host| host.strip_suffix('.').unwrap_or(host));
        let host = host.filter(|host| !host.is_empty()).ok_or_else(wrong)?.to_ascii_lowercase();
        // `Uri` takes ports beyond 65535, and tells none of them.
        let port = match written_port(&uri) {
            "" => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
            digits => digits.parse().map_err(|_| wrong())?,
        };
        let normal = normalize(uri.path());
        let ambiguity = normal.spelling.ambiguity().map(|reason| reason.to_string());
        Ok(Self { is_tls, host, port, path: normal.text.into_owned(), ambiguity })
    }
}

/// The port as written; empty without one.
fn written_port(uri: &Uri) -> &str {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.rsplit(']').next().and_then(|rest| rest.split_once(':')).map_or("", |(_, port)| port)
}
