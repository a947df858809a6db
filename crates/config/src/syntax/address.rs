//! Hosts, addresses and networks.

use super::{BLANK, TextSyntax, range};

/// The expression of a text with a host or an address.
pub(super) fn expression(syntax: TextSyntax) -> String {
    let (socket, host) = (socket(0), host());
    match syntax {
        TextSyntax::HostPattern => format!("(?:[*][.])?{host}"),
        TextSyntax::CertificateName => format!("(?:[*][.])?{host}|{}|{}", ipv4(), ipv6()),
        TextSyntax::HostOrAddress => format!("{host}|{}|{}", ipv4(), ipv6()),
        TextSyntax::HostAndPort => {
            format!(r"(?:{host}|{}|\[(?:{})\])(?::{})?", ipv4(), ipv6(), port(1))
        }
        TextSyntax::SocketAddress => socket,
        TextSyntax::ListenAddress => format!("{UNIX}|{socket}"),
        TextSyntax::Server => format!("{UNIX}|{}", by_port()),
        TextSyntax::RouteServer => format!("{UNIX}|(?:tls://)?(?:{})", by_port()),
        TextSyntax::BackendServer => {
            let unix = r"unix:[^\x00\t\n\f\r ]*[^/\x00\t\n\f\r ]";
            format!("{BLANK}*(?:{unix}|{}){}{BLANK}*", by_port(), attributes())
        }
        TextSyntax::Syslog => format!(r"udp://(?:{})|(?:unix:|/)[^\x00]*[^/\x00]", by_port()),
        TextSyntax::Network => network(),
        TextSyntax::Networks => format!(r"{}|file:[^\x00]+|country:[A-Za-z][A-Za-z]", network()),
        TextSyntax::AcmeDirectory => r"https://[A-Za-z0-9._:\[\]-]+(?:[/?#][!-~]*)?".to_owned(),
        TextSyntax::AskUrl => ask_url(),
        TextSyntax::NotifyUrl => {
            format!(r"https?://{}(?:[/?][!$-;=?-\[\]_a-z~]*)?", loose_host_and_port())
        }
        TextSyntax::MailServer => format!("smtps?://{}/?", loose_host_and_port()),
        TextSyntax::Collector => {
            let bare = format!(r"{host}|{}|\[(?:{})(?:%{})?\]", ipv4(), ipv6(), number(u32::MAX.into()));
            format!(r"http://(?:{}|{bare})(?:/[!$->@-\[\]-~]*)?", by_port())
        }
        _ => host,
    }
}

/// The path of a Unix socket.
const UNIX: &str = r"unix:[^\x00]*[^/\x00]";

/// Labels joined by dots, of which the last has a character that is no digit.
fn host() -> String {
    let label = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?";
    let ending = "[A-Za-z0-9_-]*[A-Za-z0-9_]";
    format!("(?:{label}[.])*[0-9]*(?:[A-Za-z_](?:{ending})?|(?:[0-9]-){ending})[.]?")
}

/// The attributes of a server: each once, in any order.
fn attributes() -> String {
    let weight = format!(r"{BLANK}+weight=\+?0*(?:{})", range(1, 256));
    let (backup, state) = (format!("{BLANK}+backup"), format!("{BLANK}+(?:drain|disabled)"));
    let all = [weight.as_str(), &backup, &state];
    let ways = (0..3).map(|first| {
        let (second, third) = (all[(first + 1) % 3], all[(first + 2) % 3]);
        format!("{}(?:{second}(?:{third})?|{third}(?:{second})?)?", all[first])
    });
    format!("(?:{})?", ways.collect::<Vec<_>>().join("|"))
}

/// A number up to `most`, with any leading zeros.
fn number(most: u64) -> String {
    format!("0*(?:{})", range(0, most))
}

/// A port from `least`.
fn port(least: u64) -> String {
    format!("0*(?:{})", range(least, 65_535))
}

/// An address and a port from `least`.
fn socket(least: u64) -> String {
    let (scope, port) = (number(u32::MAX.into()), port(least));
    format!(r"(?:{}|\[(?:{})(?:%{scope})?\]):{port}", ipv4(), ipv6())
}

/// An address or a host, and a port.
fn by_port() -> String {
    format!("{}|{}:{}", socket(1), host(), port(1))
}

/// The octet of an address.
fn ipv4_of(octet: &str) -> String {
    format!("(?:{octet}[.]){{3}}{octet}")
}

fn ipv4() -> String {
    ipv4_of("(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])")
}

fn ipv6() -> String {
    ipv6_of(&ipv4(), 7)
}

/// Groups of 16 bits, of which `::` stands for some and the last two may be `ipv4`. With `::` there are `most` groups.
fn ipv6_of(ipv4: &str, most: usize) -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let up_to = |count: usize| match count {
        0 => String::new(),
        count => format!("(?:{group}:){{0,{count}}}"),
    };
    let tail = |count: usize| match count {
        0 => String::new(),
        1 => format!("(?:{group})?"),
        _ => format!("(?:{}{group}|{}{ipv4})?", up_to(count - 1), up_to(count - 2)),
    };
    let mut ways = vec![format!("(?:{group}:){{7}}{group}"), format!("(?:{group}:){{6}}{ipv4}")];
    for head in 0..=most {
        let before = match head {
            0 => String::new(),
            1 => group.to_owned(),
            count => format!("(?:{group}:){{{}}}{group}", count - 1),
        };
        ways.push(format!("{before}::{}", tail(most - head)));
    }
    ways.join("|")
}

/// An address, or an address and the length of its prefix, which is read by other rules.
fn network() -> String {
    let octets = ipv4_of("(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])");
    let short = "(?:0?[0-9]|[12][0-9]|3[0-2])";
    let long = "(?:0?0?[0-9]|0?[1-9][0-9]|1[01][0-9]|12[0-8])";
    format!("{}|{}|{octets}/{short}|(?:{})/{long}", ipv4(), ipv6(), ipv6_of(&octets, 7))
}

/// A host, not looked at closely, and a port if needed.
fn loose_host_and_port() -> String {
    format!(r"(?:[A-Za-z0-9._-]+|\[(?:{}|{})\])(?::\+?{})?", ipv4(), ipv6(), port(1))
}

fn ask_url() -> String {
    let plain = r"[A-Za-z0-9._\[\]-]";
    let any = r"[A-Za-z0-9._:\[\]-]";
    let authority = format!(r"{plain}+|{any}*:{plain}*\]{plain}*|{any}+:\+?{}", port(1));
    format!("http://(?:{authority})(?:[/?][!\"$-~]*)?")
}
