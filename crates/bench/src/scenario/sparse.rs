//! `sparse`: the loads of other scenarios, but at a rate at which the proxy falls asleep after each event.
//!
//! At saturation one wake-up finds several connections ready, and its cost is shared. Most proxies are far from
//! saturated: each request finds them asleep.

use crate::protocol::{Service, Work};
use crate::scenario::{CONNECTIONS, Case, MIB, Method, Pace, SMALL, Scenario, TRANSFERS, http};

/// Small requests per second: a tenth of what one core can do, or less.
const SMALL_RATE: f64 = 2_000.0;
/// Transfers of 1 MiB per second.
const BULK_RATE: f64 = 100.0;
/// Handshakes: so many loops, each beginning one in so many seconds.
const HANDSHAKES: (usize, f64) = (4, 0.01);

pub(super) fn sparse(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let seconds = pace.seconds;
    let rated = |connections, request, response, rate| {
        Method::Window(Work::Rate { connections, request, response, rate, seconds, warmup: seconds / 5.0 })
    };
    let exchange = |request, response| Service::Exchange { request, response };
    let (concurrency, every) = HANDSHAKES;
    let warmup = seconds / 5.0;
    let shake = Work::Handshake { concurrency, resumed: false, exchange: None, every, seconds, warmup };
    let mut handshake =
        scenario.case("handshake", "400 full handshakes a second", Service::Echo, Method::Window(shake));
    handshake.unit = "handshake";
    let mut cases = vec![
        scenario.case(
            "small",
            "2,000 requests a second on 64 kept connections, 10 bytes each way",
            Service::Echo,
            rated(CONNECTIONS, SMALL, SMALL, SMALL_RATE),
        ),
        scenario.case(
            "download",
            "100 responses of 1 MiB a second on 8 kept connections",
            exchange(SMALL, MIB),
            rated(TRANSFERS, SMALL, MIB, BULK_RATE),
        ),
        scenario.case(
            "upload",
            "100 requests of 1 MiB a second on 8 kept connections",
            exchange(MIB, SMALL),
            rated(TRANSFERS, MIB, SMALL, BULK_RATE),
        ),
        handshake,
    ];
    cases.extend(http::sparse(scenario, pace));
    cases
}
