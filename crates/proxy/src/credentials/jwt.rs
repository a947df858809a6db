//! JSON Web Tokens (RFC 7519) that others have signed: which are believed, and what they say.
//!
//! Signatures are RS256, ES256 and EdDSA (RFC 7518, RFC 8037), the last also by its name of RFC 9864, checked by the keys of a set ([`KeySet`]). The key decides on
//! the algorithm, and never the token alone (RFC 8725 §3.1): `none` and the symmetric algorithms do not exist here. Keys and
//! addresses of keys that a token brings itself are not looked at. Without I/O; the time is an argument.

mod claims;
mod keys;
mod source;
mod tokens;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderName;
use offramp_wire::json;
use serde_json::{Map, Value};

pub use keys::KeySet;
use keys::{JwsAlgorithm, VerifyingKey};
pub use source::{FetchedKeys, KeySource};
pub(crate) use tokens::KnownTokens;

/// The longest token, in bytes. Those of large directories have a few kilobytes.
const TOKEN_MAX: usize = 8 << 10;
/// Keys that are tried for a token that does not name one.
const TRIES: usize = 4;
/// The longest name of a user in events, in bytes.
const USER_MAX: usize = 255;

/// The tokens that a route believes, and the fields by which servers learn of them.
#[derive(Debug)]
pub struct Jwt {
    keys: KeySource,
    rules: JwtRules,
    /// Differs where rules differ.
    identity: Box<[u8]>,
}

/// The claims that a token must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtRules {
    /// The required issuer; `None`: any with a key in the set.
    pub issuer: Option<String>,
    /// Required audience of tokens.
    pub audience: JwtAudience,
    /// By how much clocks may differ.
    pub leeway: Duration,
    /// Tunnels go on when the token that opened them has ended.
    pub keep_tunnels: bool,
    /// The fields that servers get, and the claim or the JSON pointer of each.
    pub headers: Vec<(HeaderName, String)>,
}

/// Required audience of a token (RFC 7519 §4.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtAudience {
    /// No audience: a recipient that does not find itself in `aud` must refuse the token.
    Unnamed,
    /// For one of these.
    OneOf(Vec<String>),
    /// Tokens for any audience.
    Anybody,
}

/// A token that is believed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    /// Its subject, for events.
    pub(crate) user: Option<Box<[u8]>>,
    /// The fields that servers get.
    pub(crate) fields: Vec<(HeaderName, Vec<u8>)>,
    /// Its end in seconds since 1970, with the leeway.
    ends: f64,
    /// The end of a tunnel that the token opens; `None`: it may go on.
    pub(crate) tunnel_end: Option<SystemTime>,
}

/// The reason for which a token is not believed, for events.
pub(crate) type Why = &'static str;

/// The refusal of a request with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disbelief {
    /// The token is not believed.
    Wrong(Why),
    /// There are no keys yet.
    NoKeys,
    /// Too many tokens wait to be checked.
    Busy,
}

impl From<Why> for Disbelief {
    fn from(why: Why) -> Self {
        Self::Wrong(why)
    }
}

/// A token that has everything but a signature that was checked.
#[derive(Debug)]
struct Unchecked<'t> {
    /// The part that is signed.
    message: &'t [u8],
    signature: Vec<u8>,
    algorithm: JwsAlgorithm,
    key_id: Option<String>,
    token: Token,
}

impl Jwt {
    /// Tokens by these keys and rules.
    #[must_use]
    pub fn new(keys: KeySource, rules: JwtRules) -> Self {
        let said = format!("{rules:?}");
        Self { keys, rules, identity: digest(&SHA256, said.as_bytes()).as_ref().into() }
    }

    /// Everything that can be checked without the price of a signature.
    fn read<'t>(&self, token: &'t str, now: SystemTime) -> Result<Unchecked<'t>, Why> {
        if token.len() > TOKEN_MAX {
            return Err("the token is longer than 8 KiB");
        }
        let (message, signature) = token.rsplit_once('.').ok_or("this is no token")?;
        let (head, claims) = message.split_once('.').ok_or("this is no token")?;
        if claims.contains('.') {
            return Err("this is no signed token");
        }
        let head = object(head)?;
        if head.contains_key("crit") || head.contains_key("zip") {
            return Err("the token has extensions");
        }
        is_of_a_known_type(&head)?;
        let algorithm = head.get("alg").and_then(Value::as_str).and_then(JwsAlgorithm::of);
        let algorithm = algorithm.ok_or("the algorithm of the token is not RS256, ES256 or EdDSA")?;
        let key_id = match head.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err("the kid of the token is not a text"),
        };
        let token = self.rules.check(&object(claims)?, now)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "this is no token")?;
        Ok(Unchecked { message: message.as_bytes(), signature, algorithm, key_id, token })
    }

    /// The claims of a token, if it is believed.
    #[cfg(test)]
    fn check(&self, token: &str, now: SystemTime) -> Result<Token, Why> {
        let unchecked = self.read(token, now)?;
        unchecked.is_signed(&self.keys.current().unwrap())?;
        Ok(unchecked.token)
    }
}

impl Unchecked<'_> {
    /// Checks that one of the keys has signed the token: the only step that costs time.
    fn is_signed(&self, keys: &KeySet) -> Result<(), Why> {
        let mut keys = self.candidates(keys).peekable();
        if keys.peek().is_none() {
            return Err("no key of the set is for this token");
        }
        let signed = keys.take(TRIES).any(|key| key.has_signed(self.message, &self.signature));
        if signed { Ok(()) } else { Err("the signature of the token is wrong") }
    }

    fn candidates<'k>(&'k self, keys: &'k KeySet) -> impl Iterator<Item = &'k VerifyingKey> {
        // One that has no name may be the one that the token names.
        let named = |key: &&VerifyingKey| match (&self.key_id, &key.id) {
            (Some(asked), Some(id)) => asked == id,
            _ => true,
        };
        keys.iter().filter(|key| key.algorithm == self.algorithm).filter(named)
    }

    /// The token names a key that is none of these.
    fn names_another(&self, keys: &KeySet) -> bool {
        self.key_id.as_ref().is_some_and(|asked| keys.iter().all(|key| key.id.as_ref() != Some(asked)))
    }
}

impl JwtRules {
    /// The claims of a token that is valid here and now (RFC 7519 §4.1).
    fn check(&self, claims: &Map<String, Value>, now: SystemTime) -> Result<Token, Why> {
        // Times may be fractions, which a double has to the microsecond.
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let leeway = self.leeway.as_secs_f64();
        let time = |name| match claims.get(name) {
            None => Ok(None),
            Some(time) => time.as_f64().map(Some).ok_or("a time of the token is not a number"),
        };
        let ends = time("exp")?.ok_or("the token has no exp")? + leeway;
        if now >= ends {
            return Err("the token has ended");
        }
        if time("nbf")?.is_some_and(|begins| now < begins - leeway) {
            return Err("the token has not begun");
        }
        if let Some(issuer) = &self.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return Err("the token has another issuer");
        }
        self.audience.admits(claims.get("aud"))?;
        let user = claims.get("sub").and_then(Value::as_str).filter(|user| user.len() <= USER_MAX);
        let fields = self
            .headers
            .iter()
            .filter_map(|(name, claim)| Some((name.clone(), claims::field(claims::find(claims, claim)?)?)));
        // What lies beyond the clock never comes.
        let end = Duration::try_from_secs_f64(ends).ok().and_then(|end| UNIX_EPOCH.checked_add(end));
        let tunnel_end = end.filter(|_| !self.keep_tunnels);
        Ok(Token {
            user: user.map(|user| user.as_bytes().into()),
            fields: fields.collect(),
            ends,
            tunnel_end,
        })
    }
}

impl JwtAudience {
    fn admits(&self, claim: Option<&Value>) -> Result<(), Why> {
        let names = match (self, claim) {
            (Self::Anybody, _) | (Self::Unnamed, None) => return Ok(()),
            (Self::Unnamed, Some(_)) => {
                return Err("the token is for an audience, and `audience` is not set");
            }
            (Self::OneOf(names), _) => names,
        };
        let meant =
            |audience: &Value| audience.as_str().is_some_and(|name| names.iter().any(|one| one == name));
        let is_meant = match claim {
            Some(Value::Array(all)) => all.iter().any(meant),
            Some(one) => meant(one),
            None => false,
        };
        if is_meant { Ok(()) } else { Err("the token has another audience") }
    }
}

/// Refuses what an issuer signs for other purposes (RFC 8725 §3.11). `application/` may be left out where no other slash
/// follows, and upper case means nothing (RFC 7515 §4.1.9). Access tokens have a type of their own (RFC 9068 §2.1).
fn is_of_a_known_type(head: &Map<String, Value>) -> Result<(), Why> {
    const APPLICATION: &str = "application/";
    let Some(kind) = head.get("typ") else { return Ok(()) };
    let Some(kind) = kind.as_str() else { return Err("the type of the token is not JWT or at+jwt") };
    let bare = match kind.split_at_checked(APPLICATION.len()) {
        Some((front, rest)) if front.eq_ignore_ascii_case(APPLICATION) => rest,
        _ => kind,
    };
    let known = ["JWT", "at+jwt"].iter().any(|known| bare.eq_ignore_ascii_case(known));
    if known { Ok(()) } else { Err("the type of the token is not JWT or at+jwt") }
}

/// A JSON object within a token.
fn object(text: &str) -> Result<Map<String, Value>, Why> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "this is no token")?;
    match json::value(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err("this is no token"),
    }
}

#[cfg(test)]
mod tests;
