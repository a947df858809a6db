//! Tokens in requests (RFC 6750, RFC 7519).

use std::rc::Rc;

use http::StatusCode;
use offramp_http::head::Fields;
use offramp_observe::{Cause, Close};

use super::Grant;
use crate::credentials::jwt::{Disbelief, Jwt, Why};
use crate::l7::answer::ErrorReply;
use crate::l7::exchange::RequestContext;
use crate::l7::session::Session;

/// Challenges for a client without a token, and for one with a wrong one (RFC 6750 §3). Only events say why it is
/// wrong.
const NO_TOKEN: &str = "Bearer realm=\"restricted\"";
const WRONG_TOKEN: &str = "Bearer realm=\"restricted\", error=\"invalid_token\"";

/// Values of Retry-After, in seconds: without keys, and with too many tokens waiting.
const NO_KEYS_PAUSE: u32 = 5;
const FULL_PAUSE: u32 = 1;

/// Checks the token of a request, with which a tunnel that it opens ends.
pub(super) async fn check(
    session: &Rc<Session>,
    context: &RequestContext,
    jwt: &Jwt,
    fields: &Fields,
) -> Result<Grant, ErrorReply> {
    let token = token(fields).ok_or_else(|| refusal(None))?;
    let tokens = &session.http.tokens;
    let token = match tokens.known(jwt, token).map_err(disbelieved)? {
        Some(known) => known,
        // Once for each token, and larger than all the rest of the request's future.
        None => {
            let checked = Box::pin(tokens.check(jwt, token, context.named.or(session.ip)));
            checked.await.map_err(disbelieved)?
        }
    };
    context.record.note(|facts| facts.request.user.clone_from(&token.user));
    context.record.end_with_token(token.tunnel_end);
    Ok(token.fields.clone())
}

fn disbelieved(disbelief: Disbelief) -> ErrorReply {
    match disbelief {
        Disbelief::Wrong(why) => refusal(Some(why)),
        Disbelief::NoKeys => later(Cause::KeysUnavailable, NO_KEYS_PAUSE),
        Disbelief::Busy => later(Cause::TokensFull, FULL_PAUSE),
    }
}

fn refusal(why: Option<Why>) -> ErrorReply {
    let close = Close::from(Cause::Unauthorized).with_detail(why.unwrap_or("no token"));
    let challenge = if why.is_some() { WRONG_TOKEN } else { NO_TOKEN };
    ErrorReply::new(StatusCode::UNAUTHORIZED, close).with_field(b"www-authenticate", challenge)
}

/// Refuses a token that cannot be judged now.
fn later(cause: Cause, seconds: u32) -> ErrorReply {
    let refusal = ErrorReply::new(StatusCode::SERVICE_UNAVAILABLE, cause);
    ErrorReply { retry_after: Some(seconds), ..refusal }
}

/// The token that a request has; nothing where it has none, or several.
fn token(fields: &Fields) -> Option<&str> {
    let mut values = fields.named(b"authorization");
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return None;
    }
    std::str::from_utf8(token.trim_ascii()).ok().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found() {
        let of = |values: &[&str]| {
            let fields: Fields = values.iter().map(|value| ("authorization", *value)).collect();
            token(&fields).map(ToOwned::to_owned)
        };
        for value in ["Bearer a.b.c", "bearer a.b.c", "BEARER  a.b.c "] {
            assert_eq!(of(&[value]).as_deref(), Some("a.b.c"), "{value}");
        }
        for values in [&[][..], &[""], &["Bearer"], &["Bearer "], &["Basic YTpi"], &["Bearer a", "Bearer a"]]
        {
            assert_eq!(of(values), None, "{values:?}");
        }
    }
}
