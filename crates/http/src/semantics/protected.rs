//! Names of fields that a client must not choose, once, for heads and trailers of both versions.
//!
//! Servers that pass fields in the manner of CGI (RFC 3875 §4.1.18) write `-` as `_`, and many write every byte so that
//! is no letter or digit: `X_Forwarded_For`, `X.Forwarded.For` and `X~Forwarded~For` all become `HTTP_X_FORWARDED_FOR`.
//! Names count as the same here if such a server could take one for the other ([`same`]).

use std::sync::Arc;

use http::header::HeaderName;

use super::HeaderRules;
use crate::head::{Fields, Known};

/// Fields that have no place in trailers (RFC 9110 §6.5.1): they frame or route the message, concern one
/// connection, authenticate, describe the content, or control what is done with it.
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

/// Fields that say who the client is or how it came, besides all of [`FAMILIES`]: those of the standard, and those in
/// which CDNs, clouds and other proxies name the client, its certificate, or what was asked for, to servers. Each has at
/// most 31 letters.
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

/// Those of [`CLAIMS`] that say what was asked for. Some frameworks and authentication servers believe them rather than the
/// request line, so that a client that sends them is served another path than the one that its route was chosen by.
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

/// Beginnings of names that say it too. The parts of a client's certificate have names for each part, which differ from one
/// proxy to the next.
const FAMILIES: [&str; 7] = [
    "cf-client-cert-",
    "ssl-client-",
    "x-amzn-mtls-",
    "x-client-cert-",
    "x-envoy-downstream-service-",
    "x-forwarded-",
    "x-ssl-",
];

/// The byte that CGI would write for each byte of a name, with small letters: one class for all that is no letter or digit.
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

/// The lengths of the names in [`CLAIMS`] by their first letter, a bit for each: most fields of a request are known
/// by that to be none.
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

/// Where the names in [`CLAIMS`] that begin with a letter stand there.
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

/// Whether a field says who the client is or how it came, which only a proxy may say.
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
        || (matches!(first, b'c' | b's' | b'x') && FAMILIES.iter().any(|family| is_of(bytes, family)))
}

/// Whether a name goes on after one of [`FAMILIES`].
fn is_of(name: &[u8], family: &str) -> bool {
    name.len() > family.len() && same(&name[..family.len()], family)
}

/// Takes out of the head of an untrusted client what it claims of itself. `keep_original`: applications are written for
/// clients that say `X-Original-URL` and the like.
pub fn drop_claims(fields: &mut Fields, keep_original: bool) {
    let is_kept = |name: &[u8]| keep_original && ORIGINAL_TARGET.iter().any(|known| same(name, known));
    fields.retain(|_, name| !is_claim(name) || is_kept(name));
}

/// Takes out of any head what could be mistaken for a claim, or for a field that `rules` set or take out. No proxy
/// writes such names: behind a trusted one they are its client's.
pub fn drop_lookalikes(fields: &mut Fields, rules: &HeaderRules) {
    fields.retain(|_, name| !is_claim(name) || is_plain(name));
    if !rules.is_empty() {
        // The names themselves are what the rules are for.
        fields.retain(|_, name| !ruled(rules).any(|rule| rule.as_bytes() != name && same(name, rule)));
    }
}

/// The fields that a route sets or takes out of requests, which no trailer may bring back. Shared, because a body may come
/// long after a reload has changed the route.
#[derive(Debug)]
pub struct TrailerRules(Box<[HeaderName]>);

impl TrailerRules {
    /// The names in all of these changes; `None` where there are none.
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

/// Takes out of the trailers of a request what has no place there, and whatever a client must not say in a head.
/// `rules`: those of the request's route.
pub fn clean_request_trailers(trailers: &mut Fields, rules: Option<&TrailerRules>) {
    trailers.retain(|_, name| may_trail(name, rules));
}

/// Takes out of `Trailer` of a request what [`clean_request_trailers`] would take out of its trailers: a server may
/// look there for what it is to expect.
pub fn clean_trailer_names(fields: &mut Fields, rules: Option<&TrailerRules>) {
    if !fields.contains(Known::Trailer) {
        return;
    }
    let names = || fields.all(Known::Trailer).flat_map(|value| value.split(|byte| *byte == b','));
    let names = || names().map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
    let may = |name: &&[u8]| crate::h1::is_name(name) && may_trail(name, rules);
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

/// Takes out of the trailers of a response what has no place there.
pub fn clean_response_trailers(trailers: &mut Fields) {
    trailers.retain(|_, name| !is_misplaced(name));
}

fn may_trail(name: &[u8], rules: Option<&TrailerRules>) -> bool {
    !(is_claim(name) || is_misplaced(name) || rules.is_some_and(|rules| rules.forbid(name)))
}

fn is_misplaced(name: &[u8]) -> bool {
    NOT_IN_TRAILERS.iter().any(|known| same(name, known))
}

/// The names that rules set or take out.
fn ruled(rules: &HeaderRules) -> impl Iterator<Item = &str> {
    ruled_names(rules).map(HeaderName::as_str)
}

fn ruled_names(rules: &HeaderRules) -> impl Iterator<Item = &HeaderName> {
    rules.remove.iter().chain(rules.set.iter().map(|(name, _)| name))
}

/// Whether a name is written with small letters, digits and `-` alone, as proxies write those of [`CLAIMS`].
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| FOLDED[usize::from(*byte)] == *byte)
}

/// Whether a server could take one name for the other: they are equal but for case, and for which byte stands where there is
/// neither a letter nor a digit.
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

    /// What a name may have beside letters, digits and `-` (RFC 9110 §5.6.2).
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
    fn every_name_of_the_table_is_found_by_its_length_however_it_is_written() {
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
        for family in FAMILIES {
            assert!(b"csx".contains(&family.as_bytes()[0]), "{family}");
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
    fn what_a_client_claims_of_itself_is_dropped_from_heads_and_trailers() {
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
        // Behind a trusted proxy only those go that no proxy writes.
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
    fn what_rules_are_for_cannot_be_said_by_another_name_or_later() {
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
    fn the_field_trailer_names_only_what_may_come() {
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
    fn what_frames_routes_or_authenticates_is_no_trailer() {
        for clean in [clean_response_trailers, |trailers: &mut Fields| clean_request_trailers(trailers, None)]
        {
            let more = ["content_length", "content.length", "set*cookie", "grpc-status", "etag", "x-sum"];
            let mut trailers = fields(&[&NOT_IN_TRAILERS[..], &more].concat());
            clean(&mut trailers);
            assert_eq!(names(&trailers), ["etag", "grpc-status", "x-sum"]);
        }
    }
}
