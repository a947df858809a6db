//! `jwt`: who has a token that is believed enters, and servers learn what it says.

use std::fs;

use offramp_testkit::server::{Listen, Server};

use crate::reload_loses_no_request::reload;
use crate::support::http_app::{Seen, named};
use crate::support::http_curl::{HTTP, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};
use crate::support::offramp::{output, stderr};
use crate::support::signed_tokens::{
    AUDIENCE, EARLY, ED_KEY, EDDSA, ENDED, ES256, ES384, HS256, ISSUER, KEYS, NONE, RS256, STRANGER,
    TokenSigner,
};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];
const RULES: &str = "jwt = { jwks = \"keys.json\", issuer = \"https://idp.example.org\", audience = [\"www\", \"api\"], \
                     headers = { Remote-User = \"sub\", Remote-Groups = \"groups\", X-Email = \"email\" } }";

fn served(keys: &str, rules: &str) -> (Server, Seen, Instance) {
    let home = Home::new();
    let (app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    fs::write(home.file("keys.json"), keys).unwrap();
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n{rules}\n"));
    (app, seen, instance)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

#[test]
fn a_token_of_each_algorithm_enters_and_servers_learn_its_claims() {
    let (_app, seen, instance) = served(KEYS, RULES);
    for version in VERSIONS {
        for token in [RS256, ES256, EDDSA] {
            let token = bearer(token);
            let claims = ["Remote-User: root", "Remote_Groups: wheel", "X-Email: root@localhost"];
            let fields = claims.into_iter().chain([&*token]).flat_map(|field| ["--header", field]);
            let arguments: Vec<&str> = [version].into_iter().chain(fields).collect();
            // The second one is remembered.
            assert_eq!(get(&instance, &arguments, "https://localhost/[1-2]").status(), 200);
            for request in seen.take() {
                assert_eq!(request.field("remote-user"), "anna");
                assert_eq!(request.field("remote-groups"), "staff,ops");
                for name in ["remote_groups", "x-email", "authorization"] {
                    assert_eq!(request.field(name), "", "{name}");
                }
            }
        }
    }
    let events = instance.stop();
    assert!(events.len() == 12 && events.iter().all(|event| event["user"] == "anna"), "{events:?}");
}

#[test]
fn every_other_token_is_refused_and_events_say_why() {
    let (_app, seen, instance) = served(KEYS, RULES);
    let long = format!("{}.{EDDSA}", "A".repeat(9000));
    let tokens = [
        (ENDED, "the token has ended"),
        (EARLY, "the token has not begun"),
        (ISSUER, "the token has another issuer"),
        (AUDIENCE, "the token has another audience"),
        (STRANGER, "the signature of the token is wrong"),
        (NONE, "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (HS256, "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (ES384, "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (&long, "the token is longer than 8 KiB"),
        ("a.b.c", "this is no token"),
    ];
    for version in VERSIONS {
        let answer = get(&instance, &[version], "https://localhost/");
        assert_eq!((answer.status(), answer.field("www-authenticate")), (401, "Bearer realm=\"restricted\""));
        for (token, why) in tokens {
            let answer = get(&instance, &[version, "--header", &bearer(token)], "https://localhost/");
            assert_eq!(answer.status(), 401, "{why}");
            let challenge = "Bearer realm=\"restricted\", error=\"invalid_token\"";
            assert_eq!(answer.field("www-authenticate"), challenge);
        }
    }
    assert!(seen.take().is_empty());
    let events = instance.stop();
    let mut said: Vec<&str> = events.iter().map(|event| text(event, "detail")).collect();
    let once = std::iter::once("no token").chain(tokens.map(|(_, why)| why));
    let mut expected: Vec<&str> = once.clone().chain(once).collect();
    // Workers write in any order.
    said.sort_unstable();
    expected.sort_unstable();
    assert_eq!(said, expected);
    assert!(events.iter().all(|event| cause(event) == "unauthorized"));
}

#[test]
fn the_token_goes_along_where_that_is_wanted_and_keys_change_by_a_reload() {
    let keys = "jwt = { jwks = \"keys.json\", audience = \"*\", keep_authorization = true }";
    let (_app, seen, instance) = served(ED_KEY, keys);
    let status = |token: &str| get(&instance, &["--header", &bearer(token)], "https://localhost/").status();
    assert_eq!((status(EDDSA), status(ISSUER), status(RS256)), (200, 200, 401));
    assert!(seen.take().iter().all(|request| request.field("authorization").starts_with("Bearer ey")));
    fs::write(instance.home.file("keys.json"), KEYS).unwrap();
    assert!(reload(&instance).contains(" reloaded "));
    assert_eq!(status(RS256), 200);
    fs::write(instance.home.file("keys.json"), "{\"keys\": [{\"kty\": \"oct\", \"k\": \"AA\"}, 1]}").unwrap();
    let outcome = reload(&instance);
    assert!(outcome.contains("reload refused") && outcome.contains("key 1: it is a secret"), "{outcome}");
    assert_eq!(status(RS256), 200);
    let check = output(instance.home.path(), &["check", "--config", "offramp.toml"]);
    let said = stderr(&check);
    assert!(
        !check.status.success() && said.contains("keys.json: key 1: ") && said.contains("key 2: "),
        "{said}"
    );
    instance.stop();
}

/// Nobody who is not named in a token may take it for one of theirs.
#[test]
fn what_a_token_says_of_its_purpose_counts() {
    let signer = TokenSigner::new();
    let end = "\"exp\":4102444800";
    let (plain, meant) = (format!("{{{end}}}"), format!("{{{end},\"aud\":[\"www\"]}}"));
    let head = r#"{"alg":"Ed25519","typ":"application/AT+jwt"}"#;
    for (audience, token, status, why) in [
        ("", signer.sign(head, &plain), 200, ""),
        ("", signer.sign(head, &meant), 401, "the token is for an audience, and `audience` is not set"),
        (", audience = \"*\"", signer.sign(head, &meant), 200, ""),
        (", audience = \"*\"", signer.sign(head, &plain), 200, ""),
        (", audience = \"www\"", signer.sign(head, &meant), 200, ""),
        (", audience = \"www\"", signer.sign(head, &plain), 401, "the token has another audience"),
        (
            "",
            signer.sign(r#"{"alg":"EdDSA","typ":"logout+jwt"}"#, &plain),
            401,
            "the type of the token is not JWT or at+jwt",
        ),
        ("", signer.sign(r#"{"alg":"EdDSA"}"#, &format!("{{\"exp\":1,{end}}}")), 401, "this is no token"),
    ] {
        let rules = format!("jwt = {{ jwks = \"keys.json\"{audience} }}");
        let (_app, _seen, instance) = served(&signer.keys(), &rules);
        for version in VERSIONS {
            let answer = get(&instance, &[version, "--header", &bearer(&token)], "https://localhost/");
            assert_eq!(answer.status(), status, "{audience} {why}");
        }
        let events = instance.stop();
        let told = |event| if status == 200 { "" } else { text(event, "detail") };
        assert!(events.iter().all(|event| told(event) == why), "{events:?}");
    }
}

#[test]
fn tokens_come_before_the_authentication_server() {
    let rules = format!("{RULES}\nforward_auth = {{ server = \"unix:nobody.sock\" }}");
    let (_app, seen, instance) = served(KEYS, &rules);
    for version in VERSIONS {
        let status = |arguments: &[&str]| {
            get(&instance, &[&[version][..], arguments].concat(), "https://localhost/").status()
        };
        assert_eq!((status(&[]), status(&["--header", &bearer(EDDSA)])), (401, 503));
    }
    assert!(seen.take().is_empty());
    instance.stop();
}
