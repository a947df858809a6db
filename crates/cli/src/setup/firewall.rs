//! The firewall of this machine, as far as it can be seen: ufw, firewalld, nftables, iptables.
//!
//! Rules are read, never changed. A rule that depends on more than the port is not understood, and said so.

mod iptables;
mod nftables;

use super::finding::SetupFinding;
use crate::steps::{SystemAction, find_program};

/// Judgement of a port by one firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Open,
    Closed,
    /// The rules say more than is understood here.
    Unclear,
}

/// Ports that a firewall lets pass, by its own words.
struct Rules<'a> {
    /// Name of the firewall.
    name: &'static str,
    passage: Box<dyn Fn(u16) -> Passage + 'a>,
    /// Command that opens a port.
    open: fn(u16) -> String,
}

/// Looks at the firewalls of this machine, and judges the ports.
pub(crate) fn check(ports: &[u16]) -> Vec<SetupFinding> {
    let mut looked = Vec::new();
    let said = |words: &[&str]| -> Option<Result<String, ()>> {
        find_program(words[0])?;
        let SystemAction::Run(run) = SystemAction::run(words.iter().copied()) else { return None };
        let output = run.output().ok()?;
        Some(match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(()),
        })
    };
    match said(&["ufw", "status", "verbose"]) {
        Some(Ok(text)) if is_ufw_active(&text) => {
            return judge(
                ports,
                &Rules {
                    name: "ufw",
                    passage: Box::new(move |port| ufw(&text, port)),
                    open: |port| format!("ufw allow {port}/tcp"),
                },
            );
        }
        Some(Ok(_)) => looked.push("ufw (inactive)"),
        Some(Err(())) => looked.push("ufw (only root may see it)"),
        None => {}
    }
    match said(&["firewall-cmd", "--list-all"]) {
        Some(Ok(text)) => {
            let open =
                |port| format!("firewall-cmd --permanent --add-port={port}/tcp && firewall-cmd --reload");
            return judge(
                ports,
                &Rules { name: "firewalld", passage: Box::new(move |port| firewalld(&text, port)), open },
            );
        }
        Some(Err(())) => looked.push("firewalld (not running, or only root may see it)"),
        None => {}
    }
    let unseen = match said(&["nft", "-j", "list", "ruleset"]) {
        Some(Ok(text)) => match nftables::chains(&text) {
            Some(chains) if chains.is_empty() => {
                looked.push("nftables (no rules for what comes in)");
                false
            }
            Some(chains) => {
                let open = |port| {
                    format!(
                        "nft add rule inet filter input tcp dport {port} accept, before the rule that drops"
                    )
                };
                return judge(
                    ports,
                    &Rules {
                        name: "nftables",
                        passage: Box::new(move |port| nftables::judge(&chains, port)),
                        open,
                    },
                );
            }
            None => true,
        },
        Some(Err(())) => {
            looked.push("nftables (only root may see it)");
            true
        }
        None => true,
    };
    for (program, hidden) in
        [("iptables", "iptables (only root may see it)"), ("ip6tables", "ip6tables (only root may see it)")]
    {
        match said(&[program, "-S"]).filter(|_| unseen) {
            Some(Ok(text)) if iptables::is_empty(&text) => looked.push(program),
            Some(Ok(text)) => {
                let open = |port| {
                    format!("iptables -I INPUT -p tcp --dport {port} -j ACCEPT, and the same by ip6tables")
                };
                return judge(
                    ports,
                    &Rules {
                        name: program,
                        passage: Box::new(move |port| iptables::judge(&text, port)),
                        open,
                    },
                );
            }
            Some(Err(())) => looked.push(hidden),
            None => {}
        }
    }
    vec![nothing(&looked)]
}

fn judge(ports: &[u16], rules: &Rules<'_>) -> Vec<SetupFinding> {
    let Rules { name, passage, open } = rules;
    let mut findings: Vec<SetupFinding> = ports
        .iter()
        .map(|port| match passage(*port) {
            Passage::Open => SetupFinding::good(format!("{name} lets port {port} pass")),
            Passage::Closed => SetupFinding::warning(format!("{name} does not let port {port} pass"))
                .advise(format!("open it: {}", open(*port))),
            Passage::Unclear => {
                SetupFinding::warning(format!("the rules of {name} for port {port} are not understood"))
                    .advise("see to it that they let it pass")
            }
        })
        .collect();
    if let Some(last) = findings.last_mut() {
        last.advice.push(OUTSIDE.to_owned());
    }
    findings
}

fn nothing(looked: &[&str]) -> SetupFinding {
    let hidden = looked.iter().any(|name| name.contains("only root"));
    let names = match looked {
        [] => "none of ufw, firewalld, nftables and iptables is installed".to_owned(),
        looked => format!("looked at {}", looked.join(", ")),
    };
    let finding = match hidden {
        true => SetupFinding::warning(format!("firewall: cannot be seen: {names}")),
        false => SetupFinding::good(format!("no firewall on this machine: {names}")),
    };
    finding.advise(OUTSIDE)
}

/// Said of every look.
const OUTSIDE: &str =
    "a firewall in front of this machine (of a router, of a cloud) cannot be seen from here";

fn is_ufw_active(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "Status: active")
}

/// Judges a port by `ufw status verbose`: the first rule that has the port, then the default.
fn ufw(text: &str, port: u16) -> Passage {
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| matches!(*word, "ALLOW" | "DENY" | "REJECT" | "LIMIT"))
        else {
            continue;
        };
        // Rules for the way out have OUT, those for what passes through FWD.
        if words.get(at + 1).is_some_and(|word| matches!(*word, "OUT" | "FWD")) {
            continue;
        }
        let from_anywhere = words[at + 1..].contains(&"Anywhere");
        let matches = match words[..at] {
            [target] => has_port(target, port),
            // A profile: `Nginx Full`, `WWW Secure (v6)`, or `80,443/tcp (Nginx Full)`.
            [target, ..] => has_port(target, port),
            [] => false,
        };
        if matches && from_anywhere {
            return if matches!(words[at], "ALLOW" | "LIMIT") { Passage::Open } else { Passage::Closed };
        }
    }
    match text.lines().find_map(|line| line.strip_prefix("Default:")) {
        Some(default) if default.trim_start().starts_with("allow (incoming)") => Passage::Open,
        Some(_) => Passage::Closed,
        None => Passage::Unclear,
    }
}

/// Judges a port by `firewall-cmd --list-all` of the default zone.
fn firewalld(text: &str, port: u16) -> Passage {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_default().trim()
    };
    let service = match port {
        443 => "https",
        80 => "http",
        _ => "",
    };
    let by_service = value("services").split_whitespace().any(|name| name == service);
    let by_port = value("ports").split_whitespace().any(|target| has_port(target, port));
    match value("target") {
        "ACCEPT" => Passage::Open,
        _ if by_service || by_port => Passage::Open,
        _ if text.contains("rule ") => Passage::Unclear,
        _ => Passage::Closed,
    }
}

/// Returns true if a list of ports and ranges has the port: `443`, `443/tcp`, `80,443/tcp`, `8000:9000/tcp`, `8000-9000/tcp`,
/// `Anywhere`.
fn has_port(target: &str, port: u16) -> bool {
    let (ports, protocol) = target.split_once('/').unwrap_or((target, "tcp"));
    if protocol != "tcp" {
        return false;
    }
    ports == "Anywhere"
        || ports.split(',').any(|part| {
            let (first, last) = part.split_once([':', '-']).unwrap_or((part, part));
            match (first.parse::<u16>(), last.parse::<u16>()) {
                (Ok(first), Ok(last)) => (first..=last).contains(&port),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ufw_is_read() {
        let text = "Status: active\nLogging: on (low)\nDefault: deny (incoming), allow (outgoing), disabled (routed)\n\
            New profiles: skip\n\nTo                         SystemAction      From\n--                         ------      ----\n\
            22/tcp                     LIMIT IN    Anywhere\n\
            80,443/tcp (Nginx Full)    ALLOW IN    Anywhere\n\
            8443/udp                   ALLOW IN    Anywhere\n\
            5432                       ALLOW IN    10.0.0.0/8\n\
            9000:9100/tcp              DENY IN     Anywhere\n\
            25                         ALLOW OUT   Anywhere\n\
            443/tcp (v6)               ALLOW IN    Anywhere (v6)\n";
        assert!(is_ufw_active(text) && !is_ufw_active("Status: inactive\n"));
        for (port, passage) in [
            (22, Passage::Open),
            (80, Passage::Open),
            (443, Passage::Open),
            (8443, Passage::Closed),
            (5432, Passage::Closed),
            (9050, Passage::Closed),
            (25, Passage::Closed),
        ] {
            assert_eq!(ufw(text, port), passage, "{port}");
        }
        assert_eq!(ufw("Status: active\nDefault: allow (incoming), x\n", 443), Passage::Open);
        assert_eq!(
            ufw("Status: active\nDefault: deny (incoming)\nAnywhere ALLOW IN Anywhere\n", 443),
            Passage::Open
        );
    }

    #[test]
    fn firewalld_is_read() {
        let text = "public (active)\n  target: default\n  services: dhcpv6-client https ssh\n  ports: 8000-8100/tcp 53/udp\n";
        for (port, passage) in
            [(443, Passage::Open), (80, Passage::Closed), (8050, Passage::Open), (53, Passage::Closed)]
        {
            assert_eq!(firewalld(text, port), passage, "{port}");
        }
        assert_eq!(firewalld("trusted\n  target: ACCEPT\n", 443), Passage::Open);
        assert_eq!(
            firewalld("p\n  target: default\n  rich rules:\n\trule family=\"ipv4\" accept\n", 443),
            Passage::Unclear
        );
    }

    #[test]
    fn each_judgement_has_its_words() {
        let rules = |passage| Rules {
            name: "ufw",
            passage: Box::new(move |_| passage),
            open: |port| format!("ufw allow {port}/tcp"),
        };
        let said = |passage| crate::setup::finding::list(&judge(&[443, 80], &rules(passage)));
        assert!(said(Passage::Open).contains("ok       ufw lets port 443 pass"));
        assert!(said(Passage::Closed).contains("open it: ufw allow 80/tcp"));
        assert!(said(Passage::Unclear).contains("not understood"));
        for passage in [Passage::Open, Passage::Closed, Passage::Unclear] {
            assert_eq!(said(passage).matches("of a router, of a cloud").count(), 1);
        }
        assert!(nothing(&["nftables (only root may see it)"]).text.contains("cannot be seen"));
        assert!(nothing(&[]).text.contains("none of ufw"));
    }
}
