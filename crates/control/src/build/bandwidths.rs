//! What the clients of routes may move: the same allowances as before for the routes that were there before, so that no
//! reload gives a burst again.

use std::num::NonZeroU64;

use offramp_config::Config;
use offramp_config::model::{Listeners, RouteConfig, Size};
use offramp_proxy::{Bandwidth, Bandwidths};

use super::routes::name;

/// The bandwidths of the routes of `config`; `before`: those of the snapshot before.
pub(super) fn bandwidths(config: &Config, before: &Bandwidths) -> Bandwidths {
    let of = |route: &RouteConfig| {
        let rate = route.bandwidth.map(Size::bytes).and_then(NonZeroU64::new)?;
        let key = key(route);
        let allowance = before.get(&key).map(|known| known.allowance.clone()).unwrap_or_default();
        Some((key, Bandwidth { rate, allowance }))
    };
    config.routes.iter().filter_map(of).collect()
}

/// That of a route.
pub(super) fn of(bandwidths: &Bandwidths, route: &RouteConfig) -> Option<Bandwidth> {
    route.bandwidth.and_then(|_| bandwidths.get(&key(route)).cloned())
}

/// The identity of a route across snapshots: its conditions.
fn key(route: &RouteConfig) -> (Box<str>, Box<str>) {
    let listeners = match &route.listeners {
        Listeners::All => String::new(),
        Listeners::Named(names) => names.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    };
    (name(route).into(), listeners.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use offramp_config::Environment;

    use super::*;

    fn config(text: &str) -> Config {
        let listeners = "[[listener]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\ntls = false\n\
            [[listener]]\nname = \"b\"\naddress = \"127.0.0.1:2\"\ntls = false\n";
        let text = format!("{listeners}{text}");
        let parsed = offramp_config::parse(&text, "/etc/offramp.toml", &Environment::default());
        parsed.unwrap_or_else(|errors| panic!("{errors}")).0
    }

    #[test]
    fn a_route_keeps_what_its_clients_have_moved_whatever_its_rate_is() {
        let route = |listener: &str, rest: &str| {
            format!("[[route]]\nlistener = \"{listener}\"\nserver = \"x:1\"\n{rest}")
        };
        let rate = |rate: &str| format!("bandwidth = \"{rate}\"\n");
        let first = config(&[route("a", &rate("1MiB")), route("b", &rate("1MiB"))].concat());
        let before = bandwidths(&first, &Bandwidths::new());
        let second = config(&[route("a", &rate("2MiB")), route("b", "")].concat());
        let after = bandwidths(&second, &before);
        let [old, other, new] =
            [(&before, &first.routes[0]), (&before, &first.routes[1]), (&after, &second.routes[0])]
                .map(|(bandwidths, route)| of(bandwidths, route).unwrap());
        assert_eq!((old.rate.get(), new.rate.get()), (1 << 20, 2 << 20));
        assert!(Arc::ptr_eq(&old.allowance, &new.allowance));
        assert!(!Arc::ptr_eq(&old.allowance, &other.allowance));
        assert!(of(&after, &second.routes[1]).is_none());
        // A route that has given its bandwidth up begins anew.
        let third = bandwidths(&first, &after);
        assert!(!Arc::ptr_eq(&of(&third, &first.routes[1]).unwrap().allowance, &other.allowance));
    }
}
