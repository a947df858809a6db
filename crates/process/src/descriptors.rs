//! File descriptors: the number that the configured connections need, beside the number that the kernel gives.
//!
//! Where `limits.connections` is not written, its default is lowered to what fits, without a warning. Where it is
//! written it stays, with a warning: later connections then wait for descriptors.

use offramp_config::Config;
use offramp_config::model::RouteTarget;
use offramp_net::process;
use offramp_observe::Log;

use crate::error::Finding;

/// Those of the process beside connections: logs, the log store, certificates, and for each worker its loop, sockets, pipes,
/// kept connections and files. A round number, so that the warning stays the same when a listener is added.
const OWN: u64 = 1000;

/// Raises the soft limit to the hard one, for the whole process.
pub fn raise(log: &Log) {
    match process::raise_descriptor_limit() {
        Ok(limit) => log.debug("descriptors", &[("limit", limit.into())]),
        Err(error) => log.warn("cannot raise the limit of open files", &[("reason", (&error).into())]),
    }
}

/// The greatest number of connections at a time.
pub fn connections(config: &Config) -> u32 {
    process::descriptor_limit().map_or(config.limits.connections, |limit| lowered(config, limit))
}

/// Logs that the default of `limits.connections` is lowered.
pub fn tell(config: &Config, log: &Log) {
    let connections = connections(config);
    if connections < config.limits.connections {
        let fields = [("connections", connections.into()), ("default", config.limits.connections.into())];
        log.debug("the limit of open files lowers `limits.connections`, which is not written", &fields);
    }
}

/// The warning that this process cannot have so many connections as its configuration says.
pub fn look(config: &Config) -> Option<Finding> {
    short(config, process::descriptor_limit()?)
}

fn is_written(config: &Config) -> bool {
    config.origins.of("limits.connections").is_some()
}

fn lowered(config: &Config, limit: u64) -> u32 {
    match shortage(config, limit) {
        Some(Shortage { fit, .. }) if !is_written(config) => u32::try_from(fit.max(1)).unwrap_or(u32::MAX),
        _ => config.limits.connections,
    }
}

/// The descriptors that the connections need, and the connections that fit.
struct Shortage {
    needed: u64,
    fit: u64,
}

fn shortage(config: &Config, limit: u64) -> Option<Shortage> {
    let connections = u64::from(config.limits.connections);
    // One for the client, and one for the server where there is one.
    let has_servers = config
        .routes
        .iter()
        .any(|route| matches!(route.target, RouteTarget::Relay(_) | RouteTarget::Passthrough(_)));
    let each = if has_servers { 2 } else { 1 };
    let needed = OWN + each * connections;
    // A small limit is not all for the process itself: it uses what it needs, and accepting pauses when none is left.
    let fit = (limit - OWN.min(limit / 4)) / each;
    (needed > limit).then_some(Shortage { needed, fit })
}

fn short(config: &Config, limit: u64) -> Option<Finding> {
    let Shortage { needed, fit } = shortage(config, limit).filter(|_| is_written(config))?;
    let connections = config.limits.connections;
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
            assert_eq!(lowered(&config, 64), 5000, "it is written");
        }
    }

    #[test]
    fn a_default_that_does_not_fit_is_lowered_without_a_word() {
        for (limit, servers, files) in [
            (1 << 20, 100_000, 100_000),
            (201_000, 100_000, 100_000),
            (4096, 1548, 3096),
            (48, 18, 36),
            (0, 1, 1),
        ] {
            for (route, fit) in [("server = \"127.0.0.1:1\"", servers), ("root = \"/srv\"", files)] {
                let config = config(&format!("[[route]]\n{route}\n"));
                assert_eq!((lowered(&config, limit), short(&config, limit)), (fit, None), "{limit} {route}");
            }
        }
    }
}
