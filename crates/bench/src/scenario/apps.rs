//! The scenarios that put Offramp in front of real runtimes, with HTTP load by `wrk`.

use crate::application::Runtime;
use crate::contestant::{Mode, Setup};
use crate::protocol::Service;
use crate::report::OFFRAMP;
use crate::scenario::{Case, Method, Pace, Scenario};

/// How an application is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// The application alone, without TLS.
    Http,
    /// The application alone, with TLS of its own.
    Https,
    /// Offramp in front, in mode tcp.
    TlsOff,
    /// Offramp in front, in mode http.
    TlsOffHttp,
    /// nginx in front, in mode http, as most people run it.
    Nginx,
}

impl Arrangement {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::TlsOff => "tls-off",
            Self::TlsOffHttp => "tls-off-http",
            Self::Nginx => "nginx",
        }
    }

    /// The proxy in front of the application, and its mode.
    pub(crate) fn front(self) -> Option<(&'static str, Mode)> {
        match self {
            Self::Http | Self::Https => None,
            Self::TlsOff => Some((OFFRAMP, Mode::Stream)),
            Self::TlsOffHttp => Some((OFFRAMP, Mode::Http1)),
            Self::Nginx => Some(("nginx", Mode::Http1)),
        }
    }
}

/// An application under load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) runtime: Runtime,
    pub(crate) manner: Option<&'static str>,
    /// Bytes of each request's body, which come back.
    pub(crate) body: usize,
    pub(crate) connections: usize,
    /// Whether Offramp reaches the application over a Unix socket.
    pub(crate) unix: bool,
    pub(crate) seconds: u32,
    /// Count the application's system calls instead of timing it.
    pub(crate) traced: bool,
    pub(crate) arrangements: &'static [Arrangement],
}

/// Requests under way at once.
const CONNECTIONS: usize = 20;

impl Served {
    fn new(runtime: Runtime, body: usize, pace: Pace) -> Self {
        Self {
            runtime,
            manner: None,
            body,
            connections: CONNECTIONS,
            unix: false,
            seconds: whole(pace.seconds),
            traced: false,
            arrangements: &[],
        }
    }
}

/// The arrangements of the scenario `echo`, in the order of its plot.
pub(crate) const ECHO: [Arrangement; 5] =
    [Arrangement::Http, Arrangement::TlsOff, Arrangement::TlsOffHttp, Arrangement::Nginx, Arrangement::Https];

/// `echo`: the classic matrix on Node.js.
pub(super) fn echo(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    [10, 100, 1_000, 10_000]
        .into_iter()
        .map(|body| {
            let what = format!(
                "POST of {body} bytes, echoed by Node.js: alone, with its own TLS, and on a Unix socket behind \
                 Offramp (modes tcp and http) and nginx (mode http); CPU is that of the whole side of the server"
            );
            let served = Served { unix: true, arrangements: &ECHO, ..Served::new(Runtime::Node, body, pace) };
            case(scenario, &body.to_string(), &what, served)
        })
        .collect()
}

/// `runtime-tls`: what Offramp saves an application.
pub(super) fn runtimes(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    const ARRANGEMENTS: &[Arrangement] = &[Arrangement::TlsOff, Arrangement::Https];
    let sizes = [("1k", 1 << 10), ("100k", 100 << 10)];
    let all = Runtime::ALL.into_iter().flat_map(|runtime| sizes.map(|(label, size)| (runtime, label, size)));
    all.map(|(runtime, label, size)| {
        let name = runtime.name();
        let what = format!(
            "{label} bytes echoed by {name}'s own server: its own TLS against Offramp in front over TCP"
        );
        let served = Served { arrangements: ARRANGEMENTS, ..Served::new(runtime, size, pace) };
        case(scenario, &format!("{name}-{label}"), &what, served)
    })
    .collect()
}

/// `streams`: three ways to write an echo in Node.js.
pub(super) fn streams(scenario: &Scenario, pace: Pace) -> Vec<Case> {
    const ARRANGEMENTS: &[Arrangement] = &[Arrangement::TlsOff, Arrangement::Http];
    let mut cases = Vec::new();
    for manner in ["buffer", "pipe", "readable"] {
        for traced in [false, true] {
            let served = Served {
                manner: Some(manner),
                unix: true,
                traced,
                arrangements: ARRANGEMENTS,
                ..Served::new(Runtime::Node, 10_000, pace)
            };
            let (suffix, what) = if traced {
                (format!("{manner}-syscalls"), "system calls of the application per request")
            } else {
                (manner.to_owned(), "10,000 bytes echoed by Node.js")
            };
            cases.push(case(scenario, &suffix, &format!("{what}, written as `{manner}`"), served));
        }
    }
    cases
}

fn case(scenario: &Scenario, suffix: &str, what: &str, served: Served) -> Case {
    Case {
        scenario: scenario.name,
        name: format!("{}/{suffix}", scenario.name),
        what: what.to_owned(),
        unit: "request",
        setup: Setup::default(),
        service: Service::Echo,
        unix: false,
        shared: false,
        method: Method::Served(served),
    }
}

pub(super) fn whole(seconds: f64) -> u32 {
    seconds.ceil() as u32
}
