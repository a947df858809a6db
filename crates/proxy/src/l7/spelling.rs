//! Paths that a server may read in another way than the routes: refused where that could lead past a rule.
//!
//! Routes are found by the normal form of a path, and servers get the path as it came. If the path decides about
//! the access to a host, a request goes to a server only if every reading of its path meets the same rules of
//! access. Offramp is the only reader of what it answers itself, so that nothing is refused there.
//!
//! An authentication server judges the normal form, whatever other routes there are, and then each path that a server could
//! see in its place: without parameters, for one. It must let all of them in. What rules of a route make of a path
//! is read by servers, too: it may be read only as what its normal form meets.

use http::StatusCode;
use offramp_http::head::Request;
use offramp_http::path::{self, Ambiguity, Spelling};
use offramp_observe::{Cause, Close};

use super::answer::ErrorReply;
use crate::route::Paths;
use crate::snapshot::http::{Action, HttpRoute, PathHandling};

/// Refuses a request for `route`, which its normal form has selected, if a server could see another path in it.
pub(super) fn check(
    paths: &Paths<HttpRoute>,
    host: Option<&str>,
    route: &HttpRoute,
    request: &Request,
) -> Result<(), ErrorReply> {
    let spelling = request.spelling();
    if spelling.is_single() {
        return Ok(());
    }
    let Action::Proxy(proxy) = &route.action else { return Ok(()) };
    let handling = proxy.paths;
    // Of the normal form, only parameters are left to be read otherwise.
    let sent = if handling.normalize { request.normal_path() } else { request.path() };
    let sent = SentPath { text: sent, spelling: path::normalize(sent).spelling };
    if route.access.forward.is_some() {
        judged(route, handling, sent, spelling)?;
    }
    if !paths.is_guarded(host) {
        return Ok(());
    }
    let entry = paths.entry(host, request.normal_path());
    let differs = |text: &str| paths.entry(host, text) != entry;
    RouteCheck { paths, host, route, handling }.readings(sent, spelling, differs)
}

/// Refuses a path that rules of `route` have made, if a server could see another one in it that
/// meets other rules. `cut` was taken off the front: with it, every reading meets the same rules, too.
pub(super) fn check_made(
    paths: &Paths<HttpRoute>,
    host: Option<&str>,
    route: &HttpRoute,
    MadePath { cut, sent }: MadePath<'_>,
) -> Result<(), ErrorReply> {
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
    let sent = SentPath { text: sent, spelling: path::normalize(sent).spelling };
    let expected = entry(&normal.text);
    let differs = |text: &str| entry(text) != expected;
    RouteCheck { paths, host, route, handling: proxy.paths }.readings(sent, normal.spelling, differs)
}

/// Refuses what an authentication server cannot be asked about, because servers may resolve it to anything.
fn judged(
    route: &HttpRoute,
    handling: PathHandling,
    sent: SentPath<'_>,
    spelling: Spelling,
) -> Result<(), ErrorReply> {
    if let Some(ambiguity) = spelling.ambiguity()
        && !(handling.encoded_slashes && ambiguity.may_pass())
    {
        return Err(ambiguous(route, ambiguity, false));
    }
    let key = key(route, handling, sent.spelling);
    if sent.spelling.has_dots() {
        return Err(refused(&format!(
            "the path has `.` or `..`, which the authentication server may read otherwise than a server{key}"
        )));
    }
    match path::judged_forms(sent.text, sent.spelling, MOST_JUDGED) {
        Ok(_) => Ok(()),
        Err(ambiguity) => Err(refused(&format!("the path has {ambiguity}{key}"))),
    }
}

/// The paths that an authentication server is asked about besides the normal form of the path: each that a server could see
/// in what it gets.
pub(super) fn judged_besides(route: &HttpRoute, request: &Request) -> Vec<String> {
    let Action::Proxy(proxy) = &route.action else { return Vec::new() };
    if request.spelling().is_single() {
        return Vec::new();
    }
    let sent = if proxy.paths.normalize { request.normal_path() } else { request.path() };
    // What has more was refused.
    let mut forms = path::judged_forms(sent, path::normalize(sent).spelling, MOST_JUDGED).unwrap_or_default();
    forms.retain(|form| form != request.normal_path());
    forms
}

/// The most paths that an authentication server is asked about for one request.
const MOST_JUDGED: usize = 4;

/// A path that rules of a route have made.
pub(super) struct MadePath<'p> {
    /// The part that was taken off the front.
    pub(super) cut: &'p str,
    pub(super) sent: &'p str,
}

/// A path as a server gets it.
#[derive(Clone, Copy)]
struct SentPath<'p> {
    text: &'p str,
    spelling: Spelling,
}

/// The route that a path leads to, among all routes.
struct RouteCheck<'r> {
    paths: &'r Paths<HttpRoute>,
    host: Option<&'r str>,
    route: &'r HttpRoute,
    handling: PathHandling,
}

impl RouteCheck<'_> {
    /// Refuses a path if some reading of it `differs`. `spelling` is that of the path as it came.
    fn readings(
        &self,
        sent: SentPath<'_>,
        spelling: Spelling,
        differs: impl Fn(&str) -> bool,
    ) -> Result<(), ErrorReply> {
        let Self { paths, host, route, handling } = *self;
        if let Some(ambiguity) = spelling.ambiguity() {
            let passes = handling.encoded_slashes
                && ambiguity.may_pass()
                && path::loosest(sent.text).is_some_and(|reading| !differs(&reading));
            if !passes {
                return Err(ambiguous(route, ambiguity, handling.encoded_slashes));
            }
        }
        let key = key(route, handling, sent.spelling);
        if sent.spelling.has_mixed_dots() {
            return Err(refused(&format!(
                "the path has `.` or `..` beside an empty segment, a `;` or an escape that is not needed{key}"
            )));
        }
        match path::other_reading(sent.text, sent.spelling, paths.reach(), paths.count(host), differs) {
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
}

/// The key that helps, where one does.
fn key(route: &HttpRoute, handling: PathHandling, sent: Spelling) -> String {
    if handling.normalize || sent.has_parameters() {
        return String::new();
    }
    format!("; `normalize_path = true` of route `{}` sends the normal form", &**route.name)
}

fn ambiguous(route: &HttpRoute, ambiguity: Ambiguity, passes: bool) -> ErrorReply {
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

fn refused(detail: &str) -> ErrorReply {
    ErrorReply::new(StatusCode::BAD_REQUEST, Close::from(Cause::BadRequest).with_detail(detail))
}

#[cfg(test)]
mod tests;
