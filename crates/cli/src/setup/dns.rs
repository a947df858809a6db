//! Names: do they lead to this machine, as far as it can see, and can an authority reach it under them?

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _};
use std::sync::mpsc;
use std::time::Duration;

use super::finding::SetupFinding;

/// Judgement of a name.
#[derive(Debug)]
pub(crate) struct NameReport {
    pub(crate) finding: SetupFinding,
    /// Set if an authority may find this machine under the name.
    pub(crate) is_public: bool,
}

/// Longest wait for an answer of the name servers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks a name up and judges where it leads.
pub(crate) fn check(name: &str, own: &[IpAddr]) -> NameReport {
    judge(name, &look_up(name), own)
}

/// Answer to a look-up.
enum LookUp {
    /// Addresses, each once.
    Found(Vec<IpAddr>),
    /// The name has none.
    Nothing,
    /// No answer came in time.
    Silence,
}

fn look_up(name: &str) -> LookUp {
    let (sender, receiver) = mpsc::channel();
    let asked = format!("{name}.:0");
    // A resolver that is not reachable takes longer than anybody waits; the thread ends with the process.
    std::thread::spawn(move || {
        let found = asked
            .to_socket_addrs()
            .map(|found| found.map(|address| address.ip().to_canonical()).collect::<Vec<_>>());
        let _ = sender.send(found.unwrap_or_default());
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(found) if found.is_empty() => LookUp::Nothing,
        Ok(mut found) => {
            found.sort_unstable();
            found.dedup();
            LookUp::Found(found)
        }
        Err(_) => LookUp::Silence,
    }
}

fn judge(name: &str, answer: &LookUp, own: &[IpAddr]) -> NameReport {
    let hidden = |finding: SetupFinding| NameReport { finding, is_public: false };
    let seen = |finding: SetupFinding| NameReport { finding, is_public: true };
    let found = match answer {
        LookUp::Found(found) => found,
        LookUp::Nothing => {
            let finding = SetupFinding::warning(format!("{name} has no address in DNS"));
            return hidden(finding.advise(format!(
                "add an A record, and an AAAA record if this machine has IPv6: {}",
                listed(&public(own)).unwrap_or_else(|| "the public address of this machine".to_owned())
            )));
        }
        LookUp::Silence => {
            let finding = SetupFinding::warning(format!("no name server has answered for {name} within 5 s"));
            return hidden(finding.advise("see /etc/resolv.conf and the network of this machine"));
        }
    };
    let leads = format!("{name} leads to {}", listed(found).unwrap_or_default());
    if found.iter().all(IpAddr::is_loopback) {
        let finding = SetupFinding::warning(format!("{leads}, which is every machine for itself"));
        return hidden(finding.advise("it is in /etc/hosts; others see what is in DNS"));
    }
    let (outside, inside): (Vec<IpAddr>, Vec<IpAddr>) =
        found.iter().partition(|address| is_public(**address));
    if outside.is_empty() {
        let finding =
            SetupFinding::warning(format!("{leads}, a private address: nobody on the internet reaches it"));
        return hidden(finding);
    }
    if !inside.is_empty() {
        let inside = listed(&inside).unwrap_or_default();
        let finding = SetupFinding::warning(format!("{leads}; {inside} is private"));
        return seen(
            finding.advise("clients that choose it fail outside of your network: remove it from DNS"),
        );
    }
    let foreign: Vec<IpAddr> = outside.iter().copied().filter(|address| !own.contains(address)).collect();
    if foreign.is_empty() {
        return seen(SetupFinding::good(format!("{leads}, an address of this machine")));
    }
    seen(elsewhere(&leads, &outside, &foreign, own))
}

/// The finding for public addresses that no interface of this machine has.
fn elsewhere(leads: &str, outside: &[IpAddr], foreign: &[IpAddr], own: &[IpAddr]) -> SetupFinding {
    let families =
        |addresses: &[IpAddr]| (addresses.iter().any(IpAddr::is_ipv4), addresses.iter().any(IpAddr::is_ipv6));
    let (own_4, own_6) = families(&public(own));
    let (foreign_4, foreign_6) = families(foreign);
    // Behind a router or in a cloud the interfaces have private addresses only.
    let translated = (foreign_4 && !own_4 && !foreign_6) || (!own_4 && !own_6);
    if translated {
        let inner = own.iter().filter(|address| !address.is_loopback() && address.is_ipv4() != foreign_6);
        let inner = inner.map(ToString::to_string).next().unwrap_or_else(|| "this machine".to_owned());
        return SetupFinding::warning(format!(
            "{leads}; this machine has only private addresses: it is behind a router (NAT)"
        ))
        .advise(format!("the router must pass ports 443 and 80 on to {inner}"));
    }
    let foreign_text = listed(foreign).unwrap_or_default();
    let finding = SetupFinding::warning(format!("{leads}; {foreign_text} is not an address of this machine"));
    let finding = match foreign.len() < outside.len() {
        true => finding
            .advise("clients and authorities that choose it come to another machine: correct it in DNS"),
        false => finding.advise(
            "correct it in DNS, unless a balancer or a CDN there passes connections on to this machine",
        ),
    };
    match listed(&public(own)) {
        Some(own) => finding.advise(format!("this machine has {own}")),
        None => finding,
    }
}

fn listed(addresses: &[IpAddr]) -> Option<String> {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn public(addresses: &[IpAddr]) -> Vec<IpAddr> {
    addresses.iter().copied().filter(|address| is_public(*address)).collect()
}

/// Returns true for addresses that the internet routes (RFC 6890).
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => {
            let [a, b, ..] = four.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let reserved = a == 0 || a >= 224;
            let special = four.is_private() || four.is_loopback() || four.is_link_local();
            !(special || shared || reserved || is_documentation(four))
        }
        IpAddr::V6(six) => six.segments()[0] & 0xe000 == 0x2000 && !is_documentation_6(six),
    }
}

fn is_documentation(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _])
}

fn is_documentation_6(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::finding::FindingLevel;

    #[test]
    fn each_kind_of_address_gets_its_words() {
        let rows = [
            ("9.9.9.9", "127.0.0.1 9.9.9.9", FindingLevel::Good, true, "an address of this machine"),
            ("9.9.9.9 2620:fe::9", "9.9.9.9 2620:fe::9", FindingLevel::Good, true, "of this machine"),
            ("9.9.9.9", "192.168.1.7", FindingLevel::Warning, true, "behind a router (NAT)"),
            // A cloud has IPv6 on the interface, and IPv4 translated.
            (
                "9.9.9.9",
                "10.0.0.7 2620:fe::9",
                FindingLevel::Warning,
                true,
                "pass ports 443 and 80 on to 10.0.0.7",
            ),
            ("9.9.9.9", "8.8.8.8", FindingLevel::Warning, true, "9.9.9.9 is not an address of this machine"),
            ("9.9.9.9 2620:fe::8", "9.9.9.9 2620:fe::9", FindingLevel::Warning, true, "2620:fe::8 is not"),
            ("192.168.1.7", "192.168.1.7", FindingLevel::Warning, false, "nobody on the internet"),
            ("fd00::7", "", FindingLevel::Warning, false, "nobody on the internet"),
            ("100.64.0.7", "", FindingLevel::Warning, false, "nobody on the internet"),
            ("127.0.1.1", "", FindingLevel::Warning, false, "/etc/hosts"),
            ("9.9.9.9 10.0.0.7", "9.9.9.9", FindingLevel::Warning, true, "10.0.0.7 is private"),
            (
                "",
                "9.9.9.9",
                FindingLevel::Warning,
                false,
                "add an A record, and an AAAA record if this machine has IPv6: 9.9.9.9",
            ),
        ];
        let parse =
            |texts: &str| texts.split_whitespace().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        for (found, own, level, is_public, words) in rows {
            let found = parse(found);
            let answer = if found.is_empty() { LookUp::Nothing } else { LookUp::Found(found) };
            let report = judge("a.example.org", &answer, &parse(own));
            let text = crate::setup::finding::list(std::slice::from_ref(&report.finding));
            assert_eq!((report.finding.level, report.is_public), (level, is_public), "{text}");
            assert!(text.contains(words), "{words} in {text}");
        }
        let silent = judge("a.example.org", &LookUp::Silence, &[]);
        assert!(!silent.is_public && silent.finding.text.contains("no name server"));
    }

    #[test]
    fn the_name_of_this_machine_is_local() {
        assert!(!check("localhost", &[]).is_public);
        assert!(!check("nobody.invalid", &[]).is_public);
    }
}
