//! What a route does with a request before its target gets it.

use std::net::IpAddr;

use bytes::Bytes;
use http::StatusCode;
use offramp_http::head::{Request, Response};
use offramp_http::target;
use offramp_observe::{Cause, Close};

use super::answer::{self, Refusal};
use crate::route::PathRules;
use crate::route::redirects::location;
use crate::snapshot::http::{Http, HttpRoute};

/// Why a route that is closed for a while does not serve this client.
pub(super) fn closed(route: &HttpRoute, client: Option<IpAddr>) -> Option<Refusal> {
    let maintenance = route.maintenance.as_ref()?;
    let allowed = |ip| maintenance.allow.iter().any(|network| network.contains(ip));
    if client.is_some_and(allowed) {
        return None;
    }
    let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, Cause::Completed);
    Some(Refusal { retry_after: Some(maintenance.retry_after), ..refusal })
}

/// The redirect that the map of the route has for a request. Without one, the target of the request is rewritten by the rules
/// of the route.
pub(super) fn elsewhere(
    http: &Http,
    route: &HttpRoute,
    request: &mut Request,
) -> Result<Option<Response<Bytes>>, Refusal> {
    if let Some(map) = &route.redirects
        && let Some((status, to)) = map.find(request.normal_path())
    {
        return Ok(answer::redirect(status, location(to, request.query())));
    }
    match &route.rewrites {
        Some(rules) => rewrite(http, rules, request).map(|()| None),
        None => Ok(None),
    }
}

/// What comes of a rewriting is checked as what clients send is.
fn rewrite(http: &Http, rules: &PathRules, request: &mut Request) -> Result<(), Refusal> {
    let target = rules.apply(request.normal_path(), request.query());
    let Some(target) = target.filter(|_| request.path() != "*") else { return Ok(()) };
    if target.len() > http.limits.request_target_size as usize {
        return Err(Refusal::new(StatusCode::URI_TOO_LONG, Cause::TargetTooLong));
    }
    if let Err(fault) = target::check(&target) {
        let close = Close::from(Cause::BadRequest).with_detail(&format!("the rewritten target: {fault}"));
        return Err(Refusal::new(StatusCode::BAD_REQUEST, close));
    }
    request.rewrite_target(&target);
    Ok(())
}
