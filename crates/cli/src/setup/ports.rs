//! Ports: free, or taken by a process that is named.

use offramp_net::port_holder::{self, PortHolder};

use super::finding::SetupFinding;
use crate::steps::{Account, Root, USER};

/// Judges ports by the processes that listen on them.
pub(crate) fn check(ports: &[u16]) -> Vec<SetupFinding> {
    ports.iter().map(|port| judge(*port, &port_holder::holders(*port))).collect()
}

fn judge(port: u16, holders: &[PortHolder]) -> SetupFinding {
    let service = Account::find(&Root::machine(), USER).map(|user| user.uid);
    let is_offramp = |holder: &PortHolder| is_offramp(holder, service);
    if holders.is_empty() {
        return SetupFinding::good(format!("port {port} is free"));
    }
    if holders.iter().all(is_offramp) {
        return SetupFinding::good(format!("port {port} belongs to Offramp already"));
    }
    let mut named: Vec<String> = Vec::new();
    let mut advice: Vec<String> = Vec::new();
    for holder in holders.iter().filter(|holder| !is_offramp(holder)) {
        named.push(format!("{holder} listens on {}", holder.address));
        let line = remedy(port, holder);
        if !advice.contains(&line) {
            advice.push(line);
        }
    }
    let mut finding = SetupFinding::error(format!("port {port} is taken: {}", named.join(", ")));
    finding.advice = advice;
    let option = if port == 80 {
        "--http-port 0 (without it browsers do not change to https by themselves)"
    } else {
        "--https-port 8443"
    };
    finding.advise(format!("or leave it the port: {option}"))
}

/// Returns true for Offramp as root or as the user of the service: any user can give a process its name.
fn is_offramp(holder: &PortHolder, service: Option<u32>) -> bool {
    let is_trusted = holder.user == 0 || Some(holder.user) == service;
    let is_program = |path: &std::path::PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // The kernel says so of a program that was replaced since.
        name.trim_end_matches(" (deleted)") == "offramp"
    };
    let process = holder.process.as_ref();
    is_trusted && process.is_some_and(|process| process.program.as_ref().is_some_and(is_program))
}

/// The way to free a port, by the kind of its holder.
fn remedy(port: u16, holder: &PortHolder) -> String {
    let Some(process) = &holder.process else {
        return format!("find the process: sudo ss -ltnp 'sport = :{port}'");
    };
    match process.name.as_str() {
        "nginx" | "apache2" | "httpd" | "caddy" | "haproxy" | "traefik" | "lighttpd" | "h2o" | "envoy"
        | "hitch" | "varnishd" | "stunnel4" => format!("stop it: systemctl disable --now {}", process.name),
        "docker-proxy" | "rootlessport" | "conmon" => {
            "a container publishes the port: find it with `docker ps` or `podman ps`".to_owned()
        }
        "systemd" => format!("a socket unit of systemd has it: systemctl list-sockets | grep :{port}"),
        _ => format!("stop it; its unit, if it has one: systemctl status {}", process.id),
    }
}

#[cfg(test)]
mod tests {
    use offramp_net::port_holder::HolderProcess;

    use super::*;
    use crate::setup::finding::FindingLevel;

    fn holder(name: &str) -> PortHolder {
        let process = (!name.is_empty()).then(|| HolderProcess {
            id: 812,
            name: name.to_owned(),
            program: Some(format!("/usr/bin/{name}").into()),
        });
        PortHolder { address: "0.0.0.0:443".parse().unwrap(), user: 0, process }
    }

    #[test]
    fn the_holder_is_named_with_the_way_to_stop_it() {
        for (name, told, advice) in [
            ("nginx", "nginx (pid 812) listens on 0.0.0.0:443", "systemctl disable --now nginx"),
            ("docker-proxy", "docker-proxy (pid 812)", "docker ps"),
            ("systemd", "systemd (pid 812)", "list-sockets"),
            ("python3", "python3 (pid 812)", "systemctl status 812"),
            ("", "a process of user root", "sudo ss -ltnp 'sport = :443'"),
        ] {
            let found = judge(443, &[holder(name), holder("offramp")]);
            assert_eq!(found.level, FindingLevel::Error);
            assert!(found.text.contains(told), "{found:?}");
            assert!(found.advice[0].contains(advice) && found.advice.len() == 2, "{found:?}");
        }
        assert_eq!(judge(443, &[holder("offramp")]).level, FindingLevel::Good);
        assert_eq!(judge(443, &[]).level, FindingLevel::Good);
    }

    #[test]
    fn a_name_alone_makes_no_offramp() {
        let own = holder("offramp");
        assert!(is_offramp(&own, None) && is_offramp(&PortHolder { user: 7, ..own.clone() }, Some(7)));
        assert!(!is_offramp(&PortHolder { user: 8, ..own.clone() }, Some(7)));
        let mut other = own;
        if let Some(process) = &mut other.process {
            process.program = Some("/usr/bin/python3".into());
        }
        assert!(!is_offramp(&other, None));
    }

    #[test]
    fn a_port_of_this_process_is_taken() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = check(&[port]);
        assert!(found[0].text.contains(&format!("(pid {})", std::process::id())), "{found:?}");
    }
}
