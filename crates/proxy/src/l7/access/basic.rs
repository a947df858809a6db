//! Names and passwords in requests (RFC 7617).

use std::rc::Rc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::StatusCode;
use offramp_http::head::Fields;
use offramp_observe::Cause;
use zeroize::Zeroizing;

use super::Grant;
use crate::credentials::LoginOutcome;
use crate::l7::answer::ErrorReply;
use crate::l7::exchange::RequestContext;
use crate::l7::session::Session;
use crate::snapshot::http::BasicAuth;

/// The longest credentials in base64; with longer ones a client could have a worker hash what it likes.
const LONGEST: usize = 4096;
/// The seconds after which a request may come again that found the queue full.
const AGAIN: u32 = 1;

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Checks that the request has the name and password of a user.
pub(super) async fn check(
    session: &Rc<Session>,
    context: &RequestContext,
    basic: &BasicAuth,
    fields: &Fields,
) -> Result<Grant, ErrorReply> {
    let Some((name, password)) = credentials(fields) else { return Err(refusal(basic, LoginOutcome::Wrong)) };
    let client = context.named.or(session.ip);
    let logins = &session.worker.shared.logins;
    let checked = session.http.passwords.check(logins, &basic.users, &name, password, client);
    match checked.await {
        LoginOutcome::Right => {
            context.record.note(|facts| facts.request.user = Some(name.as_bytes().into()));
            Ok(vec![(basic.header.clone(), name.into_bytes())])
        }
        outcome => Err(refusal(basic, outcome)),
    }
}

/// The refusal of a client by the outcome of its login.
fn refusal(basic: &BasicAuth, outcome: LoginOutcome) -> ErrorReply {
    let later = |status, cause: Cause, seconds| {
        let refusal = ErrorReply::new(status, cause);
        ErrorReply { retry_after: Some(seconds), ..refusal }
    };
    match outcome {
        LoginOutcome::Wait(wait) => {
            // Rounded up, so that a client that waits as long is looked at.
            let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1);
            later(StatusCode::TOO_MANY_REQUESTS, Cause::TooManyLogins, seconds)
        }
        LoginOutcome::Busy => later(StatusCode::SERVICE_UNAVAILABLE, Cause::LoginsFull, AGAIN),
        LoginOutcome::Right | LoginOutcome::Wrong => {
            let refusal = ErrorReply::new(StatusCode::UNAUTHORIZED, Cause::Unauthorized);
            refusal.with_field(b"www-authenticate", &*basic.challenge)
        }
    }
}

/// The name and the password that a request has; nothing where it has none, or several.
fn credentials(fields: &Fields) -> Option<(String, Zeroizing<Vec<u8>>)> {
    let mut values = fields.named(b"authorization");
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, encoded) = value.split_at_checked("basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"basic ") || encoded.len() > LONGEST {
        return None;
    }
    let decoded = Zeroizing::new(BASE64.decode(encoded.trim_ascii()).ok()?);
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&decoded[..colon]).ok()?;
    // A name of a file has none, so that no user is kept out; the event and the server never see one.
    if name.chars().any(char::is_control) {
        return None;
    }
    Some((name.to_owned(), Zeroizing::new(decoded[colon + 1..].to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Option<(String, Vec<u8>)> {
        let fields: Fields = values.iter().map(|value| ("authorization", *value)).collect();
        credentials(&fields).map(|(name, password)| (name, password.to_vec()))
    }

    #[test]
    fn names_and_passwords_are_found() {
        let anna = Some(("anna".to_owned(), b"s:e".to_vec()));
        for value in ["Basic YW5uYTpzOmU=", "basic YW5uYTpzOmU", "BASIC   YW5uYTpzOmU= "] {
            assert_eq!(of(&[value]), anna, "{value}");
        }
        assert_eq!(of(&["Basic Og=="]), Some((String::new(), Vec::new())));
    }

    #[test]
    fn who_is_not_let_in_learns_when_to_come_again() {
        let users = crate::credentials::Users::parse("").unwrap();
        let header = http::HeaderName::from_static("remote-user");
        let basic = BasicAuth { users: users.into(), challenge: "Basic realm=\"a\"".into(), header };
        let waits = |milliseconds| LoginOutcome::Wait(std::time::Duration::from_millis(milliseconds));
        for (outcome, status, retry_after, cause) in [
            (LoginOutcome::Wrong, 401, None, Cause::Unauthorized),
            (LoginOutcome::Busy, 503, Some(1), Cause::LoginsFull),
            (waits(1), 429, Some(1), Cause::TooManyLogins),
            (waits(1001), 429, Some(2), Cause::TooManyLogins),
        ] {
            let refusal = refusal(&basic, outcome);
            assert_eq!((refusal.status.as_u16(), refusal.retry_after), (status, retry_after), "{outcome:?}");
            assert_eq!(refusal.close.cause, cause);
        }
    }

    #[test]
    fn what_is_none_is_none() {
        let long = format!("Basic {}", "A".repeat(LONGEST + 1));
        for values in [
            &[][..],
            &[""],
            &["Basic"],
            &["Basic "],
            &["Basic !!!!"],
            &["Bearer YW5uYTpzOmU="],
            // No colon; a name that is not UTF-8; one with a line feed.
            &["Basic YW5uYQ=="],
            &["Basic /zpz"],
            &["Basic YQpiOmM="],
            &["Basic YW5uYTpzOmU=", "Basic YW5uYTpzOmU="],
            &[&long],
        ] {
            assert_eq!(of(values), None, "{values:?}");
        }
    }
}
