use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::*;

/// Of RFC 7515, appendix A.2 and A.3: the keys, what is signed, and the signatures.
const MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
const PAYLOAD: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
const BY_RSA: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const BY_EC: &str = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

/// When the tokens of the RFC end.
const END: u64 = 1_300_819_380;
const NOW: u64 = 1_000_000_000;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn rules() -> JwtRules {
    JwtRules {
        issuer: None,
        audience: JwtAudience::Unnamed,
        leeway: Duration::from_secs(60),
        headers: Vec::new(),
        keep_tunnels: false,
    }
}

fn encoded(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// Who signs with Ed25519, or with P-256.
struct Issuer(Ed25519KeyPair, EcdsaKeyPair);

impl Issuer {
    fn new() -> Self {
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self(Ed25519KeyPair::generate().unwrap(), ec)
    }

    /// The key of a set.
    fn key(&self, id: &str) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": encoded(self.0.public_key()) })
    }

    fn ec_key(&self) -> Value {
        let point = self.1.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..]) })
    }

    fn token(&self, head: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encoded(head.to_string()), encoded(claims.to_string()));
        let signature = if head["alg"] == "ES256" {
            self.1.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec()
        } else {
            self.0.sign(message.as_bytes()).as_ref().to_vec()
        };
        format!("{message}.{}", encoded(signature))
    }
}

fn key_set(keys: &[Value]) -> Arc<KeySet> {
    Arc::new(KeySet::parse(&json!({ "keys": keys }).to_string()).unwrap())
}

fn set(keys: &[Value]) -> KeySource {
    KeySource::Fixed(key_set(keys))
}

fn wrong(keys: &[Value]) -> Vec<String> {
    KeySet::parse(&json!({ "keys": keys }).to_string()).unwrap_err()
}

fn rsa(modulus: &str, exponent: &str) -> Value {
    json!({ "kty": "RSA", "n": modulus, "e": exponent })
}

#[test]
fn the_tokens_of_the_rfc_are_believed_until_they_end() {
    let ec = json!({ "kty": "EC", "crv": "P-256", "x": X, "y": Y });
    let jwt = Jwt::new(set(&[rsa(MODULUS, "AQAB"), ec]), rules());
    for (head, signature) in [("{\"alg\":\"RS256\"}", BY_RSA), ("{\"alg\":\"ES256\"}", BY_EC)] {
        let token = format!("{}.{PAYLOAD}.{signature}", encoded(head));
        let believed = jwt.check(&token, at(NOW)).unwrap();
        assert_eq!((believed.user, believed.fields.len()), (None, 0));
        assert!(jwt.check(&token, at(END + 59)).is_ok());
        assert_eq!(jwt.check(&token, at(END + 60)), Err("the token has ended"));
        // Each other letter makes it wrong.
        let changed = token.replacen(".DtE", ".DtF", 1).replacen(".cC4", ".cC5", 1);
        assert_eq!(jwt.check(&changed, at(NOW)), Err("the signature of the token is wrong"));
    }
    let mixed = format!("{}.{PAYLOAD}.{BY_RSA}", encoded("{\"alg\":\"ES256\"}"));
    assert_eq!(jwt.check(&mixed, at(NOW)), Err("the signature of the token is wrong"));
}

#[test]
fn claims_must_be_for_here_and_now() {
    let issuer = Issuer::new();
    let rules = JwtRules {
        issuer: Some("https://idp.example.org".to_owned()),
        audience: JwtAudience::OneOf(vec!["www".to_owned(), "api".to_owned()]),
        headers: vec![
            (HeaderName::from_static("remote-user"), "sub".to_owned()),
            (HeaderName::from_static("remote-groups"), "/realm/groups".to_owned()),
            (HeaderName::from_static("remote-email"), "email".to_owned()),
        ],
        ..rules()
    };
    let jwt = Jwt::new(set(&[issuer.key("a"), issuer.ec_key()]), rules);
    let good = json!({
        "iss": "https://idp.example.org", "aud": ["other", "api"], "sub": "anna", "exp": END, "nbf": NOW,
        "realm": { "groups": ["a", "b"] },
    });
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let check = |claims: &Value, now: u64| {
        let token = issuer.token(&json!({ "alg": "EdDSA", "kid": "a" }), claims);
        jwt.check(&token, at(now))
    };
    let believed = check(&good, NOW).unwrap();
    let fields: Vec<_> = believed.fields.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
    assert_eq!(fields, [("remote-user", &b"anna"[..]), ("remote-groups", &b"a,b"[..])]);
    assert_eq!(believed.user.as_deref(), Some(&b"anna"[..]));
    assert!(jwt.check(&issuer.token(&json!({ "alg": "ES256" }), &good), at(NOW)).is_ok());
    for (claims, now, why) in [
        (good.clone(), NOW - 60, Ok(())),
        (good.clone(), NOW - 61, Err("the token has not begun")),
        (with("exp", json!(NOW as f64 + 0.5)), NOW + 60, Ok(())),
        (with("exp", Value::Null), NOW, Err("a time of the token is not a number")),
        (with("exp", json!("4102444800")), NOW, Err("a time of the token is not a number")),
        (with("exp", json!(-1e300)), NOW, Err("the token has ended")),
        (with("nbf", json!(1e300)), NOW, Err("the token has not begun")),
        (with("iss", json!("https://idp.example.org/")), NOW, Err("the token has another issuer")),
        (with("iss", json!(["https://idp.example.org"])), NOW, Err("the token has another issuer")),
        (with("aud", json!("www")), NOW, Ok(())),
        (with("aud", json!("web")), NOW, Err("the token has another audience")),
        (with("aud", json!([])), NOW, Err("the token has another audience")),
        (with("aud", json!({ "www": 1 })), NOW, Err("the token has another audience")),
    ] {
        assert_eq!(check(&claims, now).map(drop), why, "{claims}");
    }
    let mut endless = good.clone();
    endless.as_object_mut().unwrap().remove("exp");
    assert_eq!(check(&endless, NOW), Err("the token has no exp"));
}

#[test]
fn a_token_for_somebody_is_refused_where_nobody_said_who_this_is() {
    let issuer = Issuer::new();
    let check = |audience: JwtAudience, claims: &Value| {
        let jwt = Jwt::new(set(&[issuer.key("a")]), JwtRules { audience, ..rules() });
        jwt.check(&issuer.token(&json!({ "alg": "EdDSA" }), claims), at(NOW)).map(drop)
    };
    assert_eq!(check(JwtAudience::Unnamed, &json!({ "exp": END })), Ok(()));
    assert_eq!(check(JwtAudience::Anybody, &json!({ "exp": END })), Ok(()));
    for audience in [json!("www"), json!(["www", "api"]), json!([]), json!(""), json!(null), json!(1)] {
        let claims = json!({ "exp": END, "aud": audience });
        let refused = Err("the token is for an audience, and `audience` is not set");
        assert_eq!(check(JwtAudience::Unnamed, &claims), refused, "{claims}");
        assert_eq!(check(JwtAudience::Anybody, &claims), Ok(()), "{claims}");
    }
}

#[test]
fn tokens_of_other_types_are_refused() {
    let issuer = Issuer::new();
    let jwt = Jwt::new(set(&[issuer.key("a")]), rules());
    let check = |head: Value| jwt.check(&issuer.token(&head, &json!({ "exp": END })), at(NOW)).map(drop);
    for kind in
        ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "Application/AT+jwt", "application/jwt"]
    {
        for algorithm in ["EdDSA", "Ed25519"] {
            assert_eq!(check(json!({ "alg": algorithm, "typ": kind })), Ok(()), "{kind}");
        }
    }
    for kind in [
        json!("logout+jwt"),
        json!("secevent+jwt"),
        json!("application/"),
        json!("application/application/jwt"),
        json!("text/jwt"),
        json!("JWT "),
        json!(""),
        json!(null),
        json!(["JWT"]),
    ] {
        let head = json!({ "alg": "EdDSA", "typ": kind });
        assert_eq!(check(head), Err("the type of the token is not JWT or at+jwt"), "{kind}");
    }
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    let issuer = Issuer::new();
    let jwt = Jwt::new(set(&[issuer.key("a")]), rules());
    let check = |head: &str, claims: &str| {
        let message = format!("{}.{}", encoded(head), encoded(claims));
        let signature = issuer.0.sign(message.as_bytes());
        jwt.check(&format!("{message}.{}", encoded(signature.as_ref())), at(NOW)).map(drop)
    };
    let (head, claims) = (r#"{"alg":"EdDSA"}"#, r#"{"exp":1300819380}"#);
    assert_eq!(check(head, claims), Ok(()));
    for (head, claims) in [
        (r#"{"alg":"EdDSA","alg":"EdDSA"}"#, claims),
        (head, r#"{"exp":1300819380,"exp":1300819380}"#),
        (head, r#"{"exp":1,"\u0065xp":1300819380}"#),
        (head, r#"{"exp":1300819380,"sub":"a","sub":"b"}"#),
    ] {
        assert_eq!(check(head, claims), Err("this is no token"), "{head} {claims}");
    }
}

#[test]
fn a_token_says_when_its_tunnels_end() {
    let issuer = Issuer::new();
    let end = |exp: Value, keep_tunnels: bool| {
        let jwt = Jwt::new(set(&[issuer.key("a")]), JwtRules { keep_tunnels, ..rules() });
        jwt.check(&issuer.token(&json!({ "alg": "EdDSA" }), &json!({ "exp": exp })), at(NOW))
            .unwrap()
            .tunnel_end
    };
    assert_eq!(end(json!(END), false), Some(at(END + 60)));
    assert_eq!(end(json!(END as f64 + 0.5), false), Some(at(END + 60) + Duration::from_millis(500)));
    assert_eq!((end(json!(1e300), false), end(json!(END), true)), (None, None));
}

#[test]
fn what_a_token_says_of_its_own_check_is_not_believed() {
    let (issuer, stranger) = (Issuer::new(), Issuer::new());
    let jwt = Jwt::new(set(&[issuer.key("a"), issuer.ec_key()]), rules());
    let claims = json!({ "exp": END });
    let good = issuer.token(&json!({ "alg": "EdDSA" }), &claims);
    assert!(jwt.check(&good, at(NOW)).is_ok());
    for (head, why) in [
        (json!({ "alg": "EdDSA", "kid": "b" }), "no key of the set is for this token"),
        (json!({ "alg": "EdDSA", "kid": 1 }), "the kid of the token is not a text"),
        (json!({ "alg": "EdDSA", "crit": ["b64"], "b64": false }), "the token has extensions"),
        (json!({ "alg": "none" }), "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (json!({ "alg": "HS256" }), "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (json!({ "alg": "ES384" }), "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (json!({ "alg": "eddsa" }), "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (json!({ "kid": "a" }), "the algorithm of the token is not RS256, ES256 or EdDSA"),
        (json!({ "alg": "RS256" }), "no key of the set is for this token"),
    ] {
        assert_eq!(jwt.check(&issuer.token(&head, &claims), at(NOW)), Err(why), "{head}");
    }
    // One that brings its own key.
    let head = json!({ "alg": "EdDSA", "jwk": stranger.key("a"), "jku": "https://evil.example/keys" });
    assert_eq!(
        jwt.check(&stranger.token(&head, &claims), at(NOW)),
        Err("the signature of the token is wrong")
    );
    let (front, signature) = good.rsplit_once('.').unwrap();
    for token in [
        "",
        "...",
        "a.b.c",
        front,
        &format!("{front}."),
        &format!("{good}="),
        &format!("{good}.{signature}"),
        &format!(".{good}"),
        &format!("[].{front}"),
        &format!("{}.{}.{signature}", encoded("[]"), encoded("{}")),
        &format!("{}.{}.{signature}", encoded("{\"alg\":\"EdDSA\"}"), encoded("[".repeat(3000))),
    ] {
        assert!(jwt.check(token, at(NOW)).is_err(), "{token}");
    }
    let huge = json!({ "exp": END, "x": "x".repeat(TOKEN_MAX) });
    let huge = issuer.token(&json!({ "alg": "EdDSA" }), &huge);
    assert_eq!(jwt.check(&huge, at(NOW)), Err("the token is longer than 8 KiB"));
}

#[test]
fn a_token_without_a_key_id_costs_a_few_signatures_at_most() {
    let issuer = Issuer::new();
    let mut keys: Vec<Value> = (0..TRIES).map(|id| Issuer::new().key(&id.to_string())).collect();
    keys.push(issuer.key("last"));
    let jwt = Jwt::new(set(&keys), rules());
    let token = |head: Value| issuer.token(&head, &json!({ "exp": END }));
    assert!(jwt.check(&token(json!({ "alg": "EdDSA", "kid": "last" })), at(NOW)).is_ok());
    assert!(jwt.check(&token(json!({ "alg": "EdDSA" })), at(NOW)).is_err());
}

#[test]
fn keys_that_are_wrong_or_too_large_are_refused() {
    let issuer = Issuer::new();
    let (mut not_on_curve, mut private) = (issuer.ec_key(), issuer.key("a"));
    not_on_curve["y"] = json!(encoded([1; 32]));
    private["d"] = json!("AA");
    let mut short = issuer.key("a");
    short["x"] = json!("AAAA");
    let large = |bytes: usize| encoded(vec![0xc1; bytes]);
    for (key, what) in [
        (json!({ "kty": "oct", "k": "AA", "kid": "s" }), "key 1 (`s`): it is a secret"),
        (private, "key 1 (`a`): it is a private key"),
        (not_on_curve, "no point of P-256"),
        (short, "32 bytes"),
        (rsa(&large(128), "AQAB"), "2048 to 4096 bits, and this one 1024"),
        (rsa(&large(1024), "AQAB"), "2048 to 4096 bits, and this one 8192"),
        (rsa("", "AQAB"), "this one 0"),
        (rsa("!", "AQAB"), "`n` is no base64url"),
        (rsa(MODULUS, "AQ"), "no exponent"),
        (rsa(MODULUS, "AQAA"), "no exponent"),
        (rsa(MODULUS, "AQAAAAAB"), "no exponent"),
        (json!(1), "no object"),
        (json!({ "kty": "EC", "crv": "P-384", "x": "AA", "y": "AA" }), "no key is for signatures"),
        (json!({ "kty": "RSA", "alg": "RS512", "n": MODULUS, "e": "AQAB" }), "no key is for signatures"),
        (json!({ "kty": "RSA", "use": "enc", "n": MODULUS, "e": "AQAB" }), "no key is for signatures"),
    ] {
        let said = wrong(std::slice::from_ref(&key));
        assert!(said.len() == 1 && said[0].contains(what), "{key}: {said:?}");
    }
    // All at once; and what is for others does no harm.
    assert_eq!(wrong(&[json!(1), issuer.key("b"), rsa("", "")]).len(), 2);
    let other = json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" });
    assert_eq!(key_set(&[other, issuer.key("b")]).count(), 1);
    for text in ["", "{", "[]", "{}", "{\"keys\": 1}", "{\"keys\": []}"] {
        assert!(KeySet::parse(text).is_err(), "{text}");
    }
    assert!(KeySet::parse("{\n\"keys\": x}").unwrap_err()[0].contains("line 2 column 9"));
    assert!(wrong(&vec![issuer.key("a"); 65])[0].contains("64 keys"));
}

#[tokio::test]
async fn tokens_are_remembered_by_keys_and_rules() {
    let issuer = Issuer::new();
    let (keys, known) = (set(&[issuer.key("a")]), KnownTokens::default());
    let jwt = Jwt::new(keys.clone(), rules());
    let token = issuer.token(&json!({ "alg": "EdDSA" }), &json!({ "exp": 4_102_444_800_u64 }));
    let first = known.check(&jwt, &token, None).await.unwrap();
    let again = known.known(&jwt, &token).unwrap().unwrap();
    assert!(std::rc::Rc::ptr_eq(&first, &again), "it was not checked again");
    // Others know nothing of it.
    let strict = Jwt::new(keys, JwtRules { audience: JwtAudience::OneOf(vec!["www".to_owned()]), ..rules() });
    assert_eq!(
        known.check(&strict, &token, None).await,
        Err(Disbelief::Wrong("the token has another audience"))
    );
    let stranger = Jwt::new(set(&[Issuer::new().key("a")]), rules());
    let wrong = Err(Disbelief::Wrong("the signature of the token is wrong"));
    assert_eq!(known.check(&stranger, &token, None).await, wrong);
    let changed = token.replacen('.', "A.", 1);
    assert!(known.check(&jwt, &changed, None).await.is_err());
}

#[tokio::test]
async fn fetched_keys_come_go_and_are_asked_for() {
    let (old, new) = (Issuer::new(), Issuer::new());
    let (fetched, known) = (Arc::new(FetchedKeys::default()), KnownTokens::default());
    let jwt = Jwt::new(KeySource::Fetched(Arc::clone(&fetched)), rules());
    let token = |issuer: &Issuer, id: &str| {
        issuer.token(&json!({ "alg": "EdDSA", "kid": id }), &json!({ "exp": 4_102_444_800_u64 }))
    };
    let (first, second) = (token(&old, "a"), token(&new, "b"));
    assert_eq!(known.known(&jwt, &first), Err(Disbelief::NoKeys));
    assert_eq!(known.check(&jwt, &first, None).await, Err(Disbelief::NoKeys));
    fetched.set(key_set(&[old.key("a")]));
    assert!(known.check(&jwt, &first, None).await.is_ok());
    // The token of another key has the keys fetched, and is let in by those that come.
    let fetch = async {
        fetched.asked().await;
        fetched.begin();
        tokio::time::sleep(Duration::from_millis(20)).await;
        fetched.set(key_set(&[old.key("a"), new.key("b")]));
        fetched.end(true);
    };
    assert!(tokio::join!(known.check(&jwt, &second, None), fetch).0.is_ok());
    assert!(known.check(&jwt, &second, None).await.is_ok() && known.check(&jwt, &first, None).await.is_ok());
    // Others are refused at once for a while, and a wrong signature of a known key asks for nothing.
    let refused = |why| Err(Disbelief::Wrong(why));
    assert_eq!(
        known.check(&jwt, &token(&new, "c"), None).await,
        refused("no key of the set is for this token")
    );
    fetched.rested();
    let stolen = token(&Issuer::new(), "a");
    assert_eq!(known.check(&jwt, &stolen, None).await, refused("the signature of the token is wrong"));
    // A key that the issuer takes back is believed no more, though its tokens were remembered.
    fetched.set(key_set(&[new.key("b")]));
    fetched.end(true);
    assert!(known.check(&jwt, &first, None).await.is_err() && known.check(&jwt, &second, None).await.is_ok());
}
