//! Strategies of what requests must show.

use offramp_config::model::{BasicAuth, Credentials, HeaderName};
use proptest::option;
use proptest::prelude::*;

use super::file;

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
    option::of(basic).prop_map(|basic| Credentials { basic })
}
