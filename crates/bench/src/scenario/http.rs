//! The scenarios of proxies that parse HTTP: they route each request, set the headers that applications
//! expect, and keep connections to the application for whoever comes next.

use crate::contestant::{Mode, Setup};
use crate::protocol::{Exchange, Service, Work};
use crate::scenario::apps::whole;
use crate::scenario::{Breadth, CONNECTIONS, Case, MIB, Method, Pace, SMALL, Scenario, TRANSFERS, Web};

/// Connections of HTTP/2, each with [`STREAMS`] requests under way.
const MULTIPLEXED: usize = 8;
const STREAMS: usize = 10;

/// `http1`: requests of kept connections, bodies, idle and slow clients.
pub(super) fn http1(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let seconds = whole(pace.seconds);
    let load = |connections, drip| Method::Web { load: Web::Wrk, connections, seconds, drip };
    let case = |suffix: &str, what: &str, response, method| {
        let setup = Setup { mode: Mode::Http1, ..Setup::default() };
        Case { setup, ..scenario.case(suffix, what, Service::Http { response }, method) }
    };
    let drip = Work::Drip { connections: 1_000, interval: 1.0 };
    let mut idle = case(
        "idle",
        "1,000 connections that made one request and fell silent",
        SMALL,
        Method::Idle { connections: 1_000, exchange: Exchange::Get, seconds: 1.0 },
    );
    idle.unit = "connection";
    let mut cases = vec![
        case("10", "GET of 10 bytes on 64 kept connections", SMALL, load(CONNECTIONS, None)),
        case("1m", "GET of 1 MiB on 8 kept connections", MIB, load(TRANSFERS, None)),
        idle,
    ];
    // With a core for the load and another for the application, or the tail is theirs and not the proxy's.
    if pace.breadth != Breadth::Selection || pace.cores >= 3 {
        cases.push(case(
            "slow",
            "GET of 10 bytes on 64 kept connections, while 1,000 others send a request's head byte by byte",
            SMALL,
            load(CONNECTIONS, Some(drip)),
        ));
    }
    if pace.breadth == Breadth::Full {
        cases.push(case("64k", "GET of 64 KiB on 64 kept connections", 64 << 10, load(CONNECTIONS, None)));
    }
    cases
}

/// `http2`: requests side by side on few connections.
pub(super) fn http2(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let seconds = whole(pace.seconds);
    let sizes = [("10", "10 bytes", SMALL), ("64k", "64 KiB", 64 << 10)];
    let wanted = if pace.breadth == Breadth::Full { sizes.len() } else { 1 };
    sizes
        .into_iter()
        .take(wanted)
        .map(|(suffix, size, response)| {
            let what = format!("GET of {size} on {MULTIPLEXED} kept connections, {STREAMS} streams on each");
            let load = Web::H2load { streams: STREAMS };
            let method = Method::Web { load, connections: MULTIPLEXED, seconds, drip: None };
            let case = scenario.case(suffix, &what, Service::Http { response }, method);
            Case { setup: Setup { mode: Mode::Http2, ..Setup::default() }, ..case }
        })
        .collect()
}

/// Requests a second on each of the connections of a sparse load, 2,000 in all.
const PER_CONNECTION: [usize; 2] = [31, 250];

/// The HTTP cases of the scenario `sparse`.
pub(super) fn sparse(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let versions = [("http1", Mode::Http1, CONNECTIONS), ("http2", Mode::Http2, MULTIPLEXED)];
    let cases =
        versions.into_iter().zip(PER_CONNECTION).map(|((name, mode, connections), per_connection)| {
            let rate = per_connection * connections;
            let what = format!("{rate} GETs of 10 bytes a second on {connections} kept connections");
            let seconds = whole(pace.seconds);
            let method =
                Method::Web { load: Web::Rated { per_connection }, connections, seconds, drip: None };
            let case = scenario.case(name, &what, Service::Http { response: SMALL }, method);
            Case { setup: Setup { mode, ..Setup::default() }, ..case }
        });
    cases.collect()
}
