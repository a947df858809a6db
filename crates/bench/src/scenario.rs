//! The list of what is measured. A scenario is a name on the command line; a case is one measurement of
//! it, with one setup of the contestants, one backend and one kind of load.

pub(crate) mod apps;
mod case;
mod http;
mod sparse;

use crate::contestant::template::connections;
use crate::contestant::{Mode, Setup};
use crate::error::{Error, Result};
use crate::pki::KeyKind;
use crate::protocol::{Exchange, Group, Service, Version, Work};
pub(crate) use crate::scenario::case::{Asked, Case, HEADLINES, Method, Web};

/// How much of all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// What bounds refer to and a little more, in less than ten minutes.
    Selection,
    /// Scenarios that were named, without their variants.
    Named,
    /// Every scenario, or the named ones, in every variant.
    Full,
}

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Of each window.
    pub(crate) seconds: f64,
    pub(crate) breadth: Breadth,
    /// The most workers to measure.
    pub(crate) cores: usize,
}

/// A name on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Whether the short selection has it.
    pub(crate) short: bool,
    cases: fn(&Scenario, Pace) -> Vec<Case>,
}

/// Every scenario.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "relay-small",
        what: "10 bytes each way on kept connections",
        short: true,
        cases: small,
    },
    Scenario {
        name: "relay-small-sparse",
        what: "10 bytes each way from a load that cannot keep the proxy busy",
        short: false,
        cases: small_sparse,
    },
    Scenario {
        name: "relay-download",
        what: "1 MiB responses on kept connections",
        short: true,
        cases: bulk,
    },
    Scenario { name: "relay-upload", what: "1 MiB requests on kept connections", short: true, cases: bulk },
    Scenario {
        name: "handshake-full",
        what: "a full handshake on each connection",
        short: true,
        cases: handshakes,
    },
    Scenario {
        name: "handshake-resumed",
        what: "a resumed handshake on each connection",
        short: true,
        cases: handshakes,
    },
    Scenario {
        name: "handshake-mutual",
        what: "a full handshake on each connection in which the client shows a certificate",
        short: true,
        cases: handshakes,
    },
    Scenario {
        name: "relay-both-sides",
        what: "1 MiB each way, with TLS to the application as well",
        short: true,
        cases: encrypted,
    },
    Scenario {
        name: "passthrough",
        what: "1 MiB each way, of TLS that the proxy passes through by the server name",
        short: true,
        cases: encrypted,
    },
    Scenario {
        name: "sparse",
        what: "work that comes at fixed times, between which the proxy sleeps",
        short: false,
        cases: sparse::sparse,
    },
    Scenario { name: "idle", what: "memory and CPU of idle connections", short: true, cases: idle },
    Scenario { name: "start", what: "memory after the start", short: true, cases: start },
    Scenario { name: "syscalls", what: "system calls per unit of work", short: true, cases: syscalls },
    Scenario { name: "churn", what: "connect, one request, close", short: false, cases: churn },
    Scenario {
        name: "latency",
        what: "latency at fixed arrival rates, free of coordinated omission",
        short: false,
        cases: latency,
    },
    Scenario {
        name: "slow-clients",
        what: "small requests while a thousand clients drip bytes",
        short: false,
        cases: slow,
    },
    Scenario {
        name: "scaling",
        what: "one worker to as many as there are cores",
        short: false,
        cases: scaling,
    },
    Scenario {
        name: "http1",
        what: "HTTP/1.1 through proxies that parse, route and forward each request",
        short: true,
        cases: http::http1,
    },
    Scenario {
        name: "http2",
        what: "HTTP/2 from the clients, HTTP/1.1 to the application",
        short: true,
        cases: http::http2,
    },
    Scenario {
        name: "grpc",
        what: "unary calls of gRPC, HTTP/2 on both sides",
        short: false,
        cases: http::grpc,
    },
    Scenario {
        name: "files",
        what: "files over HTTP/1.1: a thousand small ones, a large one, one that is compressed",
        short: false,
        cases: http::files,
    },
    Scenario {
        name: "echo",
        what: "Node.js alone, with its own TLS, and behind Offramp, by body size",
        short: false,
        cases: apps::echo,
    },
    Scenario {
        name: "runtime-tls",
        what: "TLS of Node.js, Java and Python against Offramp in front",
        short: false,
        cases: apps::runtimes,
    },
    Scenario {
        name: "streams",
        what: "three ways to echo in Node.js, alone and behind Offramp",
        short: false,
        cases: apps::streams,
    },
];

impl Scenario {
    /// The cases of this scenario at a pace.
    pub(crate) fn cases(&self, pace: Pace) -> Vec<Case> {
        (self.cases)(self, pace)
    }

    fn case(&self, suffix: &str, what: &str, service: Service, method: Method) -> Case {
        let name = if suffix.is_empty() { self.name.to_owned() } else { format!("{}/{suffix}", self.name) };
        let unit = match self.name {
            "handshake-full" | "handshake-resumed" | "handshake-mutual" => "handshake",
            "churn" | "idle" => "connection",
            "start" => "process tree",
            _ => "request",
        };
        Case {
            scenario: self.name,
            name,
            what: what.to_owned(),
            unit,
            setup: Setup::default(),
            service,
            unix: false,
            shared: false,
            method,
        }
    }
}

/// The scenarios of these names; all of the selection when there are none.
///
/// # Errors
/// When a name is unknown: with the known ones.
pub(crate) fn select(names: &[String], full: bool) -> Result<Vec<&'static Scenario>> {
    if names.is_empty() {
        return Ok(SCENARIOS.iter().filter(|s| full || s.short).collect());
    }
    names
        .iter()
        .map(|name| {
            SCENARIOS.iter().find(|s| s.name == name).ok_or_else(|| {
                let known: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
                Error::Usage(format!("no scenario is called {name:?}; there are: {}", known.join(", ")))
            })
        })
        .collect()
}

/// Enough connections that a worker finds several ready at once, as it would under load.
const CONNECTIONS: usize = 64;
/// Connections of a load that has to share its core with the application.
const SHARED: usize = 100;
/// Bulk transfers at once.
const TRANSFERS: usize = 8;
const SMALL: usize = 10;
const MIB: usize = 1 << 20;

fn relay(connections: usize, request: usize, response: usize, seconds: f64) -> Work {
    Work::Relay { connections, request, response, seconds, warmup: seconds / 5.0 }
}

fn small_service() -> Service {
    Service::Exchange { request: SMALL, response: SMALL }
}

fn small(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let work = relay(CONNECTIONS, SMALL, SMALL, pace.seconds);
    let what = "64 kept connections, 10 bytes each way, one request under way on each";
    let tcp = scenario.case("", what, Service::Echo, Method::Window(work.clone()));
    let what = format!("{what}; the application on a Unix socket");
    let unix = scenario.case("unix", &what, Service::Echo, Method::Window(work));
    vec![tcp, Case { unix: true, ..unix }]
}

/// Load and application are the bottleneck, and not the proxy, which sleeps between events.
fn small_sparse(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let work = relay(SHARED, SMALL, SMALL, pace.seconds);
    let what = "100 kept connections, 10 bytes each way; load and application share one core";
    vec![Case { shared: true, ..scenario.case("", what, Service::Echo, Method::Window(work)) }]
}

fn bulk(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let (request, response, what) = match scenario.name {
        "relay-download" => (SMALL, MIB, "8 kept connections, 1 MiB from the application to the client"),
        _ => (MIB, SMALL, "8 kept connections, 1 MiB from the client to the application"),
    };
    let method = Method::Window(relay(TRANSFERS, request, response, pace.seconds));
    vec![scenario.case("", what, Service::Exchange { request, response }, method)]
}

/// The application speaks TLS, and the proxies speak it too, or pass it through.
fn encrypted(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let mode = if scenario.name == "passthrough" { Mode::Passthrough } else { Mode::BothSides };
    [("download", SMALL, MIB, "to the client"), ("upload", MIB, SMALL, "to the application")]
        .into_iter()
        .map(|(suffix, request, response, direction)| {
            let what = format!("8 kept connections, 1 MiB {direction}; the application speaks TLS 1.3");
            let method = Method::Window(relay(TRANSFERS, request, response, pace.seconds));
            let mut case = scenario.case(suffix, &what, Service::Exchange { request, response }, method);
            case.setup.mode = mode;
            case
        })
        .collect()
}

fn shake(resumed: bool, exchange: Option<(usize, usize)>, seconds: f64) -> Work {
    Work::Handshake { concurrency: 16, resumed, exchange, every: 0.0, seconds, warmup: seconds / 5.0 }
}

fn handshakes(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let resumed = scenario.name == "handshake-resumed";
    let variants = [
        ("", "TLS 1.3, P-256, X25519", Version::Tls13, KeyKind::P256, Group::X25519),
        ("mlkem", "TLS 1.3, P-256, X25519MLKEM768", Version::Tls13, KeyKind::P256, Group::X25519MlKem768),
        ("rsa", "TLS 1.3, RSA-2048, X25519", Version::Tls13, KeyKind::Rsa2048, Group::X25519),
        ("tls12", "TLS 1.2, P-256, X25519", Version::Tls12, KeyKind::P256, Group::X25519),
        ("tls12-rsa", "TLS 1.2, RSA-2048, X25519", Version::Tls12, KeyKind::Rsa2048, Group::X25519),
    ];
    let wanted = if pace.breadth == Breadth::Full { variants.len() } else { 1 };
    variants
        .into_iter()
        .take(wanted)
        // A resumed handshake uses no certificate.
        .filter(|&(.., key, _)| !(resumed && key == KeyKind::Rsa2048))
        .map(|(suffix, what, version, key, group)| {
            let work = shake(resumed, None, pace.seconds);
            let mut case = scenario.case(suffix, what, Service::Echo, Method::Window(work));
            let clients = scenario.name == "handshake-mutual";
            case.setup = Setup { version, key, group, clients, ..Setup::default() };
            case
        })
        .collect()
}

fn idle(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    // Ten thousand, or what the limit of descriptors allows.
    let many = connections().saturating_sub(200).min(10_000);
    let counts = if pace.breadth == Breadth::Full && many > 1_000 { vec![1_000, many] } else { vec![1_000] };
    counts
        .into_iter()
        .map(|connections| {
            let what = format!("{connections} connections that made one small exchange and fell silent");
            let exchange = Exchange::Bytes { request: SMALL, response: SMALL };
            let method = Method::Idle { connections, exchange, seconds: 1.0 };
            scenario.case(&connections.to_string(), &what, Service::Echo, method)
        })
        .collect()
}

fn start(scenario: &Scenario, _: Pace) -> Vec<Case> {
    vec![scenario.case("", "memory of the process tree once it listens", Service::Echo, Method::Start)]
}

fn syscalls(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    // Counts need no long window, and strace makes everything slow.
    let seconds = pace.seconds / 3.0;
    let download = Service::Exchange { request: SMALL, response: MIB };
    let mut cases = vec![
        scenario.case(
            "request",
            "calls per small request on 64 kept connections",
            Service::Echo,
            Method::Syscalls(relay(CONNECTIONS, SMALL, SMALL, seconds)),
        ),
        scenario.case(
            "mib",
            "calls per MiB sent to the client",
            download,
            Method::Syscalls(relay(TRANSFERS, SMALL, MIB, seconds)),
        ),
        scenario.case(
            "handshake",
            "calls per connection: accept, full handshake, connect to the server, close",
            Service::Echo,
            Method::Syscalls(shake(false, None, seconds)),
        ),
    ];
    cases[1].unit = "MiB";
    cases[2].unit = "handshake";
    cases
}

fn churn(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let work = shake(false, Some((SMALL, SMALL)), pace.seconds);
    let what = "connect, full handshake, 10 bytes each way, close";
    vec![scenario.case("", what, Service::Echo, Method::Window(work))]
}

fn latency(scenario: &Scenario, _: Pace) -> Vec<Case> {
    [30_u8, 60, 90]
        .into_iter()
        .map(|percent| {
            let what = format!(
                "small requests arriving at {percent} % of what the slowest contestant can do, on 64 connections"
            );
            let share = f64::from(percent) / 100.0;
            let method = Method::Paced { share, connections: CONNECTIONS, size: SMALL };
            scenario.case(&percent.to_string(), &what, Service::Echo, method)
        })
        .collect()
}

fn slow(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    let drip = Work::Drip { connections: 1_000, interval: 1.0 };
    let work = relay(CONNECTIONS, SMALL, SMALL, pace.seconds);
    let what = "64 healthy connections while 1,000 others send one byte a second";
    vec![scenario.case("", what, small_service(), Method::BesideDrip { work, drip })]
}

fn scaling(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    (1..=pace.cores)
        .map(|workers| {
            let what = format!("small requests through {workers} worker(s) on as many cores");
            let work = relay(CONNECTIONS * workers, SMALL, SMALL, pace.seconds);
            let mut case = scenario.case(&workers.to_string(), &what, Service::Echo, Method::Window(work));
            case.setup.workers = workers;
            case
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::peers::peer;

    #[test]
    fn case_names_are_unique_in_the_full_run() {
        let pace = Pace { seconds: 1.0, breadth: Breadth::Full, cores: 4 };
        let mut names: Vec<String> =
            SCENARIOS.iter().flat_map(|s| s.cases(pace)).map(|case| case.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// The cases of the selection on a machine with so many cores.
    fn selection(cores: usize) -> Vec<Case> {
        let pace = Pace { seconds: 1.0, breadth: Breadth::Selection, cores };
        select(&[], false).unwrap().iter().flat_map(|s| s.cases(pace)).collect()
    }

    #[test]
    fn the_selection_leaves_out_what_two_cores_cannot_tell_and_those_that_stand_aside() {
        let names = |cores| selection(cores).into_iter().map(|case| case.name).collect::<Vec<_>>();
        assert!(names(3).contains(&"http1/slow".to_owned()));
        assert!(!names(2).contains(&"http1/slow".to_owned()));
        assert!(HEADLINES.iter().all(|headline| names(2).iter().any(|name| name == headline)));
        let (stunnel, hitch) = (peer("stunnel").unwrap(), peer("hitch").unwrap());
        for case in selection(2).iter().filter(|case| case.setup.mode == Mode::Stream) {
            assert_eq!(case.takes(stunnel, false), HEADLINES.contains(&case.name.as_str()), "{}", case.name);
            assert!(case.takes(stunnel, true) && case.takes(hitch, false), "{}", case.name);
        }
    }

    #[test]
    fn figures_that_a_clock_blurs_have_five_rounds() {
        for case in selection(2) {
            let clocked = case.method.figure() == crate::metrics::CPU;
            assert_eq!(case.rounds(), if clocked { 5 } else { 3 }, "{}", case.name);
        }
    }

    #[test]
    fn an_unknown_scenario_names_the_known_ones() {
        let error = select(&["relay-smal".to_owned()], false).unwrap_err();
        assert!(error.to_string().contains("relay-small"), "{error}");
    }
}
