//! Which listening sockets a reload keeps, opens and gives up: pure.
//!
//! Sockets are matched by address. One with the same address is kept, whatever its listener is called
//! now: clients do not notice. The snapshot says which listener each socket serves, so an address can move
//! from one to another.

use std::sync::Arc;

use offramp_net::Address;
use offramp_process::inherited::WantedSocket;

/// A socket that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldSocket {
    /// The name of the listener that it serves.
    pub(crate) listener: Arc<str>,
    /// Its address as configured.
    pub(crate) address: Address,
}

/// The steps from the held sockets to the wanted ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketPlan {
    /// Places of held sockets beside those of what they serve from now on.
    pub(crate) keep: Vec<(usize, usize)>,
    /// Indexes of wanted sockets to open.
    pub(crate) open: Vec<usize>,
    /// Indexes of open sockets to close.
    pub(crate) close: Vec<usize>,
}

/// Plans the way from `held` to `wanted`.
pub(crate) fn plan(held: &[HeldSocket], wanted: &[WantedSocket]) -> SocketPlan {
    let mut plan = SocketPlan::default();
    let mut free: Vec<bool> = vec![true; held.len()];
    let mut unmet: Vec<usize> = (0..wanted.len()).collect();
    // Those of the same name first: several may have the same address where the port is 0.
    for same_name in [true, false] {
        unmet.retain(|&want| {
            let WantedSocket { listener, address } = &wanted[want];
            let fits = |at: &usize| {
                free[*at] && held[*at].address == *address && (!same_name || held[*at].listener == *listener)
            };
            let Some(at) = (0..held.len()).find(fits) else { return true };
            free[at] = false;
            plan.keep.push((at, want));
            false
        });
    }
    plan.open = unmet;
    plan.close = (0..held.len()).filter(|at| free[*at]).collect();
    plan.keep.sort_unstable();
    plan
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(port: u16) -> Address {
        Address::Tcp(([127, 0, 0, 1], port).into())
    }

    fn wanted(sockets: &[(&str, u16)]) -> Vec<WantedSocket> {
        let one =
            |(name, port): &(&str, u16)| WantedSocket { listener: (*name).into(), address: address(*port) };
        sockets.iter().map(one).collect()
    }

    fn held(sockets: &[(&str, u16)]) -> Vec<HeldSocket> {
        let one =
            |(name, port): &(&str, u16)| HeldSocket { listener: (*name).into(), address: address(*port) };
        sockets.iter().map(one).collect()
    }

    #[test]
    fn what_stays_is_kept_and_the_rest_opened_and_closed() {
        let plan =
            plan(&held(&[("web", 1), ("web", 2), ("db", 3)]), &wanted(&[("db", 3), ("web", 2), ("new", 4)]));
        assert_eq!(plan.keep, [(1, 1), (2, 0)]);
        assert_eq!((plan.open, plan.close), (vec![2], vec![0]));
    }

    #[test]
    fn a_renamed_listener_keeps_its_sockets() {
        let plan = plan(&held(&[("a", 1), ("a", 2)]), &wanted(&[("b", 1), ("b", 2)]));
        assert_eq!(plan.keep, [(0, 0), (1, 1)]);
    }

    #[test]
    fn a_socket_moves_to_another_listener() {
        for sockets in [[("a", 1), ("b", 2)], [("b", 1), ("a", 2)], [("b", 1), ("c", 2)]] {
            let plan = plan(&held(&[("a", 1), ("b", 2)]), &wanted(&sockets));
            assert_eq!(plan.keep, [(0, 0), (1, 1)]);
            assert!(plan.open.is_empty() && plan.close.is_empty(), "{plan:?}");
        }
    }

    #[test]
    fn free_ports_are_matched_by_name() {
        let plan = plan(&held(&[("a", 0), ("b", 0)]), &wanted(&[("b", 0), ("a", 0)]));
        assert_eq!(plan.keep, [(0, 1), (1, 0)]);
    }

    fn sockets() -> impl Strategy<Value = Vec<(&'static str, u16)>> {
        let one = (proptest::sample::select(vec!["a", "b", "c"]), 0_u16..5);
        proptest::collection::vec(one, 0..6)
    }

    proptest! {
        #[test]
        fn applying_the_plan_gives_what_is_wanted(before in sockets(), after in sockets()) {
            let (held, wanted) = (held(&before), wanted(&after));
            let plan = plan(&held, &wanted);
            let mut result: Vec<(Arc<str>, u16)> = Vec::new();
            let port = |address: &Address| match address {
                Address::Tcp(tcp) => tcp.port(),
                Address::Unix(_) => unreachable!("the test has none"),
            };
            for (at, held) in held.iter().enumerate() {
                let kept = plan.keep.iter().find(|(keep, _)| *keep == at);
                prop_assert!(kept.is_some() != plan.close.contains(&at));
                if let Some((_, want)) = kept {
                    result.push((wanted[*want].listener.clone(), port(&held.address)));
                }
            }
            result.extend(plan.open.iter().map(|at| (wanted[*at].listener.clone(), port(&wanted[*at].address))));
            let mut target: Vec<_> = after.iter().map(|(name, port)| (Arc::from(*name), *port)).collect();
            result.sort();
            target.sort();
            prop_assert_eq!(result, target);
        }
    }
}
