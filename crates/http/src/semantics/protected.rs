//! Names of fields that clients must not set, in heads and trailers of both versions.
//!
//! Servers that expose fields as CGI variables (RFC 3875 §4.1.18) map `-` to `_`, and many map every byte
//! that is neither letter nor digit: `X_Forwarded_For`, `X.Forwarded.For` and `X~Forwarded~For` all become
//! `HTTP_X_FORWARDED_FOR`. Names that such a server cannot distinguish count as equal ([`same`]).

use std::sync::Arc;

use http::header::HeaderName;

use super::HeaderRules;
use crate::head::{Fields, Known, KnownSet};

/// Fields that must not be trailers (RFC 9110 §6.5.1): they frame or route the message, concern one
/// connection, authenticate, describe the content, or control its processing.
const NOT_IN_TRAILERS: [&str; 25] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "proxy",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "www-authenticate",
    "x-http-method-override",
];

/// Fields that identify the client or its path to the server, besides all of [`FAMILIES`]: standard ones, and
/// those by which CDNs, clouds and other proxies report the client, its certificate, or the original target
/// to servers. Each has at most 31 letters.
const CLAIMS: [&str; 66] = [
    "ali-cdn-real-ip",
    "cdn-src-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "client-cert",
    "client-cert-chain",
    "client-ip",
    "cloudfront-viewer-address",
    "do-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "forwarded-for-ip",
    "front-end-https",
    "http-client-ip",
    "http-x-forwarded-for",
    "incap-client-ip",
    "proxy-client-ip",
    "remote-addr",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-remote-addr",
    "x-appengine-user-ip",
    "x-arr-clientcert",
    "x-arr-clientip",
    "x-arr-ssl",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-cert",
    "x-client-certificate",
    "x-client-ip",
    "x-client-verify",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-envoy-internal",
    "x-envoy-original-host",
    "x-envoy-original-path",
    "x-envoy-peer-metadata",
    "x-envoy-peer-metadata-id",
    "x-forward-for",
    "x-forward-host",
    "x-forward-proto",
    "x-forwarded",
    "x-host",
    "x-http-host-override",
    "x-nf-client-connection-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-method",
    "x-original-remote-addr",
    "x-original-uri",
    "x-original-url",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-real-port",
    "x-remote-addr",
    "x-remote-ip",
    "x-request-id",
    "x-rewrite-url",
    "x-scheme",
    "x-ssl",
    "x-true-client-ip",
    "x-url-scheme",
];

/// Those of [`CLAIMS`] that give the original target. Some frameworks and authentication servers prefer them
/// to the request line, so that a client could get another path than the one that its route was selected by.
const ORIGINAL_TARGET: [&str; 9] = [
    "x-envoy-original-host",
    "x-envoy-original-path",
    "x-host",
    "x-http-host-override",
    "x-original-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];

/// Prefixes of further such names. Proxies report each part of a client's certificate in a field of its own,
/// and the names vary.
const FAMILIES: [&str; 7] = [
    "cf-client-cert-",
    "ssl-client-",
    "x-amzn-mtls-",
    "x-client-cert-",
    "x-envoy-downstream-service-",
    "x-forwarded-",
    "x-ssl-",
];

/// CGI mapping of each byte of a name, in lower case: one class for everything but letters and digits.
const FOLDED: [u8; 256] = {
    let mut table = [b'-'; 256];
    let mut byte = 0;
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = (byte as u8).to_ascii_lowercase();
        }
        byte += 1;
    }
    table
};

/// Lengths of the names in [`CLAIMS`] by first letter, a bit for each, which rules out most fields of a
/// request.
const LENGTHS: [u32; 26] = {
    let mut lengths = [0; 26];
    let mut at = 0;
    while at < CLAIMS.len() {
        let name = CLAIMS[at].as_bytes();
        lengths[(name[0] - b'a') as usize] |= 1 << name.len();
        at += 1;
    }
    lengths
};

/// Range in [`CLAIMS`] of the names with each first letter.
const PLACES: [(u8, u8); 26] = {
    let mut places = [(0, 0); 26];
    let mut at = 0;
    while at < CLAIMS.len() {
        let place = &mut places[(CLAIMS[at].as_bytes()[0] - b'a') as usize];
        if place.1 == 0 {
            place.0 = at as u8;
        }
        place.1 = at as u8 + 1;
        at += 1;
    }
    places
};

/// Returns true for fields that identify the client or its path, which only a proxy may set.
#[must_use]
#[inline]
pub fn is_claim(name: impl AsRef<[u8]>) -> bool {
    let bytes = name.as_ref();
    let Some(first @ b'a'..=b'z') = bytes.first().map(|first| FOLDED[usize::from(*first)]) else {
        return false;
    };
    let letter = usize::from(first - b'a');
    let claims = || {
        let (from, to) = PLACES[letter];
        CLAIMS[usize::from(from)..usize::from(to)].iter()
    };
    (bytes.len() < 32 && LENGTHS[letter] >> bytes.len() & 1 == 1 && claims().any(|claim| same(bytes, claim)))
        || families(first).iter().any(|family| is_of(bytes, family))
}

/// The members of [`FAMILIES`] with this first letter.
fn families(first: u8) -> &'static [&'static str] {
    match first {
        b'c' => &FAMILIES[..1],
        b's' => &FAMILIES[1..2],
        b'x' => &FAMILIES[2..],
        _ => &[],
    }
}

/// Like [`is_claim`], for a field with a known number, which decides for most fields of a request.
#[inline]
fn claims(known: Known, name: &[u8]) -> bool {
    if known == Known::Other { is_claim(name) } else { KNOWN_CLAIMS.has(known) }
}

const KNOWN_CLAIMS: KnownSet = KnownSet::of(&[
    Known::Forwarded,
    Known::XForwardedFor,
    Known::XForwardedHost,
    Known::XForwardedPort,
    Known::XForwardedProto,
    Known::XRequestId,
]);

/// Returns true for names that extend one of [`FAMILIES`].
fn is_of(name: &[u8], family: &str) -> bool {
    name.len() > family.len() && same(&name[..family.len()], family)
}

/// Removes the claims from the head of an untrusted client. `keep_original` keeps `X-Original-URL` and the
/// like, for applications that expect them from clients.
pub fn drop_claims(fields: &mut Fields, keep_original: bool) {
    let is_kept = |name: &[u8]| keep_original && ORIGINAL_TARGET.iter().any(|known| same(name, known));
    fields.retain(|known, name| !claims(known, name) || is_kept(name));
}

/// Removes fields that could be mistaken for a claim, or for a field that `rules` set or remove. No proxy
/// writes such names: behind a trusted proxy they come from its client.
pub fn drop_lookalikes(fields: &mut Fields, rules: &HeaderRules) {
    fields.retain(|known, name| !claims(known, name) || is_plain(name));
    if !rules.is_empty() {
        // The exact names are handled by the rules.
        fields.retain(|_, name| !ruled(rules).any(|rule| rule.as_bytes() != name && same(name, rule)));
    }
}

/// Fields that a route sets or removes in requests, which trailers must not restore. Shared, because a body
/// may arrive long after a reload has changed the route.
#[derive(Debug)]
pub struct TrailerRules(Box<[HeaderName]>);

impl TrailerRules {
    /// Names in all of these rules; `None` if there are none.
    #[must_use]
    pub fn of(all: &[&HeaderRules]) -> Option<Arc<Self>> {
        let named = |rules: &HeaderRules| ruled_names(rules).cloned().collect::<Vec<_>>();
        let names: Box<[_]> = all.iter().flat_map(|rules| named(rules)).collect();
        (!names.is_empty()).then(|| Arc::new(Self(names)))
    }

    fn forbid(&self, name: &[u8]) -> bool {
        self.0.iter().any(|rule| same(name, rule))
    }
}

/// Removes trailers of a request that must not be trailers, and those that a client must not set in a head.
/// `rules` are those of the request's route.
pub fn clean_request_trailers(trailers: &mut Fields, rules: Option<&TrailerRules>) {
    trailers.retain(|_, name| may_trail(name, rules));
}

/// Removes names from `Trailer` of a request that [`clean_request_trailers`] would remove from its trailers,
/// since a server may rely on that list.
pub fn clean_trailer_names(fields: &mut Fields, rules: Option<&TrailerRules>) {
    if !fields.contains(Known::Trailer) {
        return;
    }
    let names = || fields.all(Known::Trailer).flat_map(|value| value.split(|byte| *byte == b','));
    let names = || names().map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
    let may = |name: &&[u8]| crate::field::is_name(name) && may_trail(name, rules);
    if names().all(|name| may(&name)) {
        return;
    }
    let kept = names().filter(may).collect::<Vec<_>>().join(&b", "[..]);
    if kept.is_empty() {
        fields.remove(Known::Trailer);
    } else {
        fields.set_known(Known::Trailer, &kept);
    }
}

/// Removes trailers of a response that must not be trailers.
pub fn clean_response_trailers(trailers: &mut Fields) {
    trailers.retain(|_, name| !is_misplaced(name));
}

fn may_trail(name: &[u8], rules: Option<&TrailerRules>) -> bool {
    !(is_claim(name) || is_misplaced(name) || rules.is_some_and(|rules| rules.forbid(name)))
}

fn is_misplaced(name: &[u8]) -> bool {
    NOT_IN_TRAILERS.iter().any(|known| same(name, known))
}

/// Names that rules set or remove.
fn ruled(rules: &HeaderRules) -> impl Iterator<Item = &str> {
    ruled_names(rules).map(HeaderName::as_str)
}

fn ruled_names(rules: &HeaderRules) -> impl Iterator<Item = &HeaderName> {
    rules.remove.iter().chain(rules.set.iter().map(|(name, _)| name))
}

/// Returns true for names of lower-case letters, digits and `-` alone, as proxies write those of [`CLAIMS`].
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| FOLDED[usize::from(*byte)] == *byte)
}

/// Returns true if a server could mistake one name for the other: they are equal except for case, and for the
/// bytes that are neither letters nor digits.
#[must_use]
pub fn same(name: impl AsRef<[u8]>, known: impl AsRef<[u8]>) -> bool {
    let (name, known) = (name.as_ref(), known.as_ref());
    let folded = |byte: &u8| FOLDED[usize::from(*byte)];
    name.len() == known.len() && name.iter().zip(known).all(|(one, other)| folded(one) == folded(other))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn fields(names: &[&str]) -> Fields {
        names.iter().map(|name| (*name, "1")).collect()
    }

    fn names(fields: &Fields) -> Vec<&str> {
        let mut names: Vec<_> = fields.iter().map(|(name, _)| std::str::from_utf8(name).unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_documentation_names_each_of_them() {
        let page = include_str!("../../../../docs/how-to/headers.md");
        let (_, section) = page.split_once("### All fields that are removed").unwrap();
        let (_, section) = section.split_once("`trusted_proxies`").unwrap();
        let (section, _) = section.split_once("\n### ").unwrap();
        let mut named: Vec<String> = section.split('`').skip(1).step_by(2).map(str::to_lowercase).collect();
        named.sort();
        let mut removed = [&CLAIMS[..], &FAMILIES[..]].concat();
        removed.sort_unstable();
        assert_eq!(named, removed);
    }

    /// Bytes that a name may contain besides letters, digits and `-` (RFC 9110 §5.6.2).
    const ODD: [&str; 14] = ["!", "#", "$", "%", "&", "'", "*", "+", ".", "^", "_", "`", "|", "~"];

    const SAID: [&str; 63] = [
        "client-cert",
        "client_cert",
        "client-cert-chain",
        "client_cert-chain",
        "x-forwarded-client-cert",
        "cf-connecting-ip",
        "cf_connecting_ip",
        "client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "true-client-ip",
        "true_client-ip",
        "x-original-forwarded-for",
        "forwarded",
        "x-forwarded-for",
        "x_forwarded_for",
        "x-forwarded_for",
        "x-forwarded-proto",
        "x_forwarded-host",
        "x-forwarded-port",
        "x-forwarded-ssl",
        "x-forwarded-user",
        "x_real_ip",
        "x-request-id",
        "x_request-id",
        "client.cert",
        "client~cert~chain",
        "x.real.ip",
        "x!real-ip",
        "x|forwarded|for",
        "x.forwarded.anything",
        "x-original-url",
        "x.original.url",
        "x-original-uri",
        "x-original-method",
        "x-rewrite-url",
        "x*rewrite*url",
        "x-arr-clientcert",
        "x-client-cert",
        "x-client-cert-subject-dn",
        "ssl-client-cert",
        "ssl_client_s_dn",
        "x-ssl-client-verify",
        "x_ssl_client_cn",
        "x-ssl-issuer",
        "cf-client-cert-sha256",
        "x-amzn-mtls-clientcert-subject",
        "x-scheme",
        "x-url-scheme",
        "front-end-https",
        "x-forward-for",
        "x-host",
        "x-http-host-override",
        "x-envoy-original-path",
        "x-envoy-external-address",
        "x-envoy-internal",
        "x-envoy-peer-metadata",
        "x-envoy-peer-metadata-id",
        "x-envoy-downstream-service-cluster",
        "x-proxyuser-ip",
        "x-azure-clientip",
        "x-appengine-user-ip",
        "x-cluster-client-ip",
    ];

    #[test]
    fn every_claim_is_found_in_any_spelling() {
        for claim in CLAIMS {
            assert!(is_claim(claim) && is_claim(claim.to_ascii_uppercase()), "{claim}");
            for byte in ODD {
                let twin = claim.replace('-', byte);
                assert!(is_claim(&twin), "{twin}");
                let mixed = claim.replacen('-', byte, 1);
                assert!(is_claim(&mixed), "{mixed}");
            }
            assert!(!is_claim(&claim[1..]) || CLAIMS.contains(&&claim[1..]), "{claim}");
            assert!(HeaderName::from_bytes(claim.as_bytes()).is_ok_and(|name| name.as_str() == claim));
        }
        assert!(CLAIMS.is_sorted());
        for known in Known::ALL {
            assert_eq!(claims(known, known.name().as_bytes()), is_claim(known.name()), "{known:?}");
        }
        for family in FAMILIES {
            assert!(families(family.as_bytes()[0]).contains(&family), "{family}");
            assert!(!is_claim(family) || CLAIMS.contains(&family), "{family}");
            for byte in ODD {
                let twin = format!("{}Dn", family.replace('-', byte));
                assert!(is_claim(&twin) && is_claim(twin.to_ascii_uppercase()), "{twin}");
            }
        }
        for claim in ["x-forwarded_-", "x-forwarded-anything-at-all-however-long-it-is"] {
            assert!(is_claim(claim));
        }
        for honest in [
            "",
            "-",
            "_x-real-ip",
            "x",
            "x-real-ips",
            "client",
            "x-hosts",
            "ssl-clients",
            "cf-ray",
            "x-sslx",
            "user-agent",
            "x-forwarded-",
        ] {
            assert!(!is_claim(honest), "{honest}");
        }
    }

    #[test]
    fn claims_of_a_client_are_dropped_from_heads_and_trailers() {
        let kept =
            ["accept", "client-certs", "forwarded-by", "x-forward", "x-requested-with", "x-requests-id"];
        let mut head = fields(&[&SAID[..], &kept].concat());
        drop_claims(&mut head, false);
        assert_eq!(names(&head), kept);
        let mut head = fields(&[&SAID[..], &kept].concat());
        drop_claims(&mut head, true);
        let asked = |name: &&str| ORIGINAL_TARGET.iter().any(|known| same(name, known));
        let mut with_target: Vec<_> = SAID.into_iter().filter(asked).chain(kept).collect();
        with_target.sort_unstable();
        assert_eq!(names(&head), with_target);
        // Behind a trusted proxy, only names that proxies do not write are removed.
        let mut head = fields(&[&SAID[..], &kept].concat());
        drop_lookalikes(&mut head, &HeaderRules::default());
        assert!(
            names(&head).contains(&"x-forwarded-for")
                && names(&head).iter().all(|name| is_plain(name.as_bytes()))
        );
        let mut trailers = fields(&[&SAID[..], &kept].concat());
        clean_request_trailers(&mut trailers, None);
        assert_eq!(names(&trailers), kept);
    }

    #[test]
    fn fields_of_rules_cannot_be_set_by_lookalikes_or_trailers() {
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-internal")],
            set: vec![(HeaderName::from_static("x-user"), HeaderValue::from_static("nobody").into())],
            add: vec![(HeaderName::from_static("x-more"), HeaderValue::from_static("1").into())],
        };
        for byte in ODD {
            let odd = |name: &str| name.replace('-', byte);
            let (internal, user, more) = (odd("x-internal"), odd("x-user"), odd("x-more"));
            let said = [&internal[..], "x-internal", &user, "x-user", &more];
            let mut head = fields(&said);
            drop_lookalikes(&mut head, &rules);
            let mut left = ["x-internal", "x-user", &more];
            left.sort_unstable();
            assert_eq!(names(&head), left, "the rules see to those");
            let mut trailers = fields(&[&said[..], &["x-sum"]].concat());
            clean_request_trailers(&mut trailers, TrailerRules::of(&[&rules]).as_deref());
            let mut left = [&more[..], "x-sum"];
            left.sort_unstable();
            assert_eq!(names(&trailers), left);
        }
        assert!(TrailerRules::of(&[&HeaderRules::default()]).is_none());
    }

    #[test]
    fn trailer_lists_permitted_names_only() {
        let rules =
            HeaderRules { remove: vec![HeaderName::from_static("remote-user")], ..HeaderRules::default() };
        let rules = TrailerRules::of(&[&rules]);
        for (said, left) in [
            (&["x-sum"][..], Some("x-sum")),
            (&["X-Sum , grpc-status"], Some("X-Sum , grpc-status")),
            (&["X-Sum, Remote-User"], Some("X-Sum")),
            (&["remote.user", "a,X.Real.IP", "content~length,,b"], Some("a, b")),
            (&["Authorization"], None),
            (&["x-forwarded-for", "X_Forwarded-Host,trailer"], None),
            (&["a b, c"], Some("c")),
            (&[""], Some("")),
        ] {
            let mut head: Fields = said.iter().map(|value| ("trailer", *value)).collect();
            clean_trailer_names(&mut head, rules.as_deref());
            assert_eq!(head.get(Known::Trailer), left.map(str::as_bytes), "{said:?}");
        }
    }

    #[test]
    fn framing_routing_and_authentication_are_no_trailers() {
        for clean in [clean_response_trailers, |trailers: &mut Fields| clean_request_trailers(trailers, None)]
        {
            let more = ["content_length", "content.length", "set*cookie", "grpc-status", "etag", "x-sum"];
            let mut trailers = fields(&[&NOT_IN_TRAILERS[..], &more].concat());
            clean(&mut trailers);
            assert_eq!(names(&trailers), ["etag", "grpc-status", "x-sum"]);
        }
    }
}
