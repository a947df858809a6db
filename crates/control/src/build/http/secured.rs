//! Routes that need TLS, on listeners without it: their requests are sent to TLS, and never to another route.

use std::num::NonZeroU32;

use offramp_config::Config;
use offramp_config::model::{self, ListenAddress, Mode, PlainRules};
use offramp_proxy::{Access, Action, AuthClass, Detours, HeaderPolicy, HttpRoute, Match, PathMatch};
use offramp_sources::contents::Contents;

use super::super::Findings;
use super::super::routes::{Preference, name, split};
use super::prefix;

/// The rules of a listener without TLS for what only listeners with TLS serve.
pub(super) fn rules(
    config: &Config,
    listener: &model::ListenerConfig,
    contents: &mut Contents,
    report: &mut Findings,
) -> Vec<(Preference, (PathMatch, HttpRoute))> {
    let mut rules = Vec::new();
    for route in config.secured_routes_of(listener) {
        for (preference, Match { hosts, .. }) in split(route) {
            let matches = PathMatch { hosts, path: prefix(route), entry: u32::MAX };
            rules.push((preference, (matches, to_tls(config, route, contents, report))));
        }
    }
    rules
}

fn to_tls(
    config: &Config,
    route: &model::RouteConfig,
    contents: &mut Contents,
    report: &mut Findings,
) -> HttpRoute {
    HttpRoute {
        name: name(route).into(),
        action: Action::ToTls { port: port(config, route) },
        client_auth: AuthClass::default(),
        access: Access::default(),
        xfcc: false,
        headers: HeaderPolicy::default(),
        upgrade: ["websocket".into()].into(),
        plain: PlainRules::default(),
        connect_timeout: None,
        detours: Detours::default(),
        error_pages: contents.pages(&route.http.error_pages, report),
        compress: None,
        mirror: None,
        log_one_in: NonZeroU32::MIN,
        bandwidth: None,
    }
}

/// The port where a route is served over TLS: of a listener of requests, or else of one that may pass HTTPS through.
fn port(config: &Config, route: &model::RouteConfig) -> Option<u16> {
    let of = |mode: Mode| {
        let serves = |listener: &&model::ListenerConfig| {
            listener.tls && listener.mode == mode && listener.preamble.is_none() && route.applies_to(listener)
        };
        let addresses = config.listeners.iter().filter(serves).flat_map(|listener| &listener.addresses);
        addresses.into_iter().find_map(|address| match address {
            // Which port the kernel chooses is not known yet.
            ListenAddress::Ip(address) => Some(address.port()).filter(|port| *port > 0),
            ListenAddress::Unix(_) => None,
        })
    };
    of(Mode::Http).or_else(|| of(Mode::Tcp))
}
