//! Strategies of what requests must show.

use offramp_config::At;
use offramp_config::model::{BasicAuth, Credentials, ForwardAuth, HeaderName};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{distinct, duration, file, relay};

pub(super) fn credentials() -> impl Strategy<Value = Credentials> {
    let name = || "x-[a-c]{1,2}".prop_map(|text| text.parse::<HeaderName>().unwrap());
    let basic = (file(), "[!#-Z]{1,5}", name(), any::<bool>()).prop_map(
        |(file, realm, header, keep_authorization)| BasicAuth {
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
            ForwardAuth { to: relay.to, path, headers, timeout, at: At::NOWHERE }
        },
    );
    (option::of(basic), option::of(forward)).prop_map(|(basic, forward)| Credentials { basic, forward })
}
