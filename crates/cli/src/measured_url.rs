//! Value of an argument: the URL of `offramp bench`, or the path of a Unix socket.

use std::path::PathBuf;

use hyper::Uri;

/// URL of `offramp bench`.
#[derive(Clone, Debug)]
pub(crate) enum MeasuredUrl {
    Http(Uri),
    Unix(PathBuf),
}

impl MeasuredUrl {
    /// Parses `http://`, `https://` and `unix:`.
    ///
    /// # Errors
    /// Says in one line what to write instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(
                    "after unix: comes the whole path of a socket, such as unix:/run/app.sock".to_owned()
                );
            }
            return Ok(Self::Unix(path.into()));
        }
        let advice = "write http://127.0.0.1:3000/, https://localhost:8443/ or unix:/run/app.sock";
        let uri: Uri = text.parse().map_err(|error| format!("{error}; {advice}"))?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(_)) => {}
            _ => return Err(advice.to_owned()),
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("names and passwords in a URL are not sent; measure a path without them".to_owned());
        }
        Ok(Self::Http(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_sockets_are_parsed_and_others_get_advice() {
        for url in
            ["http://127.0.0.1:3000", "https://localhost/a?b=c", "http://[::1]:80/", "unix:/run/app.sock"]
        {
            assert!(MeasuredUrl::parse(url).is_ok(), "{url}");
        }
        let cases = [
            ("", "unix:/run"),
            ("3000", "http://127.0.0.1:3000/"),
            ("localhost:3000", "http://127.0.0.1:3000/"),
            ("ftp://localhost/", "https://"),
            ("unix:app.sock", "whole path"),
            ("unix:", "whole path"),
            ("http://anna:secret@localhost/", "passwords"),
            ("http://", "http://127.0.0.1:3000/"),
        ];
        for (text, advice) in cases {
            let refusal = MeasuredUrl::parse(text).expect_err(text);
            assert!(refusal.contains(advice) && !refusal.contains("secret"), "{text}: {refusal}");
        }
    }
}
