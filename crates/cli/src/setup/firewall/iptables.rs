//! Rules of `iptables -S`: the chain INPUT, from the first rule to its policy.

use super::{Passage, has_port};

/// Returns true if everything comes in: no rule, and the policy accepts.
pub(super) fn is_empty(text: &str) -> bool {
    !text.lines().any(|line| line.starts_with("-A INPUT")) && policy(text) == Passage::Open
}

fn policy(text: &str) -> Passage {
    match text.lines().find_map(|line| line.strip_prefix("-P INPUT ")) {
        Some("ACCEPT") => Passage::Open,
        Some(_) => Passage::Closed,
        None => Passage::Unclear,
    }
}

/// Judges a port by the first rule of INPUT that decides on it.
pub(super) fn judge(text: &str, port: u16) -> Passage {
    let mut unclear = false;
    for line in text.lines().filter_map(|line| line.strip_prefix("-A INPUT")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (concerns(&words, port), target(&words)) {
            (Some(false), _) | (_, Some("LOG" | "NFLOG")) | (_, None) => {}
            (Some(true), Some("ACCEPT")) => return if unclear { Passage::Unclear } else { Passage::Open },
            (Some(true), Some("DROP" | "REJECT")) => {
                return if unclear { Passage::Unclear } else { Passage::Closed };
            }
            // A chain of its own, or a rule for some clients only.
            (Some(true) | None, Some(_)) => unclear = true,
        }
    }
    if unclear { Passage::Unclear } else { policy(text) }
}

fn target<'a>(words: &[&'a str]) -> Option<&'a str> {
    let at = words.iter().position(|word| matches!(*word, "-j" | "-g"))?;
    words.get(at + 1).copied()
}

/// Returns true if a rule applies to new connections of every client to the port, false if to none of them; `None` if it
/// depends on more.
fn concerns(words: &[&str], port: u16) -> Option<bool> {
    let mut applies = Some(true);
    let mut at = 0;
    while at < words.len() {
        let value = words.get(at + 1).copied().unwrap_or_default();
        let step = match words[at] {
            "-j" | "-g" => break,
            "-p" if matches!(value, "tcp" | "6" | "all") => 2,
            "-p" => return Some(false),
            "-m" => 2,
            "--dport" | "--dports" if has_port(value, port) => 2,
            "--dport" | "--dports" => return Some(false),
            "--ctstate" | "--state" if value.split(',').any(|state| state == "NEW") => 2,
            "--ctstate" | "--state" => return Some(false),
            "-i" if value == "lo" => return Some(false),
            "--tcp-flags" => 3,
            "--syn" => 1,
            "--comment" => {
                // A comment of several words is in quotes.
                let quoted = value.starts_with('"') && !(value.len() > 1 && value.ends_with('"'));
                let length = words[at + 1..].iter().position(|word| word.ends_with('"'));
                if quoted { 2 + length.unwrap_or(0) } else { 2 }
            }
            _ => {
                applies = None;
                1
            }
        };
        at += step;
    }
    applies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_decides_counts() {
        let usual = "-P INPUT DROP\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n-A INPUT -i lo -j ACCEPT\n\
            -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -j ACCEPT\n\
            -A INPUT -p tcp -m tcp --dport 22 -m comment --comment \"for the admin\" -j ACCEPT\n\
            -A INPUT -p tcp -m multiport --dports 80,8000:9000 -m conntrack --ctstate NEW -j ACCEPT\n\
            -A INPUT -j LOG\n";
        for (port, passage) in
            [(22, Passage::Open), (80, Passage::Open), (8443, Passage::Open), (443, Passage::Closed)]
        {
            assert_eq!(judge(usual, port), passage, "{port}");
        }
        for (rules, passage) in [
            ("-P INPUT ACCEPT\n", Passage::Open),
            ("-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-host-prohibited\n", Passage::Closed),
            ("-P INPUT DROP\n-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 443 -j ACCEPT\n", Passage::Unclear),
            ("-P INPUT DROP\n-A INPUT -j my-chain\n", Passage::Unclear),
            ("-P INPUT ACCEPT\n-A INPUT -p udp -j DROP\n", Passage::Open),
            (
                "-P INPUT DROP\n-A INPUT -p tcp -m tcp --dport 443 --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT\n",
                Passage::Open,
            ),
        ] {
            assert_eq!(judge(rules, 443), passage, "{rules}");
        }
        assert!(is_empty("-P INPUT ACCEPT\n-P FORWARD DROP\n-A FORWARD -j X\n"));
        assert!(!is_empty("-P INPUT DROP\n") && !is_empty(usual));
    }
}
