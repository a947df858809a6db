//! Answers of authorities as the ACME library wants them. It reads whole documents strictly; RFC 8555 does not, and some
//! authorities write `null` for what they do not have, or kinds of challenges with parts of their own. What nothing here
//! uses must not end an order, so it is taken out before the library looks. What is used stays as it came.

use serde_json::{Map, Value, json};

/// The document with what cannot be read taken out, if there was something to do.
pub(super) fn repaired(body: &[u8], is_problem: bool) -> Option<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    let before = document.clone();
    let members = document.as_object_mut()?;
    if is_problem {
        problem(members);
    } else if members.contains_key("newNonce") {
        directory(members);
    } else if members.contains_key("challenges") || members.contains_key("identifier") {
        authorization(members);
    } else if members.contains_key("finalize") || members.contains_key("authorizations") {
        order(members);
    } else if members.contains_key("suggestedWindow") {
        keep_if(members, "explanationURL", Value::is_string);
    } else if members.contains_key("token") || members.contains_key("url") {
        challenge(members);
        default(members, "status", || "processing".into());
    }
    (document != before).then(|| document.to_string().into_bytes())
}

/// The directory (RFC 8555 section 7.1.1).
fn directory(members: &mut Map<String, Value>) {
    for optional in ["newAuthz", "revokeCert", "keyChange", "renewalInfo"] {
        keep_if(members, optional, Value::is_string);
    }
    keep_if(members, "meta", Value::is_object);
    let Some(meta) = members.get_mut("meta").and_then(Value::as_object_mut) else { return };
    keep_if(meta, "profiles", Value::is_object);
    let Some(profiles) = meta.get_mut("profiles").and_then(Value::as_object_mut) else { return };
    for description in profiles.values_mut().filter(|description| !description.is_string()) {
        // The name is what matters.
        *description = "".into();
    }
}

/// An order (RFC 8555 section 7.1.3).
fn order(members: &mut Map<String, Value>) {
    for optional in ["certificate", "replaces", "profile"] {
        keep_if(members, optional, Value::is_string);
    }
    let status = members.get("status").and_then(Value::as_str).unwrap_or_default().to_owned();
    match status.as_str() {
        "invalid" => error(members),
        // The state says that it goes on.
        _ => drop(members.remove("error")),
    }
    if status != "pending" {
        keep_if(members, "authorizations", Value::is_array);
        default(members, "authorizations", || json!([]));
    }
    if status == "valid" {
        keep_if(members, "finalize", Value::is_string);
        default(members, "finalize", || "".into());
    }
}

/// An authorization (RFC 8555 section 7.1.4).
fn authorization(members: &mut Map<String, Value>) {
    keep_if(members, "wildcard", Value::is_boolean);
    keep_if(members, "challenges", Value::is_array);
    default(members, "challenges", || json!([]));
    let Some(challenges) = members.get_mut("challenges").and_then(Value::as_array_mut) else { return };
    challenges.retain_mut(|one| {
        let Some(members) = one.as_object_mut() else { return false };
        challenge(members);
        let is_text = |name: &str| members.get(name).is_some_and(Value::is_string);
        is_text("type") && is_text("url") && is_text("status")
    });
}

/// RFC 8555 section 7.1.5. A status that does not exist is as good as none.
fn challenge(members: &mut Map<String, Value>) {
    let is_status =
        |status: &Value| matches!(status.as_str(), Some("pending" | "processing" | "valid" | "invalid"));
    keep_if(members, "status", is_status);
    keep_if(members, "token", Value::is_string);
    error(members);
}

/// An error that says nothing is none.
fn error(members: &mut Map<String, Value>) {
    let says_something = |error: &Value| ["type", "detail"].iter().any(|part| error[part].is_string());
    keep_if(members, "error", says_something);
    members.get_mut("error").and_then(Value::as_object_mut).into_iter().for_each(problem);
}

/// RFC 7807, and RFC 8555 section 6.7.1.
fn problem(members: &mut Map<String, Value>) {
    for text in ["type", "detail"] {
        keep_if(members, text, Value::is_string);
    }
    keep_if(members, "status", |status| status.as_u64().is_some_and(|status| status <= u16::MAX.into()));
    keep_if(members, "subproblems", Value::is_array);
    let Some(subproblems) = members.get_mut("subproblems").and_then(Value::as_array_mut) else { return };
    subproblems.retain_mut(|one| {
        let Some(members) = one.as_object_mut() else { return false };
        for text in ["type", "detail"] {
            keep_if(members, text, Value::is_string);
        }
        let is_name = |identifier: &Value| identifier["type"] == "dns" && identifier["value"].is_string();
        keep_if(members, "identifier", is_name);
        true
    });
}

/// Removes a member that is not as it should be.
fn keep_if(members: &mut Map<String, Value>, name: &str, is_sound: impl Fn(&Value) -> bool) {
    if members.get(name).is_some_and(|value| !is_sound(value)) {
        members.remove(name);
    }
}

fn default(members: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
    if !members.contains_key(name) {
        members.insert(name.to_owned(), value());
    }
}

#[cfg(test)]
mod tests {
    use instant_acme::{AuthorizationState, Challenge, ChallengeType, OrderState, Problem};
    use serde::de::DeserializeOwned;

    use super::*;

    /// The document as the library reads it.
    fn read<T: DeserializeOwned>(document: &Value, is_problem: bool) -> Result<T, serde_json::Error> {
        let body = document.to_string();
        let repaired = repaired(body.as_bytes(), is_problem).unwrap_or_else(|| body.into_bytes());
        serde_json::from_slice(&repaired)
    }

    /// A document with some members replaced; `null` in `gone` removes one.
    fn with(mut document: Value, more: &Value) -> Value {
        for (name, value) in more.as_object().unwrap() {
            document[name] = value.clone();
        }
        document
    }

    #[test]
    fn what_is_sound_stays_as_it_came() {
        for sound in [
            json!({ "newNonce": "n", "newAccount": "a", "newOrder": "o", "meta": { "profiles": { "a": "b" } } }),
            json!({ "status": "pending", "finalize": "f", "authorizations": ["a"], "expires": "2090-01-01T00:00:00Z" }),
            json!({ "status": "invalid", "finalize": "f", "authorizations": [], "error": { "type": "t", "detail": "d" } }),
            json!({ "status": "pending", "identifier": { "type": "dns", "value": "a.test" }, "challenges": [
                { "type": "http-01", "url": "u", "token": "t", "status": "pending" } ] }),
            json!({ "type": "http-01", "url": "u", "token": "t", "status": "valid", "validated": "x" }),
        ] {
            assert_eq!(repaired(sound.to_string().as_bytes(), false), None, "{sound}");
        }
        for none in [&b"-----BEGIN CERTIFICATE-----"[..], b"", b"[]", b"7", b"{"] {
            assert_eq!(repaired(none, false), None);
        }
    }

    #[test]
    fn odd_orders_are_read() {
        let order = json!({ "status": "ready", "finalize": "f", "authorizations": [] });
        for odd in [
            json!({ "error": {} }),
            json!({ "error": null }),
            json!({ "error": "" }),
            json!({ "error": { "type": null, "detail": null } }),
            json!({ "error": [] }),
            json!({ "certificate": null, "replaces": null, "profile": null }),
            json!({ "certificate": false, "replaces": 7, "profile": {} }),
            json!({ "authorizations": null }),
            json!({ "status": "valid", "finalize": null, "certificate": "c" }),
            json!({ "status": "valid", "error": { "type": "t", "detail": "of an attempt before" } }),
            json!({ "status": "invalid", "error": {} }),
        ] {
            let state = read::<OrderState>(&with(order.clone(), &odd), false);
            let state = state.unwrap_or_else(|error| panic!("{odd}: {error}"));
            assert!(state.error.is_none(), "{odd}");
        }
        let invalid = json!({ "status": "invalid", "error": { "type": "t", "detail": "d", "status": "400",
            "subproblems": [null, { "detail": "s", "identifier": { "type": "x", "value": 1 } }] } });
        let state = read::<OrderState>(&with(order, &invalid), false).unwrap();
        assert!(state.error.unwrap().to_string().contains("d (t): 1 subproblems: : s"));
    }

    #[test]
    fn odd_authorizations_are_read_and_the_challenges_that_can_be_used_are_there() {
        let used = json!({ "type": "http-01", "url": "u", "token": "t", "status": "pending" });
        let whole = json!({ "status": "pending", "identifier": { "type": "dns", "value": "a.test" },
            "challenges": [used] });
        for odd in [
            json!(null),
            json!("a challenge"),
            json!({}),
            json!({ "type": null, "url": null, "token": null, "status": null }),
            json!({ "type": "dns-persist-01", "url": "u", "status": "pending", "token": null }),
            json!({ "type": "dns-account-01", "url": "u", "status": "waiting", "issuer-domain-names": [] }),
            json!({ "type": "dns-01", "url": 7, "token": "t", "status": "pending" }),
            json!({ "type": { "name": "x" }, "url": "u", "token": "t", "status": "pending" }),
            json!({ "type": "tls-alpn-01", "url": "u", "token": ["t"], "status": "pending", "error": {} }),
            json!({ "type": "dns-01", "url": "u", "token": "t", "status": "invalid", "error": "no" }),
        ] {
            for challenges in [json!([odd, used]), json!([used, odd])] {
                let document = with(whole.clone(), &json!({ "challenges": challenges }));
                let state = read::<AuthorizationState>(&document, false);
                let state = state.unwrap_or_else(|error| panic!("{odd}: {error}"));
                let found = state.challenges.iter().find(|one| one.r#type == ChallengeType::Http01).unwrap();
                assert_eq!((found.token.as_str(), found.url.as_str()), ("t", "u"), "{odd}");
                assert!(state.challenges.iter().all(|one| one.error.is_none()), "{odd}");
            }
        }
        for odd in [
            json!({ "wildcard": null }),
            json!({ "wildcard": "false" }),
            json!({ "expires": null }),
            json!({ "status": "valid", "challenges": null }),
        ] {
            read::<AuthorizationState>(&with(whole.clone(), &odd), false)
                .unwrap_or_else(|error| panic!("{odd}: {error}"));
        }
    }

    #[test]
    fn the_answer_to_a_challenge_is_read() {
        let answer = json!({ "type": "http-01", "url": "u", "token": "t", "status": "processing" });
        for odd in [
            json!({ "error": {} }),
            json!({ "error": null, "validated": null }),
            json!({ "token": null }),
            json!({ "status": null }),
            json!({ "status": "queued" }),
        ] {
            let read = read::<Challenge>(&with(answer.clone(), &odd), false);
            assert!(read.unwrap_or_else(|error| panic!("{odd}: {error}")).error.is_none(), "{odd}");
        }
    }

    #[test]
    fn odd_problems_are_read() {
        for odd in [
            json!({ "type": "t", "detail": null, "status": "403", "subproblems": null }),
            json!({ "type": "t", "status": 70_000, "subproblems": [7, { "identifier": null }] }),
            json!({ "type": "t", "subproblems": [{ "identifier": { "type": "email", "value": "a@b" }, "type": 1 }] }),
        ] {
            let problem = read::<Problem>(&odd, true).unwrap_or_else(|error| panic!("{odd}: {error}"));
            assert_eq!(problem.r#type.as_deref(), Some("t"), "{odd}");
        }
    }
}
