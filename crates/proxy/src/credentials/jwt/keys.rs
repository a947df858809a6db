//! The keys that sign tokens: a JSON Web Key Set (RFC 7517) of public keys.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// The most keys of a set.
const KEYS_MAX: usize = 64;
/// The sizes of RSA keys, in bits: beyond 4096 a signature costs too much.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;
/// The largest exponent of RSA, in bytes; nearly all keys have 65537.
const EXPONENT_MAX: usize = 4;
/// A coordinate of P-256, and a key of Ed25519, in bytes.
const COORDINATE: usize = 32;

/// The algorithm of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JwsAlgorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl JwsAlgorithm {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            // The same algorithm where the curve is Ed25519, which is the only one here (RFC 9864 §2.2).
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// A key that verifies tokens.
pub(super) struct VerifyingKey {
    pub(super) id: Option<String>,
    pub(super) algorithm: JwsAlgorithm,
    key: ParsedPublicKey,
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.algorithm, self.id)
    }
}

impl VerifyingKey {
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }
}

/// The public keys of an issuer of tokens.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<VerifyingKey>,
    digest: Box<[u8]>,
}

impl KeySet {
    /// Reads a set that an operator has written. Keys for other purposes or algorithms are left out (RFC 7517 §5).
    ///
    /// # Errors
    /// It is none, or one of its keys is wrong: each with its place in the list, from 1.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        match Self::of_server(text)? {
            (set, wrong) if wrong.is_empty() => Ok(set),
            (_, wrong) => Err(wrong),
        }
    }

    /// Reads a set that a server has sent: keys that are wrong are left out too (RFC 7517 §5), and reported beside
    /// it.
    ///
    /// # Errors
    /// It is none, or has no key that can be used.
    pub fn of_server(text: &str) -> Result<(Self, Vec<String>), Vec<String>> {
        let whole: Value = serde_json::from_str(text).map_err(|error| vec![error.to_string()])?;
        let Some(list) = whole.get("keys").and_then(Value::as_array) else {
            return Err(vec!["this is no set of keys: it has no list `keys` (RFC 7517)".to_owned()]);
        };
        if list.len() > KEYS_MAX {
            return Err(vec![format!("there are more than {KEYS_MAX} keys")]);
        }
        let (mut keys, mut wrong) = (Vec::new(), Vec::new());
        for (item, number) in list.iter().zip(1..) {
            let key = item.as_object().ok_or_else(|| "it is no object".to_owned()).and_then(key);
            match key {
                Ok(key) => keys.extend(key),
                Err(what) => wrong.push(format!("key {number}{}: {what}", name(item))),
            }
        }
        if keys.is_empty() && wrong.is_empty() {
            wrong.push("no key is for signatures by RS256, ES256 or EdDSA".to_owned());
        }
        if keys.is_empty() {
            return Err(wrong);
        }
        let digest = digest(&SHA256, text.as_bytes()).as_ref().into();
        Ok((Self { keys, digest }, wrong))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &VerifyingKey> {
        self.keys.iter()
    }

    /// The number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Differs where the text of the sets differs.
    pub(super) fn digest(&self) -> &[u8] {
        &self.digest
    }
}

/// The name of a key, for people.
fn name(item: &Value) -> String {
    let id = item.get("kid").and_then(Value::as_str).unwrap_or_default();
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    if shown.is_empty() { String::new() } else { format!(" (`{shown}`)") }
}

/// A key of a set; nothing for one that signs no tokens of ours.
fn key(item: &Map<String, Value>) -> Result<Option<VerifyingKey>, String> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    if text("kty") == Some("oct") {
        return Err("it is a secret: write only public keys".to_owned());
    }
    if item.contains_key("d") {
        return Err("it is a private key: write only public keys, without `d`".to_owned());
    }
    let signs = text("use").is_none_or(|purpose| purpose == "sig");
    let checks = item.get("key_ops").is_none_or(|uses| {
        uses.as_array().is_some_and(|uses| uses.iter().any(|one| one.as_str() == Some("verify")))
    });
    let algorithm = match (text("kty"), text("crv")) {
        (Some("RSA"), _) => JwsAlgorithm::Rs256,
        (Some("EC"), Some("P-256")) => JwsAlgorithm::Es256,
        (Some("OKP"), Some("Ed25519")) => JwsAlgorithm::EdDsa,
        _ => return Ok(None),
    };
    if !signs || !checks || text("alg").is_some_and(|name| JwsAlgorithm::of(name) != Some(algorithm)) {
        return Ok(None);
    }
    let bytes = |name: &str| {
        let decoded = text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        decoded.ok_or_else(|| format!("`{name}` is no base64url"))
    };
    let key = match algorithm {
        JwsAlgorithm::Rs256 => rsa(&bytes("n")?, &bytes("e")?)?,
        JwsAlgorithm::Es256 => {
            let (x, y) = (bytes("x")?, bytes("y")?);
            if (x.len(), y.len()) != (COORDINATE, COORDINATE) {
                return Err("`x` and `y` of P-256 have 32 bytes each".to_owned());
            }
            let point = [&[4][..], &x, &y].concat();
            ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                .map_err(|_| "`x` and `y` are no point of P-256".to_owned())?
        }
        JwsAlgorithm::EdDsa => {
            let x = bytes("x")?;
            if x.len() != COORDINATE {
                return Err("`x` of Ed25519 has 32 bytes".to_owned());
            }
            ParsedPublicKey::new(&ED25519, x).map_err(|_| "`x` is no key of Ed25519".to_owned())?
        }
    };
    let id = text("kid").map(ToOwned::to_owned);
    Ok(Some(VerifyingKey { id, algorithm, key }))
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<ParsedPublicKey, String> {
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |first| first.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        let (least, most) = (RSA_BITS.start(), RSA_BITS.end());
        return Err(format!("RSA keys have {least} to {most} bits, and this one {bits}"));
    }
    if exponent.len() > EXPONENT_MAX
        || exponent.last().is_none_or(|last| last.is_multiple_of(2))
        || exponent == [1]
    {
        return Err("`e` is no exponent of RSA".to_owned());
    }
    let components = RsaPublicKeyComponents { n: modulus, e: exponent };
    components
        .to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256)
        .map_err(|_| "this is no key of RSA".to_owned())
}
