//! Names of fields that a client must not choose, once, for heads and trailers of both versions.
//!
//! Many servers take `X_Forwarded_For` for `X-Forwarded-For` (CGI writes both the same, RFC 3875 §4.1.18), so that
//! names count as the same where `_` stands for `-`.

use http::header::HeaderName;

use super::HeaderRules;
use crate::head::Fields;

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

/// Fields that say who the client is or how it came, besides all `X-Forwarded-*`: those of the standard, and those in
/// which CDNs, clouds and other proxies name the client, or its certificate, to servers. Each has at most 31 letters.
const CLAIMS: [&str; 40] = [
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
    "http-client-ip",
    "http-x-forwarded-for",
    "incap-client-ip",
    "proxy-client-ip",
    "remote-addr",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-remote-addr",
    "x-appengine-user-ip",
    "x-arr-clientip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-nf-client-connection-ip",
    "x-original-forwarded-for",
    "x-original-remote-addr",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-request-id",
];

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
    const FAMILY: &str = "x-forwarded-";
    let bytes = name.as_ref();
    let Some(first @ b'a'..=b'z') = bytes.first() else { return false };
    let letter = usize::from(first - b'a');
    let claims = || {
        let (from, to) = PLACES[letter];
        CLAIMS[usize::from(from)..usize::from(to)].iter()
    };
    (bytes.len() < 32 && LENGTHS[letter] >> bytes.len() & 1 == 1 && claims().any(|claim| same(bytes, claim)))
        || (*first == b'x' && bytes.len() > FAMILY.len() && same(&bytes[..FAMILY.len()], FAMILY))
}

/// Takes out of the head of an untrusted client what it claims of itself.
pub fn drop_claims(fields: &mut Fields) {
    fields.retain(|_, name| !is_claim(name));
}

/// Takes out of any head what could be mistaken for a claim, or for a field that `rules` set or take out. No proxy
/// writes such names: behind a trusted one they are its client's.
pub fn drop_lookalikes(fields: &mut Fields, rules: &HeaderRules) {
    fields.retain(|_, name| !name.contains(&b'_') || !is_claim(name));
    if !rules.is_empty() {
        // The names themselves are what the rules are for.
        fields.retain(|_, name| !ruled(rules).any(|rule| rule.as_bytes() != name && same(name, rule)));
    }
}

/// Takes out of the trailers of a request what has no place there, and whatever a client must not say in a head.
/// `rules`: those of the request's route.
pub fn clean_request_trailers(trailers: &mut Fields, rules: Option<&HeaderRules>) {
    let rules = || rules.into_iter().flat_map(ruled);
    trailers
        .retain(|_, name| !(is_claim(name) || is_misplaced(name) || rules().any(|rule| same(name, rule))));
}

/// Takes out of the trailers of a response what has no place there.
pub fn clean_response_trailers(trailers: &mut Fields) {
    trailers.retain(|_, name| !is_misplaced(name));
}

fn is_misplaced(name: &[u8]) -> bool {
    NOT_IN_TRAILERS.iter().any(|known| same(name, known))
}

/// The names that rules set or take out.
fn ruled(rules: &HeaderRules) -> impl Iterator<Item = &str> {
    rules.remove.iter().chain(rules.set.iter().map(|(name, _)| name)).map(HeaderName::as_str)
}

/// Whether names in lower case are the same where `_` stands for `-`.
fn same(name: impl AsRef<[u8]>, known: &str) -> bool {
    let (name, known) = (name.as_ref(), known.as_bytes());
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() == known.len() && name.iter().zip(known).all(|(one, other)| plain(*one) == plain(*other))
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

    const SAID: [&str; 25] = [
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
    ];

    #[test]
    fn every_name_of_the_table_is_found_by_its_length_however_it_is_written() {
        for claim in CLAIMS {
            let twin = claim.replace('-', "_");
            assert!(is_claim(claim) && is_claim(&twin), "{claim}");
            assert!(!is_claim(&claim[1..]) || CLAIMS.contains(&&claim[1..]), "{claim}");
            assert!(HeaderName::from_bytes(claim.as_bytes()).is_ok_and(|name| name.as_str() == claim));
        }
        assert!(CLAIMS.is_sorted());
        for claim in ["x-forwarded_-", "x-forwarded-anything-at-all-however-long-it-is"] {
            assert!(is_claim(claim));
        }
        for honest in ["", "-", "_x-real-ip", "x", "x-real-ips", "client", "user-agent", "x-forwarded-"] {
            assert!(!is_claim(honest), "{honest}");
        }
    }

    #[test]
    fn what_a_client_claims_of_itself_is_dropped_from_heads_and_trailers() {
        let kept =
            ["accept", "client-certs", "forwarded-by", "x-forward", "x-requested-with", "x-requests-id"];
        let mut head = fields(&[&SAID[..], &kept].concat());
        drop_claims(&mut head);
        assert_eq!(names(&head), kept);
        // Behind a trusted proxy only those go that no proxy writes.
        let mut head = fields(&[&SAID[..], &kept].concat());
        drop_lookalikes(&mut head, &HeaderRules::default());
        assert!(
            names(&head).contains(&"x-forwarded-for") && !names(&head).iter().any(|name| name.contains('_'))
        );
        let mut trailers = fields(&[&SAID[..], &kept].concat());
        clean_request_trailers(&mut trailers, None);
        assert_eq!(names(&trailers), kept);
    }

    #[test]
    fn what_rules_are_for_cannot_be_said_by_another_name_or_later() {
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-internal")],
            set: vec![(HeaderName::from_static("x-user"), HeaderValue::from_static("nobody"))],
            add: vec![(HeaderName::from_static("x-more"), HeaderValue::from_static("1"))],
        };
        let mut head = fields(&["x_internal", "x-internal", "x_user", "x-user", "x_more"]);
        drop_lookalikes(&mut head, &rules);
        assert_eq!(names(&head), ["x-internal", "x-user", "x_more"], "the rules see to those");
        let mut trailers = fields(&["x_internal", "x-internal", "x_user", "x-user", "x-more", "x-sum"]);
        clean_request_trailers(&mut trailers, Some(&rules));
        assert_eq!(names(&trailers), ["x-more", "x-sum"]);
    }

    #[test]
    fn what_frames_routes_or_authenticates_is_no_trailer() {
        for clean in [clean_response_trailers, |trailers: &mut Fields| clean_request_trailers(trailers, None)]
        {
            let more = ["content_length", "grpc-status", "etag", "x-sum"];
            let mut trailers = fields(&[&NOT_IN_TRAILERS[..], &more].concat());
            clean(&mut trailers);
            assert_eq!(names(&trailers), ["etag", "grpc-status", "x-sum"]);
        }
    }
}
