//! Paths that a server may read in another way than the routes: refused where that could lead past a rule.
//!
//! Routes are found by the normal form of a path, and servers get the path as it came. Where the path decides who may
//! enter a host, a request goes to a server only if every reading of its path meets the same rules about who may. Offramp
//! is the only reader of what it answers itself, so that nothing is refused there.
//!
//! An authentication server judges the normal form, whatever other routes there are. What rules of a route make of a path
//! is read by servers, too: it may be read only as what its normal form meets.

use http::StatusCode;
use offramp_http::head::Request;
use offramp_http::path::{self, Ambiguity, Spelling};
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
    let handling = proxy.paths;
    // Of the normal form, only parameters are left to be read otherwise.
    let sent = if handling.normalize { request.normal_path() } else { request.path() };
    let sent_as = path::normalize(sent).spelling;
    if route.access.forward.is_some() {
        judged(route, handling, (sent, sent_as), spelling)?;
    }
    if !paths.is_guarded(host) {
        return Ok(());
    }
    let entry = paths.entry(host, request.normal_path());
    let differs = |text: &str| paths.entry(host, text) != entry;
    readings((paths, host), (route, handling), (sent, sent_as, spelling), differs)
}

/// Refuses a path that rules of `route` have made, if a server could see another one in it that
/// meets other rules. `cut` was taken off the front: with it, every reading meets the same rules, too.
pub(super) fn check_made(
    paths: &Paths<HttpRoute>,
    host: Option<&str>,
    route: &HttpRoute,
    (cut, sent): (&str, &str),
) -> Result<(), Refusal> {
    let Action::Proxy(proxy) = &route.action else { return Ok(()) };
    let normal = path::normalize(sent);
    if normal.spelling.is_single() || !paths.is_guarded(host) {
        return Ok(());
    }
    let entry = |text: &str| {
        let whole = (!cut.is_empty()).then(|| paths.entry(host, &format!("{cut}{text}")));
        (paths.entry(host, text), whole)
    };
    let sent = if proxy.paths.normalize { &*normal.text } else { sent };
    let sent_as = path::normalize(sent).spelling;
    let expected = entry(&normal.text);
    let differs = |text: &str| entry(text) != expected;
    readings((paths, host), (route, proxy.paths), (sent, sent_as, normal.spelling), differs)
}

/// Refuses what an authentication server takes for another path than a server that resolves or cuts it otherwise.
fn judged(
    route: &HttpRoute,
    handling: PathHandling,
    (sent, sent_as): (&str, Spelling),
    spelling: Spelling,
) -> Result<(), Refusal> {
    if let Some(ambiguity) = spelling.ambiguity()
        && !(handling.encoded_slashes && ambiguity.may_pass())
    {
        return Err(ambiguous(route, ambiguity, false));
    }
    let key = key(route, handling, sent_as);
    let what = if sent_as.has_parameters() {
        "parameters (`;`)"
    } else if sent_as.has_dots() {
        "`.` or `..`"
    } else if sent.starts_with("//") {
        "two slashes at the front"
    } else {
        return Ok(());
    };
    Err(refused(&format!(
        "the path has {what}, which the authentication server may read otherwise than a server{key}"
    )))
}

/// Refuses a path if some reading of it `differs`.
fn readings(
    (paths, host): (&Paths<HttpRoute>, Option<&str>),
    (route, handling): (&HttpRoute, PathHandling),
    (sent, sent_as, spelling): (&str, Spelling, Spelling),
    differs: impl Fn(&str) -> bool,
) -> Result<(), Refusal> {
    if let Some(ambiguity) = spelling.ambiguity() {
        let passes = handling.encoded_slashes
            && ambiguity.may_pass()
            && path::loosest(sent).is_some_and(|reading| !differs(&reading));
        if !passes {
            return Err(ambiguous(route, ambiguity, handling.encoded_slashes));
        }
    }
    let key = key(route, handling, sent_as);
    if sent_as.has_mixed_dots() {
        return Err(refused(&format!(
            "the path has `.` or `..` beside an empty segment, a `;` or an escape that is not needed{key}"
        )));
    }
    match path::other_reading(sent, sent_as, (paths.reach(), paths.count(host)), differs) {
        Ok(None) => Ok(()),
        Ok(Some(reading)) => {
            let found = paths.find(host, &reading).map_or("no route", |found| &**found.name);
            // The reading comes last, because long details are cut.
            Err(refused(&format!(
                "the path leads to route `{}`, read otherwise to `{found}`{key}; the other reading is {reading}",
                &**route.name
            )))
        }
        Err(ambiguity) => Err(refused(&format!("the path has {ambiguity}{key}"))),
    }
}

/// The key that helps, where one does.
fn key(route: &HttpRoute, handling: PathHandling, sent: Spelling) -> String {
    if handling.normalize || sent.has_parameters() {
        return String::new();
    }
    format!("; `normalize_path = true` of route `{}` sends the normal form", &**route.name)
}

fn ambiguous(route: &HttpRoute, ambiguity: Ambiguity, passes: bool) -> Refusal {
    let key = match (ambiguity.may_pass(), passes) {
        (false, _) => String::new(),
        (true, false) => format!(
            "; `encoded_slashes = \"pass\"` of route `{}` passes paths that lead nowhere else",
            &**route.name
        ),
        (true, true) => ", which could lead to another route".to_owned(),
    };
    refused(&format!("the path has {ambiguity}{key}"))
}

fn refused(detail: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, Close::from(Cause::BadRequest).with_detail(detail))
}

#[cfg(test)]
mod tests;
