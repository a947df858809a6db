//! The scenarios of proxies that parse HTTP: they route each request, set the headers that applications
//! expect, and keep connections to the application for whoever comes next.

use crate::contestant::{Mode, Setup};
use crate::protocol::{Exchange, Service, Work};
use crate::scenario::apps::whole;
use crate::scenario::{
    Asked, Breadth, CONNECTIONS, Case, MIB, Method, Pace, SHARED, SMALL, Scenario, TRANSFERS, Web,
};

/// Connections of HTTP/2, each with [`STREAMS`] requests under way.
const MULTIPLEXED: usize = 8;
const STREAMS: usize = 10;

/// `http1`: requests of kept connections, bodies, idle and slow clients.
pub(super) fn http1(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let seconds = whole(pace.seconds);
    let upload =
        |connections, body, drip| Method::Web { load: Web::Wrk { body }, connections, seconds, drip };
    let load = |connections, drip| upload(connections, 0, drip);
    let case = |suffix: &str, what: &str, response, method: Method| {
        let setup = Setup { mode: Mode::Http1, ..Setup::default() };
        let request = match method {
            Method::Web { load: Web::Wrk { body }, .. } => body,
            _ => 0,
        };
        Case { setup, ..scenario.case(suffix, what, Service::Http { request, response }, method) }
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
    if pace.breadth != Breadth::Selection {
        let what = "GET of 10 bytes on 100 kept connections; load and application share one core";
        cases.push(Case { shared: true, ..case("small-sparse", what, SMALL, load(SHARED, None)) });
        let what = "POST of 1 MiB on 8 kept connections, answered with 10 bytes";
        cases.push(case("1m-up", what, SMALL, upload(TRANSFERS, MIB, None)));
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
            let case = scenario.case(suffix, &what, Service::Http { request: 0, response }, method);
            Case { setup: Setup { mode: Mode::Http2, ..Setup::default() }, ..case }
        })
        .collect()
}

/// `grpc`: short calls side by side, as services call each other.
pub(super) fn grpc(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let what = format!(
        "unary calls with messages of {SMALL} bytes, {MULTIPLEXED} kept connections with {STREAMS} calls on each, \
         HTTP/2 to the application"
    );
    let load = Web::Grpc { streams: STREAMS, message: SMALL };
    let method = Method::Web { load, connections: MULTIPLEXED, seconds: whole(pace.seconds), drip: None };
    let case = scenario.case("unary", &what, Service::Grpc { response: SMALL }, method);
    vec![Case { setup: Setup { mode: Mode::Grpc, ..Setup::default() }, ..case }]
}

/// `files`: what is served without an application.
pub(super) fn files(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let cases = [
        ("8k", "GET of 1,000 files of 8 KiB in turn on 64 kept connections", Asked::Pages, CONNECTIONS),
        ("1m", "GET of a file of 1 MiB on 8 kept connections", Asked::Large, TRANSFERS),
        (
            "gzip",
            "GET of 20 KiB of JSON, compressed with gzip, on 64 kept connections",
            Asked::Compressed,
            CONNECTIONS,
        ),
    ];
    let case = |(suffix, what, asked, connections): (&str, &str, Asked, usize)| {
        let method =
            Method::Web { load: Web::Files(asked), connections, seconds: whole(pace.seconds), drip: None };
        let case = scenario.case(suffix, what, Service::Echo, method);
        Case { setup: Setup { mode: Mode::Files, ..Setup::default() }, ..case }
    };
    cases.into_iter().map(case).collect()
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
            let service = Service::Http { request: 0, response: SMALL };
            let case = scenario.case(name, &what, service, method);
            Case { setup: Setup { mode, ..Setup::default() }, ..case }
        });
    cases.collect()
}
