//! What a route does with a request before its target gets it.

use std::net::IpAddr;

use http::StatusCode;
use offramp_observe::Cause;

use super::answer::Refusal;
use crate::snapshot::http::HttpRoute;

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
