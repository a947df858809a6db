//! Strategies of what requests must show.

use offramp_config::At;
use offramp_config::model::{
    BasicAuthConfig, Credentials, ForwardAuthConfig, HeaderName, Jwks, JwtAuth, KeyServer, Satisfy,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{distinct, duration, file, relay};

pub(super) fn credentials() -> impl Strategy<Value = Credentials> {
    let name = || "x-[a-c]{1,2}".prop_map(|text| text.parse::<HeaderName>().unwrap());
    let basic = (file(), "[!#-Z]{1,5}", name(), any::<bool>()).prop_map(
        |(file, realm, header, keep_authorization)| BasicAuthConfig {
            file,
            realm: realm.parse().unwrap(),
            header,
            keep_authorization,
        },
    );
    let path = "(/[a-c~;]{1,2}){1,2}(\\?a=[a-z&]{0,3})?";
    let forward = (relay(Vec::new()), path, vec(name(), 0..3), duration(1, 3_600_000)).prop_map(
        |(relay, path, mut headers, timeout)| {
            distinct(&mut headers);
            ForwardAuthConfig { to: relay.to, path, headers, timeout, at: At::NOWHERE }
        },
    );
    let text = || "[a-z:/\"é]{1,6}";
    let server = (
        "http(s://[a-c]{1,3}\\.test|://localhost|://\\[::1\\]:8080)/[a-z?=]{0,3}",
        option::of(file()),
        duration(10_000, 3_600_000),
    );
    let server = server.prop_map(|(url, ca, refresh)| {
        let ca = ca.filter(|_| url.starts_with("https"));
        Jwks::Server(KeyServer { url: url.parse().unwrap(), ca, refresh })
    });
    let jwks = prop_oneof![file().prop_map(Jwks::File), server];
    let jwt =
        (jwks, option::of(text()), vec(text(), 0..3), vec((name(), text()), 0..3), duration(0, 3_600_000));
    let jwt = (jwt, any::<bool>(), any::<bool>()).prop_map(
        |((jwks, issuer, mut audience, mut headers, leeway), keep_authorization, keep_tunnels)| {
            distinct(&mut audience);
            headers.sort();
            headers.dedup_by(|one, other| one.0 == other.0);
            JwtAuth { jwks, issuer, audience, headers, leeway, keep_authorization, keep_tunnels }
        },
    );
    let shown = prop_oneof![
        Just((None, None)),
        basic.prop_map(|basic| (Some(basic), None)),
        jwt.prop_map(|jwt| (None, Some(jwt))),
    ];
    (shown, option::of(forward), any::<bool>()).prop_map(|((basic, jwt), forward, choice)| {
        let two = forward.is_some() && (basic.is_some() || jwt.is_some());
        let satisfy = if two && choice { Satisfy::Any } else { Satisfy::All };
        Credentials { basic, jwt, forward, satisfy }
    })
}
