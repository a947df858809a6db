//! File descriptors: the number that the configured connections need, beside the number that the kernel gives.

use offramp_config::Config;
use offramp_config::model::Target;
use offramp_net::process;
use offramp_observe::Log;

use crate::error::Finding;

/// Those of the process beside connections: logs, the log store, certificates, and for each worker its loop, sockets, pipes,
/// kept connections and files. A round number, so that the warning stays the same when a listener is added.
const OWN: u64 = 1000;

/// Raises the soft limit to the hard one, for the whole process.
pub(crate) fn raise(log: &Log) {
    match process::raise_descriptor_limit() {
        Ok(limit) => log.debug("descriptors", &[("limit", limit.into())]),
        Err(error) => log.warn("cannot raise the limit of open files", &[("reason", (&error).into())]),
    }
}

/// The warning that this process cannot have so many connections as its configuration admits.
pub(crate) fn look(config: &Config) -> Option<Finding> {
    short(config, process::descriptor_limit()?)
}

fn short(config: &Config, limit: u64) -> Option<Finding> {
    let connections = u64::from(config.limits.connections);
    // One for the client, and one for the server where there is one.
    let has_servers =
        config.routes.iter().any(|route| matches!(route.target, Target::Relay(_) | Target::Passthrough(_)));
    let each = if has_servers { 2 } else { 1 };
    let needed = OWN + each * connections;
    if needed <= limit {
        return None;
    }
    let fit = limit.saturating_sub(OWN) / each;
    Some(Finding::nowhere(format!(
        "limits.connections = {connections} needs {needed} file descriptors, and the process may have {limit} \
         (RLIMIT_NOFILE): about {fit} connections fit, and later ones wait; raise the hard limit to {needed} \
         (`LimitNOFILE={needed}` in a systemd unit, `--ulimit nofile={needed}` of a container, `ulimit -Hn` of a \
         shell), or set limits.connections to {fit} or less"
    )))
}

#[cfg(test)]
mod tests {
    use offramp_config::Environment;

    use super::*;

    fn config(text: &str) -> Config {
        let head = "state_dir = \"/state\"\n[[listener]]\nmode = \"http\"\ntls = false\naddress = \"127.0.0.1:8080\"\n";
        let parsed =
            offramp_config::parse(&format!("{head}{text}"), "/etc/offramp.toml", &Environment::default());
        parsed.unwrap_or_else(|errors| panic!("{errors}")).0
    }

    #[test]
    fn two_are_needed_for_each_connection_that_has_a_server() {
        for (route, needed) in [
            ("server = \"127.0.0.1:1\"", 1000 + 2 * 5000),
            ("respond = { body = \"x\" }", 1000 + 5000),
            ("root = \"/srv\"", 1000 + 5000),
        ] {
            let config = config(&format!("[limits]\nconnections = 5000\n[[route]]\n{route}\n"));
            assert_eq!(short(&config, needed), None, "{route}");
            let text = short(&config, needed - 1).unwrap().text;
            let words = [
                format!("needs {needed} "),
                format!("may have {} ", needed - 1),
                "about 4999 connections fit".to_owned(),
                format!("LimitNOFILE={needed}`"),
            ];
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            let none = short(&config, 64).unwrap().text;
            assert!(none.contains("about 0 connections fit"), "{none}");
        }
    }
}
