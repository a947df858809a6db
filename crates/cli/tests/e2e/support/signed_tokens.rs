//! Tokens and keys that PyJWT 2 has made, and a signer of tokens that end while a test runs. Those of PyJWT that end do so
//! in 2100.
//!
//! All are for the audience `www`, by the issuer `https://idp.example.org`, about `anna` in the groups `staff` and `ops`, if
//! nothing else is said.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::PrivatePkcs8KeyDer;

/// Signs with a new Ed25519 key.
pub(crate) struct TokenSigner(rcgen::KeyPair);

impl TokenSigner {
    pub(crate) fn new() -> Self {
        Self(rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap())
    }

    /// The set of its public key.
    pub(crate) fn keys(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key_raw());
        format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "x": "{x}"}}]}}"#)
    }

    /// A token with this head and these claims, which are JSON.
    pub(crate) fn sign(&self, head: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
        let signer = any_eddsa_type(&PrivatePkcs8KeyDer::from(self.0.serialize_der())).unwrap();
        let signer = signer.choose_scheme(&[SignatureScheme::ED25519]).unwrap();
        let signature = signer.sign(message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A token without an audience that ends `left` from now.
    pub(crate) fn ending_in(&self, left: Duration) -> String {
        let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + left;
        self.sign(r#"{"alg":"EdDSA"}"#, &format!(r#"{{"exp":{}}}"#, end.as_secs_f64()))
    }
}

/// The public keys: RSA, P-256 and Ed25519.
pub(crate) const KEYS: &str = r#"{"keys": [{"kid": "rsa", "alg": "RS256", "use": "sig", "kty": "RSA", "n": "tMwwidF8kfsWf35xFkYR2tv6VumvsXy0soFO2dq4nmiyc4QWS317nVrGEYsnYTAHgpodHSpvEkRoOOVYQ29k8X6iXzlaa7wWTS-IHUqwZNh6A868gcAc5QA-JW2OG3xx1DlbWAbAAt1c6zW7enfHexYv66dv017cOwj8Bc65znV0TA3s8PZXXdXbm1NfJAm0uINrHEN1nAucXkWy1UepmRMKcyQk86VQ2E1nYym_iFUvcdQ1gZ5ACQbBCBrdEtu010E87SRA26BkRoBW9K7cMTJfEUXZVDshtxkN0fNjIXcvOWFfIm3HYiWC0o9lguo7QafgJbkir8qDGzyeKWqy7w", "e": "AQAB"}, {"kid": "ec", "alg": "ES256", "use": "sig", "kty": "EC", "crv": "P-256", "x": "uQn8IMs5vlEMxPasTovUg8bXf6MSeuLlc6oBrm0EmOE", "y": "QcWtvNAc-Y-icfESdKUQLiPxr2slZ1NoyKYrVUfa-Mc"}, {"kid": "ed", "alg": "EdDSA", "use": "sig", "x": "O90zPHPPXgfY9KsdBaX-I6xN0aaPiM0LfwpEpkztaqA", "kty": "OKP", "crv": "Ed25519"}]}"#;
/// The last of them alone.
pub(crate) const ED_KEY: &str = r#"{"keys": [{"kid": "ed", "alg": "EdDSA", "use": "sig", "x": "O90zPHPPXgfY9KsdBaX-I6xN0aaPiM0LfwpEpkztaqA", "kty": "OKP", "crv": "Ed25519"}]}"#;
pub(crate) const RS256: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwfQ.A7TsVCjSpcDoqLxddxMbG9Ho0omU3zzi1-vWbgLEak5rxrfEEreYIcLHYTnj0TUp59-YK7W4r5IV6cteM0kLvosAtsHAOvyPF874En9ZEQfdIykALjgKRAWYjgQyzNApXNiLk8e4VriYn7w1cGFrG50PvNvRQ0o4BdLmb1htgI44YX7-lzrEQdl2XxpmfoBXDPgRynnJEL7fF2-BqHNiQppogZ70GiQwJ_oWocwujvKwwDx6PX3FYtDLjNf6ITYnRE1XmW3skmz_q03Qyr0Rt5PnTsT_EGlrLp1hGY6G3AQFEYEyDDQOaP72CHw6sTzmwvj0Whofklh93oM_ynv4Bw";
pub(crate) const ES256: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImVjIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwfQ.nc_33g4tcCtKzdUm3OAiJjjnNoT3D8eWlxlB2LNs8M1pUOuvznOzmmGKT1YInJGgxjWyicVSA1vrO6PblH8lzA";
pub(crate) const EDDSA: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwfQ.4pRu_sw3u_JInFkQoRb9_zrMCT1jek_KZrB4QTlfvcKMyZORTNONJTQ1TXWmEaZAvahNX6YheBil8q84DIL-DQ";
/// It ended in 2023.
pub(crate) const ENDED: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjoxNzAwMDAwMDAwfQ.teJ_tekWOtu6If6N1Q3fUN7KrZxdDYHVYPpXX5YsxW17WFm1SbTPI9iV8i6dJxLOBAYWo9DVAx4DgynWYBuwBg";
/// It begins in 2099.
pub(crate) const EARLY: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwLCJuYmYiOjQxMDI0NDQwMDB9.g6j80sEJMB_32nQS02400xKoK5VTl30uKj3FOR7V1Jcx1HwACdyuio2kxgIVDjB-i0ljvdshbkI_SORbalbmBQ";
/// By another issuer.
pub(crate) const ISSUER: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL290aGVyLmV4YW1wbGUub3JnIiwiYXVkIjoid3d3Iiwic3ViIjoiYW5uYSIsImdyb3VwcyI6WyJzdGFmZiIsIm9wcyJdLCJleHAiOjQxMDI0NDQ4MDB9.DSuja3yW-01Ao42GYtniKdG1AoyuJHb9m5x9eIEGA_Gjy0ylRiIIyW46AiNgANnkS0sUtuFcr-BOb28nYJyxAA";
/// For others.
pub(crate) const AUDIENCE: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6WyJvdGhlciIsImFub3RoZXIiXSwic3ViIjoiYW5uYSIsImdyb3VwcyI6WyJzdGFmZiIsIm9wcyJdLCJleHAiOjQxMDI0NDQ4MDB9.geBo0_OyrOrlCUXm-b1u4HZWI7T6ifAnFydkyh0jjz2Wr2hyfyY5sllpiZVJwHtFYpZNjaZFuh-Ytg2kBZ59Dg";
/// By another key of the same name.
pub(crate) const STRANGER: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwfQ.whnGInMLpKaWCSN-vlna9sGRvjfpKOyGCK7UmVQADQcjik2PjyYWVHpTmONuVx5DD9IKFELDhBxVXfDPuvqrAg";
/// Without a signature.
pub(crate) const NONE: &str = "eyJhbGciOiJub25lIiwia2lkIjoiZWQifQ.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwfQ.";
/// With the public key of RSA as a secret.
pub(crate) const HS256: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwfQ.CnNOiNE5oMp6tvIQVLE86QnccfrihJJB4W6hfXWw9KY";
/// By a key of P-384.
pub(crate) const ES384: &str = "eyJhbGciOiJFUzM4NCIsImtpZCI6ImVjIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlLm9yZyIsImF1ZCI6Ind3dyIsInN1YiI6ImFubmEiLCJncm91cHMiOlsic3RhZmYiLCJvcHMiXSwiZXhwIjo0MTAyNDQ0ODAwfQ.lUASnUMKhFr5bv90DmoIcZ-4uuTNmerpbeOEw69OOYYfBqzvulaMn_SJ_ZMraXJFNpbZyPix6qxNYsy74Axoiwlv-CMH-TXH-8WNuj41u-UVNFRlpViXssOtM5BwivYp";
