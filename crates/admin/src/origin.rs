//! CORS: the web pages that may read answers, where Grafana lets the browser send requests itself.
//!
//! A browser on the machine of an operator reaches loopback addresses too, on behalf of any page that it
//! shows. So only pages of this machine and of private networks are answered, by address: the name of a
//! foreign page may be made to point here (DNS rebinding), an address may not. Programs send no `Origin`, and
//! need none.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, HeaderValue, ORIGIN, VARY,
};

/// The origin of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    /// No page: a program, such as Grafana's own server.
    Program,
    /// A page that may read the answer.
    Page(HeaderValue),
    /// A page that may not read the answer.
    Foreign,
}

impl RequestOrigin {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match headers.get(ORIGIN) {
            None => Self::Program,
            Some(origin) if origin.to_str().is_ok_and(is_near) => Self::Page(origin.clone()),
            Some(_) => Self::Foreign,
        }
    }

    /// Lets the page read the answer.
    pub(crate) fn permit(&self, headers: &mut HeaderMap) {
        headers.insert(VARY, HeaderValue::from_static("origin"));
        if let Self::Page(origin) = self {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        }
    }

    /// Answers a preflight request of a page.
    pub(crate) fn permit_methods(&self, headers: &mut HeaderMap) {
        self.permit(headers);
        let fixed = [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
            (ACCESS_CONTROL_ALLOW_HEADERS, "accept, content-type"),
            (ACCESS_CONTROL_MAX_AGE, "600"),
        ];
        headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    }
}

/// Returns `true` for origins (RFC 6454 §6.2) of this machine and of private networks.
fn is_near(origin: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(host, _)| host),
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(v4)) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        Ok(IpAddr::V6(v6)) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn pages_of_this_machine_and_of_private_networks_are_near() {
        for origin in [
            "http://localhost:3000",
            "https://grafana.localhost",
            "http://127.0.0.1:3000",
            "http://[::1]:3000",
            "http://192.168.1.7:3000",
            "http://10.0.0.1",
            "http://[fd00::1]",
        ] {
            assert!(is_near(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://",
            "http://evil.example",
            "http://evil.example:9901",
            "http://203.0.113.5",
            "http://localhost.evil.example",
            "http://[2001:db8::1]",
            "http://127.0.0.1.evil.example",
            "http://[::1",
        ] {
            assert!(!is_near(origin), "{origin}");
        }
    }
}
