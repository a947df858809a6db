//! Routes that share requests between backends, or copy them.

use offramp_config::model::{BackendShare, MirrorConfig, Name, RelayConfig, RelayTarget, Size, TrafficSplit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::relay;

/// Who gets the requests of a route of requests, and copies of them.
pub(super) fn relay_of_requests(
    backends: &[Name],
) -> impl Strategy<Value = (RelayConfig, Option<MirrorConfig>)> + use<> {
    let single = relay(backends.to_vec()).boxed();
    let mirror = (select([backends, &[Name::default()]].concat()), 0u64..1 << 24, 1u32..9).prop_map(
        |(backend, max_body, number)| MirrorConfig {
            max_body: Size::new(max_body),
            requests: number,
            one_in: number.try_into().unwrap(),
            ..MirrorConfig::to(backend)
        },
    );
    let names = backends.to_vec();
    let known = names.clone();
    let by = select(vec!["client", "request", "cookie:a", "header:x-a"]);
    let cookies = any::<[bool; 3]>();
    let split = (vec(0u16..=1000, names.len()), by, cookies).prop_map(move |(weights, by, named)| {
        let share = |(backend, weight): (&Name, u16)| BackendShare { backend: backend.clone(), weight };
        let mut shares: Vec<BackendShare> = names.iter().zip(weights).map(share).collect();
        shares[0].weight = shares[0].weight.max(1);
        let [header, cookie, sticky_cookie] = named;
        let split = TrafficSplit {
            backends: shares,
            by: by.parse().unwrap(),
            header: header.then(|| "x-version".parse().unwrap()),
            cookie: cookie.then(|| "version".parse().unwrap()),
            sticky_cookie: sticky_cookie.then(|| "share".parse().unwrap()),
        };
        RelayConfig::new(RelayTarget::Split(split))
    });
    let to = if known.len() < 2 { single } else { prop_oneof![single, split].boxed() };
    (to, option::of(mirror)).prop_map(move |(relay, mirror)| {
        let own = |mirror: &MirrorConfig| relay.to == RelayTarget::Backend(mirror.backend.clone());
        let mirror = mirror.filter(|mirror| known.contains(&mirror.backend) && !own(mirror));
        (relay, mirror)
    })
}
