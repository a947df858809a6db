//! PROXY protocol version 1: one line of text (specification §2.1).
//!
//! The grammar is taken literally: single spaces, no leading zeros, CRLF and nothing else. One exception:
//! IPv6 addresses may end in dotted IPv4, because `inet_ntop` writes mapped addresses that way.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str;

use super::{
    EndpointPair, Header, MAX_V1, ProxyAddresses, ProxyCommand, ProxyHeaderVersion, SIGNATURE_V1, Tlvs,
};
use crate::{ParseStep, ProxyFault};

/// Length of the shortest line, `PROXY UNKNOWN\r\n`, in bytes.
pub(super) const SHORTEST: usize = 15;

/// Reads a v1 line from the front of `buf`.
pub(super) fn parse(buf: &[u8]) -> ParseStep<Header<'_>, ProxyFault> {
    let seen = buf.len().min(SIGNATURE_V1.len());
    if buf[..seen] != SIGNATURE_V1[..seen] {
        return ParseStep::Reject(ProxyFault::NotProxy);
    }
    let window = &buf[..buf.len().min(MAX_V1)];
    let Some(end) = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return match window.len() {
            MAX_V1 => ParseStep::Reject(ProxyFault::LineTooLong),
            have => ParseStep::Need(SHORTEST.saturating_sub(have).max(2)),
        };
    };
    if window[end] == b'\n' {
        return ParseStep::Reject(ProxyFault::BareLineFeed);
    }
    match window.get(end + 1) {
        Some(b'\n') => {}
        Some(_) => return ParseStep::Reject(ProxyFault::BareCarriageReturn),
        None if end + 1 == MAX_V1 => return ParseStep::Reject(ProxyFault::LineTooLong),
        None => return ParseStep::Need(1),
    }
    // The signature has neither CR nor LF, so the line ends behind it.
    match read_line(&window[SIGNATURE_V1.len()..end]) {
        Ok(addresses) => ParseStep::Done {
            value: Header {
                version: ProxyHeaderVersion::V1,
                command: ProxyCommand::Proxy,
                addresses,
                tlvs: Tlvs::default(),
            },
            consumed: end + 2,
        },
        Err(fault) => ParseStep::Reject(fault),
    }
}

/// Parses the part of the line between `PROXY ` and CRLF.
fn read_line(line: &[u8]) -> Result<ProxyAddresses<'static>, ProxyFault> {
    let (family, rest) = match line.iter().position(|&byte| byte == b' ') {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    };
    let address: fn(&str) -> Option<IpAddr> = match family {
        b"TCP4" => |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        b"TCP6" => |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        // "The receiver must ignore anything presented before the CRLF."
        b"UNKNOWN" => return Ok(ProxyAddresses::Unspec),
        _ => return Err(ProxyFault::UnknownFamily),
    };
    let rest = rest.and_then(|rest| str::from_utf8(rest).ok()).ok_or(ProxyFault::MalformedLine)?;
    let mut fields = rest.split(' ');
    let mut next = || fields.next().ok_or(ProxyFault::MalformedLine);
    let (source, destination, source_port, destination_port) = (next()?, next()?, next()?, next()?);
    if fields.next().is_some() {
        return Err(ProxyFault::MalformedLine);
    }
    let address = |text| address(text).ok_or(ProxyFault::BadAddress);
    Ok(ProxyAddresses::Tcp {
        source: SocketAddr::new(address(source)?, read_port(source_port)?),
        destination: SocketAddr::new(address(destination)?, read_port(destination_port)?),
    })
}

fn read_port(text: &str) -> Result<u16, ProxyFault> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain).ok_or(ProxyFault::BadPort)
}

/// Appends the v1 line for `pair`.
pub(super) fn encode(pair: EndpointPair<'_>, out: &mut Vec<u8>) {
    let written = match pair {
        EndpointPair::Inet(SocketAddr::V4(source), SocketAddr::V4(destination)) => write!(
            out,
            "PROXY TCP4 {} {} {} {}\r\n",
            source.ip(),
            destination.ip(),
            source.port(),
            destination.port()
        ),
        EndpointPair::Inet(SocketAddr::V6(source), SocketAddr::V6(destination)) => write!(
            out,
            "PROXY TCP6 {} {} {} {}\r\n",
            source.ip(),
            destination.ip(),
            source.port(),
            destination.port()
        ),
        EndpointPair::Inet(..) | EndpointPair::Unix(..) | EndpointPair::Unspec => {
            out.write_all(b"PROXY UNKNOWN\r\n")
        }
    };
    // Writing to a `Vec` cannot fail.
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{OutboundHeader, ProxyEndpoint, parse};

    fn tcp(source: &str, destination: &str) -> ProxyAddresses<'static> {
        ProxyAddresses::Tcp { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    fn addresses(line: &str) -> Result<ProxyAddresses<'_>, ProxyFault> {
        match parse(line.as_bytes()) {
            ParseStep::Done { value, consumed } => {
                assert_eq!(consumed, line.find('\n').unwrap() + 1);
                assert_eq!((value.version, value.command), (ProxyHeaderVersion::V1, ProxyCommand::Proxy));
                assert!(value.tlvs.is_empty());
                Ok(value.addresses)
            }
            ParseStep::Reject(fault) => Err(fault),
            ParseStep::Need(more) => panic!("needs {more} more for {line:?}"),
        }
    }

    #[test]
    fn the_example_of_the_specification() {
        let stream = "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET / HTTP/1.1\r\n";
        assert_eq!(addresses(stream), Ok(tcp("192.168.0.1:56324", "192.168.0.11:443")));
    }

    #[test]
    fn the_longest_lines_of_the_specification() {
        let four = "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n";
        assert_eq!(four.len(), 56);
        assert_eq!(addresses(four), Ok(tcp("255.255.255.255:65535", "255.255.255.255:65535")));
        let full = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let six = format!("PROXY TCP6 {full} {full} 65535 65535\r\n");
        assert_eq!(six.len(), 104);
        assert_eq!(addresses(&six), Ok(tcp(&format!("[{full}]:65535"), &format!("[{full}]:65535"))));
        let worst = format!("PROXY UNKNOWN {full} {full} 65535 65535\r\n");
        assert_eq!(worst.len(), MAX_V1);
        assert_eq!(addresses(&worst), Ok(ProxyAddresses::Unspec));
        assert_eq!(addresses("PROXY UNKNOWN\r\n"), Ok(ProxyAddresses::Unspec));
    }

    #[test]
    fn valid_spellings() {
        assert_eq!(addresses("PROXY TCP6 ::1 2001:DB8::a 1 0\r\n"), Ok(tcp("[::1]:1", "[2001:db8::a]:0")));
        assert_eq!(
            addresses("PROXY TCP6 ::ffff:10.0.0.1 ::ffff:10.0.0.2 1 2\r\n"),
            Ok(tcp("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:2"))
        );
        assert_eq!(addresses("PROXY UNKNOWN \x01 whatever\r\n"), Ok(ProxyAddresses::Unspec));
    }

    #[test]
    fn faults() {
        use ProxyFault as F;
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
        assert_eq!(long.len(), MAX_V1 + 1);
        let cases = [
            ("PROXX TCP4", F::NotProxy),
            ("PROXY\tTCP4 1.1.1.1 2.2.2.2 1 2\r\n", F::NotProxy),
            ("PROXY\r\n", F::NotProxy),
            (long.as_str(), F::LineTooLong),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n", F::BareLineFeed),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\rX", F::BareCarriageReturn),
            ("PROXY \r\n", F::UnknownFamily),
            ("PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n", F::UnknownFamily),
            ("PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n", F::UnknownFamily),
            ("PROXY UNKNOWNX\r\n", F::UnknownFamily),
            ("PROXY TCP4\r\n", F::MalformedLine),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", F::MalformedLine),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n", F::MalformedLine),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n", F::MalformedLine),
            ("PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n", F::MalformedLine),
            ("PROXY TCP4 01.1.1.1 2.2.2.2 1 2\r\n", F::BadAddress),
            ("PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n", F::BadAddress),
            ("PROXY TCP4 1.1.1.256 2.2.2.2 1 2\r\n", F::BadAddress),
            ("PROXY TCP4 ::1 ::1 1 2\r\n", F::BadAddress),
            ("PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n", F::BadAddress),
            ("PROXY TCP6 ::1%eth0 ::1 1 2\r\n", F::BadAddress),
            ("PROXY TCP6 1::2::3 ::1 1 2\r\n", F::BadAddress),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n", F::BadPort),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 00 2\r\n", F::BadPort),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n", F::BadPort),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n", F::BadPort),
            ("PROXY TCP4 1.1.1.1 2.2.2.2 1 -2\r\n", F::BadPort),
        ];
        for (line, fault) in cases {
            assert_eq!(addresses(line), Err(fault), "{line:?}");
        }
    }

    #[test]
    fn waits_for_the_line_feed_within_the_limit() {
        assert_eq!(parse(b""), ParseStep::Need(15));
        assert_eq!(parse(b"PROXY"), ParseStep::Need(10));
        assert_eq!(parse(b"PROXY TCP4 1.1.1.1 2.2"), ParseStep::Need(2));
        assert_eq!(parse(b"PROXY UNKNOWN\r"), ParseStep::Need(1));
        // A carriage return as the last permitted byte leaves no room for its line feed.
        let full = format!("PROXY UNKNOWN {}\r", "x".repeat(92));
        assert_eq!(full.len(), MAX_V1);
        assert_eq!(parse(full.as_bytes()), ParseStep::Reject(ProxyFault::LineTooLong));
    }

    #[test]
    fn unknown_is_written_for_mixed_families() {
        let line = |source: ProxyEndpoint<'_>, destination: ProxyEndpoint<'_>| {
            let mut out = b"before ".to_vec();
            OutboundHeader::new(source, destination).encode_v1(&mut out);
            String::from_utf8(out).unwrap()
        };
        let inet = |text: &str| ProxyEndpoint::Inet(text.parse().unwrap());
        assert_eq!(
            line(inet("192.168.0.1:56324"), inet("192.168.0.11:443")),
            "before PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
        );
        assert_eq!(
            line(inet("[::1]:1"), inet("[2001:db8::a]:2")),
            "before PROXY TCP6 ::1 2001:db8::a 1 2\r\n"
        );
        assert_eq!(
            line(inet("[::ffff:10.0.0.1]:1"), inet("[::ffff:10.0.0.2]:2")),
            "before PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"
        );
        for mixed in [
            (inet("10.0.0.1:1"), inet("[::1]:2")),
            (ProxyEndpoint::Unix(b"/run/a"), ProxyEndpoint::Unix(b"/run/b")),
            (ProxyEndpoint::Unix(b""), inet("[::1]:2")),
        ] {
            assert_eq!(line(mixed.0, mixed.1), "before PROXY UNKNOWN\r\n");
        }
    }
}
