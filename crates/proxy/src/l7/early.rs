//! What a route does with a request before its target gets it.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Method, StatusCode};
use offramp_http::head::{Request, Response};
use offramp_http::target::{self, QueryForm};
use offramp_observe::{Cause, Close};

use super::answer::{self, ErrorReply};
use crate::route::PathRules;
use crate::route::redirects::location;
use crate::snapshot::http::{Http, HttpRoute};

/// The refusal by a route that is closed for a while.
pub(super) fn closed(route: &HttpRoute, client: Option<IpAddr>) -> Option<ErrorReply> {
    let maintenance = route.detours.maintenance.as_ref()?;
    let allowed = |ip| maintenance.allow.iter().any(|network| network.contains(ip));
    if client.is_some_and(allowed) {
        return None;
    }
    let refusal = ErrorReply::new(StatusCode::SERVICE_UNAVAILABLE, Cause::Completed);
    Some(ErrorReply { retry_after: Some(maintenance.retry_after), ..refusal })
}

/// The redirect to TLS for a request of a route that needs it, at this port. A request that may have been acted on
/// cannot be taken back: other methods than GET and HEAD get 421 (RFC 9110 §15.5.20).
pub(super) fn to_tls(
    request: &Request,
    host: Option<&str>,
    port: Option<u16>,
) -> Result<Response<Bytes>, ErrorReply> {
    let is_safe = matches!(request.method, Method::GET | Method::HEAD);
    let Some((host, port)) = host.zip(port).filter(|_| is_safe) else {
        let close = Close::from(Cause::Misdirected).with_detail("the route needs TLS");
        return Err(ErrorReply::new(StatusCode::MISDIRECTED_REQUEST, close));
    };
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let to = format!("https://{host}{port}{}", request.target());
    answer::redirect(StatusCode::PERMANENT_REDIRECT, to)
        .ok_or_else(|| ErrorReply::new(StatusCode::BAD_REQUEST, Cause::BadRequest))
}

/// The redirect that the map of the route has for a request. Without one, the target of the request is rewritten by the rules
/// of the route.
pub(super) fn elsewhere(
    http: &Http,
    route: &HttpRoute,
    request: &mut Request,
) -> Result<Option<Response<Bytes>>, ErrorReply> {
    if let Some(map) = &route.detours.redirects
        && let Some((status, to)) = map.find(request.normal_path())
    {
        return Ok(answer::redirect(status, location(to, request.query())));
    }
    match &route.detours.rewrites {
        Some(rules) => rewrite(http, rules, request).map(|()| None),
        None => Ok(None),
    }
}

/// Rewrites the target. The result is checked like a target from a client.
fn rewrite(http: &Http, rules: &PathRules, request: &mut Request) -> Result<(), ErrorReply> {
    let target = rules.apply(request.normal_path(), request.query());
    let Some(target) = target.filter(|_| request.path() != "*") else { return Ok(()) };
    if target.len() > http.limits.request_target_size as usize {
        return Err(ErrorReply::new(StatusCode::URI_TOO_LONG, Cause::TargetTooLong));
    }
    match target::check(&target) {
        Ok(QueryForm::Encoded) => request.rewrite_target(&target),
        Ok(QueryForm::Raw) => request.rewrite_target(&target::encode(&target)),
        Err(fault) => {
            let close = Close::from(Cause::BadRequest).with_detail(&format!("the rewritten target: {fault}"));
            return Err(ErrorReply::new(StatusCode::BAD_REQUEST, close));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_requests_are_sent_to_tls_and_others_are_refused() {
        let ask = |method: Method, host, port| {
            let mut request = Request::new();
            request.set_method(method);
            request.set_target(b"/a%20b?c");
            match to_tls(&request, host, port) {
                Ok(response) => {
                    let location = response.fields.named(b"location").next().unwrap_or_default();
                    (response.status.as_u16(), String::from_utf8_lossy(location).into_owned())
                }
                Err(refusal) => (refusal.status.as_u16(), String::new()),
            }
        };
        let to = |text: &str| (308, text.to_owned());
        assert_eq!(ask(Method::GET, Some("a.test"), Some(443)), to("https://a.test/a%20b?c"));
        assert_eq!(ask(Method::HEAD, Some("[::1]"), Some(8443)), to("https://[::1]:8443/a%20b?c"));
        for (method, host, port) in [
            (Method::POST, Some("a.test"), Some(443)),
            (Method::OPTIONS, Some("a.test"), Some(443)),
            (Method::GET, None, Some(443)),
            (Method::GET, Some("a.test"), None),
        ] {
            assert_eq!(ask(method, host, port).0, 421);
        }
    }
}
