//! Arbitrary names of fields: whatever passes, a server in the manner of CGI (RFC 3875 §4.1.18) takes for nothing that a
//! client must not say, in a head or in trailers.
//!
//! The first byte of the input says which rules a route has. Lines behind it are names.

#![no_main]

use std::collections::BTreeSet;

use http::{HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use offramp_http::field::is_name;
use offramp_http::h1::is_ambiguous;
use offramp_http::head::{Fields, Known};
use offramp_http::semantics::protected::{
    clean_request_trailers, clean_trailer_names, drop_claims, drop_lookalikes, is_claim,
};
use offramp_http::semantics::variables::NoValues;
use offramp_http::semantics::{HeaderRules, TrailerRules};

/// Names that no client may have a server read, in the form of CGI.
const FORBIDDEN: [&str; 8] = [
    "X_FORWARDED_FOR",
    "X_FORWARDED_CLIENT_CERT",
    "X_REAL_IP",
    "CLIENT_CERT",
    "CF_CONNECTING_IP",
    "X_ORIGINAL_URL",
    "X_REQUEST_ID",
    "FORWARDED",
];

fuzz_target!(|data: &[u8]| {
    let Some((&which, lines)) = data.split_first() else { return };
    let names: Vec<Vec<u8>> = lines
        .split(|&byte| byte == b'\n')
        .filter(|name| is_name(name))
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    let rules = rules(which);
    let ruled: BTreeSet<Vec<u8>> =
        rules.remove.iter().map(|name| variable(name.as_str().as_bytes())).collect();
    let fields = || names.iter().map(|name| (name, b"1")).collect::<Fields>();

    let mut head = fields();
    drop_claims(&mut head, false);
    drop_lookalikes(&mut head, &rules);
    let mut applied = head.clone();
    rules.apply(&mut applied, &NoValues);
    for (name, value) in applied.iter() {
        let variable = variable(name);
        assert!(!FORBIDDEN.iter().any(|known| known.as_bytes() == variable), "{}", name.escape_ascii());
        assert!(!ruled.contains(&variable), "{}", name.escape_ascii());
        assert!(variable != b"REMOTE_USER" || value == b"nobody", "{}", name.escape_ascii());
    }
    let mut trusted = fields();
    drop_lookalikes(&mut trusted, &HeaderRules::default());
    for (name, _) in trusted.iter().filter(|(name, _)| is_claim(name)) {
        assert!(name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-'));
    }

    let rules = TrailerRules::of(&[&rules]);
    let mut trailers = fields();
    clean_request_trailers(&mut trailers, rules.as_deref());
    for (name, _) in trailers.iter() {
        let variable = variable(name);
        assert!(!FORBIDDEN.iter().any(|known| known.as_bytes() == variable), "{}", name.escape_ascii());
        assert!(!ruled.contains(&variable) && !is_ambiguous(name), "{}", name.escape_ascii());
        assert!(!matches!(
            &variable[..],
            b"CONTENT_LENGTH" | b"TRANSFER_ENCODING" | b"HOST" | b"REMOTE_USER"
        ));
    }
    let mut announcing: Fields = [("trailer", names.join(&b','))].into_iter().collect();
    clean_trailer_names(&mut announcing, rules.as_deref());
    let announced = announcing.get(Known::Trailer).unwrap_or_default().to_vec();
    let announced =
        announced.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
    let kept: Vec<&[u8]> = trailers.iter().map(|(name, _)| name).collect();
    assert_eq!(announced.collect::<Vec<_>>(), kept, "both say the same");
});

/// The rules of a route: what it takes out, and the identity that it sets.
fn rules(which: u8) -> HeaderRules {
    let removable = ["x-internal", "x-secret-key", "authorization", "x.dotted.name"];
    let removed = removable.iter().enumerate().filter(|(at, _)| which >> at & 1 == 1);
    HeaderRules {
        remove: removed.map(|(_, name)| HeaderName::from_static(name)).collect(),
        set: vec![(HeaderName::from_static("remote-user"), HeaderValue::from_static("nobody").into())],
        add: Vec::new(),
    }
}

/// The variable that a server in the manner of CGI makes of a field, without `HTTP_`.
fn variable(name: &[u8]) -> Vec<u8> {
    name.iter()
        .map(|byte| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { b'_' })
        .collect()
}
