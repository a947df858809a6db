//! Configurations that would take everything down: a file that is empty or was cut short is valid, and nearly never meant.

use offramp_config::Config;
use offramp_process::Finding;

/// The reason why `after` is not used without force: it has none of something, where `before` has some.
pub(crate) fn look(before: &Config, after: &Config) -> Vec<Finding> {
    look_at(numbers(before), after)
}

/// Like [`look`], by the [`numbers`] of `before`.
pub(crate) fn look_at(before: [usize; 2], after: &Config) -> Vec<Finding> {
    let lost = KINDS.into_iter().zip(before).zip(numbers(after));
    let lost: Vec<String> = lost
        .filter(|((_, before), after)| *before > 0 && *after == 0)
        .map(|((kind, before), _)| format!("no [[{kind}]] ({before} in force)"))
        .collect();
    if lost.is_empty() {
        return Vec::new();
    }
    let lost = lost.join(" and ");
    vec![Finding::nowhere(format!(
        "the new configuration has {lost}: perhaps the file is empty or was cut short; if it is meant, add --force to \
         `offramp ctl reload`, `apply` or `upgrade`"
    ))]
}

/// The numbers of routes, and of listeners that are written.
pub(crate) fn numbers(config: &Config) -> [usize; 2] {
    let written = config.listeners.iter().filter(|listener| listener.at.place().is_some()).count();
    [config.routes.len(), written]
}

const KINDS: [&str; 2] = ["route", "listener"];

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        offramp_config::parse(text, "c.toml", &offramp_config::Environment::default()).unwrap().0
    }

    #[test]
    fn what_loses_all_of_its_routes_or_listeners_is_found() {
        let (listener, route) =
            ("[[listener]]\naddress = \"127.0.0.1:1\"\n", "[[route]]\nserver = \"127.0.0.1:2\"\n");
        let state = "state_dir = \"/s\"\n";
        let [empty, listeners, routes, both] = ["", listener, route, &format!("{listener}{route}")]
            .map(|text| config(&format!("{state}{text}")));
        let lost = |before: &Config, after: &Config| {
            let found: String = look(before, after).into_iter().map(|one| one.text).collect();
            found.split(':').next().unwrap().replace("the new configuration has ", "")
        };
        let [no_route, no_listener] = ["no [[route]] (1 in force)", "no [[listener]] (1 in force)"];
        assert_eq!(lost(&both, &empty), format!("{no_route} and {no_listener}"));
        assert_eq!(lost(&both, &listeners), no_route);
        assert_eq!(lost(&both, &routes), no_listener);
        for (before, after) in [(&both, &both), (&empty, &empty), (&empty, &both), (&listeners, &listeners)] {
            assert_eq!(lost(before, after), "");
        }
    }
}
