//! Paths that a server may read in another way than the routes: refused where that could lead past a rule.
//!
//! Routes are found by the normal form of a path, and servers get the path as it came. Where the path decides who may
//! enter a host, a request goes to a server only if every reading of its path selects the same route. Offramp is the only
//! reader of what it answers itself, so that nothing is refused there.

use http::StatusCode;
use offramp_http::head::Request;
use offramp_http::path::{self, Ambiguity};
use offramp_observe::{Cause, Close};

use super::answer::Refusal;
use crate::route::Paths;
use crate::snapshot::http::{Action, HttpRoute, PathHandling};

/// Refuses a request for `route`, which its normal form has selected, if a server could see another path in it.
pub(super) fn check(
    paths: &Paths<HttpRoute>,
    host: Option<&str>,
    route: &HttpRoute,
    request: &Request,
) -> Result<(), Refusal> {
    let spelling = request.spelling();
    if spelling.is_single() {
        return Ok(());
    }
    let Action::Proxy(proxy) = &route.action else { return Ok(()) };
    if !paths.is_guarded(host) {
        return Ok(());
    }
    let selects_other = |text: &str| !paths.find(host, text).is_some_and(|found| std::ptr::eq(found, route));
    let PathHandling { normalize, encoded_slashes } = proxy.paths;
    // Of the normal form, only parameters are left to be read otherwise.
    let sent = if normalize { request.normal_path() } else { request.path() };
    if let Some(ambiguity) = spelling.ambiguity() {
        let passes = encoded_slashes
            && ambiguity.may_pass()
            && path::loosest(sent).is_some_and(|reading| !selects_other(&reading));
        if !passes {
            return Err(ambiguous(ambiguity, encoded_slashes));
        }
    }
    match path::other_reading(sent, path::normalize(sent).spelling, paths.reach(), selects_other) {
        Ok(None) => Ok(()),
        Ok(Some(reading)) => Err(other(route, &reading, paths.find(host, &reading))),
        Err(ambiguity) => Err(refused(&format!(
            "the path has {ambiguity}; `normalize_path = true` of a route sends the normal form, which has few"
        ))),
    }
}

fn ambiguous(ambiguity: Ambiguity, passes: bool) -> Refusal {
    let key = match (ambiguity.may_pass(), passes) {
        (false, _) => "",
        (true, false) => "; `encoded_slashes = \"pass\"` of the route passes paths that lead nowhere else",
        (true, true) => ", which could lead to another route",
    };
    refused(&format!("the path has {ambiguity}{key}"))
}

fn other(route: &HttpRoute, reading: &str, found: Option<&HttpRoute>) -> Refusal {
    let other = found.map_or("no route", |found| &**found.name);
    // The reading comes last, because long details are cut.
    refused(&format!(
        "the path leads to route `{}`, read otherwise to `{other}`; `normalize_path = true` of the route sends the \
         normal form; the other reading is {reading}",
        &**route.name
    ))
}

fn refused(detail: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Close::from(Cause::BadRequest).with_detail(detail))
}

#[cfg(test)]
mod tests;
