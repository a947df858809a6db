//! Backends whose servers do not answer.

use offramp_control::{BackendView, ServerView};

use super::{MOST, WhyAnswer, WhyState};

/// Explains the state of one backend, or of all.
///
/// # Errors
/// The name of the backend that is most like an unknown one, if any is.
pub(crate) fn bad_gateway(state: WhyState<'_>, name: Option<&str>) -> Result<WhyAnswer, Option<String>> {
    let chosen = |backend: &&BackendView| name.is_none_or(|name| backend.name == name);
    let backends: Vec<&BackendView> = state.backends.iter().filter(chosen).collect();
    if let (Some(name), true) = (name, backends.is_empty()) {
        let known = state.backends.iter().map(|backend| backend.name.as_str());
        return Err(offramp_config::nearest(name, known).map(str::to_owned));
    }
    let worst = backends.iter().copied().min_by_key(|backend| standing(backend));
    let first = match worst {
        None => "No route leads to a server.".to_owned(),
        Some(backend) => sentence(backend),
    };
    let mut answer = WhyAnswer::new("502", first);
    for backend in &backends {
        for server in backend.servers.iter().filter(|server| name.is_some() || ails(server)).take(MOST) {
            if answer.evidence.len() < MOST {
                let says = format!("Server {} is {}: {}.", server.name, server.state, server.why);
                answer.saw(says, format!("health of backend {}", backend.name));
            }
            advise(&mut answer, state, backend, server);
        }
        answer.fact(
            &backend.name,
            format!("{} of {} servers take requests", working(backend), backend.servers.len()),
        );
    }
    if answer.evidence.is_empty() {
        answer.saw("Each server that is known takes requests.", "health of the backends");
        answer.advise("offramp logs top errors");
    }
    Ok(answer)
}

/// The least for a backend that fares worst.
fn standing(backend: &BackendView) -> u8 {
    match working(backend) {
        0 => 0,
        count if count < backend.servers.len() => 1,
        _ if backend.servers.iter().any(ails) => 2,
        _ => 3,
    }
}

pub(super) fn working(backend: &BackendView) -> usize {
    backend.servers.iter().filter(|server| server.state == "up").count()
}

fn ails(server: &ServerView) -> bool {
    server.state != "up" || server.check.as_ref().is_some_and(|check| check.failed > 0)
}

pub(super) fn sentence(backend: &BackendView) -> String {
    let (name, all, up) = (&backend.name, backend.servers.len(), working(backend));
    match (standing(backend), backend.servers.iter().find(|server| ails(server))) {
        (0, Some(server)) if all == 1 => {
            format!(
                "The only server of backend {name}, {}, is {}: {}.",
                server.name, server.state, server.why
            )
        }
        (0, Some(server)) => format!(
            "None of the {all} servers of backend {name} takes requests; {} is {}: {}.",
            server.name, server.state, server.why
        ),
        (0, None) => format!("Backend {name} has no server yet."),
        (1, Some(server)) => format!(
            "{up} of {all} servers of backend {name} take requests; {} is {}: {}.",
            server.name, server.state, server.why
        ),
        (2, Some(server)) => {
            format!("Server {} of backend {name} fails its checks: {}.", server.name, server.why)
        }
        _ => format!("Every server of backend {name} takes requests now."),
    }
}

/// Advises on each server of a backend that takes no requests.
pub(super) fn advise_all(answer: &mut WhyAnswer, state: WhyState<'_>, backend: &BackendView) {
    for server in backend.servers.iter().filter(|server| ails(server)) {
        advise(answer, state, backend, server);
    }
}

fn advise(answer: &mut WhyAnswer, state: WhyState<'_>, backend: &BackendView, server: &ServerView) {
    if answer.remedy.len() >= MOST {
        return;
    }
    let written = state.config.backends.iter().any(|written| written.name.as_str() == backend.name);
    match server.state {
        "draining" | "disabled" if written => {
            answer.advise(format!("offramp ctl server enable {} {}", backend.name, server.name));
        }
        "down" | "ejected" => answer.advise(format!(
            "See that the application listens at {} and answers; its own log says more.",
            server.name
        )),
        "unresolved" => {
            answer.advise(format!("Give the host of {} an address: getent hosts HOST", server.name));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use offramp_config::model::Config;

    use super::*;

    fn backend(name: &str, servers: &[(&str, &'static str)]) -> BackendView {
        let server = |&(name, state): &(&str, &'static str)| ServerView {
            name: name.to_owned(),
            state,
            why: "it fails its health checks: connection refused".to_owned(),
            check: None,
            weight: 1,
            backup: false,
            active: 0,
            addresses: Vec::new(),
        };
        BackendView { name: name.to_owned(), servers: servers.iter().map(server).collect() }
    }

    #[test]
    fn the_worst_backend_is_named_first() {
        let config = Config::default();
        let why = "it fails its health checks: connection refused";
        for (backends, name, first) in [
            (vec![], None, "No route leads to a server.".to_owned()),
            (
                vec![backend("a", &[("x:1", "up")])],
                None,
                "Every server of backend a takes requests now.".to_owned(),
            ),
            (
                vec![backend("a", &[("x:1", "up")]), backend("b", &[("y:1", "down")])],
                None,
                format!("The only server of backend b, y:1, is down: {why}."),
            ),
            (
                vec![backend("a", &[("x:1", "up"), ("x:2", "ejected")])],
                Some("a"),
                format!("1 of 2 servers of backend a take requests; x:2 is ejected: {why}."),
            ),
            (
                vec![backend("a", &[("x:1", "down"), ("x:2", "disabled")])],
                Some("a"),
                format!("None of the 2 servers of backend a takes requests; x:1 is down: {why}."),
            ),
            (vec![backend("a", &[])], Some("a"), "Backend a has no server yet.".to_owned()),
        ] {
            let state = WhyState { config: &config, backends: &backends };
            assert_eq!(bad_gateway(state, name).unwrap().first, first);
        }
        let backends = [backend("shop", &[])];
        let state = WhyState { config: &config, backends: &backends };
        assert_eq!(bad_gateway(state, Some("shp")).unwrap_err().as_deref(), Some("shop"));
    }
}
