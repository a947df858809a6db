//! The answer about a URL is that of the tables that workers use.

use std::time::SystemTime;

use offramp_config::model::Environment;
use offramp_control::{BuiltRoutes, ChosenRoute};
use proptest::prelude::*;

use super::*;

const LISTENERS: &str = "[[listener]]\nname = \"secure\"\nmode = \"http\"\naddress = \"127.0.0.1:8443\"\n\
                         [[listener]]\nname = \"plain\"\nmode = \"http\"\ntls = false\naddress = \"127.0.0.1:8080\"\n";
const HOSTS: [&str; 5] = ["a.test", "*.a.test", "b.a.test", "*.test", "b.test"];
const PATHS: [&str; 6] = ["/", "/x", "/x/", "/x/y", "/xy", "/%78/z"];

/// One route as a configuration has it.
fn route() -> impl Strategy<Value = String> {
    let hosts = proptest::sample::subsequence(&HOSTS[..], 0..=2);
    let path = proptest::sample::select(&PATHS[..]);
    let listener = proptest::sample::select(&["", "secure", "plain"][..]);
    (hosts, path, listener, 0..4u8).prop_map(|(hosts, path, listener, kind)| {
        let mut text = String::from("[[route]]\n");
        if !hosts.is_empty() {
            text += &format!("host = {hosts:?}\n");
        }
        if !listener.is_empty() {
            text += &format!("listener = {listener:?}\n");
        }
        if kind == 0 && !hosts.is_empty() && listener != "plain" {
            return text + "passthrough = \"127.0.0.1:9443\"\n";
        }
        if path != "/" {
            text += &format!("path = {path:?}\n");
        }
        if kind == 1 {
            text += "client_auth = { mode = \"optional\" }\n";
        }
        text + "respond = { status = 404 }\n"
    })
}

/// The way that the answer tells.
fn told(config: &Config, url: &str) -> ChosenRoute {
    let (answer, _) = super::url("url", WhyState { config, backends: &[] }, url).unwrap();
    if answer.first.contains("passes unchanged") {
        let (_, rest) = answer.first.split_once(" by route ").unwrap();
        return ChosenRoute::Passes(rest.split_once(": ").unwrap().0.to_owned());
    }
    let secured = answer.first.strip_suffix(" needs.").and_then(|text| text.split_once(", which route "));
    match (secured, answer.facts.get("route").and_then(|route| route.as_str())) {
        (Some((_, name)), _) => ChosenRoute::Secured(name.to_owned()),
        (None, Some(name)) => ChosenRoute::Takes(name.to_owned()),
        (None, None) => ChosenRoute::None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_answer_is_that_of_the_tables(routes in proptest::collection::vec(route(), 1..7)) {
        let text = format!("{LISTENERS}{}", routes.concat());
        // Two routes with the same conditions are refused, and so is what no request reaches.
        let Ok((config, _)) = offramp_config::parse(&text, "offramp.toml", &Environment::default()) else {
            return Err(TestCaseError::reject("no configuration"));
        };
        let built = match BuiltRoutes::of(&config, SystemTime::now()) {
            Ok(built) => built,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
        };
        for host in ["a.test", "b.a.test", "c.b.a.test", "b.test", "test", "other"] {
            for path in ["/", "/x", "/x/", "/x/y", "/x/y/z", "/xy", "/%78", "/x/z", "/a/../x", "//x", "/X"] {
                for (listener, scheme, port) in [("secure", "https", 8443), ("plain", "http", 8080)] {
                    let url = format!("{scheme}://{host}:{port}{path}");
                    let chosen = built.choose(listener, host, path).unwrap();
                    match (told(&config, &url), chosen) {
                        // A route that passes TLS through is a rule of its own for each kind of its hosts.
                        (ChosenRoute::Passes(route), ChosenRoute::Passes(hosts)) => {
                            let is_of = |host: &str| route.split(',').any(|other| other == host);
                            prop_assert!(hosts.split(',').all(is_of), "{} {} {}\n{}", url, route, hosts, text);
                        }
                        (told, chosen) => prop_assert_eq!(told, chosen, "{}\n{}", url, text),
                    }
                }
            }
        }
    }
}
